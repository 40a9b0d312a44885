"""Values made when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801
    """`cached_property` without the lock that on Python 3.11 all instances share.

    An index that takes long to open must not hold up the others. Asked by several threads at
    once, the value may be made more than once: for what only reads.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make, self.__doc__ = make, make.__doc__
        self._name = make.__name__

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        # Kept beside the instance's own attributes, which are looked at before this is.
        value = instance.__dict__[self._name] = self._make(instance)
        return value
