"""Bars 15 and 44: how much disk space an installation takes, and what a smaller one costs."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
from pathlib import Path

from bench.ground import FULL_TEXT, Ground
from bench.measures import Measure, Outcome, rounded

PROJECT = Path(__file__).parent.parent
#: What `pip install lakewake` installed until it became a package that searches, with extras.
FORMERLY = (
    *("click", "fastavro", "httpx", "numpy", "onnx", "onnxruntime", "pyarrow", "pylance"),
    *("pyspark", "pystemmer", "rich", "safetensors", "semantic-text-splitter", "setuptools"),
    "tokenizers",
)


def bar_15(ground: Ground) -> Outcome:
    """A fresh environment with Lakewake and Spark, and the hand-written stack's."""
    if not ground.peer:
        return Outcome((Measure("of the hand-written stack", None, "≤", 0.25),))
    ours = _fresh_environment(ground, "installed", f"{PROJECT}[spark]")
    # Not resolved: a virtual environment's Python is a link to a path outside it.
    theirs = ground.peer.absolute().parent.parent
    packages = _packages(theirs)
    nvidia = sum(size for name, size in packages.items() if name in ("nvidia", "triton"))
    sizes = (disk_usage(ours), disk_usage(theirs))
    return Outcome(
        (Measure("of the hand-written stack", sizes[0] / sizes[1], "≤", 0.25),),
        {
            "bytes": sizes[0],
            "hand_written_bytes": sizes[1],
            "hand_written_bytes_for_graphics_cards": nvidia,
            "largest": _largest(_packages(ours)),
            "hand_written_largest": _largest(packages),
        },
    )


def bar_44(ground: Ground) -> Outcome:
    """`pip install lakewake` beside all that it installed formerly: its size, a cold search."""
    formerly = _fresh_environment(ground, "formerly", *FORMERLY, f"{PROJECT}[spark]")
    now = _fresh_environment(ground, "search-only", str(PROJECT))
    sizes = disk_usage(now), disk_usage(formerly)
    found = ground.followed("installed", ground.wines(ground.sizes.search_rows // 100), FULL_TEXT)
    found.sync()
    seconds: dict[str, list[float]] = {"now": [], "formerly": []}
    # The first round brings the files into memory.
    for n in range(2 * max(2, ground.sizes.rounds) + 1):
        for name, environment in (("now", now), ("formerly", formerly)):
            took, _ = ground.run(
                [str(environment / "bin" / "lakewake"), "search", found.name,
                 "smoky red with leather", "--config", str(found.config), "--json"]
            )  # fmt: skip
            if n:
                seconds[name].append(took)
    medians = {name: statistics.median(took) for name, took in seconds.items()}
    return Outcome(
        (
            Measure("of the former size", sizes[0] / sizes[1], "≤", 0.5),
            Measure("cold search, of the former", medians["now"] / medians["formerly"], "≤", 1.0),
        ),
        {
            "bytes": sizes[0],
            "former_bytes": sizes[1],
            "largest": _largest(_packages(now)),
            **{name: rounded(took) for name, took in seconds.items()},
        },
    )


def _fresh_environment(ground: Ground, name: str, *packages: str) -> Path:
    folder = ground.scratch / name
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        raise RuntimeError("uv was not found; `make setup` installs it")
    ground.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)])
    constraints = str(PROJECT / "constraints.txt")
    python = str(folder / "bin" / "python")
    ground.run(
        # Copied, so that all files count, not only those that are not shared with uv's cache.
        # Compiled, as the peer's environment is.
        [uv, "pip", "install", "--quiet", "--compile-bytecode", "--link-mode", "copy",
         "--python", python, "--constraint", constraints, *packages]
    )  # fmt: skip
    return folder


def disk_usage(folder: Path) -> int:
    """Bytes of all files under a folder, links not followed."""
    return sum(p.lstat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def _packages(environment: Path) -> dict[str, int]:
    found = next(environment.glob("lib/python*/site-packages"))
    return {p.name: disk_usage(p) for p in found.iterdir() if p.is_dir()}


def _largest(packages: dict[str, int], n: int = 6) -> dict[str, int]:
    return dict(sorted(packages.items(), key=lambda item: -item[1])[:n])
