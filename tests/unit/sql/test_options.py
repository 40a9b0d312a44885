"""CREATE VECTOR INDEX as keys of lakewake.toml."""

from __future__ import annotations

from typing import Any

import pytest

from lakewake.errors import SqlError
from lakewake.sql.options import FOREIGN, Seen, index_values
from lakewake.sql.parse import parse
from lakewake.sql.statements import CreateIndex

SEEN = Seen(
    "lake/wines",
    ("id", "title", "description", "price", "vec", "array"),
    {"vec": 384, "array": 0},
    ("title", "price"),
)


def made(columns: str, rest: str = "", *, beside: bool = True) -> dict[str, Any]:
    statement = parse(f"CREATE VECTOR INDEX wines ON lake.wines ({columns}) {rest}")
    assert isinstance(statement, CreateIndex)
    return index_values(statement, SEEN, beside=beside)


def test_a_column_of_text_is_embedded_and_the_others_are_payload() -> None:
    assert made("description") == {
        "name": "wines",
        "table": "lake/wines",
        "text": "{description}",
        "payload": ["title", "price"],
        "store": "lance://index",
    }


def test_several_columns_make_one_text() -> None:
    assert made("title, description")["text"] == "{title}. {description}"
    given = made("title, description", "OPTIONS (text = '{title}: {description}')")
    assert given["text"] == "{title}: {description}"


def test_a_column_of_vectors_is_taken_as_it_is() -> None:
    found = made("vec", "OPTIONS ('vector.query.stale_policy' = 'FALLBACK')")
    assert (found["vector"], found["dimension"], found["fallback"]) == ("vec", 384, "scan")
    assert "text" not in found
    assert made("array", "OPTIONS (dimension = '8')")["dimension"] == 8


def test_options_have_the_types_of_the_file() -> None:
    found = made(
        "description",
        "OPTIONS ('vector.metric' = 'DOT_PRODUCT', recall = '0.9', max_delete = 1, "
        "'chunk.tokens' = '200', chunk.overlap = 40, freshness = '5m', payload = 'title , price', "
        "'model.provider' = 'hashing', 'model.dimension' = '64', embedding_store = 'false')",
    )
    assert found["metric"] == "dot"
    assert (found["recall"], found["max_delete"]) == (0.9, 1.0)
    assert found["chunk"] == {"tokens": 200, "overlap": 40}
    assert found["model"] == {"provider": "hashing", "dimension": 64}
    assert found["payload"] == ["title", "price"]
    assert found["freshness"] == "5m"
    assert found["embedding_store"] is False


@pytest.mark.parametrize(
    ("rest", "store"),
    [
        ("USING lance", "lance://index"),
        ("USING hudi", "hudi://index/wines"),
        ("USING lance OPTIONS (location = '/lake/index')", "lance:///lake/index"),
        ("USING hudi OPTIONS (location = 's3a://bucket/wines')", "hudi+s3://bucket/wines"),
        ("USING qdrant OPTIONS (location = 'localhost:6333')", "qdrant://localhost:6333"),
        ("OPTIONS (store = 'qdrant+local://points')", "qdrant+local://points"),
    ],
)
def test_the_store_is_where_using_and_location_say(rest: str, store: str) -> None:
    assert made("description", rest)["store"] == store


@pytest.mark.parametrize(
    ("columns", "rest", "fact"),
    [
        ("descripton", "", "the table has no column `descripton`"),
        ("vec, title", "", "column `vec` holds vectors, so it makes an index alone"),
        ("title", "USING faiss", "there is no store 'faiss'"),
        ("title", "USING qdrant", "index 'wines' needs a location"),
        ("title", "OPTIONS (colour = 'red')", "there is no option 'colour'"),
        ("title", "OPTIONS (name = 'x')", "there is no option 'name'"),
        ("title", "OPTIONS (recall = 1, 'RECALL' = 0.5)", "option 'RECALL' is given twice"),
        ("title", "OPTIONS (text = '{price}')", "option 'text' uses price"),
        ("title", "OPTIONS (text = '{title')", "option 'text': "),
        ("title", "USING lance OPTIONS (store = 'lance://x')", "option 'store' is an address"),
        ("vec", "OPTIONS (vector.query.stale_policy = 'WARN')", "cannot be 'WARN'"),
    ],
)
def test_what_cannot_be_used_is_refused_at_its_place(columns: str, rest: str, fact: str) -> None:
    with pytest.raises(SqlError) as raised:
        made(columns, rest)
    assert fact in raised.value.fact
    assert raised.value.column > 1


@pytest.mark.parametrize("option", sorted(FOREIGN))
def test_options_of_rfc_109_that_mean_nothing_here_are_explained(option: str) -> None:
    with pytest.raises(SqlError, match="has no effect here"):
        made("vec", f"OPTIONS ('{option}' = '4')")


def test_without_a_configuration_an_index_needs_a_location() -> None:
    with pytest.raises(SqlError, match="needs a location"):
        made("description", beside=False)
    given = made("description", "OPTIONS (location = '/lake/index')", beside=False)
    assert given["store"] == "lance:///lake/index"
