"""Turns CREATE VECTOR INDEX into the keys of an [[index]] in lakewake.toml. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakewake.config.models import MODEL_KINDS, RERANK_KINDS
from lakewake.model.recipe import TextField, name_of
from lakewake.sql.statements import CreateIndex, Name, Option, Value

#: Stores by their name in USING.
STORES = ("lance", "hudi", "qdrant")
#: What the values of some options are, if they are written in quotes.
KINDS: Mapping[str, type] = {
    "dimension": int,
    "chunk.tokens": int,
    "chunk.overlap": int,
    "ann.kind": str,
    "ann.from": int,
    "keep": int,
    "recall": float,
    "max_delete": float,
    "embedding_store": bool,
    **{f"model.{key}": kind for key, kind in MODEL_KINDS.items()},
    **{f"rerank.{key}": kind for key, kind in RERANK_KINDS.items()},
}
_AS_WRITTEN = ("model", "chunk", "metric", "freshness", "fallback", "language", "hybrid", "where")
VALID = ("location", "store", "text", "payload", *_AS_WRITTEN, *KINDS)
_METRICS = {"dot_product": "dot"}
_CHOSEN = "Lakewake chooses it by itself, to reach the index's `recall`"
#: Options of Hudi's RFC-109 that mean nothing here, and why.
FOREIGN = {
    **dict.fromkeys(
        (
            *("vector.quantizer", "vector.num_clusters", "vector.max_iter"),
            *("vector.rabitq.bits", "vector.rabitq.seed", "vector.rabitq.assume_normalized"),
            *("vector.query.nprobes", "vector.query.refine_factor"),
        ),
        _CHOSEN,
    ),
    "vector.query.mode": "it is an argument of each search: vector_search(…, exact => true)",
}


@dataclass(frozen=True)
class Seen:
    """What a look at the table found.

    Attributes:
        table: its path, as the configuration should give it.
        columns: the names of its columns.
        vectors: the length of the vectors in each vector column; 0 if the schema does not give it.
        payload: the columns that an index returns if the statement does not name them.
    """

    table: str
    columns: tuple[str, ...]
    vectors: Mapping[str, int]
    payload: tuple[str, ...] = ()


def index_values(statement: CreateIndex, seen: Seen, *, beside: bool) -> dict[str, Any]:
    """The keys of the index.

    Args:
        beside: whether an index without a location goes beside the configuration.

    Raises:
        SqlError: a column does not exist, or an option cannot be used.
    """
    names = tuple(str(column) for column in statement.columns)
    for column in statement.columns:
        if str(column) not in seen.columns:
            raise column.refused(
                f"the table has no column `{column}`",
                f"use one of its columns: {', '.join(seen.columns)}",
            )
    values: dict[str, Any] = {"name": str(statement.name), "table": seen.table}
    options = _by_key(statement.options)
    values |= _source(statement, names, seen, options.get("text"))
    values["payload"] = [c for c in seen.payload if c not in names]
    values["store"] = _store(statement, options, beside=beside)
    for key, option in options.items():
        if key not in ("text", "location", "store"):
            _put(values, key, option)
    return values


def _by_key(options: Sequence[Option]) -> dict[str, Option]:
    found: dict[str, Option] = {}
    for option in options:
        key = option.key.lower()
        if key in found:
            raise option.refused(f"option '{option.key}' is given twice", "remove one of them")
        if key in FOREIGN:
            raise option.refused(f"option '{option.key}' has no effect here", FOREIGN[key])
        if key not in (*VALID, *_RFC):
            raise option.refused(
                f"there is no option '{option.key}'",
                f"valid options are {', '.join((*_RFC, *sorted(VALID)))}",
            )
        found[key] = option
    return found


def _source(
    statement: CreateIndex, names: tuple[str, ...], seen: Seen, text: Option | None
) -> dict[str, Any]:
    """The key that names the text or the vectors."""
    vectors = [column for column in statement.columns if str(column) in seen.vectors]
    if not vectors:
        return {"text": _template(names, text)}
    if len(names) > 1 or text is not None:
        raise vectors[0].refused(
            f"column `{vectors[0]}` holds vectors, so it makes an index alone",
            "name this column only, or columns of text only",
        )
    dimension = seen.vectors[names[0]]
    return {"vector": names[0]} | ({"dimension": dimension} if dimension else {})


def _template(names: tuple[str, ...], given: Option | None) -> str:
    usual = ". ".join(f"{{{name}}}" for name in names)
    if given is None:
        return usual
    template = str(given.value)
    try:
        used = {name_of(path) for path in TextField("text", template).columns}
    except ValueError as error:
        raise given.refused(f"option 'text': {error}", f"write it as '{usual}'") from error
    if used != set(names):
        raise given.refused(
            f"option 'text' uses {', '.join(sorted(used)) or 'no column'}, "
            f"the statement names {', '.join(names)}",
            f"use the same columns, as in '{usual}'",
        )
    return template


def _store(statement: CreateIndex, options: Mapping[str, Option], *, beside: bool) -> str:
    """The address of the store."""
    kind = _kind(statement.store)
    if (whole := options.get("store")) is not None:
        if statement.store is not None or "location" in options:
            raise whole.refused(
                "option 'store' is an address of its own", "leave out USING and 'location'"
            )
        return str(whole.value)
    if (location := options.get("location")) is not None:
        path = str(location.value).removeprefix(f"{kind}://")
        scheme, mark, rest = path.partition("://")
        return f"{kind}+s3://{rest}" if mark and scheme in ("s3", "s3a") else f"{kind}://{path}"
    if kind == "qdrant" or not beside:
        example = "localhost:6333" if kind == "qdrant" else "/lake/index"
        raise statement.name.refused(
            f"index '{statement.name}' needs a location",
            f"add OPTIONS ('location' = '{example}')",
        )
    return "lance://index" if kind == "lance" else f"hudi://index/{statement.name}"


def _kind(store: Name | None) -> str:
    kind = "lance" if store is None else str(store).lower()
    if store is not None and kind not in STORES:
        raise store.refused(f"there is no store '{store}'", f"use one of {', '.join(STORES)}")
    return kind


def _put(values: dict[str, Any], key: str, option: Option) -> None:
    """Set what an option means in the file."""
    if key in _RFC:
        values |= _RFC[key](option)
    elif key == "payload":
        values[key] = _list(option.value)
    elif "." in key:
        table, _, inner = key.partition(".")
        held = values.setdefault(table, {})
        values[table] = {**({"name": held} if isinstance(held, str) else held)}
        values[table][inner] = _typed(KINDS[key], option.value)
    else:
        values[key] = _typed(KINDS[key], option.value) if key in KINDS else option.value


def _list(value: Value) -> list[Any]:
    if isinstance(value, tuple):
        return list(value)
    return [part.strip() for part in str(value).split(",") if part.strip()]


def _typed(kind: type, value: Value) -> Any:
    """The value of an option; a text that is not of its kind stays, and is refused later."""
    if not isinstance(value, str):
        return float(value) if kind is float and isinstance(value, int) else value
    if kind is bool:
        return {"true": True, "false": False}.get(value.lower(), value)
    try:
        return kind(value)
    except ValueError:
        return value


def _metric(option: Option) -> dict[str, str]:
    metric = str(option.value).lower()
    return {"metric": _METRICS.get(metric, metric)}


def _stale(option: Option) -> dict[str, str]:
    policy = str(option.value).upper()
    if policy not in ("FAIL", "FALLBACK"):
        raise option.refused(
            f"'{option.key}' cannot be '{option.value}'",
            "use 'FAIL', or 'FALLBACK' to scan the table if the index is missing or too old",
        )
    return {"fallback": "scan"} if policy == "FALLBACK" else {}


#: Options with the names and values of Hudi's RFC-109.
_RFC: Mapping[str, Callable[[Option], dict[str, str]]] = {
    "vector.metric": _metric,
    "vector.query.stale_policy": _stale,
}
