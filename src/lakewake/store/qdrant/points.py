"""All calls to Qdrant: about a dozen, each retried if that can help.

Every write can be repeated: points are inserted or left alone, payloads are set if a filter still
matches. So a call whose answer was lost is simply made again.
"""

from __future__ import annotations

import random
import sqlite3
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qdrant_client import models
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import (
    ApiException,
    ResponseHandlingException,
    UnexpectedResponse,
)
from qdrant_client.models import Filter

from lakewake.errors import StoreError, StoreUnreachable
from lakewake.store.qdrant.location import CONNECTIONS, KEY_VARIABLE, QdrantLocation

#: What the client and its engines raise.
FOREIGN = (
    ApiException,
    QdrantException,
    OSError,
    ValueError,
    RuntimeError,
    LookupError,
    AssertionError,
    sqlite3.Error,
)
#: Statuses that another try may change.
RETRIED = {408, 429, 500, 502, 503, 504}
REFUSED = {401, 403}
TRIES = 6
#: Seconds between tries.
FIRST_WAIT, LONGEST_WAIT = 0.2, 30.0
#: The most points in one answer, and about how many bytes of text.
PAGE, PAGE_BYTES = 500, 8_000_000
#: The most points in one call, and about how many bytes; and the most in any call, since a server
#: takes 32 MB.
WRITE_POINTS, WRITE_BYTES, MOST_BYTES = 256, 8_000_000, 30_000_000


@dataclass(frozen=True)
class Points:
    """Collections of points in one Qdrant; can be pickled.

    All methods raise `StoreError` if Qdrant cannot be reached or refuses.
    """

    location: QdrantLocation
    sleep: Callable[[float], None] = field(default=time.sleep, compare=False)

    def names(self) -> list[str]:
        """The names of all collections."""
        return [c.name for c in self._ask("get_collections").collections]

    def exists(self, collection: str) -> bool:
        """Whether there is a collection or an alias with this name."""
        return bool(self._ask("collection_exists", collection))

    def create(self, collection: str, size: int, indexes: Mapping[str, str]) -> None:
        """Create a collection with indexes of these payload fields, unless it exists.

        Vectors are compared by their dot product.
        """
        params = models.VectorParams(size=size, distance=models.Distance.DOT)
        if not self.exists(collection):
            try:
                self._ask("create_collection", collection, vectors_config=params)
            except StoreError:
                # Another process was quicker, or the answer to an earlier try was lost.
                if not self.exists(collection):
                    raise
        if self.location.has_indexes:
            for name, kind in indexes.items():
                self._ask("create_payload_index", collection, name, field_schema=kind, wait=True)

    def graph(self, collection: str) -> tuple[int, bool]:
        """How many vectors Qdrant's own index has, and whether indexing has finished."""
        found = self._ask("get_collection", collection)
        at_rest = found.status == models.CollectionStatus.GREEN
        return int(found.indexed_vectors_count or 0), at_rest

    def drop(self, collection: str) -> None:
        """Delete a collection."""
        self._ask("delete_collection", collection)

    def alias(self, name: str) -> str | None:
        """The collection that an alias points to; None if there is no such alias."""
        found = self._ask("get_aliases").aliases
        return next((a.collection_name for a in found if a.alias_name == name), None)

    def set_alias(self, name: str, collection: str) -> None:
        """Point an alias at a collection, and away from any other."""
        delete = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=name))
        create = models.CreateAliasOperation(
            create_alias=models.CreateAlias(collection_name=collection, alias_name=name)
        )
        self._ask("update_collection_aliases", [delete, create])

    def remove_alias(self, name: str) -> None:
        """Delete an alias; the collection stays."""
        delete = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=name))
        self._ask("update_collection_aliases", [delete])

    def payload(
        self, collection: str, point: str, fields: Sequence[str] | None = None
    ) -> dict[str, Any] | None:
        """One point's payload; None if it does not exist. Read from a majority of replicas."""
        found = self._ask(
            "retrieve",
            collection,
            [point],
            with_payload=True if fields is None else list(fields),
            consistency=models.ReadConsistencyType.MAJORITY,
        )
        return dict(found[0].payload or {}) if found else None

    def insert(self, collection: str, points: Sequence[models.PointStruct]) -> None:
        """Write points; one that exists already is left unchanged."""
        self._write("upsert", collection, list(points), update_filter=NOTHING)

    def set(self, collection: str, values: Mapping[str, Any], where: Filter) -> None:
        """Set some payload fields of the points that a filter finds."""
        self._write("set_payload", collection, dict(values), points=where)

    def overwrite(self, collection: str, values: Mapping[str, Any], where: Filter) -> None:
        """Replace the whole payload of the points that a filter finds."""
        self._write("overwrite_payload", collection, dict(values), points=where)

    def remove(self, collection: str, where: Filter) -> None:
        """Delete the points that a filter finds."""
        self._write("delete", collection, points_selector=models.FilterSelector(filter=where))

    def count(self, collection: str, where: Filter) -> int:
        """How many points a filter finds, exactly."""
        return int(self._ask("count", collection, count_filter=where, exact=True).count)

    def pages(
        self,
        collection: str,
        where: Filter,
        fields: Sequence[str],
        *,
        vectors: bool = False,
        start: str | None = None,
    ) -> Iterator[list[Any]]:
        """The points that a filter finds, in the order of their ids, some at a time."""
        limit = PAGE
        while True:
            found, start = self._ask(
                "scroll",
                collection,
                scroll_filter=where,
                limit=limit,
                offset=start,
                with_payload=list(fields) or False,
                with_vectors=vectors,
            )
            yield found
            if start is None:
                return
            limit = _next_limit(found)

    def nearest(
        self,
        collection: str,
        query: Sequence[float] | models.SampleQuery,
        where: Filter,
        limit: int,
        fields: Sequence[str],
        *,
        vectors: bool = True,
        exact: bool = False,
        ef: int | None = None,
    ) -> list[Any]:
        """Among the points that a filter finds, those nearest to a vector; or a random sample.

        Args:
            ef: how many candidates an approximate search keeps.
        """
        params = models.SearchParams(exact=exact, hnsw_ef=ef)
        found = self._ask(
            "query_points",
            collection,
            query=query,
            query_filter=where,
            limit=limit,
            with_payload=list(fields) or False,
            with_vectors=vectors,
            # Without indexes every search is exact, and the client would warn each time.
            search_params=params if self.location.has_indexes else None,
        )
        return list(found.points)

    def request(
        self,
        query: Sequence[float],
        where: Filter,
        limit: int,
        fields: Sequence[str],
        *,
        exact: bool,
        ef: int | None,
    ) -> models.QueryRequest:
        """What `nearest` would ask, for `nearest_many`."""
        params = models.SearchParams(exact=exact, hnsw_ef=ef)
        return models.QueryRequest(
            query=list(query),
            filter=where,
            limit=limit,
            with_payload=list(fields) or False,
            with_vector=True,
            params=params if self.location.has_indexes else None,
        )

    def nearest_many(
        self, collection: str, requests: Sequence[models.QueryRequest]
    ) -> list[list[Any]]:
        """The points nearest to several vectors, in one call."""
        found = self._ask("query_batch_points", collection, requests=list(requests))
        return [list(one.points) for one in found]

    def _write(self, call: str, collection: str, *args: Any, **named: Any) -> None:
        strong = models.WriteOrdering.STRONG
        self._ask(call, collection, *args, **named, wait=True, ordering=strong)

    def _ask(self, call: str, *args: Any, **named: Any) -> Any:
        for attempt in range(TRIES):
            try:
                client, lock = CONNECTIONS.get(self.location)
                if self.location.reached_by_all:
                    return getattr(client, call)(*args, **named)
                with lock:
                    return getattr(client, call)(*args, **named)
            except FOREIGN as error:
                wait = _wait(error, attempt)
                if wait is None or attempt == TRIES - 1:
                    raise self._failed(error) from error
            self.sleep(wait)
        raise AssertionError("the last try returns or raises")

    def _failed(self, error: Exception) -> StoreError:
        address = self.location.address
        status = _status(error)
        if status in REFUSED:
            fact = f"Qdrant at {address} refuses the key ({status})"
            return StoreError(fact, hint=f"set {KEY_VARIABLE} to a key that may do this")
        # An error that is retried, and persists, means that other calls would fail too.
        kind = StoreError if _wait(error, 0) is None else StoreUnreachable
        if isinstance(error, ResponseHandlingException):
            hint = "check the address, that Qdrant runs there, and that its certificate is trusted"
            return kind(
                f"Qdrant at {address} cannot be reached: {_error_text(error.source)}", hint=hint
            )
        return kind(
            f"a request to Qdrant at {address} failed: {_error_text(error)}",
            hint="look at its log, then sync again",
        )


#: A filter that no point of an index passes.
NOTHING = Filter(must=[models.FieldCondition(key="_to", range=models.Range(lt=-1))])


def _next_limit(found: Sequence[Any]) -> int:
    """How many points to ask for next: fewer if one of the last ones had a long text.

    The longest decides, not the mean: points are in the order of their ids, so that one long text
    among short ones may be followed by a page of long ones.
    """
    longest = max((_characters(point) for point in found), default=0)
    return max(1, min(PAGE, PAGE_BYTES // max(longest, 1)))


def _characters(point: Any) -> int:
    values = (point.payload or {}).values()
    return sum(len(value) for value in values if isinstance(value, str))


def _status(error: Exception) -> int | None:
    return int(error.status_code or 0) if isinstance(error, UnexpectedResponse) else None


def _wait(error: Exception, attempt: int) -> float | None:
    """Seconds until the next try; None if a retry cannot help."""
    if isinstance(error, ResourceExhaustedResponse):
        return min(float(error.retry_after_s), LONGEST_WAIT)
    lost = isinstance(error, ResponseHandlingException) and not _untrusted(error.source)
    if lost or _status(error) in RETRIED:
        return FIRST_WAIT * 2.0**attempt * random.uniform(0.75, 1.25)
    return None


def _untrusted(error: BaseException | None) -> bool:
    """Whether a certificate is the cause, anywhere in the chain of causes."""
    if error is None or isinstance(error, ssl.SSLCertVerificationError):
        return error is not None
    return _untrusted(error.__cause__ or error.__context__)


def _error_text(error: object) -> str:
    if isinstance(error, UnexpectedResponse):
        return f"{error.status_code} {bytes(error.content[:200]).decode(errors='replace')}"
    return " ".join(str(error).split())[:300] or type(error).__name__
