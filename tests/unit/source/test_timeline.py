"""What Hudi writes under .hoodie, read without a JVM."""

from __future__ import annotations

import io
import json

import fastavro
import pytest

from lakewake.model.cleaning import parse_clean_plan
from lakewake.model.timeline import FileGroup, Instant
from lakewake.source.files import just_before
from lakewake.source.timeline import (
    has_savepoints,
    merges_contents,
    newest_archived,
    parse_commit,
    parse_instants,
    parse_schema,
)


def test_a_completed_instant_has_a_requested_and_a_completion_time():
    assert parse_instants(["20250101_20250102.deltacommit"]) == (
        Instant("20250101", "20250102", "deltacommit"),
    )


def test_a_completed_file_wins_over_the_requested_and_inflight_ones():
    names = ["1.commit.requested", "1.inflight", "1_2.commit"]
    assert parse_instants(names) == (Instant("1", "2", "commit"),)


def test_an_instant_that_is_only_requested_or_in_flight_has_no_completion_time():
    names = ["1.inflight", "2.deltacommit.inflight", "3.compaction.requested"]
    assert parse_instants(names) == (
        Instant("1", None, "commit"),
        Instant("2", None, "deltacommit"),
        Instant("3", None, "compaction"),
    )
    assert all(i.may_change_data and not i.changes_data for i in parse_instants(names))


def test_compaction_completes_as_a_commit_and_clustering_as_a_replacecommit():
    names = ["1.compaction.requested", "1_2.commit", "3.clustering.requested", "3_4.replacecommit"]
    assert [i.action for i in parse_instants(names)] == ["commit", "replacecommit"]


def test_a_savepoint_does_not_hide_the_commit_that_it_marks():
    names = ["1.commit.requested", "1.inflight", "1_2.commit", "1.savepoint.inflight"]
    assert parse_instants([*names, "1_3.savepoint"]) == (Instant("1", "2", "commit"),)


def test_only_a_completed_savepoint_counts():
    assert has_savepoints(["1_2.commit", "1_3.savepoint"])
    assert not has_savepoints(["1_2.commit", "1.savepoint.inflight"])


def test_the_newest_archived_instant_is_in_the_names_of_the_archives_files():
    names = ["1_5_0.parquet", "6_9_0.parquet", "1_3_1.parquet", "manifest_12", "_version_"]
    assert newest_archived([*names, ".6_9_0.parquet.crc", "x_y_0.parquet", "1.parquet"]) == "9"
    assert newest_archived(["manifest_1", "_version_"]) == ""


def test_hidden_files_folders_and_unknown_files_are_not_instants():
    assert parse_instants([".1_2.commit.crc", "history", "README", "manifest_1"]) == ()


def test_clean_and_rollback_change_no_rows():
    assert not any(i.changes_data for i in parse_instants(["1_2.clean", "3_4.rollback"]))


def test_commit_metadata_in_json_is_read():
    stat = {
        "fileId": "f",
        "path": "p=a/f_0_2.parquet",
        "prevBaseFile": "f_0_1.parquet",
        "numInserts": 1,
        "numUpdateWrites": 2,
        "numDeletes": 3,
        "fileSizeInBytes": 4,
    }
    content = {
        "partitionToWriteStats": {"p=a": [stat]},
        "partitionToReplaceFileIds": {"p=b": ["g"]},
        "operationType": "UPSERT",
        "extraMetadata": {"schema": json.dumps({"fields": [{"name": "x", "type": "int"}]})},
    }
    commit = parse_commit(json.dumps(content).encode())
    (write,) = commit.writes
    assert (write.group, write.inserts, write.updates, write.deletes) == (
        FileGroup("p=a", "f"),
        1,
        2,
        3,
    )
    assert write.size == 4
    assert write.beside(write.previous_base_file) == "p=a/f_0_1.parquet"
    assert commit.replaced == (FileGroup("p=b", "g"),)
    assert commit.schema == {"x": '"int"'}


def test_a_schema_leaves_out_hudis_columns_and_nullability():
    fields = [
        {"name": "_hoodie_commit_time", "type": ["null", "string"]},
        {"name": "price", "type": ["null", "double"], "default": None},
    ]
    assert parse_schema(json.dumps({"fields": fields})) == {"price": '"double"'}


def test_the_same_nested_type_under_another_record_name_is_the_same_type():
    def schema(name: str) -> str:
        inner = {"type": "record", "name": name, "fields": [{"name": "x", "type": "int"}]}
        return json.dumps({"fields": [{"name": "c", "type": ["null", inner]}]})

    assert parse_schema(schema("one")) == parse_schema(schema("two"))


@pytest.mark.parametrize("kept", [{"timestamp": "7"}, None])
def test_a_clean_plan_names_the_earliest_instant_it_retains(kept):
    instant = {"type": "record", "name": "i", "fields": [{"name": "timestamp", "type": "string"}]}
    field = {"name": "earliestInstantToRetain", "type": ["null", instant]}
    plan = io.BytesIO()
    schema = {"type": "record", "name": "p", "fields": [field]}
    fastavro.writer(plan, schema, [{"earliestInstantToRetain": kept}])
    assert parse_clean_plan(plan.getvalue()) == ("7" if kept else "")


def _typed(avro) -> dict[str, str]:
    return parse_schema(json.dumps({"fields": [{"name": "c", "type": avro}]}))


def test_engine_annotations_beside_a_type_are_ignored():
    java = {"type": "string", "avro.java.string": "String"}
    assert _typed(["null", java]) == _typed("string")
    assert _typed({"type": "array", "items": ["null", java], "java-class": "java.util.List"}) == (
        _typed({"type": "array", "items": "string"})
    )
    named = {"type": "fixed", "name": "n", "size": 3, "logicalType": "decimal", "precision": 6}
    assert _typed(named) == _typed({**named, "type": "bytes", "scale": 0})


def test_timestamps_in_millis_and_in_micros_are_the_same_type():
    def stamp(unit: str) -> dict[str, str]:
        return {"type": "long", "logicalType": unit}

    assert _typed(stamp("timestamp-millis")) == _typed(["null", stamp("timestamp-micros")])
    assert _typed(stamp("timestamp-micros")) != _typed("long")
    assert _typed(stamp("local-timestamp-micros")) != _typed(stamp("timestamp-micros"))


def test_a_type_that_is_displayed_differently_is_another_type():
    def decimal(scale: int) -> dict[str, object]:
        return {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": scale}

    def vector(dimension: int) -> dict[str, object]:
        return {"type": "fixed", "name": "v", "logicalType": "vector", "dimension": dimension}

    assert _typed("int") != _typed("long")
    assert _typed(decimal(1)) != _typed(decimal(2))
    assert _typed(vector(3)) != _typed(vector(4))
    assert _typed({"type": "array", "items": "int"}) != _typed({"type": "array", "items": "long"})


@pytest.mark.parametrize("text", ["{", "[]", '"string"', "{}", '{"fields": [{"type": "int"}]}'])
def test_a_schema_that_is_not_a_record_is_refused(text):
    with pytest.raises(ValueError, match=r"not the Avro schema|double quotes"):
        parse_schema(text)


def test_partial_update_and_custom_merging_can_change_a_row_without_a_new_version():
    assert merges_contents({"hoodie.record.merge.mode": "CUSTOM", "hoodie.table.version": "9"})
    assert merges_contents({"hoodie.table.partial.update.mode": "KEEP_VALUES"})
    assert merges_contents({"hoodie.table.version": "8", "hoodie.table.payload.class": "x.MyOwn"})
    assert not merges_contents(
        {"hoodie.table.version": "9", "hoodie.record.merge.mode": "EVENT_TIME_ORDERING"}
    )


def test_the_millisecond_before_an_instant_is_a_valid_hudi_time():
    assert just_before("20250301120000000") == "20250301115959999"
    assert just_before("20250301120000123") == "20250301120000122"
