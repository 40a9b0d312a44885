"""Draws the pictures in the README from the JSON of a run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS, THEIRS, LIMIT = "#1f77b4", "#b0b0b0", "#d62728"
LABELS = {"small": "table of just its partition", "large": "large table"}


def draw(folder: Path, bars: list[dict[str, Any]]) -> None:
    """One PNG for each picture whose bar was run."""
    seen = {bar["bar"]: bar for bar in bars if bar["verdict"] != "failed"}
    pictures = {
        "bars": (_bars, bars if seen else None),
        "one_row": (_one_row, seen if 5 in seen else None),
        "table_size": (_table_size, seen.get(2)),
        "search": (_search, seen.get(10)),
        "memory": (_memory, seen.get(12)),
        "streaming": (_streaming, seen.get(26)),
        "recall": (_recall, seen.get(33)),
    }
    for name, (picture, content) in pictures.items():
        if content is not None:
            _save(folder / f"{name}.png", picture, content)


def _save(file: Path, picture: Any, content: Any) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    picture(axes, content)
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


def _bars(axes: Axes, bars: list[dict[str, Any]]) -> None:
    """The share of each limit that is used: left of the line, the bar is met."""
    names, used = [], []
    for bar in bars:
        for measure in bar["measures"]:
            value, limit = measure["value"], measure["limit"]
            if value and limit:
                names.append(f"{bar['bar']}: {measure['what']}")
                used.append(value / limit if measure["bound"] == "≤" else limit / value)
    axes.barh(names, used, color=[OURS if u <= 1 else LIMIT for u in used])
    axes.axvline(1, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.tick_params(axis="y", labelsize=6)
    axes.set_xlabel("share of the limit (left of the line: met)")


def _one_row(axes: Axes, seen: Mapping[int, dict[str, Any]]) -> None:
    cold = seen[5]["seen"]
    # Only if both are of the same run: seconds of two machines cannot be compared.
    watched = seen[4]["seen"]["found_after"] if 4 in seen and _same_run(seen[4], seen[5]) else []
    times = {
        "nightly rebuild": cold["nightly_rebuild"],
        "hand-written sync": _median(cold["hand_written"]),
        "lakewake sync": _median(cold["lakewake_sync"]),
        "lakewake sync --watch": _median(watched),
    }
    shown = {name: t for name, t in times.items() if t is not None}
    bars = axes.barh(list(shown), list(shown.values()), color=[_side(name) for name in shown])
    axes.bar_label(bars, fmt="%.1f s", padding=3)
    axes.invert_yaxis()
    axes.set_xlabel(f"seconds until one changed row of {cold['rows_in_table']:,} is in the index")


def _same_run(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(one["run"]["began"] == other["run"]["began"])


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def _side(name: str) -> str:
    return OURS if name.startswith("lakewake") else THEIRS


def _table_size(axes: Axes, bar: Mapping[str, Any]) -> None:
    kinds = list(bar["seen"])
    for offset, (side, color) in enumerate((("small", THEIRS), ("large", OURS))):
        heights = [statistics.median(bar["seen"][kind][side]) for kind in kinds]
        positions = [n + offset * 0.4 for n in range(len(kinds))]
        bars = axes.bar(positions, heights, 0.38, color=color, label=LABELS[side])
        axes.bar_label(bars, fmt="%.2f")
    axes.set_xticks([n + 0.2 for n in range(len(kinds))], kinds)
    axes.set_ylabel("seconds to follow the same change")
    axes.legend(frameon=False)


def _search(axes: Axes, bar: Mapping[str, Any]) -> None:
    curve = bar["seen"]["curve"]
    commits = [p["commits"] for p in curve]
    axes.plot(commits, [p["median_ms"] for p in curve], color=OURS, marker="o")
    axes.axhline(1.5 * curve[0]["median_ms"], color=LIMIT, linestyle="--", label="1.5 × before")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("one-row commits followed")
    axes.set_ylabel("median search, ms")
    files = axes.twinx()
    files.plot(commits, [p["files"] for p in curve], color=THEIRS, marker=".")
    files.set_ylim(bottom=0)
    files.set_ylabel("files of the index")
    axes.legend(frameon=False)


def _memory(axes: Axes, bar: Mapping[str, Any]) -> None:
    for (rows, series), color in zip(bar["seen"]["series"].items(), (THEIRS, OURS), strict=True):
        axes.plot(*zip(*series, strict=True), color=color, label=f"{int(rows):,} rows")
    axes.axhline(6, color=LIMIT, linestyle="--", label="bar")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("driver + JVM + workers, GB")
    axes.legend(frameon=False)


def _streaming(axes: Axes, bar: Mapping[str, Any]) -> None:
    curve = bar["seen"]["curve"]
    steps = [point["step"] for point in curve]
    limits = {m["what"].rpartition(" ")[2]: m["limit"] for m in bar["measures"][::2]}
    for name, color in (("lance", OURS), ("lake", "#2ca02c")):
        axes.plot(steps, [p[name]["recall"] for p in curve], color=color, marker="o", label=name)
        label = f"promised, {name}"
        axes.axhline(limits[name], color=color, linestyle="--", linewidth=1, label=label)
    axes.set_ylim(0.9, 1.005)
    axes.set_xlabel("steps of the runbook: insert, delete, replace")
    axes.set_ylabel("recall@10")
    axes.legend(frameon=False)


def _recall(axes: Axes, bar: Mapping[str, Any]) -> None:
    """Recall against questions a second, one after the other; up and to the right is better."""
    seen = bar["seen"]
    families = {"cells alone": seen["curve"], "pgvector": list(seen["pgvector"].values())}
    for name in ("hnswlib", "usearch f16"):
        families[name] = [w for way, w in seen["in_memory"].items() if way.startswith(name)]
    colors = dict(zip(families, (OURS, "#2ca02c", "#9467bd", "#ff7f0e"), strict=True))
    for name, ways in families.items():
        points = sorted((way["recall"], 1000 / way["median"]) for way in ways)
        if points:
            axes.plot(*zip(*points, strict=True), color=colors[name], marker="o", label=name)
    median = next(m for m in bar["measures"] if m["what"] == "median")["value"]
    found = next(m for m in bar["measures"] if m["what"] == "recall@10")["value"]
    axes.plot([found], [1000 / median], color=OURS, marker="*", markersize=12, linestyle="")
    axes.annotate("lakewake, with text and payload", (found, 1000 / median), ha="right", va="top")
    axes.set_yscale("log")
    axes.set_xlabel("recall@10")
    axes.set_ylabel("questions a second, one client")
    axes.legend(frameon=False)
