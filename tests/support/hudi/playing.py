"""Histories of a table as values: steps with a sync after each, and how to play them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lakewake.errors import LakewakeError
from lakewake.model.chunks import text_hash
from lakewake.model.frontier import Frontier
from lakewake.model.plan import Action
from lakewake.model.recipe import TextField
from lakewake.sync import sync
from support.hudi.tables import HudiTables, row
from support.oracle import HudiParts, built_from_nothing, following, indexed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
FOLLOW, RECONCILE, BUILD = Action.FOLLOW, Action.RECONCILE, Action.BUILD


@dataclass(frozen=True)
class Step:
    """What is done to the table, and what the sync after it must do. None: anything is allowed.

    Attributes:
        why: a keyword of the sync's reason, or of the error.
        duplicated: keys that the table now holds more than once.
        refused: the error that the sync must raise instead.
    """

    does: Callable[[HudiTables], Any]
    action: Action = FOLLOW
    why: str = ""
    changed: int | None = None
    deleted: int | None = None
    embedded: int | None = None
    duplicated: frozenset[str] = frozenset()
    refused: type[LakewakeError] | None = None


def six_rows(table: HudiTables) -> None:
    """k0, k2 and k4 in partition a; k1, k3 and k5 in b."""
    table.write([row(f"k{n}", part="ab"[n % 2]) for n in range(6)])


BUILT = Step(six_rows, BUILD, "no index yet", changed=6, deleted=0, embedded=6)


@dataclass(frozen=True)
class History:
    """How a table begins, and what happens to it.

    Attributes:
        types: the table types on which this can happen.
    """

    steps: tuple[Step, ...]
    begins: Step = BUILT
    types: tuple[str, ...] = (COW, MOR)
    keys: str = "id"
    partition: str = "part"
    options: Mapping[str, str] = field(default_factory=dict)
    payload: tuple[str, ...] = ("id", "num")
    text: str = "{txt}"


def play(history: History, type_: str, spark: SparkSession, folder: Path, **settings: str) -> str:
    """Play a history; after each step the index must equal the table.

    Returns:
        What the syncs after the first one did, in order: follow, reconcile, build or refused.
    """
    options = {**settings, **history.options}
    table, parts = _followed(history, type_, spark, folder, options)
    begin = _begin_as_others if history.begins is BUILT else _begin
    did = [begin(history, table, parts)]
    did += [_play_step(step, table, parts) for step in history.steps]
    return ", ".join(dict.fromkeys(did[1:] or did))


def _followed(
    history: History, type_: str, spark: SparkSession, folder: Path, options: Mapping[str, str]
) -> tuple[HudiTables, HudiParts]:
    table = HudiTables(
        spark, folder / "table", type_, history.keys, history.partition, options=options
    )
    fields = (TextField("text", history.text),)
    parts = following(spark, table.path, folder / "index", payload=history.payload, fields=fields)
    return table, parts


def _begin(history: History, table: HudiTables, parts: HudiParts) -> str:
    return _play_step(history.begins, table, parts)


@dataclass(frozen=True)
class _Begun:
    """What a history can begin with.

    Attributes:
        folder: copies of the table and of its index.
        did: what the first sync did.
        known: the vectors that it embedded, by text hash.
    """

    folder: Path
    did: str
    known: Mapping[str, np.ndarray]


_BEGUN: dict[tuple[Any, ...], _Begun] = {}
#: Where they are kept: the folder of a test is removed when it passes.
_KEPT = tempfile.TemporaryDirectory(prefix="lakewake-begun-")


def _begin_as_others(history: History, table: HudiTables, parts: HudiParts) -> str:
    """The first step, which is carried out and checked once for all histories that begin alike."""
    key = (table.type, table.keys, table.partition, *sorted(table.options.items()))
    key += (history.payload, history.text)
    folder = table.path.parent
    if key not in _BEGUN:
        did = _begin(history, table, parts)
        known = parts.vector_cache.get([text_hash(text) for text in parts.embedder.received])
        kept = Path(_KEPT.name, str(len(_BEGUN)))
        shutil.copytree(folder, kept)
        _BEGUN[key] = _Begun(kept, did, known)
    else:
        shutil.copytree(_BEGUN[key].folder, folder, dirs_exist_ok=True)
        parts.vector_cache.put(_BEGUN[key].known)
    return _BEGUN[key].did


def _play_step(step: Step, table: HudiTables, parts: HudiParts) -> str:
    step.does(table)
    parts.embedder.received.clear()
    if step.refused:
        with pytest.raises(step.refused, match=step.why):
            sync(parts)
        assert parts.embedder.received == []
        return "refused"
    report = sync(parts)
    assert report.action is step.action, report.why
    assert step.why in report.why
    assert report.embedded == len(parts.embedder.received)
    assert indexed(parts) == built_from_nothing(parts)
    counts = (report.rows_changed, report.rows_deleted, report.embedded)
    wanted = (step.changed, step.deleted, step.embedded)
    assert tuple(c if w is None else w for w, c in zip(wanted, counts, strict=True)) == counts
    assert {row.key for row in _frontier(parts).duplicates} == step.duplicated
    assert sync(parts).action is Action.NOTHING
    return report.action.value


def _frontier(parts: HudiParts) -> Frontier:
    reader = parts.store.open()
    assert reader is not None
    return reader.frontier()
