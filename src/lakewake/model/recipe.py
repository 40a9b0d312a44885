"""What turns a row into vectors."""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

#: The prefix that payload columns must not have.
RESERVED = "_"


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
        """The columns the template names, each once, in order."""
        return tuple(dict.fromkeys(c for _, c in self.parts() if c is not None))


@dataclass(frozen=True)
class Chunking:
    """How a text is cut. `tokens` 0: one chunk if it fits the model, else chunks that fit."""

    tokens: int = 0
    overlap: int = 0


@dataclass(frozen=True)
class Recipe:
    """How a table becomes vectors: its texts or its vector column, payload, chunking and model."""

    model: ModelIdentity
    fields: tuple[TextField, ...] = ()
    vector: str | None = None
    payload: tuple[str, ...] = ()
    chunking: Chunking = Chunking()
    metric: str = "cosine"

    @property
    def columns(self) -> tuple[str, ...]:
        """Every table column the recipe reads, each once."""
        text = [c for f in self.fields for c in f.columns]
        vector = [self.vector] if self.vector else []
        return tuple(dict.fromkeys([*text, *vector, *self.payload]))

    def as_dict(self) -> dict[str, Any]:
        """For JSON and for the index's own metadata."""
        return {
            "fields": [[f.name, f.template] for f in self.fields],
            "vector": self.vector,
            "payload": list(self.payload),
            "chunking": asdict(self.chunking),
            "metric": self.metric,
            "model": self.model.as_dict(),
        }

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
        )

    @property
    def fingerprint(self) -> str:
        """sha256 of everything above; equal exactly for recipes that build equal indexes."""
        text = json.dumps(self.as_dict(), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def differs_from(self, other: Recipe) -> dict[str, tuple[Any, Any]]:
        """The parts that differ, with both values; the model's parts as `model.…`."""
        mine, theirs = self.as_dict(), other.as_dict()
        out = {k: (mine[k], theirs[k]) for k in mine if k != "model" and mine[k] != theirs[k]}
        for name, both in self.model.differs_from(other.model).items():
            out[f"model.{name}"] = both
        return out
