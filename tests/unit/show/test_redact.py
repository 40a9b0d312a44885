"""No secret leaves the process: addresses with one are refused, and messages are redacted."""

from __future__ import annotations

import ast
import datetime
import io
import json
import logging
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client

import lakewake
from lakewake.cli import run
from lakewake.cli.failure import print_error
from lakewake.cli.screen import discreet, print_block
from lakewake.config.file import load_config, parse_config
from lakewake.errors import ConfigError, LakewakeError, StoreError, TextRefused
from lakewake.ingest import IngestRequest, check_request
from lakewake.mcp import build_server
from lakewake.model.history import SyncRecord
from lakewake.net.s3 import find_s3
from lakewake.progress import Lines, Terminal
from lakewake.show.redact import cleaned, has_secret, without_secrets
from lakewake.source.look import look_at
from lakewake.store.location import location_at
from lakewake.store.registry import open_store
from support.cellar import WINES, make_cellar
from support.serving import asking, wine_index

#: Long and odd enough not to occur in any other message.
ODD = "abcdefXYZ0189+/=%:@?#&$!~-_.,'`<>|(){}[]"
SECRETS = st.text(st.sampled_from(ODD), min_size=8, max_size=40).map(lambda s: f"Qz{s}zQ")
NAMES = st.sampled_from(
    [
        "X-Amz-Signature",
        "X-Amz-Credential",
        "X-Amz-Security-Token",
        "sig",
        "token",
        "access_token",
        "AccessKeyId",
        "AWSAccessKeyId",
        "api_key",
        "apikey",
        "password",
        "Signature",
        "client_secret",
        "key",
    ]
)
SCHEMES = st.sampled_from(
    ["s3a", "s3", "gs", "http", "https", "qdrants", "hdfs", "lance+s3", "spark", "abfss", "lance"]
)
SECRET = "Qz8/wJal+rXU:tn@FEMI/K7MDENGzQ"
ADDRESS = f"s3a://AKIAQZ:{SECRET}@bucket/lake"
TEXT = 'text = "{a}"\n'
INDEX = '[[index]]\nname = "wines"\ntable = "lake"\n'


@settings(deadline=None)
@given(SCHEMES, SECRETS)
def test_a_password_in_an_address_is_neither_shown_nor_accepted(scheme: str, secret: str) -> None:
    address = f"{scheme}://Me:{secret}@bucket/x"
    message = f"cannot reach {address}: Arrow says: no bucket 'Me:{secret}@bucket' at {address}, ok"
    output = without_secrets(message)
    assert secret not in output
    assert output.startswith("cannot reach ")
    assert output.endswith(", ok")
    assert has_secret(address)


@settings(deadline=None)
@given(SCHEMES, st.text(st.characters(codec="utf-8"), min_size=1, max_size=40))
def test_a_password_with_any_characters_is_refused(scheme: str, secret: str) -> None:
    assert has_secret(f"{scheme}://Me:{secret}@bucket/x")


@settings(deadline=None)
@given(NAMES, st.from_regex(r"[A-Za-z0-9/+%_.\-]{8,40}", fullmatch=True))
def test_signatures_and_tokens_of_a_query_are_neither_shown_nor_accepted(
    name: str, secret: str
) -> None:
    secret = f"Qz{secret}zQ"
    address = f"https://bucket.example/x?a=1&{name}={secret}&b=2"
    assert secret not in without_secrets(f"GET {address} failed")
    assert without_secrets(address).endswith("&b=2")
    assert has_secret(address)


@pytest.mark.parametrize(
    "message",
    [
        "Authorization: Bearer {}",
        "authorization: Basic {}",
        "sent {{'authorization': 'Bearer {}'}}",
        "x-api-key: {}",
        "sent {{'Authorization': 'Basic {}'}}",
        'S3 {{ secret_access_key: Some("{}"), region: None }}',
        "password: {}",
        "spark.hadoop.fs.s3a.secret.key={}",
        "aws_secret_access_key = {}",
        '{{"api_key": "{}", "n": 1}}',
        "<Error><AWSAccessKeyId>{}</AWSAccessKeyId></Error>",
    ],
)
@settings(deadline=None)
@given(st.from_regex(r"[A-Za-z0-9/+_.\-]{8,40}", fullmatch=True))
def test_keys_in_messages_of_libraries_are_not_shown(message: str, secret: str) -> None:
    assert f"Qz{secret}zQ" not in without_secrets(message.format(f"Qz{secret}zQ"))


@pytest.mark.parametrize(
    "message",
    [
        "send it as `Authorization: Bearer KEY`",
        "Authorization: Bearer KEY",
        'export OPENAI_API_KEY=…, or set `key_env = ""` for a service without keys',
        'put it into the environment and name the variable: key_env = "OPENAI_API_KEY"',
        "put keys into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile",
        "`max_tokens` is 5, expected 10 or more: max_tokens = 10",
        "cannot read hdfs://namenode:8020/lake/wines: timed out",
        "http://localhost:8080/v1 answered 401; http://[::1]:8377/x",
        "abfss://container@account.dfs.core.windows.net/lake",
        "s3a://bucket/lake@2024/x, lance://my@folder and file:///tmp/a@b",
        "mail bob@example.com, row id:1,mail:bob@example.com",
        "table at 2025-03-01 12:00:00, ratio 1:2",
    ],
)
def test_text_without_a_secret_stays_unchanged(message: str) -> None:
    assert without_secrets(message) == message


def test_a_short_password_that_is_repeated_beside_its_address_is_not_shown() -> None:
    output = without_secrets("cannot reach s3a://k:pw@b/x: no bucket 'k:pw@b'")
    assert output == "cannot reach s3a://***@b/x: no bucket '***@b'"


def our_words() -> Iterator[str]:
    """Every string in the source, with a word in place of each value."""
    for file in Path(lakewake.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                parts = (p.value if isinstance(p, ast.Constant) else "value" for p in node.values)
                yield "".join(map(str, parts))


def test_none_of_our_own_messages_is_redacted() -> None:
    patterns = (Path(lakewake.__file__).parent / "show" / "redact.py").read_text()
    hidden = [words for words in our_words() if without_secrets(words) != words]
    said = [words for words in hidden if words not in patterns and words != "Bearer value"]
    assert [words for words in said if not words.startswith("(?i)")] == []


@settings(deadline=None)
@given(st.text(max_size=200))
def test_redacting_a_message_twice_changes_nothing_more(text: str) -> None:
    assert without_secrets(without_secrets(text)) == without_secrets(text)


@pytest.mark.parametrize(
    "address", ["lake/wines", "/data/a@b", "s3a://bucket/a@b:c/x", "./a:b@c", "http://h:80/@org/v1"]
)
def test_an_at_sign_in_a_path_is_not_a_secret(address: str) -> None:
    assert not has_secret(address)


#: Every key of the file that takes an address.
PLACES = {
    "table": f'[[index]]\nname = "wines"\ntable = "ADDRESS"\n{TEXT}',
    "store": INDEX + TEXT + 'store = "ADDRESS"\n',
    "url of the model": INDEX + TEXT + '[model]\nprovider = "http"\nname = "m"\nurl = "ADDRESS"\n',
    "name of the model": INDEX + TEXT + 'model = "ADDRESS"\n',
    "tokenizer": INDEX + TEXT + '[model]\ntokenizer = "ADDRESS"\n',
    "url of the re-ranker": INDEX + TEXT + 'rerank = {provider = "http", url = "ADDRESS"}\n',
    "url of the chat": INDEX + TEXT + '[recommend]\nname = "m"\nurl = "ADDRESS"\n',
    "vector cache": INDEX + TEXT + '[embedding_store]\nfolder = "ADDRESS"\n',
    "keys": INDEX + TEXT + '[serve]\nkeys = "ADDRESS"\n',
    "a Spark option": INDEX + TEXT + '[spark.hadoop.fs.s3a]\nendpoint = "ADDRESS"\n',
    "a list": INDEX + TEXT + 'payload = ["ADDRESS"]\n',
}


@pytest.mark.parametrize("place", PLACES)
@settings(deadline=None)
@given(SCHEMES, SECRETS)
def test_the_configuration_refuses_a_secret_in_any_address(
    place: str, scheme: str, secret: str
) -> None:
    text = PLACES[place].replace("ADDRESS", f"{scheme}://Me:{secret}@host/x")
    with pytest.raises(ConfigError) as caught:
        parse_config(text, Path("lakewake.toml"))
    assert secret not in json.dumps(caught.value.as_dict()) + str(caught.value)
    assert "has a user, password or key in its address" in caught.value.fact
    assert "\n" not in caught.value.fact
    assert caught.value.hint


def test_addresses_inside_templates_and_instructions_are_allowed() -> None:
    text = INDEX + 'text = "{a} of http://me:pw@host"\n[recommend]\ninstructions = "http://a:b@c"\n'
    assert parse_config(text, Path("lakewake.toml")).indexes


@pytest.mark.parametrize(
    "variable", ["LAKEWAKE_RECOMMEND_URL", "LAKEWAKE_SPARK_MASTER", "AWS_ENDPOINT_URL"]
)
def test_variables_with_a_secret_in_an_address_are_refused_by_name(
    variable: str, tmp_path: Path
) -> None:
    file = tmp_path / "lakewake.toml"
    file.write_text(INDEX + TEXT)
    env = {variable: f"https://me:{SECRET}@host", "AWS_CONFIG_FILE": str(tmp_path / "none")}
    with pytest.raises(ConfigError, match=variable) as caught:
        find_s3(env) if variable.startswith("AWS") else load_config(file, env=env)
    assert SECRET not in str(caught.value)


def test_an_endpoint_of_the_profile_with_a_secret_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "aws"
    file.write_text(f"[default]\nendpoint_url = https://me:{SECRET}@host\n")
    with pytest.raises(ConfigError, match="endpoint_url") as caught:
        find_s3({"AWS_CONFIG_FILE": str(file)})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        (ADDRESS, "AWS_SECRET_ACCESS_KEY"),
        (f"lance+s3://k:{SECRET}@bucket/x", "AWS_SECRET_ACCESS_KEY"),
        (f"lance://s3://k:{SECRET}@bucket/x", "environment"),
        (f"qdrants://k:{SECRET}@host:6333/x", "QDRANT_API_KEY"),
        (f"nothing://k:{SECRET}@host", "environment"),
        (f"k:{SECRET}@bucket", "environment"),
    ],
)
def test_every_entry_point_refuses_an_address_with_a_secret(address: str, hint: str) -> None:
    request = IngestRequest("rows.csv", address)
    seams: list[Any] = [
        lambda: open_store(address, "wines"),
        lambda: location_at(address),
        lambda: look_at(address),
        lambda: check_request(request),
        lambda: check_request(IngestRequest(address, "lake")),
    ]
    for seam in seams:
        with pytest.raises(ConfigError) as caught:
            seam()
        assert SECRET not in str(caught.value)
        assert hint in caught.value.hint


@pytest.mark.parametrize(
    "args",
    [
        ["init", ADDRESS],
        ["ingest", "rows.csv", ADDRESS, "--key", "id"],
        ["ingest", ADDRESS, "lake", "--key", "id"],
        ["init", ADDRESS, "--oops"],
        ["search", "wines", "x", "--where", f"a = '{ADDRESS}' b"],
        *([name] for name in ("plan", "sync", "status", "history", "verify", "serve", "mcp")),
        ["search", "wines", "x"],
        ["recommend", "wines", "x"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("flags", [[], ["-v"], ["--json"]], ids=str)
def test_no_command_prints_a_secret(
    args: list[str],
    flags: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "lakewake.toml").write_text(PLACES["table"].replace("ADDRESS", ADDRESS))
    (tmp_path / "rows.csv").write_text("id\n1\n")
    monkeypatch.chdir(tmp_path)
    assert run([*args, *([] if args == ["mcp"] else flags)]) == 2
    out, err = capsys.readouterr()
    assert SECRET not in out + err
    assert "MDENG" not in out + err
    if flags == ["--json"] and args != ["mcp"]:
        assert json.loads(out)["hint"]


def chained() -> LakewakeError:
    try:
        try:
            raise OSError(f"Arrow: cannot open {ADDRESS} with key {SECRET}")
        except OSError as error:
            raise StoreError(f"the index cannot be read: {error}", hint=f"ask {ADDRESS}") from error
    except StoreError as error:
        return error


def test_neither_an_error_nor_its_cause_shows_a_secret(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = chained()
    assert SECRET in "".join(traceback.format_exception(error.__cause__))
    print_error(error, trace=error)
    output = capsys.readouterr().err + str(error) + repr(error) + json.dumps(error.as_dict())
    assert "MDENG" not in output
    assert "s3a://***@bucket/lake" in output


def test_reasons_of_refused_texts_show_no_secret() -> None:
    assert "MDENG" not in str(TextRefused("no", {0: f"asked {ADDRESS}"}).reasons)


def test_records_of_failed_syncs_show_no_secret_even_those_of_older_versions() -> None:
    now = datetime.datetime.now(datetime.UTC)
    record = SyncRecord.of_failure("wines", OSError(f"no {ADDRESS}"), 1.0, now)
    kept = json.dumps(record.to_stored())
    assert "MDENG" not in kept
    older = {**json.loads(kept), "error": f"no {ADDRESS}", "why": ADDRESS}
    assert "MDENG" not in json.dumps(SyncRecord.from_stored(older).as_dict())


def test_progress_and_messages_show_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    lines = io.StringIO()
    Lines(lines).say(ADDRESS)
    Terminal(lines).say(ADDRESS)
    print_block(ADDRESS, [("table", ADDRESS)])
    assert "MDENG" not in lines.getvalue() + capsys.readouterr().out


def test_standard_error_shows_no_secret_of_any_library(tmp_path: Path) -> None:
    with (tmp_path / "err").open("w") as file:
        stream = discreet(file)
        handler = logging.StreamHandler(stream)
        handler.emit(logging.LogRecord("x", 40, "f", 1, "no %s", (ADDRESS,), None))
        print(warnings.formatwarning(ADDRESS, UserWarning, "f", 1), file=stream)
        assert not stream.isatty()
    written = (tmp_path / "err").read_text()
    assert "MDENG" not in written
    assert written.count("s3a://***@bucket/lake") == 2


def test_an_unexpected_error_shows_no_secret(tmp_path: Path) -> None:
    code = (
        "import logging, threading\n"
        "import lakewake.cli.status as status\n"
        "def fail(*_): raise OSError('no ' + ADDRESS)\n"
        "def run_each(*_):\n"
        "    logging.getLogger('other').error('lost %s', ADDRESS)\n"
        "    thread = threading.Thread(target=fail); thread.start(); thread.join()\n"
        "    fail()\n"
        f"ADDRESS = {ADDRESS!r}\n"
        "status.run_each = run_each\n"
        "from lakewake.cli import main; main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "status", "-v"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "MDENG" not in done.stdout + done.stderr
    assert done.stderr.count("s3a://***@bucket/lake") >= 4


def test_a_model_receives_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lakewake.open(make_cellar(tmp_path))
    index = lake["wines"]

    async def speech(client: Client) -> str:
        said = []
        for name, asked in [("status", {}), ("search", {"text": "x"}), ("list_indexes", {})]:
            answer = await client.call_tool(name, asked)
            said.append(json.dumps(answer.structured_content) + str(answer.content))
        return "\n".join(said)

    async def talk() -> str:
        async with Client(build_server(lake)) as client:
            return await speech(client)

    def lost(*_: object, **__: object) -> Any:
        said = f"When reading bucket 'AKIAQZ:{SECRET}@bucket' of {ADDRESS}"
        raise StoreError(said, hint=f"see {ADDRESS}")

    monkeypatch.setattr(index, "search", lost)
    monkeypatch.setattr(index.parts.store, "open", lost)
    output = anyio.run(talk)
    assert "MDENG" not in output
    assert "***" in output


def test_the_server_shows_no_secret_and_its_help_stays_readable(tmp_path: Path) -> None:
    from lakewake.serve.keys import KeyRing, add_key

    add_key(tmp_path / "keys.json", "page", "read")
    index, _ = wine_index()

    def lost(*_: object, **__: object) -> Any:
        raise StoreError(f"the index at {ADDRESS} cannot be read", hint=f"see {ADDRESS}")

    with asking(index, keys=KeyRing(tmp_path / "keys.json")) as client:
        refused = client.get("/indexes")
    assert refused.status_code == 401
    assert refused.json()["hint"] == "send it as `Authorization: Bearer KEY`"
    index.search = lost  # type: ignore[method-assign]
    with asking(index) as client:
        answer = client.post("/indexes/sample/search", json={"text": "x"})
    assert answer.status_code == 503
    assert "MDENG" not in answer.text
    assert "s3a://***@bucket/lake" in answer.text


def test_values_of_any_shape_are_redacted_completely() -> None:
    output = cleaned({"a": [ADDRESS, {"b": (ADDRESS, 1, None)}], "n": 2.5})
    assert "MDENG" not in json.dumps(output)
    assert output["n"] == 2.5


def test_rows_of_a_table_are_never_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(WINES, "https://me:password@host/1", (f"See {ADDRESS}.", "Italy", 1.0))
    config = make_cellar(tmp_path)
    assert run(["search", "wines", f"See {ADDRESS}.", "-k", "1", "--json", "-c", str(config)]) == 0
    hit = json.loads(capsys.readouterr().out)["hits"][0]
    assert (hit["key"], hit["text"]) == ("https://me:password@host/1", f"See {ADDRESS}.")
