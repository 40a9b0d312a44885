"""`[[index]]` of lakewake.toml."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from lakewake.config.models import read_rerank, read_text_model, read_vector_model
from lakewake.config.section import Section, kind_of, locate, refuse_twins
from lakewake.config.settings import (
    MAX_DELETE,
    EmbeddingStoreSettings,
    IndexSettings,
    ModelSettings,
)
from lakewake.model.ann import ANN_MIN_CHUNKS, Ann
from lakewake.model.canaries import DROP, CanarySettings
from lakewake.model.choices import FALLBACKS, LOCAL_STORES, METRICS, MODES
from lakewake.model.fusion import FUSIONS, USUAL, Fusion
from lakewake.model.hot import OFF, parse_size
from lakewake.model.keep import KEPT_COMMITS, Keep
from lakewake.model.languages import AUTO, LANGUAGES, NONE
from lakewake.model.recall import RECALL, RECALL_IN_LAKE
from lakewake.model.recipe import RESERVED, Chunking, TextField
from lakewake.model.selection import SelectionError, parse_selection

MAX_WEIGHT = 1000
DEFAULT_STORE = "lance://index"
_IN_FILE = {"fields": "text", "chunking": "chunk", "languages": "language"}
#: `weights` are written with the text fields that they belong to.
INDEX_KEYS = (
    *(_IN_FILE.get(f.name, f.name) for f in fields(IndexSettings) if f.name != "weights"),
    "dimension",
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
#: Names that hudi-rs reads: those of Avro, in its narrow sense.
_READABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_index(
    section: Section, default: ModelSettings, kept: EmbeddingStoreSettings | None, folder: Path
) -> IndexSettings:
    """The settings of one index.

    Args:
        default: the model, if the index names none.
        kept: the vector cache of the configuration.
        folder: relative paths start from it.

    Raises:
        ConfigError: one of them cannot be used.
    """
    section.refuse_unknown(INDEX_KEYS)
    name = section.need("name", '"wines"')
    if not _NAME.fullmatch(name):
        raise section.fail(
            f"`name` is {name!r}", "use letters, digits, _ and -, beginning with a letter or digit"
        )
    if ("text" in section.values) == ("vector" in section.values):
        raise section.fail(
            "needs exactly one of `text` and `vector`",
            'text = "{title}. {description}", or vector = "embedding" with dimension = 384',
        )
    vector: str | None = section.get("vector", str)
    # Vectors that come from the table are not embedded, so there is nothing to cache.
    keeps = section.get("embedding_store", bool, True) and not vector
    return IndexSettings(
        name=name,
        table=locate(folder, section.need("table", '"lake/wine_reviews"')),
        store=read_store(section, folder),
        fields=() if vector else _text_fields(section),
        vector=vector,
        payload=_payload(section),
        chunking=_chunking(section),
        model=read_vector_model(section, vector, folder)
        if vector
        else read_text_model(section, default, folder),
        metric=section.choice("metric", METRICS, "cosine"),
        embedding_store=kept if keeps else None,
        weights={} if vector else _weights(section),
        languages=_languages(section),
        hybrid=_hybrid(section),
        canaries=_canaries(section, folder),
        rerank=read_rerank(section, folder),
        freshness=section.seconds("freshness"),
        max_delete=_max_delete(section),
        recall=_recall(section),
        ann=_ann(section),
        keep=_keep(section),
        fallback=_fallback(section),
        hot=_hot(section),
        stored_as=_stored_as(section, name),
        where=_where(section),
    )


def _stored_as(section: Section, name: str) -> str:
    """The name in the store; "" if it is the name in the configuration."""
    stored: str = section.get("stored_as", str, name)
    if not _NAME.fullmatch(stored):
        raise section.fail(
            f"`stored_as` is {stored!r}", "remove it, unless `lakewake rename` has written it"
        )
    return "" if stored == name else stored


def _where(section: Section) -> str:
    """The condition on rows; its white space does not matter."""
    given: str = section.get("where", str, "")
    if not given:
        return ""
    try:
        return parse_selection(given).text
    except SelectionError as error:
        raise section.fail(f"`where` {given!r}: {error}", error.hint) from error


def _max_delete(section: Section) -> float:
    share: float = section.get("max_delete", float, MAX_DELETE)
    if not 0 <= share <= 1:
        raise section.fail(
            f"`max_delete` is {share:g}, expected a share from 0 to 1",
            "max_delete = 0.5 lets one sync remove up to half of the rows without --allow-deletes",
        )
    return share


def _recall(section: Section) -> float:
    in_lake = section.values.get("store", "").startswith(("hudi:", "hudi+s3:"))
    usual = RECALL_IN_LAKE if in_lake else RECALL
    value: float = section.get("recall", float, usual)
    # Written so that it refuses NaN too.
    if not 0 < value <= 1:
        raise section.fail(
            f"`recall` is {value:g}, expected more than 0 and at most 1",
            f"recall = {usual}, or recall = 1 for exact searches only",
        )
    return value


def _ann(section: Section) -> Ann:
    """Which approximate index the store keeps; what kinds there are is up to the store."""
    if not isinstance(section.values.get("ann", {}), dict):
        raise section.fail("`ann` is not a table", 'ann = {kind = "auto", from = 100000}')
    inner = section.table("ann")
    inner.refuse_unknown(("kind", "from"))
    kind: str = inner.get("kind", str, Ann().kind)
    return Ann(kind.lower(), inner.count("from", ANN_MIN_CHUNKS, least=1))


def _keep(section: Section) -> Keep:
    """A number of commits, or a duration."""
    if "keep" not in section.values:
        return Keep()
    if not section.values.get("store", "").startswith("hudi"):
        raise section.fail(
            "`keep` works only for an index in the lake",
            'remove it, or write store = "hudi://FOLDER"; Lance keeps versions for ten minutes',
        )
    if type(section.values["keep"]) is int:
        return Keep(section.count("keep", KEPT_COMMITS, least=1))
    return Keep(seconds=section.seconds("keep") or 0)


def _fallback(section: Section) -> str:
    if "fallback" not in section.values:
        return ""
    if "vector" not in section.values:
        raise section.fail(
            "`fallback` works only with `vector`: a table without vectors cannot be scanned",
            "remove it",
        )
    return section.choice("fallback", FALLBACKS, "")


def _hot(section: Section) -> str:
    value: str = section.get("hot", str, AUTO)
    if value not in (AUTO, OFF) and parse_size(value) is None:
        raise section.fail(
            f"`hot` is {value!r}, expected {AUTO!r}, {OFF!r} or a size",
            'hot = "2GB" lets each process that searches often hold the index in 2 GB of memory',
        )
    return value


def read_store(section: Section, folder: Path) -> str:
    """The address of the index; a local one has an absolute path."""
    uri: str = section.get("store", str, DEFAULT_STORE)
    scheme, mark, path = uri.partition("://")
    if not mark or not path:
        valid = (
            'write it as "lance://FOLDER", "lance+s3://BUCKET/FOLDER", "hudi://FOLDER", '
            '"hudi+s3://BUCKET/FOLDER" or "qdrant://HOST:6333"'
        )
        raise section.fail(f"`store` is {uri!r}", valid)
    return f"{scheme}://{locate(folder, path)}" if scheme in LOCAL_STORES else uri


def _text_fields(section: Section) -> tuple[TextField, ...]:
    value = section.values["text"]
    if isinstance(value, str):
        found: tuple[TextField, ...] = (TextField("text", section.get("text", str)),)
    elif isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
        found = tuple(_text_field(Section(f"{section.where}: text", v)) for v in value)
    else:
        raise section.fail(
            f"`text` is {kind_of(value)}, expected a template or a list of tables",
            'text = "{title}. {description}", or text = [{column = "title"}, '
            '{name = "story", template = "{title}. {description}"}]',
        )
    for field in found:
        _check_template(section, field)
    refuse_twins(f"{section.where}: two text fields are", "called", [f.name for f in found])
    return found


def _text_field(section: Section) -> TextField:
    if "column" in section.values:
        section.refuse_unknown(("column", "weight", "language"))
        column = section.need("column", '"description"')
        return TextField(column, f"{{{column}}}")
    section.refuse_unknown(("name", "template", "weight", "language"))
    name = section.need("name", '"story"')
    return TextField(name, section.need("template", '"{title}. {description}"'))


def _weights(section: Section) -> dict[str, float]:
    """What each text field's scores are multiplied by; fields without a weight are left out."""
    value, out = section.values["text"], {}
    for table in value if isinstance(value, list) else []:
        inner = Section(f"{section.where}: text", table)
        if "weight" in table:
            weight: float = inner.get("weight", float)
            if not 0 < weight <= MAX_WEIGHT:
                raise inner.fail(
                    f"`weight` is {weight}, expected more than 0, at most {MAX_WEIGHT}",
                    "weight = 2",
                )
            out[_text_field(inner).name] = weight
    return out


def _canaries(section: Section, folder: Path) -> CanarySettings | None:
    """A file, or a table with one."""
    value = section.values.get("canaries")
    if value is None:
        return None
    example = 'canaries = {file = "canaries.jsonl", mode = "hybrid", drop = 0.05}'
    if not isinstance(value, str | dict) or not value:
        raise section.fail("`canaries` is neither a file nor a table", example)
    inner = Section(
        f"{section.where}: canaries", {"file": value} if isinstance(value, str) else value
    )
    inner.refuse_unknown(("file", "mode", "drop"))
    drop: float = inner.get("drop", float, DROP)
    if not 0 <= drop <= 1:
        raise inner.fail(f"`drop` is {drop:g}, expected 0 to 1", example)
    usual = "vector" if "vector" in section.values else "hybrid"
    mode = inner.choice("mode", MODES, usual)
    if usual == "vector" != mode:
        raise inner.fail(f"`mode` is {mode!r}, and the index has no texts", "remove it")
    return CanarySettings(locate(folder, inner.need("file", '"canaries.jsonl"')), mode, drop)


def _hybrid(section: Section) -> Fusion:
    if "hybrid" not in section.values:
        return USUAL
    example = 'hybrid = {fusion = "scores", vector = 0.5}'
    value = section.values["hybrid"]
    if not isinstance(value, dict) or "vector" in section.values:
        works = "works only with `text`" if isinstance(value, dict) else "is not a table"
        raise section.fail(f"`hybrid` {works}", example)
    inner = Section(f"{section.where}: hybrid", value)
    inner.refuse_unknown(("fusion", "vector"))
    share: float = inner.get("vector", float, USUAL.share)
    if not 0 <= share <= 1:
        raise inner.fail(f"`vector` is {share:g}, expected a share from 0 to 1", example)
    return Fusion(inner.choice("fusion", FUSIONS, USUAL.by), share)


def _languages(section: Section) -> dict[str, str]:
    """The language of each text field; those to be recognised by their texts are left out."""
    if "vector" in section.values:
        if "language" in section.values:
            raise section.fail("`language` has no effect with `vector`", "remove it")
        return {}
    valid = (AUTO, NONE, *LANGUAGES)
    usual, out = section.choice("language", valid, AUTO), {}
    for field in _text_fields(section):
        out[field.name] = usual
    value = section.values["text"]
    for table in value if isinstance(value, list) else []:
        inner = Section(f"{section.where}: text", table)
        out[_text_field(inner).name] = inner.choice("language", valid, usual)
    return {name: language for name, language in out.items() if language != AUTO}


def _check_template(section: Section, field: TextField) -> None:
    example = 'write columns in braces, as in "{title}. {description}"; a brace itself is {{ or }}'
    try:
        columns = field.columns
    except ValueError as error:
        raise section.fail(f"`text` {field.template!r}: {error}", example) from error
    if not columns:
        raise section.fail(f"`text` {field.template!r} names no column", example)


def _payload(section: Section) -> tuple[str, ...]:
    value = section.values.get("payload", [])
    if not isinstance(value, list) or not all(isinstance(v, str) and v.strip() for v in value):
        raise section.fail(
            "`payload` is not a list of column names", 'payload = ["title", "price"]'
        )
    for column in value:
        if "`" in column:
            raise section.fail(
                f"payload column {column!r} has a '`' in its name, which Lance refuses",
                "leave it out, or rename it in the table",
            )
        if not all(part.strip() for part in column.split(".")):
            raise section.fail(
                f"payload column {column!r} is not a column or a field of a struct",
                'payload = ["title", "customer.country"]',
            )
        if column.startswith(RESERVED):
            raise section.fail(
                f"payload column {column!r} begins with {RESERVED!r}, which marks Lakewake's own",
                "leave it out: a row's key, partition and instant are in every hit",
            )
    refuse_twins(f"{section.where}: payload names", "column", value)
    for column in value:
        if whole := next((other for other in value if column.startswith(f"{other}.")), None):
            raise section.fail(
                f"payload column {column!r} is a part of {whole!r}, which is there as a whole",
                f"leave out one of the two; {whole!r} has all its fields",
            )
    _refuse_lake_columns(section, value)
    return tuple(value)


def _refuse_lake_columns(section: Section, payload: Sequence[str]) -> None:
    """Raise if an index in the lake could be written with these columns, but not be read."""
    if not str(section.values.get("store", "")).startswith(("hudi://", "hudi+")):
        return
    for column in payload:
        if not _READABLE.fullmatch(column):
            raise section.fail(
                f"payload column {column!r} cannot be in an index in the lake: hudi-rs reads only "
                "names of the letters a to z, digits and '_'",
                "leave it out, rename it in the table, or choose another store",
            )


def _chunking(section: Section) -> Chunking:
    value = section.values.get("chunk", "whole")
    if value == "whole":
        return Chunking()
    if "vector" in section.values:
        raise section.fail("`chunk` has no effect with `vector`", "remove it")
    if not isinstance(value, dict):
        raise section.fail(
            '`chunk` is neither "whole" nor a table', "chunk = {tokens = 200, overlap = 40}"
        )
    inner = Section(f"{section.where}: chunk", value)
    inner.refuse_unknown(("tokens", "overlap"))
    if "tokens" not in value:
        raise inner.fail("`tokens` is missing", "chunk = {tokens = 200, overlap = 40}")
    tokens, overlap = inner.count("tokens", 0, least=1), inner.count("overlap", 0)
    if overlap >= tokens:
        raise inner.fail(
            f"`overlap` {overlap} is not smaller than `tokens` {tokens}",
            "chunk = {tokens = 200, overlap = 40}",
        )
    return Chunking(tokens, overlap)
