"""A browser for the tests of the page."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from support.page import CHROMIUM


# No longer than this module: while Playwright runs, nothing else in the process can use asyncio.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A new page. At the end, fail if it logged an error or its policy refused something."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda m: faults.append(m.text) if _is_fault(m.type, m.text) else None)
    yield page
    context.close()
    assert not faults


def _is_fault(kind: str, text: str) -> bool:
    # The browser reports refused requests too; their tests check what the page shows.
    return kind in ("error", "warning") and "Failed to load resource" not in text
