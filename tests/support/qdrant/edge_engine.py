"""Qdrant's real engine in this process, behind the client methods that the store uses."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import qdrant_edge as edge
from qdrant_client import models

KINDS = {
    "keyword": edge.PayloadSchemaType.Keyword,
    "integer": edge.PayloadSchemaType.Integer,
    "float": edge.PayloadSchemaType.Float,
    "bool": edge.PayloadSchemaType.Bool,
    "datetime": edge.PayloadSchemaType.Datetime,
}


#: Searches a small collection by a graph too, as sparse as that of many vectors.
GRAPH = {
    "hnsw_config": edge.HnswIndexConfig(m=16, ef_construct=100, full_scan_threshold=1),
    "optimizers": edge.EdgeOptimizersConfig(indexing_threshold=1),
}


@dataclass(frozen=True)
class EdgeLocation:
    """A folder of shards, one per collection, used by this process alone.

    Attributes:
        indexed: whether payload fields are indexed; the engine takes a while to build an index.
        graph: whether vectors are searched by a graph, once `optimize` has built it.
    """

    folder: str
    indexed: bool = False
    graph: bool = False

    @property
    def address(self) -> str:
        return self.folder

    @property
    def reached_by_all(self) -> bool:
        return False

    @property
    def has_indexes(self) -> bool:
        return self.indexed

    def connect(self) -> EdgeClient:
        return EdgeClient(Path(self.folder), self.graph)


class EdgeClient:
    """Collections as shards. Aliases are kept in memory, since the engine has none."""

    def __init__(self, folder: Path, graph: bool = False) -> None:
        self._folder, self._graph = folder, graph
        self.status = models.CollectionStatus.GREEN
        self._folder.mkdir(parents=True, exist_ok=True)
        self._shards = {p.name: edge.EdgeShard.load(str(p)) for p in folder.iterdir()}
        self._aliases: dict[str, str] = {}

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()

    def get_collections(self) -> Any:
        return SimpleNamespace(collections=[SimpleNamespace(name=n) for n in self._shards])

    def collection_exists(self, name: str) -> bool:
        return name in self._shards

    def create_collection(self, name: str, vectors_config: models.VectorParams) -> None:
        assert vectors_config.distance == models.Distance.DOT
        params = edge.EdgeVectorParams(size=vectors_config.size, distance=edge.Distance.Dot)
        config = edge.EdgeConfig(vectors=params, **(GRAPH if self._graph else {}))
        place = self._folder / name
        place.mkdir()
        self._shards[name] = edge.EdgeShard.create(str(place), config)

    def get_collection(self, name: str) -> Any:
        indexed = self._shard(name).info().indexed_vectors_count
        return SimpleNamespace(status=self.status, indexed_vectors_count=indexed)

    def optimize(self) -> None:
        """Build what a server builds by itself some time after a write."""
        for shard in self._shards.values():
            shard.optimize()

    def delete_collection(self, name: str) -> None:
        if name in self._shards:
            self._shards.pop(name).close()
            shutil.rmtree(self._folder / name)

    def get_aliases(self) -> Any:
        aliases = [
            SimpleNamespace(alias_name=a, collection_name=c) for a, c in self._aliases.items()
        ]
        return SimpleNamespace(aliases=aliases)

    def update_collection_aliases(self, operations: list[Any]) -> None:
        for operation in operations:
            if isinstance(operation, models.DeleteAliasOperation):
                self._aliases.pop(operation.delete_alias.alias_name, None)
            else:
                made = operation.create_alias
                self._aliases[made.alias_name] = made.collection_name

    def create_payload_index(self, name: str, key: str, *, field_schema: str, wait: bool) -> None:
        self._update(name, edge.UpdateOperation.create_field_index(key, KINDS[field_schema]))

    def upsert(self, name: str, points: list[Any], *, update_filter: Any, **_: Any) -> None:
        made = [edge.Point(p.id, p.vector, p.payload) for p in points]
        condition = edge_filter(update_filter)
        self._update(name, edge.UpdateOperation.upsert_points(made, condition=condition))

    def set_payload(self, name: str, payload: Any, *, points: Any, **_: Any) -> None:
        where = edge_filter(points)
        self._update(name, edge.UpdateOperation.set_payload_by_filter(where, payload))

    def overwrite_payload(self, name: str, payload: Any, *, points: Any, **_: Any) -> None:
        where = edge_filter(points)
        self._update(name, edge.UpdateOperation.overwrite_payload_by_filter(where, payload))

    def delete(self, name: str, *, points_selector: models.FilterSelector, **_: Any) -> None:
        where = edge_filter(points_selector.filter)
        self._update(name, edge.UpdateOperation.delete_points_by_filter(where))

    def retrieve(self, name: str, ids: list[str], *, with_payload: Any, **_: Any) -> list[Any]:
        return [_told(r) for r in self._shard(name).retrieve(ids, with_payload, False)]

    def count(self, name: str, *, count_filter: Any, exact: bool) -> Any:
        request = edge.CountRequest(exact=exact, filter=edge_filter(count_filter))
        return SimpleNamespace(count=self._shard(name).count(request))

    def scroll(
        self,
        name: str,
        *,
        scroll_filter: Any,
        limit: int,
        offset: Any,
        with_payload: Any,
        with_vectors: bool,
    ) -> Any:
        request = edge.ScrollRequest(
            offset=offset,
            limit=limit,
            filter=edge_filter(scroll_filter),
            with_payload=with_payload,
            with_vector=with_vectors,
        )
        found, after = self._shard(name).scroll(request)
        return [_told(r) for r in found], None if after is None else str(after)

    def query_points(
        self,
        name: str,
        *,
        query: Any,
        query_filter: Any,
        limit: int,
        with_payload: Any,
        with_vectors: bool,
        search_params: models.SearchParams | None,
    ) -> Any:
        random = isinstance(query, models.SampleQuery)
        request = edge.QueryRequest(
            limit=limit,
            query=edge.Sample.Random if random else edge.Query.Nearest(query),
            filter=edge_filter(query_filter),
            with_payload=with_payload,
            with_vector=with_vectors,
            params=_params(search_params),
        )
        return SimpleNamespace(points=[_told(p) for p in self._shard(name).query(request)])

    def query_batch_points(self, name: str, *, requests: list[models.QueryRequest]) -> list[Any]:
        return [
            self.query_points(
                name,
                query=one.query,
                query_filter=one.filter,
                limit=one.limit,
                with_payload=one.with_payload,
                with_vectors=one.with_vector,
                search_params=one.params,
            )
            for one in requests
        ]

    def _shard(self, name: str) -> edge.EdgeShard:
        if name not in self._shards:
            raise LookupError(f"there is no collection {name}")
        return self._shards[name]

    def _update(self, name: str, operation: edge.UpdateOperation) -> None:
        self._shard(name).update(operation)


def _params(given: models.SearchParams | None) -> edge.SearchParams:
    exact = bool(given and given.exact)
    return edge.SearchParams(exact=exact, hnsw_ef=given.hnsw_ef if given else None)


def _told(record: Any) -> Any:
    score = getattr(record, "score", None)
    return SimpleNamespace(
        id=str(record.id), payload=record.payload, vector=record.vector, score=score
    )


def edge_filter(given: models.Filter) -> edge.Filter:
    """A filter in the types of the engine's binding."""
    parts = {
        name: [_condition(c) for c in getattr(given, name) or []]
        for name in ("must", "should", "must_not")
    }
    return edge.Filter(**{name: found for name, found in parts.items() if found})


def _condition(given: Any) -> Any:
    if isinstance(given, models.Filter):
        return edge_filter(given)
    if isinstance(given, models.HasIdCondition):
        return edge.HasIdCondition({str(i) for i in given.has_id})
    if isinstance(given, models.IsEmptyCondition):
        return edge.IsEmptyCondition(given.is_empty.key)
    if given.range is not None:
        return edge.FieldCondition(given.key, range=_range(given.range))
    if isinstance(given.match, models.MatchAny):
        return edge.FieldCondition(given.key, match=edge.MatchAny(list(given.match.any)))
    if isinstance(given.match.value, bool):
        # The binding takes a boolean for a number, so any point with a value may match.
        return edge.Filter(must_not=[edge.IsEmptyCondition(given.key)])
    return edge.FieldCondition(given.key, match=edge.MatchValue(given.match.value))


def _range(given: Any) -> Any:
    ends = {end: getattr(given, end) for end in ("gte", "gt", "lte", "lt")}
    if isinstance(given, models.Range):
        return edge.RangeFloat(**ends)
    return edge.RangeDateTime(**{end: v and v.isoformat() for end, v in ends.items()})
