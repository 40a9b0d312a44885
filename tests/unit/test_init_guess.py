"""What `lakewake init` guesses from a look, and the file it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakewake.config import load_config, parse_config
from lakewake.errors import ConfigError
from lakewake.init import PAYLOAD, draft_config, guess, index_name, render
from lakewake.model.recipe import TextField
from lakewake.model.timeline import Look, TableIdentity

FILE = Path("/proj/lakewake.toml")
WINES = {
    "wine_id": '"string"',
    "country": '"string"',
    "title": '"string"',
    "description": '"string"',
    "points": '"long"',
    "tags": '{"type": "array", "items": "string"}',
    "bottled": '{"type": "int", "logicalType": "date"}',
    "ts": '"long"',
}
FLOATS = '{"items": ["null", "float"], "type": "array"}'


def look(schema: dict[str, str], key: str = "wine_id", partition: str = "country") -> Look:
    return Look(
        table=TableIdentity("wines", key, partition, "COPY_ON_WRITE"),
        instants=(),
        schema=schema,
        properties={"hoodie.table.ordering.fields": "ts"},
    )


def test_text_is_guessed_by_name_and_payload_is_the_other_scalars():
    found = guess(look(WINES))
    assert found.text == ("title", "description")
    assert found.payload == ("country", "title", "points", "bottled")
    assert found.why == "the names of title and description say that they hold text"
    assert found.table == "copy-on-write; key wine_id; ordering ts; partition country"


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (("id", "review_text", "user_name"), ("review_text",)),
        (("id", "name", "productDescription"), ("name", "productDescription")),
        (("id", "subject", "body"), ("subject", "body")),
        (("id", "color", "shape"), ("color",)),
        (("id", "title"), ("title",)),
    ],
)
def test_other_names_are_understood_too(columns: tuple[str, ...], text: tuple[str, ...]):
    assert guess(look(dict.fromkeys(columns, '"string"'), key="id")).text == text


def test_a_name_that_says_text_but_holds_numbers_is_no_text():
    found = guess(look({"id": '"string"', "title": '"long"', "memo": '"string"'}, key="id"))
    assert found.text == ("memo",)
    assert "first string column" in found.why


def test_without_text_a_vector_column_is_proposed():
    found = guess(look({"id": '"string"', "emb": FLOATS, "n": '"int"'}, key="id"))
    assert (found.text, found.vector, found.dimension) == ((), "emb", 0)
    text = render(found, "v", "t")
    index = parse_config(text, FILE).indexes[0]
    assert (index.vector, index.model.dimension) == ("emb", 384)
    assert "NOT KNOWN" in text


def test_a_vector_type_tells_its_dimension():
    vector = '{"type": "fixed", "logicalType": "vector", "dimension": 128, "size": 512}'
    found = guess(look({"id": '"string"', "emb": vector}, key="id"))
    assert found.dimension == 128
    assert "NOT KNOWN" not in render(found, "v", "t")


def test_a_vector_beside_text_is_mentioned_only():
    text = render(guess(look({**WINES, "emb": FLOATS})), "wines", "t")
    assert parse_config(text, FILE).indexes[0].vector is None
    assert '# or: vector  = "emb"' in text


def test_a_table_without_text_and_vectors_is_refused_with_its_columns():
    with pytest.raises(ConfigError) as caught:
        guess(look({"id": '"string"', "n": '"int"'}, key="id"))
    assert "id, n" in caught.value.hint


def test_a_long_table_gives_a_short_payload_and_names_the_rest():
    many = {f"c{n}": '"int"' for n in range(20)}
    found = guess(look({"body": '"string"', **many}, key="id"))
    assert len(found.payload) == PAYLOAD
    assert found.left_out == tuple(f"c{n}" for n in range(PAYLOAD, 20))
    assert "# not taken: c12, c13" in render(found, "x", "t")


def test_the_file_says_what_was_guessed_and_can_be_loaded():
    text = render(guess(look(WINES)), "wines", "lake/wines")
    (index,) = parse_config(text, FILE).indexes
    assert (index.name, index.table) == ("wines", "/proj/lake/wines")
    assert index.fields == (TextField("text", "{title}. {description}"),)
    assert index.payload == ("country", "title", "points", "bottled")
    assert "# copy-on-write; key wine_id; ordering ts; partition country" in text


def test_odd_characters_in_the_path_survive():
    path = '/a b/"q" \\ \x7f ü🍷'
    assert parse_config(render(guess(look(WINES)), "w", path), FILE).indexes[0].table == path


@pytest.mark.parametrize(
    ("table", "name"),
    [("lake/wine_reviews/", "wine_reviews"), ("s3a://b/a b.c", "a_b_c"), ("/", "index")],
)
def test_the_index_is_called_as_the_table(table: str, name: str):
    assert index_name(table) == name


def test_the_draft_says_the_table_as_seen_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    draft_config("lake/wines", look(WINES), "lakewake.toml")
    draft_config("lake/wines", look(WINES), "conf/lakewake.toml", "other")
    assert 'table   = "lake/wines"' in Path("lakewake.toml").read_text()
    for file in ("lakewake.toml", "conf/lakewake.toml"):
        assert load_config(file, env={}).indexes[0].table == str(tmp_path / "lake/wines")


def test_a_file_that_is_there_is_kept_unless_told_otherwise(tmp_path: Path):
    file = tmp_path / "lakewake.toml"
    file.write_text("mine")
    with pytest.raises(ConfigError, match="is there already"):
        draft_config("t", look(WINES), file)
    assert file.read_text() == "mine"
    draft_config("t", look(WINES), file, replace=True)
    assert load_config(file, env={}).indexes[0].name == "t"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot be written"):
        draft_config("t", look(WINES), tmp_path / "no" / "lakewake.toml")
