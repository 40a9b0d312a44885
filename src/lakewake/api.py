"""The public face: a configuration's indexes, and what can be done with one."""

from __future__ import annotations

import difflib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from functools import cache, cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from lakewake.config.file import load_config
from lakewake.config.settings import IndexSettings, ModelSettings, RecommendSettings, Settings
from lakewake.embed.cache import open_vector_cache
from lakewake.embed.registry import load_embedder
from lakewake.errors import ConfigError, IndexMissing, StoreError
from lakewake.history.log import SyncLog, newest, open_history
from lakewake.history.record import Recorder
from lakewake.model.facets import Facet
from lakewake.model.frontier import Frontier
from lakewake.model.history import CommitMark, SyncRecord, mark_commits
from lakewake.model.plan import Action
from lakewake.model.query import Mode, Question, SearchResult
from lakewake.model.recipe import Recipe
from lakewake.model.report import PlanReport, StatusReport, SyncReport, VerifyReport
from lakewake.model.timeline import Instant, Look
from lakewake.net.deadline import at_most
from lakewake.progress import Reporter, Silent
from lakewake.source.hudi import HudiTable
from lakewake.store import StoreReader
from lakewake.store.registry import open_store
from lakewake.sync import IndexParts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakewake.embed import Embedder
    from lakewake.model.recommendation import Recommendation
    from lakewake.model.rows import RowId
    from lakewake.plan.lag import Lag
    from lakewake.rerank import Reranker
    from lakewake.search.run import Ranking

Choice = TypeVar("Choice", bound=Enum)


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


class Sessions:
    """The one Spark session, started when it is first needed."""

    def __init__(
        self,
        options: Mapping[str, str],
        given: SparkSession | None,
        verbose: bool,
        reporter: Reporter | None = None,
    ) -> None:
        self.options = options
        self._reporter = reporter or Silent()
        self.tables: tuple[str, ...] = ()
        self._given = given
        self._own: SparkSession | None = None
        self._verbose = verbose
        if given is not None:
            from lakewake.spark.session import check_session

            check_session(given)

    def get(self, beside: Callable[[], None]) -> SparkSession:
        """The caller's session, or one of our own.

        Args:
            beside: what can be done while a session starts. If it fails, it is done again where
                it is needed, and fails there.
        """
        if self._given is not None:
            return self._given
        from lakewake.spark.session import has_ended, start_session, stop_session

        if self._own is not None and has_ended(self._own):
            stop_session()
            self._own = None
        if self._own is None:
            with self._reporter.stage("start Spark"):
                self._own = start_session(
                    self.options, tables=self.tables, verbose=self._verbose, beside=beside
                )
        return self._own

    def close(self) -> None:
        """Stop a session of our own; leave the caller's alone."""
        if self._own is not None:
            from lakewake.spark.session import stop_session

            stop_session()
            self._own = None


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
        self._counting = threading.Lock()
        self._facets: tuple[tuple[int, Frontier], tuple[Facet, ...]] | None = None

    @property
    def name(self) -> str:
        """What the configuration calls it."""
        return self.settings.name

    @cached_property
    def parts(self) -> IndexParts:
        """What it is made from; the model and Spark are loaded only when used."""
        s = self.settings
        # A model named beside a vector column is what the table's vectors were made by.
        own = s.vector if s.model.provider == "column" else None
        embedder = self._load(s.model, own)
        recipe = Recipe(
            model=embedder.identity,
            fields=s.fields,
            vector=s.vector,
            payload=s.payload,
            chunking=s.chunking,
            metric=s.metric,
        )
        return IndexParts(
            name=s.name,
            table=HudiTable(s.table, recipe, lambda: self._sessions.get(beside=embedder.load)),
            store=open_store(s.store, s.name, s.recall),
            recipe=recipe,
            embedder=embedder,
            vector_cache=open_vector_cache(s, embedder.identity, self._reporter.say),
            reporter=self._reporter,
            model=s.model,
            max_delete=s.max_delete,
        )

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

        how = _one_of(Vectors, "vectors", vectors)
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
        from lakewake.search.run import check_question, search

        how = _one_of(Mode, "mode", mode)
        question = Question(self.name, text, vector, k, where, exact, like, how, offset, min_score)
        check_question(question)
        # Who asks waits: a service gets `timeout` in all, where a sync gives it so much each time.
        with at_most(self.settings.model.timeout):
            return search(self._reader(), self.parts.embedder, question, self._ranking(rerank))

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
        from lakewake.plan import behind_since, pending_instants
        from lakewake.sync.situation import assess

        situation = assess(self.parts)
        if situation.index:
            situation.index.probe()
        index, frontier, look = situation.index, situation.frontier, situation.look
        pending = pending_instants(look, frontier) if frontier else ()
        rows, chunks = index.counts() if index else (0, 0)
        lagging = frontier is None or situation.plan.action is not Action.NOTHING
        late = self._lag(behind_since(situation.plan, look, frontier), pending, look, frontier)
        return StatusReport(
            index=self.name,
            built=index is not None,
            table=self.settings.table,
            store=self.settings.store,
            instant=frontier.newest if frontier else "",
            newest_instant=look.newest,
            lag_commits=(len(pending) if frontier else len(look.completed)) if lagging else 0,
            lag_seconds=late.seconds,
            ahead_seconds=late.ahead,
            rows=rows,
            chunks=chunks,
            generation=index.generation if index else 0,
            duplicates=len(frontier.duplicates) if frontier else 0,
            quarantined=len(frontier.quarantine) if frontier else 0,
            model=self.parts.recipe.model.as_dict(),
            would=situation.plan.action,
            why="; ".join(filter(None, [situation.plan.why, late.remark])),
            freshness_limit=self.settings.freshness,
            last_sync=self._last_sync(),
            searching=index.searching() if index else None,
        )

    def _lag(
        self, since: str, pending: Sequence[Instant], look: Look, frontier: Frontier | None
    ) -> Lag:
        from lakewake.plan.lag import lag, last_up_to_date

        now = time.time()
        absorbed = last_up_to_date(frontier.instants.values() if frontier else (), look, now)
        written = partial(self.parts.table.written, look)
        return lag(since, pending, look, now=now, written=written, absorbed=absorbed)

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

    def commits(self, limit: int = 50) -> tuple[CommitMark, ...]:
        """The table's newest commits, newest first, and how each came into the index.

        No JVM is started. Only what is on the table's active timeline can be told, and of the
        syncs only those that the history still holds.

        Raises:
            TableError: there is no table to look at.
        """
        index = self.parts.store.open()
        frontier = index.frontier() if index else None
        look = self.parts.table.look(frontier)
        return mark_commits(look, frontier, self._log.records(), _counted(limit))

    def facets(self) -> tuple[Facet, ...]:
        """What the payload columns hold, for filters to choose from. Computed once per version.

        Raises:
            IndexMissing: there is no index yet.
        """
        return self.facets_and_instant()[1]

    def facets_and_instant(self) -> tuple[str, tuple[Facet, ...]]:
        """The same, with the table instant that they were counted at."""
        from lakewake.search.facets import compute_facets

        # Who asks while they are counted waits for them, and does not count once more.
        with self._counting:
            reader = self._reader()
            version, instant = (reader.generation, reader.frontier()), reader.frontier().newest
            if self._facets is None or self._facets[0] != version:
                self._facets = version, compute_facets(reader)
            return instant, self._facets[1]

    def _reader(self) -> StoreReader:
        reader = self.parts.store.open()
        if reader is None:
            raise IndexMissing(
                f"there is no index '{self.name}' yet", hint=f"`lakewake sync {self.name}`"
            )
        return reader

    def _last_sync(self) -> SyncRecord | None:
        """The last one that left a record; a history out of reach is no reason to tell nothing."""
        with suppress(StoreError):
            return next(iter(newest(self._log, 1)), None)
        return None

    def close(self) -> None:
        """Let go of files that are held open."""
        if "parts" in self.__dict__:
            self.parts.vector_cache.close()


def _one_of(kind: type[Choice], what: str, given: str) -> Choice:
    try:
        return kind(given)
    except ValueError:
        valid = ", ".join(c.value for c in kind)
        raise ConfigError(f"{what} cannot be {given!r}", hint=f"valid: {valid}") from None


def _counted(limit: int) -> int:
    if limit < 1:
        raise ConfigError(f"limit is {limit}", hint="ask for 1 or more")
    return limit
