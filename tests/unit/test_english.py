"""Phrases that read as translated do not come back.

The list holds only phrases that have a plainer form. A line that needs one all the same ends with
`english: ok` in a comment.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: What a phrase is → what to write instead.
PHRASES = {
    r"\banew\b": "again",
    r"\bso many\b": "this many, N",
    # "There is no index" is fine; "this is no index" is not.
    r"(?<!there )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|one\b)\w": "is not a",
    r"\bforbids? to\b": "forbids, or what was passed",
    r"\bwhoever\b": "the caller, anyone who",
    r"\bof which\b": "whose, or two sentences",
    r"\bdo(?:es)? not belong into\b": "do not belong in",
    r"\b(?:is|are|was|were) told\b": "is reported, is recorded, is known",
    r"\blonger than none\b": "greater than zero",
    r"\bin any case, or in none\b": "always, or never",
    r"\bfaster a row\b": "faster per row",
}
WORDS = re.compile("|".join(f"(?:{phrase})" for phrase in PHRASES), re.IGNORECASE)
ALLOWED = "english: ok"
#: Files that still hold such phrases, one a line. Rewrite one, then remove it there.
#: `python tests/unit/test_english.py` prints the list as it should be.
PENDING = Path(__file__).with_name("english_pending.txt")


def files() -> list[str]:
    """The texts of the project that people read."""
    found = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "src").rglob("*.html"),
        *(ROOT / "src").rglob("*.js"),
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "bench").rglob("*.py"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("*.md"),
    ]
    own = Path(__file__)
    return sorted(f.relative_to(ROOT).as_posix() for f in found if f != own)


def stumbles(text: str) -> list[str]:
    """`line: phrase` for each phrase in a text; a name reads like its words."""
    return [
        f"{n}: {found[0]}"
        for n, line in enumerate(text.splitlines(), 1)
        if ALLOWED not in line
        for found in WORDS.finditer(line.replace("_", " "))
    ]


def stumbling() -> dict[str, list[str]]:
    """The files that hold such phrases."""
    found = {file: stumbles((ROOT / file).read_text(encoding="utf-8")) for file in files()}
    return {file: lines for file, lines in found.items() if lines}


def pending() -> set[str]:
    return set(PENDING.read_text(encoding="utf-8").split())


def test_no_translated_phrase_comes_back() -> None:
    assert {file: lines for file, lines in stumbling().items() if file not in pending()} == {}


def test_a_file_that_has_become_clean_is_removed_from_the_list() -> None:
    assert pending() - stumbling().keys() == set()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("the index is built anew", ["1: anew"]),
        ("a Row that is no row", ["1: is no r"]),
        ("There is no row", []),
        ("it is no longer a row", []),
        ("def test_nothing_is_told(): ...", ["1: is told"]),
        ("it is told  # english: ok", []),
    ],
)
def test_the_lint_finds_phrases(line: str, found: list[str]) -> None:
    assert stumbles(line) == found


if __name__ == "__main__":
    print("\n".join(sorted(stumbling())))
