"""Breaks one rule at a time in a copy of the sources, and shows which test notices.

`make mutants` runs it. It fails when a mutant survives, when a mutation no longer fits the sources,
or when the tests fail without any mutation.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Mutant:
    """One rule broken: `old` becomes `new` in `file`, and `tests` must notice."""

    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


SYNC = ("tests/unit/sync/test_sync.py",)
PLAN = ("tests/unit/plan/test_plan.py",)
QUARANTINE = ("tests/unit/sync/test_quarantine.py", "tests/unit/sync/test_quarantine_tries.py")
SELECTION = ("tests/unit/sync/test_selection.py",)
STORES = ("tests/contract/test_stores.py",)
PARTED = (
    "tests/integration/test_partition_values.py",
    "-k",
    "odd_partition_values and COPY_ON_WRITE-true-false",
)
RECALL = ("tests/contract/test_recall.py",)
ANSWERS = ("tests/contract/test_stores.py", "-k", "all_answers_equal_those_of_a_fresh_build")
CLEANED = ("tests/integration/test_matrix.py", "-k", "cleaning and MERGE_ON_READ")

FRONTIER_FIRST = """\
            nothing = Batch(batch.schema, lambda: batch.schema.empty_table().to_reader())
            parts.store.commit(nothing, expect=situation.frontier, then=then)
            parts.store.commit(batch, expect=then, then=replace(then, sync=then.sync + 1))
"""
HASH_FOR_PRESENCE = """\
            held = self.index.vectors([c.hash for _, c in patch.upserts]) if self.index else {}
            unknown = tuple(u for u in patch.upserts if u[1].hash not in held)
            patch = Patch(unknown, patch.deletes, patch.rows_changed, patch.stored_twice)
            unread = [n for n, _ in patch.upserts if rows.ids[n] in rows.undecodable]
"""

MUTANTS = (
    Mutant(
        "commits are followed on the day that the index is at",
        "plan/__init__.py",
        "        after = replace(after, date=frontier.date)\n",
        "",
        SELECTION,
    ),
    Mutant(
        "the day moves although commits were followed",
        "sync/situation.py",
        "recipe.dated and plan.after.date != situation.look.date",
        "False",
        SELECTION,
    ),
    Mutant(
        "an older copy that enters the selection does not replace a newer one",
        "sync/situation.py",
        "    if plan.since and outcome.stored_twice:\n",
        "    if False:\n",
        SELECTION,
    ),
    Mutant(
        "a commit with a savepoint is taken for the end of what is archived",
        "plan/__init__.py",
        "    if max(frontier.instants) <= look.archived:",
        "    if False:",
        PLAN,
    ),
    Mutant(
        "an approximate search is trusted after many deletes",
        "store/recall.py",
        "return last is not None and last.deleted(there.covered) > many(there.chunks)",
        "return False",
        RECALL,
    ),
    Mutant(
        "an approximate index is not asked about what was deleted",
        "store/recall.py",
        "DELETED: _some(_askable(deleted), rng),",
        "DELETED: _some(_askable(deleted), rng)[:0],",
        RECALL,
    ),
    Mutant(
        "a probe is valid for a state that a restore brought back",
        "store/hudi/recall.py",
        "and is_based",
        "and True",
        ("tests/unit/store/test_lake_decisions.py",),
    ),
    Mutant(
        "Spark takes the name of a file for a pattern",
        "spark/own.py",
        "return _PATTERN.sub",
        "return path or _PATTERN.sub",
        ("tests/unit/spark/test_own.py",),
    ),
    Mutant(
        "an upsert is taken to add no second copy",
        "source/lineage.py",
        "return commit.operation in DUPLICATING or (added and not commit.is_maintenance)",
        "return commit.operation in DUPLICATING",
        ("tests/unit/source/test_lineage.py", "tests/integration/test_copies.py", "-k", "upsert"),
    ),
    Mutant(
        "a base file that Spark does not list is not missed",
        "source/files.py",
        "if listed != len(files):",
        "if listed > len(files):",
        ("tests/integration/test_hostile_session.py", "-k", "does_not_list"),
    ),
    Mutant(
        "deleted rows are dropped from the batch",
        "sync/prepare.py",
        "deletes = self.gone(changes)",
        "deletes = Ids()",
        SYNC,
    ),
    Mutant(
        "the frontier moves before the rows are committed",
        "sync/write.py",
        "            parts.store.commit(counted, expect=situation.frontier, then=then)\n",
        FRONTIER_FIRST,
        SYNC,
    ),
    Mutant(
        "Hudi's full-scan fallback is trusted",
        "source/files.py",
        '.option("hoodie.datasource.read.incr.fallback.fulltablescan.enable", "false")',
        '.option("hoodie.datasource.read.incr.fallback.fulltablescan.enable", "true")',
        CLEANED,
    ),
    Mutant(
        "partition columns are taken from the files",
        "source/files.py",
        "if not partition_columns(self.look.table.partition_fields).intersection(_names(columns)):",
        "if True:",
        PARTED,
    ),
    Mutant(
        "rows are identified by their key alone",
        "model/chunks.py",
        "_ENCODE([row.partition, row.key, field, n])",
        '_ENCODE(["", row.key, field, n])',
        SYNC,
    ),
    Mutant(
        "a known hash is taken for a present row",
        "sync/prepare.py",
        "            unread = [n for n, _ in patch.upserts if rows.ids[n] in rows.undecodable]\n",
        HASH_FOR_PRESENCE,
        SYNC,
    ),
    Mutant(
        "no chunk is taken for a chunk with the right hash",
        "plan/patch.py",
        "return bool(first) and all(first) and",
        "return all(first) and",
        SYNC,
    ),
    Mutant(
        "a chunk after the first tells whether the row changed",
        "plan/patch.py",
        "for h in held if h.n == 0]",
        "for h in held if h.n > 0]",
        ("tests/unit/sync/test_long_texts.py",),
    ),
    Mutant(
        "a chunk stays though the row's payload changed",
        "plan/patch.py",
        "for h in held if h.payload_hash == payload)",
        "for h in held)",
        ("tests/unit/sync/test_long_texts.py",),
    ),
    Mutant(
        "pages that the frontier no longer names stay",
        "store/lance/commit.py",
        "for name in held - then.pages)",
        "for name in ())",
        STORES,
    ),
    Mutant(
        "clustering inside a window is not followed",
        "source/lineage.py",
        "groups=frozenset(_with_clustered(groups, commits)) - hidden,",
        "groups=frozenset(groups) - hidden,",
        ("tests/unit/source/test_lineage.py",),
    ),
    Mutant(
        "the frontier forgets what was in flight",
        "plan/__init__.py",
        "in_flight=look.in_flight,",
        "in_flight=(),",
        PLAN,
    ),
    Mutant(
        "the timeline is one watermark, not a set",
        "plan/__init__.py",
        "if i.changes_data and i.requested not in frontier.instants)",
        "if i.changes_data and i.requested > frontier.newest)",
        PLAN,
    ),
    Mutant(
        "undone commits go unnoticed",
        "plan/__init__.py",
        "    if gone:\n        return f",
        "    if False:\n        return f",
        PLAN,
    ),
    Mutant(
        "a changed column goes unnoticed",
        "plan/__init__.py",
        "return _lost_in_flight(look, frontier, first) or _schema_change(look, frontier, recipe)",
        "return _lost_in_flight(look, frontier, first)",
        PLAN,
    ),
    Mutant(
        "a batch is written although another writer moved the frontier",
        "store/lance/store.py",
        "if current not in (expect.to_json(), then.to_json()):",
        "if False:",
        STORES,
    ),
    Mutant(
        "vectors of another model are copied from the index",
        "sync/situation.py",
        "if copied and copied.recipe().model != parts.recipe.model:",
        "if False:",
        SYNC,
    ),
    Mutant(
        "the vector cache mixes models",
        "embed/cache.py",
        "    return hashlib.sha256(text.encode()).hexdigest()\n\n\ndef _connect",
        '    return ""\n\n\ndef _connect',
        ("tests/contract/test_vector_caches.py",),
    ),
    Mutant(
        "`embedded` counts calls, not texts",
        "sync/vectors.py",
        "self._tally.embedded += len(texts)",
        "self._tally.embedded += 1",
        SYNC,
    ),
    Mutant(
        "`embedded` leaves out the texts of a lost race",
        "sync/attempts.py",
        "return sum(a.work.tally.embedded for a in self.made)",
        "return self.made[-1].work.tally.embedded",
        SYNC,
    ),
    Mutant(
        "another sync's commit is taken for one's own",
        "sync/__init__.py",
        "attempt.then = replace(then, token=attempts.token)",
        'attempt.then = replace(then, token="")',
        SYNC,
    ),
    Mutant(
        "a refused row keeps its old vector",
        "plan/patch.py",
        "deletes=tuple(dict.fromkeys(self.deletes + gone)),",
        "deletes=self.deletes,",
        QUARANTINE,
    ),
    Mutant(
        "a text refused in one batch is tried again in the next",
        "sync/vectors.py",
        "texts = {h: t for h, t in texts.items() if h not in self.refused}",
        "texts = dict(texts)",
        QUARANTINE,
    ),
    Mutant(
        "the words of chunks that are gone are counted",
        "store/words.py",
        "int(np.count_nonzero(part.live[texts]))",
        "len(texts)",
        ANSWERS,
    ),
    Mutant(
        "the lengths of chunks that are gone are counted",
        "store/words.py",
        "int(some[part.live].sum())",
        "int(some.sum())",
        ANSWERS,
    ),
    Mutant(
        "texts of chunks that are gone decide the language",
        "store/words.py",
        "sum(int(part.counted.stops(name)[part.live].sum()) for part in parts)",
        "sum(int(part.counted.stops(name).sum()) for part in parts)",
        ("tests/unit/store/test_words.py",),
    ),
    Mutant(
        "verify does not look for orphans",
        "verify/__init__.py",
        "orphaned=_without(found.orphaned, pending),",
        "orphaned=(),",
        SYNC,
    ),
    Mutant(
        "files are listed after the timeline was compared",
        "source/reader.py",
        "        table._jdf.inputFiles()\n",
        "",
        ("tests/integration/test_pinned.py", "-k", "build and MERGE"),
    ),
    Mutant(
        "a state in memory is taken after the timeline was compared",
        "source/memory.py",
        "            raise TableMoved\n        return state\n",
        "            raise TableMoved\n        return self.history\n",
        ("tests/property/test_any_history.py", "-k", "history_is_followed and followed[0]"),
    ),
    Mutant(
        "maintenance is taken for harmless whatever it was overtaken by",
        "model/timeline.py",
        "return self.operation in MAINTENANCE and not self.overtaken",
        "return self.operation in MAINTENANCE",
        ("tests/unit/source/test_lineage.py",),
    ),
    Mutant(
        "rows of a replaced file group are read again",
        "source/lineage.py",
        "commits)) - hidden,",
        "commits)),",
        ("tests/unit/source/test_lineage.py",),
    ),
    Mutant(
        "a partition that the cleaner dropped is taken for an empty one",
        "source/files.py",
        "        self._refuse_dropped_partitions({g.partition for g in groups})\n",
        "",
        ("tests/integration/test_matrix.py", "-k", "dropped and cleaned and MERGE"),
    ),
    Mutant(
        "the caller's settings reach reads",
        "source/reader.py",
        "spark = reading_session(self._start())",
        "spark = self._start()",
        ("tests/integration/test_hostile_session.py", "-k", "casts_values"),
    ),
    Mutant(
        "a streamed read is compiled with the caller's settings",
        "source/arrow.py",
        "    with active(frame.sparkSession):\n",
        "    if True:\n",
        ("tests/integration/test_hostile_session.py", "-k", "casts_values"),
    ),
    Mutant(
        "Hudi's defaults reach reads",
        "source/view.py",
        "{**READ_OPTIONS, ",
        "{",
        ("tests/integration/test_hostile_session.py", "-k", "hostile_settings and MERGE"),
    ),
    Mutant(
        "most of an index is removed without consent",
        "plan/deletes.py",
        "return gone > UNASKED and gone > share * held",
        "return False",
        ("tests/unit/sync/test_max_delete.py",),
    ),
)


class DoesNotFit(Exception):
    """A mutation must match the sources exactly once, or it shows nothing."""


def mutate(source: Path, mutant: Mutant) -> None:
    """Apply a mutation to a copy of the sources."""
    file = source / "lakewake" / mutant.file
    text = file.read_text()
    if text.count(mutant.old) != 1:
        raise DoesNotFit(f"{mutant.file}: {text.count(mutant.old)} times {mutant.old!r}")
    file.write_text(text.replace(mutant.old, mutant.new))


def run(source: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """The tests, up to the first failure, against a copy of the sources."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(source),
        # What hypothesis learns from mutants is of no use to anyone else.
        "HYPOTHESIS_STORAGE_DIRECTORY": str(source.parent / "hypothesis"),
    }
    where = "import lakewake; print(lakewake.__file__)"
    shown = subprocess.run(
        [sys.executable, "-c", where], env=environment, capture_output=True, text=True, check=True
    )
    assert Path(shown.stdout.strip()).is_relative_to(source), shown.stdout
    command = [sys.executable, "-m", "pytest", "-x", "--tb=short", "-rf", *tests]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)


def verdict(mutant: Mutant) -> str:
    """`caught by …`, or `SURVIVED`."""
    with tempfile.TemporaryDirectory(prefix="lakewake-mutant-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source)
        mutate(source, mutant)
        done = run(source, mutant.tests)
    failed = re.search(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
    # 1: tests ran and some failed. Anything else is a mutation that breaks more than its rule.
    if done.returncode == 1 and failed:
        return f"caught by {failed[1]}"
    return "SURVIVED" if done.returncode == 0 else f"BROKEN\n{done.stdout[-2000:]}"


def without_mutation() -> bool:
    """Whether all the tests pass on an unmutated copy."""
    with tempfile.TemporaryDirectory(prefix="lakewake-mutant-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source)
        for tests in dict.fromkeys(m.tests for m in MUTANTS):
            done = run(source, tests)
            if done.returncode:
                print(f"without any mutation {' '.join(tests)} fails:\n{done.stdout[-2000:]}")
                return False
    return True


def main() -> int:
    """Try every mutant; 1 when one survives or the tests fail without any."""
    if not without_mutation():
        return 1
    print(f"without any mutation all tests pass; now {len(MUTANTS)} mutants", flush=True)
    verdicts = []
    for mutant in MUTANTS:
        verdicts.append(verdict(mutant))
        print(f"{mutant.breaks}: {verdicts[-1]}", flush=True)
    return int(not all(v.startswith("caught") for v in verdicts))


if __name__ == "__main__":
    sys.exit(main())
