"""Writes the sources of the site: the pages of this folder, and a reference made from the code.

`python docs/generate.py` fills build/docs. Links to files outside of this folder become plain text.
"""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import click

import lakewake
from lakewake.cli import COMMANDS, app
from lakewake.config.settings import (
    IndexSettings,
    ModelSettings,
    RecommendSettings,
    RerankSettings,
    ServeSettings,
    TokenSettings,
)
from lakewake.serve.app import build_app

HERE = Path(__file__).parent
FOLDER = HERE.parent / "build" / "docs"
#: Sections of lakewake.toml, and the classes that hold what they say.
SECTIONS: tuple[tuple[str, type], ...] = (
    ("[[index]]", IndexSettings),
    ("model", ModelSettings),
    ("rerank", RerankSettings),
    ("[recommend]", RecommendSettings),
    ("[serve]", ServeSettings),
    ("[serve.tokens]", TokenSettings),
)
#: Classes of the public API whose methods are listed.
CLASSES = ("Lakewake", "Index", "View", "SearchResult", "Hit", "SyncReport", "VerifyReport")


def pages() -> dict[str, str]:
    """Every page, by its file's name."""
    makers: dict[str, Callable[[], Iterator[str]]] = {
        "commands.md": _commands,
        "configuration.md": _configuration,
        "http.md": _http,
        "python.md": _python,
    }
    return {name: "\n".join(make()) + "\n" for name, make in makers.items()}


def _commands() -> Iterator[str]:
    yield "# Commands\n\nGenerated from `--help`. Exit codes: 0 fine, 1 failed, 2 usage or"
    yield "configuration, 3 out of step or too many deletes, 130 interrupted, 143 terminated."
    for command, _ in COMMANDS:
        name = command.name if isinstance(command, click.Command) else command.__name__
        found = app.commands[name]
        context = click.Context(found, info_name=f"lakewake {name}")
        yield f"\n## lakewake {name}\n\n```\n{found.get_help(context)}\n```"


def _configuration() -> Iterator[str]:
    yield "# Settings\n\nGenerated from the classes that hold what `lakewake.toml` says. How it is"
    yield "written there, with examples: [lakewake.toml](../config.md)."
    for section, held in SECTIONS:
        yield f"\n## {section}\n\n{_first_line(held)}\n"
        yield "| name | type | default | meaning |\n|---|---|---|---|"
        meanings = dict(_attributes(held))
        for field in fields(held):
            kind = str(field.type).replace("|", "\\|")
            meaning = meanings.get(field.name, "")
            yield f"| `{field.name}` | `{kind}` | {_default(field)} | {meaning} |"


def _default(field: Any) -> str:
    if field.default is MISSING and field.default_factory is MISSING:
        return "required"
    value = field.default_factory() if field.default is MISSING else field.default
    # A section of its own.
    return "" if is_dataclass(value) else f"`{value!r}`".replace("|", "\\|")


def _attributes(held: type) -> Iterator[tuple[str, str]]:
    """The names and meanings in a docstring's section `Attributes`."""
    text = inspect.getdoc(held) or ""
    _, _, listed = text.partition("Attributes:\n")
    for name, meaning in re.findall(r"^ {4}(\w+): ((?:.|\n {8,})+)", listed, re.MULTILINE):
        yield name, " ".join(meaning.split()).replace("|", "\\|")


def _python() -> Iterator[str]:
    yield "# Python\n\nGenerated from the code. `import lakewake` has these names. Examples:"
    yield "[interfaces](../interfaces.md)."
    yield "\n## Functions\n"
    for name in ("open", "open_index", "find_indexes"):
        yield _described(f"lakewake.{name}", getattr(lakewake, name))
    for name in CLASSES:
        held = getattr(lakewake, name)
        yield f"\n## {name}\n\n{_first_line(held)}\n"
        for member, value in inspect.getmembers(held):
            if not member.startswith("_") and callable(value) and inspect.getdoc(value):
                yield _described(f"{name}.{member}", value)
    yield "\n## Others\n\n| name | |\n|---|---|"
    for name in sorted(set(lakewake.__all__) - {*CLASSES, "__version__"}):
        yield f"| `{name}` | {_first_line(getattr(lakewake, name))} |"


def _described(name: str, value: Any) -> str:
    try:
        signature = str(inspect.signature(value)).replace("(self, ", "(").replace("(self)", "()")
    except ValueError:
        signature = "(…)"
    text = inspect.getdoc(value) or ""
    return f"### {name}\n\n```python\n{name}{signature}\n```\n\n```text\n{text}\n```\n"


def _first_line(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0]


def _http() -> Iterator[str]:
    described = build_app({}, ServeSettings(), None).openapi()
    yield "# HTTP\n\nGenerated from the server's OpenAPI description, which every server has at"
    yield "`/openapi.json`. How to serve: [serving](../serving.md).\n"
    for path, methods in sorted(described["paths"].items()):
        for method, found in methods.items():
            yield f"## {method.upper()} {path}\n"
            text = found.get("description") or found.get("summary") or ""
            yield f"{text}\n"
            for parameter in found.get("parameters", ()):
                meaning = parameter.get("description", "")
                yield f"- `{parameter['name']}` ({parameter['in']}): {meaning}"
            for status, answer in found.get("responses", {}).items():
                yield f"- **{status}**: {answer.get('description', '')}"
            yield ""


def write(folder: Path = FOLDER) -> None:
    """Write all pages."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for page in folder.glob("*.md"):
        page.write_text(re.sub(r"\[([^\]]+)\]\(\.\./[^)]*\)", r"\1", page.read_text()))
    (folder / "reference").mkdir()
    for name, text in pages().items():
        (folder / "reference" / name).write_text(text)


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
