"""The page in a real browser, and the actions of a user."""

from __future__ import annotations

import shutil

import pytest
from playwright.sync_api import Locator, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine: `apt-get install chromium`"
)

#: The first wine, which is the same in every sample.
FIRST = "Casa dell'Airone 2014 Costa del Falco White Blend (Etna)"
ITS_WORDS = "wild fennel and crushed lava rock"


def ask(page: Page, text: str) -> None:
    """Type a query, and wait until all of it was sent and answered."""
    page.get_by_role("searchbox").press_sequentially(text, delay=5)
    page.wait_for_function(
        """(text) => new URLSearchParams(location.hash.slice(1)).get("q") === text
            && document.getElementById("hits").ariaBusy === "false\"""",
        arg=text,
    )


def hits(page: Page) -> Locator:
    return page.locator("#hits > li")


def hit(page: Page, words: str) -> Locator:
    return hits(page).filter(has_text=words)


def badge(page: Page) -> Locator:
    return page.locator("#badge")
