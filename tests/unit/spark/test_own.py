"""What sessions of our own take from the caller, decided without starting one."""

from __future__ import annotations

from lakewake.spark.own import PINNED, literal, settings_for


def test_the_name_of_a_file_is_not_a_pattern() -> None:
    assert literal("/lake/a [b] {c,d}/e*f?.parquet") == r"/lake/a \[b\] \{c,d\}/e\*f\?.parquet"
    assert literal("back\\slash") == r"back\\slash"
    assert literal("s3a://bucket/part=50%20off/ü.parquet") == "s3a://bucket/part=50%20off/ü.parquet"


def test_settings_that_change_what_is_read_or_written_are_not_taken_from_the_caller() -> None:
    given = {
        "spark.sql.files.ignoreMissingFiles": "true",
        "spark.sql.session.timeZone": "Asia/Kathmandu",
        "spark.sql.shuffle.partitions": "7",
        "hoodie.datasource.query.type": "read_optimized",
        "hoodie.memory.merge.max.size": "1",
        "spark.app.name": "theirs",
    }
    kept = {
        "spark.sql.shuffle.partitions": "7",
        "hoodie.memory.merge.max.size": "1",
        "spark.app.name": "theirs",
    }
    assert settings_for(given) == {**kept, **PINNED}
    assert PINNED["spark.sql.session.timeZone"] == "UTC"
