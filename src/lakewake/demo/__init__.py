"""`lakewake demo`: a sample table, an index, some changes, and the index that follows them.

Every expectation is checked; the first one that does not hold ends the demo.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakewake.demo.show import DemoReport, Show
from lakewake.demo.table import MARK, DemoTable, TableSpec, make_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from lakewake.api import Index
    from lakewake.model.query import Hit
    from lakewake.model.report import SyncReport
    from lakewake.progress import Reporter

__all__ = ["CONFIG", "MARK", "DemoReport", "DemoRequest", "prepare_folder", "run_demo"]

NEW_TEXT = (
    "Corrected by the taster: smoked seaweed, candied ginger and cold espresso, "
    "with a salty finish that recalls an oyster bar in winter."
)
CONFIG = """\
# Written by `lakewake demo`.
[[index]]
name    = "wines"
table   = "lake/wine_reviews"
text    = "{title}. {description}"
payload = ["title", "country", "variety", "points", "price"]
store   = "lance://index"
"""
SPEC = TableSpec("wine_reviews", key="wine_id", partition="country")


@dataclass(frozen=True)
class DemoRequest:
    """Where the demo lives and what it is about.

    Attributes:
        csv: the real wine-review CSV; None: sample rows of our own.
    """

    folder: Path
    csv: Path | None = None
    rows: int = 2000
    verbose: bool = False


def run_demo(request: DemoRequest, reporter: Reporter, console: Console) -> DemoReport:
    """Run the demo and show it.

    Raises:
        ConfigError: the folder holds something that is not a demo's.
        DemoError: an expectation did not hold.
    """
    import lakewake
    from lakewake.spark import start_session

    began = time.monotonic()
    wines = _wines(request)
    config = prepare_folder(request.folder)
    show = Show(console)
    with reporter.stage("start Spark"):
        spark = start_session({}, verbose=request.verbose)
    table = DemoTable(spark, request.folder, SPEC, wines)
    with lakewake.open(config, spark=spark, reporter=reporter) as lake:
        index = lake["wines"]
        _build(table, index, show, reporter)
        _correct_a_text(table, index, show)
        _change_a_price(table, index, show)
        _delete_a_wine(table, index, show)
        _poll(index, show)
        _verify(table, index, show)
    report = DemoReport(request.folder, config, tuple(show.steps), time.monotonic() - began)
    show.end(report, _next_commands(config))
    return report


def prepare_folder(folder: Path) -> Path:
    """An empty demo folder with its configuration; a former demo's parts are removed from it.

    Raises:
        ConfigError: the folder holds something and no demo made it.
    """
    return make_folder(folder, CONFIG)


def _next_commands(config: Path) -> list[str]:
    file = shlex.quote(str(config))
    return [
        f"lakewake search wines 'crisp white, citrus' --where \"price < 20\" -c {file}",
        f"lakewake status -c {file}",
        f"lakewake sync --watch -c {file}",
    ]


def _wines(request: DemoRequest) -> pa.Table:
    from lakewake import sample

    if request.csv is None:
        return sample.wines(request.rows)
    return sample.read_wine_csv(request.csv, request.rows)


def _build(table: DemoTable, index: Index, show: Show, reporter: Reporter) -> None:
    with show.step(f"A Hudi table of {table.rows:,} wine reviews, and an index on it") as notes:
        began = time.monotonic()
        with reporter.stage("write the table"):
            table.create()
        what = f"{table.rows:,} rows, copy-on-write, key wine_id, by country"
        notes.table_got(what, time.monotonic() - began)
        report = index.sync()
        notes.sync_said(report)
        notes.expect(report.action.value == "build", "the first sync builds the index")
        notes.expect(index.status().rows == table.rows, f"the index holds {table.rows:,} rows")


def _correct_a_text(table: DemoTable, index: Index, show: Show) -> None:
    with show.step("The description of wine_0 is corrected in the table") as notes:
        wine = table.row(0)
        old_text = wine["description"]
        before = [_first(index, old_text), _first(index, NEW_TEXT)]
        seconds = table.upsert({**wine, "description": NEW_TEXT})
        notes.table_got("1 row upserted", seconds)
        report = index.sync()
        notes.sync_said(report)
        after = [_first(index, old_text), _first(index, NEW_TEXT)]
        places = zip(("old text finds", "new text finds"), before, after, strict=True)
        notes.compare([(name, _place(b), _place(a)) for name, b, a in places])
        notes.expect(_touched(report) == (1, 0, 1), "exactly 1 row changed, 1 text embedded")
        notes.expect(report.chunks_upserted == 1, "nothing else in the index was touched")
        notes.expect(before[0].key == wine["wine_id"], "before, the old text found wine_0 first")
        notes.expect(after[1].key == wine["wine_id"], "now the new text finds wine_0 first")
        notes.expect(after[0].key != wine["wine_id"], "the old text no longer does")


def _change_a_price(table: DemoTable, index: Index, show: Show) -> None:
    wine = table.row(1)
    with show.step(f"Only the price of {wine['wine_id']} changes") as notes:
        price = (wine["price"] or 20) + 7
        seconds = table.upsert({**wine, "price": price})
        notes.table_got(f"price {wine['price']} → {price}", seconds)
        report = index.sync()
        notes.sync_said(report)
        notes.expect(_touched(report) == (1, 0, 0), "1 row changed, 0 texts embedded")
        hit = _find(index, wine)
        found = hit is not None and hit.payload["price"] == price
        notes.expect(found, f"the hit says price {price}")


def _delete_a_wine(table: DemoTable, index: Index, show: Show) -> None:
    wine = table.row(2)
    with show.step(f"{wine['wine_id']} is deleted from the table") as notes:
        notes.expect(_find(index, wine) is not None, "its own text finds it before")
        seconds = table.delete(wine)
        notes.table_got("1 row deleted", seconds)
        report = index.sync()
        notes.sync_said(report)
        notes.expect(_touched(report) == (0, 1, 0), "exactly 1 row deleted, 0 texts embedded")
        notes.expect(_find(index, wine) is None, "it cannot be found any more")


def _poll(index: Index, show: Show) -> None:
    with show.step("A look when nothing is new") as notes:
        report = index.sync()
        notes.sync_said(report)
        notes.expect(report.action.value == "nothing", "nothing to do")


def _verify(table: DemoTable, index: Index, show: Show) -> None:
    with show.step("Index and table are compared, row by row") as notes:
        report = index.verify()
        notes.figures["verify"] = report.as_dict()
        notes.expect(report.rows == table.rows - 1, f"{report.rows:,} rows were compared")
        notes.expect(report.agrees, "index and table agree")


def _touched(report: SyncReport) -> tuple[int, int, int]:
    return report.rows_changed, report.rows_deleted, report.embedded


def _first(index: Index, text: str) -> Hit:
    return index.search(text, k=1, exact=True).hits[0]


def _find(index: Index, wine: Mapping[str, Any]) -> Hit | None:
    """The hit of that wine among the best for its own text, if it is there."""
    text = f"{wine['title']}. {wine['description']}"
    hits = index.search(text, k=10, exact=True).hits
    return next((h for h in hits if h.key == wine["wine_id"]), None)


def _place(hit: Hit) -> str:
    return f"{hit.key} ({hit.similarity:.2f})"
