"""Secrets are removed from every message that leaves the process, by `without_secrets`. Pure.

Messages repeat what they were given, and so do Arrow, Hadoop and the services we ask. So the text
is searched for what secrets look like: user and password in an address, signed query strings,
headers with keys, `password=…`. If in doubt, text is removed. Rows of a table are data, not
messages, and are never changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

HIDDEN = "***"
#: In these schemes a name before the @ is part of the location; with a colon it is a password.
_PLACES = frozenset({"abfs", "abfss", "wasb", "wasbs", "lance", "memory", "qdrant+local"})
#: A shorter password is not searched for in the rest of a text: it may be part of any word.
_SHORTEST = 6
_LONGEST = 8_000

_REST = re.compile(r"://(\S+)")
#: The same for an address on its own: a password may have blanks in it.
_ALL_OF_IT = re.compile(r"://(?=(.*))", re.DOTALL)
_SCHEME = re.compile(r"[A-Za-z0-9+.\-]*$")
_PORT = re.compile(r"[^/?#@:]+:\d{1,5}/")
_BUCKETS = ("s3", "s3a", "s3n", "gs")
_FIRST_PART = re.compile(r"[^/?#]*")
#: How the name of a secret ends.
_NAME = (
    r"(?:passw(?:or)?d|passphrase|secret|token|credentials?|signature"
    r"|(?:api|access|secret|account|private|shared)[_.-]?key(?:[_.-]?id)?"
    r"|(?<![\w.%-])(?:sig|sas|pwd|auth))"
)
_VALUE = r"(?!…|\.\.\.|\*\*\*)(?:'[^']*'|\"[^\"]*\"|[^\s&;,'\"`<>(){}\[\]|]+)"
_IN_QUERY = re.compile(rf"(?i)((?:[?&;#]key|{_NAME})=){_VALUE}")
#: `password=…`, `"password": "…"` and `<Password>…`.
_GIVEN = re.compile(rf"(?i)((?:{_NAME}|[?&;#]key)(?:\s?=\s?|[\"']\s?:\s?|>)){_VALUE}")
_HEADER = re.compile(
    r"(?i)((?:authorization[\"']?+\s?+:\s?+[\"']?+(?!bearer\b)|\bx-[\w-]{0,40}(?:key|token)\s?+:\s?+))"
    r"[^\n'\"`]+"
)
#: As Rust and YAML write it; plain words such as "token: x" stay.
_NOTED = re.compile(
    r"(?i)((?:passw(?:or)?d|(?:secret|access|session|api|private|account)[_.-]?(?:access[_.-]?)?"
    rf"(?:key|token))\s?:\s?(?:Some\()?){_VALUE}"
)
#: `Bearer KEY` is what our own hints and documentation write.
_BEARER = re.compile(r"(?i)\b(bearer\s+)(?!(?-i:KEY)(?![^\s`'\".,;)]))[^\s`'\"]+")
#: Keys that are known by their form: those of Amazon, of OpenAI and the like, JSON web tokens.
_KEYS = re.compile(r"\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|sk-[\w-]{16,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)")


def without_secrets(text: str) -> str:
    """The text with `***` in place of every secret."""
    shown = _REST.sub(_without_userinfo, text)
    for secret in _passwords(text):
        shown = shown.replace(secret, HIDDEN)
    for pattern in (_GIVEN, _NOTED, _HEADER, _BEARER):
        shown = pattern.sub(rf"\1{HIDDEN}", shown)
    return _KEYS.sub(HIDDEN, shown)


def cleaned(value: Any) -> Any:
    """The same value without secrets in any of its texts."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {key: cleaned(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(inner) for inner in value]
    return value


def has_secret(address: str) -> bool:
    """Whether an address carries a user, a password, a key or a signature."""
    # No address is longer. The bound matters: each part of an address is read to its end.
    found = _ALL_OF_IT.finditer(address[:_LONGEST])
    if any(_userinfo(one) and not _has_port(one) for one in found):
        return True
    # Without a scheme it is a path, but a path hardly begins like this.
    if "://" not in address and re.match(r"[^/\s@:]+:[^\s@]*@", address):
        return True
    return _IN_QUERY.search(address.partition("?")[1] + address.partition("?")[2]) is not None


def _has_port(found: re.Match[str]) -> bool:
    """Whether the colon belongs to a port and the @ to the path; buckets have no ports."""
    return bool(_PORT.match(found[1])) and not _scheme(found).endswith(_BUCKETS)


def _without_userinfo(found: re.Match[str]) -> str:
    length = len(_userinfo(found))
    return f"://{HIDDEN}{found[1][length:]}" if length else found[0]


def _userinfo(found: re.Match[str]) -> str:
    """What is before the @ of an address; '' if nothing is.

    A password may hold any character, even a slash. So what follows a colon before the first slash
    counts as a password if an @ follows anywhere.
    """
    rest = found[1]
    first = _FIRST_PART.match(rest)
    part = first[0] if first else ""
    if ":" in part and not part.startswith("["):
        return rest[: max(rest.rfind("@"), 0)]
    user = part[: max(part.rfind("@"), 0)]
    return "" if user and _scheme(found) in _PLACES else user


def _scheme(found: re.Match[str]) -> str:
    before = _SCHEME.search(found.string[max(found.start() - 40, 0) : found.start()])
    return before[0].lower() if before else ""


def _passwords(text: str) -> Iterator[str]:
    """User and password of each address, as written and decoded: a message may repeat them."""
    for user in set(map(_userinfo, _REST.finditer(text))):
        found = {user, unquote(user)} if ":" in user else set()
        words = {user, user.partition(":")[2]}
        found |= {w for word in words for w in (word, unquote(word)) if len(w) >= _SHORTEST}
        yield from sorted(found, key=len, reverse=True)
