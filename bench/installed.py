"""Bar 15: how much disk space an installation takes."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from bench.ground import Ground
from bench.measures import Measure, Outcome

PROJECT = Path(__file__).parent.parent


def bar_15(ground: Ground) -> Outcome:
    """A fresh environment with Lakewake and its default extras, and the hand-written stack's."""
    if not ground.peer:
        return Outcome((Measure("of the hand-written stack", None, "≤", 0.25),))
    ours = _fresh_environment(ground)
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


def _fresh_environment(ground: Ground) -> Path:
    folder = ground.scratch / "installed"
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        raise RuntimeError("uv was not found; `make setup` installs it")
    ground.run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
    constraints = str(PROJECT / "constraints.txt")
    python = str(folder / "bin" / "python")
    ground.run(
        # Copied, so that all files count, not only those that are not shared with uv's cache.
        # Compiled, as the peer's environment is.
        [uv, "pip", "install", "--quiet", "--compile-bytecode", "--link-mode", "copy",
         "--python", python, "--constraint", constraints, str(PROJECT)]
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
