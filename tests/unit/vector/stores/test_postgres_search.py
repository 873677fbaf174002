"""Searching PostgreSQL: exact among few records, through the index among many, never short."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

from lib.testing.aio import run
from lib.vector import F, InMemoryVectorStore, Match, Metric, PostgresVectorStore, Record
from lib.vector.filter import matches
from lib.vector.stores.postgres import search as plans
from servers import postgres

_names = count()


@pytest.fixture(scope="module")
def dsn() -> str:
    return postgres.url()


@pytest.fixture
def table() -> str:
    return f"search_{next(_names)}"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two hundred rows be many, so that a small table is searched as a large one is."""
    monkeypatch.setattr(plans, "_FEW", 200)
    monkeypatch.setattr(plans, "_FEW_OF_MANY", 0.0)


def names(found: list[Match]) -> list[str]:
    return [match.id for match in found]


def clustered(records: int, dimension: int) -> tuple[Any, Any]:
    noise = np.random.default_rng(11)
    centres = noise.standard_normal((40, dimension))
    rows = centres[noise.integers(0, 40, records)] + 0.4 * noise.standard_normal(
        (records, dimension)
    )
    queries = rows[noise.integers(0, records, 20)] + 0.3 * noise.standard_normal((20, dimension))
    return rows.astype(np.float32), queries.astype(np.float32)


@pytest.mark.usefixtures("few")
def test_filtered_searches_find_what_an_exact_one_does_and_never_too_few(
    dsn: str, table: str
) -> None:
    async def main() -> None:
        vectors, queries = clustered(5_000, 32)
        memory = InMemoryVectorStore()
        store = PostgresVectorStore(dsn, dimension=32, table=table)
        for namespace, rows in (("large", range(4_000)), ("small", range(4_000, 5_000))):
            records = [
                Record(f"{row}", vectors[row], "", {"half": row % 2, "rare": row % 100})
                for row in rows
            ]
            for one in (memory, store):
                await one.upsert(records, namespace=namespace)
        for namespace in ("large", "small"):
            for filter, least in (
                (None, 0.95),
                (F("half") == 1, 0.95),
                (F("half") > 0, 0.95),
                (F("rare") == 7, 1.0),
                (F("rare") == 1000, 1.0),
            ):
                agreeing = wanted_in_all = 0
                for query in queries:
                    wanted = await memory.query(query, 10, filter=filter, namespace=namespace)
                    found = await store.query(query, 10, filter=filter, namespace=namespace)
                    assert len(found) == len(wanted)
                    assert [match.score for match in found] == sorted(
                        (match.score for match in found), reverse=True
                    )
                    agreeing += len({*names(found)} & {*names(wanted)})
                    wanted_in_all += len(wanted)
                assert agreeing >= least * wanted_in_all, (namespace, filter)
        for k in (500, 1_200, 4_500):
            expected = min(k, 4_000)
            assert len(await store.query(queries[0], k, namespace="large")) == expected
        await store.close()
        await memory.close()

    run(main())


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_ties_stand_in_the_order_of_ids_in_a_search_through_the_index(
    dsn: str, table: str, metric: Metric
) -> None:
    async def main() -> None:
        store = PostgresVectorStore(dsn, dimension=3, metric=metric, table=table, ef_search=1_000)
        # An outlier could be lost: no other vector is near enough to lead to it.
        cloud = np.random.default_rng(3).uniform(-1.0, 1.0, (360, 3)).astype(np.float32)
        query = np.full(3, 2.0 if metric == "dot" else 0.3, np.float32)
        same = [Record(f"{row:03}", query) for row in range(40)]
        await store.upsert([*same, *(Record(f"x{row}", cloud[row]) for row in range(360))])

        for k in (1, 5, 35, 40):
            assert names(await store.query(query, k)) == [f"{row:03}" for row in range(k)]
        for k in (100, 900, 2_000):
            assert len(await store.query(query, k)) == min(k, 400)
        await store.close()

    run(main())


@pytest.mark.usefixtures("few")
def test_what_the_index_cannot_yield_is_searched_exactly(dsn: str, table: str) -> None:
    """The scan of the index ends after so many tuples; those that pass lie behind them."""

    async def main() -> None:
        store = PostgresVectorStore(
            f"{dsn}&options=-c%20hnsw.max_scan_tuples%3D100", dimension=2, table=table
        )
        near = [Record(f"n{row}", [1.0, row / 1e6], "", {"x": 1}) for row in range(2_000)]
        far = [Record(f"f{row}", [-1.0, row / 1e3], "", {"x": 2}) for row in range(300)]
        await store.upsert([*near, *far])

        for _ in range(2):
            assert len(await store.query([1.0, 0.0], 20, filter={"x": 2})) == 20
        await store.close()

    run(main())


@pytest.mark.usefixtures("few")
def test_broad_searches_are_remembered_and_counted_anew_in_the_end(
    dsn: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "_REMEMBERED", 2)
    monkeypatch.setattr(plans, "_USES", 2)

    async def main() -> None:
        store = PostgresVectorStore(dsn, dimension=2, table=table)
        for namespace in "abc":
            records = [Record(f"{row}", [1.0, row / 100]) for row in range(300)]
            await store.upsert(records, namespace=namespace)
        for _ in range(4):
            for namespace in "abc":
                found = await store.query([1.0, 0.0], 3, namespace=namespace)
                assert names(found) == ["0", "1", "2"]
        await store.delete([f"{row}" for row in range(290)], namespace="a")
        for _ in range(4):
            found = await store.query([1.0, 2.9], 20, namespace="a")
            assert names(found) == [f"{row}" for row in range(290, 300)]
        await store.close()

    run(main())


@pytest.mark.usefixtures("few")
def test_hybrid_queries_of_a_large_namespace_fuse_what_the_index_finds(
    dsn: str, table: str
) -> None:
    async def main() -> None:
        store = PostgresVectorStore(dsn, dimension=2, table=table)
        await store.upsert(
            [
                Record(f"{row:03}", [1.0, row / 100], "apple" if row == 299 else "pear")
                for row in range(300)
            ]
        )

        for _ in range(2):
            found = await store.query_hybrid([1.0, 0.0], "apple", 2)
            assert names(found) == ["000", "299"]
        await store.close()

    run(main())


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("dimension", "metric"), [(2_001, "cosine"), (2_001, "dot"), (4_001, "cosine")]
)
def test_more_dimensions_than_an_index_takes_are_searched_all_the_same(
    dsn: str, table: str, dimension: int, metric: Metric
) -> None:
    """Vectors of any length: 16-bit floats, which the index holds, end at 65,504."""

    async def main() -> None:
        vectors, queries = clustered(260, dimension)
        scales = [1e-9, 1.0, 1e9]
        store = PostgresVectorStore(dsn, dimension=dimension, metric=metric, table=table)
        memory = InMemoryVectorStore(metric=metric)
        records = [Record(f"{row}", vectors[row] * scales[row % 3]) for row in range(260)]
        for one in (store, memory):
            await one.upsert(records)

        for query in queries[:5] * np.float32(1e9):
            wanted, found = await memory.query(query, 5), await store.query(query, 5)
            assert names(found) == names(wanted)
            assert [match.score for match in found] == pytest.approx(
                [match.score for match in wanted], rel=1e-4
            )
        await store.close()
        await memory.close()

    run(main())


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
async def test_without_an_index_all_is_exact(dsn: str, table: str, metric: Metric) -> None:
    vectors, queries = clustered(600, 16)
    store = PostgresVectorStore(dsn, dimension=16, metric=metric, table=table, hnsw=False)
    memory = InMemoryVectorStore(metric=metric)
    records = [Record(f"{row}", vectors[row], "", {"x": row % 3}) for row in range(600)]
    for one in (store, memory):
        await one.upsert(records)
    for query in queries:
        for filter in (None, {"x": 1}):
            wanted = await memory.query(query, 10, filter=filter)
            found = await store.query(query, 10, filter=filter, include_vectors=True)
            assert names(found) == names(wanted)
            assert found[0].vector == vectors[int(found[0].id)].tolist()
    await store.close()
    await memory.close()


@pytest.mark.parametrize("floating", [2.0**53, 2.0**62, -(2.0**63), 1e300])
async def test_large_floats_are_compared_as_python_compares_them(
    dsn: str, table: str, floating: float
) -> None:
    """The shortest decimal of 2.0**62 is 4611686018427388000, which is not 2**62."""

    store = PostgresVectorStore(dsn, dimension=1, table=table)
    wide = 4611686018427388000
    metas: dict[str, Any] = {
        "float": {"x": floating, "deep": [{"y": floating}]},
        "list": {"x": [floating]},
        "integer": {"x": max(-(2**63), min(int(floating), 2**63 - 1))},
        "wide": {"x": wide},
    }
    await store.upsert([Record(name, [1.0], "", meta) for name, meta in metas.items()])

    for operand in (floating, metas["integer"]["x"], wide):
        for filter in (F("x") == operand, F("x") >= operand, F("x") < operand):
            found = {*names(await store.query([1.0], filter=filter))}
            assert found == {name for name, meta in metas.items() if matches(filter, meta)}
    assert names(await store.query([1.0], filter={"x": {"$contains": floating}})) == ["list"]
    assert [record.meta for record in await store.get(["float"])] == [metas["float"]]
    await store.close()


async def test_one_of_many_values_is_found_whatever_their_types(dsn: str, table: str) -> None:
    store = PostgresVectorStore(dsn, dimension=1, table=table)
    values: list[Any] = [*range(3_000), *map(str, range(3_000)), True, None, 0.5]
    metas: dict[str, dict[str, Any]] = {
        "number": {"x": 2999},
        "text": {"x": "17"},
        "bool": {"x": True},
        "other bool": {"x": False},
        "none": {"x": None},
        "nothing": {},
        "list": {"x": [1]},
        "other": {"x": 0.25},
    }
    await store.upsert([Record(name, [1.0], "", meta) for name, meta in metas.items()])

    wanted = {"number", "text", "bool", "none", "nothing"}
    assert {*names(await store.query([1.0], 9, filter=F("x").in_(values)))} == wanted
    assert {*names(await store.query([1.0], 9, filter=F("x").not_in(values)))} == (
        metas.keys() - wanted
    )
    await store.close()


def test_a_foreign_node_of_a_filter_is_refused() -> None:
    from lib.vector import Filter
    from lib.vector.stores.postgres.filter import condition

    with pytest.raises(TypeError, match="not a filter"):
        condition(Filter(), {})
