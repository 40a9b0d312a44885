"""`[serve]` of lakewake.toml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakewake.config.file import parse_config
from lakewake.config.settings import ServeSettings
from lakewake.errors import ConfigError
from support import ROOT

FILE = Path("/proj/lakewake.toml")
INDEX = '[[index]]\nname = "wines"\ntable = "t"\ntext = "{a}"\n'


def parse(serve: str) -> ServeSettings:
    return parse_config(INDEX + serve, FILE).serve


def test_without_a_section_every_default_holds() -> None:
    assert parse("") == ServeSettings()
    assert ServeSettings().host == "127.0.0.1"


def test_set_values_are_used_and_the_key_file_is_relative_to_the_configuration() -> None:
    found = parse('[serve]\nhost = "0.0.0.0"\nport = 0\nkeys = "k.json"\nmax_k = 7\ntimeout = 2')
    assert found == ServeSettings("0.0.0.0", 0, "/proj/k.json", max_k=7, timeout=2.0)


def test_allowed_hosts_are_a_list() -> None:
    found = parse('[serve]\nallowed_hosts = ["search.example", "10.0.0.7", "fe80::1"]')
    assert found.allowed_hosts == ("search.example", "10.0.0.7", "fe80::1")


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("prot = 1", "unknown key `prot`"),
        ("port = -1", "`port` is -1"),
        ("port = 65536", "`port` is 65536"),
        ('port = "80"', "`port` is a string"),
        ("max_k = 0", "`max_k` is 0"),
        ("concurrent = 0", "`concurrent` is 0"),
        ("workers = 0", "`workers` is 0"),
        ("workers = 65", "`workers` is 65"),
        ("max_body_bytes = 0", "`max_body_bytes` is 0"),
        ("timeout = 0", "`timeout` is 0"),
        ("timeout = nan", "`timeout` is nan"),
        ("timeout = inf", "`timeout` is inf"),
        ('host = " "', "`host` is blank"),
        ("keys = 7", "`keys` is a whole number"),
        ('allowed_hosts = "a.example"', "`allowed_hosts` is a string"),
        ('allowed_hosts = ["http://a.example"]', "`allowed_hosts` has 'http://a.example'"),
        ('allowed_hosts = ["a.example/x"]', "`allowed_hosts` has 'a.example/x'"),
        ('allowed_hosts = ["*"]', "`allowed_hosts` has '*'"),
        ("allowed_hosts = [1]", "`allowed_hosts` has 1"),
    ],
)
def test_an_invalid_setting_is_refused(line: str, fact: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(fact)):
        parse(f"[serve]\n{line}")


def test_a_serve_section_that_is_not_a_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a table"):
        parse_config("serve = 1\n" + INDEX, FILE)


def test_the_example_of_the_documentation_is_accepted() -> None:
    guide = (ROOT / "docs" / "serving.md").read_text()
    (block,) = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    assert parse(block) == ServeSettings(keys="/proj/keys.json")
