"""The public face: a configuration's indexes, and what can be done with one."""

from __future__ import annotations

import datetime
import difflib
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lakewake.config import load_config
from lakewake.embed.registry import load_embedder
from lakewake.errors import ConfigError, IndexMissing
from lakewake.model.plan import Action
from lakewake.model.query import Mode, Question, SearchResult
from lakewake.model.recipe import Recipe
from lakewake.model.report import PlanReport, StatusReport, SyncReport, VerifyReport
from lakewake.model.settings import IndexSettings, Settings
from lakewake.model.stand_in import Recommendation, Told
from lakewake.model.timeline import Look
from lakewake.progress import Reporter, Silent
from lakewake.source.hudi import HudiTable
from lakewake.store.registry import open_embeddings, open_store
from lakewake.sync import Parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakewake.model.rows import RowId
    from lakewake.rerank import Reranker
    from lakewake.search.run import Ranking
    from lakewake.verify.vectors import Vectors


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
    sessions = Sessions({}, spark, verbose)
    settings = load_config(config)
    sessions.options = settings.spark
    sessions.tables = tuple(index.table for index in settings.indexes)
    return Lakewake(settings, sessions, reporter or Silent())


class Sessions:
    """The one Spark session, started when it is first needed."""

    def __init__(
        self, options: Mapping[str, str], given: SparkSession | None, verbose: bool
    ) -> None:
        self.options = options
        self.tables: tuple[str, ...] = ()
        self._given = given
        self._own: SparkSession | None = None
        self._verbose = verbose
        if given is not None:
            from lakewake.spark import check_session

            check_session(given)

    def get(self) -> SparkSession:
        """The caller's session, or one of our own."""
        if self._given is not None:
            return self._given
        if self._own is None:
            from lakewake.spark import start_session

            self._own = start_session(self.options, tables=self.tables, verbose=self._verbose)
        return self._own

    def close(self) -> None:
        """Stop a session of our own; leave the caller's alone."""
        if self._own is not None:
            from lakewake.spark import stop_session

            stop_session()
            self._own = None


class Lakewake(Mapping[str, "Index"]):
    """All indexes of one configuration, by name."""

    def __init__(self, settings: Settings, sessions: Sessions, reporter: Reporter) -> None:
        self.settings = settings
        self._sessions = sessions
        self._indexes = {s.name: Index(s, sessions, reporter) for s in settings.indexes}

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

    def __init__(self, settings: IndexSettings, sessions: Sessions, reporter: Reporter) -> None:
        self.settings = settings
        self._sessions = sessions
        self._reporter = reporter

    @property
    def name(self) -> str:
        """What the configuration calls it."""
        return self.settings.name

    @cached_property
    def parts(self) -> Parts:
        """What it is made from; the model and Spark are loaded only when used."""
        s = self.settings
        # A model named beside a vector column is what the table's vectors were made by.
        own = s.vector if s.model.provider == "column" else None
        embedder = load_embedder(s.model, column=own)
        recipe = Recipe(
            model=embedder.identity,
            fields=s.fields,
            vector=s.vector,
            payload=s.payload,
            chunking=s.chunking,
            metric=s.metric,
        )
        return Parts(
            name=s.name,
            table=HudiTable(s.table, recipe, self._sessions.get),
            store=open_store(s.store, s.name),
            recipe=recipe,
            embedder=embedder,
            embeddings=open_embeddings(s, embedder.identity, self._reporter.say),
            reporter=self._reporter,
            model=s.model,
        )

    def plan(self) -> PlanReport:
        """What `sync` would do, why, and how many texts it would embed. Writes nothing."""
        from lakewake.sync import price

        return price(self.parts)

    def sync(
        self,
        *,
        rebuild: bool = False,
        reconcile: bool | None = None,
        retry_quarantined: bool = False,
    ) -> SyncReport:
        """Bring the index to the table's latest commit.

        Args:
            rebuild: build it anew from the whole table, then switch; texts it knows are not
                embedded again.
            reconcile: compare the whole table with the index even where its history can be
                followed (True), or refuse to where it cannot (False).
            retry_quarantined: try the rows again that the embedder refused.

        Raises:
            HistoryLost: history cannot be followed, and `reconcile` is False.
            RecipeMismatch: the index was built by another recipe or model.
        """
        from lakewake.sync import Wish, sync

        return sync(self.parts, Wish(rebuild, reconcile, retry_quarantined))

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

        how = _vectors(vectors)
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

        question = Question(
            self.name, text, vector, k, where, exact, like, _mode(mode), offset, min_score
        )
        check_question(question)
        reader = self.parts.store.open()
        if reader is None:
            raise IndexMissing(
                f"there is no index '{self.name}' yet", hint=f"`lakewake sync {self.name}`"
            )
        return search(reader, self.parts.embedder, question, self._ranking(rerank))

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
        return Ranking(weights, self._reranker.score, chosen.rows)

    @cached_property
    def _reranker(self) -> Reranker:
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
    ) -> Recommendation:
        """A stand-in."""
        return Recommendation(query, self.search(query, k=k, where=where, mode=mode))

    def recommend_stream(
        self,
        query: str,
        *,
        k: int = 5,
        where: str | Mapping[str, Any] | None = None,
        mode: str = "vector",
    ) -> Iterator[str | Recommendation]:
        """A stand-in."""
        whole = self.recommend(query, k=k, where=where, mode=mode)
        yield from whole.as_dict()["message"].split(" ")
        yield whole

    def history(self, limit: int = 20) -> tuple[Told, ...]:
        """A stand-in."""
        return ()

    def facets(self) -> tuple[Told, ...]:
        """A stand-in."""
        return ()

    def commits(self, limit: int = 50) -> tuple[Told, ...]:
        """A stand-in."""
        return ()

    def status(self) -> StatusReport:
        """Where the index stands. No JVM is started."""
        from lakewake.plan import pending_instants
        from lakewake.sync import stand_to_sync

        standing = stand_to_sync(self.parts)
        index, frontier, look = standing.index, standing.frontier, standing.look
        pending = pending_instants(look, frontier) if frontier else ()
        rows, chunks = index.counts() if index else (0, 0)
        lagging = frontier is None or standing.plan.action is not Action.NOTHING
        return StatusReport(
            index=self.name,
            built=index is not None,
            table=self.settings.table,
            store=self.settings.store,
            instant=frontier.newest if frontier else "",
            newest_instant=look.newest,
            lag_commits=(len(pending) if frontier else len(look.completed)) if lagging else 0,
            lag_seconds=_age(min((i.completed or "" for i in pending), default=""), look),
            rows=rows,
            chunks=chunks,
            generation=index.generation if index else 0,
            duplicates=len(frontier.duplicates) if frontier else 0,
            quarantined=len(frontier.quarantine) if frontier else 0,
            model=self.parts.recipe.model.as_dict(),
            would=standing.plan.action,
            why=standing.plan.why,
            freshness_limit=self.settings.freshness,
        )

    def close(self) -> None:
        """Let go of files that are held open."""
        if "parts" in self.__dict__:
            self.parts.embeddings.close()


def _mode(name: str) -> Mode:
    try:
        return Mode(name)
    except ValueError:
        valid = ", ".join(m.value for m in Mode)
        raise ConfigError(f"mode cannot be {name!r}", hint=f"valid: {valid}") from None


def _vectors(how: str) -> Vectors:
    from lakewake.verify.vectors import Vectors

    try:
        return Vectors(how)
    except ValueError:
        valid = ", ".join(v.value for v in Vectors)
        raise ConfigError(f"vectors cannot be {how!r}", hint=f"valid: {valid}") from None


def _age(instant: str, look: Look) -> float:
    """Seconds since an instant's time; 0 without one."""
    if len(instant) < 17:
        return 0.0
    when = datetime.datetime.strptime(instant[:17] + "000", "%Y%m%d%H%M%S%f")
    if look.properties.get("hoodie.table.timeline.timezone", "LOCAL").upper() == "UTC":
        when = when.replace(tzinfo=datetime.UTC)
    return max(0.0, time.time() - when.timestamp())
