"""The layout that a newcomer sees: few loose modules, the flow on one screen."""

from __future__ import annotations

import re
from pathlib import Path

import lakewake
import mutants
from support import ROOT

SOURCES = Path(lakewake.__file__).parent


def test_at_most_eight_modules_are_loose_at_the_top() -> None:
    assert len(list(SOURCES.glob("*.py"))) <= 8


def test_the_flow_fits_on_one_screen() -> None:
    assert len((SOURCES / "sync" / "__init__.py").read_text().splitlines()) <= 120


def test_the_architecture_names_every_folder_and_no_other() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    table = page[page.index("## Folders") : page.index("## States")]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)/`", _first(row))}
    folders = {p.parent.name for p in SOURCES.glob("*/__init__.py")}
    assert named == folders


def test_the_architecture_names_every_loose_module_and_no_other() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    table = page[page.index("## Folders") : page.index("## States")]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+\.py)`", _first(row))}
    assert named == {p.name for p in SOURCES.glob("*.py")}


def test_every_word_of_the_glossary_is_in_the_code() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    code = "\n".join(p.read_text() for p in SOURCES.rglob("*.py"))
    named = re.findall(r"`([A-Za-z_]\w+)(?:\.\w+)?`", glossary)
    missing = {n for n in named if not re.search(rf"\b{n}\b", code)}
    assert named
    assert not missing


def _first(row: str) -> str:
    """The first cell of a row of a Markdown table."""
    return row.split("|")[1] if row.startswith("| `") else ""


TEST_FILES = sorted((ROOT / "tests").rglob("*.py"))


def test_no_test_changes_where_python_looks_for_modules() -> None:
    changed = "sys.path" + "."
    assert [p for p in TEST_FILES if changed in p.read_text()] == []


def test_no_test_imports_a_test() -> None:
    imported = re.compile(r"^\s*(from|import) (\S+\.)?(test_\w+|conftest)\b", re.MULTILINE)
    assert [p for p in TEST_FILES if imported.search(p.read_text())] == []


def test_every_mutation_fits_the_sources_and_names_tests_that_exist() -> None:
    for mutant in mutants.MUTANTS:
        source = (SOURCES / mutant.file).read_text()
        assert source.count(mutant.old) == 1, mutant.breaks
        assert (ROOT / mutant.tests[0]).exists(), mutant.breaks
