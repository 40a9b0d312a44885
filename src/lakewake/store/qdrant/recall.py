"""Measures the recall of Qdrant's own index: questions are asked approximately and exactly.

Qdrant walks a graph of the vectors. Points that have ended, and points that a filter leaves out,
are still in it: around a question about deleted vectors, the walk ends before it has found the
nearest ones that are left. More candidates (`hnsw_ef`) repair that up to a point; an exact search
always does. A filter may leave out anything, so no probe covers it: searches with one are exact.
"""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

import numpy as np
from qdrant_client import models
from qdrant_client.models import Filter

from lakewake.errors import StoreError
from lakewake.model.recall import Decision, Effort, Probed
from lakewake.store import recall
from lakewake.store.deleted import KEPT, DeletedVectors
from lakewake.store.qdrant.fence import Fence, Head
from lakewake.store.qdrant.filters import ended, valid_at
from lakewake.store.qdrant.points import Points
from lakewake.store.recall import EQUAL, PER_KIND, Asking, K, Questions, is_due, many, now

#: Numbers of candidates, cheapest first. Beyond these an exact search costs about the same.
EFFORTS = tuple(Effort(ef, 1) for ef in (128, 256, 512, 1024))
#: At every sixteenth version, some deleted vectors are kept although no probe is due.
SAMPLED_EVERY = 16


@dataclass(frozen=True)
class Coverage:
    """What one version of an index has for approximate search.

    Attributes:
        covered: chunks that existed when it was probed and still do.
    """

    chunks: int
    absent: str = ""
    covered: int = 0
    decision: Decision | None = None

    @property
    def kind(self) -> str:
        return "" if self.absent else "hnsw"

    @property
    def partitions(self) -> int:
        """0: a graph has no partitions."""
        return 0

    @property
    def unprobed(self) -> tuple[Effort | None, str]:
        """Exactly: any part of the graph may be cut off from the rest."""
        return None, "each vector is compared"


@dataclass(frozen=True)
class Kept:
    """A decision, and what it is about.

    Attributes:
        version: which version was probed.
        indexed: how many vectors Qdrant's index had then; another number means another graph.
    """

    decision: Decision
    version: int
    indexed: int

    def to_json(self) -> str:
        """The text that the frontier point holds."""
        return json.dumps({**asdict(self), "decision": self.decision.to_json()}, sort_keys=True)


def read_kept(text: str) -> Kept | None:
    """The inverse of `Kept.to_json`; None if this Lakewake cannot read the text."""
    try:
        value = json.loads(text)
        decision = Decision.from_json(value["decision"])
        version, indexed = int(value["version"]), int(value["indexed"])
    except (ValueError, KeyError, TypeError):
        return None
    return Kept(decision, version, indexed) if decision else None


def coverage_of(points: Points, head: Head, asking: Asking) -> Coverage:
    """The coverage of a version: up to three small calls to Qdrant, none if it does not matter."""
    if not points.location.has_indexes:
        return Coverage(0, "this Qdrant has no indexes")
    if head.recipe.metric != "cosine":
        return Coverage(0, "only cosines are searched by Qdrant's index")
    chunks = points.count(head.collection, valid_at(head.version)) if asking.recall < 1 else 0
    kept = read_kept(head.searching) if chunks and chunks >= asking.least else None
    if kept is None or abs(points.graph(head.collection)[0] - kept.indexed) > many(chunks):
        return Coverage(chunks)
    left = points.count(head.collection, valid_at(head.version, kept.version))
    return Coverage(chunks, "", left, replace(kept.decision, taken=max(chunks - left, 0)))


@dataclass(frozen=True)
class NoteShelf:
    """Keeps a file as a note beside the frontier."""

    fence: Fence

    def read(self, name: str) -> bytes | None:
        """The note's content; None if it does not exist or is not base64."""
        with suppress(ValueError):
            return base64.b64decode(self.fence.read_note(name) or "", validate=True) or None
        return None

    def replace(self, name: str, content: bytes, *, lasting: bool = True) -> None:
        self.fence.write_note(name, base64.b64encode(content).decode())


def deleted_of(fence: Fence) -> DeletedVectors:
    """The sample of deleted vectors of an index."""
    return DeletedVectors(NoteShelf(fence), fence.name)


def sample_deleted(fence: Fence, head: Head, there: Coverage, asking: Asking) -> int:
    """Keep some of the deleted vectors before their points are removed.

    Does so if a probe is due, and now and then: after a slow trickle of deletes, their points are
    gone by the time a probe is due.
    """
    now_and_then = head.version % SAMPLED_EVERY == 0 and there.chunks >= asking.least
    if there.absent or not (is_due(there, asking) or now_and_then):
        return 0
    rng = np.random.default_rng(head.version)
    found = _vectors(fence.points, head, ended(head.version), KEPT)
    if len(found):
        # They only make better questions: upkeep goes on without them.
        with suppress(StoreError):
            deleted_of(fence).add(head.recipe.fingerprint, found, rng)
    return len(found)


def probe(fence: Fence, head: Head, there: Coverage, asking: Asking) -> int:
    """Probe Qdrant's index and decide how to search it; return the number of questions.

    A probe is due when Qdrant has finished indexing, and again once a 256th of the chunks (and more
    than 500) have been deleted since, twice as many have been deleted or added, or the graph has
    changed as much.
    """
    if not is_due(there, asking):
        return 0
    indexed, at_rest = fence.points.graph(head.collection)
    if not at_rest:
        # A result now would not hold for the graph that is being built.
        return 0
    asked = _questions(fence, head, asking)
    best = _cheapest(fence.points, head, asked, asking.recall) if asked else None
    number = recall.number(asked)
    decision = Decision(best, None, now(), number, asking.recall, there.chunks)
    _keep(fence, head, Kept(decision, head.version, indexed))
    return number


def _keep(fence: Fence, head: Head, kept: Kept) -> None:
    """Write it to the frontier point; if a writer interfered, leave it for the next time."""
    last = fence.read()
    if last and (last.collection, last.version) == (head.collection, head.version):
        fence.move(last, replace(last, searching=kept.to_json()))


def _questions(fence: Fence, head: Head, asking: Asking) -> Questions:
    recipe, rng = head.recipe, np.random.default_rng(head.version)
    stored = _vectors(fence.points, head, valid_at(head.version), 3 * PER_KIND)
    deleted = deleted_of(fence).read(recipe.fingerprint, recipe.model.dimension)
    return recall.questions(stored, deleted, asking.recent, rng)


def _vectors(points: Points, head: Head, where: Filter, wanted: int) -> np.ndarray:
    """Some of the vectors that a filter finds, as Qdrant stores them."""
    random = models.SampleQuery(sample=models.Sample.RANDOM)
    found = points.nearest(head.collection, random, where, wanted, [])
    length = head.recipe.model.dimension
    return np.array([p.vector for p in found], np.float32).reshape(-1, length)


def _cheapest(points: Points, head: Head, asked: Questions, promised: float) -> Probed | None:
    """The least effort that keeps the promise; None means search exactly."""
    every = recall.every(asked)
    exact = [_scores(points, head, question, None) for question in every]

    def share(n: int, effort: Effort) -> float:
        if not len(exact[n]):
            return 1.0
        # Compared by score: among equally near vectors, any will do.
        near = _scores(points, head, every[n], effort) >= exact[n].min() - EQUAL
        return min(1.0, float(near.sum()) / len(exact[n]))

    def measure(effort: Effort) -> Probed:
        return recall.judged(asked, [share(n, effort) for n in range(len(every))], effort)

    return recall.cheapest(measure, EFFORTS, promised)


def _scores(points: Points, head: Head, question: np.ndarray, effort: Effort | None) -> np.ndarray:
    found = points.nearest(
        head.collection,
        question.tolist(),
        valid_at(head.version),
        K,
        [],
        vectors=False,
        exact=effort is None,
        ef=effort.probes if effort else None,
    )
    return np.array([p.score for p in found], np.float64)
