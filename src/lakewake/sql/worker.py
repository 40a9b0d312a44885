"""The table functions, as Spark's Python workers run them: each call is a search of an index."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakewake.api import Index, Sessions, open_index
from lakewake.config.settings import IndexSettings
from lakewake.embed.registry import kept_embedder
from lakewake.errors import ConfigError
from lakewake.progress import Silent

if TYPE_CHECKING:
    from lakewake.model.query import Hit, SearchResult

#: The indexes of a session, by name.
Indexes = Mapping[str, "Known"]
#: A row of a table function.
Line = tuple[Any, ...]
OWN_COLUMNS = (
    "_rank int, _key string, _partition string, _score double, _text string, _instant string"
)
#: The columns if Spark cannot know the index: a function has the same columns for all of them.
ANY_INDEX = f"{OWN_COLUMNS}, payload map<string, string>"


#: The indexes that this process has opened, by their settings or address.
_open: dict[str, Index] = {}


@dataclass(frozen=True)
class Known:
    """An index that a session knows.

    Attributes:
        files: settings of its model that name files, and where executors find these.
    """

    settings: IndexSettings
    files: Mapping[str, str] = field(default_factory=dict)

    def there(self) -> IndexSettings:
        """The settings on this machine."""
        settings = self.settings
        if self.files:
            from pyspark import SparkFiles

            root = Path(SparkFiles.getRootDirectory())
            files: dict[str, Any] = {key: str(root / path) for key, path in self.files.items()}
            settings = replace(settings, model=replace(settings.model, **files))
        # A search embeds one question, so there is nothing to cache.
        return replace(settings, embedding_store=None)


def opened(indexes: Indexes, name: str) -> Index:
    """The index of that name or address; a process opens it once.

    Raises:
        ConfigError: there is none.
    """
    if name not in indexes and "://" not in name:
        raise ConfigError(
            f"there is no vector index '{name}'",
            hint="name an index of this session, or pass the address of one; after a change of "
            f"lakewake.toml, register again. It knows {', '.join(sorted(indexes)) or 'none yet'}",
        )
    known = indexes.get(name)
    key = repr(known) if known else name
    if key not in _open:
        _open[key] = _index(known.there()) if known else open_index(name)
    return _open[key]


def _index(settings: IndexSettings) -> Index:
    return Index(settings, Sessions({}, None, False), Silent(), load=kept_embedder)


def ask(index: Index, question: object, options: Mapping[str, Any]) -> SearchResult | None:
    """The answer of `Index.search`; None if there is no question.

    Args:
        question: a text, or the numbers of a vector.
        options: further arguments of `Index.search`.
    """
    if question is None or question == "":
        return None
    if isinstance(question, str):
        return index.search(question, **options)
    return index.search(vector=as_vector(question), **options)


def as_vector(question: object) -> list[float]:
    """The numbers of a vector, which Spark may have as decimals.

    Raises:
        ConfigError: it is not a list of numbers.
    """
    try:
        return [float(number) for number in question]  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the question is neither a text nor a vector, but {type(question).__name__}",
            hint="pass a text, or ARRAY(0.1, 0.2, …)",
        ) from error


def lines(result: SearchResult, payload: Callable[[Hit], Line]) -> Iterator[Line]:
    """The rows of an answer, best first."""
    for rank, hit in enumerate(result.hits, 1):
        own = (rank, hit.key, hit.partition, hit.score, hit.text, result.instant)
        yield (*own, *payload(hit))


def as_map(hit: Hit) -> Line:
    """The payload as one map of texts."""
    return ({name: _text(value) for name, value in hit.payload.items() if value is not None},)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.date):
        return value.isoformat(*([" "] if isinstance(value, datetime.datetime) else []))
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)


def as_columns(types: Mapping[str, pa.DataType | None]) -> Callable[[Hit], Line]:
    """A function that makes one column of each payload value.

    Args:
        types: payload column → its type; None if Spark does not have it and takes it as text.
    """

    def columns(hit: Hit) -> Line:
        return tuple(_spark_value(hit.payload.get(name), type) for name, type in types.items())

    return columns


def _spark_value(value: Any, type: pa.DataType | None) -> Any:
    """A value as PySpark converts it: Arrow's maps are lists of pairs in Python."""
    if value is None:
        return None
    if type is None:
        return _text(value)
    if pa.types.is_map(type):
        key, item = type.key_type, type.item_type
        return {_spark_value(k, key): _spark_value(v, item) for k, v in value}
    if pa.types.is_list(type):
        return [_spark_value(inner, type.value_type) for inner in value]
    if pa.types.is_struct(type):
        return {f.name: _spark_value(value.get(f.name), f.type) for f in type}
    return value


def search_function(indexes: Indexes, payload: Callable[[Hit], Line]) -> type:
    """The handler of `vector_search`. Spark sends a class made here with all that it holds."""

    class VectorSearch:
        """Searches by each row of its arguments."""

        def eval(
            self,
            index: str,
            question: Any,
            k: int = 10,
            where: str | None = None,
            mode: str = "vector",
            exact: bool = False,
        ) -> Iterator[Line]:
            options = {"k": k, "where": where, "mode": mode, "exact": exact}
            result = ask(opened(indexes, index), question, options)
            if result is not None:
                yield from lines(result, payload)

    return VectorSearch


def range_function(indexes: Indexes, payload: Callable[[Hit], Line]) -> type:
    """The handler of `vector_range`."""

    class VectorRange:
        """Searches by each row of its arguments."""

        def eval(
            self, index: str, question: Any, distance: Any, where: str | None = None
        ) -> Iterator[Line]:
            if question is None or question == "":
                return
            asked = question if isinstance(question, str) else as_vector(question)
            result = opened(indexes, index).with_view(
                lambda view: view.within(asked, float(distance), where=where)
            )
            yield from lines(result, payload)

    return VectorRange


#: Function → what makes its handler.
HANDLERS: Mapping[str, Callable[[Indexes, Callable[[Hit], Line]], type]] = {
    "vector_search": search_function,
    "vector_range": range_function,
}
