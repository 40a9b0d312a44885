"""API keys: a file that knows them only by salted hashes.

    {"format": 1, "keys": [{"name": "page", "scope": "read", "salt": …, "hash": …, "added": …}]}

A key is 32 random bytes, so that one round of SHA-256 is enough: there is nothing to guess.
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
from pathlib import Path
from typing import Any

from lakewake.errors import ConfigError
from lakewake.files import write_whole
from lakewake.model.choices import SCOPES

#: What a key may do: search and look; and, beyond that, read the metrics.
FORMAT = 1
PREFIX = "lw_"
#: No key is longer; longer ones are not even hashed.
LONGEST = 200
#: Who else than its owner may do what to the file: nobody may write, and only the group may read.
FORBIDDEN = stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_log = logging.getLogger("lakewake.serve")


@dataclass(frozen=True)
class Key:
    """What the file says of a key; never the key itself."""

    name: str
    scope: str
    salt: str
    hash: str
    added: str

    def fits(self, given: str) -> bool:
        """Whether this is the key, found out in a time that does not depend on the answer."""
        return hmac.compare_digest(hashed(given, self.salt), self.hash)

    def may(self, scope: str) -> bool:
        """Whether the key is good for it."""
        return SCOPES.index(self.scope) >= SCOPES.index(scope)


def hashed(key: str, salt: str) -> str:
    """SHA-256 of salt and key, in hex."""
    return hashlib.sha256(bytes.fromhex(salt) + key.encode("utf-8", "replace")).hexdigest()


def add_key(file: Path, name: str, scope: str) -> str:
    """Make a key and keep its hash; the key itself is returned once and is nowhere else.

    Raises:
        ConfigError: the name is taken or not one, or the file cannot be used.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no name for a key", hint="use letters, digits and _ . @ -, up to 64"
        )
    key, salt = PREFIX + secrets.token_urlsafe(32), secrets.token_hex(16)
    added = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    with _alone(file):
        keys = read_keys(file) if file.exists() else ()
        if any(k.name == name for k in keys):
            raise ConfigError(
                f"{file} has a key '{name}' already",
                hint=f"`lakewake keys remove {file} {name}` first",
            )
        _write(file, (*keys, Key(name, scope, salt, hashed(key, salt), added)))
    return key


def remove_key(file: Path, name: str) -> None:
    """Take a key out; a running server refuses it from the next request on.

    Raises:
        ConfigError: there is no such key, or the file cannot be used.
    """
    with _alone(file):
        keys = read_keys(file)
        kept = tuple(k for k in keys if k.name != name)
        if len(kept) == len(keys):
            names = ", ".join(k.name for k in keys) or "none"
            raise ConfigError(f"{file} has no key '{name}'", hint=f"its keys: {names}")
        _write(file, kept)


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Keep other writers of the file out, so that no key is lost between reading and writing."""
    try:
        # The folder: the file itself is replaced, and its successor would not be locked.
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
    """The keys that a file knows.

    Raises:
        ConfigError: there is no such file, it is not one of keys, or others may change it.
    """
    try:
        with file.open(encoding="utf-8") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            keys = _parse(json.load(opened))
    except FileNotFoundError as error:
        raise ConfigError(
            f"the keys in {file} cannot be read: {error.strerror}",
            hint=f"`lakewake keys add {file} NAME` makes the file",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"the keys in {file} cannot be read: {error.strerror}",
            hint="give the user that runs the server the right to read it",
        ) from error
    # Not shown, and not what it says: a key may have been put there by mistake.
    except (ValueError, TypeError, KeyError):
        raise ConfigError(
            f"{file} is not a file of keys", hint="`lakewake keys add FILE NAME` makes one"
        ) from None
    if mode & FORBIDDEN:
        raise ConfigError(
            f"other users may {'change' if mode & ~stat.S_IROTH & FORBIDDEN else 'read'} {file}: "
            f"its mode is {stat.S_IMODE(mode):04o}",
            hint=f"chmod 600 {file}, and add new keys if somebody may have changed it",
        )
    return keys


def _parse(value: Any) -> tuple[Key, ...]:
    if value["format"] != FORMAT:
        raise ValueError(value["format"])
    keys = tuple(Key(**one) for one in value["keys"])
    for key in keys:
        if key.scope not in SCOPES or len(bytes.fromhex(key.salt)) < 16:
            raise ValueError(key.name)
        if len(bytes.fromhex(key.hash)) != hashlib.sha256().digest_size:
            raise ValueError(key.name)
    return keys


def _write(file: Path, keys: tuple[Key, ...]) -> None:
    """Replace the file in one step, readable by its owner only."""
    text = json.dumps({"format": FORMAT, "keys": [asdict(k) for k in keys]}, indent=1)
    try:
        write_whole(file, f"{text}\n".encode(), lasting=True, private=True)
    except OSError as error:
        raise _unwritable(file, error) from error


def _unwritable(file: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{file} cannot be written: {error.strerror}",
        hint="see that its folder exists, and that you may write there",
    )


class KeyRing:
    """The keys of a file as it is now: what is added or removed counts at once.

    Where the file cannot be read any more, no key is good.

    Raises:
        ConfigError: the file cannot be used, or holds no key.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        # First the stamp: what changes in between is read again.
        self._seen = self._stamp()
        self._refused = ""
        self._keys = read_keys(file)
        if not self._keys:
            raise ConfigError(
                f"{file} holds no key", hint=f"`lakewake keys add {file} NAME --scope read`"
            )

    def find(self, given: str) -> Key | None:
        """The key that was given, None when it is none of ours."""
        self._look_again()
        if not given or len(given) > LONGEST:
            return None
        # All are compared, so that the time tells nothing of which one fits.
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
            # Once for each reason, though it is tried again with every request.
            if error.fact != self._refused:
                _log.error("%s; until that is mended every key is refused", error.fact)
            self._refused = error.fact
        self._seen = stamp

    def _stamp(self) -> tuple[int, ...] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        # The last two tell a change of rights.
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode, found.st_ctime_ns
