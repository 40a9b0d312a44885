"""Objects in S3 that are written only if nobody else wrote them first.

S3 compares the tag of the object when it writes (`If-None-Match: *`, `If-Match`). Arrow cannot ask
for that, so these objects are written by obstore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lakewake.errors import SetupError
from lakewake.lazy import lazy
from lakewake.net import s3

if TYPE_CHECKING:
    from obstore.store import S3Store

#: A request that is not answered within this time has failed.
SECONDS = 10


class Tagged(NamedTuple):
    """An object's content, and its tag: another write gives it another tag."""

    content: bytes
    tag: str


class Unsure(OSError):
    """A write may have landed, or may still land."""


class ConditionalBucket:
    """A folder in S3.

    Args:
        path: the bucket and the folder in it.
    """

    def __init__(self, path: str, service: s3.S3) -> None:
        self._path, self._service = path, service

    def read(self, name: str) -> Tagged | None:
        """An object; None if there is none.

        Raises:
            OSError: it cannot be read.
        """
        from obstore.exceptions import BaseError

        try:
            found = self._store.get(name)
            return Tagged(bytes(found.bytes()), str(found.meta["e_tag"]))
        except FileNotFoundError:
            return None
        except BaseError as error:
            raise OSError(_first_line(error)) from error

    def put(self, name: str, content: bytes, after: str | None) -> str | None:
        """Write an object, if the one with the tag `after` is there; None: if there is none.

        Args:
            content: unlike any former content, so that it shows whether this write landed.

        Returns:
            The tag of the new object; None if it was not written.

        Raises:
            Unsure: no answer came.
        """
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        try:
            mode = {"e_tag": after} if after is not None else "create"
            done = self._store.put(name, content, mode=mode, use_multipart=False)  # type: ignore[arg-type]
            return str(done["e_tag"])
        except (AlreadyExistsError, PreconditionError, FileNotFoundError):
            return None
        except BaseError as error:
            landed = self.read(name)
            if landed is not None and landed.content == content:
                return landed.tag
            raise Unsure(_first_line(error)) from error

    @lazy
    def _store(self) -> S3Store:
        try:
            from obstore.store import S3Store
        except ModuleNotFoundError as error:
            raise SetupError(
                "the package for conditional writes to S3 is not installed",
                hint="pip install 'lakewake[lake]'",
            ) from error
        bucket, _, folder = self._path.partition("/")
        options = s3.object_store_options(self._service)
        return S3Store(
            bucket,
            prefix=folder or None,
            config={k: v for k, v in options.items() if k in s3.OBSTORE_KEYS},  # type: ignore[arg-type]
            client_options={"timeout": f"{SECONDS}s", "allow_http": self._service.plain},
            # A write that is repeated after a lost answer would be refused because of itself.
            retry_config={"max_retries": 0},
        )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
