"""Reads questions with known answers: a JSON Lines file, or a folder in BEIR's format."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lakewake.errors import ConfigError
from lakewake.model.evaluation import Labelled, Questions

LINE = '{"query": "warm jacket", "relevant": ["p-1042", "p-7"]}'
#: Which of BEIR's sets of judgements is read.
SPLIT = "test"


def read_questions(path: str | Path, split: str = SPLIT) -> Questions:
    """The questions of a file, one JSON object per line; or of a folder of BEIR.

    Args:
        split: of a folder: which file of `qrels` holds the answers.

    Raises:
        ConfigError: it cannot be read, or is not of this kind.
    """
    path = Path(path)
    try:
        found = tuple(_of_folder(path, split) if path.is_dir() else _of_file(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(
            f"{path} cannot be read: {reason}", hint=f"each line is like this: {LINE}"
        ) from error
    if not found:
        raise ConfigError(f"{path} holds no questions", hint=f"each line is like this: {LINE}")
    _check_ids(path, found)
    return Questions(str(path), found, _fingerprint(found))


def _of_file(path: Path) -> Iterator[Labelled]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _labelled(f"{path}:{number}", line, str(number))


def _labelled(where: str, line: str, id: str) -> Labelled:
    value = _object(where, line)
    text, relevant = value.get("query"), _graded(value.get("relevant"))
    if not isinstance(text, str) or not text.strip() or not relevant:
        raise ConfigError(
            f"{where}: a question needs `query` and at least one key in `relevant`",
            hint=f"write it like this: {LINE}",
        )
    return Labelled(str(value.get("id", id)), text, relevant)


def _graded(relevant: Any) -> dict[str, float]:
    """Key → grade; a list grades all its keys with 1."""
    if isinstance(relevant, list):
        relevant = dict.fromkeys(map(str, relevant), 1)
    if not isinstance(relevant, dict):
        return {}
    grades = {k: float(v) for k, v in relevant.items() if type(v) in (int, float)}
    return grades if len(grades) == len(relevant) and max(grades.values(), default=0) > 0 else {}


def _object(where: str, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ConfigError(
            f"{where} is not JSON: {error}", hint=f"write it like this: {LINE}"
        ) from error
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is not a JSON object", hint=f"write it like this: {LINE}")
    return value


def _of_folder(folder: Path, split: str) -> Iterator[Labelled]:
    """The questions of `queries.jsonl` that have an answer in `qrels/SPLIT.tsv`."""
    judged = folder / "qrels" / f"{split}.tsv"
    if not judged.is_file():
        there = sorted(p.stem for p in (folder / "qrels").glob("*.tsv"))
        hint = f"pass --split with one of: {', '.join(there)}" if there else "pass a folder of BEIR"
        raise ConfigError(f"{folder} has no qrels/{split}.tsv", hint=hint)
    relevant = _judgements(judged)
    with (folder / "queries.jsonl").open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            value = _object(f"{folder / 'queries.jsonl'}:{number}", line) if line.strip() else {}
            grades = relevant.get(str(value.get("_id")), {})
            if max(grades.values(), default=0) > 0:
                yield Labelled(str(value["_id"]), str(value["text"]), grades)


def _judgements(path: Path) -> Mapping[str, dict[str, float]]:
    """Question → key → grade."""
    out: dict[str, dict[str, float]] = {}
    with path.open(encoding="utf-8-sig", newline="") as lines:
        for number, row in enumerate(csv.reader(lines, delimiter="\t"), start=1):
            try:
                question, key, grade = row
                # The first line names the columns.
                if number > 1 or grade != "score":
                    out.setdefault(question, {})[key] = float(grade)
            except ValueError as error:
                raise ConfigError(
                    f"{path}:{number} is not `question<TAB>key<TAB>grade`",
                    hint="use the qrels of BEIR as they are",
                ) from error
    return out


def _check_ids(path: Path, labelled: tuple[Labelled, ...]) -> None:
    seen: set[str] = set()
    for one in labelled:
        if one.id in seen:
            raise ConfigError(
                f"{path} has two questions with the id {one.id!r}", hint="give each its own `id`"
            )
        seen.add(one.id)


def _fingerprint(labelled: tuple[Labelled, ...]) -> str:
    content = json.dumps([[q.id, q.text, sorted(q.relevant.items())] for q in labelled])
    return hashlib.sha256(content.encode()).hexdigest()
