"""Describes the machine on which the numbers were measured."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from lakewake.spark.jars import BUNDLE
from lakewake.spark.java import find_java

PACKAGES = ("lakewake", "pyspark", "pylance", "onnxruntime", "pyarrow", "numpy")


def describe_machine() -> dict[str, object]:
    """Processor, memory, system and versions; nothing that names the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        # How many other processes wanted the cores as the run began. A real-time run has
        # precedence over them.
        "load": round(os.getloadavg()[0], 1),
        "real_time": os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR),
        "memory_gb": round(memory / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
        "java": find_java().version,
        "hudi": BUNDLE,
        "packages": {name: version(name) for name in PACKAGES},
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
