"""`lakewake demo`: a sample table, an index, some changes, and the index that follows them.

Every expectation is checked; the first one that does not hold ends the demo.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakewake.errors import ConfigError, LakewakeError, TableError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from rich.console import Console

    from lakewake.api import Index
    from lakewake.model.query import Hit
    from lakewake.model.report import SyncReport
    from lakewake.progress import Reporter

#: Says that a folder is a demo's own, so that the next one may replace it.
MARK = ".lakewake-demo"
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
#: A small table on one machine: no metadata table, no timeline server, few tasks.
HUDI = {
    "hoodie.table.name": "wine_reviews",
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.datasource.write.recordkey.field": "wine_id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "country",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.metadata.enable": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.bulkinsert.shuffle.parallelism": "2",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.delete.shuffle.parallelism": "2",
}


class DemoError(LakewakeError):
    """Something the demo promises did not happen."""


@dataclass(frozen=True)
class Step:
    """One change of the table and what came of it."""

    title: str
    figures: Mapping[str, Any]
    checks: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class DemoReport:
    """What the demo did and what was found to hold."""

    folder: Path
    config: Path
    steps: tuple[Step, ...]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The object that `demo --json` prints."""
        steps = [
            {"step": s.title, **s.figures, "checks": list(s.checks), "seconds": round(s.seconds, 3)}
            for s in self.steps
        ]
        return {
            "folder": str(self.folder),
            "config": str(self.config),
            "steps": steps,
            "seconds": round(self.seconds, 3),
        }


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
    show = _Show(console)
    with reporter.stage("start Spark"):
        spark = start_session({}, verbose=request.verbose)
    # Hudi takes a relative path for a broken address.
    path = request.folder.resolve() / "lake" / "wine_reviews"
    table = _WineTable(spark, str(path), wines)
    with lakewake.open(config, spark=spark, reporter=reporter) as lake:
        index = lake["wines"]
        _build(table, index, show, reporter)
        _correct_a_text(table, index, show)
        _change_a_price(table, index, show)
        _delete_a_wine(table, index, show)
        _poll(index, show)
        _verify(table, index, show)
    report = DemoReport(request.folder, config, tuple(show.steps), time.monotonic() - began)
    show.next_commands(report)
    return report


def _wines(request: DemoRequest) -> pa.Table:
    from lakewake import sample

    if request.csv is None:
        return sample.wines(request.rows)
    return sample.read_wine_csv(request.csv, request.rows)


def prepare_folder(folder: Path) -> Path:
    """An empty demo folder with its configuration; a former demo's parts are removed from it.

    Raises:
        ConfigError: the folder holds something and no demo made it.
    """
    if folder.exists() and not (folder / MARK).exists() and _holds_something(folder):
        fact = f"{folder} is there already and was not made by a demo"
        raise ConfigError(fact, hint="name another one: `lakewake demo --folder DIR`")
    try:
        for part in ("lake", "index"):
            if (folder / part).exists():
                shutil.rmtree(folder / part)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARK).touch()
        config = folder / "lakewake.toml"
        config.write_text(CONFIG)
    except OSError as error:
        fact = f"{folder} cannot be written: {error.strerror}"
        raise ConfigError(fact, hint="name another one: `lakewake demo --folder DIR`") from error
    return config


def _holds_something(folder: Path) -> bool:
    return not folder.is_dir() or any(folder.iterdir())


class _WineTable:
    """The Hudi table, and the changes that the demo makes to it, each one commit and timed."""

    def __init__(self, spark: SparkSession, path: str, wines: pa.Table) -> None:
        self._spark, self._path, self._wines = spark, path, wines
        self._schema: Any = None
        self.rows = wines.num_rows

    def row(self, n: int) -> dict[str, Any]:
        found: dict[str, Any] = self._wines.slice(n, 1).to_pylist()[0]
        return found

    def create(self) -> None:
        import pyarrow.parquet as pq

        with tempfile.TemporaryDirectory() as folder:
            pq.write_table(self._wines, f"{folder}/wines.parquet")
            rows = self._spark.read.parquet(f"{folder}/wines.parquet")
            self._schema = rows.schema
            self._write(rows, "bulk_insert", "overwrite")

    def upsert(self, row: Mapping[str, Any]) -> float:
        return self._write_one({**row, "ts": row["ts"] + 1}, "upsert")

    def delete(self, row: Mapping[str, Any]) -> float:
        return self._write_one({**row, "ts": row["ts"] + 1}, "delete")

    def _write_one(self, row: Mapping[str, Any], operation: str) -> float:
        began = time.monotonic()
        values = tuple(row[name] for name in self._schema.names)
        self._write(self._spark.createDataFrame([values], self._schema), operation, "append")
        return time.monotonic() - began

    def _write(self, rows: Any, operation: str, mode: str) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        options = {**HUDI, "hoodie.datasource.write.operation": operation}
        try:
            rows.write.format("hudi").options(**options).mode(mode).save(self._path)
        except (Py4JError, PySparkException) as error:
            fact = f"Spark could not {operation} into {self._path}"
            raise TableError(fact, hint="-v shows all that Spark says") from error


@dataclass
class _Show:
    """The screen, and the steps shown on it so far."""

    console: Console
    steps: list[Step] = field(default_factory=list)

    @contextmanager
    def step(self, title: str) -> Iterator[_Notes]:
        """A heading; then what the step notes."""
        self._print()
        self._print(f"{len(self.steps) + 1}  {title}", style="bold")
        notes = _Notes(self.console)
        began = time.monotonic()
        yield notes
        self.steps.append(Step(title, notes.figures, tuple(notes.checks), time.monotonic() - began))

    def next_commands(self, report: DemoReport) -> None:
        config = shlex.quote(str(report.config))
        checks = sum(len(s.checks) for s in report.steps)
        self._print()
        self._print(f"All {checks} expectations held, {report.seconds:.0f} s. Try next:", "bold")
        self._print(
            f"  lakewake search wines 'crisp white, citrus' --where \"price < 20\" -c {config}"
        )
        self._print(f"  lakewake status -c {config}")
        self._print(f"  lakewake sync --watch -c {config}")

    def _print(self, text: str = "", style: str = "") -> None:
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


@dataclass
class _Notes:
    """What one step did and found."""

    console: Console
    figures: dict[str, Any] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)

    def table_got(self, what: str, seconds: float) -> None:
        """What was done to the table."""
        self._line("table", f"{what} ({_ms(seconds)})")

    def sync_said(self, report: SyncReport) -> None:
        """The figures of a sync."""
        self.figures["sync"] = report.as_dict()
        rows = f"{report.rows_changed:,} changed, {report.rows_deleted:,} deleted"
        texts = f"{report.embedded:,} embedded"
        took = _ms(report.seconds.get("total", sum(report.seconds.values())))
        self._line("sync", f"{report.action.value}: {rows}, {texts} ({took})")

    def expect(self, holds: bool, what: str) -> None:
        """Note what was expected and that it holds.

        Raises:
            DemoError: it does not hold.
        """
        if not holds:
            hint = "this is a bug, please report it with what is shown above"
            landed = "the demo's table and index stay in its folder"
            raise DemoError(f"the demo expected: {what}", landed=landed, hint=hint)
        self.checks.append(what)
        self._line("✓", what)

    def compare(self, rows: list[tuple[str, str, str]]) -> None:
        """A small table of before and after."""
        from rich.table import Table
        from rich.text import Text

        grid = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
        for title in ("       ", "before", "after"):
            grid.add_column(title)
        for name, before, after in rows:
            grid.add_row(Text(f"   {name}"), Text(before), Text(after))
        self.console.print(grid)

    def _line(self, name: str, text: str) -> None:
        style = "green" if name == "✓" else ""
        self.console.print(f"   {name:<6} {text}", style=style, markup=False, highlight=False)


def _build(table: _WineTable, index: Index, show: _Show, reporter: Reporter) -> None:
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


def _correct_a_text(table: _WineTable, index: Index, show: _Show) -> None:
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


def _change_a_price(table: _WineTable, index: Index, show: _Show) -> None:
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


def _delete_a_wine(table: _WineTable, index: Index, show: _Show) -> None:
    wine = table.row(2)
    with show.step(f"{wine['wine_id']} is deleted from the table") as notes:
        notes.expect(_find(index, wine) is not None, "its own text finds it before")
        seconds = table.delete(wine)
        notes.table_got("1 row deleted", seconds)
        report = index.sync()
        notes.sync_said(report)
        notes.expect(_touched(report) == (0, 1, 0), "exactly 1 row deleted, 0 texts embedded")
        notes.expect(_find(index, wine) is None, "it cannot be found any more")


def _poll(index: Index, show: _Show) -> None:
    with show.step("A look when nothing is new") as notes:
        report = index.sync()
        notes.sync_said(report)
        notes.expect(report.action.value == "nothing", "nothing to do")


def _verify(table: _WineTable, index: Index, show: _Show) -> None:
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


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms" if seconds < 10 else f"{seconds:.1f} s"
