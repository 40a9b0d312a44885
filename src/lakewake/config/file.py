"""lakewake.toml, read once at the start. The environment wins over the file, a flag over both.

`parse_config` turns text into `Settings` and does no I/O; `load_config` reads the file.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from lakewake.config.models import (
    read_model,
    read_rerank,
    read_text_model,
    read_vector_model,
)
from lakewake.config.recommend import read_recommend
from lakewake.config.section import KIND_NAMES, Section, kind_of, locate
from lakewake.config.serve import read_serve
from lakewake.config.settings import (
    MAX_DELETE,
    MAX_MB,
    EmbeddingStoreSettings,
    IndexSettings,
    ModelSettings,
    RecommendSettings,
    ServeSettings,
    Settings,
)
from lakewake.errors import ConfigError
from lakewake.model.choices import LOCAL_STORES, METRICS, REMOTE_STORES
from lakewake.model.chunks import RESERVED
from lakewake.model.recall import RECALL
from lakewake.model.recipe import Chunking, TextField
from lakewake.net import schemes
from lakewake.net.address import check_address

DEFAULT_FILE = "lakewake.toml"
MAX_WEIGHT = 1000
DEFAULT_STORE = "lance://index"
FILE_VARIABLE = "LAKEWAKE_CONFIG"
MASTER_VARIABLE = "LAKEWAKE_SPARK_MASTER"
#: Variables that win over `url` and `name` of [recommend].
RECOMMEND_VARIABLES = {"LAKEWAKE_RECOMMEND_URL": "url", "LAKEWAKE_RECOMMEND_NAME": "name"}

_TOP_KEYS = ("index", "model", "spark", "embedding_store", "recommend", "serve", schemes.KEY)
_EMBEDDING_STORE_KEYS = tuple(f.name for f in fields(EmbeddingStoreSettings))
_IN_FILE = {"fields": "text", "chunking": "chunk"}
#: `weights` are written with the text fields that they belong to.
_INDEX_KEYS = (
    *(_IN_FILE.get(f.name, f.name) for f in fields(IndexSettings) if f.name != "weights"),
    "dimension",
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_SPARK_SECRETS = "leave it to the environment, a credential provider or spark-defaults.conf"
_SECRET_ENDINGS = (".secret.key", ".session.token", ".password", ".secret", ".token")


def load_config(
    path: str | Path | None = None,
    *,
    spark_master: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Settings:
    """Find, read and check the configuration.

    Args:
        path: the file (`--config`); None: that of `LAKEWAKE_CONFIG`, else ./lakewake.toml.
        spark_master: wins over `LAKEWAKE_SPARK_MASTER`, which wins over `[spark]`.
        env: the environment; `os.environ` by default.

    Raises:
        ConfigError: there is no such file, or something in it cannot be used.
    """
    env = os.environ if env is None else env
    file = Path(path or env.get(FILE_VARIABLE) or DEFAULT_FILE)
    for variable in (*RECOMMEND_VARIABLES, MASTER_VARIABLE):
        check_address(env.get(variable, ""), f"the variable {variable}")
    settings = parse_config(_read(file), file, _chat_from(env))
    master = spark_master or env.get(MASTER_VARIABLE)
    spark = {**settings.spark, "spark.master": master} if master else settings.spark
    return replace(settings, spark=spark)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no configuration at {file}",
            hint="`lakewake init TABLE` writes one; `--config FILE` names another",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text", hint="save it as UTF-8") from error
    except OSError as error:
        hint = "check its permissions, or name another file with --config FILE"
        raise ConfigError(f"{file} cannot be read: {error.strerror}", hint=hint) from error


def parse_config(text: str, path: Path, chat: Mapping[str, str] | None = None) -> Settings:
    """The settings in a configuration's text.

    Args:
        path: where the text comes from; relative paths in it start from its folder.
        chat: `url` and `name` that win over those of `[recommend]`.

    Raises:
        ConfigError: it does not parse, or something in it cannot be used.
    """
    path = Path(os.path.abspath(path))
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}", hint="correct that line: it is not TOML") from error
    top = Section(f"{path}", values)
    top.refuse_unknown(_TOP_KEYS)
    sections = _index_sections(top)
    # First of all: later errors may show what they refuse, and a secret must not be shown.
    rest = {key: value for key, value in top.values.items() if key not in ("index", "spark")}
    for section in (*sections, Section(top.where, rest)):
        section.refuse_secret_addresses()
    default = read_model(top, path.parent) or ModelSettings()
    kept = _embedding_store(top, sections, path.parent)
    indexes = tuple(_index(s, default, kept, path.parent) for s in sections)
    untested = bool(top.get(schemes.KEY, bool, False))
    _refuse_untested(sections, indexes, untested=untested)
    _refuse_twins(f"{path}: two indexes are", "called", [i.name for i in indexes])
    return Settings(
        path=path,
        indexes=indexes,
        spark=_spark(top),
        recommend=_recommend(top, chat or {}),
        serve=_serve(top, path.parent),
        untested_schemes=untested,
    )


def _refuse_untested(
    sections: Iterable[Section], indexes: Iterable[IndexSettings], *, untested: bool
) -> None:
    if untested:
        return
    hint = f"`{schemes.KEY} = true` at the top of the file tries it anyway"
    for section, index in zip(sections, indexes, strict=True):
        try:
            schemes.refuse_untested(index.table, hint)
        except ConfigError as error:
            raise section.fail(error.fact, error.hint) from error


def _index_sections(top: Section) -> list[Section]:
    tables = top.values.get("index", [])
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise top.fail("`index` is not a list of tables", "begin each index with [[index]]")
    if not tables:
        raise top.fail("no index is described", "add an [[index]], or run `lakewake init TABLE`")
    return [Section(f"{top.where}: {_title(n, t)}", t) for n, t in enumerate(tables, 1)]


def _title(n: int, table: Mapping[str, Any]) -> str:
    name = table.get("name")
    return f"index {name!r}" if isinstance(name, str) else f"index number {n}"


def _index(
    section: Section, default: ModelSettings, kept: EmbeddingStoreSettings | None, folder: Path
) -> IndexSettings:
    section.refuse_unknown(_INDEX_KEYS)
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
        store=_store(section, folder),
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
        rerank=read_rerank(section, folder),
        freshness=section.seconds("freshness"),
        max_delete=_max_delete(section),
        recall=_recall(section),
    )


def _max_delete(section: Section) -> float:
    share: float = section.get("max_delete", float, MAX_DELETE)
    if not 0 <= share <= 1:
        raise section.fail(
            f"`max_delete` is {share:g}, expected a share from 0 to 1",
            "max_delete = 0.5 lets one sync remove up to half of the rows without --allow-deletes",
        )
    return share


def _recall(section: Section) -> float:
    value: float = section.get("recall", float, RECALL)
    # Written so that it refuses NaN too.
    if not 0 < value <= 1:
        raise section.fail(
            f"`recall` is {value:g}, expected more than 0 and at most 1",
            f"recall = {RECALL}, or recall = 1 for exact searches only",
        )
    return value


def _store(section: Section, folder: Path) -> str:
    uri: str = section.get("store", str, DEFAULT_STORE)
    scheme, mark, path = uri.partition("://")
    if not mark or not path:
        valid = 'write it as "lance://FOLDER", "lance+s3://BUCKET/FOLDER" or "qdrant://HOST:6333"'
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
    _refuse_twins(f"{section.where}: two text fields are", "called", [f.name for f in found])
    return found


def _text_field(section: Section) -> TextField:
    if "column" in section.values:
        section.refuse_unknown(("column", "weight"))
        column = section.need("column", '"description"')
        return TextField(column, f"{{{column}}}")
    section.refuse_unknown(("name", "template", "weight"))
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
        if "." in column or "`" in column:
            raise section.fail(
                f"payload column {column!r} has a '.' or a '`' in its name, which Lance refuses",
                "leave it out, or rename it in the table",
            )
        if column.startswith(RESERVED):
            raise section.fail(
                f"payload column {column!r} begins with {RESERVED!r}, which marks Lakewake's own",
                "leave it out: a row's key, partition and instant are in every hit",
            )
    _refuse_twins(f"{section.where}: payload names", "column", value)
    return tuple(value)


def _refuse_twins(fact: str, word: str, names: list[str]) -> None:
    twins = sorted({n for n in names if names.count(n) > 1})
    if twins:
        raise ConfigError(f"{fact} {word} {twins[0]!r}", hint="use each name once")


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


def _embedding_store(
    top: Section, indexes: Iterable[Section], folder: Path
) -> EmbeddingStoreSettings | None:
    """The vector cache that all indexes share: beside the first index, unless the file names one.

    It is always local. Every batch of texts asks it, and S3 would be too far away for that.
    """
    value = top.values.get("embedding_store", True)
    if value is False:
        return None
    value = {} if value is True else value
    if not isinstance(value, dict):
        raise top.fail(
            f"`embedding_store` is {kind_of(value)}, expected a table, true or false",
            "embedding_store = true",
        )
    section = Section(f"{top.where}: embedding_store", value)
    section.refuse_unknown(_EMBEDDING_STORE_KEYS)
    max_mb = section.count("max_mb", MAX_MB, least=1)
    named: str | None = section.get("folder", str)
    if named:
        return EmbeddingStoreSettings(locate(folder, named), max_mb)
    stores = [_store(s, folder).partition("://") for s in indexes]
    beside = next((path for scheme, _, path in stores if scheme in LOCAL_STORES), None)
    if beside is None and any(scheme in REMOTE_STORES for scheme, _, _ in stores):
        beside = locate(folder, DEFAULT_STORE.removeprefix("lance://"))
    return EmbeddingStoreSettings(beside, max_mb) if beside else None


def _chat_from(env: Mapping[str, str]) -> dict[str, str]:
    return {key: env[name] for name, key in RECOMMEND_VARIABLES.items() if env.get(name)}


def _recommend(top: Section, chat: Mapping[str, str]) -> RecommendSettings:
    value = top.values.get("recommend", {})
    if not isinstance(value, dict):
        raise top.fail(
            f"`recommend` is {kind_of(value)}, expected a table", "begin it with a line [recommend]"
        )
    section = Section(f"{top.where}: recommend", {**value, **chat})
    section.refuse_secrets()
    return read_recommend(section)


def _serve(top: Section, folder: Path) -> ServeSettings:
    value = top.values.get("serve", {})
    if not isinstance(value, dict):
        raise top.fail(
            f"`serve` is {kind_of(value)}, expected a table", "begin it with a line [serve]"
        )
    found = read_serve(Section(f"{top.where}: serve", value))
    return replace(found, keys=locate(folder, found.keys)) if found.keys else found


def _spark(top: Section) -> dict[str, str]:
    value = top.values.get("spark", {})
    if not isinstance(value, dict):
        raise top.fail(
            f"`spark` is {kind_of(value)}, expected a table of options",
            "begin it with a line [spark]",
        )
    section = Section(f"{top.where}: spark", value)
    options = dict(_flatten(section, value, ""))
    for key, option in options.items():
        check_address(option, f"{section.where}: `{key}`", _SPARK_SECRETS)
        if key.endswith(_SECRET_ENDINGS):
            raise section.fail(f"`{key}`: secrets do not belong in this file", _SPARK_SECRETS)
    return options


def _flatten(section: Section, table: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    """Dotted names as Spark writes them; `spark.` is added in front if it is missing."""
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flatten(section, value, f"{name}.")
        elif isinstance(value, list) or type(value) not in KIND_NAMES:
            raise section.fail(
                f"`{name}` is {kind_of(value)}, expected one value", "write it as one string"
            )
        else:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            yield (name if name.startswith("spark.") else f"spark.{name}"), text
