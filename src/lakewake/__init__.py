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
    IndexMissing,
    IndexStale,
    LakewakeError,
    OutcomeUnknown,
    RecipeMismatch,
    SetupError,
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
    from lakewake.model.facets import Facet
    from lakewake.model.history import CommitMark, SyncRecord
    from lakewake.model.plan import Action
    from lakewake.model.query import Hit, IndexedRow, Mode, RowChunk, SearchResult
    from lakewake.model.recall import Searching
    from lakewake.model.recommendation import AnsweredBy, Recommendation
    from lakewake.model.report import (
        IndexDescription,
        PlanReport,
        StatusReport,
        SyncReport,
        VerifyReport,
    )
    from lakewake.model.rows import RowId
    from lakewake.progress import Reporter
    from lakewake.search.view import View

__all__ = [
    "Action",
    "AnsweredBy",
    "CommitMark",
    "ConfigError",
    "EmbedError",
    "Facet",
    "FilterError",
    "HistoryLost",
    "Hit",
    "Index",
    "IndexDamaged",
    "IndexDescription",
    "IndexMissing",
    "IndexStale",
    "IndexedRow",
    "Lakewake",
    "LakewakeError",
    "Mode",
    "OutcomeUnknown",
    "PlanReport",
    "RecipeMismatch",
    "Recommendation",
    "Reporter",
    "RowChunk",
    "RowId",
    "SearchResult",
    "Searching",
    "SetupError",
    "StaleFrontier",
    "StatusReport",
    "StoreError",
    "StoreUnreachable",
    "SyncRecord",
    "SyncReport",
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
    "lakewake.model.facets": ("Facet",),
    "lakewake.model.history": ("CommitMark", "SyncRecord"),
    "lakewake.model.plan": ("Action",),
    "lakewake.model.query": ("Hit", "IndexedRow", "Mode", "RowChunk", "SearchResult"),
    "lakewake.model.recall": ("Searching",),
    "lakewake.model.recommendation": ("AnsweredBy", "Recommendation"),
    "lakewake.model.report": (
        *("IndexDescription", "PlanReport", "StatusReport", "SyncReport", "VerifyReport"),
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
    return __all__
