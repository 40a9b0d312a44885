"""Wine reviews to try Lakewake with: generated, or read from the well-known CSV of 130,000.

The columns are those of `winemag-data-130k-v2.csv` that the demo uses, plus an id and a time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakewake.errors import ConfigError
from lakewake.ingest.lines import BadLine, Row, read_csv
from lakewake.sample.words import (
    BODIES,
    CLOSINGS,
    HOUSES,
    LABELS,
    OPENINGS,
    PALATES,
    PLACES,
    STRUCTURES,
    STYLES,
    SURNAMES,
    TRAITS,
    VERDICTS,
    Style,
)

SCHEMA = pa.schema(
    [
        ("wine_id", pa.string()),
        ("country", pa.string()),
        ("province", pa.string()),
        ("variety", pa.string()),
        ("winery", pa.string()),
        ("title", pa.string()),
        ("description", pa.string()),
        ("points", pa.int64()),
        ("price", pa.float64()),
        ("ts", pa.int64()),
    ]
)
#: The columns taken from the real CSV; its first column, the row number, has no name.
CSV_COLUMNS = tuple(name for name in SCHEMA.names if name not in ("wine_id", "ts"))
ROW_NUMBER = "column_1"
_CORRECT = "correct or remove that line"

FIRST: Mapping[str, Any] = {
    "country": "Italy",
    "province": "Sicily & Sardinia",
    "variety": "White Blend",
    "winery": "Casa dell'Airone",
    "title": "Casa dell'Airone 2014 Costa del Falco White Blend (Etna)",
    "description": (
        "Smoke, wild fennel and crushed lava rock rise from the glass of this hillside white. The "
        "palate is taut and salty, with green almond, lemon pith and a streak of iodine on the "
        "finish. Pour it with grilled sardines while it is young."
    ),
    "points": 87,
    "price": 22.0,
}


def wines(n: int, seed: int = 7) -> pa.Table:
    """`n` wine reviews, the same ones for the same seed, with no two descriptions alike.

    A longer table begins with the same `n` rows; `wine_0` is always the same wine.
    """
    choose = random.Random(seed)
    rows: list[Mapping[str, Any]] = []
    seen: set[str] = set()
    while len(rows) < n:
        row = _review(choose) if rows else FIRST
        if row["description"] not in seen:
            seen.add(row["description"])
            rows.append({**row, "wine_id": f"wine_{len(rows)}", "ts": len(rows)})
    return pa.Table.from_pylist(rows, SCHEMA)


def _review(choose: random.Random) -> dict[str, Any]:
    country = choose.choices(list(PLACES), [weight for weight, _ in PLACES.values()])[0]
    province, grown = choose.choice(list(PLACES[country][1].items()))
    place, variety = choose.choice(grown.places), choose.choice(grown.varieties)
    winery = choose.choice(HOUSES[country]).format(choose.choice(SURNAMES[country]))
    points = min(98, max(80, round(choose.gauss(88.5, 3))))
    year = choose.randint(2008, 2017)
    label = choose.choice(LABELS)
    words = [winery, str(year), label, variety, f"({place})"]
    return {
        "country": country,
        "province": province,
        "variety": variety,
        "winery": winery,
        "title": " ".join(word for word in words if word),
        "description": _describe(choose, STYLES[variety], place, points, year),
        "points": points,
        "price": _price(choose, points),
    }


def _price(choose: random.Random, points: int) -> float | None:
    """Higher for a higher score; one in fourteen is unknown, as in the real data."""
    price = float(max(6, round(9 * 1.13 ** (points - 80) * choose.lognormvariate(0, 0.35))))
    return None if choose.random() < 1 / 14 else price


def _describe(choose: random.Random, style: Style, place: str, points: int, year: int) -> str:
    verdicts = VERDICTS[0 if points < 87 else 1 if points < 92 else 2]
    templates = (OPENINGS, PALATES, verdicts, CLOSINGS)
    fruits, notes = choose.sample(style.fruits, 3), choose.sample(style.notes, 3)
    body, structure = choose.choice(BODIES[style.color]), choose.choice(STRUCTURES[style.color])
    words = {
        "color": style.color,
        "place": place,
        "fruit": fruits[0],
        "Fruit": fruits[0][0].upper() + fruits[0][1:],
        "fruit2": fruits[1],
        "fruit3": fruits[2],
        "note": notes[0],
        "note2": notes[1],
        "note3": notes[2],
        "body": body,
        "Body": body.capitalize(),
        "structure": structure,
        "draw": "draw out" if structure.endswith("s") else "draws out",
        "trait": choose.choice(TRAITS),
        "food": choose.choice(style.food),
        "until": year + choose.randint(5, 9) + (points - 80) // 2,
    }
    sentences = [choose.choice(part).format_map(words) for part in templates]
    return " ".join(sentence for sentence in sentences if sentence)


def read_wine_csv(path: str | Path, rows: int | None = None) -> pa.Table:
    """The first `rows` reviews of the real CSV (None: all), with the columns of `wines`.

    The unnamed first column is the row number; id and time are made from it.

    Raises:
        ConfigError: there is no such file, or a line of it is not a review.
    """
    file = Path(path).expanduser()
    reviews: list[dict[str, Any]] = []
    seen: set[int] = set()
    for row in read_csv(file):
        if rows is not None and len(reviews) >= rows:
            break
        if isinstance(row, BadLine):
            raise ConfigError(f"{file} line {row.line}: {row.reason}", hint=_CORRECT)
        review = _read_review(file, row)
        if review["ts"] in seen:
            raise ConfigError(
                f"{file} line {row.line}: row number {review['ts']} occurs twice", hint=_CORRECT
            )
        seen.add(review["ts"])
        reviews.append(review)
    return pa.Table.from_pylist(reviews, SCHEMA)


def _read_review(file: Path, row: Row) -> dict[str, Any]:
    values = row.values
    lacking = [c for c in (ROW_NUMBER, *CSV_COLUMNS) if c not in values]
    if lacking:
        raise ConfigError(
            f"{file} is not the wine-review CSV: it has no column {', '.join(lacking)}",
            hint="use the file winemag-data-130k-v2.csv; its first column has no name",
        )
    try:
        numbers = {
            "ts": int(values[ROW_NUMBER] or ""),
            "points": int(values["points"] or ""),
            "price": float(values["price"]) if values["price"] else None,
        }
    except ValueError as error:
        raise ConfigError(f"{file} line {row.line}: {error}", hint=_CORRECT) from error
    if not (values["title"] or values["description"]):
        fact = f"{file} line {row.line}: neither a title nor a description"
        raise ConfigError(fact, hint=_CORRECT)
    country = values["country"] or "Unknown"
    review = {c: values[c] for c in CSV_COLUMNS}
    return {**review, **numbers, "country": country, "wine_id": f"wine_{numbers['ts']}"}
