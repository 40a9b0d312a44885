"""Decides the frontier of an index after a commit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from lakewake.model.frontier import Frontier, Refusal
from lakewake.model.plan import Action, Plan
from lakewake.model.rows import RowId


@dataclass(frozen=True)
class Outcome:
    """What preparing a batch found out about its rows.

    Attributes:
        duplicates: rows that the table holds more than once, as reading it found.
        stored_twice: rows that were inserted although the index already had them.
        refused: rows that cannot be embedded.
        seen_again: quarantined rows that were read again.
    """

    duplicates: AbstractSet[RowId]
    stored_twice: AbstractSet[RowId]
    refused: Mapping[RowId, Refusal]
    seen_again: AbstractSet[RowId]


def frontier_after_batch(plan: Plan, former: Frontier | None, outcome: Outcome) -> Frontier:
    """The frontier once the plan is carried out.

    Args:
        former: the frontier that the plan starts from; None: a build.
    """
    # Unchanged sets stay the same object: a store may read them page by page.
    twice = outcome.duplicates
    return replace(
        plan.after,
        duplicates=frozenset(twice | outcome.stored_twice) if outcome.stored_twice else twice,
        quarantine=_quarantine(plan.action, former.quarantine if former else {}, outcome),
    )


def frontier_after_repair(held: Frontier, repaired: Frontier) -> Frontier:
    """The frontier after a repair, which absorbs no instant."""
    quarantine: Mapping[RowId, Refusal] = held.quarantine
    if repaired.quarantine:
        quarantine = {**quarantine, **repaired.quarantine}
    return replace(held, quarantine=quarantine, sync=held.sync + 1)


def _quarantine(
    action: Action, former: Mapping[RowId, Refusal], outcome: Outcome
) -> Mapping[RowId, Refusal]:
    # A build and a reconcile read every row; a follow reads only those that changed.
    follows = action is Action.FOLLOW
    if follows and not outcome.seen_again and not outcome.refused:
        return former
    kept = {r: why for r, why in former.items() if follows and r not in outcome.seen_again}
    refused = {
        row: replace(why, attempts=former[row].attempts + 1 if row in former else 1)
        for row, why in outcome.refused.items()
    }
    return {**kept, **refused}
