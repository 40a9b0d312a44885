"""API keys: stored as hashes, compared in constant time, valid for a scope."""

from __future__ import annotations

import json
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakewake.cli import run
from lakewake.errors import ConfigError
from lakewake.serve.keys import KeyRing, add_key, read_keys, remove_key
from support.serving import asking, wine_index


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def test_the_file_holds_salted_hashes_and_no_key(file: Path) -> None:
    first, second = add_key(file, "one", "read"), add_key(file, "two", "admin")
    text = file.read_text()
    assert first != second
    assert first not in text
    assert second not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    salts = {k.salt for k in read_keys(file)}
    assert len(salts) == 2
    assert [(k.name, k.scope) for k in read_keys(file)] == [("one", "read"), ("two", "admin")]


def test_a_key_is_found_only_by_its_exact_text(file: Path) -> None:
    key = add_key(file, "one", "read")
    ring = KeyRing(file)
    found = ring.find(key)
    assert found is not None
    assert found.name == "one"
    for wrong in ("", key[:-1], key + "x", key.swapcase(), "x" * 10_000, "\ud800", "ключ"):
        assert ring.find(wrong) is None


def test_added_and_removed_keys_take_effect_at_once(file: Path) -> None:
    first = add_key(file, "one", "read")
    ring = KeyRing(file)
    second = add_key(file, "two", "read")
    assert ring.find(second) is not None
    remove_key(file, "one")
    assert ring.find(first) is None
    assert ring.find(second) is not None


def test_without_its_file_no_key_is_valid(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    key = add_key(file, "one", "read")
    ring = KeyRing(file)
    content = file.read_text()
    file.unlink()
    assert ring.find(key) is None
    file.write_text("not json")
    assert ring.find(key) is None
    assert "every key is refused" in caplog.text
    file.write_text(content)
    file.chmod(0o600)
    assert ring.find(key) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "lw_secret",
        '{"format": 2, "keys": []}',
        '{"format": 1, "keys": [{"name": "x"}]}',
        '{"format": 1, "keys": [{"name": "x", "scope": "root", "salt": "00", "hash": "00", '
        '"added": ""}]}',
        '{"format": 1, "keys": [{"name": "x", "scope": "read", "salt": "", "hash": "", '
        '"added": ""}]}',
    ],
)
def test_a_file_that_is_not_a_key_file_is_refused_without_showing_it(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match="not a key file") as caught:
        KeyRing(file)
    assert "lw_secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_file_without_keys_is_refused(file: Path) -> None:
    add_key(file, "one", "read")
    remove_key(file, "one")
    with pytest.raises(ConfigError, match="holds no key"):
        KeyRing(file)


@pytest.mark.parametrize(
    ("mode", "may"), [(0o620, "change"), (0o602, "change"), (0o666, "change"), (0o644, "read")]
)
def test_a_file_that_others_may_read_or_change_is_refused(
    file: Path, mode: int, may: str, capsys: pytest.CaptureFixture[str]
) -> None:
    add_key(file, "one", "read")
    file.chmod(mode)
    with pytest.raises(ConfigError, match=f"other users may {may} .*: its mode is 0{mode:o}"):
        KeyRing(file)
    assert run(["keys", "list", str(file)]) == 2
    assert f"chmod 600 {file}" in capsys.readouterr().err


def test_the_group_may_read_the_file(file: Path) -> None:
    key = add_key(file, "one", "read")
    file.chmod(0o640)
    assert KeyRing(file).find(key) is not None


def test_keys_work_again_once_the_permissions_are_fixed(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = add_key(file, "one", "read")
    ring = KeyRing(file)
    file.chmod(0o666)
    for _ in range(3):
        assert ring.find(key) is None
    assert caplog.text.count("its mode is 0666; every key is refused until that is fixed") == 1
    file.chmod(0o600)
    assert ring.find(key) is not None


def test_a_file_that_could_not_be_read_is_read_again_though_nothing_changed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = add_key(file, "one", "read")
    ring, whole = KeyRing(file), Path.open
    add_key(file, "two", "read")

    def fails(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Path, "open", fails)
    assert ring.find(key) is None
    monkeypatch.setattr(Path, "open", whole)
    assert ring.find(key) is not None


def test_concurrently_added_keys_are_all_kept(file: Path) -> None:
    together = threading.Barrier(8)

    def add(n: int) -> str:
        together.wait()
        return add_key(file, f"key{n}", "read")

    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(add, range(8)))
    ring = KeyRing(file)
    assert [ring.find(key).name for key in keys] == [f"key{n}" for n in range(8)]
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 65, "ключ", "-x"])
def test_an_invalid_key_name_is_refused(file: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="not a valid name"):
        add_key(file, name, "read")
    assert not file.exists()


def test_two_keys_with_the_same_name_are_refused(file: Path) -> None:
    add_key(file, "one", "read")
    with pytest.raises(ConfigError, match="already"):
        add_key(file, "one", "admin")


def test_without_a_key_only_health_and_the_page_are_answered(file: Path) -> None:
    add_key(file, "one", "read")
    index, _ = wine_index()
    with asking(index, keys=KeyRing(file), app={"page": {}}) as client:
        assert client.get("/health").status_code == 200
        for path in ("/indexes", "/ready", "/metrics", "/openapi.json", "/nowhere"):
            answer = client.get(path)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"] == "Bearer"
            assert set(answer.json()) == {"error", "hint"}
        assert client.post("/indexes/sample/search", json={"text": "x"}).status_code == 401


def test_the_page_itself_needs_no_key(file: Path, tmp_path: Path) -> None:
    from lakewake.serve.page import read_page

    add_key(file, "one", "read")
    page = tmp_path / "page"
    page.mkdir()
    (page / "index.html").write_text("<page>")
    (page / "page.js").write_text("1")
    with asking(keys=KeyRing(file), app={"page": read_page(page)}) as client:
        assert client.get("/").status_code == 200
        assert client.get("/page/page.js").status_code == 200
        assert client.get("/page/other.js").status_code == 401


def test_a_read_key_searches_and_an_admin_key_reads_metrics_too(file: Path) -> None:
    read, admin = add_key(file, "reader", "read"), add_key(file, "boss", "admin")
    index, _ = wine_index()
    with asking(index, keys=KeyRing(file), host="0.0.0.0") as client:
        for key in (read, admin):
            answer = client.post("/indexes/sample/search", json={"text": "x"}, headers=bearer(key))
            assert answer.status_code == 200
        refused = client.get("/metrics", headers=bearer(read))
        assert refused.status_code == 403
        assert read not in refused.text
        assert client.get("/metrics", headers=bearer(admin)).status_code == 200


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic {key}", "{key}", "Bearer x{key}", "Bearer {key} x"]
)
def test_an_invalid_authorization_header_is_refused_and_not_repeated(
    file: Path, header: str
) -> None:
    key = add_key(file, "one", "admin")
    with asking(keys=KeyRing(file)) as client:
        answer = client.get("/indexes", headers={"Authorization": header.format(key=key)})
    assert answer.status_code == 401
    assert key not in answer.text


def test_a_key_in_the_url_is_not_accepted(file: Path) -> None:
    key = add_key(file, "one", "read")
    with asking(keys=KeyRing(file)) as client:
        assert client.get(f"/indexes?key={key}").status_code == 401


def test_openapi_states_that_a_key_is_needed(file: Path) -> None:
    key = add_key(file, "one", "read")
    with asking(keys=KeyRing(file)) as client:
        described = client.get("/openapi.json", headers=bearer(key)).json()
    assert described["security"] == [{"key": []}]
    assert described["components"]["securitySchemes"]["key"]["scheme"] == "bearer"


def test_metrics_open_to_other_machines_need_a_key() -> None:
    with asking(host="0.0.0.0") as client:
        assert client.get("/metrics").status_code == 403


def test_the_command_prints_a_key_once_and_alone(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["keys", "add", str(file), "page", "--scope", "read"]) == 0
    shown = capsys.readouterr()
    key = shown.out.strip()
    assert KeyRing(file).find(key) is not None
    assert key not in shown.err
    assert run(["keys", "list", str(file)]) == 0
    listed = capsys.readouterr().out
    assert "page" in listed
    assert key not in listed
    assert read_keys(file)[0].hash not in listed


def test_the_command_lists_and_removes_as_json(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["keys", "add", str(file), "page", "--scope", "admin", "--json"]) == 0
    added = json.loads(capsys.readouterr().out)
    assert (added["name"], added["scope"]) == ("page", "admin")
    assert KeyRing(file).find(added["key"]) is not None
    assert run(["keys", "list", str(file), "--json"]) == 0
    assert [k["name"] for k in json.loads(capsys.readouterr().out)["keys"]] == ["page"]
    assert run(["keys", "remove", str(file), "page", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == "page"
    assert read_keys(file) == ()


@pytest.mark.parametrize(
    "args", [["add"], ["remove"], ["remove", "other"], ["add", "one"], ["forget", "one"]]
)
def test_an_impossible_keys_command_is_a_usage_error(
    file: Path, args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    add_key(file, "one", "read")
    before = file.read_text()
    assert run(["keys", args[0], str(file), *args[1:]]) == 2
    assert capsys.readouterr().out == ""
    assert file.read_text() == before


def test_listing_a_missing_key_file_names_the_command_that_creates_it(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["keys", "list", str(file)]) == 2
    assert "lakewake keys add" in capsys.readouterr().err
