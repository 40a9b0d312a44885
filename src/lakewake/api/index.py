"""One index: what can be done with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from lakewake.config.settings import IndexSettings, ModelSettings, RecommendSettings
from lakewake.embed.registry import load_embedder
from lakewake.errors import ConfigError, IndexMissing, IndexStale, StoreError
from lakewake.history.log import SyncLog, newest, open_history
from lakewake.history.record import Recorder
from lakewake.model.as_of import parse_instant
from lakewake.model.choices import one_of
from lakewake.model.facets import Facet
from lakewake.model.history import CommitMark, SyncRecord, mark_commits
from lakewake.model.query import Mode, Question, SearchResult
from lakewake.model.report import (
    IndexDescription,
    PlanReport,
    StatusReport,
    SyncReport,
    VerifyReport,
)
from lakewake.progress import Reporter
from lakewake.search.facets import FacetCache
from lakewake.search.view import SearchParts, View, again
from lakewake.spark.sessions import Sessions
from lakewake.store.address import address_of
from lakewake.store.hints import missing
from lakewake.store.registry import open_store
from lakewake.sync import IndexParts
from lakewake.sync.wiring import wire

if TYPE_CHECKING:
    from lakewake.embed import Embedder
    from lakewake.model.recommendation import Recommendation
    from lakewake.model.rows import RowId
    from lakewake.rerank import Reranker
    from lakewake.search.run import Ranking
    from lakewake.store import StoreReader

T = TypeVar("T")


class Index:
    """One vector index that follows one table."""

    def __init__(
        self,
        settings: IndexSettings,
        sessions: Sessions,
        reporter: Reporter,
        home: Path = Path("."),
        chat: RecommendSettings | None = None,
        load: Callable[[ModelSettings, str | None], Embedder] = load_embedder,
    ) -> None:
        self.settings = settings
        self._sessions = sessions
        self._reporter = reporter
        self._chat = chat or RecommendSettings()
        self._home, self._load = home, load
        self._recorder = Recorder(settings.name, lambda: self._log, reporter.say)
        self._making = threading.Lock()
        self._facets = FacetCache()

    @property
    def name(self) -> str:
        """The name of the index in the configuration."""
        return self.settings.name

    @cached_property
    def parts(self) -> IndexParts:
        """The wiring of the index. The model and Spark are loaded on first use."""
        # Several threads may ask at once, and all must get the same store.
        with self._making:
            if "parts" not in self.__dict__:
                self.__dict__["parts"] = self._make_parts()
            made: IndexParts = self.__dict__["parts"]
            return made

    def _make_parts(self) -> IndexParts:
        s = self.settings
        # With a vector column, a model that is also configured is the one that made its vectors.
        own = s.vector if s.model.provider == "column" else None
        embedder = self._load(s.model, own)
        return wire(s, embedder, lambda: self._sessions.get(beside=embedder.load), self._reporter)

    @cached_property
    def _log(self) -> SyncLog:
        """The history of the index."""
        return open_history(self.settings, self._home)

    def plan(self) -> PlanReport:
        """What `sync` would do, why, and how many texts it would embed. Writes nothing."""
        from lakewake.sync import plan_next

        return plan_next(self.parts)

    def sync(
        self,
        *,
        rebuild: bool = False,
        reconcile: bool | None = None,
        retry_quarantined: bool = False,
        allow_deletes: bool = False,
    ) -> SyncReport:
        """Bring the index to the table's latest commit.

        Args:
            rebuild: build a new generation from the whole table, then switch to it. Known texts
                are not embedded again.
            reconcile: True: compare the whole table with the index even if history can be
                followed. False: raise if it cannot.
            retry_quarantined: try again the rows that the embedder refused.
            allow_deletes: remove rows, however many there are.

        Raises:
            HistoryLost: history cannot be followed and `reconcile` is False.
            RecipeMismatch: the index was built with another recipe or model.
            TooManyDeletes: the sync would remove more than 1,000 rows, and a larger share than
                `max_delete`.
        """
        from lakewake.sync import SyncOptions, sync

        options = SyncOptions(rebuild, reconcile, retry_quarantined, allow_deletes=allow_deletes)
        return self._recorder.run(lambda: sync(self.parts, options))

    def heal(self, damage: StoreError) -> SyncReport:
        """Build the index again because it is damaged. Known texts are not embedded again.

        Vectors come from the vector cache, and from the index as far as it can be read.
        """
        from lakewake.sync import SyncOptions, sync

        options = SyncOptions(rebuild=True, why=damage.fact)
        return self._recorder.run(lambda: sync(self.parts, options))

    def verify(self, *, repair: bool = False, vectors: str = "sample") -> VerifyReport:
        """Compare the index with the table at one instant.

        Args:
            repair: repair exactly what differs, in one commit, and verify again. Otherwise
                nothing is written.
            vectors: how many vectors to check by embedding their texts again: `none`, `sample`
                or `all`.

        Raises:
            IndexMissing: there is no index yet.
            HistoryLost: what changed since the last sync cannot be found out; sync first.
        """
        from lakewake import verify as stage
        from lakewake.verify.vectors import Vectors

        how = one_of(Vectors, "vectors", vectors)
        return stage.repair(self.parts, how) if repair else stage.verify(self.parts, how)

    def search(
        self,
        text: str | None = None,
        *,
        vector: Sequence[float] | None = None,
        like: RowId | None = None,
        k: int = 5,
        offset: int = 0,
        where: str | Mapping[str, Any] | None = None,
        mode: str = "vector",
        min_score: float | None = None,
        rerank: bool | None = None,
        exact: bool = False,
        as_of: str | None = None,
        max_age: float | None = None,
    ) -> SearchResult:
        """The `k` rows nearest to a text, a vector or another row. No JVM is started.

        Args:
            like: find the rows most similar to this row. The row itself is left out.
            offset: how many of the best rows to skip, to get the next page.
            where: a filter on payload columns, such as `country = 'Italy' AND price < 40`, or the
                same as JSON: `{"country": "Italy", "price": {"<": 40}}`.
            mode: `vector` searches by meaning, `keyword` by words, `hybrid` by both.
            min_score: leave out rows with a lower score.
            rerank: re-rank the best rows with the configured re-ranking model. By default, rows
                are re-ranked if there is one.
            exact: compare with every vector, even if there is an approximate index.
            as_of: search the index as it was at this instant of the table, if it is still kept.
            max_age: how many seconds the index may be behind its table.

        If the index is missing or too old and its configuration has `fallback = "scan"`, the
        vectors of the table itself are compared, and `fallback` in the result says why.

        Raises:
            ConfigError: the index is no longer kept as of that instant, or never was.
            IndexMissing: there is no index yet.
            IndexStale: the index is further behind its table than `max_age`.
            FilterError: the filter does not parse, or does more than compare columns with literals.
        """
        from lakewake.search.run import check_question

        how = one_of(Mode, "mode", mode)
        question = Question(self.name, text, vector, k, where, exact, like, how, offset, min_score)
        check_question(question)
        _check_age(max_age, as_of)
        try:
            return self._answer(question, rerank, as_of, max_age)
        except (IndexMissing, IndexStale) as error:
            if not self.settings.fallback or as_of is not None:
                raise
            return replace(self._scan(question, rerank), fallback=error.fact)

    def _answer(
        self, question: Question, rerank: bool | None, as_of: str | None, max_age: float | None
    ) -> SearchResult:
        from lakewake.sync.status import refuse_older

        def answer() -> SearchResult:
            reader = self._reader(as_of)
            if max_age is not None:
                refuse_older(self.parts, reader, max_age)
            return View(reader, self._search_parts).answer(question, rerank=rerank)

        return again(answer)

    def _scan(self, question: Question, rerank: bool | None) -> SearchResult:
        """Answer from the table itself. No JVM is started; a session that runs is used."""
        from lakewake.sync.scan import with_scan

        parts = self._search_parts
        return with_scan(
            self.parts,
            lambda reader: View(reader, parts).answer(question, rerank=rerank),
            spark=self._sessions.is_running,
        )

    @contextmanager
    def view(self, *, as_of: str | None = None) -> Iterator[View]:
        """The newest version of the index, so that several reads are of one table commit.

        Args:
            as_of: instead, the newest version that holds no table commit after this instant.

        Raises:
            ConfigError: the index is no longer kept as of that instant, or never was.
            IndexMissing: there is no index yet.
        """
        yield View(self._reader(as_of), self._search_parts)

    def with_view(self, work: Callable[[View], T], *, as_of: str | None = None) -> T:
        """Call `work` with a view of the newest version, and return its result.

        If a rebuild removes that version in the meantime, `work` is called again with a view of
        the new one.

        Raises:
            IndexMissing: there is no index yet.
        """
        return again(lambda: work(View(self._reader(as_of), self._search_parts)))

    def _reader(self, as_of: str | None) -> StoreReader:
        store = self.parts.store
        reader = store.open() if as_of is None else store.as_of(parse_instant(as_of))
        if reader is None:
            raise missing(self.name)
        return reader

    @property
    def _search_parts(self) -> SearchParts:
        timeout = self.settings.model.timeout
        return SearchParts(self.name, self.embedder, self._ranking, timeout, self._facets)

    @property
    def embedder(self) -> Embedder:
        """Embeds the text of a search."""
        return self.parts.embedder

    def _ranking(self, rerank: bool | None) -> Ranking:
        from lakewake.search.run import Ranking

        weights, chosen = self.settings.weights, self.settings.rerank
        if chosen is None and rerank:
            raise ConfigError(
                f"no re-ranking model is configured for index '{self.name}'",
                hint='add rerank = {url = "http://localhost:8080"} to the index',
            )
        if chosen is None or rerank is False:
            return Ranking(weights)
        return Ranking(weights, self.reranker.score, chosen.rows)

    @cached_property
    def reranker(self) -> Reranker:
        """Re-ranks the best hits. Only if the configuration names a re-ranking model."""
        from lakewake.rerank import load_reranker

        assert self.settings.rerank is not None
        return load_reranker(self.settings.rerank)

    def recommend(
        self,
        query: str,
        *,
        k: int = 5,
        where: str | Mapping[str, Any] | None = None,
        mode: str = "vector",
        model: bool = True,
    ) -> Recommendation:
        """An answer in words to the query, from the `k` rows found for it. No JVM is started.

        If there is no chat model in `[recommend]`, or it fails, the answer quotes sentences of the
        rows instead. The rows are always part of the result.

        Args:
            query: the question; `k`, `where` and `mode` are those of `search`.
            model: False: quote the rows and do not ask the model.

        Raises:
            IndexMissing: there is no index yet.
            FilterError: the filter does not parse, or does more than compare columns with literals.
        """
        from lakewake.recommend import recommend

        return recommend(query, self._finder(k, where, mode), self._chat_if(model))

    def recommend_stream(
        self,
        query: str,
        *,
        k: int = 5,
        where: str | Mapping[str, Any] | None = None,
        mode: str = "vector",
        model: bool = True,
    ) -> Iterator[str | Recommendation]:
        """Like `recommend`, but yields the message in parts as the model writes it.

        The last item is the whole recommendation. If the model breaks off, its message replaces
        the parts that came before.
        """
        from lakewake.recommend import recommend_stream

        return recommend_stream(query, self._finder(k, where, mode), self._chat_if(model))

    def _finder(
        self, k: int, where: str | Mapping[str, Any] | None, mode: str
    ) -> Callable[[str], SearchResult]:
        from lakewake.search.run import check_question

        how = one_of(Mode, "mode", mode)

        def find(query: str) -> SearchResult:
            question = Question(self.name, query, None, k, where, mode=how)
            check_question(question)
            # Without a scan: a recommendation could not show that there was one.
            return self._answer(question, None, None, None)

        return find

    def _chat_if(self, model: bool) -> RecommendSettings:
        return self._chat if model else replace(self._chat, url="", name="")

    def status(self) -> StatusReport:
        """How far the index is behind its table, and what it holds. No JVM is started.

        Raises:
            TableError: the table cannot be read.
            StoreError: the index cannot be searched: it is damaged or out of reach.
        """
        from lakewake.sync.status import status_report

        return again(lambda: status_report(self.parts, self.settings, self._last_sync()))

    def describe(self) -> IndexDescription:
        """What the index records about itself. Neither its table nor its model is needed.

        Raises:
            StoreError: the index cannot be read.
        """
        s = self.settings
        return again(lambda: described(s, open_store(s.store, s.name, s.recall).open()))

    def probe(self) -> None:
        """Read a little of the index to find out whether it can be searched.

        Raises:
            IndexDamaged: some of its files are missing or corrupt.
            StoreError: the index cannot be read.
        """
        if reader := self.parts.store.open():
            reader.probe()

    def history(self, limit: int = 20) -> tuple[SyncRecord, ...]:
        """The last syncs that did something or failed, newest first.

        Raises:
            StoreError: the history cannot be read.
        """
        return newest(self._log, _counted(limit))

    def commits(self, limit: int = 50, *, view: View | None = None) -> tuple[CommitMark, ...]:
        """The table's newest commits, newest first, and the sync that brought each into the index.

        No JVM is started. Only commits on the table's active timeline are listed, and only syncs
        that are still in the history.

        Args:
            view: the version of the index; the newest by default.

        Raises:
            TableError: the table cannot be read.
        """
        index = None if view else self.parts.store.open()
        frontier = view.frontier if view else index.frontier() if index else None
        look = self.parts.table.look(frontier)
        return mark_commits(look, frontier, self._log.records(), _counted(limit))

    def facets(self) -> tuple[Facet, ...]:
        """What the payload columns hold, for filters to choose from. Computed once per version.

        Raises:
            IndexMissing: there is no index yet.
        """
        return self.with_view(lambda view: view.facets())

    def _last_sync(self) -> SyncRecord | None:
        """The last sync on record. `status` still answers if the history is out of reach."""
        with suppress(StoreError):
            return next(iter(newest(self._log, 1)), None)
        return None

    def close(self) -> None:
        """Close open files."""
        if "parts" in self.__dict__:
            self.parts.vector_cache.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def described(settings: IndexSettings, reader: StoreReader | None) -> IndexDescription:
    """What a version of an index records about itself."""
    if reader is None:
        return IndexDescription(settings.name, settings.store, settings.table)
    frontier, (rows, chunks) = reader.frontier(), reader.counts()
    return IndexDescription(
        index=settings.name,
        store=settings.store,
        table=frontier.location or settings.table,
        table_name=frontier.table.name,
        built=True,
        rows=rows,
        chunks=chunks,
        generation=reader.generation,
        instant=frontier.newest,
        address=address_of(settings.store, settings.name),
        recipe=reader.recipe().as_dict(),
    )


def _check_age(max_age: float | None, as_of: str | None) -> None:
    if max_age is None:
        return
    if not max_age >= 0:
        raise ConfigError(f"max_age is {max_age}", hint="pass a number of seconds, 0 or more")
    if as_of is not None:
        raise ConfigError(
            "a search as of an instant has no max_age", hint="pass either as_of or max_age"
        )


def _counted(limit: int) -> int:
    if limit < 1:
        raise ConfigError(f"limit is {limit}", hint="pass 1 or more")
    return limit
