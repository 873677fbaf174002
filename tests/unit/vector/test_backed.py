"""Tests the checks and conversions that all stores before a database share."""

from lib.vector import PostgresVectorStore, Record
from servers import postgres


async def test_more_results_than_a_database_can_count_are_all_there_are() -> None:
    url = postgres.fresh_url()

    store = PostgresVectorStore(url, dimension=2)
    await store.upsert([Record("a", [1.0, 0.0], "tea"), Record("b", [0.0, 1.0], "a mug")])

    for k in (2**31, 2**62, 2**63, 10**20):
        near = await store.query([1.0, 0.0], k)
        fused = await store.query_hybrid([1.0, 0.0], "tea", k)
        assert [match.id for match in near] == [match.id for match in fused] == ["a", "b"]
    await store.close()
