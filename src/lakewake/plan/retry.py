"""Decides how a sync continues after a failed attempt. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lakewake.errors import (
    HistoryLost,
    IndexDropped,
    LakewakeError,
    StaleFrontier,
    StoreError,
    StoreUnreachable,
)
from lakewake.model.options import SyncOptions
from lakewake.model.plan import Action, Plan


def options_after(
    error: LakewakeError,
    options: SyncOptions,
    plan: Plan,
    *,
    copied: bool,
    moved_on: Callable[[], bool],
) -> SyncOptions:
    """The options of the next attempt.

    Args:
        copied: the failed attempt read an index that it was to replace.
        moved_on: finds out whether the index has changed since the attempt looked at it.

    Raises:
        LakewakeError: `error`, if another attempt would not help.
    """
    if isinstance(error, IndexDropped):
        raise error
    if isinstance(error, StaleFrontier):
        return _after_a_lost_race(options)
    if isinstance(error, HistoryLost):
        if options.reconcile is False or plan.action is Action.RECONCILE:
            raise error
        return replace(options, reconcile=True, why=error.fact)
    if isinstance(error, StoreError) and not moved_on():
        # The index that is replaced may be what cannot be read.
        if not (options.rebuild and copied) or isinstance(error, StoreUnreachable):
            raise error
        return replace(options, alone=True)
    return options


def _after_a_lost_race(options: SyncOptions) -> SyncOptions:
    """If damage was the reason for this rebuild, the other writer's build has repaired it."""
    return replace(options, rebuild=False) if options.rebuild and options.why else options
