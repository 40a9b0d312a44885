"""The tests that the documentation names beside its claims exist."""

from __future__ import annotations

import re

import pytest

from support import ROOT
from support.hudi.histories import HISTORIES

PAGES = sorted(page.name for page in (ROOT / "docs").glob("*.md"))


@pytest.fixture(scope="module")
def there() -> set[str]:
    """The names of all tests."""
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "src/lakewake/testing").glob("*.py")]
    return {name for f in files for name in re.findall(r"def (test_\w+)\(", f.read_text())}


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_exists(page: str, there: set[str]) -> None:
    text = (ROOT / "docs" / page).read_text()
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", text))
    assert sorted(named - there) == []
    for path in re.findall(r"`(tests/[\w/.*]+)`", text):
        assert list(ROOT.glob(path)), path
    for file in re.findall(r"`(test_\w+\.py)`", text):
        assert list((ROOT / "tests").rglob(file)), file


def test_every_history_that_a_page_names_is_played() -> None:
    text = (ROOT / "docs" / "correctness.md").read_text()
    named = re.findall(r"“([^”]+)”", text)
    assert len(named) > 10
    assert sorted(set(named) - HISTORIES.keys()) == []
