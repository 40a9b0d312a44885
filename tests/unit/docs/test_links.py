"""Links of the documentation lead somewhere; the reference and the site have every page."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

import lakewake
from lakewake.cli import COMMANDS
from lakewake.config.settings import ModelSettings, ServeSettings
from support import ROOT

DOCS = ROOT / "docs"
GENERATE = runpy.run_path(str(DOCS / "generate.py"))
REFERENCE: dict[str, str] = GENERATE["pages"]()
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(DOCS.glob("*.md")),
]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def text_of(page: Path) -> str:
    """The page without its code, which may look like links."""
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def read(page: Path) -> str | None:
    """A page of the documentation, a generated one too; None if there is none."""
    if page.parent == DOCS / "reference":
        return REFERENCE.get(page.name)
    return page.read_text() if page.is_file() else None


def anchors(text: str) -> set[str]:
    """What the headings of a page are called in an address."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", h.replace("`", "").lower()) for h in headings)
    return {re.sub(r"\s", "-", h.strip()) for h in plain}


def fault(page: Path, target: str) -> str:
    """Why a link of a page leads nowhere; '' if it does not."""
    path, _, anchor = target.partition("#")
    there = (page.parent / path).resolve() if path else page
    if there.is_dir() or (there.is_file() and there.suffix != ".md"):
        return ""
    text = read(there)
    if text is None:
        return f"{target}: there is no such file"
    return "" if not anchor or anchor in anchors(text) else f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = [a or b for a, b in LINK.findall(text_of(page))]
    ours = [t for t in targets if not re.match(r"[a-z]+:", t)]
    assert [found for t in ours if (found := fault(page, t))] == []


def test_a_link_that_leads_nowhere_would_be_found() -> None:
    assert fault(DOCS / "config.md", "nowhere.md")
    assert fault(DOCS / "config.md", "search.md#nowhere")
    assert not fault(DOCS / "config.md", "search.md")


@pytest.mark.parametrize("name", REFERENCE)
def test_the_links_of_the_reference_lead_somewhere(name: str) -> None:
    targets = [a or b for a, b in LINK.findall(REFERENCE[name])]
    ours = [t for t in targets if t.endswith(".md")]
    assert [found for t in ours if (found := fault(DOCS / "reference" / name, t))] == []


def test_the_site_has_every_page_once() -> None:
    def pages(entry: Any) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        values = entry.values() if isinstance(entry, dict) else entry
        return [page for value in values for page in pages(value)]

    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    there = {p.name for p in DOCS.glob("*.md")} | {f"reference/{name}" for name in REFERENCE}
    assert sorted(pages(nav)) == sorted(there)


def test_the_reference_has_every_command_setting_name_and_path() -> None:
    for command, _ in COMMANDS:
        assert f"## lakewake {command.__name__}\n" in REFERENCE["commands.md"]
    for name in (*ModelSettings.__dataclass_fields__, *ServeSettings.__dataclass_fields__):
        assert f"| `{name}` |" in REFERENCE["configuration.md"]
    for name in set(lakewake.__all__) - {"__version__"}:
        assert name in REFERENCE["python.md"]
    assert "## POST /indexes/{name}/search" in REFERENCE["http.md"]
    assert "GET /ready" in REFERENCE["http.md"]


def test_the_sources_of_the_site_have_no_link_out_of_it(tmp_path: Path) -> None:
    GENERATE["write"](tmp_path / "site")
    written = sorted(p.name for p in (tmp_path / "site").rglob("*.md"))
    assert len(written) == len(list(DOCS.glob("*.md"))) + len(REFERENCE)
    assert not [p for p in (tmp_path / "site").glob("*.md") if "](../" in p.read_text()]
