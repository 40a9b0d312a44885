"""What `as_dict` returns, as HTML for a notebook's cell.

There are no scripts and no style sheet, and nothing is fetched. Styles are in the elements, so that
nothing leaks into other cells. Colours are translucent, so that they fit a light and a dark page.
Every text is escaped; text of a table is never interpreted as HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from lakewake.show.plain import count, duration, json_value, moment

#: How many hits or row ids are shown; the rest is counted.
SHOWN = 50
#: Characters of a hit's text, and of its key or a payload value.
TEXT, VALUE = 5_000, 500
GOOD, BAD, PLAIN = "46,160,67", "218,54,51", "128,128,128"

_LINE = "1px solid rgba(128,128,128,.35)"
_FRAME = f"font-size:13px;line-height:1.45;border:{_LINE};border-radius:6px;padding:10px 14px"
_BADGE = "border-radius:9px;padding:1px 8px;margin-left:6px;background:rgba({},.22)"
_TILE = "display:inline-block;margin:0 18px 4px 0"
_CHIP = f"display:inline-block;border:{_LINE};border-radius:4px;padding:0 5px;margin:2px 4px 0 0"
_TEXT = "white-space:pre-wrap;overflow-wrap:anywhere;max-height:12em;overflow:auto"
_MARK = "background:rgba(255,196,0,.35);color:inherit"
_BAR = "display:inline-block;height:8px;border-radius:2px;background:rgba(56,139,253,.6)"
# On a page without a doctype, browsers give tables their own colours and sizes.
_TABLE = "border-collapse:collapse;margin:4px 0;font:inherit;color:inherit"
_CELL = "text-align:left;vertical-align:top;padding:1px 14px 1px 0;background:none"
_DIM = "opacity:.7"
_HIT = f"margin:8px 0;padding-top:6px;border-top:{_LINE}"

Html = str


def render(report: Mapping[str, Any]) -> Html:
    """The view that fits the object's keys; if none does, one that lists them all."""
    view = next((view for key, view in VIEWS if key in report), _anything)
    # No child may be wider than the cell, whatever a table holds.
    return _element("div", view(report), f"{_FRAME};max-width:70em;overflow:auto", "lakewake")


def _answer(report: Mapping[str, Any]) -> Html:
    hits: Sequence[Mapping[str, Any]] = report["hits"]
    name = report.get("index") or report.get("query", "")
    head = _head(name, count(len(hits), "row"), PLAIN, f"table at {moment(report['instant'])}")
    text = report.get("message")
    message = _element("p", escape(text), f"{_TEXT};margin:4px 0 8px") if text else ""
    rest = _dim(f"and {len(hits) - SHOWN:,} more") if len(hits) > SHOWN else ""
    facts = _facts(_present(report, "answered_by", "reason", "fallback"))
    scores = [hit["score"] for hit in hits]
    shown = "".join(_hit(rank, hit, scores) for rank, hit in enumerate(hits[:SHOWN], start=1))
    return head + message + facts + shown + rest


def _share(score: float, scores: Sequence[float]) -> float:
    """How long the bar of a score is, beside that of the best; distances are negative scores."""
    if max(scores) < 0:
        return max(scores) / score
    best = max(map(abs, scores))
    return abs(score) / best if best else 0.0


def _hit(rank: int, hit: Mapping[str, Any], scores: Sequence[float]) -> Html:
    share = _share(hit["score"], scores)
    bar = _element("span", "", f"{_BAR};width:{round(60 * share)}px;margin-right:6px")
    place = f" in {hit['partition']}" if hit["partition"] else ""
    head = f"{rank}. {bar}{hit['score']:.4f} {_strong(_cut(hit['key']))}{_dim(_cut(place))}"
    chips = "".join(
        _element("span", f"{_dim(f'{column} ')}{escape(_cut(_shown(value)))}", _CHIP)
        for column, value in hit["payload"].items()
        if value is not None
    )
    text = _element("div", _marked(hit["text"] or "", hit.get("highlight")), _TEXT)
    return _element("div", f"<div>{head}</div>{text}<div>{chips}</div>", _HIT)


def _marked(text: str, highlight: Sequence[int] | None) -> Html:
    """The text around its best sentence. Not all of it: a notebook stores what it shows."""
    start, end = highlight or (0, 0)
    first = max(min(start - TEXT // 4, len(text) - TEXT), 0)
    last = first + TEXT
    before, after = "…" if first else "", "…" if last < len(text) else ""
    mark = _element("mark", escape(text[start : min(end, last)]), _MARK) if highlight else ""
    return before + escape(text[first:start]) + mark + escape(text[end:last]) + after


def _cut(text: str) -> str:
    return text if len(text) <= VALUE else text[: VALUE - 1] + "…"


def _sync(report: Mapping[str, Any]) -> Html:
    error = report.get("error")
    state, colour = ("failed", BAD) if error else (report["action"], GOOD)
    head = _head(report["index"], state, colour, duration(report["seconds"].get("total", 0.0)))
    names = ("rows_changed", "rows_deleted", "embedded", "reused", "quarantined")
    facts = [("why", report["why"]), ("error", error), *_instants(report)]
    chunks = f"{report['chunks_upserted']:,} written, {report['chunks_deleted']:,} deleted"
    facts += [("chunks", chunks), ("time", report.get("time"))]
    return head + _tiles(report, names) + _stages(report["seconds"]) + _facts(facts)


def _stages(seconds: Mapping[str, float]) -> Html:
    longest = max(seconds.values(), default=0.0)
    if not longest:
        return ""
    rows = []
    for stage, spent in seconds.items():
        if stage != "total":
            bar = _element("span", "", f"{_BAR};width:{round(160 * spent / longest)}px")
            rows.append(_row(escape(stage), f"{bar} {escape(duration(spent))}"))
    return _table(rows)


def _plan(report: Mapping[str, Any]) -> Html:
    nothing = report["action"] == "nothing"
    head = _head(report["index"], report["action"], GOOD if nothing else PLAIN, "the next sync")
    names = ("rows_changed", "rows_deleted", "to_embed", "reused")
    pending = ("pending", count(len(report["pending"]), "commit"))
    return (
        head + _tiles(report, names) + _facts([("why", report["why"]), *_instants(report), pending])
    )


def _status(report: Mapping[str, Any]) -> Html:
    lag = f"{count(report['lag_commits'], 'commit')} behind, {duration(report['lag_seconds'])}"
    behind = (
        "not built yet" if not report["built"] else lag if report["lag_commits"] else "out of step"
    )
    state = ("in step", GOOD) if report["in_step"] else (behind, BAD)
    head = _head(report["index"], *state, f"table at {moment(report['newest_instant'])}")
    names = ("rows", "chunks", "generation", "quarantined", "duplicates")
    model = " ".join(str(report["model"].get(k, "")) for k in ("name", "precision")).strip()
    facts = [
        ("index at", moment(report["instant"])),
        ("table", report["table"]),
        ("index", report["store"]),
        ("model", model),
        *_present(report, "freshness_limit", "fresh", "where", "date", "limit"),
        ("next sync", f"{report['would']}: {report['why']}"),
    ]
    return head + _tiles(report, names) + _facts(facts)


def _verify(report: Mapping[str, Any]) -> Html:
    state = ("agrees with its table", GOOD) if report["agrees"] else ("differs", BAD)
    head = _head(report["index"], *state, f"at {moment(report['instant'])}")
    faults = ("missing", "orphaned", "stale", "duplicated")
    names = ("rows", "chunks", "pending", "quarantined", "wrong_model", "vectors_checked")
    counted = {fault: report[f"{fault}_count"] for fault in faults}
    tiles = _tiles({**report, **counted}, (*names, "repaired", *faults))
    return head + tiles + _facts([(f, _ids(report[f], report[f"{f}_count"])) for f in faults])


def _history(report: Mapping[str, Any]) -> Html:
    records: Sequence[Mapping[str, Any]] = report["history"]
    longest = max((r["seconds"].get("total", 0.0) for r in records), default=0.0) or 1.0
    heads = ("when (UTC)", "action", "changed", "deleted", "embedded", "reused", "took", "why")
    rows = [_row(*map(_dim, heads)), *(_record(r, longest) for r in records[:SHOWN])]
    rest = _dim(f"and {len(records) - SHOWN:,} more") if len(records) > SHOWN else ""
    name = records[0]["index"] if records else "history"
    failed = sum(record["error"] is not None for record in records)
    state = (f"{failed:,} failed", BAD) if failed else ("no failures", GOOD)
    return _head(name, *state, count(len(records), "sync")) + _table(rows) + rest


def _record(record: Mapping[str, Any], longest: float) -> Html:
    took = record["seconds"].get("total", 0.0)
    bar = _element("span", "", f"{_BAR};width:{round(60 * took / longest)}px;margin-right:6px")
    names = ("rows_changed", "rows_deleted", "embedded", "reused")
    return _row(
        escape(record["time"][:19].replace("T", " ")),
        escape(record["action"]),
        *(f"{record[name]:,}" for name in names),
        f"{bar}{escape(duration(took))}",
        escape(_cut(record["error"] or record["why"])),
    )


def _ids(rows: Sequence[Mapping[str, str]], total: int) -> str:
    named = [f"{r['partition']}/{r['key']}" if r["partition"] else r["key"] for r in rows[:SHOWN]]
    return ", ".join(named) + (f" and {total - len(named):,} more" if total > len(named) else "")


def _anything(report: Mapping[str, Any]) -> Html:
    return _facts([(key, _shown(value)) for key, value in report.items()])


#: The first key that an object has decides how it is shown.
VIEWS: tuple[tuple[str, Callable[[Mapping[str, Any]], Html]], ...] = (
    ("history", _history),
    ("hits", _answer),
    ("seconds", _sync),
    ("to_embed", _plan),
    ("in_step", _status),
    ("agrees", _verify),
)


def _instants(report: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [("from", moment(report["from_instant"])), ("to", moment(report["to_instant"]))]


def _present(report: Mapping[str, Any], *names: str) -> list[tuple[str, Any]]:
    return [(_words(name), report.get(name)) for name in names]


def _head(name: str, state: str, colour: str, beside: str) -> Html:
    badge = _element("span", escape(state), _BADGE.format(colour))
    return f"<div>{_strong(name)}{badge} {_dim(beside)}</div>"


def _tiles(report: Mapping[str, Any], names: Iterable[str]) -> Html:
    tiles = (
        _element("span", f"{_strong(f'{report[name]:,}')} {_dim(_words(name))}", _TILE)
        for name in names
    )
    return _element("div", "".join(tiles), "margin:6px 0")


def _facts(facts: Iterable[tuple[str, Any]]) -> Html:
    known = [(name, value) for name, value in facts if value is not None and value != ""]
    return _table(_row(_dim(name), escape(_shown(value))) for name, value in known)


def _table(rows: Iterable[Html]) -> Html:
    inside = "".join(rows)
    return _element("table", inside, _TABLE) if inside else ""


def _row(*cells: Html) -> Html:
    return f"<tr>{''.join(_element('td', cell, _CELL) for cell in cells)}</tr>"


def _strong(text: str) -> Html:
    return _element("b", escape(text))


def _dim(text: str) -> Html:
    return _element("span", escape(text), _DIM) if text else ""


def _element(tag: str, inside: Html, style: str = "", name: str = "") -> Html:
    named = f' class="{name}"' if name else ""
    styled = f' style="{style}"' if style else ""
    # Each text gets its own direction, so that one in Arabic does not reverse its neighbours.
    return f'<{tag}{named}{styled} dir="auto">{inside}</{tag}>'


def _words(name: str) -> str:
    return name.replace("_", " ")


def _shown(value: Any) -> str:
    plain = json_value(value)
    if isinstance(plain, dict):
        return ", ".join(f"{k}: {_shown(v)}" for k, v in plain.items())
    if isinstance(plain, list):
        return ", ".join(map(_shown, plain[:SHOWN])) + ("…" if len(plain) > SHOWN else "")
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    return str(plain)
