"""Keeps an index in Qdrant small. Each step returns how much it did, and changes no answer."""

from __future__ import annotations

import re
import time
from dataclasses import replace

from qdrant_client.models import Filter

from lakewake.store.qdrant.fence import Fence, Head
from lakewake.store.qdrant.filters import abandoned, ended
from lakewake.store.qdrant.points import Points

#: Seconds. Longer than any search; longer reads pin their version.
KEEP_FOR = 600.0


def generation_name(collection: str, number: int, attempt: str) -> str:
    """The collection of one attempt at a generation: racing builders do not share one."""
    return f"{collection}.g{number}.{attempt}"


def generation_number(collection: str, name: str) -> int | None:
    """The inverse of `generation_name`; None for any other name."""
    match = re.fullmatch(re.escape(collection) + r"\.g([1-9][0-9]*)\.[0-9a-f]{12}", name)
    return int(match[1]) if match else None


def drop_abandoned(points: Points, head: Head) -> int:
    """Remove what writers left behind when they died or lost a race."""
    return _remove(points, head.collection, abandoned(head.version))


def drop_ended(fence: Fence, head: Head) -> int:
    """Remove chunks that no reader sees any more.

    The horizon is written first, so that a reader that is still behind it notices.
    """
    horizon = _unseen_version(fence, head)
    old = ended(horizon)
    if not horizon or not fence.points.count(head.collection, old):
        return 0
    if head.horizon < horizon and not fence.move(head, replace(head, horizon=horizon)):
        # A writer interfered: left for the next time.
        return 0
    return _remove(fence.points, head.collection, old)


def _unseen_version(fence: Fence, head: Head) -> int:
    """The newest version such that every reader of an earlier one has had time to finish."""
    since = time.time() - KEEP_FOR
    settled = max((c.version for c in head.commits if c.at < since), default=0)
    return min([settled, *fence.pinned(head)])


def _remove(points: Points, collection: str, where: Filter) -> int:
    found = points.count(collection, where)
    if found:
        points.remove(collection, where)
    return found


def drop_generations(points: Points, collection: str, head: Head) -> int:
    """Delete the collections of earlier generations and of failed attempts."""
    dropped = 0
    for name in points.names():
        number = generation_number(collection, name)
        if number is not None and number <= head.generation and name != head.collection:
            points.drop(name)
            dropped += 1
    return dropped


def point_alias(points: Points, collection: str, head: Head) -> int:
    """Point the alias with the plain collection name at the active generation."""
    if points.alias(collection) == head.collection:
        return 0
    points.set_alias(collection, head.collection)
    return 1
