"""A table and an index in a bucket, and commands of `lakewake` on them, each in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from support.hudi import SMALL_SPARK
from support.hudi.tables import HudiTables, row

LAKEWAKE = Path(sys.executable).with_name("lakewake")
#: The name of one partition needs escaping in URIs.
PARTITIONS = ("a", "b %20 ü")
CONFIG = """
[[index]]
name = "sample"
table = "s3a://{bucket}/lake/my table"
text = "{{txt}}"
payload = ["id", "num"]
store = "{store}"
model = {{ provider = "hashing", dimension = 32 }}
"""


def write_config(folder: Path, bucket: str, store: str) -> Path:
    """A configuration whose table and index are in the bucket."""
    file = folder / "lakewake.toml"
    file.write_text(CONFIG.format(bucket=bucket, store=store) + SMALL_SPARK)
    return file


def make_table(
    spark: SparkSession, bucket: str, options: dict[str, str], type: str = "COPY_ON_WRITE"
) -> HudiTables:
    """Forty rows in two partitions."""
    table = HudiTables(spark, f"s3a://{bucket}/lake/my table", type, options=options)
    table.write([row(f"k{n}", part=PARTITIONS[n % 2]) for n in range(40)])
    return table


def run(config: Path, *arguments: str, ends: int = 0, **variables: str | None) -> dict[str, Any]:
    """The output of a command that must exit with the code `ends`; None unsets a variable."""
    changed = {**os.environ, **variables}
    done = subprocess.run(
        [LAKEWAKE, *arguments, "--json", "--config", config],
        env={name: value for name, value in changed.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == ends, done.stderr
    output: dict[str, Any] = json.loads(done.stdout)
    return output
