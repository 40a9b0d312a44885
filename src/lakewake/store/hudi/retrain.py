"""Trains the cells of an index again: a new generation beside the one that is searched.

1. The chunks of the newest state are copied into a new table, in cells that are trained for them.
   Nothing is embedded, and the source table is not read. Other processes search and write the
   serving generation meanwhile.
2. What they committed is applied to the new table, until both hold the same.
3. Both are asked the same questions. If the new cells are worse, the new table is removed.
4. Under the lock, what was committed since is applied, and the new generation is claimed.

Until the claim, nobody reads the new table. A process that dies before it leaves a table that a
later upkeep removes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from lakewake.errors import LakewakeError, OutcomeUnknown, StoreError
from lakewake.model.chunks import Batch
from lakewake.model.recall import Probed, Retrained
from lakewake.progress import step
from lakewake.store import Removed
from lakewake.store.hudi.generations import Generation, Generations
from lakewake.store.hudi.lock import Lock, NeverLost
from lakewake.store.hudi.reader import HudiReader, read_slice
from lakewake.store.hudi.recall import Asked, Found, decided, no_worse
from lakewake.store.hudi.slices import Slice
from lakewake.store.hudi.staging import HudiStaging
from lakewake.store.hudi.table import completed
from lakewake.store.hudi.upkeep import Upkeep, count_words
from lakewake.store.recall import Questions, always_exact, now

#: Chunks that are written to a staged file at the same time.
AT_ONCE = 8_192
#: The column in which Hudi keeps the instant that wrote a row.
WRITTEN = "_hoodie_commit_time"


@dataclass(frozen=True)
class Retraining:
    """One retrain of an index.

    Attributes:
        newest: reads the newest state of the serving generation; raises if there is another one.
        opened: reads the newest state of a generation, claimed or not.
    """

    upkeep: Upkeep
    lock: Lock
    newest: Callable[[], HudiReader]
    opened: Callable[[Generation], HudiReader]

    def run(self) -> Retrained:
        """Retrain, and switch if the new cells are not worse.

        Raises:
            StaleFrontier: another process made a generation meanwhile; nothing of ours stays.
            OutcomeUnknown: the new generation may or may not be active.
        """
        index = self.newest()
        if why := always_exact(index.coverage, self.upkeep.asking):
            return Retrained(now(), False, f"it is searched exactly: {why}")
        questions = self.upkeep.questions(index)
        if not questions:
            return Retrained(now(), False, "it holds no vector to ask about")
        generations, reporter = self.upkeep.writer.generations, self.upkeep.writer.reporter
        number = index.generation + 1
        made = Generation(number, generations.new_table(number), index.generation)
        with index.pinned(), self._removed_unless_active(made):
            self._copy(index, made)
            index, new = self._in_step(index, made)
            with step(reporter, "compare the cells"):
                ended, found = self._compared(index, new, questions)
            if ended.switched:
                count_words(new, new.word_folder, reporter)
                index, _ = self._in_step(index, made)
                self._switch(index, made, found)
            else:
                self._note(ended, found)
        return ended

    def _copy(self, index: HudiReader, made: Generation) -> None:
        """Write all chunks of a state to the new table, in new cells. Executors do it."""
        writer, schema = self.upkeep.writer, index.schema()
        spark = writer.session()
        with (
            step(writer.reporter, "copy into new cells"),
            writer.generations.staging() as folder,
            writer.showing(spark),
        ):
            staging = HudiStaging(writer.location, folder, None)
            parts = index.scan_parts(schema.names).parts
            context = spark.sparkContext
            count = max(1, min(len(parts), 2 * context.defaultParallelism))
            shares = [parts[n::count] for n in range(count)]
            written = (
                context.parallelize(shares, count)
                .map(lambda share: staging.write(schema, _larger(chain.from_iterable(share))))
                .collect()
            )
            batch = staging.batch(schema, written, Removed())
            writer.build(made.table, index.recipe(), batch, index.frontier())

    def _in_step(self, before: HudiReader, made: Generation) -> tuple[HudiReader, HudiReader]:
        """Apply to the new table what was committed since a state; return both as they are now."""
        now, new = self.newest(), self.opened(made)
        if now.table.instant == before.table.instant:
            return now, new
        writer, hold, then = self.upkeep.writer, NeverLost(), now.frontier()
        # While a state is pinned, no commit leaves the timeline but by a restore or a rollback.
        # What these bring back was written long ago, so `changes` would not find it.
        there = {name.partition("_")[0] for name in completed(writer.location, now.table.folder)}
        if before.table.instant not in there:
            raise writer.stale(f"index '{writer.name}' was restored while it was retrained")
        guard = writer.guard(new, hold)
        with writer.generations.staging() as folder:
            staged = writer.stage(folder, new, changes(before, now), then)
            if error := writer.upsert(new, staged.parts, then, guard, hold):
                raise writer.unwritten(error) from error
        return now, self.opened(made)

    def _compared(
        self, index: HudiReader, new: HudiReader, questions: Questions
    ) -> tuple[Retrained, Found]:
        """How the retrain ends, and the probe to keep: of the new cells, or of the old ones."""
        _check_copy(index, new)
        asking, asked = self.upkeep.asking, Asked.of(index.exactly, questions)
        of, cells = len(index.cells.numbers), len(new.cells.numbers)
        before = asked.cheapest(index.nearness, of, asking.recall)
        measure = partial(asked.measure, new.nearness)
        after = no_worse(measure, cells, before, of, asking.recall)
        ended = _ended(before, of, after, cells)
        chunks, best = index.counts()[1], new if after else index
        decision = decided(after if after else before, asked, asking, chunks)
        return ended, Found(decision, best.table.instant, best.table.folder, retrained=ended)

    def _note(self, ended: Retrained, found: Found) -> None:
        """Record with the serving generation that a retrain was not used."""
        with self.lock.held():
            index = self.newest()
            if probed := index.probed:
                ended = replace(ended, changes=index.changed.total)
                found = replace(probed, counted=index.changed, retrained=ended)
            self.upkeep.keep(index.generation, found)

    def _switch(self, index: HudiReader, made: Generation, found: Found) -> None:
        """Make the new generation the active one, with everything that was committed."""
        writer = self.upkeep.writer
        with self.lock.held() as hold:
            _, new = self._in_step(index, made)
            self.upkeep.keep(made.number, found)
            hold.check()
            if not writer.generations.claim(replace(made, since=new.table.instant)):
                raise writer.stale(f"generation {made.number} of '{writer.name}' came first")

    @contextmanager
    def _removed_unless_active(self, made: Generation) -> Iterator[None]:
        """Remove the new table at the end, unless it is in use or may be."""
        generations = self.upkeep.writer.generations
        try:
            yield
        except OutcomeUnknown:
            raise
        except BaseException:
            _remove(generations, made)
            raise
        _remove(generations, made)


def _remove(generations: Generations, made: Generation) -> None:
    # If this fails, a later upkeep removes it.
    with suppress(OSError, LakewakeError):
        if generations.active().table != made.table:
            generations.location.remove(made.table)


def changes(before: HudiReader, now: HudiReader) -> Batch:
    """What was committed between two states of one table."""
    former, present = set(before.table.every()), set(now.table.every())
    come = [one for one in now.table.every() if one not in former]
    gone = _ids(before, former - present) - _ids(now, come)
    schema = now.schema()

    def rows() -> pa.RecordBatchReader:
        batches = (_written_since(now, one, before.table.instant) for one in come)
        return pa.RecordBatchReader.from_batches(schema, batches)

    return Batch(schema, rows, gone)


def _ids(index: HudiReader, slices: Iterable[Slice]) -> set[str]:
    found: set[str] = set()
    for one in slices:
        found |= set(index.table.columns(one, ["_id"])["_id"].to_pylist())
    return found


def _written_since(index: HudiReader, one: Slice, instant: str) -> pa.RecordBatch:
    """The chunks of a slice that commits after an instant wrote."""
    written = index.table.columns(one, [WRITTEN])[WRITTEN]
    later = pc.greater(written, pa.scalar(instant, written.type))
    return read_slice(index.table, one, index.schema()).filter(later)


def _larger(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same chunks in fewer batches: each becomes a row group."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= AT_ONCE:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held = []
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _check_copy(index: HudiReader, new: HudiReader) -> None:
    if index.counts() != new.counts():
        raise StoreError(
            f"the retrained copy of index '{index.about.name}' has {new.counts()} rows and chunks, "
            f"the index has {index.counts()}",
            landed="the index is unchanged",
            hint=f"run `lakewake verify {index.about.name}`",
        )


def _ended(before: Probed | None, of: int, after: Probed | None, cells: int) -> Retrained:
    why = "the new cells find less, or more of them have to be read"
    if after:
        former = f"{before.effort.probes:,}" if before else "all"
        why = f"a search reads {after.effort.probes:,} of {cells:,} cells, not {former} of {of:,}"
    return Retrained(
        now(),
        after is not None,
        why,
        cells_before=of,
        cells_after=cells,
        read_before=before.effort.probes if before else 0,
        read_after=after.effort.probes if after else 0,
        recall_before=before.mean if before else None,
        recall_after=after.mean if after else None,
    )
