"""`lakewake demo`: a sample table, an index, some changes, and the index that follows them.

Every expectation is checked; the first one that does not hold ends the demo.
"""

from __future__ import annotations

import shlex
import time
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakewake.demo.show import DemoReport, Show
from lakewake.demo.table import MARK, DemoTable, TableSpec, make_folder
from lakewake.errors import ConfigError

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
#: Texts up to this many bytes are one chunk for the model.
SHORT = 600
#: Two cosines that differ by less are equal.
EQUAL = 1e-5
SPEC = TableSpec("wine_reviews", key="wine_id", partition="country")


@dataclass(frozen=True)
class DemoRequest:
    """Where the demo runs, and on which rows.

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
        ConfigError: the folder holds something that no demo wrote.
        DemoError: an expectation did not hold.
    """
    import lakewake
    from lakewake.spark.session import start_session

    began = time.monotonic()
    wines = _wines(request)
    first, second, third = choose_rows(wines)
    config = prepare_folder(request.folder)
    show = Show(console)
    with reporter.stage("start Spark"):
        spark = start_session({}, verbose=request.verbose)
    table = DemoTable(spark, request.folder, SPEC, wines)
    with lakewake.open(config, spark=spark, reporter=reporter) as lake:
        index = lake["wines"]
        _build(table, index, show, reporter)
        _correct_a_text(table, index, show, table.row(first))
        _change_a_price(table, index, show, table.row(second))
        _delete_a_wine(table, index, show, table.row(third))
        _poll(index, show)
        _verify(table, index, show)
    report = DemoReport(request.folder, config, tuple(show.steps), time.monotonic() - began)
    show.end(report, _next_commands(config))
    return report


def prepare_folder(folder: Path) -> Path:
    """Make an empty demo folder with its configuration; an earlier demo in it is removed.

    Raises:
        ConfigError: the folder is not empty, and no demo made it.
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


def choose_rows(wines: pa.Table) -> tuple[int, int, int]:
    """Three rows that an index must find first by their own text: no other row has that text.

    Real reviews are repeated, sometimes with other case, accents or punctuation, which the model
    does not distinguish.

    Raises:
        ConfigError: there are fewer than three.
    """
    columns = (wines[name].to_pylist() for name in ("title", "description"))
    texts = [_text(t, d) for t, d in zip(*columns, strict=True)]
    counted = Counter(map(_bare, texts))
    found = [
        n
        for n, text in enumerate(texts)
        if counted[_bare(text)] == 1 and _bare(text) and len(text.encode()) <= SHORT
    ]
    if len(found) < 3:
        raise ConfigError(
            "the demo needs three reviews whose text no other review has",
            hint="use more rows of the file: --rows N",
        )
    return found[0], found[1], found[2]


def _text(title: str | None, description: str | None) -> str:
    """The indexed text of a review, as in `CONFIG`."""
    return f"{title or ''}. {description or ''}"


def _bare(text: str) -> str:
    """Only the letters and digits, without case and accents."""
    letters = unicodedata.normalize("NFKD", text).casefold()
    return "".join(c for c in letters if c.isalnum())


def _build(table: DemoTable, index: Index, show: Show, reporter: Reporter) -> None:
    with show.step(f"A Hudi table of {table.rows:,} wine reviews, and an index on it") as notes:
        began = time.monotonic()
        with reporter.stage("write the table"):
            table.create()
        what = f"{table.rows:,} rows, copy-on-write, key wine_id, by country"
        notes.table_changed(what, time.monotonic() - began)
        report = index.sync()
        notes.synced(report)
        notes.expect(report.action.value == "build", "the first sync builds the index")
        notes.expect(index.status().rows == table.rows, f"the index holds {table.rows:,} rows")


def _correct_a_text(table: DemoTable, index: Index, show: Show, wine: Mapping[str, Any]) -> None:
    name = wine["wine_id"]
    with show.step(f"The description of {name} is corrected in the table") as notes:
        new = {**wine, "description": NEW_TEXT}
        texts = [_own_text(wine), _own_text(new)]
        before = [_Found.by(index, text, name) for text in texts]
        seconds = table.upsert(new)
        notes.table_changed("1 row upserted", seconds)
        report = index.sync()
        notes.synced(report)
        after = [_Found.by(index, text, name) for text in texts]
        places = zip(("old text finds", "new text finds"), before, after, strict=True)
        notes.compare([(what, b.best, a.best) for what, b, a in places])
        notes.expect(_touched(report) == (1, 0, 1), "exactly 1 row changed, 1 text embedded")
        notes.expect(report.chunks_upserted == 1, "nothing else in the index was touched")
        notes.expect(before[0].is_first, f"before, the old text found {name} first")
        notes.expect(after[1].is_first, f"now the new text finds {name} first")
        notes.expect(after[0].fits_less_than(before[0]), "the old text fits it less than before")


def _change_a_price(table: DemoTable, index: Index, show: Show, wine: Mapping[str, Any]) -> None:
    with show.step(f"Only the price of {wine['wine_id']} changes") as notes:
        price = float(wine["price"] or 20) + 7
        seconds = table.upsert({**wine, "price": price})
        notes.table_changed(f"price {wine['price']} → {price}", seconds)
        report = index.sync()
        notes.synced(report)
        notes.expect(_touched(report) == (1, 0, 0), "1 row changed, 0 texts embedded")
        hit = _Found.by(index, _own_text(wine), wine["wine_id"]).hit
        found = hit is not None and hit.payload["price"] == price
        notes.expect(found, f"the hit shows price {price}")


def _delete_a_wine(table: DemoTable, index: Index, show: Show, wine: Mapping[str, Any]) -> None:
    text, name = _own_text(wine), wine["wine_id"]
    with show.step(f"{name} is deleted from the table") as notes:
        notes.expect(_Found.by(index, text, name).is_first, "before, its own text finds it first")
        seconds = table.delete(wine)
        notes.table_changed("1 row deleted", seconds)
        report = index.sync()
        notes.synced(report)
        notes.expect(_touched(report) == (0, 1, 0), "exactly 1 row deleted, 0 texts embedded")
        notes.expect(_Found.by(index, text, name).hit is None, "it cannot be found any more")


def _poll(index: Index, show: Show) -> None:
    with show.step("A look when nothing is new") as notes:
        report = index.sync()
        notes.synced(report)
        notes.expect(report.action.value == "nothing", "nothing to do")


def _verify(table: DemoTable, index: Index, show: Show) -> None:
    with show.step("Index and table are compared, row by row") as notes:
        report = index.verify()
        notes.figures["verify"] = report.as_dict()
        notes.expect(report.rows == table.rows - 1, f"{report.rows:,} rows were compared")
        notes.expect(report.agrees, "index and table agree")


def _touched(report: SyncReport) -> tuple[int, int, int]:
    return report.rows_changed, report.rows_deleted, report.embedded


def _own_text(wine: Mapping[str, Any]) -> str:
    return _text(wine["title"], wine["description"])


@dataclass(frozen=True)
class _Found:
    """What an exact search finds: the best row, and one given row if it is among the best."""

    first: Hit
    hit: Hit | None

    @classmethod
    def by(cls, index: Index, text: str, key: str) -> _Found:
        hits = index.search(text, k=10, exact=True).hits
        return cls(hits[0], next((h for h in hits if h.key == key), None))

    @property
    def is_first(self) -> bool:
        """Whether no row is nearer; another may be just as near."""
        return self.hit is not None and _near(self.hit) >= _near(self.first) - EQUAL

    @property
    def best(self) -> str:
        shown = self.hit if self.hit and self.is_first else self.first
        return f"{shown.key} ({_near(shown):.2f})"

    def fits_less_than(self, before: _Found) -> bool:
        """Whether the row is farther from the text than it was, or not among the best any more."""
        was = _near(before.hit) if before.hit else 0.0
        return self.hit is None or _near(self.hit) < was - EQUAL


def _near(hit: Hit) -> float:
    assert hit.similarity is not None
    return hit.similarity
