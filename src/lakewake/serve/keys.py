"""API keys: a file that holds only their salted hashes.

    {"format": 1, "keys": [{"name": "page", "scope": "read", "salt": …, "hash": …, "added": …}]}

An entry may also have `where`, a filter for the rows that the key may see, and `rate`.

A key is 32 random bytes. They cannot be guessed, so one round of SHA-256 is enough.
"""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lakewake.errors import ConfigError, FilterError
from lakewake.files import write_whole
from lakewake.model.choices import SCOPES
from lakewake.model.where import Where
from lakewake.search.where import parse_where
from lakewake.serve.callers import Caller

FORMAT = 1
PREFIX = "lw_"
#: The most characters of a key. Longer ones are refused without hashing them.
LONGEST = 200
#: Rights that a key file must not have: only the owner may write it, only owner and group read it.
FORBIDDEN = stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_log = logging.getLogger("lakewake.serve")


@dataclass(frozen=True)
class Key:
    """An entry of the file. It never holds the key itself.

    Attributes:
        where: a filter for the rows that the key may see; "": all.
        rate: how many requests a second it may send; 0: as `rate` in `[serve]` says.
    """

    name: str
    scope: str
    salt: str
    hash: str
    added: str
    where: str = ""
    rate: float = 0.0

    def fits(self, given: str) -> bool:
        """Whether this is the key, compared in constant time."""
        return hmac.compare_digest(hashed(given, self.salt), self.hash)

    @property
    def caller(self) -> Caller:
        """Who sends this key, and the rows that they may see."""
        where = _parsed(self.where) if self.where else None
        return Caller(f"key {self.name}", where, self.rate, admin=self.may("admin"))

    def may(self, scope: str) -> bool:
        """Whether the key includes this scope. Metrics count the rows of everybody."""
        if self.where and scope != "read":
            return False
        return SCOPES.index(self.scope) >= SCOPES.index(scope)


@lru_cache(maxsize=256)
def _parsed(where: str) -> Where:
    return parse_where(where)


def hashed(key: str, salt: str) -> str:
    """SHA-256 of salt and key, in hex."""
    return hashlib.sha256(bytes.fromhex(salt) + key.encode("utf-8", "replace")).hexdigest()


def add_key(file: Path, name: str, scope: str, where: str = "", rate: float = 0.0) -> str:
    """Make a key and store its hash. The key itself is returned once and stored nowhere.

    Args:
        where: a filter for the rows that the key may see; "": all.
        rate: how many requests a second it may send; 0: as the server's configuration says.

    Raises:
        ConfigError: the name is taken or not valid, the file cannot be used, or a key with a
            filter would have scope admin.
        FilterError: the filter does not parse.
    """
    if where:
        parse_where(where)
    if where and scope != "read":
        raise ConfigError(
            "a key with a filter has scope read: metrics count the rows of everybody",
            hint="add a second key with `--scope admin` and without `--where`",
        )
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a valid name for a key",
            hint="use up to 64 letters, digits and _ . @ -",
        )
    key, salt = PREFIX + secrets.token_urlsafe(32), secrets.token_hex(16)
    added = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    with _alone(file):
        keys = read_keys(file) if file.exists() else ()
        if any(k.name == name for k in keys):
            raise ConfigError(
                f"{file} already has a key '{name}'",
                hint=f"run `lakewake keys remove {file} {name}` first",
            )
        _write(file, (*keys, Key(name, scope, salt, hashed(key, salt), added, where, rate)))
    return key


def remove_key(file: Path, name: str) -> None:
    """Remove a key. A running server refuses it from the next request on.

    Raises:
        ConfigError: there is no such key, or the file cannot be used.
    """
    with _alone(file):
        keys = read_keys(file)
        kept = tuple(k for k in keys if k.name != name)
        if len(kept) == len(keys):
            names = ", ".join(k.name for k in keys) or "none"
            raise ConfigError(f"{file} has no key '{name}'", hint=f"pass one of its keys: {names}")
        _write(file, kept)


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Lock out other writers, so that no key is lost between reading and writing."""
    try:
        # Lock the folder: the file itself is replaced, and the new one would not be locked.
        folder = os.open(file.parent, os.O_RDONLY)
    except OSError as error:
        raise _unwritable(file, error) from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    except OSError as error:
        raise _unwritable(file, error) from error
    finally:
        os.close(folder)


def read_keys(file: Path) -> tuple[Key, ...]:
    """The keys in a file.

    Raises:
        ConfigError: the file is missing or not a key file, or other users may read or change it.
    """
    try:
        with file.open(encoding="utf-8") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            keys = _parse(json.load(opened))
    except FileNotFoundError as error:
        raise ConfigError(
            f"the keys in {file} cannot be read: {error.strerror}",
            hint=f"create it with `lakewake keys add {file} NAME`",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"the keys in {file} cannot be read: {error.strerror}",
            hint="give the user that runs the server permission to read it",
        ) from error
    # The content is not shown: somebody may have put a key there by mistake.
    except (ValueError, TypeError, KeyError, FilterError):
        raise ConfigError(
            f"{file} is not a key file", hint="create one with `lakewake keys add FILE NAME`"
        ) from None
    if mode & FORBIDDEN:
        raise ConfigError(
            f"other users may {'change' if mode & ~stat.S_IROTH & FORBIDDEN else 'read'} {file}: "
            f"its mode is {stat.S_IMODE(mode):04o}",
            hint=f"run `chmod 600 {file}`, and make new keys if somebody may have changed it",
        )
    return keys


def _parse(value: Any) -> tuple[Key, ...]:
    if value["format"] != FORMAT:
        raise ValueError(value["format"])
    keys = tuple(Key(**one) for one in value["keys"])
    for key in keys:
        # A filter that does not parse must not be taken for none.
        if type(key.where) is not str or not isinstance(key.caller, Caller) or not key.rate >= 0:
            raise ValueError(key.name)
        if key.scope not in SCOPES or len(bytes.fromhex(key.salt)) < 16:
            raise ValueError(key.name)
        if len(bytes.fromhex(key.hash)) != hashlib.sha256().digest_size:
            raise ValueError(key.name)
    return keys


def _as_json(key: Key) -> dict[str, Any]:
    """The entry in the file. Versions that know no filters refuse a file that has some."""
    return {name: value for name, value in asdict(key).items() if value not in ("", 0.0)}


def _write(file: Path, keys: tuple[Key, ...]) -> None:
    """Replace the file atomically. Only its owner may read it."""
    text = json.dumps({"format": FORMAT, "keys": [_as_json(k) for k in keys]}, indent=1)
    try:
        write_whole(file, f"{text}\n".encode(), lasting=True, private=True)
    except OSError as error:
        raise _unwritable(file, error) from error


def _unwritable(file: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{file} cannot be written: {error.strerror}",
        hint="check that its folder exists and that you may write there",
    )


class KeyRing:
    """The keys in a file. Changes to the file take effect at once.

    While the file cannot be read, every key is refused.

    Raises:
        ConfigError: the file cannot be used, or holds no key.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        # The stamp comes first: a change in between is read again.
        self._seen = self._stamp()
        self._refused = ""
        self._keys = read_keys(file)
        if not self._keys:
            raise ConfigError(
                f"{file} holds no key", hint=f"run `lakewake keys add {file} NAME --scope read`"
            )

    def find(self, given: str) -> Key | None:
        """The entry of the given key; None if the key is unknown."""
        self._look_again()
        if not given or len(given) > LONGEST:
            return None
        # All are compared, so that the time does not reveal which one fits.
        fitting = [key for key in self._keys if key.fits(given)]
        return fitting[0] if fitting else None

    def _look_again(self) -> None:
        stamp = self._stamp()
        if stamp == self._seen and not self._refused:
            return
        try:
            self._keys = read_keys(self._file)
            self._refused = ""
        except ConfigError as error:
            self._keys = ()
            # Logged once per reason, although every request tries again.
            if error.fact != self._refused:
                _log.error("%s; every key is refused until that is fixed", error.fact)
            self._refused = error.fact
        self._seen = stamp

    def _stamp(self) -> tuple[int, ...] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        # The last two change with the permissions.
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode, found.st_ctime_ns
