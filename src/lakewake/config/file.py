"""lakewake.toml, read once at the start. The environment wins over the file, a flag over both.

`parse_config` turns text into `Settings` and does no I/O; `load_config` reads the file.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lakewake.config.embedding_store import read_embedding_store
from lakewake.config.index import read_index
from lakewake.config.models import read_model
from lakewake.config.recommend import read_recommend
from lakewake.config.section import Section, locate, refuse_twins
from lakewake.config.serve import read_serve
from lakewake.config.settings import (
    IndexSettings,
    ModelSettings,
    RecommendSettings,
    ServeSettings,
    Settings,
)
from lakewake.config.spark import read_spark
from lakewake.errors import ConfigError
from lakewake.net import schemes
from lakewake.net.address import check_address

DEFAULT_FILE = "lakewake.toml"
FILE_VARIABLE = "LAKEWAKE_CONFIG"
MASTER_VARIABLE = "LAKEWAKE_SPARK_MASTER"
#: Variables that win over `url` and `name` of [recommend].
RECOMMEND_VARIABLES = {"LAKEWAKE_RECOMMEND_URL": "url", "LAKEWAKE_RECOMMEND_NAME": "name"}

_TOP_KEYS = ("index", "model", "spark", "embedding_store", "recommend", "serve", schemes.KEY)


def load_config(
    path: str | Path | None = None,
    *,
    spark_master: str | None = None,
    env: Mapping[str, str] | None = None,
    empty: bool = False,
) -> Settings:
    """Find, read and check the configuration.

    Args:
        path: the file (`--config`); None: that of `LAKEWAKE_CONFIG`, else ./lakewake.toml.
        spark_master: wins over `LAKEWAKE_SPARK_MASTER`, which wins over `[spark]`.
        env: the environment; `os.environ` by default.
        empty: whether a file without any index will do.

    Raises:
        ConfigError: there is no such file, or something in it cannot be used.
    """
    env = os.environ if env is None else env
    file = Path(path or env.get(FILE_VARIABLE) or DEFAULT_FILE)
    for variable in (*RECOMMEND_VARIABLES, MASTER_VARIABLE):
        check_address(env.get(variable, ""), f"the variable {variable}")
    settings = parse_config(_read(file), file, _chat_from(env), empty=empty)
    master = spark_master or env.get(MASTER_VARIABLE)
    spark = {**settings.spark, "spark.master": master} if master else settings.spark
    return replace(settings, spark=spark)


def _read(file: Path) -> str:
    try:
        # Some editors on Windows put a mark in front of UTF-8 text.
        return file.read_text(encoding="utf-8-sig")
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


def parse_config(
    text: str, path: Path, chat: Mapping[str, str] | None = None, *, empty: bool = False
) -> Settings:
    """The settings in a configuration's text.

    Args:
        path: where the text comes from; relative paths in it start from its folder.
        chat: `url` and `name` that win over those of `[recommend]`.
        empty: whether a text without any index will do.

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
    sections = _index_sections(top, empty=empty)
    # First of all: later errors may show what they refuse, and a secret must not be shown.
    rest = {key: value for key, value in top.values.items() if key not in ("index", "spark")}
    for section in (*sections, Section(top.where, rest)):
        section.refuse_secret_addresses()
    default = read_model(top, path.parent) or ModelSettings()
    kept = read_embedding_store(top, sections, path.parent)
    indexes = tuple(read_index(s, default, kept, path.parent) for s in sections)
    untested = bool(top.get(schemes.KEY, bool, False))
    _refuse_untested(sections, indexes, untested=untested)
    refuse_twins(f"{path}: two indexes are", "called", [i.name for i in indexes])
    _refuse_shared(path, indexes)
    return Settings(
        path=path,
        indexes=indexes,
        spark=read_spark(top.table("spark")),
        recommend=_recommend(top.table("recommend"), chat or {}),
        serve=_serve(top.table("serve"), path.parent),
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


def _refuse_shared(path: Path, indexes: Sequence[IndexSettings]) -> None:
    """Raise if an index would use what another one has in the same store."""
    owners: dict[tuple[str, str], str] = {}
    for index in indexes:
        in_the_lake = index.store.partition("://")[0].partition("+")[0] == "hudi"
        place = (index.store.rstrip("/"), "" if in_the_lake else index.stored_name)
        other = owners.setdefault(place, index.name)
        if other != index.name and in_the_lake:
            raise ConfigError(
                f"{path}: indexes '{other}' and '{index.name}' are both in {index.store}",
                hint="give each index in the lake a folder of its own, such as "
                f"{index.store.rstrip('/')}/{index.name}",
            )
        if other != index.name:
            raise ConfigError(
                f"{path}: indexes '{other}' and '{index.name}' are both stored as "
                f"'{index.stored_name}' in {index.store}",
                hint="give one of them another name or another store",
            )


def _index_sections(top: Section, *, empty: bool) -> list[Section]:
    tables = top.values.get("index", [])
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise top.fail("`index` is not a list of tables", "begin each index with [[index]]")
    if not tables and not empty:
        raise top.fail("no index is described", "add an [[index]], or run `lakewake init TABLE`")
    return [Section(f"{top.where}: {_title(n, t)}", t) for n, t in enumerate(tables, 1)]


def _title(n: int, table: Mapping[str, Any]) -> str:
    name = table.get("name")
    return f"index {name!r}" if isinstance(name, str) else f"index number {n}"


def _chat_from(env: Mapping[str, str]) -> dict[str, str]:
    return {key: env[name] for name, key in RECOMMEND_VARIABLES.items() if env.get(name)}


def _recommend(section: Section, chat: Mapping[str, str]) -> RecommendSettings:
    section = Section(section.where, {**section.values, **chat})
    section.refuse_secrets()
    return read_recommend(section)


def _serve(section: Section, folder: Path) -> ServeSettings:
    found = read_serve(section)
    keys, audit = (path and locate(folder, path) for path in (found.keys, found.audit))
    tokens = found.tokens
    if tokens is not None:
        tokens = replace(tokens, jwks=locate(folder, tokens.jwks))
    return replace(found, keys=keys, audit=audit, tokens=tokens)
