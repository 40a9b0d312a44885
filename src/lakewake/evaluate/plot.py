"""Draws an evaluation as SVG: the mean of each metric and mode, with its interval. Pure."""

from __future__ import annotations

from html import escape

from lakewake.evaluate.metrics import METRICS
from lakewake.model.evaluation import Evaluation, Mean

_LEFT, _WIDTH, _LINE, _TOP = 150, 420, 26, 46
#: Legible on a light and on a dark background.
_INK, _DOT, _GRID = "#6b7280", "#2f7ed8", "#9ca3af"


def as_svg(one: Evaluation) -> str:
    """The evaluation as a picture."""
    rows = [(f"{name}  {mode}", one.means[mode][name]) for name in METRICS for mode in one.means]
    height = _TOP + _LINE * len(rows) + 36
    title = f"{one.index}: {len(one.questions):,} questions, table at {one.instant}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 90}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        _text(10, 22, title, "start", 15),
        *(_scale(n / 5, height) for n in range(6)),
        *(_row(n, label, mean) for n, (label, mean) in enumerate(rows)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _row(n: int, label: str, mean: Mean) -> str:
    y = _TOP + _LINE * n + _LINE // 2
    return (
        _text(_LEFT - 12, y + 5, label, "end")
        + f'<line x1="{_x(mean.low)}" x2="{_x(mean.high)}" y1="{y}" y2="{y}" stroke="{_DOT}" '
        'stroke-width="3"/>'
        + f'<circle cx="{_x(mean.value)}" cy="{y}" r="5" fill="{_DOT}"/>'
        + _text(_LEFT + _WIDTH + 14, y + 5, f"{mean.value:.3f}", "start")
    )


def _scale(value: float, height: int) -> str:
    x = _x(value)
    return (
        f'<line x1="{x}" x2="{x}" y1="{_TOP - 8}" y2="{height - 28}" stroke="{_GRID}" '
        'stroke-opacity="0.4"/>' + _text(x, height - 10, f"{value:.1f}", "middle")
    )


def _x(value: float) -> float:
    return round(_LEFT + _WIDTH * min(max(value, 0.0), 1.0), 1)


def _text(x: float, y: float, text: str, anchor: str, size: int = 13) -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{_INK}">'
        f"{escape(text)}</text>"
    )
