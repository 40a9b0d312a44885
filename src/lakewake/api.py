"""The public face: a configuration's indexes, and what can be done with one."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from lakewake.config.file import load_config
from lakewake.config.settings import IndexSettings, ModelSettings, RecommendSettings, Settings
from lakewake.embed.registry import load_embedder
from lakewake.errors import ConfigError, IndexMissing, StoreError
from lakewake.history.log import SyncLog, newest, open_history
from lakewake.history.record import Recorder
from lakewake.model.choices import one_of
from lakewake.model.facets import Facet
from lakewake.model.history import CommitMark, SyncRecord, mark_commits
from lakewake.model.query import Mode, Question, SearchResult
from lakewake.model.report import PlanReport, StatusReport, SyncReport, VerifyReport
from lakewake.progress import Reporter, Silent
from lakewake.search.facets import FacetCache
from lakewake.search.view import SearchParts, View, again
from lakewake.spark.sessions import Sessions as Sessions
from lakewake.sync import IndexParts
from lakewake.sync.wiring import wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakewake.embed import Embedder
    from lakewake.model.recommendation import Recommendation
    from lakewake.model.rows import RowId
    from lakewake.rerank import Reranker
    from lakewake.search.run import Ranking

T = TypeVar("T")


def open(
    config: str | Path | None = None,
    *,
    spark: SparkSession | None = None,
    reporter: Reporter | None = None,
    verbose: bool = False,
) -> Lakewake:
    """Open the indexes of a configuration file.

    Args:
        config: the file; without it `LAKEWAKE_CONFIG`, else ./lakewake.toml.
        spark: a session to work in, with Hudi in it; it is never stopped. Without one, a session
            is started when rows must be read, and stopped by `close`.
        reporter: where progress goes; nowhere by default.
        verbose: let Spark's and Hudi's own log through.

    Raises:
        ConfigError: the configuration cannot be used.
        SetupError: Hudi is not in `spark`.
    """
    reporter = reporter or Silent()
    sessions = Sessions({}, spark, verbose, reporter)
    settings = load_config(config)
    sessions.options = settings.spark
    sessions.tables = tuple(index.table for index in settings.indexes)
    return Lakewake(settings, sessions, reporter)


class Lakewake(Mapping[str, "Index"]):
    """All indexes of one configuration, by name."""

    def __init__(self, settings: Settings, sessions: Sessions, reporter: Reporter) -> None:
        self.settings = settings
        self._sessions = sessions
        home, chat = settings.path.parent, settings.recommend
        # Indexes of one model share it: a server of ten holds it once.
        load = cache(load_embedder)
        self._indexes = {
            s.name: Index(s, sessions, reporter, home, chat, load) for s in settings.indexes
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The indexes' names, in the order of the file."""
        return tuple(self._indexes)

    def __getitem__(self, name: str) -> Index:
        if name not in self._indexes:
            near = difflib.get_close_matches(name, self.names, 1)
            raise ConfigError(
                f"there is no index '{name}' in {self.settings.path}",
                hint=(f"did you mean '{near[0]}'? " if near else "")
                + f"its indexes are {', '.join(self.names)}",
            )
        return self._indexes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._indexes

    def __iter__(self) -> Iterator[str]:
        return iter(self._indexes)

    def __len__(self) -> int:
        return len(self._indexes)

    def close(self) -> None:
        """Let go of everything; a Spark session of our own is stopped."""
        for index in self._indexes.values():
            index.close()
        self._sessions.close()

    def __enter__(self) -> Lakewake:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


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
        """What the configuration calls it."""
        return self.settings.name

    @cached_property
    def parts(self) -> IndexParts:
        """What it is made from; the model and Spark are loaded only when used."""
        # Several threads may ask at once, and all must get the same store.
        with self._making:
            if "parts" not in self.__dict__:
                self.__dict__["parts"] = self._make_parts()
            made: IndexParts = self.__dict__["parts"]
            return made

    def _make_parts(self) -> IndexParts:
        s = self.settings
        # A model named beside a vector column is what the table's vectors were made by.
        own = s.vector if s.model.provider == "column" else None
        embedder = self._load(s.model, own)
        return wire(s, embedder, lambda: self._sessions.get(beside=embedder.load), self._reporter)

    @cached_property
    def _log(self) -> SyncLog:
        """What its syncs did."""
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
            rebuild: build it anew from the whole table, then switch; texts it knows are not
                embedded again.
            reconcile: compare the whole table with the index even where its history can be
                followed (True), or refuse to where it cannot (False).
            retry_quarantined: try the rows again that the embedder refused.
            allow_deletes: remove rows however many they are.

        Raises:
            HistoryLost: history cannot be followed, and `reconcile` is False.
            RecipeMismatch: the index was built by another recipe or model.
            TooManyDeletes: more than `max_delete` of the rows, and more than 1,000, would go.
        """
        from lakewake.sync import SyncOptions, sync

        options = SyncOptions(rebuild, reconcile, retry_quarantined, allow_deletes=allow_deletes)
        return self._recorder.run(lambda: sync(self.parts, options))

    def heal(self, damage: StoreError) -> SyncReport:
        """Build the index again because of that damage; texts that are known are not embedded.

        Vectors come from the embedding store, and from the index as far as it can be read.
        """
        from lakewake.sync import SyncOptions, sync

        options = SyncOptions(rebuild=True, why=damage.fact)
        return self._recorder.run(lambda: sync(self.parts, options))

    def verify(self, *, repair: bool = False, vectors: str = "sample") -> VerifyReport:
        """Compare the index with the table, at one instant.

        Args:
            repair: put right exactly what differs, in one commit, and verify again. Without it
                nothing is written.
            vectors: how many vectors are compared with what the model makes of their texts:
                `none`, `sample` or `all`.

        Raises:
            IndexMissing: there is no index yet.
            HistoryLost: what changed since the last sync cannot be told; sync first.
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
    ) -> SearchResult:
        """The `k` rows nearest to a text, a vector or another row. No JVM is started.

        Args:
            like: a row whose neighbours are wanted; it is not among them.
            offset: how many of the best rows to pass over: `k` of them are a page.
            where: a filter on payload columns, such as `country = 'Italy' AND price < 40`, or the
                same as JSON: `{"country": "Italy", "price": {"<": 40}}`.
            mode: `vector` goes by meaning, `keyword` by words, `hybrid` by both.
            min_score: leave out rows with a lower score.
            rerank: rank the best rows anew by the model that the configuration names; by default
                it is done where one is named.
            exact: compare with every vector, even where an approximate index is at hand.

        Raises:
            IndexMissing: there is no index yet.
            FilterError: the filter does not parse, or does more than filter.
        """
        from lakewake.search.run import check_question

        how = one_of(Mode, "mode", mode)
        question = Question(self.name, text, vector, k, where, exact, like, how, offset, min_score)
        check_question(question)
        return self.with_view(lambda view: view.answer(question, rerank=rerank))

    @contextmanager
    def view(self) -> Iterator[View]:
        """The newest version of the index, to read it several times at one table commit.

        Raises:
            IndexMissing: there is no index yet.
        """
        yield self._view()

    def with_view(self, work: Callable[[View], T]) -> T:
        """What `work` returns for a view of the newest version.

        If a rebuild removes that version while it is read, `work` is called again with a view of
        the new one.

        Raises:
            IndexMissing: there is no index yet.
        """
        return again(lambda: work(self._view()))

    def _view(self) -> View:
        reader = self.parts.store.open()
        if reader is None:
            raise IndexMissing(
                f"there is no index '{self.name}' yet", hint=f"`lakewake sync {self.name}`"
            )
        return View(reader, self._search_parts)

    @property
    def _search_parts(self) -> SearchParts:
        timeout = self.settings.model.timeout
        return SearchParts(self.name, self.embedder, self._ranking, timeout, self._facets)

    @property
    def embedder(self) -> Embedder:
        """What embeds the text of a search."""
        return self.parts.embedder

    def _ranking(self, rerank: bool | None) -> Ranking:
        from lakewake.search.run import Ranking

        weights, chosen = self.settings.weights, self.settings.rerank
        if chosen is None and rerank:
            raise ConfigError(
                f"no model is named that would rank the hits of '{self.name}' anew",
                hint='add rerank = {url = "http://localhost:8080"} to the index',
            )
        if chosen is None or rerank is False:
            return Ranking(weights)
        return Ranking(weights, self.reranker.score, chosen.rows)

    @cached_property
    def reranker(self) -> Reranker:
        """What ranks the best hits anew, where the configuration names it."""
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

        Where the chat model of `[recommend]` fails, or there is none, sentences of the rows are
        quoted instead; the rows come in any case.

        Args:
            query: what is asked; `k`, `where` and `mode` are those of `search`.
            model: False: do not ask the model, quote the rows.

        Raises:
            IndexMissing: there is no index yet.
            FilterError: the filter does not parse, or does more than filter.
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
        """As `recommend`: pieces of the message as the model makes them, last the whole.

        Where the model breaks off, the message of the whole replaces the pieces.
        """
        from lakewake.recommend import recommend_stream

        return recommend_stream(query, self._finder(k, where, mode), self._chat_if(model))

    def _finder(
        self, k: int, where: str | Mapping[str, Any] | None, mode: str
    ) -> Callable[[str], SearchResult]:
        return lambda query: self.search(query, k=k, where=where, mode=mode)

    def _chat_if(self, model: bool) -> RecommendSettings:
        return self._chat if model else replace(self._chat, url="", name="")

    def status(self) -> StatusReport:
        """Where the index stands. No JVM is started.

        Raises:
            TableError: the table cannot be looked at.
            StoreError: the index could not be searched: damaged, or out of reach.
        """
        from lakewake.sync.status import status_report

        return again(lambda: status_report(self.parts, self.settings, self._last_sync()))

    def probe(self) -> None:
        """Read a little of the index, to find out whether a search could be answered.

        Raises:
            IndexDamaged: files of it are missing, or not as they were written.
            StoreError: it cannot be read.
        """
        if reader := self.parts.store.open():
            reader.probe()

    def history(self, limit: int = 20) -> tuple[SyncRecord, ...]:
        """What its last syncs did, newest first: those that did something, or failed.

        Raises:
            StoreError: the history cannot be read.
        """
        return newest(self._log, _counted(limit))

    def commits(self, limit: int = 50, *, view: View | None = None) -> tuple[CommitMark, ...]:
        """The table's newest commits, newest first, and how each came into the index.

        No JVM is started. Only what is on the table's active timeline can be told, and of the
        syncs only those that the history still holds.

        Args:
            view: the version of the index; the newest by default.

        Raises:
            TableError: there is no table to look at.
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
        """The last one that left a record; a history out of reach is no reason to tell nothing."""
        with suppress(StoreError):
            return next(iter(newest(self._log, 1)), None)
        return None

    def close(self) -> None:
        """Let go of files that are held open."""
        if "parts" in self.__dict__:
            self.parts.vector_cache.close()


def _counted(limit: int) -> int:
    if limit < 1:
        raise ConfigError(f"limit is {limit}", hint="ask for 1 or more")
    return limit
