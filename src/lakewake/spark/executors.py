"""What executors on other machines need for our work: the package, its dependencies, and files.

Spark sends all of it from the driver to each executor, once per session. In local mode there is
nothing to do.
"""

from __future__ import annotations

import os
import re
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from lakewake.errors import SetupError, TableError
from lakewake.spark.options import is_local
from lakewake.spark.scratch import own_folder

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

#: Dependencies of chunking, embedding and writing. Every executor already has PySpark.
NEEDED = (
    "httpx2",
    "numpy",
    "onnxruntime",
    "pyarrow",
    "pylance",
    "safetensors",
    "semantic-text-splitter",
    "tokenizers",
)
#: Module of a store that is used → what it needs besides.
OF_STORES = {"qdrant_client": ("qdrant-client",), "lakewake.store.hudi.store": ("hudi", "obstore")}
#: Folders of packages that are only needed to test them or to compile against them.
LEFT_OUT = frozenset({"include", "tests", "__pycache__"})
_PACKED = "lakewake-packages"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
T = TypeVar("T")

_equipped: set[str] = set()
_sent: dict[tuple[str, Path, int], str] = {}


def equip(spark: SparkSession) -> None:
    """Send executors our package and, if they lack them or have other versions, its dependencies.

    Raises:
        SetupError: they cannot use what they were sent.
    """
    context = spark.sparkContext
    if is_local(context.master) or context.applicationId in _equipped:
        return
    context.addPyFile(str(_zipped_package()))
    needed = {name: metadata.version(name) for name in needed_packages()}
    if _lacking(spark, needed):
        context.addArchive(f"{_packed()}#{_PACKED}")
        # As `addPyFile` does for its files: workers look for modules there.
        context._python_includes.append(_PACKED)
        if lacking := _lacking(spark, needed):
            names = ", ".join(f"{name} {needed[name]}" for name in sorted(lacking))
            raise SetupError(
                f"executors cannot use the packages they were sent: {names}",
                hint="run executors with the driver's version of Python, on its kind of machine",
            )
    _equipped.add(context.applicationId)


def needed_packages() -> tuple[str, ...]:
    """The dependencies of our work, including those of the store that is used."""
    return NEEDED + tuple(
        package
        for module, packages in OF_STORES.items()
        if module in sys.modules
        for package in packages
    )


def send(spark: SparkSession, files: Iterable[Path]) -> dict[Path, Path]:
    """Send files and folders to executors; returns their paths relative to Spark's folder there."""
    context = spark.sparkContext
    if is_local(context.master):
        return {file: file.absolute() for file in files}
    return {file: Path(_archived(context, file)) / file.name for file in files}


def ask(spark: SparkSession, question: Callable[[], T]) -> list[T]:
    """Ask executors and return all answers. Spark chooses them: most likely each is asked."""
    context = spark.sparkContext
    times = 2 * context.defaultParallelism
    answers: list[T] = context.parallelize(range(times), times).map(lambda _: question()).collect()
    return answers


def check_table_seen(spark: SparkSession, path: str) -> None:
    """Check that executors can see the table, which may be on this machine only.

    Raises:
        TableError: they cannot.
    """
    if is_local(spark.sparkContext.master) or "://" in path:
        return

    # Defined here so that Spark sends its code: executors may not have our package yet.
    def sees() -> bool:
        import os

        return os.path.exists(path)

    if not all(ask(spark, sees)):
        raise TableError(
            f"executors do not see the table: {path} does not exist on their machines",
            hint="use a table on storage that all machines can reach",
        )


def _lacking(spark: SparkSession, needed: dict[str, str]) -> set[str]:
    """The packages that some executor lacks or has in another version."""

    def lacks() -> list[str]:
        from importlib import metadata

        def version(name: str) -> str:
            try:
                return metadata.version(name)
            except metadata.PackageNotFoundError:
                return ""

        return [name for name, wanted in needed.items() if version(name) != wanted]

    return {name for answer in ask(spark, lacks) for name in answer}


@cache
def _scratch() -> Path:
    """A folder that is kept as long as the process runs: an executor may start late and need it."""
    return Path(tempfile.mkdtemp(prefix="sent-", dir=own_folder()))


@cache
def _zipped_package() -> Path:
    """This package as a zip file, from which Python can import it."""
    root = Path(__file__).parents[1]
    target = _scratch() / "lakewake.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
        for file in sorted(root.rglob("*.py")):
            out.write(file, file.relative_to(root.parent))
    return target


@cache
def _packed() -> Path:
    """The installed dependencies of our package, as an archive."""
    target = _scratch() / f"{_PACKED}.tar"
    with tarfile.open(target, "w") as out:
        for name in sorted(closure(needed_packages())):
            for path, name_there in _installed(name):
                out.add(path, name_there, recursive=False)
    return target


def closure(names: Sequence[str]) -> set[str]:
    """These packages and all of their installed dependencies."""
    found: set[str] = set()
    open_ = list(names)
    while open_:
        name = re.sub(r"[-_.]+", "-", open_.pop()).lower()
        if name in found:
            continue
        try:
            wants = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            # Needed on other systems only, or for an extra that is not used.
            continue
        found.add(name)
        open_ += [m[0] for want in wants if "extra ==" not in want and (m := _NAME.match(want))]
    return found


def _installed(name: str) -> Iterator[tuple[Path, str]]:
    """The files of a package, with their names in an archive."""
    for file in metadata.files(name) or ():
        path = Path(os.fspath(file.locate()))
        if file.parts[0] != ".." and not LEFT_OUT.intersection(file.parts) and path.is_file():
            yield path, str(file)


def _archived(context: SparkContext, file: Path) -> str:
    """The name under which executors unpack a file or folder."""
    key = (context.applicationId, file, _newest_change(file))
    if key not in _sent:
        name = f"lakewake-{uuid4().hex}"
        target = _scratch() / f"{name}.tar"
        with tarfile.open(target, "w") as out:
            out.add(file, file.name)
        context.addArchive(f"{target}#{name}")
        _sent[key] = name
    return _sent[key]


def _newest_change(file: Path) -> int:
    found = [file, *file.rglob("*")] if file.is_dir() else [file]
    return max(path.stat().st_mtime_ns for path in found)
