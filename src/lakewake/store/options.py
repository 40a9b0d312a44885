"""What a configuration sets for the store of one index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakewake.errors import ConfigError, SetupError
from lakewake.model.ann import AUTO, FLAT, Ann
from lakewake.model.keep import Keep
from lakewake.model.recall import RECALL
from lakewake.progress import Reporter, Silent
from lakewake.store.executors import Executors, nobody

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Session = Callable[[], SparkSession]


def _no_session() -> SparkSession:
    raise SetupError(
        "this index can be read here, but not written", hint="sync it with its configuration"
    )


@dataclass(frozen=True)
class StoreOptions:
    """What a configuration sets for the store of one index.

    Attributes:
        recall: the share of the nearest chunks that a vector search has to find; 1 means exact.
        ann: which approximate index the store keeps, and from what size on.
        keep: how long an index in the lake can be searched as it was.
        session: the Spark session that writes an index in the lake; called when it is needed.
        executors: the machines that help with upkeep; None: there are none. Called when needed.
        reporter: shows the steps of upkeep.
    """

    recall: float = RECALL
    ann: Ann = field(default_factory=Ann)
    keep: Keep = field(default_factory=Keep)
    session: Session = _no_session
    executors: Callable[[], Executors | None] = nobody
    reporter: Reporter = field(default_factory=Silent)

    def need_kind(self, store: str, *kinds: str) -> None:
        """Refuse a kind of approximate index that a store does not have.

        Raises:
            ConfigError: `ann.kind` is neither `auto`, `flat` nor one of `kinds`.
        """
        valid = (AUTO, FLAT, *kinds)
        if self.ann.kind not in valid:
            raise ConfigError(
                f"{store} has no approximate index of kind {self.ann.kind!r}",
                hint=f"valid values of `ann.kind` for this store are {', '.join(valid)}",
            )
