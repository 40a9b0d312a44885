"""Random histories of real Hudi tables and an index that follows them, one seed each."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakewake.embed.cache import VectorCache
from lakewake.errors import HistoryLost, IndexMissing, LakewakeError
from lakewake.model import frontier, pages
from lakewake.model.chunks import text_hash
from lakewake.model.plan import Action
from lakewake.model.recipe import Chunking
from lakewake.source import arrow, compare, partitions, reader, view
from lakewake.source.hudi import HudiTable
from lakewake.source.reader import today
from lakewake.store.lance import commit as lance_commit
from lakewake.store.lance import reader as lance_reader
from lakewake.sync import IndexParts, index_rows, spool, sync
from lakewake.verify import verify
from support.hudi.hostile import HOSTILE_TO_HADOOP, HOSTILE_TO_HUDI, HOSTILE_TO_SPARK
from support.hudi.tables import ROLLS_CLUSTERING_BACK, WRITES_GO_ON, HudiTables, row
from support.moments import (
    PowerCut,
    Turns,
    at_each_moment,
    at_moment,
    cut_off,
    finish,
    known_hashes,
    never,
    take_turns,
    watched,
)
from support.oracle import built_from_nothing, following, following_vectors, indexed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
KEYS = [f"k{n}" for n in range(8)]
#: Hudi shows the second as `50 off`.
PARTITIONS = ["a", "50%20off"]
#: Columns derived from the others: nested ones, some without nulls, one that is not UTF-8.
NESTED = {
    "tags": "array(txt, cast(unhex('61FF62') AS string))",
    "sizes": "array(coalesce(num, 0), 1)",
    "attrs": "map('n', coalesce(num, 0), 'a', 1)",
    # Two fields: Hudi cannot rewrite a file with an array of structs of a single field.
    "box": "named_struct('t', coalesce(txt, ''), 'in', array(named_struct('n', num, 'm', 1)))",
    # Some vectors cannot be compared with others: their rows are quarantined.
    "vec": "IF(txt = ' ', NULL, array(IF(num % 13 = 3, double('NaN'), num), length(txt), ts / 3))",
}
VECTORS = {"vec": "VECTOR(3)"}
PAYLOAD = ("id", "num", "part", *NESTED)
#: A soft delete adds a column that other writes lack.
EVOLVING = {"hoodie.write.set.null.for.missing.columns": "true"}
TEXTS = ["one", "two", "three", " "]
#: More moments than any sync has.
MOMENTS = 20
#: Rows of a few kilobytes count as large here, and three rows as many: every bound is scaled down
#: to match.
CHUNKS = Chunking(tokens=40)
SMALL_MEMORY = {
    (arrow, "COLLECT_ROWS"): 3,
    (compare, "FEW"): 2,
    (partitions, "LOOKED_UP"): 1,
    (reader, "SLICE_ROWS"): 2,
    (lance_commit, "HELD_DELETES"): 2,
    (lance_reader, "LIST_LENGTH"): 2,
    (view, "BATCH_ROWS"): 2,
    (arrow, "COLLECT_BYTES"): 8_192,
    (arrow, "PART_BYTES"): 4_096,
    (view, "BATCH_BYTES"): 4_096,
    (index_rows, "WRITE_BYTES"): 4_096,
    (spool, "HELD_IDS"): 2,
    (frontier, "INLINE"): 2,
    (pages, "PAGE_ROWS"): 2,
}


def large(key: str, edited: int) -> str:
    """A text of many chunks, with one sentence that differs in each edition."""
    lines = [f"Sentence {n} of the long text of {key} says this and that." for n in range(60)]
    lines[20 + edited] = f"Only edition {edited} has this sentence."
    return " ".join(lines)


@dataclass
class RealHistory:
    """A table, an index and a random generator.

    Attributes:
        clean: reads the same table in a session without hostile settings.
        plans: table services are planned and run later, while writers continue.
        blind: some writers do not know where rows are, and store second copies.
        by_vector: the index holds the table's VECTOR column, not its texts.
        where: the condition that selects the rows of the index; '': it holds all of them.
        events: what happened, in order; a failure shows it.
        syncs: how many syncs were compared with a build from nothing.
    """

    table: HudiTables
    parts: Any
    dice: random.Random
    clean: IndexParts
    plans: bool = False
    blind: bool = False
    by_vector: bool = False
    where: str = ""
    events: list[str] = field(default_factory=list)
    syncs: int = 0
    refused: int = 0
    day: int = 1
    _clock: int = 1
    _copies: list[Path] = field(default_factory=list)
    _savepoints: list[str] = field(default_factory=list)

    def play(self, steps: int) -> None:
        """Play this many steps, with a sync after every other one and at the end."""
        try:
            self.table.write(self._rows(6))
            for _ in range(steps):
                self._happens()
                if self.dice.random() < 0.6:
                    self._sync_and_compare()
            self._sync_and_compare()
        except Exception as error:
            error.add_note("\n".join([f"a {self.table.type} table:", *self.events]))
            raise
        assert self.refused * 4 <= steps, self.events

    def _happens(self) -> None:
        kinds = [k for k in (MERGED if self.table.type == MOR else COPIED) if self._may(k)]
        name = self.dice.choices(list(kinds), [OPERATIONS[k][0] for k in kinds])[0]
        self.events.append(name)
        try:
            OPERATIONS[name][1](self)
        except (AssertionError, LakewakeError):
            raise
        except Exception as error:
            if name in OURS:
                raise
            # Hudi itself does not allow this here, such as a restore past a newer savepoint.
            self.refused += 1
            causes = [x for x in str(error).splitlines() if x.startswith("Caused by")]
            self.events.append(f"  refused: {(causes or [repr(error)])[-1][:300]}")

    def _may(self, kind: str) -> bool:
        if kind == "blind_upsert":
            return self.blind
        if kind == "another_day":
            return bool(self.where)
        # A restore past a plan leaves it in flight, with files that are gone: Hudi is stuck then.
        return kind not in ("savepoint", "restore") if self.plans else kind not in PLANS

    def _sync_and_compare(self) -> None:
        known = known_hashes(self.parts)
        self.parts.embedder.received.clear()
        report = sync(self.parts)
        self.events.append(f"sync: {report.action.value}, {report.why}")
        received = [text_hash(text) for text in self.parts.embedder.received]
        assert report.embedded == len(received) == len(set(received))
        assert not known & set(received)
        assert indexed(self.parts) == built_from_nothing(self.clean)
        assert sync(self.parts).action is Action.NOTHING
        self.syncs += 1

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _rows(self, count: int = 0, *, parts: list[str] = PARTITIONS) -> list[tuple]:
        """Random rows, mostly newer than all before, each key once per partition."""
        now = self._tick()
        ids = [(key, part) for key in KEYS for part in parts]
        chosen = self.dice.sample(ids, min(len(ids), count or self.dice.randint(1, 4)))
        return [self._row(key, part, now) for key, part in chosen]

    def _row(self, key: str, part: str, now: int) -> tuple:
        ts = now if self.dice.random() < 0.85 else self.dice.randint(0, now)
        edited = large(key, self.dice.randrange(3))
        text = self.dice.choice([*TEXTS, f"text of {key} at {now}", edited])
        return row(key, text, part=part, ts=ts, num=self.dice.randrange(3))

    def _logged_write(self, rows: list[tuple], operation: str) -> None:
        said = ", ".join(f"{key}/{part}@{ts} {text[:30]!r}" for key, _, part, ts, text, _ in rows)
        self.events.append(f"  {said}")
        self.table.write(rows, operation)

    def upsert(self) -> None:
        self._logged_write(self._rows(), "upsert")

    def insert(self) -> None:
        self._logged_write(self._rows(), "insert")

    def bulk_insert(self) -> None:
        self._logged_write(self._rows(), "bulk_insert")

    def blind_upsert(self) -> None:
        rows = self._rows()
        self.events.append(f"  {[(r[0], r[2]) for r in rows]}")
        self.table.write_blindly(rows)

    def delete(self) -> None:
        self._logged_write(self._rows(), "delete")

    def soft_delete(self) -> None:
        keys = self.dice.sample(KEYS, 2)
        part, ts = self.dice.choice(PARTITIONS), self._tick()
        self.events.append(f"  {keys}/{part}@{ts}")
        self.table.soft_delete(*keys, part=part, ts=ts)

    def insert_overwrite(self) -> None:
        part = self.dice.choice(PARTITIONS)
        self._logged_write(self._rows(parts=[part]), "insert_overwrite")

    def insert_overwrite_table(self) -> None:
        self._logged_write(self._rows(), "insert_overwrite_table")

    def delete_partition(self) -> None:
        part = self.dice.choice(PARTITIONS)
        self.events.append(f"  {part}")
        self.table.delete_partition(part)

    def cluster(self) -> None:
        self.table.cluster()

    def compact(self) -> None:
        self.table.compact()

    def plan_clustering(self) -> None:
        self.table.plan_clustering()
        self.upsert()

    def run_clustering(self) -> None:
        self.table.run_clustering()

    def plan_compaction(self) -> None:
        self.table.plan_compaction()
        self.upsert()

    def run_compaction(self) -> None:
        self.table.run_compaction()

    def clean_up(self) -> None:
        self.table.clean(policy="KEEP_LATEST_FILE_VERSIONS", fileversions__retained="1")

    def archive(self) -> None:
        self.table.archive(keep=self.dice.randint(2, 4))

    def savepoint(self) -> None:
        self._savepoints.append(self.table.savepoint())

    def restore(self) -> None:
        if not self._savepoints:
            self.savepoint()
            self.upsert()
        self.table.restore(self._savepoints.pop())

    def copy(self) -> None:
        folder = self.table.path.with_name(f"copy-{len(self._copies)}")
        self.table.copy_to(folder)
        self._copies.append(folder)

    def put_back(self) -> None:
        if not self._copies:
            self.copy()
            self.upsert()
        self.table.put_back(self.dice.choice(self._copies))

    def sync_cut_off(self) -> None:
        at = self.dice.randrange(MOMENTS)
        self.events.append(f"  at moment {at}")
        at_moment(self.parts, at, cut_off)
        with suppress(PowerCut):
            sync(self.parts)
        at_each_moment(self.parts, never)

    def written_meanwhile(self) -> None:
        at, rows = self.dice.randrange(MOMENTS), self._rows()
        self.events.append(f"  at moment {at}")
        cleaned = self.dice.random() < 0.5
        at_moment(self.parts, at, lambda: self._written_and_cleaned(rows, cleaned))
        sync(self.parts)
        at_each_moment(self.parts, never)

    def _written_and_cleaned(self, rows: list[tuple], cleaned: bool) -> None:
        self._logged_write(rows, "upsert")
        if cleaned:
            self.events.append("  cleaned")
            if self.table.type == MOR and not self.plans:
                self.table.compact()
            self.clean_up()

    def two_syncers(self) -> None:
        """Run two syncs in turns, with a commit to the table after some turns."""
        schedule = [self.dice.random() < 0.5 for _ in range(MOMENTS)]
        at, both = self.dice.randrange(MOMENTS), (self.parts, self._another_syncer())
        self.events.append(f"  {schedule} {at}")
        works = [Turns(lambda parts=parts: sync(parts)) for parts in both]
        for parts, work in zip(both, works, strict=True):
            at_each_moment(parts, work.moment)
        take_turns(schedule[:at], *works)
        self._logged_write(self._rows(), "upsert")
        take_turns(schedule[at:], *works)
        finish(*works)
        at_each_moment(self.parts, never)

    def _another_syncer(self) -> IndexParts:
        held = self.parts.vector_cache.inner
        made = _index_of(self.table.spark, self.table.path, self.by_vector, held)
        return watched(self.selecting(made))

    def selecting(self, parts: Any) -> Any:
        """The index, with the condition and the day of this history."""
        return selecting(parts, parts.table._start(), self.where, self.today)

    def another_day(self) -> None:
        """Mostly the next day; sometimes the one before, or several later."""
        self.day = max(0, self.day + self.dice.choice([1, 1, 1, 2, -1]))
        self.events.append(f"  {self.today()}")

    def today(self) -> str:
        """The day on which rows are selected."""
        return f"2026-01-{self.day + 1:02}"

    def verify(self) -> None:
        """Check that verify agrees or asks to sync first, whatever is pending."""
        with suppress(HistoryLost, IndexMissing):
            report = verify(self.parts)
            assert report.agrees, report


#: The weight of each operation, and the operation.
OPERATIONS: Mapping[str, tuple[int, Callable[[RealHistory], None]]] = {
    "upsert": (8, RealHistory.upsert),
    "blind_upsert": (4, RealHistory.blind_upsert),
    "delete": (4, RealHistory.delete),
    "soft_delete": (2, RealHistory.soft_delete),
    "insert": (2, RealHistory.insert),
    "bulk_insert": (2, RealHistory.bulk_insert),
    "insert_overwrite": (2, RealHistory.insert_overwrite),
    "insert_overwrite_table": (1, RealHistory.insert_overwrite_table),
    "delete_partition": (1, RealHistory.delete_partition),
    "cluster": (2, RealHistory.cluster),
    "compact": (3, RealHistory.compact),
    "plan_clustering": (3, RealHistory.plan_clustering),
    "run_clustering": (3, RealHistory.run_clustering),
    "plan_compaction": (2, RealHistory.plan_compaction),
    "run_compaction": (2, RealHistory.run_compaction),
    "clean": (2, RealHistory.clean_up),
    "archive": (2, RealHistory.archive),
    "savepoint": (1, RealHistory.savepoint),
    "restore": (2, RealHistory.restore),
    "copy": (1, RealHistory.copy),
    "put_back": (1, RealHistory.put_back),
    "verify": (1, RealHistory.verify),
    "sync_cut_off": (4, RealHistory.sync_cut_off),
    "written_meanwhile": (2, RealHistory.written_meanwhile),
    "two_syncers": (3, RealHistory.two_syncers),
    "another_day": (12, RealHistory.another_day),
}
#: Operations that must never fail; the others may fail in Hudi.
OURS = ("verify", "sync_cut_off", "written_meanwhile", "two_syncers", "another_day")
MERGED = tuple(OPERATIONS)
COPIED = tuple(name for name in OPERATIONS if "compact" not in name)
PLANS = ("plan_clustering", "run_clustering", "plan_compaction", "run_compaction")


def real_history(
    spark: SparkSession,
    folder: Path,
    type_: str,
    seed: int,
    options: Mapping[str, str],
    where: str = "",
) -> RealHistory:
    """A table of that type without a commit yet, and an index of it that is still to be built.

    Every other one plans table services, and every third is read in a hostile session. From
    the 25th on there are blind writers too. Every fifth indexes a VECTOR column instead of texts.
    """
    plans = seed % 4 < 2
    options = {**options, **EVOLVING, **(WRITES_GO_ON if plans else ROLLS_CLUSTERING_BACK)}
    table = HudiTables(
        spark, folder / "table", type_, options=options, also=NESTED, vectors=VECTORS
    )
    by_vector = seed % 5 == 0
    clean = _index_of(spark, table.path, by_vector)
    parts = _index_of(spark if seed % 3 else hostile_session(spark), table.path, by_vector)
    dice = random.Random(seed)
    history = RealHistory(table, parts, dice, clean, plans, seed > 24, by_vector, where)
    history.clean = history.selecting(clean)
    history.parts = watched(history.selecting(parts))
    return history


def _index_of(
    spark: SparkSession, table: Path, by_vector: bool, cache: VectorCache | None = None
) -> IndexParts:
    folder = table.with_name("index")
    if by_vector:
        return following_vectors(spark, table, folder, "vec", 3, PAYLOAD, vector_cache=cache)
    return following(spark, table, folder, payload=PAYLOAD, vector_cache=cache, chunking=CHUNKS)


def selecting(parts: Any, spark: SparkSession, where: str, today: Callable[[], str] = today) -> Any:
    """The same index, of the rows that a condition selects on a day."""
    recipe = replace(parts.recipe, where=where)
    table = HudiTable(parts.table.path, recipe, lambda: spark, today=today)
    return replace(parts, recipe=recipe, table=table)


def hostile_session(spark: SparkSession) -> SparkSession:
    """A session with hostile settings."""
    session = spark.newSession()
    for key, value in {**HOSTILE_TO_SPARK, **HOSTILE_TO_HUDI, **HOSTILE_TO_HADOOP}.items():
        session.conf.set(key, value)
    return session
