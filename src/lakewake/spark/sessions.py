"""The Spark session of a process that has opened indexes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from lakewake.progress import Reporter, Silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sessions:
    """The one Spark session, started when it is first needed."""

    def __init__(
        self,
        options: Mapping[str, str],
        given: SparkSession | None,
        verbose: bool,
        reporter: Reporter | None = None,
    ) -> None:
        self.options = options
        self._reporter = reporter or Silent()
        self.tables: tuple[str, ...] = ()
        self._given = given
        self._own: SparkSession | None = None
        self._verbose = verbose
        if given is not None:
            from lakewake.spark.session import check_session

            check_session(given)

    @property
    def is_running(self) -> bool:
        """Whether there is a session already."""
        return self._given is not None or self._own is not None

    def get(self, beside: Callable[[], None]) -> SparkSession:
        """The caller's session, or one of our own.

        Args:
            beside: work to do while a session starts. Its errors are ignored: the work is done
                again when it is needed, and fails there.
        """
        if self._given is not None:
            return self._given
        from lakewake.spark.session import has_ended, start_session, stop_session

        if self._own is not None and has_ended(self._own):
            stop_session()
            self._own = None
        if self._own is None:
            with self._reporter.stage("start Spark"):
                self._own = start_session(
                    self.options, tables=self.tables, verbose=self._verbose, beside=beside
                )
        return self._own

    def close(self) -> None:
        """Stop a session of our own; leave the caller's alone."""
        if self._own is not None:
            from lakewake.spark.session import stop_session

            stop_session()
            self._own = None
