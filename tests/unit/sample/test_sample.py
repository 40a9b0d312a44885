"""The sample data: generated, and read from the real CSV."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakewake.demo import choose_rows
from lakewake.errors import ConfigError
from lakewake.sample import FIRST, SCHEMA, read_wine_csv, wines
from lakewake.sample.words import PLACES, STYLES
from support.winemag import write_wine_csv

HEADER = (
    ",country,description,designation,points,price,province,region_1,region_2,taster_name,"
    "taster_twitter_handle,title,variety,winery\n"
)
REVIEW = '0,Italy,"Broom, ""brimstone""\nand herb",,87,,Sicily,Etna,,K,@k,A 2013 (Etna),White,N\n'
NOWHERE = "913,,Amber in color,,87,30.0,,,,,,Gotsa 2014,Chinuri,Gotsa\n"


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return wines(2000).to_pylist()


def csv_file(folder: Path, text: str) -> Path:
    file = folder / "winemag-data-130k-v2.csv"
    file.write_text(text)
    return file


def test_the_same_seed_makes_the_same_wines(rows: list[dict]):
    assert wines(2000).to_pylist() == rows
    assert wines(2000, seed=8).to_pylist() != rows


def test_a_shorter_sample_is_the_beginning_of_a_longer_one(rows: list[dict]):
    assert wines(100).to_pylist() == rows[:100]


def test_the_first_wine_is_always_the_same():
    for seed in (1, 2):
        (row,) = wines(1, seed=seed).to_pylist()
        assert row == {**FIRST, "wine_id": "wine_0", "ts": 0}


def test_ids_count_from_zero_and_no_description_comes_twice(rows: list[dict]):
    assert [r["wine_id"] for r in rows] == [f"wine_{n}" for n in range(2000)]
    assert len({r["description"] for r in rows}) == 2000


def test_descriptions_have_three_or_four_sentences_and_no_gap(rows: list[dict]):
    for row in rows:
        text = row["description"]
        assert 25 <= len(text.split()) <= 65
        assert 3 <= text.count(". ") + 1 <= 4
        assert text.endswith(".")
        assert "{" not in text
        assert "  " not in text


def test_each_grape_grows_where_the_wine_is_from(rows: list[dict]):
    for row in rows[1:]:
        assert row["variety"] in PLACES[row["country"]][1][row["province"]].varieties


def test_every_grape_and_country_comes_up(rows: list[dict]):
    assert {r["variety"] for r in rows[1:]} == set(STYLES)
    assert {r["country"] for r in rows} == set(PLACES)


def test_better_wines_cost_more_and_some_prices_are_unknown(rows: list[dict]):
    def mean(low: int, high: int) -> float:
        prices = [r["price"] for r in rows if low <= r["points"] < high and r["price"]]
        return sum(prices) / len(prices)

    assert mean(80, 86) < mean(86, 91) < mean(91, 99)
    assert 0.03 < sum(r["price"] is None for r in rows) / 2000 < 0.12


def test_a_sample_of_0_wines_is_an_empty_table():
    assert wines(0).num_rows == 0
    assert wines(0).schema == SCHEMA


def test_the_real_csv_is_read_with_quotes_line_breaks_and_gaps(tmp_path: Path):
    table = read_wine_csv(csv_file(tmp_path, HEADER + REVIEW + NOWHERE))
    assert table.schema == SCHEMA
    assert table.to_pylist() == [
        {
            "wine_id": "wine_0",
            "country": "Italy",
            "province": "Sicily",
            "variety": "White",
            "winery": "N",
            "title": "A 2013 (Etna)",
            "description": 'Broom, "brimstone"\nand herb',
            "points": 87,
            "price": None,
            "ts": 0,
        },
        {
            "wine_id": "wine_913",
            "country": "Unknown",
            "province": None,
            "variety": "Chinuri",
            "winery": "Gotsa",
            "title": "Gotsa 2014",
            "description": "Amber in color",
            "points": 87,
            "price": 30.0,
            "ts": 913,
        },
    ]


def test_only_the_requested_number_of_rows_is_read(tmp_path: Path):
    file = csv_file(tmp_path, HEADER + REVIEW + "broken\n")
    assert read_wine_csv(file, 1).num_rows == 1
    assert read_wine_csv(file, 0).num_rows == 0


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (HEADER + REVIEW + "1,US\n", "line 4: 2 fields, expected 14"),
        (HEADER + REVIEW + NOWHERE.replace("87", "good"), "line 4: .*'good'"),
        (HEADER + NOWHERE.replace("913", ""), "line 2: "),
        (HEADER + NOWHERE + NOWHERE, "line 3: row number 913 occurs twice"),
        (HEADER + "5,US,,,87,,,,,,,,Syrah,W\n", "line 2: neither a title nor a description"),
        ("a,b\n1,2\n", "no column column_1, country"),
        ("", "the first line is empty"),
    ],
)
def test_a_line_that_is_not_a_review_is_named(tmp_path: Path, text: str, fact: str):
    with pytest.raises(ConfigError, match=fact):
        read_wine_csv(csv_file(tmp_path, text))


def test_a_missing_csv_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"no\.csv cannot be read"):
        read_wine_csv(tmp_path / "no.csv")


def test_the_demo_changes_wines_with_a_unique_text(tmp_path: Path):
    assert choose_rows(wines(10)) == (0, 1, 2)
    real = read_wine_csv(write_wine_csv(tmp_path / "wines.csv", 40))
    # Only the last of each five has a unique title; the others repeat it or resemble it.
    assert choose_rows(real) == (4, 9, 14)


def test_a_table_without_three_unique_texts_is_refused_before_writing(tmp_path: Path):
    real = read_wine_csv(write_wine_csv(tmp_path / "wines.csv", 14))
    with pytest.raises(ConfigError, match="three reviews whose text no other review has"):
        choose_rows(real)
