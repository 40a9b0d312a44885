"""Indexes of an older Lakewake can be opened, searched and followed, and nothing is embedded."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import lakewake
from lakewake.api import Index
from lakewake.embed.hashing import HashingEmbedder
from support import TESTS
from support.hudi.tables import HudiTables
from support.oracle import indexed

pytestmark = pytest.mark.spark

OLDER = TESTS / "data" / "older" / "2475629.tar.xz"
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
COLUMNS = ("id", "part", "ts", "txt", "tags", "maker", "seen")


@pytest.fixture(params=TYPES)
def lake(request, tmp_path):
    """A table with the index that the older version left behind."""
    with tarfile.open(OLDER) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / request.param


def embedded(index: Index) -> list[str]:
    """Every text that its model received."""
    embedder = index.parts.embedder
    assert isinstance(embedder, HashingEmbedder)
    return embedder.received


def a_build_of(lake: Path, spark) -> dict[str, object]:
    """What an index built from nothing holds."""
    config = lake / "again.toml"
    text = (lake / "lakewake.toml").read_text()
    config.write_text(text.replace("lance://index", "lance://again"))
    with lakewake.open(config, spark=spark) as opened:
        assert opened["sample"].sync().action.value == "build"
        return indexed(opened["sample"].parts)


def test_an_index_of_an_older_release_is_in_step_and_answers(spark, lake):
    with lakewake.open(lake / "lakewake.toml", spark=spark) as opened:
        index = opened["sample"]
        assert index.status().in_step
        assert index.sync().action.value == "nothing"
        assert embedded(index) == []
        chunks = [chunk for chunk, _ in indexed(index.parts).values()]
        text = next(c["_text"] for c in chunks if c["_key"] == "k12" and c["_chunk"] == 0)
        for mode in ("vector", "keyword", "hybrid"):
            assert index.search(text, k=1, mode=mode).hits[0].key == "k12"
        assert index.verify().agrees


def test_an_index_of_an_older_release_is_followed_and_nothing_is_embedded(
    spark, small_tables, lake
):
    table = HudiTables(spark, lake / "table", lake.name, options=small_tables)
    rows = spark.read.format("hudi").load(str(lake / "table")).select(*COLUMNS, "num")
    some = rows.where("id in ('k1', 'k2', 'k7')")
    table.write_frame(some.selectExpr(*COLUMNS, "-num as num"))
    table.write_frame(rows.where("id in ('k9', 'k8')"), "delete")
    with lakewake.open(lake / "lakewake.toml", spark=spark) as opened:
        index = opened["sample"]
        report = index.sync(reconcile=False)
        assert report.action.value == "follow"
        assert embedded(index) == []
        assert report.embedded == 0
        assert index.verify().agrees
        assert indexed(index.parts) == a_build_of(lake, spark)


def test_words_of_an_older_index_are_found_by_their_stems_and_nothing_is_embedded(lake):
    config = lake / "lakewake.toml"
    text = config.read_text()
    for language, found in (("none", False), ("english", True)):
        config.write_text(text.replace("payload =", f'language = "{language}"\npayload ='))
        with lakewake.open(config) as opened:
            index = opened["sample"]
            hits = index.search("sentences topics", k=3, mode="keyword").hits
            assert bool(hits) == found
            assert all(hit.highlight for hit in hits)
            assert embedded(index) == []
