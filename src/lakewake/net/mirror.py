"""The mirror of the model and the jars: a folder or a web address laid out as `LAKEWAKE_HOME` is.

The hashes of the files are known, so a mirror cannot replace one by another.
"""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from lakewake.errors import ConfigError, SetupError

VARIABLE = "LAKEWAKE_MIRROR"
HINT = (
    f"copy `models` and `jars` of a machine that has run `lakewake setup` to {VARIABLE}, or unset"
    " it; then run `lakewake setup` again"
)
#: Seconds without a byte after which a download is given up.
TIMEOUT = 60.0


class _Absent(Exception):
    """The mirror does not have the file."""


@dataclass(frozen=True)
class Mirror:
    """A folder, or an http address."""

    address: str

    def fetch(self, name: str, target: Path) -> None:
        """Copy the file with this path below the mirror.

        Raises:
            SetupError: it cannot be copied.
            OSError: it cannot be written.
        """
        try:
            self._copy(name, target)
        except _Absent as error:
            raise SetupError(f"{self} has no {name}", hint=HINT) from error

    def fetch_optional(self, name: str, target: Path) -> None:
        """The same, if the mirror has it.

        Raises:
            SetupError: the mirror does not answer.
            OSError: it cannot be written.
        """
        try:
            self._copy(name, target)
        except _Absent:
            return

    def __str__(self) -> str:
        """As it is shown: without user and password."""
        scheme, mark, rest = self.address.rpartition("://")
        place = rest.rpartition("@")[2] if mark else rest
        return f"the mirror {scheme}{mark}{place}"

    def _copy(self, name: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if "://" in self.address:
            self._download(f"{self.address.rstrip('/')}/{name}", target)
            return
        source = Path(self.address).expanduser() / name
        if not source.is_file():
            raise _Absent
        shutil.copyfile(source, target)

    def _download(self, url: str, target: Path) -> None:
        import httpx2

        try:
            client = httpx2.Client(timeout=TIMEOUT, follow_redirects=True)
            with closing(client), client.stream("GET", url) as answer:
                if answer.status_code in (404, 410):
                    raise _Absent
                answer.raise_for_status()
                with target.open("wb") as out:
                    for part in answer.iter_bytes(1 << 20):
                        out.write(part)
        except httpx2.HTTPStatusError as error:
            status = error.response.status_code
            raise SetupError(f"{self} answered with status {status}", hint=HINT) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise SetupError(f"{self} cannot be read: {error}", hint=HINT) from error


def find_mirror() -> Mirror | None:
    """The mirror that `LAKEWAKE_MIRROR` names, if it is set.

    Raises:
        ConfigError: its address is not one of http or https.
    """
    address = os.environ.get(VARIABLE, "").strip()
    scheme, mark, _ = address.partition("://")
    if mark and scheme not in ("http", "https"):
        raise ConfigError(
            f"{VARIABLE} begins with {scheme}://, not with https:// or http://",
            hint=f"export {VARIABLE}=https://…, or the path of a folder",
        )
    return Mirror(address) if address else None
