"""Products of an outdoor shop to try Lakewake with: generated, and the same ones every time."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from lakewake.sample.shop_words import BRANDS, KINDS, MODELS, OPENINGS, PLURAL_OPENINGS, Kind

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("price", pa.float64()),
        ("stock", pa.int64()),
    ]
)


def products(n: int, seed: int = 7) -> pa.Table:
    """`n` products, the same ones for the same seed, with no two names or descriptions alike.

    A longer table begins with the same `n` rows. About one in eight is out of stock.
    """
    choose = random.Random(seed)
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    while len(rows) < n:
        row = _product(choose)
        if not seen & {row["name"], row["description"]}:
            seen |= {row["name"], row["description"]}
            rows.append({**row, "id": f"product_{len(rows)}", "ts": len(rows)})
    return pa.Table.from_pylist(rows, SCHEMA)


def _product(choose: random.Random) -> dict[str, Any]:
    # Jackets come twice as often: the demo asks for one.
    kind = KINDS[choose.choice([*KINDS, "jacket"])]
    noun = choose.choice(kind.nouns)
    low, high = kind.prices
    # Most things in a shop cost less than the middle of the range.
    price = low + (high - low) * choose.random() ** 2
    return {
        "name": f"{choose.choice(BRANDS)} {choose.choice(MODELS)} {noun}",
        "description": _describe(choose, kind, noun.lower()),
        "price": round(price) - 0.05,
        "stock": 0 if choose.random() < 1 / 8 else choose.randint(1, 60),
    }


def _describe(choose: random.Random, kind: Kind, noun: str) -> str:
    first, second = choose.sample(list(kind.traits), 2)
    article = "an" if first[0] in "aeiou" else "a"
    words = {
        "noun": noun,
        "first": first,
        "First": first[0].upper() + first[1:],
        "second": second,
        "article": "an" if noun[0] in "aeiou" else "a",
        "Article": article.capitalize(),
        "use": choose.choice(kind.uses),
    }
    plural = noun.endswith("s")
    opening = choose.choice(PLURAL_OPENINGS if plural else OPENINGS).format_map(words)
    detail = choose.choice(kind.details)
    return " ".join([opening, kind.traits[first], kind.traits[second], detail])
