"""What a run leaves behind: one JSON for each bar, and a Markdown table of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.bars import BARS, Bar
from bench.measures import Outcome

HEAD = """\
# Benchmark results

Written by `make bench`. Ratios are of one run on one machine, the two sides in turns: trust them
more than the seconds. All figures behind a line are in its JSON.

"""


def write_bar(folder: Path, bar: Bar, outcome: Outcome, run: Mapping[str, Any]) -> None:
    """Keep one bar's outcome, with the run it is of."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "bar": bar.number,
        "what": bar.what,
        "verdict": outcome.verdict,
        "said": outcome.as_text(),
        "measures": [m.as_dict() for m in outcome.measures],
        "seen": outcome.seen,
        "fault": outcome.fault,
        "run": run,
    }
    file = folder / f"bar{bar.number:02}.json"
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def read_bars(folder: Path) -> list[dict[str, Any]]:
    """All bars that a folder holds, in their order."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob("bar*.json"))]


def write_table(folder: Path) -> None:
    """The Markdown table of all bars that the folder holds."""
    bars = read_bars(folder)
    (folder / "README.md").write_text(HEAD + _table(bars) + _runs(bars))


def _table(bars: list[dict[str, Any]]) -> str:
    lines = ["| bar | what | reached (bar) | verdict | repeat |", "|---|---|---|---|---|"]
    for bar in bars:
        number = bar["bar"]
        lines.append(
            f"| {number} | {BARS[number].what} | {_reached(bar)} | {bar['verdict']} "
            f"| `make bench BARS={number}` |"
        )
    return "\n".join(lines) + "\n"


def _reached(bar: dict[str, Any]) -> str:
    said = [f"{measure['what']}: {measure['said']}" for measure in bar["measures"]]
    return bar["fault"].replace("|", " ").replace("\n", " ") or "<br>".join(said)


def _runs(bars: list[dict[str, Any]]) -> str:
    """The machines and sizes that the table speaks of."""
    seen: dict[str, list[int]] = {}
    for bar in bars:
        seen.setdefault(_run(bar["run"]), []).append(bar["bar"])
    return "".join(
        f"\nBars {', '.join(map(str, numbers))}: {run}\n" for run, numbers in seen.items()
    )


def _run(run: Mapping[str, Any]) -> str:
    machine = run["machine"]
    packages = ", ".join(f"{name} {v}" for name, v in machine["packages"].items())
    small = "" if run["size"] == "full" else f" **Size {run['size']}: only shows that it runs.**"
    return (
        f"run of {run['began']}, {machine['cores']} cores of {machine['processor']}, "
        f"{machine['memory_gb']} GB, {machine['system']}, Python {machine['python']}, "
        f"Java {machine['java']}, {machine['hudi']}, {packages}.{small}"
    )
