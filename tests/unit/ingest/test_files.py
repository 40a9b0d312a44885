"""Files of rows before they become a table: lines, types, bad lines."""

from __future__ import annotations

import datetime
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakewake.errors import ConfigError
from lakewake.ingest.convert import BadLines, Converted, Wanted, convert, find_source
from lakewake.ingest.lines import BadLine, Row, csv_type, read_csv, read_json


class Staging:
    """Stage a text, and keep the messages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bad = BadLines()
        self.progress: list[int] = []

    def run(self, name: str, content: str | bytes, **wanted: object) -> Converted:
        data = content.encode() if isinstance(content, str) else content
        (self.folder / name).write_bytes(data)
        return self.read(str(self.folder / name), **wanted)

    def read(self, source: str, **wanted: object) -> Converted:
        out = self.folder / "out"
        out.mkdir(exist_ok=True)
        found = find_source(source)
        return convert(found, Wanted(**wanted), out, self.bad, self.progress.append)  # type: ignore[arg-type]

    @property
    def reasons(self) -> list[tuple[int, str]]:
        return [(b.line, b.reason) for b in self.bad.first]


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging(tmp_path)


def rows(converted: Converted) -> list[dict]:
    return pq.read_table(converted.file).to_pylist()


def test_csv_types_are_the_narrowest_that_keep_every_value(staging: Staging):
    converted = staging.run(
        "a.csv", "i,d,b,z,t,n,big\n1,1,true,007,x,,9223372036854775808\n-2,1.5e3,false,12,,,1\n"
    )
    assert converted.schema == pa.schema(
        [
            ("i", pa.int64()),
            ("d", pa.float64()),
            ("b", pa.bool_()),
            ("z", pa.string()),
            ("t", pa.string()),
            ("n", pa.string()),
            ("big", pa.string()),
        ]
    )
    assert rows(converted)[0] == {
        "i": 1,
        "d": 1.0,
        "b": True,
        "z": "007",
        "t": "x",
        "n": None,
        "big": "9223372036854775808",
    }
    assert (converted.read, converted.rows, sum(staging.progress)) == (2, 2, 2)


@pytest.mark.parametrize("text", ["nan", "inf", "1.", ".5", "+1", "1_000", " 1", "True", "٣"])
def test_a_value_that_only_resembles_a_number_stays_text(text: str):
    assert csv_type(text) == pa.string()


def test_line_numbers_count_the_line_breaks_inside_fields(tmp_path: Path):
    file = tmp_path / "a.csv"
    file.write_bytes(b'\xef\xbb\xbfid,t\r\n1,"x\r\ny\n""z"""\r\n\r\n2\r\n3,c\r\n')
    assert list(read_csv(file)) == [
        Row(2, {"id": "1", "t": 'x\r\ny\n"z"'}),
        BadLine(str(file), 6, "1 fields, expected 2"),
        Row(7, {"id": "3", "t": "c"}),
    ]


def test_a_malformed_csv_line_does_not_affect_the_next(tmp_path: Path):
    file = tmp_path / "a.csv"
    file.write_text('id,t\n1,"a"b\n2,c\n')
    bad, good = read_csv(file)
    assert isinstance(bad, BadLine)
    assert bad.line == 2
    assert good == Row(3, {"id": "2", "t": "c"})


def test_an_unclosed_quote_is_reported_with_the_lines_it_swallowed(tmp_path: Path):
    file = tmp_path / "a.csv"
    file.write_text('id,t\n1,a\n2,"b\n3,c\n4,d\n')
    assert list(read_csv(file))[1] == BadLine(
        str(file), 3, "a quote is never closed: lines 3 to 5 were not read"
    )


def test_only_lines_that_are_not_utf8_are_bad(tmp_path: Path):
    table, lines = tmp_path / "a.csv", tmp_path / "a.jsonl"
    table.write_bytes(b"id,t\n1,\xff\n2,\xc3\xa9\n")
    lines.write_bytes(b'{"id": "\xff"}\n{"id": "\xc3\xa9"}\n')
    assert list(read_csv(table)) == [
        BadLine(str(table), 2, "not UTF-8"),
        Row(3, {"id": "2", "t": "é"}),
    ]
    assert list(read_json(lines)) == [BadLine(str(lines), 1, "not UTF-8"), Row(2, {"id": "é"})]


def test_a_field_of_a_megabyte_and_odd_characters_are_kept(staging: Staging):
    text = "x" * 1_000_000
    converted = staging.run("a.csv", f"id,t\n1,{text}\n2,\x00'🍷\u2028\n")
    assert [r["t"] for r in rows(converted)] == [text, "\x00'🍷\u2028"]


def test_a_column_without_a_name_is_given_one(staging: Staging):
    assert staging.run("a.csv", ",t\n0,a\n").schema.names == ["column_1", "t"]


@pytest.mark.parametrize(
    ("text", "fact"),
    [("", "first line is empty"), ("a,a\n1,2\n", "called 'a'"), ('"a\n', "header line is not CSV")],
)
def test_a_header_that_cannot_be_used_is_refused(staging: Staging, text: str, fact: str):
    with pytest.raises(ConfigError, match=fact):
        staging.run("a.csv", text)


def test_json_keeps_types_nested_values_and_absent_ones(staging: Staging):
    converted = staging.run(
        "a.jsonl",
        '{"id": "1", "n": 1, "v": [1, 0.5], "s": {"a": 1}}\n\n'
        '{"id": "2", "n": 2.5, "s": {"b": "x"}}\n',
    )
    assert rows(converted) == [
        {"id": "1", "n": 1.0, "v": [1.0, 0.5], "s": {"a": 1, "b": None}},
        {"id": "2", "n": 2.5, "v": None, "s": {"a": None, "b": "x"}},
    ]


def test_json_values_of_different_kinds_become_text(staging: Staging):
    lines = '{"x": 1}\n{"x": "a"}\n{"x": [1, 2]}\n{"x": {}}\n{"x": true}\n'
    converted = staging.run("a.jsonl", lines)
    assert [r["x"] for r in rows(converted)] == ["1", "a", "[1, 2]", "{}", "true"]


def test_lines_that_are_not_json_objects_are_bad(tmp_path: Path):
    file = tmp_path / "a.jsonl"
    file.write_text('[1]\n{"a": NaN}\n{"a": \n{"a": "\\ud800"}\n{"a": "\\ud83c\\udf77"}\n')
    *bad, good = read_json(file)
    assert [b.line for b in bad if isinstance(b, BadLine)] == [1, 2, 3, 4]
    assert good == Row(5, {"a": "🍷"})


def test_a_file_without_a_valid_row_has_only_bad_lines(staging: Staging):
    converted = staging.run("a.json", "[\n]\n", filled=("id",))
    assert (converted.read, converted.rows, staging.bad.count) == (2, 0, 2)


def test_a_blank_key_is_a_bad_line(staging: Staging):
    converted = staging.run("a.csv", "id,t\n1,a\n,b\n  ,c\n", filled=("id",))
    assert [r["id"] for r in rows(converted)] == ["1"]
    assert staging.reasons == [(3, "id is empty"), (4, "id is empty")]
    assert (converted.read, converted.rows) == (3, 1)


def test_a_line_that_does_not_fit_a_given_type_is_bad(staging: Staging):
    types = {
        "i": pa.int32(),
        "d": pa.date32(),
        "t": pa.timestamp("us", "UTC"),
        "m": pa.decimal128(10, 2),
        "v": pa.list_(pa.float32()),
        "s": pa.string(),
    }
    converted = staging.run(
        "a.csv",
        "i,d,t,m,v,s\n"
        '1,2024-01-02,2024-01-02 03:04:05,1.25,"[1, 2]",7\n'
        "3000000000,,,,,\n"
        ",2024-13-01,,,,\n"
        ",,noon,,,\n"
        ",,2024-01-02T03:04:05+02:00,,,\n"
        ",,,,[1,\n",
        types=types,
    )
    day = datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    first, second = rows(converted)
    assert first["d"] == day.date()
    assert (first["t"], first["v"], first["s"]) == (day, [1.0, 2.0], "7")
    assert str(first["m"]) == "1.25"
    assert second["t"] == day - datetime.timedelta(hours=2)
    assert [line for line, _ in staging.reasons] == [3, 4, 5, 7]
    assert staging.reasons[0][1] == "i: '3000000000' is not int32"


def test_only_the_first_bad_lines_are_kept_and_all_are_counted_and_written(staging: Staging):
    staging.bad.sink = io.StringIO()
    converted = staging.run("a.csv", "id,t\n" + "1\n" * 50, filled=("id",))
    assert (staging.bad.count, len(staging.bad.first), converted.read) == (50, 20, 50)
    written = [json.loads(line) for line in staging.bad.sink.getvalue().splitlines()]
    assert [b["line"] for b in written] == list(range(2, 52))


def test_an_unknown_column_is_refused_with_the_existing_ones(staging: Staging):
    with pytest.raises(ConfigError) as caught:
        staging.run("a.csv", "a,b\n1,2\n", filled=("id",), present=("part",))
    assert "id, part" in caught.value.fact
    assert "a, b" in caught.value.hint


def test_a_csv_must_have_all_columns_of_the_table_and_json_need_not(staging: Staging):
    wanted = {"types": {"id": pa.string(), "n": pa.int64()}, "complete": True}
    with pytest.raises(ConfigError, match="no column n"):
        staging.run("a.csv", "id\n1\n", **wanted)
    assert rows(staging.run("a.json", '{"id": "1"}\n', **wanted)) == [{"id": "1", "n": None}]


def test_a_file_with_only_a_header_has_columns_and_no_rows(staging: Staging):
    converted = staging.run("a.csv", "id,t\n", filled=("id",))
    assert (converted.schema.names, converted.read, converted.rows) == (["id", "t"], 0, 0)


def test_only_the_requested_columns_are_read(staging: Staging):
    assert rows(staging.run("a.csv", "id,t\n1,a\n", only=("id",))) == [{"id": 1}]


def test_parquet_keeps_types_cuts_nanoseconds_and_names_rows(staging: Staging, tmp_path: Path):
    table = pa.table(
        {
            "id": ["a", None, "c"],
            "at": pa.array([1, 2, 1_001], pa.timestamp("ns")),
            "v": pa.array([[1.0], None, []], pa.list_(pa.float32())),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    converted = staging.read(str(tmp_path / "a.parquet"), filled=("id",))
    assert converted.schema.field("at").type == pa.timestamp("us", "UTC")
    assert converted.schema.field("v").type == pa.list_(pa.float32())
    assert [r["id"] for r in rows(converted)] == ["a", "c"]
    assert rows(converted)[1]["at"].microsecond == 1
    assert staging.reasons == [(2, "id is empty")]


def test_a_file_that_is_not_parquet_is_refused(staging: Staging):
    with pytest.raises(ConfigError, match="cannot be read as Parquet"):
        staging.run("a.parquet", "no")


def test_a_folder_or_a_pattern_means_all_its_files(staging: Staging, tmp_path: Path):
    (tmp_path / "in").mkdir()
    for name in ("b.csv", "a.csv", "_SUCCESS"):
        (tmp_path / "in" / name).write_text(f"id,t\n{name[0]},1\n")
    for source in ("in", "in/*.csv"):
        assert [r["id"] for r in rows(staging.read(str(tmp_path / source)))] == ["a", "b"]


def test_files_with_different_columns_are_refused(staging: Staging, tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("id,t\n1,1\n")
    (tmp_path / "in/b.csv").write_text("id,u\n1,1\n")
    with pytest.raises(ConfigError) as caught:
        staging.read(str(tmp_path / "in"))
    assert "b.csv" in caught.value.fact
    assert "t, u" in caught.value.hint


def test_a_missing_file_and_an_unknown_extension_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="no file of rows"):
        find_source(str(tmp_path / "no.csv"))
    (tmp_path / "a.xlsx").write_text("")
    with pytest.raises(ConfigError, match="do not imply one format"):
        find_source(str(tmp_path / "a.xlsx"))
    assert find_source(str(tmp_path / "a.xlsx"), "csv").format == "csv"
    (tmp_path / "a.json").write_text("")
    with pytest.raises(ConfigError, match="do not imply one format"):
        find_source(str(tmp_path / "a.*"))
