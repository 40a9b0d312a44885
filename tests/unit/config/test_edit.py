"""An index is added to lakewake.toml, or removed, and nothing else in the file changes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewake.config.edit import (
    add_index,
    remove_index,
    rename_index,
    with_index,
    without_index,
)
from lakewake.config.file import load_config, parse_config
from lakewake.errors import ConfigError

FILE = """\
# What we search.
model = "all-MiniLM-L6-v2"   # small

[[index]]   # the first
name  = 'a'
table = "lake/a"
text  = "{title}"

# About b:
[[index]]
name  = "b"
table = "lake/b"
[[index.text]]
name = "t"
template = '''
{title}
'''

# How it runs.
[spark]
master = "local[2]"
"""
NEW = {
    "name": "c",
    "table": "lake/c",
    "text": "{x}",
    "payload": ["p q", "é"],
    "model": {"provider": "hashing", "dimension": 8},
    "recall": 0.9,
    "embedding_store": False,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lakewake.toml"
    path.write_text(FILE)
    return path


def names(file: Path) -> list[str]:
    return [index.name for index in load_config(file, empty=True).indexes]


def test_an_index_is_added_at_the_end_and_the_rest_stays(file: Path) -> None:
    settings = add_index(file, NEW, "made by hand\n[[index]]")
    assert file.read_text().startswith(FILE)
    assert settings == load_config(file)
    added = settings.indexes[-1]
    assert (added.name, added.payload, added.model.dimension) == ("c", ("p q", "é"), 8)
    assert added.embedding_store is None
    assert names(file) == ["a", "b", "c"]


def test_a_file_that_does_not_exist_is_created(tmp_path: Path) -> None:
    file = tmp_path / "lakewake.toml"
    add_index(file, NEW)
    assert names(file) == ["c"]


@pytest.mark.parametrize("name", ["a", "b"])
def test_an_index_that_is_removed_takes_no_comment_of_others_with_it(file: Path, name: str) -> None:
    remove_index(file, name)
    assert names(file) == [other for other in ("a", "b") if other != name]
    kept = file.read_text()
    assert "# What we search." in kept
    assert "# How it runs." in kept
    assert load_config(file).spark == {"spark.master": "local[2]"}


def test_all_indexes_can_be_removed_and_added_again(file: Path) -> None:
    for name in ("b", "a"):
        remove_index(file, name)
    assert names(file) == []
    add_index(file, NEW)
    assert names(file) == ["c"]


def test_adding_and_removing_gives_back_the_same_bytes(file: Path) -> None:
    add_index(file, NEW)
    remove_index(file, "c")
    assert file.read_text().rstrip() == FILE.rstrip()


@pytest.mark.parametrize(
    ("values", "fact"),
    [
        ({**NEW, "name": "a"}, "two indexes are called 'a'"),
        ({**NEW, "recall": 2.0}, "`recall` is 2"),
        ({**NEW, "model": {"api_key": "s3cr3t"}}, "secrets do not belong in this file"),
        ({**NEW, "store": "qdrant://user:s3cr3t@host"}, ""),
    ],
)
def test_what_cannot_be_used_is_not_written(
    file: Path, values: dict[str, object], fact: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        add_index(file, values)
    assert fact in raised.value.fact
    assert "s3cr3t" not in str(raised.value)
    assert file.read_text() == FILE


def test_an_index_that_would_move_the_vector_cache_of_others_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "lakewake.toml"
    text = '[[index]]\nname = "a"\ntable = "a"\ntext = "{t}"\nstore = "qdrant://localhost:6333"\n'
    file.write_text(text)
    with pytest.raises(ConfigError, match="cannot be edited without changing another setting"):
        add_index(file, {**NEW, "store": "lance://elsewhere"})
    assert file.read_text() == text


def test_a_file_that_cannot_be_taken_apart_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "lakewake.toml"
    text = 'index = [{name = "a", table = "a", text = "{t}"}]\n'
    file.write_text(text)
    for edit in (lambda: remove_index(file, "a"), lambda: add_index(file, NEW)):
        with pytest.raises(ConfigError):
            edit()
    assert file.read_text() == text


def test_an_unknown_index_is_not_removed(file: Path) -> None:
    with pytest.raises(ConfigError, match="there is no index 'z'"):
        remove_index(file, "z")


def test_a_link_and_the_permissions_of_the_file_stay(file: Path, tmp_path: Path) -> None:
    file.chmod(0o600)
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    add_index(link, NEW)
    assert link.is_symlink()
    assert names(file) == ["a", "b", "c"]
    assert file.stat().st_mode & 0o777 == 0o600


def test_no_index_is_lost_when_several_are_added_at_once(file: Path) -> None:
    added = [f"c{n}" for n in range(8)]
    threads = [
        threading.Thread(target=add_index, args=(file, {**NEW, "name": name})) for name in added
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names(file)) == sorted(["a", "b", *added])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_not_writable_is_reported(file: Path) -> None:
    file.parent.chmod(0o500)
    with pytest.raises(ConfigError, match="cannot be written"):
        add_index(file, NEW)


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="{}")).filter(str.strip),
    st.lists(st.text(st.characters(codec="utf-8"), min_size=1), max_size=2),
)
def test_any_text_is_written_so_that_it_is_read_back(text: str, comments: list[str]) -> None:
    values = {**NEW, "text": f"{{x}}{text}"}
    path = Path("/f/lakewake.toml")
    made = with_index(FILE, values, " ".join(comments))
    settings = parse_config(made, path)
    assert settings.indexes[-1].fields[0].template == f"{{x}}{text}"
    assert settings.indexes[:-1] == parse_config(FILE, path).indexes
    assert without_index(made, 2).rstrip() == FILE.rstrip()


@pytest.mark.parametrize(("old", "line"), [("a", "name  = 'a'\n"), ("b", 'name  = "b"\n')])
def test_an_index_is_renamed_and_all_other_text_stays(file: Path, old: str, line: str) -> None:
    rename_index(file, old, "new-1")
    noted = f'name  = "new-1"\nstored_as = "{old}"\n'
    assert file.read_text() == FILE.replace(line, noted)
    found = load_config(file)
    assert {i.name: i.stored_name for i in found.indexes}["new-1"] == old


def test_a_renamed_index_keeps_its_stored_name_when_renamed_again(file: Path) -> None:
    for before, after in (("a", "x"), ("x", "y")):
        rename_index(file, before, after)
    assert file.read_text() == FILE.replace("'a'", '"y"\nstored_as = "a"')
    rename_index(file, "y", "a")
    assert file.read_text() == FILE.replace("'a'", '"a"')


def test_a_rename_that_was_done_already_changes_nothing(file: Path) -> None:
    rename_index(file, "a", "x")
    before = file.read_text()
    rename_index(file, "a", "x")
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("old", "new", "fact"),
    [
        ("a", "b", "there is an index 'b'"),
        ("a", "a", "there is an index 'a'"),
        ("z", "y", "there is no index 'z'"),
        ("z", "a", "there is no index 'z'"),
        ("a", "no/path", "no/path"),
        ("a", "", "`name`"),
    ],
)
def test_a_rename_that_cannot_be_done_changes_nothing(
    file: Path, old: str, new: str, fact: str
) -> None:
    with pytest.raises(ConfigError, match=fact):
        rename_index(file, old, new)
    assert file.read_text() == FILE


@pytest.mark.parametrize(
    "text",
    [
        'index = [{name = "a", table = "t", text = "{x}"}]\n',
        '[[index]]\nname = """a"""\ntable = "t"\ntext = "{x}"\n',
        '[[index]]\n"n\\u0061me" = "a"\ntable = "t"\ntext = "{x}"\n',
    ],
)
def test_a_file_that_cannot_be_edited_safely_is_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "lakewake.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="cannot be edited"):
        rename_index(file, "a", "b")
    assert file.read_text() == text


def test_a_name_in_another_value_is_not_taken_for_that_of_the_index(tmp_path: Path) -> None:
    text = """[[index]]
table = "t"   # name = "a"
text = [{name = "a", template = "{x}"}]
"name" = 'a'#comment
"""
    file = tmp_path / "lakewake.toml"
    file.write_text(text)
    rename_index(file, "a", "b")
    changed = '"name" = "b"#comment\nstored_as = "a"\n'
    assert file.read_text() == text.replace("\"name\" = 'a'#comment\n", changed)


def test_the_stored_name_of_a_renamed_index_is_not_free_in_its_store(file: Path) -> None:
    rename_index(file, "a", "x")
    with pytest.raises(ConfigError, match="both stored as 'a'"):
        add_index(file, {**NEW, "name": "a"})
    add_index(file, {**NEW, "name": "a", "store": "lance://elsewhere"})
