"""What turns a row into vectors."""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from lakewake.model.selection import Selection, parse_selection

#: The prefix that payload columns must not have.
RESERVED = "_"
#: How templates are filled in by a new index. 1: a null is nothing, and lists are written as Spark
#: writes them. 2: what surrounds a null is left out too, and lists and structs are joined. An index
#: keeps the one that it was built with, so that no text changes.
RENDERING = 2
#: What closes a value and belongs to it, and what only joins it to the value before.
_CLOSING = ')]}>»”"'
_JOINING = " \t\r\n.,;:!?-–—/|·•&+"
#: A column of the payload, and the paths of the fields in it that are stored; none: all of it.
Held = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class ModelIdentity:
    """The model that made a vector. Two vectors can be compared only if all of this is equal.

    Attributes:
        weights: sha256 of the weights, or '' if the provider does not show them.
        max_tokens: longer texts are cut by the model; 0 if unknown.
    """

    provider: str
    name: str
    dimension: int
    weights: str = ""
    precision: str = "fp32"
    max_tokens: int = 0
    pooling: str = ""
    normalized: bool = True

    def as_dict(self) -> dict[str, Any]:
        """For JSON and for the index's own metadata."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> ModelIdentity:
        """The inverse of `as_dict`."""
        return cls(**value)

    def differs_from(self, other: ModelIdentity) -> dict[str, tuple[Any, Any]]:
        """The fields that differ, with both values."""
        mine, theirs = self.as_dict(), other.as_dict()
        return {k: (mine[k], theirs[k]) for k in mine if mine[k] != theirs[k]}


@dataclass(frozen=True)
class TextField:
    """One text of a row, from a template such as `{title}. {description}`."""

    name: str
    template: str

    def parts(self) -> tuple[tuple[str, str | None], ...]:
        """The template as (literal, column after it or None) pairs.

        Raises:
            ValueError: braces do not match, or hold more than a column's name.
        """
        out = []
        for literal, column, spec, conversion in string.Formatter().parse(self.template):
            if spec or conversion or column == "":
                raise ValueError(f"template {self.template!r}: braces hold a column's name only")
            out.append((literal, column))
        return tuple(out)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns the template names, each once, in order; `customer.name` is a field."""
        return tuple(dict.fromkeys(c for _, c in self.parts() if c is not None))

    def values(self) -> tuple[TemplateValue, ...]:
        """The template as values with what surrounds them, for rendering 2.

        Raises:
            ValueError: as `parts`.
        """
        out: list[TemplateValue] = []
        between = ""
        for literal, column in self.parts():
            between += literal
            if column is None:
                continue
            before = between.lstrip(_CLOSING) if out else between
            first = before
            if out:
                first = before.lstrip(_JOINING)
                out[-1] = replace(out[-1], after=between[: len(between) - len(before)])
            out.append(TemplateValue(column, before, first))
            between = ""
        # What follows the last value belongs to it.
        return (*out[:-1], *(replace(last, after=between) for last in out[-1:]))


@dataclass(frozen=True)
class TemplateValue:
    """One value of a template, and the texts that are left out if the value is null or blank.

    Attributes:
        before: the text in front of it, if another value was written before.
        first: the same if it is the first one: without what would only join it to another.
        after: the brackets and quotes that close it.
    """

    column: str
    before: str
    first: str
    after: str = ""


def name_of(path: str) -> str:
    """The column that a path begins with."""
    return path.partition(".")[0]


@dataclass(frozen=True)
class Chunking:
    """How a text is cut. `tokens` 0: one chunk if it fits the model, else chunks that fit."""

    tokens: int = 0
    overlap: int = 0


@dataclass(frozen=True)
class Recipe:
    """How a table becomes vectors: its texts or its vector column, payload, chunking and model.

    Attributes:
        where: the condition that selects the rows of the index; '': it holds all of them.
    """

    model: ModelIdentity
    fields: tuple[TextField, ...] = ()
    vector: str | None = None
    payload: tuple[str, ...] = ()
    chunking: Chunking = Chunking()
    metric: str = "cosine"
    where: str = ""
    rendering: int = 1

    @property
    def selection(self) -> Selection | None:
        """The condition in `where`; None: all rows are selected."""
        return parse_selection(self.where) if self.where else None

    @property
    def selected_by(self) -> tuple[str, ...]:
        """The columns of the table that select its rows."""
        return self.selection.columns if self.selection else ()

    @property
    def dated(self) -> bool:
        """Whether rows enter and leave as days go by."""
        return self.selection is not None and self.selection.dated

    def on(self, date: str) -> Recipe:
        """The recipe on a day such as `2026-11-19`: its condition depends on the row alone."""
        if self.selection is None or not self.dated:
            return self
        return replace(self, where=self.selection.on(date))

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column of the table, or field in one, that the recipe reads, each once."""
        text = [c for f in self.fields for c in f.columns]
        vector = [self.vector] if self.vector else []
        return tuple(dict.fromkeys([*text, *vector, *self.payload, *self.selected_by]))

    @property
    def held(self) -> tuple[Held, ...]:
        """The payload columns as an index stores them: `customer.country` is in `customer`."""
        paths: dict[str, list[str]] = {}
        for path in self.payload:
            name, _, inside = path.partition(".")
            paths.setdefault(name, []).extend([inside] if inside else [])
        return tuple((name, tuple(inside)) for name, inside in paths.items())

    @property
    def payload_columns(self) -> tuple[str, ...]:
        """The names of the stored payload columns."""
        return tuple(name for name, _ in self.held)

    def as_dict(self) -> dict[str, Any]:
        """For JSON and for the index's own metadata."""
        value: dict[str, Any] = {
            "fields": [[f.name, f.template] for f in self.fields],
            "vector": self.vector,
            "payload": list(self.payload),
            "chunking": asdict(self.chunking),
            "metric": self.metric,
            "model": self.model.as_dict(),
            # Left out as long as it is the first one, so that earlier recipes stay the same.
            **({"rendering": self.rendering} if self.rendering != 1 else {}),
        }
        # Without a condition the text stays what it always was: indexes are compared by it.
        return {**value, "where": self.where} if self.where else value

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Recipe:
        """The inverse of `as_dict`."""
        return cls(
            model=ModelIdentity.from_dict(value["model"]),
            fields=tuple(TextField(n, t) for n, t in value["fields"]),
            vector=value["vector"],
            payload=tuple(value["payload"]),
            chunking=Chunking(**value["chunking"]),
            metric=value["metric"],
            where=value.get("where", ""),
            rendering=value.get("rendering", 1),
        )

    @property
    def fingerprint(self) -> str:
        """sha256 of everything above; equal exactly for recipes that build equal indexes."""
        text = json.dumps(self.as_dict(), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def differs_from(self, other: Recipe) -> dict[str, tuple[Any, Any]]:
        """The parts that differ, with both values; the model's parts as `model.…`."""
        none = {"where": "", "rendering": 1}
        mine, theirs = {**none, **self.as_dict()}, {**none, **other.as_dict()}
        out = {k: (mine[k], theirs[k]) for k in mine if k != "model" and mine[k] != theirs[k]}
        for name, both in self.model.differs_from(other.model).items():
            out[f"model.{name}"] = both
        return out
