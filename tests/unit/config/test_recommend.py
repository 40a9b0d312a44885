"""[recommend] of lakewake.toml: what it means, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakewake.config.file import load_config, parse_config
from lakewake.config.recommend import ROOM
from lakewake.config.settings import RecommendSettings
from lakewake.errors import ConfigError
from lakewake.recommend.prompt import INSTRUCTIONS, RULES, TEMPLATE

FILE = Path("/proj/conf/lakewake.toml")
TEXT = """
[[index]]
name = "wines"
table = "lake/wine_reviews"
text = "{title}. {description}"
"""


def parse(lines: str) -> RecommendSettings:
    return parse_config(f"{TEXT}[recommend]\n{lines}", FILE).recommend


def test_without_a_section_there_is_no_model_and_every_bound_has_its_default():
    assert parse_config(TEXT, FILE).recommend == RecommendSettings()
    assert RecommendSettings().url == ""


def test_every_key_is_read():
    given = """
    url = "https://models.example.com/v1"
    name = "m"
    key_env = ""
    instructions = "Be brief."
    template = "{question} {rows}"
    max_rows = 3
    timeout = 5
    max_tokens = 0
    temperature = 1
    max_prompt_chars = 4000
    """
    assert parse(given) == RecommendSettings(
        url="https://models.example.com/v1",
        name="m",
        key_env="",
        instructions="Be brief.",
        template="{question} {rows}",
        max_rows=3,
        timeout=5.0,
        max_tokens=0,
        temperature=1.0,
        max_prompt_chars=4000,
    )


@pytest.mark.parametrize(
    ("lines", "fact", "hint"),
    [
        ("modle = 'm'", "unknown key `modle`", "valid keys are url, name, key_env"),
        ("url = 'http://host/v1'", "`name` is missing", "LAKEWAKE_RECOMMEND_NAME"),
        ("name = 'm'", "`url` is missing", "LAKEWAKE_RECOMMEND_URL"),
        ("name = 'm'\nurl = 'host/v1'", "not an http address", "http://localhost"),
        ("name = 'm'\nurl = 'ftp://host/v1'", "not an http address", "http://localhost"),
        ("name = 'm'\nurl = 'http://[::/v1'", "not an http address", "http://localhost"),
        ("timeout = 0", "`timeout` is 0", ""),
        ("timeout = inf", "`timeout` is inf", ""),
        ("timeout = nan", "`timeout` is nan", ""),
        ("temperature = 3", "`temperature` is 3, expected 0 to 2", ""),
        ("temperature = nan", "`temperature` is nan, expected 0 to 2", ""),
        ("temperature = 'hot'", "`temperature` is a string", ""),
        ("max_rows = 0", "`max_rows` is 0, expected 1 to 1000", ""),
        ("max_tokens = -1", "`max_tokens` is -1", ""),
        ("max_prompt_chars = 100", "expected 2000 to 1000000", "share it"),
        (f"instructions = '{'x' * 11_000}'", "expected 13000 to", "share it"),
        ("template = 'Q {question}'", "must hold {question} and {rows}", "{rows}"),
        ("template = '{question} {rows} {rows}'", "each once", ""),
        ("template = '{question} {rows} {user}'", "no other name", ""),
    ],
)
def test_an_invalid_value_is_refused_with_the_valid_ones(lines: str, fact: str, hint: str):
    with pytest.raises(ConfigError) as caught:
        parse(lines)
    assert f"{FILE}: recommend: " in caught.value.fact
    assert fact in caught.value.fact
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "lines",
    [
        "api_key = 'sk-hidden'",
        "key_env = 'sk-hidden'",
        "name = 'm'\nurl = 'http://me:sk-hidden@host/v1'",
    ],
)
def test_a_secret_is_refused_and_not_repeated(lines: str):
    with pytest.raises(ConfigError) as caught:
        parse(lines)
    assert "sk-hidden" not in str(caught.value)


def test_a_section_that_is_not_a_table_is_refused():
    with pytest.raises(ConfigError, match="`recommend` is a string, expected a table"):
        parse_config(f"recommend = 'm'\n{TEXT}", FILE)


def test_the_environment_wins_over_the_file_for_the_address_and_the_model(tmp_path: Path):
    file = tmp_path / "lakewake.toml"
    file.write_text(TEXT + "[recommend]\nurl = 'http://file/v1'\nname = 'm'\nmax_rows = 3\n")
    env = {"LAKEWAKE_RECOMMEND_URL": "http://env/v1", "LAKEWAKE_RECOMMEND_NAME": ""}
    found = load_config(file, env=env).recommend
    assert (found.url, found.name, found.max_rows) == ("http://env/v1", "m", 3)


def test_an_embedding_service_without_keys_can_be_named():
    model = "model = {provider = 'http', name = 'm', url = 'http://h/v1', dimension = 8"
    settings = parse_config(f"{TEXT}{model}, key_env = ''}}", FILE)
    assert settings.indexes[0].model.key_env == ""


def test_our_own_prompt_leaves_room_for_a_question_and_rows():
    ours = len(INSTRUCTIONS) + len(RULES.format(nonce="0" * 16)) + len(TEMPLATE)
    assert ours < ROOM - 500
