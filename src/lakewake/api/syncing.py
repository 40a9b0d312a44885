"""Keeps one index in step with its table: plan, sync, heal, verify."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from lakewake.api.quality import Quality
from lakewake.errors import ConfigError, StoreError
from lakewake.history.log import SyncLog, newest
from lakewake.model.choices import one_of
from lakewake.model.report import PlanReport, SyncReport, VerifyReport

if TYPE_CHECKING:
    from lakewake.api.hot import Hot
    from lakewake.config.settings import IndexSettings
    from lakewake.history.record import Recorder
    from lakewake.model.history import SyncRecord
    from lakewake.progress import Reporter
    from lakewake.sync import IndexParts
    from lakewake.sync.together import Round

#: How many syncs are looked at for the last answers to the canaries.
CANARIES_KEPT = 50


class Syncing(Quality):
    """Brings an index to its table, and compares the two."""

    settings: IndexSettings
    #: The round in which the index is synced together with others; None: by itself.
    round: Round | None
    _recorder: Recorder
    _hot: Hot
    _reporter: Reporter

    @property
    def parts(self) -> IndexParts:
        """The wiring of the index."""
        raise NotImplementedError

    @property
    def _log(self) -> SyncLog:
        """The history of the index."""
        raise NotImplementedError

    def plan(self, *, rebuild: bool = False) -> PlanReport:
        """What `sync` would do, why, and how many texts it would embed. Writes nothing.

        Args:
            rebuild: what `sync(rebuild=True)` would do. It renders every text of the table and
                looks for its vector, but embeds none.
        """
        from lakewake.sync import SyncOptions, plan_next

        return plan_next(self.parts, SyncOptions(rebuild=rebuild))

    def sync(
        self,
        *,
        rebuild: bool = False,
        reconcile: bool | None = None,
        retry_quarantined: bool = False,
        allow_deletes: bool = False,
        retrain: bool = False,
        limit: int | None = None,
    ) -> SyncReport:
        """Bring the index to the table's latest commit.

        Args:
            rebuild: build a new generation from the whole table, then switch to it. Known texts
                are not embedded again.
            reconcile: True: compare the whole table with the index even if history can be
                followed. False: raise if it cannot.
            retry_quarantined: try again the rows that the embedder refused.
            allow_deletes: remove rows, however many there are.
            retrain: afterwards, train the cells of an index in the lake again. They are used only
                if a search finds no less with them. Nothing is embedded.
            limit: for a first try, build the index of only this many rows, the first by their
                keys. A later sync without a limit completes it.

        Raises:
            ConfigError: `retrain` is True, and the index is not in the lake; or there is a limit,
                and the index holds all its rows already.
            HistoryLost: history cannot be followed and `reconcile` is False.
            RecipeMismatch: the index was built with another recipe or model.
            TooManyDeletes: the sync would remove more than 1,000 rows, and a larger share than
                `max_delete`.
        """
        from lakewake.sync import SyncOptions, sync

        if limit is not None:
            check_first_try(limit, alone=not (rebuild or reconcile or retry_quarantined))
        options = SyncOptions(
            rebuild,
            reconcile,
            retry_quarantined,
            allow_deletes=allow_deletes,
            retrain=retrain,
            limit=limit or 0,
        )
        report = self._recorder.run(
            lambda: self._with_canaries(self._in_round(lambda parts: sync(parts, options)))
        )
        if self._hot.is_written_by_syncs:
            self.persist_hot()
            self._hot.wait(self._reporter)
        return report

    def persist_hot(self) -> None:
        """Write the files that servers hold the index from, in a thread, if they need it.

        A watch does so after each sync. With a size as `hot`, each sync does, and waits for it.
        """
        # The sync has landed, and the files only save time.
        with suppress(StoreError):
            if (reader := self.parts.store.open()) is not None:
                self._hot.persist(reader)

    def _in_round(self, work: Callable[[IndexParts], SyncReport]) -> SyncReport:
        """Sync; in a round of several indexes, with what another one may have read already."""
        if self.round is None:
            return work(self.parts)
        with self.round.taking_part(self.parts) as parts:
            return work(parts)

    def heal(self, damage: StoreError) -> SyncReport:
        """Build the index again because it is damaged. Known texts are not embedded again.

        Vectors come from the vector cache, and from the index as far as it can be read.
        """
        from lakewake.sync import SyncOptions, sync

        options = SyncOptions(rebuild=True, why=damage.fact)
        return self._recorder.run(lambda: self._with_canaries(sync(self.parts, options)))

    def _with_canaries(self, report: SyncReport) -> SyncReport:
        """The report, with how well the canaries are answered now, if the sync did something."""
        asked = self.settings.canaries
        if asked is None or not report.did_something:
            return report
        known = [record.canaries for record in self._records(CANARIES_KEPT)]
        return replace(report, canaries=self.ask_canaries(asked).judged(known, asked.drop))

    def _records(self, limit: int) -> tuple[SyncRecord, ...]:
        """The last syncs on record; none if the history is out of reach."""
        with suppress(StoreError):
            return newest(self._log, limit)
        return ()

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


def check_first_try(limit: int, *, alone: bool) -> None:
    """Raise if a first try is not one of some rows and nothing else.

    Raises:
        ConfigError: it is not.
    """
    if limit < 1:
        raise ConfigError(f"limit is {limit}", hint="pass 1 or more")
    if not alone:
        raise ConfigError(
            "a limit cannot be combined with rebuild, reconcile or retry_quarantined",
            hint="pass only the limit, for a first try",
        )
