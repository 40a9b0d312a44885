"""Every error that a user can see. All share one base class and answer three questions.

LakewakeError                what happened, did anything land, what to do next
├── ConfigError              lakewake.toml, a flag or an argument is wrong            exit 2
│   ├── FilterError          a --where that does not parse or does more than filter   exit 2
│   └── SqlError             a statement of `lakewake.sql`, with the position          exit 2
├── SetupError               weights, Hudi bundle, Java, an extra or a key is missing exit 2
├── TableError               the table cannot be read as asked                        exit 1
│   ├── TableMissing         there is no table where it should be                     exit 1
│   └── HistoryLost          its history cannot be followed from the frontier         exit 3
├── EmbedError               the provider failed                                      exit 1
│   └── TextRefused          it refuses some of the texts, however often they are sent exit 1
├── StoreError               the index cannot be read or written                      exit 1
│   ├── IndexMissing         there is no index yet                                    exit 3
│   ├── IndexDropped         it was dropped while a sync of it ran                     exit 1
│   ├── IndexStale           it is further behind its table than the search allows     exit 3
│   ├── IndexDamaged         files of it are missing, or not as they were written     exit 1
│   ├── StoreUnreachable     it did not answer: whether the index is sound is unknown exit 1
│   ├── StaleFrontier        another writer moved the frontier                        exit 1
│   └── OutcomeUnknown       the commit may have landed                               exit 1
├── TooManyDeletes           a sync would remove more of the index than it may         exit 3
└── RecipeMismatch           the index was built by another recipe or model           exit 2
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakewake.show.redact import without_secrets

if TYPE_CHECKING:
    import numpy as np

#: An option of a statement that sounds like a secret, with its value.
_OPTION = re.compile(
    r"""(?i)((?:key|token|secret|passw\w*|credentials?)['"`]?\s*=>?\s*)(?:'[^']*'?|"[^"]*"?)"""
)


class LakewakeError(Exception):
    """A failure with a fact, what landed, and a hint. Secrets are removed from fact and hint.

    Args:
        fact: what happened, in one sentence without a full stop.
        landed: what was written; "nothing was written" by default.
        hint: what to do next, as a command or an edit.
    """

    exit_code = 1

    def __init__(self, fact: str, *, hint: str = "", landed: str = "nothing was written") -> None:
        self.fact = without_secrets(fact)
        self.hint = without_secrets(hint)
        self.landed = landed
        super().__init__(self.fact)

    def __str__(self) -> str:
        lines = [self.fact, f"  {self.landed}"]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, str]:
        """The same three answers for `--json`."""
        return {
            "error": type(self).__name__,
            "fact": self.fact,
            "landed": self.landed,
            "hint": self.hint,
        }


class ConfigError(LakewakeError):
    """The configuration, a flag or an argument cannot be used."""

    exit_code = 2


class FilterError(ConfigError):
    """A filter that does not parse, or asks for more than filtering."""


class SqlError(ConfigError):
    """A statement of `lakewake.sql` that cannot be carried out as it is written.

    Args:
        text: the statement.
        at: the position in it, from 0.
    """

    def __init__(self, fact: str, text: str, at: int, *, hint: str) -> None:
        before = text[:at]
        self.line = before.count("\n") + 1
        self.column = at - (before.rfind("\n") + 1) + 1
        super().__init__(f"{fact} (line {self.line}, column {self.column})", hint=hint)
        self.excerpt = self._excerpt(text)

    def _excerpt(self, text: str) -> str:
        line = text.split("\n")[self.line - 1]
        shown = _OPTION.sub(r"\1'***'", without_secrets(line))
        # Where something was removed, the caret would point to another place.
        caret = f"\n  {' ' * (self.column - 1)}^" if shown == line else ""
        return f"  {shown}{caret}"

    def __str__(self) -> str:
        fact, _, rest = super().__str__().partition("\n")
        return f"{fact}\n{self.excerpt}\n{rest}"


class SetupError(LakewakeError):
    """Something that `lakewake setup`, an extra or the environment provides is not there."""

    exit_code = 2


class TableError(LakewakeError):
    """The table cannot be read as asked."""


class TableMissing(TableError):
    """There is no table where the configuration says it is."""


class HistoryLost(TableError):
    """The table's history cannot be followed from the index's frontier."""

    exit_code = 3


class TooManyDeletes(LakewakeError):
    """A sync would remove more rows of an index than it may without `allow_deletes`."""

    exit_code = 3


class EmbedError(LakewakeError):
    """The embedding provider failed or answered something unusable."""


class TextRefused(EmbedError):
    """The provider refuses some of the texts themselves: sending them again is useless.

    Args:
        reasons: position in the list given to `embed` → why that text is refused.
        vectors: what `embed` would have returned, with NaN in the refused rows, so that the others
            are not embedded twice; None if they were not embedded.
    """

    def __init__(
        self, fact: str, reasons: Mapping[int, str], vectors: np.ndarray | None = None
    ) -> None:
        super().__init__(fact, hint="correct these texts or leave them out")
        self.reasons = {n: without_secrets(reason) for n, reason in reasons.items()}
        self.vectors = vectors

    @property
    def positions(self) -> tuple[int, ...]:
        """The refused texts' positions, in order."""
        return tuple(sorted(self.reasons))


class StoreError(LakewakeError):
    """The index cannot be read or written."""


class IndexMissing(StoreError):
    """There is no index of that name yet."""

    exit_code = 3


class IndexDropped(StoreError):
    """The index was dropped while a sync of it ran."""


class IndexStale(StoreError):
    """The index is further behind its table than the caller of a search allows."""

    exit_code = 3


class IndexDamaged(StoreError):
    """Files of the index are missing, or not as they were written: it has to be built again."""


class StoreUnreachable(StoreError):
    """The store did not answer, so the state of the index is unknown."""


class StaleFrontier(StoreError):
    """Another writer moved the frontier first; nothing of this batch landed."""


class OutcomeUnknown(StoreError):
    """The commit may or may not have landed; the same batch can be tried again."""


class RecipeMismatch(LakewakeError):
    """The index was built with a recipe or model other than the configured one."""

    exit_code = 2
