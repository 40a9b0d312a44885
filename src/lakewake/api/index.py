"""One index: what can be done with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from lakewake.api.described import described, drop_report
from lakewake.api.frames import Frames
from lakewake.api.hot import Hot, hot_files
from lakewake.api.operating import Operating
from lakewake.api.recommending import Recommending
from lakewake.api.syncing import CANARIES_KEPT, Syncing
from lakewake.config.settings import IndexSettings, ModelSettings, RecommendSettings
from lakewake.embed import for_questions
from lakewake.embed.questions import questions_of
from lakewake.embed.registry import load_embedder
from lakewake.errors import ConfigError, IndexMissing, IndexStale
from lakewake.history.log import SyncLog, newest, open_history
from lakewake.history.record import Recorder
from lakewake.model.as_of import parse_instant
from lakewake.model.choices import one_of
from lakewake.model.drop import DropReport
from lakewake.model.facets import Facet
from lakewake.model.history import CommitMark, SyncHistory, SyncRecord, mark_commits
from lakewake.model.query import Mode, Question, SearchResult
from lakewake.model.report import IndexDescription, StatusReport
from lakewake.progress import Reporter
from lakewake.search.facets import FacetCache
from lakewake.search.narrowed import NarrowedCache
from lakewake.search.view import SearchParts, View, again
from lakewake.show.redact import without_secrets
from lakewake.spark.sessions import Sessions
from lakewake.store.filters import fitted
from lakewake.store.hints import missing
from lakewake.store.limited import Limit, LimitedReader
from lakewake.store.registry import open_store
from lakewake.sync import IndexParts
from lakewake.sync.wiring import store_options, wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakewake.batch import BatchParts
    from lakewake.embed import Embedder
    from lakewake.model.rows import RowId
    from lakewake.model.where import Where
    from lakewake.rerank import Reranker
    from lakewake.search.run import Ranking
    from lakewake.store import StoreReader

T = TypeVar("T")


class Index(Frames, Operating, Recommending, Syncing):
    """One vector index that follows one table."""

    def __init__(
        self,
        settings: IndexSettings,
        sessions: Sessions,
        reporter: Reporter,
        home: Path = Path("."),
        chat: RecommendSettings | None = None,
        load: Callable[[ModelSettings, str | None], Embedder] = load_embedder,
        others: Sequence[IndexSettings] = (),
    ) -> None:
        self.settings = settings
        self._others = others
        self._sessions = sessions
        self._reporter = reporter
        self._chat = chat or RecommendSettings()
        self._home, self._load = home, load
        self._recorder = Recorder(settings.name, lambda: self._log, reporter.say)
        self.round = None
        self._making = threading.Lock()
        self._facets, self._narrowed = FacetCache(), NarrowedCache()
        self._hot = Hot(settings)

    def __repr__(self) -> str:
        """The name and the address, without secrets."""
        return f"{type(self).__name__}({self.name!r}, {without_secrets(self.settings.store)!r})"

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
        diversity: float = 0.0,
    ) -> SearchResult:
        """The `k` rows nearest to a text, a vector or another row. No JVM is started.

        Args:
            like: find the rows most similar to this row. The row itself is left out.
            offset: how many of the best rows to skip, to get the next page.
            where: a filter on payload columns, such as `country = 'Italy' AND price < 40`, or the
                same as JSON: `{"country": "Italy", "price": {"<": 40}}`.
            mode: `vector` searches by meaning, `keyword` by words, `hybrid` by both.
            min_score: leave out rows with a lower score.
            diversity: from 0 to 1: put rows that repeat what better rows say behind others.
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
        question = Question(
            self.name, text, vector, k, where, exact, like, how, offset, min_score, diversity
        )
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
            reader = self._searched(as_of)
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
            lambda reader: View(self._seen(reader), parts).answer(question, rerank=rerank),
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
        yield View(self._searched(as_of), self._search_parts)

    def with_view(self, work: Callable[[View], T], *, as_of: str | None = None) -> T:
        """Call `work` with a view of the newest version, and return its result.

        If a rebuild removes that version in the meantime, `work` is called again with a view of
        the new one.

        Raises:
            IndexMissing: there is no index yet.
        """
        return again(lambda: work(View(self._searched(as_of), self._search_parts)))

    def _searched(self, as_of: str | None) -> StoreReader:
        """A version to search: the newest one from memory, if it is there."""
        reader = self._opened(as_of)
        return self._seen(reader if as_of is not None else self._hot.front(reader))

    def warm(self, seconds: float = 600.0) -> bool:
        """Bring the newest version into memory, if `hot` allows it; False if that takes longer.

        Without this, a process begins by itself once it searches often. Until it is done, the
        store answers.

        Raises:
            IndexMissing: there is no index yet.
        """
        return self._hot.warm(self._opened(None), seconds, self._reporter)

    def _reader(self, as_of: str | None) -> StoreReader:
        """A version of the store itself."""
        return self._seen(self._opened(as_of))

    def _opened(self, as_of: str | None) -> StoreReader:
        store = self.parts.store
        reader = store.open() if as_of is None else store.as_of(parse_instant(as_of))
        if reader is None:
            raise missing(self.name)
        return reader

    def _seen(self, reader: StoreReader) -> StoreReader:
        """What of a version may be seen through this index; all of it, unless it is limited."""
        return reader

    def limited(self, where: str | Mapping[str, Any]) -> Index:
        """A view of the index that shows only the rows that pass a filter.

        It can be searched and read. No question widens it, and a filter that cannot be applied
        shows nothing. It cannot be synced, and not be searched as of an earlier instant.

        Raises:
            FilterError: the filter does not parse, or does more than compare columns with literals.
        """
        from lakewake.api.limited import LimitedIndex
        from lakewake.search.where_json import read_where

        return LimitedIndex(self, read_where(where))

    @property
    def _search_parts(self) -> SearchParts:
        return SearchParts(
            self.name,
            self._questions,
            self._ranking,
            self.settings.model.timeout,
            self._facets,
            self._narrowed,
            self._narrow,
        )

    @cached_property
    def _questions(self) -> Embedder:
        """Embeds the questions of searches; shared by all threads, and by all limited views."""
        embedder, provider = self.embedder, self.settings.model.provider
        with self._making:
            if "_questions" not in self.__dict__:
                made = questions_of(for_questions(embedder), provider)
                self.__dict__["_questions"] = made
            found: Embedder = self.__dict__["_questions"]
            return found

    def _narrow(self, reader: StoreReader, where: Where) -> StoreReader:
        # Raises, where a limit would show nothing.
        fitted(where, reader.schema())
        return LimitedReader(reader, Limit(self.name, where))

    def _batch_parts(self) -> BatchParts:
        from lakewake.batch import BatchParts

        s = self.settings
        reader = self._reader(None)
        return BatchParts(self.name, reader, self.embedder, s.model, self._plain_ranking)

    def _spark(self) -> SparkSession:
        return self._sessions.get(beside=self.embedder.load)

    @property
    def embedder(self) -> Embedder:
        """Embeds the text of a search."""
        return self.parts.embedder

    def _ranking(self, rerank: bool | None) -> Ranking:
        chosen = self.settings.rerank
        if chosen is None and rerank:
            raise ConfigError(
                f"no re-ranking model is configured for index '{self.name}'",
                hint='add rerank = {url = "http://localhost:8080"} to the index',
            )
        if chosen is None or rerank is False:
            return self._plain_ranking
        return replace(self._plain_ranking, rerank=self.reranker.score, rerank_rows=chosen.rows)

    @property
    def _plain_ranking(self) -> Ranking:
        from lakewake.search.run import Ranking

        return Ranking(
            self.settings.weights, languages=self.settings.languages, fusion=self.settings.hybrid
        )

    @cached_property
    def reranker(self) -> Reranker:
        """Re-ranks the best hits. Only if the configuration names a re-ranking model."""
        from lakewake.rerank import load_reranker

        assert self.settings.rerank is not None
        return load_reranker(self.settings.rerank)

    def status(self) -> StatusReport:
        """How far the index is behind its table, and what it holds. No JVM is started.

        Raises:
            TableError: the table cannot be read.
            StoreError: the index cannot be searched: it is damaged or out of reach.
        """
        from lakewake.sync.status import status_report

        report = again(lambda: status_report(self.parts, self.settings, self._last_sync()))
        if self.settings.canaries:
            known = (record.canaries for record in self._records(CANARIES_KEPT))
            report = replace(report, canaries=next(filter(None, known), None))
        return replace(report, hot=self._hot.status())

    def drop(self, *, dry_run: bool = False) -> DropReport:
        """Remove the index with its history. Neither its table nor its model is needed.

        A sync that runs at the same time fails, and brings nothing back. Vectors in the vector
        cache stay, so that the index can be built again without embedding its texts.

        Args:
            dry_run: remove nothing, and only report what would be removed.

        Raises:
            StoreError: some of it could not be removed; call it again.
        """
        s = self.settings
        found = open_store(s.store, s.stored_name, store_options(s)).drop(dry_run=dry_run)
        found = found.plus(open_history(s, self._home).drop(dry_run=dry_run))
        if files := hot_files(s):
            found = found.plus(files.drop(dry_run=dry_run))
        if not dry_run:
            self._facets, self._narrowed = FacetCache(), NarrowedCache()
        return drop_report(s, self._others, found, dry_run=dry_run)

    def describe(self) -> IndexDescription:
        """What the index records about itself. Neither its table nor its model is needed.

        Raises:
            StoreError: the index cannot be read.
        """
        s = self.settings
        store = open_store(s.store, s.stored_name, store_options(s))
        return again(lambda: described(s, store.open()))

    def probe(self) -> None:
        """Read a little of the index to find out whether it can be searched.

        Raises:
            IndexDamaged: some of its files are missing or corrupt.
            StoreError: the index cannot be read.
        """
        if reader := self.parts.store.open():
            reader.probe()

    def history(self, limit: int = 20) -> SyncHistory:
        """The last syncs that did something or failed, newest first.

        Raises:
            StoreError: the history cannot be read.
        """
        return SyncHistory(newest(self._log, _counted(limit)))

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

    def facets(
        self,
        text: str | None = None,
        *,
        where: str | Mapping[str, Any] | None = None,
        mode: str = "vector",
    ) -> tuple[Facet, ...]:
        """What the payload columns hold, for filters to choose from. Computed once per version.

        Args:
            text: count only the 200 best rows for this text.
            where: count only rows that pass this filter. Conditions on one column alone do not
                narrow that column's own values, so that several can be chosen.
            mode: how the text is searched for.

        Raises:
            IndexMissing: there is no index yet.
            FilterError: the filter does not parse, or does more than compare columns with literals.
        """
        return self.with_view(lambda view: view.facets(text, where=where, mode=mode))

    def _last_sync(self) -> SyncRecord | None:
        """The last sync on record. `status` still answers if the history is out of reach."""
        return next(iter(self._records(1)), None)

    def close(self) -> None:
        """Close open files, and let go of memory."""
        self._hot.close()
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
