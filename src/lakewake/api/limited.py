"""One index as a caller sees it who may not see every row. It can only be searched and read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from lakewake.api.index import Index
from lakewake.errors import ConfigError, IndexMissing, IndexStale, StoreError, TableError
from lakewake.model.history import SyncHistory
from lakewake.search.where import check_columns
from lakewake.store.limited import Limit, LimitedReader

if TYPE_CHECKING:
    from lakewake.embed import Embedder
    from lakewake.model.history import CommitMark
    from lakewake.model.query import Question, SearchResult
    from lakewake.model.report import StatusReport
    from lakewake.model.where import Where
    from lakewake.rerank import Reranker
    from lakewake.search.view import View
    from lakewake.store import StoreReader
    from lakewake.sync import IndexParts

T = TypeVar("T")
_log = logging.getLogger("lakewake.rights")
#: The hint of an error whose particulars a caller may not see.
LOGGED = "try again later; the log of this process has the reason"


def _refused(name: str) -> Callable[..., Any]:
    def refuse(self: LimitedIndex, *_: Any, **__: Any) -> NoReturn:
        raise ConfigError(
            f"`{name}` is not available: this view of index '{self.name}' is limited to some rows",
            hint="call it on the index itself, as `lakewake.open()` returns it",
        )

    return refuse


class LimitedIndex(Index):
    """The rows of an index that pass a filter. Facets and counts are kept for this filter alone."""

    def __init__(self, index: Index, where: Where) -> None:
        super().__init__(index.settings, index._sessions, index._reporter, index._home, index._chat)
        self._index = index
        # One memory for all views: what it holds is limited when it is read.
        self._hot = index._hot
        self._limit = Limit(index.name, where, check_columns)

    @cached_property
    def parts(self) -> IndexParts:
        """The wiring of the index itself, shared by all its limited views."""
        return self._index.parts

    @cached_property
    def _questions(self) -> Embedder:
        """That of the index itself: a vector does not depend on who asks."""
        return self._index._questions

    @cached_property
    def reranker(self) -> Reranker:
        """That of the index itself."""
        return self._index.reranker

    def _opened(self, as_of: str | None) -> StoreReader:
        if as_of is not None:
            # Who may see a row is what the newest version says of it.
            raise ConfigError(
                "earlier states of the index cannot be searched with these rights",
                hint="search without `as_of`",
            )
        return super()._opened(None)

    def _seen(self, reader: StoreReader) -> StoreReader:
        # That index may be limited too.
        return LimitedReader(self._index._seen(reader), self._limit)

    def _answer(
        self, question: Question, rerank: bool | None, as_of: str | None, max_age: float | None
    ) -> SearchResult:
        with self._in_general():
            return super()._answer(question, rerank, as_of, max_age)

    def _scan(self, question: Question, rerank: bool | None) -> SearchResult:
        with self._in_general():
            return super()._scan(question, rerank)

    @contextmanager
    def view(self, *, as_of: str | None = None) -> Iterator[View]:
        """As for the index itself, with the rows of the limit."""
        with self._in_general(), super().view(as_of=as_of) as view:
            yield view

    def with_view(self, work: Callable[[View], T], *, as_of: str | None = None) -> T:
        """As for the index itself, with the rows of the limit."""
        with self._in_general():
            return super().with_view(work, as_of=as_of)

    @contextmanager
    def _in_general(self) -> Iterator[None]:
        """Leave out of errors what they name: a file, a partition or a value may be of any row.

        Raises:
            TableError, StoreError: the same error without its particulars, which are logged.
        """
        try:
            yield
        except (IndexMissing, IndexStale):
            raise
        except (TableError, StoreError) as error:
            if error.hint == LOGGED:
                raise
            what = "the table of the index" if isinstance(error, TableError) else "the index"
            _log.error("index %s: %s", self.name, error.fact)
            raise type(error)(f"{what} '{self.name}' cannot be read", hint=LOGGED) from error

    def status(self) -> StatusReport:
        """How far the index is behind its table, and how many rows of it this caller may see."""
        with self._in_general():
            found = super().status()
        rows, chunks = self.with_view(lambda view: view.counts()) if found.built else (0, 0)
        return replace(
            found,
            rows=rows,
            chunks=chunks,
            table="",
            store="",
            why="",
            duplicates=0,
            quarantined=0,
            last_sync=None,
            searching=None,
            hot=None,
            canaries=None,
        )

    def close(self) -> None:
        """Do nothing: files and memory are those of the index itself."""

    def history(self, limit: int = 20) -> SyncHistory:
        """Nothing: a sync counts the rows of everybody."""
        return SyncHistory()

    def commits(self, limit: int = 50, *, view: View | None = None) -> tuple[CommitMark, ...]:
        """Nothing: a commit counts the rows of everybody."""
        return ()

    quarantine = _refused("quarantine")
    jobs = _refused("jobs")
    ask_for = _refused("ask_for")
    do_job = _refused("do_job")
    plan = _refused("plan")
    sync = _refused("sync")
    heal = _refused("heal")
    verify = _refused("verify")
    drop = _refused("drop")
    describe = _refused("describe")
    warm = _refused("warm")
    persist_hot = _refused("persist_hot")
    evaluate = _refused("evaluate")
    ask_canaries = _refused("ask_canaries")
    _batch_parts = _refused("search_batch")
    _spark = _refused("to_dataframe")
