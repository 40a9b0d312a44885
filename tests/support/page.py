"""The page in a real browser, and the actions of a user."""

from __future__ import annotations

import shutil

import pytest
from playwright.sync_api import Dialog, Locator, Page

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


def scope_to_admin(page: Page, key: str) -> None:
    """Enter a key on the page of operators."""
    page.get_by_role("button", name="Enter a key").click()
    page.locator("#key-text").fill(key)
    page.keyboard.press("Enter")


def dialogs_of(page: Page) -> list[str]:
    """What scripts of others would say: a page of ours opens no dialog."""
    said: list[str] = []

    def note(dialog: Dialog) -> None:
        said.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", note)
    return said


def small_targets(page: Page) -> list[str]:
    """What a finger can touch, is visible, and is smaller than 24 pixels."""
    found: list[str] = page.evaluate(
        """() => {
          const touched = "a[href], button, input, select, summary, [tabindex='0']";
          const seen = (e) => e.checkVisibility({ visibilityProperty: true });
          const place = (e) => (e.closest("label") ?? e).getBoundingClientRect();
          return [...document.querySelectorAll(touched)]
            .filter((e) => seen(e) && !e.matches(".skip"))
            .filter((e) => Math.min(place(e).width, place(e).height) < 23.9)
            .map((e) => `${e.outerHTML.slice(0, 90)} ${place(e).width}x${place(e).height}`);
        }"""
    )
    return found


def faint_texts(page: Page, least: float = 4.5) -> list[str]:
    """Visible texts whose contrast with what is behind them is lower than this."""
    found: list[str] = page.evaluate(
        """(least) => {
          const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
          const rgba = (color) => {
            canvas.clearRect(0, 0, 1, 1);
            canvas.fillStyle = color;
            canvas.fillRect(0, 0, 1, 1);
            const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
            return [r, g, b, a / 255];
          };
          const over = ([r, g, b, a], under) => [r, g, b].map((c, i) => c * a + under[i] * (1 - a));
          const behind = (e) => {
            const layers = [];
            for (let at = e; at; at = at.parentElement)
              layers.push(rgba(getComputedStyle(at).backgroundColor));
            return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255]);
          };
          const light = (rgb) => {
            const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
            const [r, g, b] = rgb.map((c) => linear(c / 255));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
          const faint = [];
          while (walk.nextNode()) {
            const text = walk.currentNode.data.trim();
            const e = walk.currentNode.parentElement;
            if (!text || !e.checkVisibility({ visibilityProperty: true })) continue;
            if (e.closest(":disabled, .unseen, .skip, script, noscript, svg, option")) continue;
            const under = behind(e);
            const ink = over(rgba(getComputedStyle(e).color), under);
            const [less, more] = [light(ink), light(under)].sort((a, b) => a - b);
            const ratio = (more + 0.05) / (less + 0.05);
            if (ratio < least) faint.push(`${text} ${ratio.toFixed(2)} .${e.className}`);
          }
          return faint;
        }""",
        least,
    )
    return found


def foreign_markup(page: Page) -> list[str]:
    """Elements and attributes that the page itself never has."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("*")].flatMap((e) => [
          ...(/^(img|iframe|object|embed|base|video|audio|math|style)$/i.test(e.tagName)
            || (e.tagName === "SCRIPT" && !e.src.includes("/page/")) ? [e.outerHTML] : []),
          ...[...e.attributes]
            .filter((a) => /^on/i.test(a.name) || /^(srcdoc|action|formaction)$/i.test(a.name)
              || (a.name === "href" && /^\\s*(javascript|data|https?):/i.test(a.value)))
            .map((a) => `${e.tagName} ${a.name}=${a.value}`),
        ])"""
    )
    return found
