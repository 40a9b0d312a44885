"""A CSV shaped like winemag-data-130k-v2.csv, with what is hard in the real one.

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
#: How many rows there are for each one of the sample.
COPIES = 5


def write_wine_csv(file: Path, rows: int) -> Path:
    """Write that many reviews: of each wine one, its repetition, and three that are like it."""
    reviews = []
    for wine in wines(rows // COPIES + 1).to_pylist():
        text = wine["description"]
        reviews += [
            wine,
            wine,
            {**wine, "description": text.upper()},
            {**wine, "description": text.replace(". ", '.\n"', 1).replace(", ", ',"" ', 1)},
            # A title of few words: the bare description fits this one better than the first.
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
