"""Which version of an index answers as of an instant, and how many are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import pytest

from lakewake.errors import ConfigError
from lakewake.model.as_of import newest_not_newer, parse_instant
from lakewake.model.frontier import Frontier
from lakewake.model.keep import Keep
from lakewake.model.timeline import TableIdentity

TABLE = TableIdentity("t", "k", "", "COPY_ON_WRITE")


def version(number: int, instants: Mapping[str, str]) -> tuple[Frontier, int]:
    return Frontier(TABLE, instants), number


@pytest.mark.parametrize(
    ("given", "instant"),
    [
        ("20250301120000123", "20250301120000123"),
        (" 20250301 ", "20250301"),
        ("2025-03-01", "20250301000000000"),
        ("2025-03-01 12:30", "20250301123000000"),
        ("2025-03-01T12:30:15.5", "20250301123015500"),
    ],
)
def test_an_instant_is_written_as_hudi_names_it_or_as_a_date(given: str, instant: str) -> None:
    assert parse_instant(given) == instant


@pytest.mark.parametrize("given", ["", "yesterday", "2025", "-1", "2025-03-01; DROP"])
def test_anything_else_is_not_an_instant(given: str) -> None:
    with pytest.raises(ConfigError, match="is not an instant of a table"):
        parse_instant(given)


@pytest.mark.parametrize(
    ("instant", "number"), [("20", 2), ("25", 2), ("30", 3), ("99", 3), ("19", 1)]
)
def test_the_newest_version_that_is_not_newer_answers(instant: str, number: int) -> None:
    kept = [
        version(3, {"10": "11", "20": "21", "30": "31"}),
        version(2, {"10": "11", "20": "21"}),
        version(1, {"10": "11"}),
    ]
    assert newest_not_newer(instant, kept, "wines") == number


def test_a_version_answers_for_the_instant_that_its_answers_name() -> None:
    # The writer of 10 was slow: its commit completed after that of 20.
    kept = [version(2, {"20": "25", "10": "30"}), version(1, {"05": "06"})]
    assert newest_not_newer("10", kept, "wines") == 2
    assert newest_not_newer("15", kept, "wines") == 1


def test_versions_are_read_only_until_one_answers() -> None:
    def kept() -> Iterator[tuple[Frontier, int]]:
        yield version(2, {"20": "21"})
        raise AssertionError

    assert newest_not_newer("20", kept(), "wines") == 2


def test_an_index_of_an_empty_table_answers_for_every_instant() -> None:
    assert newest_not_newer("10", [version(1, {})], "wines") == 1


def test_an_instant_that_is_not_kept_is_refused_with_the_range() -> None:
    kept = [version(2, {"20": "21"}), version(1, {"10": "11"})]
    with pytest.raises(ConfigError, match="is kept as of instants from 10 to 20") as refused:
        newest_not_newer("05", kept, "wines")
    assert "`keep`" in refused.value.hint


def test_a_duration_keeps_what_was_current_when_it_began() -> None:
    now = datetime(2025, 3, 1, 12)
    instants = ["20250301100000000", "20250301113000000", "20250301115900000"]
    assert Keep(seconds=3600).wanted(instants, now) == 3
    assert Keep(seconds=60).wanted(instants, now) == 2
    assert Keep(seconds=1).wanted(instants, now) == 2
    assert Keep(7).wanted(instants, now) == 7
