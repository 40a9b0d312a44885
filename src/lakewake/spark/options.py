"""The options of a session."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from lakewake.spark.files import Files
from lakewake.spark.jars import has_jar

EXTENSION = "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"

#: Options that Hudi requires in every session.
HUDI_OPTIONS: Mapping[str, str] = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.sql.extensions": EXTENSION,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
}

#: Turns off Hudi's timeline server, which writers start by default: it listens on all interfaces,
#: asks for no key and deletes folders on request. Without it, markers must be separate files.
WITHOUT_SERVER: Mapping[str, str] = {
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
}


def is_local(master: str) -> bool:
    """Whether a master address means this process's own machine and JVM."""
    return master.split("[", 1)[0] == "local"


def session_options(given: Mapping[str, str], files: Files, *, verbose: bool) -> dict[str, str]:
    """All options of a session. The user's take precedence over ours.

    Java options and class paths are the exception: both are kept.
    """
    local = is_local(given.get("spark.master", "local[*]"))
    options = {
        "spark.master": "local[*]",
        "spark.app.name": "lakewake",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": (files.scratch / "warehouse").as_uri(),
        "spark.jars.ivy": str(files.scratch / "ivy"),
        **HUDI_OPTIONS,
        **(local_options(files) if local else cluster_options()),
        **given,
    }
    java = " ".join(_java_options(files, local=local, verbose=verbose))
    _join(options, "spark.driver.extraJavaOptions", " ", java, given)
    if not has_jar(given, "hudi-spark"):
        # In local mode the class path is enough: it avoids copying the jar at every start, and
        # class-data archives only cover the class path.
        option = ("spark.driver.extraClassPath", ":") if local else ("spark.jars", ",")
        _join(options, *option, str(files.bundle), given)
    if files.storage and not local:
        _join(options, "spark.jars", ",", ",".join(map(str, files.storage)), dict(options))
    return options


def local_options(files: Files) -> dict[str, str]:
    """Options for one machine: short jobs, small shuffles, not reachable from other machines."""
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        # Driver and executor are one process here. If the machine has slept, heartbeats are missing
        # and the JVM would end itself ten minutes later.
        "spark.executor.heartbeat.maxFailures": str(2**31 - 1),
        "spark.hadoop.hadoop.tmp.dir": str(files.scratch / "hadoop"),
        "spark.local.dir": str(files.scratch / "local"),
        "spark.sql.shuffle.partitions": "4",
    }


def cluster_options() -> dict[str, str]:
    """Options for many machines: Python workers get rows in small batches."""
    return {"spark.sql.execution.arrow.maxRecordsPerBatch": "1000"}


def _join(
    options: dict[str, str], key: str, separator: str, ours: str, given: Mapping[str, str]
) -> None:
    options[key] = separator.join(part for part in (ours, given.get(key, "")) if part)


def _java_options(files: Files, *, local: bool, verbose: bool) -> Iterator[str]:
    yield shlex.quote(f"-Dderby.system.home={files.scratch / 'derby'}")
    # Hudi measures object sizes with a library that spends seconds trying to attach to its own JVM.
    # Its estimates are as good without that.
    yield "-Djol.skipDynamicAttach=true"
    yield "-Djol.skipHotspotSAAttach=true"
    if not verbose:
        yield f"-Dlog4j2.configurationFile={files.logging.as_uri()}"
    # Spark's logging would register itself for remote management, which takes 30 ms.
    yield "-Dlog4j2.disableJmx=true"
    if local:
        # The JVM is killed at the end, and leaves native libraries and spilled rows behind.
        yield shlex.quote(f"-Djava.io.tmpdir={files.scratch}")
        # Most commands end before the optimising compiler pays off.
        yield "-XX:TieredStopAtLevel=1"
        # Without that compiler Java reserves 48 MB for compiled code. A watch fills it within
        # minutes; from then on code is discarded and compiled again. This is the usual size.
        yield "-XX:ReservedCodeCacheSize=240m"
        # Counters for `jstat`: a file in /tmp that a killed JVM leaves behind.
        yield "-XX:-UsePerfData"
    if local and files.archive is not None:
        yield "-Xshare:auto"
        yield shlex.quote(f"-XX:SharedArchiveFile={files.archive}")
