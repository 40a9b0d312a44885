"""A text is embedded once: not again after a kill, a delete or a rebuild, or in another index."""

from __future__ import annotations

import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lakewake
from lakewake.embed.cache import FILE, SqliteVectorCache
from lakewake.embed.hashing import HashingEmbedder
from lakewake.model.chunks import text_hash
from lakewake.model.plan import Action
from lakewake.source.memory import BATCH_ROWS
from lakewake.sync import SyncOptions, sync
from lakewake.sync.vectors import EMBED_TEXTS
from support.hudi.tables import HudiTables, row
from support.killing import lance_parts, received
from support.oracle import built_from_nothing, indexed
from support.sampling import HASHING, SampleParts, rid, sample_parts, sample_recipe, values

ROWS = 5_000
INDEX = """
[[index]]
name = "{name}"
table = "table"
text = "{{txt}}"
payload = ["num"]
store = "lance://{folder}"
model = {{ provider = "hashing", dimension = 32 }}
"""


def embedded_by(parts: SampleParts, options: SyncOptions = SyncOptions()) -> list[str]:  # noqa: B008
    """The texts that a sync passes to the embedder; its report must agree."""
    parts.embedder.received.clear()
    report = sync(parts, options)
    assert report.embedded == len(parts.embedder.received)
    assert indexed(parts) == built_from_nothing(parts)
    return list(parts.embedder.received)


def stored(folder: Path) -> SqliteVectorCache:
    return SqliteVectorCache(folder / FILE, sample_recipe().model)


def test_a_build_killed_at_half_embeds_at_most_a_twentieth_of_that_again(kill, tmp_path):
    half = ("embed", f"at {ROWS // 2}")
    assert kill("sync", tmp_path, "new", half, rows=ROWS) == -signal.SIGKILL
    before = received(tmp_path)
    assert ROWS * 0.45 < len(before) < ROWS * 0.6
    parts = lance_parts(tmp_path, "new", rows=ROWS)
    report = sync(parts)
    after = parts.embedder.received
    assert report.action is Action.BUILD
    assert report.embedded == len(after)
    assert len(set(before) & set(after)) <= len(before) * 0.05
    assert set(before) | set(after) == {f"text number {n}" for n in range(ROWS)}
    assert indexed(parts) == built_from_nothing(parts)


def test_a_row_deleted_and_inserted_again_is_not_embedded_again(tmp_path):
    parts = sample_parts(vector_cache=stored(tmp_path))
    parts.table.upsert({rid(f"k{n}"): values(f"text {n}") for n in range(5)})
    assert len(embedded_by(parts)) == 5
    parts.table.delete([rid("k1"), rid("k3")])
    assert embedded_by(parts) == []
    parts.table.upsert({rid("k1"): values("text 1"), rid("other"): values("text 3")})
    assert embedded_by(parts) == []


def test_a_rebuild_embeds_nothing(tmp_path):
    parts = lance_parts(tmp_path, "new")
    sync(parts)
    assert embedded_by(parts, SyncOptions(rebuild=True)) == []


def test_a_deleted_index_is_built_again_and_embeds_nothing(tmp_path):
    sync(lance_parts(tmp_path, "new"))
    shutil.rmtree(tmp_path / "sample.g1.lance")
    (tmp_path / "sample.json").unlink()
    assert embedded_by(lance_parts(tmp_path, "new")) == []


def test_only_damaged_entries_of_the_file_are_embedded_again(tmp_path):
    vector_cache = stored(tmp_path)
    first = sample_parts(vector_cache=vector_cache)
    first.table.upsert({rid(f"k{n}"): values(f"text {n}") for n in range(5)})
    sync(first)
    vector_cache._open().execute("UPDATE embedding SET crc = crc + 1 WHERE id = 2")
    vector_cache._open().commit()
    assert len(embedded_by(sample_parts(first.table, vector_cache=stored(tmp_path)))) == 1


def test_texts_embedded_by_another_syncer_are_not_embedded_again(tmp_path):
    # Whole groups: which one comes first is random.
    texts = [f"text {n}" for n in range(7 * EMBED_TEXTS)]
    other = stored(tmp_path)

    class Beside(HashingEmbedder):
        """While this embeds its first texts, another syncer caches the vectors of all."""

        def embed(self, some):
            if not self.received:
                known = zip(texts, HashingEmbedder(HASHING).embed(texts), strict=True)
                other.put({text_hash(text): vector for text, vector in known})
            return super().embed(some)

    parts = replace(sample_parts(vector_cache=stored(tmp_path)), embedder=Beside(HASHING))
    parts.table.upsert({rid(f"k{n}"): values(text) for n, text in enumerate(texts)})
    report = sync(parts)
    assert report.embedded == len(parts.embedder.received) == EMBED_TEXTS
    assert report.reused == len(texts) - EMBED_TEXTS
    assert indexed(parts) == built_from_nothing(parts)


@pytest.mark.parametrize("damaged", [False, True])
def test_without_a_cache_file_a_text_is_embedded_once_per_sync(damaged, tmp_path):
    if damaged:
        (tmp_path / FILE).write_bytes(b"no database" * 1000)
    vector_cache = stored(tmp_path) if damaged else SqliteVectorCache(None, sample_recipe().model)
    parts = sample_parts(vector_cache=vector_cache)
    repeated = {rid(f"k{n}"): values(f"text {n % 10}") for n in range(2 * BATCH_ROWS + 1)}
    parts.table.upsert(repeated)
    assert sorted(embedded_by(parts)) == [f"text {n}" for n in range(10)]


@pytest.mark.spark
def test_a_second_index_on_the_same_texts_embeds_nothing_unless_the_cache_is_off(
    spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}") for n in range(20)])
    config = tmp_path / "lakewake.toml"
    sharing = [("one", "index"), ("two", "index"), ("three", "elsewhere")]
    indexes = [INDEX.format(name=name, folder=folder) for name, folder in sharing]
    alone = INDEX.format(name="alone", folder="alone") + "embedding_store = false\n"
    config.write_text("".join([*indexes, alone]))
    with lakewake.open(config, spark=spark) as lake:
        reports = []
        for name, embedded in {"one": 20, "two": 0, "three": 0, "alone": 20}.items():
            embedder: Any = lake[name].parts.embedder
            received = embedder.received
            received.clear()
            reports.append(lake[name].sync())
            assert reports[-1].embedded == len(received) == embedded
        assert [r.reused for r in reports] == [0, 20, 20, 0]
        assert lake["three"].verify().agrees
    assert [p.parent.name for p in tmp_path.rglob(FILE)] == ["index"]
