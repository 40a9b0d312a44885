"""Rows of every type, and filters over them."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from lakewake.model.where import And, Compare, Contains, In, IsNull, Like, Literal, Not, Or, Where

UTC = datetime.UTC
LETTERS = "ab%_\\'\"`\n é🍷"
WHOLE = [None, 0, 1, -1, 127, -128]
TEXTS = [None, "", "a", "ab", "aB", "a%", "b_", "\\", "it's", "a\nb", "🍷é", "🍷É", "ΣK"]
FLOATS = [None, 0.0, -0.0, 0.1, -1.5, math.nan, math.inf]
MOMENTS = [
    None,
    datetime.datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
    datetime.datetime(2024, 1, 1, tzinfo=UTC),
    datetime.datetime(2024, 1, 1, 0, 0, 0, 1000, tzinfo=UTC),
]
PENCE = [None, Decimal("0.10"), Decimal("-1.00"), Decimal("99.99")]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), WHOLE),
    "big": (pa.int64(), [*WHOLE, 2**63 - 1, -(2**63)]),
    "price": (pa.float64(), FLOATS),
    "ratio": (pa.float32(), FLOATS),
    "cost": (pa.decimal128(4, 2), PENCE),
    "name": (pa.string(), TEXTS),
    "red": (pa.bool_(), [None, True, False]),
    "day": (pa.date32(), [None, datetime.date(2024, 1, 1), datetime.date(1, 1, 1)]),
    "seen": (pa.timestamp("us", "UTC"), MOMENTS),
    "millis": (pa.timestamp("ms", "Europe/Paris"), MOMENTS),
    "groups": (pa.list_(pa.string()), [None, [], ["a"], ["a", "b", ""], [None, "ab"], ["it's"]]),
    "ids": (pa.list_(pa.int32()), [None, [], [0], [1, -1], [None, 127], [2**31 - 1]]),
    "prices": (pa.list_(pa.decimal128(4, 2)), [None, [], PENCE[1:], [None], [PENCE[3]]]),
    "days": (pa.list_(pa.date32()), [None, [], [datetime.date(2024, 1, 1)], [None]]),
    "raw": (pa.binary(), [None, b"", b"a"]),
    "box": (
        pa.struct(
            {
                "name": pa.string(),
                "big": pa.int64(),
                "price": pa.float64(),
                "cost": pa.decimal128(4, 2),
                "seen": pa.timestamp("us", "UTC"),
                "groups": pa.list_(pa.string()),
                "in": pa.struct({"day": pa.date32(), "odd name": pa.bool_()}),
            }
        ),
        [
            None,
            {},
            {"name": "a", "big": 2**63 - 1, "price": 0.1, "groups": [], "in": {}},
            {"name": "b_", "big": 1, "price": math.nan, "cost": PENCE[1], "groups": ["a", None]},
            {"name": "", "price": -1.5, "seen": MOMENTS[2], "in": {"odd name": True}},
            {"seen": MOMENTS[3], "in": {"day": datetime.date(2024, 1, 1), "odd name": False}},
        ],
    ),
}
ROWS = 60
SCHEMA = pa.schema({"n": pa.int32(), **{name: type for name, (type, _) in COLUMNS.items()}})
# Each column steps through its values at its own pace, so that rows mix them.
TABLE = pa.table(
    [pa.array(range(ROWS), pa.int32())]
    + [
        pa.array([values[n * step % len(values)] for n in range(ROWS)], type)
        for step, (type, values) in enumerate(COLUMNS.values(), start=1)
    ],
    schema=SCHEMA,
)
VALUES = TABLE.to_pylist()

numbers = st.one_of(
    st.sampled_from([0, 1, -1, 127, 128, -128, -129, 2**63, -(2**63), 10**25]),
    st.decimals(-200, 200, places=3),
    st.sampled_from([Decimal("0.1"), Decimal("1e30"), Decimal("-0.0")]),
)
texts = st.text(LETTERS, max_size=5)
moments: st.SearchStrategy[Literal] = st.one_of(
    st.sampled_from(["2024-01-01", "2024-01-01 00:00:00.001", "1969-12-31T23:59:59+00:00"]),
    st.sampled_from([m for m in MOMENTS if m]),
    st.datetimes(),
    st.datetimes(datetime.datetime(2023, 12, 31), datetime.datetime(2024, 1, 2)),
    st.dates(),
)
LITERALS = {
    **dict.fromkeys(("tiny", "big", "price", "ratio", "cost"), numbers),
    "name": texts,
    "red": st.booleans(),
    "day": st.one_of(st.dates(), st.sampled_from([datetime.date(2024, 1, 1), "2024-01-01"])),
    **dict.fromkeys(("seen", "millis"), moments),
    "groups": st.sampled_from(["", "a", "b", "ab", "it's", "c"]),
    **dict.fromkeys(("ids", "prices"), numbers),
    "days": st.sampled_from([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2), "2024-01-01"]),
    "box.name": texts,
    **dict.fromkeys(("box.big", "box.price", "box.cost"), numbers),
    "box.seen": moments,
    "box.groups": st.sampled_from(["a", "b"]),
    "box.in.day": st.sampled_from([datetime.date(2024, 1, 1), "2024-01-01", "2023-12-31"]),
    "box.in.odd name": st.booleans(),
}
LISTS = ("groups", "ids", "prices", "days", "box.groups")
#: Of these, only whether there is a value can be asked.
OPAQUE = ("raw", "box", "box.in")


def conditions(column: str) -> st.SearchStrategy[Where]:
    name = st.just(column)
    if column in OPAQUE:
        return st.builds(IsNull, name)
    literal = LITERALS[column]
    ops = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
    lists = st.lists(literal, min_size=1, max_size=3).map(tuple)
    if column in LISTS:
        return st.one_of(st.builds(Contains, name, lists), st.builds(IsNull, name))
    return st.one_of(
        st.builds(Compare, name, ops, literal), st.builds(In, name, lists), st.builds(IsNull, name)
    )


patterns = st.lists(
    st.sampled_from(
        ["a", "B", "%", "_", r"\%", r"\_", r"\\", "'", "\n", "🍷", "é", "σ", "k", "[", "^"]
    )
)
likes = st.builds(
    Like, st.sampled_from(["name", "box.name"]), patterns.map("".join), any_case=st.booleans()
)
leaf = st.one_of(*map(conditions, [*LITERALS, *OPAQUE]), likes)


def joined(inner: st.SearchStrategy[Where]) -> st.SearchStrategy[Where]:
    parts = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(st.builds(Not, inner), st.builds(And, parts), st.builds(Or, parts))


filters = st.recursive(leaf, joined, max_leaves=6)
