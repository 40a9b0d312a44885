"""What operators see and ask of an index beside its answers: quarantine and jobs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from lakewake.history.log import open_jobs
from lakewake.model.choices import one_of
from lakewake.model.jobs import Job, JobKind, QuarantinedRow
from lakewake.show.redact import without_secrets

if TYPE_CHECKING:
    from lakewake.history.jobs import Jobs
    from lakewake.model.report import SyncReport


class Operating:
    """The part of an index that is for its operators. Mixed into `Index`."""

    @cached_property
    def _jobs(self: Any) -> Jobs:
        return open_jobs(self.settings, self._home)

    @property
    def has_language_model(self: Any) -> bool:
        """Whether a language model is configured to write recommendations."""
        return bool(self._chat.url)

    def quarantine(self: Any, limit: int = 100) -> tuple[QuarantinedRow, ...]:
        """Rows that could not be embedded, and why, in the order of the index.

        Raises:
            IndexMissing: there is no index yet.
        """

        def read(view: Any) -> tuple[QuarantinedRow, ...]:
            refused = islice(view.frontier.quarantine.items(), limit)
            return tuple(
                QuarantinedRow(row, without_secrets(r.reason), r.instant, r.attempts)
                for row, r in refused
            )

        found: tuple[QuarantinedRow, ...] = self.with_view(read)
        return found

    def ask_for(self, kind: str, by: str = "") -> Job:
        """Ask the process that runs `sync --watch` for a job. It reads and writes nothing else.

        Args:
            kind: `sync`, `plan`, `verify`, or `retry`: a sync that tries quarantined rows again.
            by: who asks.

        Raises:
            StoreError: it cannot be written.
        """
        return self._jobs.ask(one_of(JobKind, "kind", kind), by)

    def jobs(self, limit: int = 20) -> tuple[Job, ...]:
        """The last jobs that were asked for, newest first, and how they ended.

        Raises:
            StoreError: they cannot be read.
        """
        return self._jobs.newest(limit)

    def do_job(self: Any, sync: Callable[[bool], SyncReport]) -> Job | None:
        """Do the oldest job that waits, if there is one, and keep what became of it.

        Args:
            sync: syncs the index; with True it tries quarantined rows again.

        Raises:
            StoreError: the jobs cannot be reached. What the job itself raises is kept with it.
        """
        jobs: Jobs = self._jobs
        job = jobs.take()
        if job is None:
            return None
        work: dict[JobKind, Callable[[], Any]] = {
            JobKind.SYNC: lambda: sync(False),
            JobKind.RETRY: lambda: sync(True),
            JobKind.PLAN: self.plan,
            JobKind.VERIFY: self.verify,
        }
        try:
            report = work[job.kind]().as_dict()
        # Whatever it is: the watch that does the job goes on.
        except Exception as error:
            jobs.fail(job, error)
        else:
            jobs.finish(job, report)
        return job
