"""Vector indexes that follow your Apache Hudi table, commit by commit."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakewake.errors import (
    ConfigError,
    EmbedError,
    FilterError,
    HistoryLost,
    IndexDamaged,
    IndexDropped,
    IndexMissing,
    IndexStale,
    LakewakeError,
    OutcomeUnknown,
    RecipeMismatch,
    SetupError,
    SqlError,
    StaleFrontier,
    StoreError,
    StoreUnreachable,
    TableError,
    TableMissing,
    TextRefused,
    TooManyDeletes,
)

if TYPE_CHECKING:
    from lakewake.api import Index, Lakewake, find_indexes, open, open_index
    from lakewake.model.canaries import Canaries
    from lakewake.model.drop import DropReport
    from lakewake.model.evaluation import Answered, Comparison, Difference, Evaluation, Mean
    from lakewake.model.facets import Facet
    from lakewake.model.history import CommitMark, SyncHistory, SyncRecord
    from lakewake.model.hot import HotStatus
    from lakewake.model.jobs import Job, JobKind, JobState, QuarantinedRow
    from lakewake.model.plan import Action
    from lakewake.model.query import Hit, IndexedRow, Mode, RowChunk, SearchResult
    from lakewake.model.reads import Reads
    from lakewake.model.recall import CellSizes, Retrained, Searching
    from lakewake.model.recommendation import AnsweredBy, Recommendation
    from lakewake.model.report import (
        IndexDescription,
        PlanReport,
        StatusReport,
        SyncedTogether,
        SyncReport,
        VerifyReport,
    )
    from lakewake.model.rows import RowId
    from lakewake.progress import Reporter
    from lakewake.search.view import View

__all__ = [
    "Action",
    "Answered",
    "AnsweredBy",
    "Canaries",
    "CellSizes",
    "CommitMark",
    "Comparison",
    "ConfigError",
    "Difference",
    "DropReport",
    "EmbedError",
    "Evaluation",
    "Facet",
    "FilterError",
    "HistoryLost",
    "Hit",
    "HotStatus",
    "Index",
    "IndexDamaged",
    "IndexDescription",
    "IndexDropped",
    "IndexMissing",
    "IndexStale",
    "IndexedRow",
    "Job",
    "JobKind",
    "JobState",
    "Lakewake",
    "LakewakeError",
    "Mean",
    "Mode",
    "OutcomeUnknown",
    "PlanReport",
    "QuarantinedRow",
    "Reads",
    "RecipeMismatch",
    "Recommendation",
    "Reporter",
    "Retrained",
    "RowChunk",
    "RowId",
    "SearchResult",
    "Searching",
    "SetupError",
    "SqlError",
    "StaleFrontier",
    "StatusReport",
    "StoreError",
    "StoreUnreachable",
    "SyncHistory",
    "SyncRecord",
    "SyncReport",
    "SyncedTogether",
    "TableError",
    "TableMissing",
    "TextRefused",
    "TooManyDeletes",
    "VerifyReport",
    "View",
    "__version__",
    "find_indexes",
    "open",
    "open_index",
]
__version__ = "0.1.0"

#: Names that are imported on first use, by module: `lakewake --help` needs none of them.
_LAZY = {
    "lakewake.api": ("Index", "Lakewake", "find_indexes", "open", "open_index"),
    "lakewake.model.canaries": ("Canaries",),
    "lakewake.model.drop": ("DropReport",),
    "lakewake.model.evaluation": ("Answered", "Comparison", "Difference", "Evaluation", "Mean"),
    "lakewake.model.facets": ("Facet",),
    "lakewake.model.history": ("CommitMark", "SyncHistory", "SyncRecord"),
    "lakewake.model.hot": ("HotStatus",),
    "lakewake.model.jobs": ("Job", "JobKind", "JobState", "QuarantinedRow"),
    "lakewake.model.plan": ("Action",),
    "lakewake.model.query": ("Hit", "IndexedRow", "Mode", "RowChunk", "SearchResult"),
    "lakewake.model.reads": ("Reads",),
    "lakewake.model.recall": ("CellSizes", "Retrained", "Searching"),
    "lakewake.model.recommendation": ("AnsweredBy", "Recommendation"),
    "lakewake.model.report": (
        *("IndexDescription", "PlanReport", "StatusReport", "SyncReport", "VerifyReport"),
        "SyncedTogether",
    ),
    "lakewake.model.rows": ("RowId",),
    "lakewake.progress": ("Reporter",),
    "lakewake.search.view": ("View",),
}
_MODULES = {name: module for module, names in _LAZY.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'lakewake' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What one types. The tree of errors is in `errors`; only its root is listed here."""
    tree = {name for name, value in globals().items() if _is_error(value)}
    return [*(name for name in __all__ if name not in tree - {"LakewakeError"}), "errors"]


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, LakewakeError)
