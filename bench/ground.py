"""What all bars share: a scratch folder, one Spark session, tables with their indexes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import lakewake
from bench.sizes import Sizes
from bench.tables import COPY_ON_WRITE, QUICK_COMMITS, Table
from lakewake import sample
from lakewake.config.settings import ModelSettings
from lakewake.embed import Embedder
from lakewake.embed.registry import load_embedder
from lakewake.spark.java import find_java
from lakewake.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakewake.api import Index

#: For tables of a few rows, where compiling a query costs more than interpreting it.
SMALL_TABLE_OPTIONS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
}
HASHING = 'model = {provider = "hashing", dimension = 384}'
FULL_TEXT = 'text = "{title}. {description}"\npayload = ["title", "country", "points", "price"]'
CONFIG = """\
[[index]]
name  = "{name}"
table = "lake"
store = "lance://index"
{recipe}
"""


@dataclass(frozen=True)
class Followed:
    """A table and the index that follows it."""

    name: str
    folder: Path
    table: Table
    index: Index

    @property
    def config(self) -> Path:
        """The configuration file of the index."""
        return self.folder / "lakewake.toml"

    def sync(self) -> tuple[float, dict[str, Any]]:
        """Sync the index; returns seconds and the report."""
        began = time.perf_counter()
        report = self.index.sync()
        return time.perf_counter() - began, report.as_dict()


class Ground:
    """The sizes, scratch folder and session of one run, and what its bars share.

    Args:
        peer: the Python of an environment with sentence-transformers; None if there is none.
    """

    def __init__(self, sizes: Sizes, scratch: Path, peer: Path | None) -> None:
        self.sizes = sizes
        self.scratch = scratch
        self.peer = peer
        self._kept: dict[str, Any] = {}

    def say(self, text: str) -> None:
        """Print a line about the progress."""
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """A value that several bars share, made when the first of them needs it."""
        if name not in self._kept:
            self.say(f"making {name}")
            self._kept[name] = make()
        return self._kept[name]

    @cached_property
    def spark(self) -> SparkSession:
        """The session that writes the tables, and that Lakewake uses."""
        hasty = SMALL_TABLE_OPTIONS if self.sizes.hasty else {}
        return start_session({"spark.driver.memory": "4g", **hasty})

    @cached_property
    def embedder(self) -> Embedder:
        """The raw embedder: the default model alone."""
        return load_embedder(ModelSettings())

    def followed(
        self,
        name: str,
        frame: DataFrame,
        recipe: str,
        *,
        key: str = "wine_id",
        partition: str = "country",
        type: str = COPY_ON_WRITE,
        options: Mapping[str, str] | None = None,
    ) -> Followed:
        """A table of these rows and an index that has not been built yet."""
        folder = self.scratch / name
        # A failed bar may have left a part of it.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        options = {**(QUICK_COMMITS if self.sizes.hasty else {}), **(options or {})}
        table = Table(self.spark, str(folder / "lake"), key, partition, type, options)
        table.load(frame)
        config = folder / "lakewake.toml"
        config.write_text(CONFIG.format(name=name, recipe=recipe))
        return Followed(name, folder, table, lakewake.open(config, spark=self.spark)[name])

    def wines(self, rows: int) -> DataFrame:
        """The first `rows` sample reviews."""
        return self.spark.read.parquet(self.once(f"{rows} reviews", lambda: self._reviews(rows)))

    def _reviews(self, rows: int) -> str:
        file = self.scratch / f"wines-{rows}.parquet"
        pq.write_table(sample.wines(rows), file)
        return str(file)

    def lakewake(self, *args: str) -> list[str]:
        """The command line of a `lakewake` command."""
        return [str(Path(sys.executable).with_name("lakewake")), *args]

    def peer_script(self, name: str, *args: object) -> list[str]:
        """The command line of one of the peer's scripts. Without a peer, our own Python runs it."""
        script = Path(__file__).parent / "peer" / f"{name}.py"
        return [str(self.peer or sys.executable), str(script), *map(str, args)]

    def run(self, command: list[str]) -> tuple[float, str]:
        """Run a command; returns seconds from start to exit, and the last line it printed."""
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, env=environment())
        seconds = time.perf_counter() - began
        if done.returncode:
            raise RuntimeError(f"{command[0]} {command[1]} failed: {done.stderr[-2000:]}")
        # The last line: Java prints warnings to the same stream before it.
        return seconds, next(iter(done.stdout.splitlines()[-1:]), "")


def environment() -> dict[str, str]:
    """The environment of every process that a bar starts."""
    return {**os.environ, "JAVA_HOME": str(find_java().home), "HF_HUB_OFFLINE": "1"}
