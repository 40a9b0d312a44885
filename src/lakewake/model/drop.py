"""What dropping an index removes, and what it leaves."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lakewake.show.notebook import Shown
from lakewake.show.redact import without_secrets


@dataclass(frozen=True)
class Dropped:
    """What was removed, or would be.

    Attributes:
        removed: the addresses of files, folders and collections.
        marks: small files that stay, so that a sync that still runs cannot bring the index back.
        foreign: what is among them and is not Lakewake's; it stays.
    """

    removed: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    def plus(self, other: Dropped) -> Dropped:
        """Both together."""
        return Dropped(
            self.removed + other.removed, self.marks + other.marks, self.foreign + other.foreign
        )


@dataclass(frozen=True)
class DropReport(Shown):
    """What dropping an index removed, or would remove, and what stays.

    Attributes:
        removed, marks, foreign: as in `Dropped`.
        vector_cache: the file that still holds the vectors of its texts; '' if there is none.
        shared_with: the other indexes of the configuration that use these vectors.
        dry_run: nothing was removed.
    """

    index: str
    store: str
    removed: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    vector_cache: str = ""
    shared_with: tuple[str, ...] = ()
    dry_run: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "store", without_secrets(self.store))

    def as_dict(self) -> dict[str, Any]:
        """The object that `drop --json` prints."""
        lists = ("removed", "marks", "foreign", "shared_with")
        return asdict(self) | {name: list(getattr(self, name)) for name in lists}
