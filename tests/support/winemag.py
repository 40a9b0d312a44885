"""A CSV shaped like winemag-data-130k-v2.csv, with the difficulties of the real one.

Its first column has no name; fields hold quotes, commas and line breaks; some prices, countries,
designations and tasters are empty; reviews are repeated under other numbers; descriptions are
nearly equal, down to the case of a letter; and the description of the very first wine fits another
wine better than its own.
"""

from __future__ import annotations

import csv
from pathlib import Path

from lakewake.sample import wines

HEADER = (
    *("", "country", "description", "designation", "points", "price", "province", "region_1"),
    *("region_2", "taster_name", "taster_twitter_handle", "title", "variety", "winery"),
)
#: Rows for each row of the sample.
COPIES = 5


def write_wine_csv(file: Path, rows: int) -> Path:
    """Write this many reviews: for each wine one, its repetition, and three similar ones."""
    reviews = []
    for wine in wines(rows // COPIES + 1).to_pylist():
        text = wine["description"]
        reviews += [
            wine,
            wine,
            {**wine, "description": text.upper()},
            {**wine, "description": text.replace(". ", '.\n"', 1).replace(", ", ',"" ', 1)},
            # A short title: the bare description fits this wine better than the first.
            {**wine, "title": text.split()[0], "price": None, "country": None},
        ]
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(HEADER)
        for n, review in enumerate(reviews[:rows]):
            known = {"": n, "designation": 'Réserve, "vieilles\nvignes"' if n % 3 else ""}
            said = {**review, **known, "taster_name": "Kerin O’Keefe" if n % 2 else ""}
            writer.writerow(["" if said.get(c) is None else said[c] for c in HEADER])
    return file
