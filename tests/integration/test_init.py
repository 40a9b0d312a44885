"""`init` on a real table: the file describes the table correctly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from lakewake.config.file import load_config
from lakewake.config.init import draft_config
from lakewake.ingest import IngestRequest, ingest
from lakewake.model.recipe import TextField
from lakewake.sample import wines
from lakewake.source.look import look_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_draft_for_the_sample_table_is_ready_to_sync(
    spark: SparkSession, tmp_path: Path, small_tables: dict[str, str]
):
    rows, table = tmp_path / "wines.parquet", tmp_path / "lake" / "wine_reviews"
    pq.write_table(wines(20), rows)
    made = IngestRequest(
        str(rows),
        str(table),
        key=("wine_id",),
        ordering="ts",
        partition=("country",),
        table_type="mor",
        options=small_tables,
    )
    assert ingest(spark, made).inserted == 20
    found = draft_config(str(table), look_at(str(table)), tmp_path / "lakewake.toml")
    assert found.table == "merge-on-read; key wine_id; ordering ts; partition country"
    (index,) = load_config(tmp_path / "lakewake.toml", env={}).indexes
    assert (index.name, index.table) == ("wine_reviews", str(table))
    assert index.fields == (TextField("text", "{title}. {description}"),)
    assert index.payload == (
        "wine_id",
        "country",
        "province",
        "variety",
        "winery",
        "title",
        "points",
        "price",
    )


def test_a_vector_column_of_a_table_without_text_is_found(
    spark: SparkSession, tmp_path: Path, small_tables: dict[str, str]
):
    rows, table = tmp_path / "rows.jsonl", tmp_path / "vectors"
    rows.write_text('{"id": 1, "emb": [0.5, 1.5]}\n')
    ingest(spark, IngestRequest(str(rows), str(table), key=("id",), options=small_tables))
    found = draft_config(str(table), look_at(str(table)), tmp_path / "lakewake.toml")
    assert (found.text, found.vector) == ((), "emb")
    (index,) = load_config(tmp_path / "lakewake.toml", env={}).indexes
    assert index.vector == "emb"
