"""Values computed on first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801
    """`cached_property` without the lock that all instances share on Python 3.11.

    An index that takes long to open must not hold up the others. If several threads ask at once,
    the value may be computed more than once, so this is only for functions that only read.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make, self.__doc__ = make, make.__doc__
        self._name = make.__name__

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        # Stored as the instance's own attribute, which Python finds before this descriptor.
        value = instance.__dict__[self._name] = self._make(instance)
        return value
