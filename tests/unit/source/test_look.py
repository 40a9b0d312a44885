"""Looking at a table that cannot be followed, or at something that is not a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakewake.errors import TableError
from lakewake.source.look import look_at

PROPERTIES = {
    "hoodie.table.name": "t",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.version": "9",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.timeline.path": "timeline",
}


def make_table(folder: Path, *timeline: str, **changed: str) -> Path:
    properties = {**PROPERTIES, **{k.replace("__", "."): v for k, v in changed.items()}}
    (folder / ".hoodie" / "timeline").mkdir(parents=True)
    text = "".join(f"{k}={v}\n" for k, v in properties.items())
    (folder / ".hoodie" / "hoodie.properties").write_text(text)
    for name in timeline:
        (folder / ".hoodie" / "timeline" / name).write_text('{"operationType": "UPSERT"}')
    return folder


def test_a_missing_table_is_named_in_the_error(tmp_path):
    with pytest.raises(TableError, match="no table at") as error:
        look_at(str(tmp_path / "nowhere"))
    assert "ingest" in error.value.hint


def test_a_folder_that_is_not_a_hudi_table_is_refused(tmp_path):
    (tmp_path / "data.parquet").write_bytes(b"")
    with pytest.raises(TableError, match="not a Hudi table"):
        look_at(str(tmp_path))


def test_a_file_in_place_of_the_table_is_refused(tmp_path):
    file = tmp_path / "table"
    file.write_text("x")
    with pytest.raises(TableError):
        look_at(str(file))


def test_a_table_without_meta_fields_is_refused(tmp_path):
    make_table(tmp_path, hoodie__populate__meta__fields="false")
    with pytest.raises(TableError, match=r"populate\.meta\.fields=false"):
        look_at(str(tmp_path))


def test_an_old_table_version_is_refused_with_a_clear_error(tmp_path):
    make_table(tmp_path, hoodie__table__version="6")
    with pytest.raises(TableError, match="table version 6") as error:
        look_at(str(tmp_path))
    assert "upgrade" in error.value.hint


def test_a_table_without_a_commit_is_empty(tmp_path):
    look = look_at(str(make_table(tmp_path)))
    assert (look.completed, look.schema, look.newest) == ({}, {}, "")


def test_only_commits_that_the_frontier_lacks_are_opened(tmp_path):
    make_table(tmp_path, "1_2.commit", "3_4.commit", "5_6.commit")
    first = look_at(str(tmp_path))
    from lakewake.model.frontier import Frontier

    seen = look_at(str(tmp_path), Frontier(first.table, {"1": "2", "3": "4"}))
    assert "5" in seen.commits
    assert seen.completed == {"1": "2", "3": "4", "5": "6"}


@pytest.mark.parametrize(("marks", "archived"), [(["1_3.savepoint"], "5"), ([], "")])
def test_the_archive_is_looked_at_only_if_there_are_savepoints(marks, archived, tmp_path):
    make_table(tmp_path, "1_2.commit", "7_8.commit", *marks)
    archive = tmp_path / ".hoodie" / "timeline" / "history"
    archive.mkdir()
    (archive / "4_5_0.parquet").touch()
    assert look_at(str(tmp_path)).archived == archived


def test_a_listing_with_a_vanished_commit_is_read_again(tmp_path, monkeypatch):
    make_table(tmp_path, "1_2.commit", "3_4.commit")
    from lakewake.source.storage import Storage

    list_names, gone = Storage.names, tmp_path / ".hoodie" / "timeline" / "1_2.commit"

    def names_then_archive(self, folder):
        found = list_names(self, folder)
        gone.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Storage, "names", names_then_archive)
    assert look_at(str(tmp_path)).completed == {"3": "4"}


def test_a_commit_file_that_is_still_being_written_is_read_again(tmp_path, monkeypatch):
    make_table(tmp_path, "1_2.commit")
    file = tmp_path / ".hoodie" / "timeline" / "1_2.commit"
    whole = file.read_bytes()
    file.write_bytes(b"")
    from lakewake.source.storage import Storage

    read = Storage.read

    def read_then_finish(self, path):
        content = read(self, path)
        file.write_bytes(whole)
        return content

    monkeypatch.setattr(Storage, "read", read_then_finish)
    assert look_at(str(tmp_path)).commits["1"].operation == "UPSERT"


def test_base_files_in_another_format_are_refused(tmp_path):
    make_table(tmp_path, hoodie__table__base__file__format="ORC")
    with pytest.raises(TableError, match="base files in ORC"):
        look_at(str(tmp_path))


def _wrote(folder: Path, name: str, operation: str, *columns: str) -> None:
    schema = json.dumps({"fields": [{"name": c, "type": "int"} for c in columns]})
    content = {"operationType": operation, "extraMetadata": {"schema": schema}}
    (folder / ".hoodie" / "timeline" / name).write_text(json.dumps(content))


def test_the_schema_is_that_of_the_write_that_began_last(tmp_path):
    make_table(tmp_path)
    _wrote(tmp_path, "1_9.commit", "UPSERT", "a")
    _wrote(tmp_path, "2_3.commit", "UPSERT", "a", "b")
    _wrote(tmp_path, "4_5.replacecommit", "CLUSTER", "a")
    assert set(look_at(str(tmp_path)).schema) == {"a", "b"}


def test_an_escaped_hash_sign_in_the_schema_property_is_read(tmp_path):
    schema = json.dumps({"fields": [{"name": "a", "type": "int", "doc": "the #1 é"}]})
    escaped = schema.replace("#", "\\#").replace(":", "\\:").replace("é", "\\u00E9")
    make_table(tmp_path, hoodie__table__create__schema=escaped)
    assert set(look_at(str(tmp_path)).schema) == {"a"}


def test_a_damaged_schema_or_version_in_the_properties_is_an_error(tmp_path):
    make_table(tmp_path / "a", hoodie__table__create__schema="{")
    with pytest.raises(TableError, match=r"create\.schema of table .* cannot be read"):
        look_at(str(tmp_path / "a"))
    make_table(tmp_path / "b", hoodie__table__version="nine")
    with pytest.raises(TableError, match="'nine', not a number"):
        look_at(str(tmp_path / "b"))
