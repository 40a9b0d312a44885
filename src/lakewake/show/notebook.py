"""Values that notebooks show as HTML, and `print` in one line."""

from __future__ import annotations

from typing import Any, Protocol


class Reportable(Protocol):
    """Anything that can describe itself as one object."""

    def as_dict(self) -> dict[str, Any]:
        """The object."""


class Shown:
    """Gives a value with `as_dict` a view in Jupyter and a line for `print`, by its keys."""

    def _repr_html_(self: Reportable) -> str:
        # Imported here because only notebooks show values as HTML.
        from lakewake.show.html import render

        return render(self.as_dict())

    def __str__(self: Reportable) -> str:
        from lakewake.show.line import one_line

        return one_line(self.as_dict())
