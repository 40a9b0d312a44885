"""Addresses that a user gives: none may contain a secret.

An address is shown in errors, logs and `status`, written to configurations and histories, and
handed to libraries that print it. A key in one is refused before any of this happens.
"""

from __future__ import annotations

from lakewake.errors import ConfigError
from lakewake.show.redact import has_secret

AWS_KEYS = (
    "put keys into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile in AWS_PROFILE"
)
QDRANT_KEY = "put the key into the environment variable QDRANT_API_KEY"
SERVICE_KEY = "put the key into the environment and name the variable in `key_env`"
OTHERWISE = "leave keys to the environment, or to the credentials file of the storage"


def check_address(address: str, what: str, hint: str = "") -> None:
    """Refuse an address with a user, password, key or signature in it, without repeating it.

    Args:
        what: what it is the address of, in words.
        hint: where its keys go; by default it depends on the kind of address.

    Raises:
        ConfigError: it has one.
    """
    if has_secret(address):
        raise ConfigError(
            f"{what} has a user, password or key in its address",
            hint=hint or where_keys_go(address),
        )


def where_keys_go(address: str) -> str:
    """What to do instead of writing a key into an address like this one."""
    scheme = address.partition("://")[0].lower()
    if scheme.startswith("qdrant"):
        return QDRANT_KEY
    if scheme in ("http", "https"):
        return SERVICE_KEY
    return AWS_KEYS if scheme.endswith(("s3", "s3a", "s3n")) else OTHERWISE
