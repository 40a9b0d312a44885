"""What a reader of the page sees, and where it leads. Hostile texts do nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from playwright.sync_api import Locator, Page, expect

from support.chat_service import says
from support.page import (
    FIRST,
    ITS_WORDS,
    ask,
    badge,
    dialogs_of,
    faint_texts,
    foreign_markup,
    hit,
    hits,
    needs_chromium,
    small_targets,
)
from support.page_server import PageServer

pytestmark = needs_chromium

PHONE = {"width": 390, "height": 844}
HOSTILE = (
    "<img src=x onerror=alert(1)><script>alert(2)</script>\"'`&{{7*7}}[x](javascript:alert(3))"
)


@pytest.fixture
def server() -> Iterator[PageServer]:
    server = PageServer()
    yield server
    server.close()


def top(locator: Locator) -> float:
    box = locator.bounding_box()
    assert box is not None
    return box["y"]


def test_the_strip_folds_into_its_badge_after_the_first_question(
    page: Page, server: PageServer
) -> None:
    page.goto(server.url)
    expect(page.locator("#lake")).to_be_visible()
    ask(page, ITS_WORDS)
    expect(page.locator("#lake")).to_be_hidden()
    expect(badge(page)).to_contain_text("in step")
    assert top(hits(page).first) < 300
    fold = badge(page).get_by_role("button")
    expect(fold).to_have_attribute("aria-expanded", "false")
    fold.press("Enter")
    expect(page.locator("#lake")).to_be_visible()
    expect(fold).to_have_attribute("aria-expanded", "true")
    page.get_by_role("searchbox").press_sequentially(" smoke")
    expect(page.locator("#found-words")).to_contain_text("rows")
    expect(page.locator("#lake")).to_be_visible()


def test_starting_over_unfolds_the_strip(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    ask(page, ITS_WORDS)
    expect(page.locator("#lake")).to_be_hidden()
    page.get_by_role("button", name="Clear the question").click()
    expect(page.get_by_role("searchbox")).to_have_value("")
    expect(page.get_by_role("searchbox")).to_be_focused()
    expect(page.locator("#lake")).to_be_visible()
    expect(hits(page)).to_have_count(0)
    expect(page.get_by_role("button", name="Clear the question")).to_be_hidden()


def test_on_a_phone_the_results_come_before_the_answer(page: Page, server: PageServer) -> None:
    server.recommend_by(says("A long answer [1]. " * 60))
    page.set_viewport_size(PHONE)
    page.goto(server.url)
    ask(page, ITS_WORDS)
    expect(hits(page).first).to_be_visible()
    page.locator("#recommend").click()
    expect(page.locator("#answer .used")).to_be_attached()
    last = hits(page).last
    assert top(page.locator("#answer")) > top(last) > top(hits(page).first)
    assert top(hits(page).first) < PHONE["height"] * 0.6
    preview = page.get_by_role("button", name="Recommendation A long answer")
    preview.click()
    expect(page.locator("#answer-title")).to_be_in_viewport()
    expect(page.locator("#answer-title")).to_be_focused()


def test_a_citation_is_a_link_to_its_hit(page: Page, server: PageServer) -> None:
    server.recommend_by(says("The first [1], the next [2, 3], another [9] and [wine_0]."))
    page.goto(server.url)
    ask(page, ITS_WORDS)
    expect(hits(page).nth(2)).to_be_visible()
    page.keyboard.press("Enter")
    message = page.locator("#answer .message")
    expect(message.get_by_role("link")).to_have_count(4)
    message.get_by_role("link", name="row 3").click()
    expect(hits(page).nth(2)).to_be_focused()
    message.get_by_role("link", name="row wine_0").press("Enter")
    expect(hit(page, FIRST)).to_be_focused()
    expect(message).to_contain_text("[9]")
    numbers = page.locator("#answer .used li").evaluate_all(
        "rows => rows.map(r => r.dataset.number)"
    )
    assert numbers[:3] == ["1", "2", "3"]


def test_a_cited_row_that_is_not_in_the_list_is_shown_beside_the_answer(
    page: Page, server: PageServer
) -> None:
    server.recommend_by(says("The first [1]."))
    page.goto(server.url)
    ask(page, ITS_WORDS)
    expect(hits(page).first).to_be_visible()
    page.keyboard.press("Enter")
    link = page.locator("#answer .message").get_by_role("link")
    expect(link).to_be_visible()
    page.locator("[data-column=country] label", has_text="Spain").click()
    expect(hit(page, FIRST)).to_have_count(0)
    link.click()
    expect(page.locator("#answer .used p")).to_contain_text("lava rock")


def test_the_models_markdown_is_formatted(page: Page, server: PageServer) -> None:
    written = (
        "# Two wines\n\n**Bold** and *slanted* [1]\n\n- one\n- two\n\n1. first\n\n`code` row_id_x"
    )
    server.recommend_by(says(written))
    page.goto(server.url)
    ask(page, ITS_WORDS)
    page.keyboard.press("Enter")
    message = page.locator("#answer .message")
    expect(message.locator(".heading")).to_have_text("Two wines")
    expect(message.locator("strong")).to_have_text("Bold")
    expect(message.locator("em")).to_have_text("slanted")
    expect(message.locator("ul li")).to_have_text(["one", "two"])
    expect(message.locator("ol li")).to_have_text("first")
    expect(message.locator("code")).to_have_text("code")
    expect(message).to_contain_text("row_id_x")


PIECES = st.sampled_from(
    [
        *("*", "**", "_", "__", "`", "```\n", "\n", "\n\n", "- ", "1. ", "# ", "> ", "---\n", "\\"),
        *("[1]", "[", "](javascript:alert(1))", "![x](http://evil/x.png)", "<b>", "</p>", "~~~\n"),
        *(
            "<script>alert(1)</script>",
            "<img src=x onerror=alert(1)>",
            "&lt;",
            "&#60;",
            "word",
            " ",
        ),
        *("<a href='javascript:1'>", "https://evil.example/", "\u202e", "\x00", "[1](http://e)"),
    ]
)
WRITTEN = st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=25).map("".join)


def test_no_markdown_makes_anything_but_text_and_a_few_plain_elements(
    page: Page, server: PageServer
) -> None:
    page.goto(server.url)
    page.evaluate("async () => { window.md = (await import('./page/markdown.js')).markdown; }")

    @settings(
        max_examples=150,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(WRITTEN, min_size=8, max_size=8))
    def write(texts: list[str]) -> None:
        seen = page.evaluate(
            """(texts) => texts.map((text) => {
              const all = document.createElement("div");
              all.append(...window.md(text));
              document.body.append(all);
              const inside = [...all.querySelectorAll("*")];
              all.remove();
              return {
                tags: inside.map((e) => e.tagName),
                attributes: inside.flatMap((e) => [...e.attributes].map((a) => a.name)),
                text: all.textContent,
              };
            })""",
            texts,
        )
        for text, one in zip(texts, seen, strict=True):
            allowed = {"P", "UL", "OL", "LI", "PRE", "CODE", "STRONG", "EM", "BLOCKQUOTE", "HR"}
            assert set(one["tags"]) <= allowed, text
            assert set(one["attributes"]) <= {"class", "tabindex", "start"}, text
            # Nothing is made up: the words of the text are those of the message.
            assert _letters(one["text"]) == _letters(text) or "```" in text or "~~~" in text

    write()


def _letters(text: str) -> str:
    without_lists = re.sub(r"(?m)^\s*\d{1,6}[.)] +(?=\S)", "", text.replace("\r\n", "\n"))
    return "".join(c for c in without_lists if c.isalpha())


def test_long_markdown_is_formatted_in_time(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    took = page.evaluate(
        """async () => {
          const { markdown } = await import("./page/markdown.js");
          const began = performance.now();
          for (const one of ["*a ", "**a", "_a_", "`", "[1](", "> *", "- **x\\n", "*_", "*a **b"])
            markdown(one.repeat(50_000));
          return performance.now() - began;
        }"""
    )
    assert took < 5_000


def test_the_notice_about_a_missing_model_is_for_operators(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    ask(page, ITS_WORDS)
    page.keyboard.press("Enter")
    expect(page.locator("#answer .used button").first).to_be_visible()
    expect(page.locator("#answer")).not_to_contain_text("language model is configured")
    page.goto(f"{server.url}operators")
    expect(page.locator("#section-models")).to_contain_text("no language model is configured")


def count_of(page: Page, column: str, value: str) -> Locator:
    return page.locator(f"[data-column={column}] label", has_text=value).locator(".count")


def test_facet_counts_follow_the_question_and_the_other_filters(
    page: Page, server: PageServer
) -> None:
    page.goto(server.url)
    everywhere = int(count_of(page, "country", "US").inner_text())
    page.get_by_label("words", exact=True).check()
    ask(page, "leather")
    expect(count_of(page, "country", "US")).not_to_have_text(str(everywhere))
    found = int(count_of(page, "country", "US").inner_text())
    assert 0 < found < everywhere
    page.locator("[data-column=country] label", has_text="US").click()
    expect(hits(page)).to_have_count(min(found, 10))
    # Its own column keeps its counts, so that a second country can be chosen.
    expect(page.locator("[data-column=country] label")).not_to_have_count(1)
    page.wait_for_function(
        """(found) => [...document.querySelectorAll("[data-column=variety] .count")]
            .reduce((sum, count) => sum + Number(count.textContent), 0) === found""",
        arg=found,
    )


def test_filters_are_chips_and_part_of_the_address(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    ask(page, "palate finish")
    page.locator("[data-column=country] label", has_text="Italy").click()
    expect(hits(page).filter(has_not_text="Italy")).to_have_count(0)
    with page.expect_response("**/search"):
        page.get_by_label("price, at least").fill("15")
    chips = page.locator("#chips .chip")
    expect(chips).to_have_count(2)
    expect(chips.first).to_contain_text("Italy")
    expect(chips.last).to_contain_text("at least 15")
    expect(page.locator("#hits")).to_have_attribute("aria-busy", "false")
    shown = hits(page).count()
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(chips).to_have_count(2)
    expect(page.get_by_label("price, at least")).to_have_value("15")
    expect(hits(page)).to_have_count(shown)
    where = {"and": [{"country": "Italy"}, {"price": {">=": 15}}]}
    assert server.asked[-1]["where"] == where
    page.get_by_role("button", name="Remove the filter country: Italy").click()
    expect(chips).to_have_count(1)
    expect(page.locator("[data-column=country] input:checked")).to_have_count(0)
    page.get_by_role("button", name="Remove the filter price: at least 15").click()
    expect(page.locator("#chips")).to_be_hidden()
    assert "filters" not in page.url


KEPT = st.one_of(
    st.text(max_size=20),
    st.dictionaries(
        st.sampled_from(["country", "price", "points", "__proto__", "nowhere", "title"]),
        st.one_of(
            st.none(),
            st.integers(),
            st.text(max_size=5),
            st.lists(st.one_of(st.none(), st.booleans(), st.text(max_size=5)), max_size=3),
            st.dictionaries(st.sampled_from(["low", "high"]), st.text(max_size=5), max_size=2),
        ),
        max_size=4,
    ).map(json.dumps),
)


def test_no_address_breaks_the_page_or_asks_a_wrong_question(
    page: Page, server: PageServer
) -> None:
    statuses: list[int] = []
    page.on("response", lambda answer: statuses.append(answer.status))

    @settings(
        max_examples=12,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(KEPT)
    def visit(kept: str) -> None:
        page.goto("about:blank")
        page.goto(f"{server.url}#index=wines&q=palate&filters={quote(kept)}")
        expect(page.locator("#hits")).to_have_attribute("aria-busy", "false")
        expect(badge(page)).to_contain_text("in step")
        assert foreign_markup(page) == []

    visit()
    assert set(statuses) <= {200, 304}


@pytest.mark.parametrize("size", [{"width": 1280, "height": 900}, PHONE], ids=["wide", "phone"])
def test_everything_that_can_be_touched_is_large_enough(
    page: Page, server: PageServer, size: dict[str, int]
) -> None:
    server.recommend_by(says("One [1], two [2]."))
    page.set_viewport_size(size)  # type: ignore[arg-type]
    page.goto(server.url)
    expect(page.locator("#state .example")).to_be_visible()
    assert small_targets(page) == []
    ask(page, ITS_WORDS)
    page.locator("#recommend").click()
    expect(page.locator("#answer .cite").first).to_be_visible()
    if size == PHONE:
        page.locator("#filters-fold summary").click()
    page.locator("[data-column=country] label", has_text="Italy").click()
    expect(page.locator("#chips .chip")).to_be_visible()
    assert small_targets(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(page: Page, server: PageServer, scheme: str) -> None:
    server.recommend_by(says("# One\n\n> quoted\n\n[1] `code`"))
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    page.goto(server.url)
    expect(page.locator("#state .example")).to_be_visible()
    assert faint_texts(page) == []
    ask(page, ITS_WORDS)
    page.locator("[data-column=country] label", has_text="Italy").click()
    page.locator("#recommend").click()
    expect(page.locator("#answer .cite").first).to_be_visible()
    expect(page.locator("#hits")).to_have_attribute("aria-busy", "false")
    assert faint_texts(page) == []


def test_the_page_searches_by_meaning_and_words_unless_told_otherwise(
    page: Page, server: PageServer
) -> None:
    page.goto(server.url)
    assert page.locator("#modes label").all_inner_texts() == ["meaning", "words", "both"]
    ask(page, "lemon")
    assert server.asked[-1]["mode"] == "hybrid"
    page.get_by_label("meaning", exact=True).check()
    expect(page.locator("#hits")).to_have_attribute("aria-busy", "false")
    page.wait_for_function("() => location.hash.includes('mode=vector')")


def test_times_have_seconds_a_zone_and_their_age(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    ask(page, "lemon")
    words = page.locator("#found-words")
    expect(words).to_contain_text(
        re.compile(r"as of commit \d+\s\w{3}\s\d\d:\d\d:\d\d\s\S+ \((just now|\d+ s ago)\)")
    )
    age = words.locator("time")
    expect(age).to_have_attribute("title", re.compile(r"\d\d:\d\d:\d\d\s\S+"))
    # It stays true without a search.
    page.evaluate("() => { const now = Date.now; Date.now = () => now() + 125_000; }")
    expect(age).to_have_text("2 min ago")


def test_commits_are_spread_over_the_strip(page: Page, server: PageServer) -> None:
    for n in range(4):
        server.change(f"wine_{n}", price=float(n))
    page.goto(server.url)
    commits = page.locator(".commit")
    expect(commits).to_have_count(5)
    boxes = [commits.nth(n).bounding_box() for n in range(5)]
    assert boxes[0]["x"] < 200
    assert boxes[4]["x"] + boxes[4]["width"] > 1080
    widths = [box["width"] for box in boxes]
    assert max(widths) - min(widths) < 2


def test_bars_compare_the_scores_of_the_list(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    page.get_by_label("meaning", exact=True).check()
    ask(page, ITS_WORDS)
    expect(hits(page).nth(9)).to_be_visible()
    bars = [bar.bounding_box()["width"] for bar in page.locator("#hits .gauge i").all()]
    assert bars == sorted(bars, reverse=True)
    assert bars[-1] < 0.2 * bars[0]


def test_the_example_question_comes_from_the_rows_and_finds_some(
    page: Page, server: PageServer
) -> None:
    page.goto(server.url)
    example = page.locator("#state .example")
    expect(example).to_contain_text("US")
    example.click()
    expect(page.get_by_role("searchbox")).to_have_value(re.compile(r".+, US"))
    expect(hits(page).first).to_be_visible()


def test_hostile_texts_of_the_table_are_shown_as_text_everywhere(
    page: Page, server: PageServer
) -> None:
    dialogs = dialogs_of(page)
    for n in range(12):
        columns = {"title": f"{n} {HOSTILE}", "country": HOSTILE, "variety": f"v {HOSTILE}"}
        server.commit(f"wine_{n}", **columns, description=f"{HOSTILE} {ITS_WORDS}")
    server.sync()
    server.recommend_by(says(f"{HOSTILE} [1] **{HOSTILE}** [wine_3]\n\n- {HOSTILE}"))
    page.goto(server.url)
    page.locator("[data-column=country] label", has_text="<img").click()
    ask(page, ITS_WORDS)
    expect(hits(page)).to_have_count(10)
    page.locator("#recommend").click()
    expect(page.locator("#answer .cite").first).to_be_visible()
    expect(page.locator("#answer .message li")).to_have_text(HOSTILE)
    expect(page.locator("#chips .chip")).to_contain_text("<img")
    expect(hits(page).first.locator("h3")).to_contain_text("<script>")
    assert foreign_markup(page) == []
    page.get_by_role("button", name="More like this").first.click()
    expect(page.locator("#like")).to_contain_text("<img")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(page.locator("#chips .chip")).to_contain_text("<img")
    assert foreign_markup(page) == []
    assert dialogs == []
    assert page.title() == "wines · Lakewake"
