"""The attempts of one sync: a lost race is run again, and an attempt may land unnoticed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from lakewake.errors import StoreError
from lakewake.model.frontier import Frontier
from lakewake.model.options import SyncOptions
from lakewake.model.reads import NO_READS, Reads
from lakewake.sync.parts import IndexParts
from lakewake.sync.prepare import Preparation
from lakewake.sync.reports import Clock
from lakewake.sync.situation import Situation, delete_guard, preparation, refuse_dropped

#: A lost race is run again. This many in a row mean that something else is wrong.
ATTEMPTS = 5


@dataclass
class Attempt:
    """One pass through the flow.

    Attributes:
        then: the frontier of its commit, from the moment the store is asked for it. Such an
            attempt may have landed, whatever error followed.
        reads: how much of the table it read.
    """

    situation: Situation
    work: Preparation
    then: Frontier | None = None
    reads: Reads = NO_READS


@dataclass
class Attempts:
    """The attempts of one sync so far.

    Attributes:
        token: marks the commits of this sync, so that it recognises its own.
    """

    parts: IndexParts
    clock: Clock = field(default_factory=Clock)
    token: str = field(default_factory=lambda: uuid4().hex)
    made: list[Attempt] = field(default_factory=list)

    def begin(self, situation: Situation, options: SyncOptions) -> Attempt:
        """One more attempt.

        Raises:
            IndexDropped: the index that an earlier attempt has seen is gone.
        """
        for earlier in self.made:
            refuse_dropped(self.parts, earlier.situation)
        guard = None if options.allow_deletes else delete_guard(self.parts, situation)
        attempt = Attempt(situation, preparation(self.parts, situation, guard))
        self.made.append(attempt)
        return attempt

    def landed(self, situation: Situation) -> Attempt | None:
        """The attempt that brought the index to its frontier, although an error hid that."""
        if not self.made or situation.index is None:
            return None
        reached = situation.index.frontier().to_json()
        return next((a for a in self.made if a.then and a.then.to_json() == reached), None)

    def embedded(self) -> int:
        """Texts that the embedder received in all attempts."""
        return sum(a.work.tally.embedded for a in self.made)

    def tokens(self) -> int:
        """Tokens sent to a service by all attempts."""
        return sum(a.work.tally.tokens for a in self.made)

    @contextmanager
    def noting_what_landed(self) -> Iterator[None]:
        """Note on an exception that stops the sync whether its commit landed."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit) as stopped:
            if not getattr(stopped, "__notes__", None):
                stopped.add_note(self.what_landed())
            raise

    def what_landed(self) -> str:
        """Whether a commit of these attempts landed, as read from the store."""
        name = self.parts.name
        asked = {a.then.to_json() for a in self.made if a.then}
        try:
            index = self.parts.store.open() if asked else None
            reached = index.frontier() if index else None
        except StoreError:
            return f"whether the last commit to '{name}' landed is not known"
        if reached and reached.to_json() in asked:
            return f"the commit to '{name}' landed: the index is at {reached.newest}"
        return f"nothing was written to '{name}'"
