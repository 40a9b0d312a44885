"""Questions with known answers, from a file or a folder of BEIR."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakewake.errors import ConfigError
from lakewake.evaluate import read_questions


def written(tmp_path: Path, *lines: object) -> Path:
    file = tmp_path / "queries.jsonl"
    file.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    return file


def test_keys_may_be_a_list_or_have_grades(tmp_path: Path):
    file = written(
        tmp_path,
        {"query": "red", "relevant": ["a", 7]},
        "",
        {"id": "second", "query": "white", "relevant": {"b": 2, "c": 0.5, "d": 0}},
    )
    asked = read_questions(file)
    assert [(q.id, q.text, q.relevant) for q in asked.labelled] == [
        ("1", "red", {"a": 1, "7": 1}),
        ("second", "white", {"b": 2, "c": 0.5, "d": 0}),
    ]
    assert read_questions(file).fingerprint == asked.fingerprint
    file.write_text(file.read_text().replace("white", "rosé"))
    assert read_questions(file).fingerprint != asked.fingerprint


def test_a_folder_of_beir_is_read_as_it_is(tmp_path: Path):
    written(
        tmp_path,
        {"_id": "1", "text": "a question", "metadata": {}},
        {"_id": "2", "text": "nobody judged this", "metadata": {}},
        {"_id": "3", "text": "judged for training", "metadata": {}},
    )
    (tmp_path / "qrels").mkdir()
    head = "query-id\tcorpus-id\tscore\n"
    (tmp_path / "qrels" / "test.tsv").write_text(f"{head}1\td1\t1\n1\td2\t2\n2\td3\t0\n")
    (tmp_path / "qrels" / "train.tsv").write_text(f"{head}3\td1\t1\r\n")
    [one] = read_questions(tmp_path).labelled
    assert (one.id, one.text, one.relevant) == ("1", "a question", {"d1": 1, "d2": 2})
    assert [q.id for q in read_questions(tmp_path, "train").labelled] == ["3"]
    with pytest.raises(ConfigError) as refused:
        read_questions(tmp_path, "dev")
    assert "test, train" in refused.value.hint


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("nonsense", ":1 is not JSON"),
        ("[]", "not a JSON object"),
        ({"query": "red"}, "needs `query`"),
        ({"query": "red", "relevant": []}, "needs `query`"),
        ({"query": "red", "relevant": {"a": 0}}, "needs `query`"),
        ({"query": "red", "relevant": {"a": "much"}}, "needs `query`"),
        ({"query": " ", "relevant": ["a"]}, "needs `query`"),
        ({"query": 7, "relevant": ["a"]}, "needs `query`"),
        ("", "holds no questions"),
    ],
)
def test_lines_without_a_question_are_refused_with_an_example(
    tmp_path: Path, line: object, fact: str
):
    with pytest.raises(ConfigError) as refused:
        read_questions(written(tmp_path, line))
    assert fact in refused.value.fact
    assert '"relevant"' in refused.value.hint


def test_two_questions_with_one_id_a_missing_file_and_odd_judgements_are_refused(tmp_path: Path):
    one = {"id": "x", "query": "red", "relevant": ["a"]}
    with pytest.raises(ConfigError, match="two questions with the id 'x'"):
        read_questions(written(tmp_path, one, one))
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_questions(tmp_path / "nothing.jsonl")
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("1\td1\n")
    with pytest.raises(ConfigError, match=r"test.tsv:1 is not"):
        read_questions(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_questions(tmp_path / "binary")
