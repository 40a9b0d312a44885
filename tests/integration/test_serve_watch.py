"""`lakewake serve --watch` over a real table: it builds, follows and ends its child process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.hudi import SAMPLE_CONFIG, SMALL_SPARK
from support.hudi.tables import HudiTables, row
from support.serving import serving, wait_until

pytestmark = pytest.mark.spark

CONFIG = SAMPLE_CONFIG + 'freshness = "60s"\n' + SMALL_SPARK


def test_a_missing_index_is_built_and_commits_are_followed_while_searches_go_on(
    spark: Any, small_tables: dict[str, str], tmp_path: Path
) -> None:
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}") for n in range(20)])
    config = tmp_path / "lakewake.toml"
    config.write_text(CONFIG)
    with serving(config, "--watch", "--interval", "0.5") as server, server.client() as client:
        assert server.started["watch"] is True
        assert client.get("/health").status_code == 200

        def built() -> bool:
            answer = client.get("/ready")
            assert answer.status_code in (200, 503)
            return answer.status_code == 200

        assert not built()
        missing = client.post("/indexes/sample/search", json={"text": "text of k7"})
        assert missing.status_code == 503
        wait_until(built, 180)
        table.write([row("k7", "an entirely different text", ts=2, num=7)])
        table.delete("k8")
        newest = table_instant(config)

        def followed() -> bool:
            found = ask(client)
            return bool(found["instant"] == newest)

        wait_until(followed, 180)
        best = ask(client)["hits"][0]
        assert (best["key"], best["payload"]["num"]) == ("k7", 7)
        listed = client.get("/indexes").json()
        assert listed["indexes"][0]["rows"] == 19
        assert listed["watch"]["running"] is True
        assert listed["watch"]["restarts"] == 0
        code, seconds, _ = server.end()
    assert code == 0
    assert seconds <= 5
    assert not processes_of(config)


def ask(client: httpx2.Client) -> Any:
    body = {"text": "an entirely different text", "k": 3}
    answer = client.post("/indexes/sample/search", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def table_instant(config: Path) -> str:
    from lakewake.source.look import look_at

    return look_at(str(config.with_name("table"))).newest


def processes_of(config: Path) -> list[str]:
    """Command lines of running processes that name the folder, including the JVM's."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(config.parent) in line:
            found.append(line)
    return found
