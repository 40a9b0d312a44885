"""Drafts a lakewake.toml for a table from one look at it, and gives the reason for its guess."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakewake.config.edit import append_index
from lakewake.config.file import DEFAULT_FILE, parse_config
from lakewake.config.index import DEFAULT_STORE
from lakewake.config.section import locate
from lakewake.config.services import KNOWN_SERVICES
from lakewake.config.settings import IndexSettings, Settings
from lakewake.config.toml import as_toml, quote
from lakewake.errors import ConfigError
from lakewake.model.recipe import RESERVED, TextField
from lakewake.model.timeline import Look
from lakewake.net.schemes import KEY
from lakewake.show.plain import spelled_out

#: How many payload columns are proposed; it is easy to add more by hand.
PAYLOAD = 12
#: Words in a column's name that suggest text that people would search.
HEADS = ("title", "headline", "subject", "name")
BODIES = (
    "description",
    "text",
    "body",
    "content",
    "review",
    "comment",
    "summary",
    "abstract",
    "message",
    "notes",
    "note",
    "question",
    "answer",
    "article",
    "transcript",
    "caption",
    "story",
    "details",
)
#: The dimension of the default model.
MINILM = 384
#: What Lance refuses in the name of a column.
_IN_LANCE = frozenset(".`")
_SCALARS = {"string", "int", "long", "float", "double", "boolean"}
_LOGICAL = {"date", "timestamp-millis", "timestamp-micros", "decimal", "uuid", "time-micros"}
_TYPES = {"COPY_ON_WRITE": "copy-on-write", "MERGE_ON_READ": "merge-on-read"}


@dataclass(frozen=True)
class Guess:
    """What an index of a table should probably hold.

    Attributes:
        table: its type, key, ordering and partition in words.
        text: columns that make up the text, in order; empty if no column holds text.
        vector: a column that already holds vectors; None if there is none.
        dimension: their length; 0 if the schema does not give it. Hudi's VECTOR type does.
        why: one sentence on how text or vector was found.
        left_out: the columns that are proposed neither as text nor as payload, each with why.
    """

    table: str
    text: tuple[str, ...]
    why: str
    payload: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    vector: str | None = None
    dimension: int = 0

    @property
    def by_vector(self) -> bool:
        """Whether the index takes the vectors: the column is a VECTOR, or none holds text."""
        return self.vector is not None and bool(self.dimension or not self.text)


def guess(look: Look) -> Guess:
    """What the table's columns and properties suggest.

    Raises:
        ConfigError: no column holds text or vectors.
    """
    types = {n: json.loads(t) for n, t in look.schema.items() if not n.startswith(RESERVED)}
    types = {n: t for n, t in types.items() if _can_be_written(n)}
    key, ordering, partition = _columns_of(look)
    strings = [n for n, t in types.items() if _plain(t) == "string" and _fits_template(n)]
    text, why = _guess_text([n for n in strings if n not in key])
    vectors = [n for n, t in types.items() if _is_vector(t)]
    vector = next((n for n in vectors if _dimension(types[n])), vectors[0] if vectors else None)
    dimension = _dimension(types[vector]) if vector else 0
    if not text and vector is None:
        raise ConfigError(
            f"no column of {look.table.name!r} holds text or vectors",
            hint="choose a table with a string or vector column; the columns of this one are "
            f"{', '.join(types) or 'not known yet: it has no commit'}",
        )
    if dimension:
        why = f"{vector} is a VECTOR({dimension})"
    elif not text:
        why = f"no column is a string; {vector} holds vectors"
    # A hit of an index of texts brings its text along anyway.
    bodies = [] if dimension else [n for n in text if _has_word(n, BODIES)]
    suited = [n for n, t in types.items() if _is_scalar(t) or _is_tags(t)]
    suited = [n for n in suited if n not in (ordering, *bodies) and not set(n) & _IN_LANCE]
    payload = tuple(suited[:PAYLOAD])
    taken = {*payload, *text, *([vector] if vector else [])}
    return Guess(
        table=_in_words(look, key, ordering, partition),
        text=text,
        why=why,
        payload=payload,
        left_out={n: _why_not(n, t, ordering) for n, t in types.items() if n not in taken},
        vector=vector,
        dimension=dimension,
    )


def _why_not(column: str, avro: Any, ordering: str) -> str:
    """Why a column is proposed neither as text nor as payload."""
    if column == ordering:
        return "it only orders the versions of a row"
    if set(column) & _IN_LANCE:
        return "Lance refuses its name"
    if _is_scalar(avro) or _is_tags(avro):
        return f"{PAYLOAD} columns are there already"
    if _is_vector(avro):
        return "it holds vectors"
    kind = _plain(avro)
    kind = kind.get("type", "") if isinstance(kind, dict) else kind
    if kind == "record":
        fields = [f["name"] for f in _plain(avro)["fields"] if _is_scalar(f["type"])]
        name = f"{column}.{fields[0]}" if fields else column
        return f"it is a struct; name it, or a field of it: {name}"
    words = {"array": "a list", "map": "a map", "bytes": "binary", "fixed": "binary"}
    what = words.get(kind, "of an unusual type") if isinstance(kind, str) else "of several types"
    return f"it is {what}"


def _can_be_written(column: str) -> bool:
    """Whether UTF-8 can encode the column's name: JSON can spell half a surrogate pair."""
    try:
        column.encode()
    except UnicodeEncodeError:
        return False
    return bool(column.strip())


def _fits_template(column: str) -> bool:
    """Whether `{column}` in a template means this column and nothing else."""
    try:
        return TextField("text", _template((column,))).columns == (column,)
    except ValueError:
        return False


def _columns_of(look: Look) -> tuple[list[str], str, list[str]]:
    """Key columns, ordering field ('' if there is none) and partition columns."""
    ordering = look.properties.get("hoodie.table.ordering.fields") or look.properties.get(
        "hoodie.table.precombine.field", ""
    )
    key = [c for c in look.table.record_key.split(",") if c]
    partition = [c.split(":")[0] for c in look.table.partition_fields.split(",") if c]
    return key, ordering, partition


def _in_words(look: Look, key: list[str], ordering: str, partition: list[str]) -> str:
    return (
        f"{_TYPES.get(look.table.type, look.table.type)}; key {', '.join(key) or 'made by Hudi'}; "
        f"ordering {ordering or 'none'}; partition {', '.join(partition) or 'none'}"
    )


def _guess_text(strings: list[str]) -> tuple[tuple[str, ...], str]:
    """The text columns among the string columns, and why they were chosen."""
    head = next((n for word in HEADS for n in strings if n.lower() == word), None)
    bodies = [n for n in strings if _has_word(n, BODIES)][:2]
    found = tuple(dict.fromkeys([*([head] if head else []), *bodies]))
    if found:
        return found, f"{' and '.join(found)} sound like text"
    if strings:
        return (strings[0],), f"{strings[0]} is the first string column; no name sounds like text"
    return (), ""


def _has_word(name: str, words: tuple[str, ...]) -> bool:
    """Whether a column's name contains one of the words: `review_text`, `productTitle`."""
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_")
    return any(part in words for part in parts)


def _plain(avro: Any) -> Any:
    """An Avro type without `null` and without a wrapper that adds nothing."""
    if isinstance(avro, list):
        kinds = [t for t in avro if t != "null"]
        return _plain(kinds[0]) if len(kinds) == 1 else kinds
    if isinstance(avro, dict) and set(avro) == {"type"}:
        return _plain(avro["type"])
    return avro


def _is_scalar(avro: Any) -> bool:
    avro = _plain(avro)
    if isinstance(avro, dict):
        return avro.get("logicalType") in _LOGICAL or avro.get("type") == "enum"
    return isinstance(avro, str) and avro in _SCALARS


def _is_tags(avro: Any) -> bool:
    """Whether it is a list of strings."""
    avro = _plain(avro)
    is_list = isinstance(avro, dict) and avro.get("type") == "array"
    return is_list and _plain(avro["items"]) == "string"


def _is_vector(avro: Any) -> bool:
    avro = _plain(avro)
    if not isinstance(avro, dict):
        return False
    if avro.get("logicalType") == "vector":
        return True
    return avro.get("type") == "array" and _plain(avro["items"]) in ("float", "double")


def _dimension(avro: Any) -> int:
    return int(_plain(avro).get("dimension", 0))


def vector_dimension(look: Look, column: str) -> int | None:
    """The length of the vectors in a column: 0 if the schema does not give it.

    None if the column holds something else, or does not exist.
    """
    avro = json.loads(look.schema.get(column, '"null"'))
    return _dimension(avro) if _is_vector(avro) else None


def index_name(table: str) -> str:
    """A name for the index of a table: the last part of its path, with odd characters replaced."""
    last = table.rstrip("/").rsplit("/", 1)[-1]
    return re.sub(r"[^A-Za-z0-9_-]+", "_", last).lstrip("_-") or "index"


def render(guess: Guess, name: str, table: str, *, untested_schemes: bool = False) -> str:
    """The text of a lakewake.toml for a guess."""
    return "\n".join(
        [
            "# Written by `lakewake init` after a look at the table. Read it, change it, keep it.",
            "",
            *([f"{KEY} = true", ""] if untested_schemes else []),
            render_index(guess, name, table) + _FOR_ALL,
        ]
    )


def render_index(guess: Guess, name: str, table: str) -> str:
    """The text of one `[[index]]` for a guess.

    Column names come from the table, so they are escaped: none may end a line or a string.
    """
    return "\n".join(
        [
            "[[index]]",
            f"name    = {quote(name)}",
            f"# {spelled_out(guess.table)}",
            f"table   = {quote(table)}",
            "",
            f"# Guessed: {spelled_out(guess.why)}.",
            *_text_lines(guess),
            "",
            "# Comes with every hit, and can be filtered on.",
            f"payload = {as_toml(guess.payload)}",
            *(f"# left out: {spelled_out(f'{c}: {why}')}" for c, why in guess.left_out.items()),
            "",
            f"store   = {quote(DEFAULT_STORE)}",
            "",
            *(() if guess.by_vector else _OTHER_CHOICES),
            "",
        ]
    )


_QUESTIONS = "# To search by text too, name the model that made the vectors: model = …"
_OTHER_CHOICES = (
    "# Other choices:",
    '# where = "day >= date_sub(current_date(), 90)"  # only some rows, in Spark SQL',
    '# chunk = {tokens = 200, overlap = 40}     # for long texts; "whole" is the default',
    '# model = {precision = "int8"}             # the default model, twice as fast',
    '# model = "static"                         # far faster and coarser: for very large tables',
    '# model = "openai:text-embedding-3-small"  # or another service: docs/models.md',
)
_FOR_ALL = """#
# [spark]
# master = "local[*]"
"""
#: How many models are named that make vectors of a dimension.
_NAMED = 3


def _models_of(dimension: int) -> list[str]:
    """Models by name that make vectors of a dimension."""
    own = ["all-MiniLM-L6-v2"] if dimension == MINILM else []
    known = [
        f"{service}:{name}"
        for service, about in KNOWN_SERVICES.items()
        for name, model in about.models.items()
        if model.dimension == dimension
    ]
    return [*own, *known][:_NAMED]


def _text_lines(guess: Guess) -> list[str]:
    vector = _vector_lines(guess)
    text = [f"text    = {quote(_template(guess.text))}"] if guess.text else []
    if guess.by_vector:
        models = [f"# model = {quote(name)}" for name in _models_of(guess.dimension)]
        return [*vector, _QUESTIONS, *models, *(f"# or: {line}" for line in text)]
    return [*text, *(f"# or: {line}" for line in vector)]


def _template(columns: tuple[str, ...]) -> str:
    return ". ".join(f"{{{column}}}" for column in columns)


def _vector_lines(guess: Guess) -> list[str]:
    if guess.vector is None:
        return []
    unsure = "" if guess.dimension else "   # NOT KNOWN: write the length of its vectors"
    return [f"vector  = {quote(guess.vector)}", f"dimension = {guess.dimension or 384}{unsure}"]


def draft_config(
    table: str,
    look: Look,
    file: str | Path = DEFAULT_FILE,
    name: str | None = None,
    *,
    replace: bool = False,
    append: bool = False,
    untested_schemes: bool = False,
) -> Guess:
    """Write a configuration for the table that was looked at, and return the guess.

    Args:
        table: its path from the working directory; it is written as seen from the file.
        append: add an index to the file, in which nothing else changes.

    Raises:
        ConfigError: the file already exists or cannot be written, or nothing can be indexed.
    """
    file = Path(file)
    found = guess(look)
    name, path = name or index_name(table), from_file(table, file)
    if append:
        alone = render(found, name, path, untested_schemes=untested_schemes)
        _check_round_trip(alone, file, found, name, path)
        append_index(file, render_index(found, name, path), name)
        return found
    text = render(found, name, path, untested_schemes=untested_schemes)
    _check_round_trip(text, file, found, name, path)
    try:
        with file.open("w" if replace else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise ConfigError(
            f"{file} already exists",
            hint="--append adds an index to it, --force replaces it, --config FILE writes another",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written: {error.strerror}",
            hint="check that its folder exists and is writable, or name another with --config FILE",
        ) from error
    return found


def _check_round_trip(text: str, file: Path, found: Guess, name: str, path: str) -> None:
    """Parse the file's text before it is written: it must give back the guess, and no more.

    Raises:
        ConfigError: it does not, because a column has a name that no file can hold.
    """
    settings = parse_config(text, file)
    (index,) = settings.indexes
    only = Settings(settings.path, settings.indexes, untested_schemes=settings.untested_schemes)
    used = () if found.by_vector else found.text
    wanted = (TextField("text", _template(used)),) if used else ()
    meant = IndexSettings(
        name=name,
        table=locate(settings.path.parent, path),
        store=index.store,
        fields=wanted,
        vector=found.vector if found.by_vector else None,
        payload=found.payload,
        model=index.model,
        embedding_store=index.embedding_store,
    )
    columns = index.fields[0].columns if index.fields else ()
    if (settings, index, columns) != (only, meant, used):
        raise ConfigError(
            f"{file} cannot be written: it would not hold the name of a column exactly",
            hint="rename that column in the table, or write the file by hand (docs/config.md)",
        )


def from_file(table: str, file: Path) -> str:
    """The table's path as the file should give it: relative if it is below the file's folder."""
    if "://" in table:
        return table
    path, folder = os.path.abspath(Path(table).expanduser()), os.path.abspath(file.parent)
    inside = os.path.commonpath([path, folder]) == folder
    return os.path.relpath(path, folder) if inside else path
