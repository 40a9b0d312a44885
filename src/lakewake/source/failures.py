"""Maps errors of Spark, Java and the connection to them to what they mean for a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from lakewake.errors import TableError

#: The exceptions by which Java and Hudi report that a file no longer exists.
GONE = frozenset(
    {
        "java.io.FileNotFoundException",
        "java.nio.file.NoSuchFileException",
        "org.apache.hudi.exception.HoodieIncrementalPathNotFoundException",
    }
)
T = TypeVar("T")


@contextmanager
def reading(path: str, gone: Callable[[], Exception]) -> Iterator[None]:
    """Map the errors of a read: raise `gone()` if files have vanished, else a `TableError`."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        try:
            vanished, why = _file_is_gone(error), _first_line(error)
        except (Py4JError, ConnectionError):
            vanished, why = False, "Spark's JVM has ended"
        if vanished:
            raise gone() from error
        raise TableError(
            f"table {path} cannot be read: {why}", hint="run it with -v to see Spark's output"
        ) from error


def read_through(path: str, gone: Callable[[], Exception], batches: Iterator[T]) -> Iterator[T]:
    """Pass batches on, with their errors mapped as `reading` does."""
    with reading(path, gone):
        yield from batches


def _causes(error: BaseException) -> Iterator[Any]:
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None:
        yield cause
        cause = cause.getCause()


def _file_is_gone(error: BaseException) -> bool:
    if getattr(error, "getErrorClass", lambda: None)() == "PATH_NOT_FOUND":
        return True
    return any(name in GONE for cause in _causes(error) for name in _class_names(cause))


def _class_names(value: Any) -> Iterator[str]:
    """The names of a Java object's class and its superclasses."""
    kind = value.getClass()
    while kind is not None:
        yield kind.getName()
        kind = kind.getSuperclass()


def _first_line(error: BaseException) -> str:
    messages = [str(cause.getMessage() or "") for cause in _causes(error)]
    innermost = next((m for m in reversed(messages) if m), str(error) or type(error).__name__)
    return innermost.strip().splitlines()[0][:300]
