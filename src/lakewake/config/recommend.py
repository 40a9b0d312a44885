"""`[recommend]` of lakewake.toml."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from urllib.parse import urlsplit

from lakewake.config.section import Section
from lakewake.config.settings import RecommendSettings

KINDS = {f.name: float if f.default is None else type(f.default) for f in fields(RecommendSettings)}
#: Characters that instructions and template must leave for the rules, the question and the rows.
ROOM = 2_000
LONGEST_TIMEOUT, MOST_ROWS, MOST_CHARS = 3600, 1000, 1_000_000
URL, TEMPLATE = 'url = "http://localhost:8080/v1"', 'template = "{question}\\n\\n{rows}"'


def read_recommend(section: Section) -> RecommendSettings:
    """The settings that the section holds.

    Raises:
        ConfigError: one of them cannot be used.
    """
    section.refuse_unknown(KINDS)
    found = RecommendSettings(**{key: section.get(key, KINDS[key]) for key in section.values})
    _check_service(section, found)
    _check_bounds(section, found)
    _check_prompt(section, found)
    return found


def _check_service(section: Section, chat: RecommendSettings) -> None:
    if bool(chat.url) != bool(chat.name):
        lacking, line = ("name", 'name = "gpt-4o-mini"') if chat.url else ("url", URL)
        variable = f"LAKEWAKE_RECOMMEND_{lacking.upper()}"
        hint = f"add a line such as {line}, or set the environment variable {variable}"
        raise section.fail(f"`{lacking}` is missing", hint)
    try:
        address = urlsplit(chat.url)
        usable = address.scheme in ("http", "https") and bool(address.hostname)
    except ValueError:
        usable = False
    if chat.url and not usable:
        raise section.fail("`url` is not an http address", URL)


def _check_bounds(section: Section, chat: RecommendSettings) -> None:
    if not 0 < chat.timeout <= LONGEST_TIMEOUT:
        upto = f"more than 0 and up to {LONGEST_TIMEOUT} seconds"
        raise section.fail(f"`timeout` is {chat.timeout:g}, expected {upto}", "timeout = 30")
    if chat.temperature is not None and not 0 <= chat.temperature <= 2:
        raise section.fail(
            f"`temperature` is {chat.temperature:g}, expected 0 to 2", "temperature = 0.2"
        )
    section.count("max_tokens", 0)
    if chat.min_score is not None and not math.isfinite(chat.min_score):
        raise section.fail(f"`min_score` is {chat.min_score}, not a number", "min_score = 0.3")
    section.count("context_tokens", 2_000, least=1)
    if not 1 <= chat.max_rows <= MOST_ROWS:
        raise section.fail(
            f"`max_rows` is {chat.max_rows}, expected 1 to {MOST_ROWS}", "max_rows = 8"
        )


def _check_prompt(section: Section, chat: RecommendSettings) -> None:
    names = re.findall(r"\{(\w+)\}", chat.template)
    if chat.template and sorted(names) != ["question", "rows"]:
        raise section.fail(
            "`template` must hold {question} and {rows}, each once, and no other name in braces",
            TEMPLATE,
        )
    least = len(chat.instructions) + len(chat.template) + ROOM
    if not least <= chat.max_prompt_chars <= MOST_CHARS:
        raise section.fail(
            f"`max_prompt_chars` is {chat.max_prompt_chars}, expected {least} to {MOST_CHARS}",
            "change it, or shorten `instructions` and `template`: they share it with the built-in "
            "rules, the question and the rows",
        )
