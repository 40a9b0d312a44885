"""What `as_dict` returns, in one line, as `print` shows it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lakewake.show.plain import count, duration, json_value, moment, spelled_out

#: The most characters of a line and of one value in it, and how many hits it names.
LONGEST, VALUE, NAMED = 400, 80, 3


def one_line(report: Mapping[str, Any]) -> str:
    """The line that fits the object's keys; if none does, the values that are short."""
    words = next((view for key, view in LINES if key in report), _anything)(report)
    # Values come from tables: none of them ends the line or hides in it.
    return _cut(spelled_out(words), LONGEST)


def _answer(report: Mapping[str, Any]) -> str:
    hits = report["hits"]
    name = report.get("index") or report.get("query", "")
    best = ", ".join(f"{_cut(hit['key'])} {hit['score']:.3f}" for hit in hits[:NAMED])
    rest = ", …" if len(hits) > NAMED else ""
    found = f"{count(len(hits), 'row')} at {moment(report['instant'])}"
    if message := report.get("message"):
        return f"{_cut(name)}: {report['answered_by']}, {found}: {message}"
    return f"{_cut(name)}: {found}" + (f": {best}{rest}" if best else "")


def _sync(report: Mapping[str, Any]) -> str:
    head = f"{report['index']}: {report['action']}"
    if error := report.get("error"):
        return f"{head}: {error}"
    if report["action"] == "nothing" and not report["embedded"]:
        return f"{head}: {report['why']}"
    names = ("rows_changed", "rows_deleted", "embedded", "reused")
    parts = [f"{report[name]:,} {name.replace('_', ' ')}" for name in names]
    if report["quarantined"]:
        parts.append(f"{report['quarantined']:,} quarantined")
    took = duration(report["seconds"].get("total", 0.0))
    return f"{head}, {', '.join(parts)}, in {took}, table at {moment(report['to_instant'])}"


def _plan(report: Mapping[str, Any]) -> str:
    head = f"{report['index']}: {report['action']} is next"
    if report["action"] == "nothing":
        return f"{head}: {report['why']}"
    names = ("rows_changed", "rows_deleted", "to_embed", "reused")
    parts = ", ".join(f"{report[name]:,} {name.replace('_', ' ')}" for name in names)
    return f"{head}, {count(len(report['pending']), 'commit')}, {parts}: {report['why']}"


def _status(report: Mapping[str, Any]) -> str:
    if not report["built"]:
        return f"{report['index']}: not built yet"
    behind = f"{count(report['lag_commits'], 'commit')} behind, {duration(report['lag_seconds'])}"
    state = "in step" if report["in_step"] else behind
    held = f"{count(report['rows'], 'row')}, {count(report['chunks'], 'chunk')}"
    return f"{report['index']}: {state}, {held}, table at {moment(report['newest_instant'])}"


def _verify(report: Mapping[str, Any]) -> str:
    faults = ("missing", "orphaned", "stale")
    found = ", ".join(f"{report[f'{fault}_count']:,} {fault}" for fault in faults)
    if report["wrong_model"]:
        found += f", {report['wrong_model']:,} of another model"
    state = "agrees with its table" if report["agrees"] else f"differs: {found}"
    return f"{report['index']}: {state}, {count(report['rows'], 'row')} at " + moment(
        report["instant"]
    )


def _history(report: Mapping[str, Any]) -> str:
    records = report["history"]
    newest = f", the last one {records[0]['time']}: {one_line(records[0])}" if records else ""
    return f"{count(len(records), 'sync')}{newest}"


def _anything(report: Mapping[str, Any]) -> str:
    plain = {name: json_value(value) for name, value in report.items()}
    short = {
        n: v for n, v in plain.items() if not isinstance(v, (dict, list)) and v not in ("", None)
    }
    return ", ".join(
        f"{name.replace('_', ' ')} {_cut(str(value))}" for name, value in short.items()
    )


#: The first key that an object has decides how it reads.
LINES: tuple[tuple[str, Callable[[Mapping[str, Any]], str]], ...] = (
    ("history", _history),
    ("hits", _answer),
    ("seconds", _sync),
    ("to_embed", _plan),
    ("in_step", _status),
    ("agrees", _verify),
)


def _cut(text: str, most: int = VALUE) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
