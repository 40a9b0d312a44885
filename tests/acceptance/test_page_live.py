"""The page on the real server: a Hudi table, `lakewake serve --watch`, a commit, a browser."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, Route, expect

import lakewake
from lakewake import sample
from lakewake.serve.keys import add_key
from support.page import FIRST, ITS_WORDS, ask, badge, hit, hits, needs_chromium
from support.serving import serving

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [needs_chromium, pytest.mark.spark, pytest.mark.timeout(900)]

CONFIG = """\
[[index]]
name      = "wines"
table     = "lake"
text      = "{title}. {description}"
payload   = ["title", "country", "variety", "points", "price"]
store     = "lance://index"
freshness = "60s"
"""
#: Meanwhile Spark starts, a table is read and sixty texts are embedded, on a busy machine.
BUILT_WITHIN = 240.0


class LiveServer:
    """`lakewake serve --watch` over a real table of the sample's wines."""

    def __init__(self, folder: Path, spark: SparkSession, options: Mapping[str, str]) -> None:
        self._folder, self._spark, self._options = folder, spark, options
        self.config = folder / "lakewake.toml"
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self._port = found.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None
        file = folder / "wines.parquet"
        pq.write_table(sample.wines(60), file)
        self._rows = spark.read.parquet(str(file))
        self._write(self._rows, "bulk_insert")
        self.config.write_text(CONFIG)

    def start(self) -> None:
        """Start it, and wait until it reports that the index exists."""
        command = [str(Path(sys.executable).with_name("lakewake")), "serve", "--watch"]
        log = (self._folder / "serve.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self._port)], cwd=self._folder, stdout=log, stderr=log
            )
        ends = time.monotonic() + BUILT_WITHIN
        while not self._ready():
            assert self._process.poll() is None, (self._folder / "serve.log").read_text()
            assert time.monotonic() < ends, (self._folder / "serve.log").read_text()
            time.sleep(0.1)

    def _ready(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/ready", timeout=30).status_code == 200
        except httpx2.TransportError:
            return False

    def stop(self) -> None:
        """Stop it, with its children."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            assert self._process.wait(timeout=30) in (0, 128 + signal.SIGTERM)
            self._process = None

    def change(self, key: str, **columns: Any) -> None:
        """Make a real commit that changes one row."""
        from pyspark.sql import functions as f

        row = self._rows.where(f.col("wine_id") == key)
        types = dict(row.dtypes)
        values = {name: f.lit(value).cast(types[name]) for name, value in columns.items()}
        self._write(row.withColumns({**values, "ts": f.lit(time.time_ns())}), "upsert")

    def _write(self, rows: DataFrame, operation: str) -> None:
        rows.write.format("hudi").options(
            **{
                "hoodie.table.name": "wines",
                "hoodie.datasource.write.recordkey.field": "wine_id",
                "hoodie.datasource.write.precombine.field": "ts",
                "hoodie.datasource.write.operation": operation,
                "hoodie.datasource.write.keygenerator.class": (
                    "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
                ),
                **self._options,
            }
        ).mode("append").save(str(self._folder / "lake"))


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, small_tables: dict[str, str]
) -> Iterator[LiveServer]:
    server = LiveServer(tmp_path_factory.mktemp("live"), spark, small_tables)
    server.start()
    yield server
    server.stop()


def test_a_real_commit_appears_on_the_page_without_a_reload(page: Page, served: LiveServer) -> None:
    page.goto(served.url)
    expect(page.locator("#state")).to_contain_text("60 rows of wines")
    expect(page.locator("#state")).to_contain_text(re.compile(r"Newest sync .*60 embedded"))
    ask(page, ITS_WORDS)
    expect(hit(page, FIRST)).to_be_visible()
    before = page.locator("#found-words").inner_text()
    served.change("wine_0", description="Crushed lava rock, and now a note of blood orange.")
    changed = hit(page, "blood orange")
    expect(changed).to_have_attribute("data-mark", "changed", timeout=60_000)
    expect(page.locator("#found-words")).not_to_have_text(before)
    expect(badge(page)).to_contain_text(re.compile(r"in step with commit .* after it"))


def test_filters_and_words_work_on_the_real_index(page: Page, served: LiveServer) -> None:
    page.goto(served.url)
    ask(page, "palate finish")
    expect(hits(page).first).to_be_visible()
    page.locator("[data-column=country] label", has_text="Italy").click()
    expect(page.locator("#filters-title")).to_have_attribute("data-active", "1")
    expect(hits(page).filter(has_not_text="Italy")).to_have_count(0)
    page.get_by_label("words", exact=True).check()
    expect(hits(page).first.locator(".score")).to_have_attribute("title", "by words")


def test_the_recommendation_comes_from_the_rows_without_a_model(
    page: Page, served: LiveServer
) -> None:
    page.goto(served.url)
    ask(page, ITS_WORDS)
    expect(hits(page).first).to_be_visible()
    page.get_by_role("searchbox").press("Enter")
    expect(page.locator("#answer")).to_contain_text("lava rock", timeout=30_000)


def test_the_page_survives_a_restart_of_the_real_server(page: Page, served: LiveServer) -> None:
    page.goto(served.url)
    expect(badge(page)).to_contain_text("in step")
    served.stop()
    expect(page.get_by_text("The server does not answer. Trying again")).to_be_visible(
        timeout=30_000
    )
    served.start()
    expect(page.get_by_text("The server does not answer. Trying again")).to_be_hidden(
        timeout=60_000
    )
    ask(page, ITS_WORDS)
    expect(hit(page, FIRST)).to_be_visible()


def test_the_syncing_process_does_what_operators_ask_for(page: Page, served: LiveServer) -> None:
    with lakewake.open(served.config) as lake:
        for kind in ("plan", "verify"):
            lake["wines"].ask_for(kind, "key ops")
    page.goto(f"{served.url}/operators")
    jobs = page.locator("#section-jobs li")
    expect(jobs).to_have_count(2)
    expect(jobs.filter(has_text="plan")).to_contain_text("nothing to do", timeout=60_000)
    expect(jobs.filter(has_text="verify")).to_contain_text(
        "agrees with its table: 60 rows", timeout=120_000
    )
    expect(page.locator(".facts").first).to_contain_text("runs beside this server")


if shot := os.environ.get("LAKEWAKE_SCREENSHOTS"):

    @pytest.mark.parametrize("look", ["light", "dark", "phone"])
    def test_screenshots_for_the_documentation_are_taken(
        page: Page, served: LiveServer, look: str
    ) -> None:
        width, height = (390, 844) if look == "phone" else (1280, 900)
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme="dark" if look == "dark" else "light")
        page.goto(served.url)
        ask(page, "smoky red with leather")
        page.get_by_role("searchbox").press("Enter")
        expect(page.locator("#answer .cite").first).to_be_attached(timeout=30_000)
        key = re.search(r"wine_\d+", hits(page).nth(1).inner_text())
        assert key is not None
        # A different price each time, or nothing would change.
        served.change(key[0], price=20.0 + len(look))
        expect(page.locator("#hits [data-mark]").first).to_be_visible(timeout=60_000)
        page.screenshot(path=f"{shot}/page-{look}.png")

    def test_a_screenshot_of_the_operators_page_is_taken(page: Page, served: LiveServer) -> None:
        file = served.config.with_name("keys.json")
        key = add_key(file, "ops", "admin")
        page.set_viewport_size({"width": 1280, "height": 1100})
        folder = str(served.config.parent)

        def elsewhere(route: Route) -> None:
            """The picture is not about the machine that it was taken on."""
            answer = route.fetch()
            route.fulfill(response=answer, body=answer.text().replace(folder, "/data"))

        page.route("**/status", elsewhere)
        # Beside the one that watches, which has no keys.
        with serving(served.config, "--keys", str(file)) as beside:
            page.goto(f"{beside.url}/operators")
            page.locator("#key-text").fill(key)
            page.keyboard.press("Enter")
            jobs = page.locator("#section-jobs li")
            before = len(lakewake.open(served.config)["wines"].jobs())
            page.get_by_role("button", name="Verify").click()
            expect(jobs).to_have_count(before + 1)
            expect(jobs.first).to_contain_text("agrees", timeout=120_000)
            page.screenshot(path=f"{shot}/page-operators.png")
