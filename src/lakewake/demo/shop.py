"""`lakewake demo --shop`: a question to a shop, a change to its table, and a new answer.

Every expectation is checked; the first one that does not hold ends the demo.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakewake.demo.show import DemoReport, Notes, Show
from lakewake.demo.table import MARK, DemoTable, TableSpec, make_folder

if TYPE_CHECKING:
    from rich.console import Console

    from lakewake.api import Index
    from lakewake.demo import DemoRequest
    from lakewake.model.query import Hit
    from lakewake.model.recommendation import Recommendation
    from lakewake.progress import Reporter

ROWS = 400
QUESTION = "a warm waterproof jacket for hiking"
IN_STOCK = "stock > 0"
SPEC = TableSpec("products", key="id")
CONFIG = """\
# Written by `lakewake demo --shop`. What is added below stays when it runs again.
[[index]]
name    = "shop"
table   = "lake/products"
text    = "{name}. {description}"
payload = ["name", "price", "stock"]
store   = "lance://index"
"""
#: How to have a model phrase the answers.
ADVICE = """
# [recommend]
# url     = "http://localhost:11434/v1"
# name    = "llama3.2"
# key_env = ""
"""
NEW = {
    "id": "product_new",
    "ts": 0,
    "name": "Fellgate Stormchild Hiking Jacket",
    "description": (
        "A warm waterproof jacket for hiking, new this week. Synthetic fill keeps its warmth in "
        "the wet, and every seam is taped against the rain. It packs into its own hood."
    ),
    "price": 179.0,
    "stock": 25,
}


def run_shop_demo(request: DemoRequest, reporter: Reporter, console: Console) -> DemoReport:
    """Run the demo and show it.

    Raises:
        ConfigError: the folder holds something that no demo wrote.
        DemoError: an expectation did not hold.
    """
    import lakewake
    from lakewake.sample.shop import products
    from lakewake.spark.session import start_session

    began = time.monotonic()
    config = make_folder(request.folder, kept_config(request.folder))
    show = Show(console)
    with reporter.stage("start Spark"):
        spark = start_session({}, verbose=request.verbose)
    table = DemoTable(spark, request.folder, SPEC, products(request.rows))
    with lakewake.open(config, spark=spark, reporter=reporter) as lake:
        index = lake["shop"]
        _build(table, index, show, reporter)
        before = _ask(index, show)
        _sell_out(table, index, show, before.hits[0])
        _ask_again(index, show, before)
    report = DemoReport(request.folder, config, tuple(show.steps), time.monotonic() - began)
    show.end(report, _next_commands(config))
    return report


def kept_config(folder: Path) -> str:
    """The configuration; if a person added to that of an earlier demo, with the additions."""
    file = folder / "lakewake.toml"
    if (folder / MARK).exists() and file.is_file():
        earlier = file.read_text()
        if earlier.startswith(CONFIG):
            return earlier
    return CONFIG + ADVICE


def _build(table: DemoTable, index: Index, show: Show, reporter: Reporter) -> None:
    with show.step(f"A Hudi table of {table.rows:,} products, and an index on it") as notes:
        began = time.monotonic()
        with reporter.stage("write the table"):
            table.create()
        notes.table_changed(f"{table.rows:,} rows, copy-on-write, key id", time.monotonic() - began)
        report = index.sync()
        notes.synced(report)
        notes.expect(report.action.value == "build", "the first sync builds the index")
        notes.expect(index.status().rows == table.rows, f"the index holds {table.rows:,} rows")


def _ask(index: Index, show: Show) -> Recommendation:
    with show.step(f"A customer asks for “{QUESTION}”") as notes:
        found = index.recommend(QUESTION, where=IN_STOCK, mode="hybrid")
        _show_answer(notes, found)
        notes.expect(len(found.hits) == 5, "five products are found")
        in_stock = all(hit.payload["stock"] > 0 for hit in found.hits)
        notes.expect(in_stock, f"all are in stock, as the filter asks: {IN_STOCK}")
        return found


def _sell_out(table: DemoTable, index: Index, show: Show, best: Hit) -> None:
    number = int(best.key.removeprefix("product_"))
    with show.step("One commit: the best of them sells out, and a new product arrives") as notes:
        seconds = table.upsert({**table.row(number), "stock": 0}, {**NEW, "ts": table.rows})
        notes.table_changed("2 rows upserted", seconds)
        notes.say("", f"{best.payload['name']}: stock {best.payload['stock']} → 0")
        notes.say("", f"{NEW['name']}: new, {NEW['stock']} in stock")
        report = index.sync()
        notes.synced(report)
        touched = (report.rows_changed, report.rows_deleted, report.embedded)
        notes.expect(touched == (2, 0, 1), "2 rows changed, 1 text embedded: only the new one")


def _ask_again(index: Index, show: Show, before: Recommendation) -> None:
    with show.step("The same question again") as notes:
        found = index.recommend(QUESTION, where=IN_STOCK, mode="hybrid")
        _show_answer(notes, found)
        gone, keys = before.hits[0], [hit.key for hit in found.hits]
        notes.compare(_places(before.hits, found.hits))
        sold, new = gone.payload["name"], NEW["name"]
        notes.say("why", f"since commit {found.instant}, {sold} is sold out and {new} is there")
        notes.expect(found.instant > before.instant, "the answer is from the new commit")
        notes.expect(gone.key not in keys, f"{sold} is gone: stock 0")
        notes.expect(NEW["id"] in keys, f"{new} is found")
        notes.expect(found.message != before.message, "the answer changed")


def _show_answer(notes: Notes, found: Recommendation) -> None:
    notes.figures["recommendation"] = found.as_dict()
    notes.say(_BY[found.answered_by.value], found.message)
    if found.reason:
        notes.say("note", found.reason)
    used = {row.key for row in found.used}
    for n, hit in enumerate(found.hits, start=1):
        mark = "used" if hit.key in used else ""
        notes.say(mark, f"[{n}] {_product(hit)}")


_BY = {"model": "model", "extract": "quotes", "none": ""}


def _product(hit: Hit) -> str:
    values: Any = hit.payload
    return f"{values['name']}, {values['price']:.2f}, {values['stock']} in stock"


def _places(before: Sequence[Hit], after: Sequence[Hit]) -> list[tuple[str, str, str]]:
    pairs = zip(before, after, strict=True)
    return [
        (f"[{n}]", str(b.payload["name"]), str(a.payload["name"]))
        for n, (b, a) in enumerate(pairs, start=1)
    ]


def _next_commands(config: Path) -> list[str]:
    file = shlex.quote(str(config))
    return [
        f"lakewake recommend shop '{QUESTION}' --mode hybrid --where \"{IN_STOCK}\" -c {file}",
        f"lakewake serve --watch -c {file}",
    ]
