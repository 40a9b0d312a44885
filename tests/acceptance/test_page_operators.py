"""The page of operators in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from support.page import (
    dialogs_of,
    faint_texts,
    foreign_markup,
    needs_chromium,
    scope_to_admin,
    small_targets,
)
from support.page_server import PageServer

pytestmark = needs_chromium

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture
def server() -> Iterator[PageServer]:
    server = PageServer()
    yield server
    server.close()


def visit(page: Page, server: PageServer) -> None:
    page.goto(f"{server.url}operators")


def refuse(server: PageServer, key: str = "wine_1", reason: str = "too odd") -> None:
    server.embedder.refused, server.embedder.reason = "unspeakable", reason
    server.change(key, description="unspeakable")


def test_it_shows_the_indexes_their_syncs_and_their_models(page: Page, server: PageServer) -> None:
    server.change("wine_1", price=11.0)
    visit(page, server)
    row = page.locator("#indexes tbody tr")
    expect(row).to_contain_text(re.compile(r"wines.*in step.*60", re.S))
    expect(page.locator("#section-charts .chart")).to_have_count(3)
    expect(page.locator("#section-charts .chart").first.locator("g.bar")).to_have_count(2)
    table = page.locator("#section-charts table tbody tr")
    expect(table).to_have_count(2)
    expect(table.first).to_contain_text("follow")
    expect(table.last).to_contain_text("there is no index yet")
    expect(page.locator("#section-plan")).to_contain_text("The next sync nothing")
    expect(page.locator("#section-quarantine")).to_contain_text("Every row could be embedded")
    expect(page.locator("#section-models")).to_contain_text("hashing")


def test_it_follows_what_happens(page: Page, server: PageServer) -> None:
    visit(page, server)
    expect(page.locator("#section-charts table tbody tr")).to_have_count(1)
    server.commit("wine_1", price=11.0)
    expect(page.locator("#indexes")).to_contain_text("1 commit behind", timeout=10_000)
    expect(page.locator("#section-plan")).to_contain_text("1 commit to absorb")
    server.embedder.failure = "the model's service answered 500"
    server.change("wine_2", description="Another text.")
    table = page.locator("#section-charts table tbody tr")
    expect(table.first).to_contain_text("the model's service answered 500", timeout=10_000)
    expect(page.locator("#section-charts g.wrong")).to_have_count(3)


def test_without_an_admin_key_it_is_read_only(page: Page, server: PageServer) -> None:
    visit(page, server)
    expect(page.locator("#rights")).to_contain_text("Read only")
    expect(page.get_by_role("button", name="Sync now")).to_have_count(0)


def test_an_admin_asks_for_a_sync_and_sees_it_done(
    page: Page, server: PageServer, tmp_path: Path
) -> None:
    key = server.ask_for_a_key(tmp_path / "keys.json", "admin")
    visit(page, server)
    page.locator("#key-text").fill(key)
    page.keyboard.press("Enter")
    sync = page.get_by_role("button", name="Sync now")
    expect(sync).to_be_visible()
    expect(page.locator("#rights")).to_be_hidden()
    server.commit("wine_1", price=11.0)
    sync.click()
    job = page.locator("#section-jobs li").first
    expect(job).to_contain_text("waits for the syncing process")
    expect(job).to_contain_text("key reader")
    server.attend()
    expect(job).to_contain_text("follow: 0 embedded, 1 reused", timeout=10_000)
    expect(page.locator("#indexes")).to_contain_text("in step")
    page.get_by_role("button", name="Verify").click()
    expect(page.locator("#section-jobs li")).to_have_count(2)
    server.attend()
    expect(job).to_contain_text("agrees with its table: 60 rows", timeout=10_000)
    job.get_by_text("The whole report").click()
    expect(job.locator(".facts")).to_contain_text("vectors checked")


def test_quarantined_rows_are_listed_and_tried_again(
    page: Page, server: PageServer, tmp_path: Path
) -> None:
    refuse(server)
    key = server.ask_for_a_key(tmp_path / "keys.json", "admin")
    visit(page, server)
    page.locator("#key-text").fill(key)
    page.keyboard.press("Enter")
    section = page.locator("#section-quarantine")
    expect(section.locator("tbody tr")).to_contain_text(re.compile("wine_1.*too odd", re.S))
    server.embedder.refused = ""
    page.get_by_role("button", name="Retry quarantine").click()
    expect(page.locator("#section-jobs li")).to_have_count(1)
    server.attend()
    expect(section).to_contain_text("Every row could be embedded", timeout=10_000)
    expect(page.get_by_role("button", name="Retry quarantine")).to_be_disabled()


def test_a_read_key_sees_everything_and_may_ask_for_nothing(
    page: Page, server: PageServer, tmp_path: Path
) -> None:
    key = server.ask_for_a_key(tmp_path / "keys.json")
    visit(page, server)
    page.locator("#key-text").fill(key)
    page.keyboard.press("Enter")
    expect(page.locator("#section-charts table tbody tr")).to_have_count(1)
    expect(page.locator("#rights")).to_contain_text("Read only")
    expect(page.get_by_role("button", name="Sync now")).to_have_count(0)


def test_a_key_for_some_rows_sees_no_figures_of_the_others(
    page: Page, server: PageServer, tmp_path: Path
) -> None:
    refuse(server)
    few = server.ask_for_a_key(tmp_path / "keys.json", where="country = 'Italy'")
    visit(page, server)
    page.locator("#key-text").fill(few)
    page.keyboard.press("Enter")
    expect(page.locator("#rights")).to_contain_text("may see some of the rows only")
    expect(page.locator("#detail")).to_be_empty()
    expect(page.locator("#indexes tbody")).to_contain_text("8")
    for figure in ("59", "60", "wine_1", "too odd"):
        expect(page.locator("main")).not_to_contain_text(figure)


def test_hostile_texts_are_shown_as_text(page: Page, server: PageServer, tmp_path: Path) -> None:
    dialogs = dialogs_of(page)
    refuse(server, HOSTILE, f"{HOSTILE} is odd")
    server.embedder.refused = ""
    server.embedder.failure = f"{HOSTILE} failed"
    server.change("wine_2", description="Another text.")
    key = server.ask_for_a_key(tmp_path / "keys.json", "admin")
    visit(page, server)
    page.locator("#key-text").fill(key)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Sync now").click()
    expect(page.locator("#section-jobs li")).to_have_count(1)
    server.attend()
    expect(page.locator("#section-jobs .wrong").last).to_contain_text(HOSTILE, timeout=10_000)
    expect(page.locator("#section-quarantine")).to_contain_text(f"{HOSTILE} is odd")
    expect(page.locator("#section-charts table")).to_contain_text(f"{HOSTILE} failed")
    assert foreign_markup(page) == []
    assert dialogs == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(page: Page, server: PageServer, scheme: str) -> None:
    refuse(server)
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    visit(page, server)
    expect(page.locator("#section-models")).to_be_visible()
    assert faint_texts(page) == []


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_it_fits_a_phone_and_a_finger(page: Page, server: PageServer, width: int) -> None:
    refuse(server, "averyveryverylongkeywithoutanyspace" * 4, "x" * 300)
    page.set_viewport_size({"width": width, "height": 844})
    visit(page, server)
    expect(page.locator("#section-models")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert small_targets(page) == []


def test_it_can_be_used_by_keyboard_alone(page: Page, server: PageServer) -> None:
    visit(page, server)
    expect(page.locator("#section-models")).to_be_visible()
    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.trim()"))
        width = page.evaluate(
            "() => parseFloat(getComputedStyle(document.activeElement).outlineWidth)"
        )
        assert width >= 1
    assert {"Search", "wines", "Enter a key"} <= set(reached)
    page.get_by_role("button", name="Enter a key").press("Enter")
    expect(page.locator("#key-text")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#key")).to_be_hidden()


def test_the_pages_lead_to_each_other_and_keep_the_index(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    page.get_by_role("link", name="Operators").click()
    expect(page.locator("#detail h1")).to_have_text("wines")
    page.get_by_role("link", name="Search").click()
    expect(page.locator("#state")).to_contain_text("60 rows of wines")
    assert "index=wines" in page.url


def test_a_key_that_is_not_accepted_is_asked_for_again(
    page: Page, server: PageServer, tmp_path: Path
) -> None:
    server.ask_for_a_key(tmp_path / "keys.json")
    visit(page, server)
    page.locator("#key-text").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_text("That key was not accepted")).to_be_visible()


def test_another_key_can_be_entered(page: Page, server: PageServer, tmp_path: Path) -> None:
    read = server.ask_for_a_key(tmp_path / "keys.json")
    visit(page, server)
    page.locator("#key-text").fill(read)
    page.keyboard.press("Enter")
    expect(page.locator("#rights")).to_contain_text("Read only")
    admin = server.ask_for_a_key(tmp_path / "more.json", "admin")
    scope_to_admin(page, admin)
    expect(page.get_by_role("button", name="Sync now")).to_be_visible()
