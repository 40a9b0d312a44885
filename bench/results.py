"""What a run leaves behind: one JSON for each bar, and a Markdown table of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.bars import BARS, Bar
from bench.measures import Outcome, number

HEAD = """\
# Benchmark results

Written by `make bench`. Each line comes from one run on one machine, with the two sides measured in
turn. Trust the ratios more than the seconds, and do not compare lines of different runs. The range
covers the last runs of the same bar, on any processor. All figures are in the bar's JSON file.

"""
#: Runs of a bar that are kept beside the newest.
EARLIER = 9


def write_bar(folder: Path, bar: Bar, outcome: Outcome, run: Mapping[str, Any]) -> None:
    """Keep one bar's outcome, with the run it is of and what earlier runs reached."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"bar{bar.number:02}.json"
    content = {
        "bar": bar.number,
        "what": bar.what,
        "verdict": outcome.verdict,
        "said": outcome.as_text(),
        "measures": [m.as_dict() for m in outcome.measures],
        "seen": outcome.seen,
        "fault": outcome.fault,
        "run": run,
        "earlier": earlier_runs(json.loads(file.read_text())) if file.is_file() else [],
    }
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def earlier_runs(newest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is kept of the runs up to this one, once there is another."""
    kept = {
        "began": newest["run"]["began"],
        "processor": newest["run"]["machine"]["processor"],
        "verdict": newest["verdict"],
        "values": {m["what"]: m["value"] for m in newest["measures"]},
    }
    return [*newest.get("earlier", []), kept][-EARLIER:]


def read_bars(folder: Path) -> list[dict[str, Any]]:
    """All bars that a folder holds, in their order."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob("bar*.json"))]


def write_table(folder: Path) -> None:
    """The Markdown table of all bars that the folder holds."""
    bars = read_bars(folder)
    (folder / "README.md").write_text(HEAD + _table(bars) + _runs(bars))


def _table(bars: list[dict[str, Any]]) -> str:
    lines = [
        "| bar | what | reached (bar) | over its runs | verdict | run | repeat |",
        "|---|---|---|---|---|---|---|",
    ]
    for bar in bars:
        lines.append(
            f"| {bar['bar']} | {BARS[bar['bar']].what} | {_reached(bar)} | {_over_runs(bar)} "
            f"| {bar['verdict']} | {bar['run']['began']}, {bar['run']['machine']['processor']} "
            f"| `make bench BARS={bar['bar']}` |"
        )
    return "\n".join(lines) + "\n"


def _reached(bar: dict[str, Any]) -> str:
    said = [f"{measure['what']}: {measure['said']}" for measure in bar["measures"]]
    return bar["fault"].replace("|", " ").replace("\n", " ") or "<br>".join(said)


def _over_runs(bar: dict[str, Any]) -> str:
    """`0.15–0.2 (3 runs)` for each measure; empty after a single run."""
    runs = earlier_runs(bar)
    if len(runs) < 2:
        return ""
    ranges = []
    for measure in bar["measures"]:
        values = [v for r in runs if (v := r["values"].get(measure["what"])) is not None]
        if values:
            ranges.append(f"{number(min(values))}–{number(max(values))} ({len(values)} runs)")
    return "<br>".join(ranges)


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
