"""The files in deploy/ and the Dockerfile: they parse, and what they start exists."""

from __future__ import annotations

import ast
import configparser
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from lakewake.cli import app
from lakewake.config.file import parse_config
from support import ROOT

DEPLOY = ROOT / "deploy"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes/lakewake.yaml").read_text()))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, with their arguments."""
    lines = [line for line in DOCKERFILE.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]  # type: ignore[misc]


def check_command(arguments: list[str]) -> None:
    """Raise if `lakewake` does not accept this command line. Nothing is run."""
    name, *rest = arguments
    command = app.commands[name]
    with command.make_context(name, list(rest)):
        pass


def commands() -> dict[str, list[str]]:
    """Every command line of `lakewake` in these files, by where it is."""
    found = {
        "Dockerfile": yaml.safe_load(dict(instructions())["CMD"]),
        "compose": COMPOSE["services"]["watcher"]["command"],
    }
    for document in KUBERNETES[:2]:
        (container,) = document["spec"]["template"]["spec"]["containers"]
        found[container["name"]] = container["args"]
    texts = {p: p.read_text() for p in (DEPLOY / "systemd/lakewake.service", DEPLOY / "crontab")}
    for path, text in texts.items():
        for n, line in enumerate(re.findall(r"/opt/venv/bin/lakewake (.*)", text)):
            found[f"{path.name} {n}"] = shlex.split(line)
    return found


@pytest.mark.parametrize("where", commands())
def test_a_command_line_is_one_that_lakewake_accepts(where):
    check_command(commands()[where])


def test_a_wrong_command_line_would_be_found():
    with pytest.raises(click.ClickException):
        check_command(["sync", "--wach"])


def test_the_image_is_built_in_two_stages_and_does_not_run_as_root():
    names = [name for name, _ in instructions()]
    assert names.count("FROM") == 2
    final = instructions()[len(names) - names[::-1].index("FROM") :]
    given = dict(final)
    assert given["USER"] == "10001"
    assert "useradd --uid 10001" in given["RUN"]
    assert {"HEALTHCHECK", "ENTRYPOINT", "CMD"} <= given.keys()
    assert not any("pip" in text for name, text in final if name == "RUN")


def test_the_image_copies_what_exists_and_installs_extras_that_exist():
    ignored = (ROOT / ".dockerignore").read_text()
    for text in (t for name, t in instructions() if name == "COPY" and "--from" not in t):
        *sources, _ = text.split()
        for source in sources:
            assert (ROOT / source).exists()
            assert f"!{source}\n" in ignored
    (extras,) = re.findall(r"^ARG EXTRAS=(.*)$", DOCKERFILE, re.MULTILINE)
    assert set(extras.split(",")) <= EXTRAS.keys()


def test_model_and_jars_are_in_the_image_where_its_user_looks_for_them():
    homes = re.findall(r"LAKEWAKE_HOME=(\S+)", DOCKERFILE)
    assert homes == ["/opt/lakewake"] * 2
    assert "COPY --from=build /opt/lakewake /opt/lakewake" in DOCKERFILE
    assert "lakewake setup" in DOCKERFILE


def test_the_health_check_asks_a_path_that_needs_no_key():
    command = yaml.safe_load(dict(instructions())["HEALTHCHECK"].partition("CMD")[2])
    code = ast.parse(command[2])
    assert command[:2] == ["python", "-c"]
    assert "/health" in ast.dump(code)


def test_compose_has_a_server_a_watcher_and_a_storage_that_they_share():
    services: dict[str, Any] = COMPOSE["services"]
    assert services.keys() == {"server", "watcher", "storage"}
    for name in ("server", "watcher"):
        assert services[name]["environment"]["AWS_ENDPOINT_URL"] == "http://storage:7070"
    assert services["server"]["ports"] == ["127.0.0.1:8377:8377"]
    assert "--keys" in commands()["Dockerfile"]


def test_the_configuration_of_the_examples_is_valid():
    settings = parse_config((DEPLOY / "lakewake.toml").read_text(), DEPLOY / "lakewake.toml")
    assert [index.name for index in settings.indexes] == ["wines"]


def test_kubernetes_runs_one_writer_and_no_root():
    kinds = {d["metadata"]["name"]: d for d in KUBERNETES if d["kind"] == "Deployment"}
    assert kinds["lakewake-watcher"]["spec"]["replicas"] == 1
    for deployment in kinds.values():
        pod = deployment["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        mounted = {m["name"] for c in pod["containers"] for m in c["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        assert (
            deployment["spec"]["selector"]["matchLabels"]
            == (deployment["spec"]["template"]["metadata"]["labels"])
        )


def test_the_dag_is_valid_python_that_syncs_before_it_verifies():
    tree = ast.parse((DEPLOY / "airflow/lakewake_sync.py").read_text())
    (order,) = [n for n in ast.walk(tree) if isinstance(n, ast.BinOp)]
    assert ast.unparse(order) == "sync >> verify"


def test_systemd_accepts_the_unit(tmp_path: Path):
    unit = DEPLOY / "systemd/lakewake.service"
    parsed = configparser.ConfigParser(interpolation=None, strict=False)
    parsed.optionxform = str  # type: ignore[assignment]
    parsed.read(unit)
    assert parsed["Service"]["DynamicUser"] == "yes"
    if shutil.which("systemd-analyze") is None:
        return
    # With a program that exists: systemd looks for it.
    copy = tmp_path / "lakewake.service"
    copy.write_text(unit.read_text().replace("/opt/venv/bin/lakewake", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "lakewake.service" not in done.stderr
