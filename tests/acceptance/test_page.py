"""The page in a real browser: Debian's Chromium, headless.

Tests of what a user sees use `served`: any server with the sample's wines as index `wines`, and a
way to change a row. Tests that need a certain moment or a fault use `server`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from playwright.sync_api import Page, expect

from support.chat_service import says, stalls_after, status
from support.page import FIRST, ITS_WORDS, ask, badge, hit, hits, needs_chromium
from support.page_server import Fault, PageServer

pytestmark = needs_chromium


class Served(Protocol):
    """A server with an index `wines` over the sample's wines."""

    @property
    def url(self) -> str:
        """The address of the server."""

    def change(self, key: str, **columns: Any) -> None:
        """Commit a change of one row to the table; the index follows."""

    def stop(self) -> None:
        """Stop the server."""

    def start(self) -> None:
        """Start the server again at the same address."""


@pytest.fixture
def server() -> Iterator[PageServer]:
    server = PageServer()
    yield server
    server.close()


@pytest.fixture
def served(server: PageServer) -> Served:
    return server


def test_results_appear_while_typing(page: Page, served: Served) -> None:
    page.goto(served.url)
    ask(page, ITS_WORDS)
    expect(hit(page, FIRST).locator("h3")).to_contain_text(FIRST)
    expect(hit(page, FIRST).locator("mark")).to_contain_text("crushed lava rock")
    expect(hit(page, FIRST).locator(".score")).to_contain_text(re.compile(r"[01]\.\d{3}"))
    expect(hit(page, FIRST).locator(".payload")).to_contain_text("Italy")
    expect(page.locator("#found-words")).to_contain_text("as of commit")


def test_a_slow_answer_to_an_earlier_query_is_dropped(page: Page, server: PageServer) -> None:
    slow = server.hold("lemon")
    page.goto(server.url)
    box = page.get_by_role("searchbox")
    with page.expect_request("**/search"):
        box.fill("lemon")
    box.fill(ITS_WORDS)
    expect(hits(page).first).to_contain_text(FIRST)
    shown = hits(page).all_inner_texts()
    slow.set()
    page.evaluate("() => fetch('indexes').then((answer) => answer.json())")
    assert hits(page).all_inner_texts() == shown


def test_the_mode_is_sent_with_the_query(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    ask(page, "lemon")
    expect(hits(page).first).to_be_visible()
    page.get_by_label("words", exact=True).check()
    expect(hits(page).first.locator(".score")).to_have_attribute("title", "by words")
    assert server.asked[-1]["mode"] == "keyword"


def test_ticking_a_country_filters_the_results(page: Page, served: Served) -> None:
    page.goto(served.url)
    ask(page, "palate finish")
    expect(hits(page).first).to_be_visible()
    page.locator("[data-column=country] label", has_text="Italy").click()
    expect(page.locator("#filters-title")).to_have_attribute("data-active", "1")
    expect(hits(page).filter(has_not_text="Italy")).to_have_count(0)
    expect(hits(page).first).to_be_visible()


def test_a_price_range_filters_the_results(page: Page, served: Served) -> None:
    page.goto(served.url)
    ask(page, ITS_WORDS)
    expect(hit(page, FIRST)).to_be_visible()
    page.get_by_label("price, at least").fill("22.5")
    expect(hit(page, FIRST)).to_have_count(0)
    page.get_by_label("price, at least").fill("22")
    expect(hit(page, FIRST)).to_be_visible()
    page.get_by_role("button", name="Clear filters").click()
    expect(page.get_by_label("price, at least")).to_have_value("")


def test_several_filters_are_combined(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    ask(page, "palate")
    for country in ("Italy", "France"):
        page.locator("[data-column=country] label", has_text=country).click()
    page.get_by_label("points, at most").fill("95")
    expect(hits(page).first).to_be_visible()
    chosen = {"country": {"in": ["Italy", "France"]}}
    with page.expect_request("**/search"):
        page.get_by_label("points, at most").fill("94")
    expect(page.locator("#hits")).to_have_attribute("aria-busy", "false")
    assert server.asked[-1]["where"] == {"and": [chosen, {"points": {"<=": 94}}]}


def test_a_slider_thumb_sets_its_bound(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    low = page.locator("[data-column=points] .slider input").first
    low.evaluate("(e) => { e.value = 90; e.dispatchEvent(new Event('input')); }")
    expect(page.get_by_label("points, at least")).to_have_value("90")


def test_a_slider_thumb_back_at_its_end_removes_the_filter(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    for column in ("points", "price"):
        high = page.locator(f"[data-column={column}] .slider input").last
        field = page.get_by_label(f"{column}, at most")
        high.evaluate("(e) => { e.stepDown(); e.dispatchEvent(new Event('input')); }")
        expect(field).not_to_have_value("")
        high.evaluate("(e) => { e.value = e.max; e.dispatchEvent(new Event('input')); }")
        expect(field).to_have_value("")


def test_the_page_can_be_used_by_keyboard_alone(page: Page, served: Served) -> None:
    page.goto(served.url)
    expect(badge(page)).to_contain_text("in step")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type(ITS_WORDS)
    expect(hits(page).nth(1)).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(hits(page).first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(hits(page).nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#answer .used button").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("searchbox")).to_have_value("")
    expect(hits(page)).to_have_count(0)


def test_the_focused_element_is_visibly_focused(page: Page, served: Served) -> None:
    page.goto(served.url)
    expect(badge(page)).to_contain_text("in step")
    for _ in range(6):
        page.keyboard.press("Tab")
        width = page.evaluate(
            """() => {
              const focused = document.activeElement;
              const drawn = [focused, focused.nextElementSibling].filter(Boolean);
              return Math.max(...drawn.map((e) => parseFloat(getComputedStyle(e).outlineWidth)));
            }"""
        )
        assert width >= 1, page.evaluate("document.activeElement.outerHTML")


def test_a_changed_row_appears_without_a_reload_and_is_marked_for_a_moment(
    page: Page, served: Served
) -> None:
    page.goto(served.url)
    ask(page, ITS_WORDS)
    expect(hit(page, FIRST)).to_be_visible()
    text = "Wild fennel, crushed lava rock, and now a note of blood orange."
    served.change("wine_0", description=text)
    changed = hit(page, "blood orange")
    expect(changed).to_have_attribute("data-mark", "changed", timeout=20_000)
    expect(changed.locator(".mark")).to_have_text("changed")
    expect(changed.locator("h3")).to_contain_text(FIRST)
    expect(page.locator("#hits [data-mark]")).to_have_count(0, timeout=15_000)


def test_a_new_row_is_marked_and_a_deleted_one_leaves(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    ask(page, ITS_WORDS)
    expect(hit(page, FIRST)).to_be_visible()
    new = {"title": "Nuovo 2025", "country": "Italy", "description": f"Also {ITS_WORDS}."}
    server.change("wine_new", **new)
    expect(hit(page, "Nuovo 2025").locator(".mark")).to_have_text("new here")
    server.delete("wine_0")
    expect(hit(page, FIRST)).to_have_count(0)


def test_the_focus_stays_on_its_row_when_results_are_refreshed(
    page: Page, server: PageServer
) -> None:
    page.goto(server.url)
    ask(page, ITS_WORDS)
    expect(hit(page, FIRST)).to_be_visible()
    page.keyboard.press("ArrowDown")
    server.change("wine_0", price=23.0)
    price = hit(page, FIRST).locator(".payload div", has_text="price")
    expect(price.locator("span")).to_have_text("23")
    expect(price.locator("s")).to_have_text("22")
    expect(hit(page, FIRST)).to_be_focused()


def test_the_badge_shows_in_step_and_the_delay_after_the_commit(page: Page, served: Served) -> None:
    page.goto(served.url)
    words = re.compile(r"in step with commit \d+\s\w{3}\s\d\d:\d\d:\d\d\s\S+, [\d.]+ \w+ after it")
    expect(badge(page)).to_contain_text(words)


def test_a_commit_that_the_index_lacks_is_shown_before_it_is_absorbed(
    page: Page, server: PageServer
) -> None:
    page.goto(server.url)
    expect(page.locator(".commit")).to_have_count(1)
    server.commit("wine_1", price=11.0)
    expect(badge(page)).to_contain_text(re.compile(r"1 commit behind, [\d.]+ s"))
    newest = page.locator(".commit").last
    expect(newest).to_have_attribute("data-state", "pending")
    server.commit("wine_2", price=12.0)
    expect(badge(page)).to_contain_text("2 commits behind")
    server.sync()
    expect(badge(page)).to_contain_text("in step with commit")
    expect(page.locator(".commit[data-state=absorbed]")).to_have_count(3)
    expect(page.locator(".commit").nth(1)).to_have_attribute("data-joined", "after")


def test_the_page_shows_why_an_index_does_not_catch_up(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    expect(badge(page)).to_contain_text("in step")
    server.embedder.failure = "the model's service answered 500"
    server.change("wine_1", description="Another text.")
    expect(page.locator("#trouble")).to_contain_text("the model's service answered 500")


def test_pointing_at_a_commit_shows_what_its_sync_did(page: Page, server: PageServer) -> None:
    server.change("wine_1", price=11.0)
    page.goto(server.url)
    detail = page.locator("#sync")
    expect(detail.locator("[data-figure=reused]")).to_contain_text("1")
    build = page.locator(".commit").first
    build.hover()
    expect(detail).to_contain_text("there is no index yet")
    expect(detail.locator("[data-figure=embedded]")).to_contain_text("60")
    expect(detail.locator("[data-figure=deleted]")).to_contain_text("0")
    expect(detail.locator("[data-figure=total]")).to_contain_text("s")
    page.get_by_role("searchbox").hover()
    expect(detail).to_contain_text("follow")
    build.click()
    page.get_by_role("searchbox").hover()
    page.get_by_role("searchbox").focus()
    expect(build).to_have_attribute("aria-pressed", "true")
    expect(detail).to_contain_text("build")


def test_the_arrow_keys_move_along_the_commits(page: Page, server: PageServer) -> None:
    server.change("wine_1", price=11.0)
    page.goto(server.url)
    expect(page.locator(".commit")).to_have_count(2)
    page.locator(".commit").last.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".commit").first).to_be_focused()
    expect(page.locator("#sync")).to_contain_text("there is no index yet")


def test_without_a_query_the_page_shows_what_to_do_and_the_newest_sync(
    page: Page, served: Served
) -> None:
    page.goto(served.url)
    state = page.locator("#state")
    expect(state).to_contain_text("as you type")
    expect(state).to_contain_text("60 rows of wines")
    expect(state).to_contain_text(re.compile(r"Newest sync .*60 embedded"))


def test_a_query_without_results_shows_a_message(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    page.get_by_label("words", exact=True).check()
    ask(page, "qqqq")
    expect(page.locator("#state")).to_contain_text("No rows found")


def test_without_an_index_the_page_names_the_command_and_notices_the_build(
    page: Page, server: PageServer
) -> None:
    server.lose_the_index()
    page.goto(server.url)
    expect(badge(page)).to_contain_text("no index yet")
    expect(page.locator("#state")).to_contain_text("lakewake sync wines")
    server.sync()
    expect(badge(page)).to_contain_text("in step")
    expect(page.locator("#state")).to_contain_text("60 rows of wines")


def test_an_error_shows_the_servers_fact_and_hint(page: Page, server: PageServer) -> None:
    said = {"error": "the index 'wines' is damaged", "hint": "`lakewake verify wines --repair`"}
    server.fail(Fault("search", 503, said))
    page.goto(server.url)
    ask(page, "lemon")
    alert = page.locator("#state [role=alert]")
    expect(alert).to_contain_text("the index 'wines' is damaged")
    expect(alert).to_contain_text("lakewake verify wines --repair")


def test_a_request_to_a_busy_server_is_repeated_automatically(
    page: Page, server: PageServer
) -> None:
    said = {"error": "too many searches at once", "hint": "ask again in a moment"}
    server.fail(Fault("search", 429, said, {"Retry-After": "1"}))
    page.goto(server.url)
    ask(page, ITS_WORDS)
    expect(page.locator("#state")).to_contain_text("too many searches at once")
    server.fail(None)
    expect(hit(page, FIRST)).to_be_visible()


def test_the_page_notices_when_the_server_stops_and_returns(page: Page, served: Served) -> None:
    page.goto(served.url)
    expect(badge(page)).to_contain_text("in step")
    served.stop()
    expect(page.get_by_text("The server does not answer. Trying again")).to_be_visible(
        timeout=10_000
    )
    expect(badge(page)).to_contain_text("last seen in step")
    ask(page, ITS_WORDS)
    served.start()
    expect(page.get_by_text("The server does not answer. Trying again")).to_be_hidden(
        timeout=30_000
    )
    expect(hit(page, FIRST)).to_be_visible()
    expect(badge(page)).not_to_contain_text("last seen")


def test_a_hidden_page_sends_no_requests(page: Page, server: PageServer) -> None:
    asked: list[str] = []
    page.goto(server.url)
    expect(badge(page)).to_contain_text("in step")
    see = """(hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(see, True)
    with page.expect_response("**/status"):
        page.evaluate("() => void fetch('indexes/wines/status')")
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2_500)
    assert asked == []
    with page.expect_response("**/status"):
        page.evaluate(see, False)


def test_html_in_a_row_is_shown_as_text(page: Page, served: Served) -> None:
    page.goto(served.url)
    markup = '<img src=x onerror="document.title=1"><b>bold fennel</b> <script>1</script>'
    served.change("wine_0", description=f"Wild fennel and crushed lava rock. {markup}")
    ask(page, ITS_WORDS)
    expect(hit(page, FIRST)).to_contain_text(markup, timeout=20_000)
    assert hit(page, FIRST).locator("img, b, script").count() == 0
    assert page.title() == "wines · Lakewake"


def test_a_very_long_text_does_not_fill_the_page(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    endless = f"{ITS_WORDS} " * 5_883
    server.change("wine_0", title="", description=endless)
    ask(page, ITS_WORDS)
    row = hit(page, ITS_WORDS).first
    expect(row.locator("mark")).to_contain_text("crushed lava rock")
    assert row.bounding_box()["height"] < 500
    more = row.get_by_role("button", name="show more, 200,0")
    more.click()
    expect(row.locator(".text")).to_contain_text("rock wild fennel")
    assert len(row.locator(".text").inner_text()) > 199_000
    assert row.bounding_box()["height"] < 1_200
    assert row.locator(".text").evaluate("text => text.scrollHeight > text.clientHeight")
    row.get_by_role("button", name="show less").click()
    expect(row.get_by_role("button", name="show more")).to_have_attribute("aria-expanded", "false")
    assert row.bounding_box()["height"] < 500


def test_a_long_title_is_cut_and_whole_in_its_tooltip(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    title = "A wine with a name that does not end " * 30
    server.change("wine_0", title=title, variety="Blend of many " * 100)
    ask(page, "A wine with a name that does not end")
    row = hit(page, "A wine with a name").first
    name = row.locator("h3 .name span")
    expect(name).to_have_attribute("title", title)
    assert len(name.inner_text()) == 120
    assert name.inner_text().endswith("…")
    value = row.locator(".payload dd span").filter(has_text="Blend of many")
    expect(value).to_have_attribute("title", "Blend of many " * 100)
    assert len(value.inner_text()) <= 160
    assert row.bounding_box()["height"] < 500
    page.keyboard.press("Enter")
    used = page.locator("#answer .used button").filter(has_text="A wine with a name")
    assert len(used.inner_text()) <= 120


def test_values_that_a_filter_does_not_list_are_counted(page: Page, server: PageServer) -> None:
    for n in range(30):
        server.commit(f"wine_{n}", variety=f"Variety {n:02}")
    server.sync()
    page.goto(server.url)
    variety = page.locator("fieldset[data-column=variety]")
    unfold = variety.get_by_role("button")
    expect(unfold).to_contain_text(re.compile(r"^20 of \d\d$"))
    listed, total = map(int, unfold.inner_text().split(" of "))
    unfold.click()
    expect(variety.locator(".tick")).to_have_count(listed)
    expect(variety).to_contain_text(f"and {total - listed} more, less frequent")


def test_more_rows_and_rows_like_one_load_on_demand(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    ask(page, "palate finish nose")
    expect(hits(page)).to_have_count(10)
    page.get_by_role("button", name="More", exact=True).click()
    expect(hits(page)).to_have_count(20)
    expect(hits(page).nth(10)).to_be_focused()
    page.get_by_role("button", name="More like this").first.click()
    expect(page.locator("#like")).to_contain_text("Rows like")
    expect(hits(page)).to_have_count(10)
    assert server.asked[-1]["like"]["partition"] == ""
    page.keyboard.press("Escape")
    expect(page.locator("#like")).to_be_hidden()
    expect(page.get_by_role("searchbox")).to_have_value("palate finish nose")


def test_the_recommendation_names_its_rows_and_its_author(page: Page, server: PageServer) -> None:
    server.recommend_by(says(f"{FIRST} fits [1]."))
    page.goto(server.url)
    ask(page, ITS_WORDS)
    page.get_by_role("button", name="Recommend").click()
    panel = page.locator("#answer")
    expect(panel.locator(".message")).to_contain_text(f"{FIRST} fits")
    expect(panel).to_contain_text("Written by the model")
    panel.locator(".used button", has_text=FIRST).click()
    expect(hit(page, FIRST)).to_be_focused()
    server.change("wine_3", price=9.0)
    expect(panel).to_contain_text("The table has changed since then.")


def test_the_recommendation_is_shown_while_it_is_written(page: Page, server: PageServer) -> None:
    service = server.recommend_by(stalls_after(f"{FIRST} fits [1]."))
    page.goto(server.url)
    ask(page, ITS_WORDS)
    page.keyboard.press("Enter")
    panel = page.locator("#answer")
    expect(panel.locator(".message")).to_contain_text(f"{FIRST} fits")
    expect(panel).to_have_attribute("data-state", "writing")
    expect(panel.locator(".used")).to_have_count(0)
    service.released.set()
    expect(panel.locator(".used button").first).to_be_visible()


def test_a_failed_model_is_shown_with_the_reason(page: Page, server: PageServer) -> None:
    server.recommend_by(status(500))
    page.goto(server.url)
    ask(page, ITS_WORDS)
    page.keyboard.press("Enter")
    expect(page.locator("#answer")).to_contain_text("no model wrote this")
    expect(page.locator("#answer .reason")).to_contain_text("500")


def test_a_key_is_requested_sent_and_forgotten_with_the_tab(
    page: Page, server: PageServer, tmp_path: Path
) -> None:
    key = server.ask_for_a_key(tmp_path / "keys.toml")
    page.goto(server.url)
    box = page.get_by_label("This server needs a key.")
    box.fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_text("That key was not accepted")).to_be_visible()
    page.locator("#key-text").fill(key)
    page.keyboard.press("Enter")
    expect(badge(page)).to_contain_text("in step")
    expect(page.locator("#key")).to_be_hidden()
    stored = page.evaluate("() => [{...sessionStorage}, {...localStorage}]")
    assert stored[0] == {"lakewake-key": key}
    assert key not in str(stored[1])


@pytest.mark.parametrize("width", [320, 390, 768])
def test_a_phone_needs_no_horizontal_scrolling(page: Page, server: PageServer, width: int) -> None:
    for n in range(30):
        server.change(f"wine_{n}", price=float(n))
    long = {"title": "Verylongwordwithoutanyspace" * 6, "country": "x" * 80}
    server.change("wine_40", description=f"{ITS_WORDS} {'y' * 300}", **long)
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(server.url)
    ask(page, ITS_WORDS)
    expect(hits(page).first).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("#answer .used")).to_be_visible()
    page.locator("#filters-fold summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def _brightness(page: Page) -> float:
    rgb = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    return sum(float(n) for n in re.findall(r"[\d.]+", rgb)[:3]) / 3


def test_the_page_follows_the_systems_dark_mode_and_can_be_switched(
    page: Page, served: Served
) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(served.url)
    assert _brightness(page) < 60
    page.get_by_role("button", name="Theme: auto").click()
    assert _brightness(page) > 200
    page.reload()
    assert _brightness(page) > 200
    page.get_by_role("button", name="Theme: light").click()
    page.emulate_media(color_scheme="light")
    assert _brightness(page) < 60


def test_nothing_moves_if_reduced_motion_is_preferred(page: Page, served: Served) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.goto(served.url)
    expect(badge(page)).to_contain_text("in step")
    assert page.evaluate("() => document.getAnimations().length") == 0


def test_the_page_sends_requests_to_its_own_server_only(page: Page, served: Served) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(served.url)
    ask(page, ITS_WORDS)
    expect(hits(page).first).to_be_visible()
    assert asked
    assert all(url.startswith(served.url) for url in asked)


def test_the_query_is_part_of_the_address(page: Page, served: Served) -> None:
    page.goto(served.url)
    ask(page, ITS_WORDS)
    expect(hit(page, FIRST)).to_be_visible()
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(page.get_by_role("searchbox")).to_have_value(ITS_WORDS)
    expect(hit(page, FIRST)).to_be_visible()
