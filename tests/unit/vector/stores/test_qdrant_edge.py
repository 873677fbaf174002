"""Tests our filters in Qdrant's own engine: its shard runs in this process.

The in-process mode of qdrant-client, which the contract runs on, is written anew in Python.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import pytest
import qdrant_edge as edge
from qdrant_client import models

from lib.testing.vector_store import features, random_filter, random_meta, random_nested_meta
from lib.vector import F, Filter, QdrantVectorStore, Record
from lib.vector.filter import fold, matches
from lib.vector.stores.qdrant import filter as translate
from lib.vector.stores.qdrant import points
from lib.vector.validate import Batch, checked_batch

FILTERS, METAS = 600, 60
Shard = edge.EdgeShard


def carried(model: Any) -> Any:
    """Return a condition of qdrant-client as one of the engine's."""
    match model:
        case models.Filter():
            return edge.Filter(
                must=listed(model.must),
                should=listed(model.should),
                must_not=listed(model.must_not),
            )
        case models.FieldCondition(range=models.Range() as bounds):
            limits = edge.RangeFloat(gt=bounds.gt, gte=bounds.gte, lt=bounds.lt, lte=bounds.lte)
            return edge.FieldCondition(model.key, range=limits)
        case models.FieldCondition(match=models.MatchValue(value=str(value))):
            return edge.FieldCondition(model.key, match=edge.MatchValue(value))
        case models.FieldCondition(match=models.MatchAny(any=values)):
            return edge.FieldCondition(model.key, match=edge.MatchAny(cast(list[str], values)))
        case _:
            raise NotImplementedError


def listed(parts: Any) -> Any:
    return None if parts is None else [carried(part) for part in parts]


def names_a_bool(filter: Filter) -> bool:
    """Tell what the engine's Python binding cannot carry: it makes 1 of `MatchValue(True)`."""
    return "True" in repr(filter) or "False" in repr(filter)


def points_of(records: list[Record], namespace: str) -> Iterator[edge.Point]:
    batch = checked_batch(records, metric="dot", dimension=2)
    for request in points.requests(namespace, cast(Batch, batch), "dot"):
        for point in request:
            yield edge.Point(str(point.id), cast(list[float], point.vector), point.payload)


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Callable[[list[Record], str], Shard]]:
    vectors = edge.EdgeVectorParams(size=2, distance=edge.Distance.Dot)
    hnsw = edge.HnswIndexConfig(m=0, ef_construct=100, full_scan_threshold=1, payload_m=16)
    shard = Shard.create(str(tmp_path), edge.EdgeConfig(vectors=vectors, hnsw_config=hnsw))
    index = edge.KeywordIndexParams(is_tenant=True)
    shard.update(edge.UpdateOperation.create_field_index(translate.NAMESPACE, index))

    def fill(records: list[Record], namespace: str) -> Shard:
        shard.update(edge.UpdateOperation.upsert_points([*points_of(records, namespace)]))
        return shard

    yield fill
    shard.close()


def found(shard: Shard, namespace: str, filter: Filter) -> set[str]:
    """Return the ids that a search of a namespace finds."""
    among = carried(translate.within(namespace, translate.condition(filter)))
    query = edge.Query.Nearest([1.0, 0.0])
    answer = shard.query(
        edge.QueryRequest(limit=1000, query=query, filter=among, with_payload=True)
    )
    return {cast(dict[str, Any], point.payload)["id"] for point in answer}


@pytest.mark.parametrize("seed", range(4))
def test_random_filters_mean_in_the_engine_what_the_reference_says(
    filled: Callable[[list[Record], str], Shard], seed: int
) -> None:
    random, nested = Random(seed), seed % 2 == 1
    made = random_nested_meta if nested else random_meta
    metas = {str(number): made(random) for number in range(METAS)}
    records = [Record(name, [1.0, 0.0], "", meta) for name, meta in metas.items()]
    filled([Record("x", [1.0, 0.0], "", random_meta(random))], "another")
    shard = filled(records, "it's")
    tried = 0

    while tried < FILTERS // 4:
        filter = random_filter(random, nested=nested)
        plan = fold(filter)
        refused = features(filter) & QdrantVectorStore.refusals
        if isinstance(plan, bool) or refused or names_a_bool(filter):
            continue
        tried += 1
        expected = {name for name in metas if matches(filter, metas[name])}
        assert found(shard, "it's", plan) == expected, filter


def test_a_large_list_of_numbers_and_strings_is_one_filter_for_the_engine(
    filled: Callable[[list[Record], str], Shard],
) -> None:
    shard = filled([Record("a", [1.0, 0.0], "", {"x": 4999.0, "y": "s4999"})], "")
    numbers, strings = range(5000), [f"s{number}" for number in range(5000)]

    assert found(shard, "", F("x").in_([*numbers, *strings])) == {"a"}
    assert found(shard, "", F("y").in_([*numbers, *strings])) == {"a"}
    assert found(shard, "", F("y").not_in([*numbers, *strings])) == set()


def test_the_engine_keeps_metadata_and_vectors_as_they_went_in(
    filled: Callable[[list[Record], str], Shard],
) -> None:
    deep: dict[str, Any] = {}
    for _ in range(62):
        deep = {"x": deep}
    meta = {"most": 2**63 - 1, "whole": 1.0, "least": -0.0, "tiny": 5e-324, "deep": deep}
    shard = filled([Record("a", [0.1, -2.25], "text", meta)], "")

    (kept,) = shard.retrieve([points.point_id("", "a")], with_payload=True, with_vector=True)
    point = models.Record(id=str(kept.id), payload=kept.payload, vector=cast(Any, kept.vector))
    wanted = Record("a", np.array([0.1, -2.25], np.float32).tolist(), "text", meta)
    assert points.record(point) == wanted
    assert repr(points.record(point).meta) == repr(meta)


def test_the_engine_counts_the_namespaces_as_they_are_named(
    filled: Callable[[list[Record], str], Shard],
) -> None:
    for namespace in ("", "it's", "\U0001f600", "t:a"):
        shard = filled([Record("a", [1.0, 0.0])], namespace)
        assert namespace in {
            hit.value for hit in shard.facet(edge.FacetRequest(translate.NAMESPACE, limit=9)).hits
        }
