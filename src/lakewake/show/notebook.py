"""Values that notebooks show as HTML."""

from __future__ import annotations

from typing import Any, Protocol


class Told(Protocol):
    """Anything that says what it is as one object."""

    def as_dict(self) -> dict[str, Any]:
        """The object."""


class Shown:
    """Gives a value with `as_dict` its view in Jupyter; the view is chosen by the object's keys."""

    def _repr_html_(self: Told) -> str:
        # Imported where it is used: only notebooks look at values as HTML.
        from lakewake.show.html import render

        return render(self.as_dict())
