"""`ChromaVectorStore` in process: what Chroma gets wrong, and what this store makes of it."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb.api.shared_system_client import SharedSystemClient
from chromadb.config import Settings

from lib.errors import (
    DimensionMismatch,
    MetricMismatch,
    MissingDriver,
    StoreClosed,
    StoreCorrupt,
    StoreUnavailable,
)
from lib.testing.aio import run
from lib.vector import EVERYTHING, ChromaVectorStore, F, Filter, Record
from lib.vector.filter import Or
from lib.vector.stores.chroma import records
from lib.vector.stores.chroma.translate import condition

X = [1.0, 0.0]


def raw(place: Path) -> Any:
    return chromadb.PersistentClient(
        str(place / "chroma"), settings=Settings(anonymized_telemetry=False)
    )


def stored(place: Path, **arguments: Any) -> ChromaVectorStore:
    everything: dict[str, Any] = {"dimension": 2, "path": str(place / "chroma"), **arguments}
    return ChromaVectorStore(**everything)


# -- what Chroma does, and what the store does instead -------------------------------------------


def test_a_fraction_finds_no_int_as_it_does_in_chroma(tmp_path: Path) -> None:
    client = raw(tmp_path)
    collection = client.create_collection("raw", embedding_function=None)
    collection.add(ids=["one"], embeddings=[X], metadatas=[{"x": 1}])
    trap = collection.get(where={"x": {"$eq": 1.5}})["ids"]
    client.close()

    async def main() -> None:
        store = stored(tmp_path)
        await store.upsert([Record("one", X, "", {"x": 1})])

        assert await store.count(filter=F("x") == 1.5) == 0
        assert await store.count(filter=F("x") >= 1.5) == 0
        assert await store.count(filter=F("x") == 1.0) == 1
        await store.close()

    run(main())
    assert trap == ["one"], "Chroma has mended #7491: numbers need not be floats any more"


def test_lists_of_a_deleted_namespace_do_not_turn_up_in_another(tmp_path: Path) -> None:
    async def main() -> None:
        store = stored(tmp_path)
        for name in ("old", "new"):
            await store.upsert(
                [Record(str(n), X, "", {"tags": [name, n]}) for n in range(20)], namespace=name
            )
            await store.delete(filter=EVERYTHING, namespace="old")
            await store.upsert([Record(str(n), X) for n in range(20)], namespace=f"after {name}")

            assert await store.count(filter=F("tags").contains("old"), namespace=name) == 0
            found = await store.query(X, 20, namespace=f"after {name}")
            assert all(match.meta == {} for match in found)
        assert "old" not in await store.namespaces()
        await store.close()

    run(main())
    client = raw(tmp_path)
    kept = [c.metadata["lib:namespace"] for c in client.list_collections()]
    values: list[Any] = [
        value
        for c in client.list_collections()
        for metadata in c.get()["metadatas"]
        for value in metadata.values()
    ]
    client.close()
    assert sorted(kept) == ["after new", "after old", "new"]
    assert {type(value) for value in values} <= {str, bool, float}


def test_an_upsert_replaces_though_chroma_merges(tmp_path: Path) -> None:
    client = raw(tmp_path)
    collection = client.create_collection("raw", embedding_function=None)
    collection.upsert(ids=["a"], embeddings=[X], metadatas=[{"x": 1, "y": 1}], documents=["old"])
    collection.upsert(ids=["a"], embeddings=[X], metadatas=[{"y": 2}])
    trap = collection.get(ids=["a"])
    client.close()
    assert (trap["metadatas"], trap["documents"]) == ([{"x": 1, "y": 2}], ["old"])

    async def main() -> None:
        store = stored(tmp_path)
        await store.upsert([Record("a", X, "old", {"x": 1, "l": [1, 2], "t": "a"})])
        await store.upsert([Record("a", X, "", {"t": 1, "l": [2]})])

        assert await store.get(["a"]) == [Record("a", X, "", {"t": 1, "l": [2]})]
        for filter in (F("x").exists(), F("t") == "a", F("l").contains(1)):
            assert await store.count(filter=filter) == 0
        await store.close()

    run(main())


def test_a_record_that_is_being_replaced_is_always_there(tmp_path: Path) -> None:
    async def main() -> None:
        client = await asyncio.to_thread(
            raw, tmp_path
        )  # shared, so that two stores meet in one database
        writer, reader = stored(tmp_path, path=None, client=client), stored(tmp_path)
        await writer.upsert([Record("a", X, "", {"turn": -1})])

        async def write() -> None:
            for turn in range(60):
                await writer.upsert([Record("a", X, "", {"turn": turn, str(turn): True})])

        writing = asyncio.create_task(write())
        while not writing.done():
            (record,) = await reader.get(["a"])
            turn = record.meta["turn"]
            assert record.meta == ({"turn": turn, str(turn): True} if turn >= 0 else {"turn": -1})
        await writing
        await reader.close()
        await writer.close()
        client.close()

    run(main())


def test_as_many_are_found_as_there_are_though_chromas_graph_may_end_early(tmp_path: Path) -> None:
    async def main() -> None:
        client = await asyncio.to_thread(raw, tmp_path)

        def early(collection: Any) -> dict[str, Any]:
            """Of 3,000 equal vectors, Chroma found 307; how many it finds differs by chance."""

            def query(**arguments: Any) -> Any:
                return collection.query(**{**arguments, "n_results": 3})

            return {"query": query}

        store = stored(tmp_path, path=None, client=_Altered(client, early))
        await store.upsert([Record(f"{n:02}", X, "", {"even": n % 2 == 0}) for n in range(50)])

        found = await store.query(X, 40)
        assert [match.id for match in found] == [f"{n:02}" for n in range(40)]
        assert len(await store.query(X, 40, filter={"even": True})) == 25
        await store.close()
        client.close()

    run(main())


def test_ties_are_seen_though_chroma_rounds_their_distances_apart(tmp_path: Path) -> None:
    async def main() -> None:
        store = stored(tmp_path)
        await store.upsert([Record(f"{n:03}", [n + 1.0, 3 * (n + 1.0)]) for n in range(300)])

        for query in ([1.0, 3.0], [3.0, 1.0]):
            found = [match.id for match in await store.query(query, 6)]
            assert found == ["000", "001", "002", "003", "004", "005"]
        await store.close()

    run(main())


def test_a_vector_that_somebody_has_altered_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        store = stored(tmp_path)
        await store.upsert([Record("a", [3.0, 9.0])])
        client = await asyncio.to_thread(raw, tmp_path)
        (collection,) = client.list_collections()
        for packed in ("AAAA", "not base64!", 1.0):
            collection.update(ids=["a"], metadatas=[{"f": packed}])
            with pytest.raises(StoreCorrupt, match="not written"):
                await store.get(["a"])
        collection.update(ids=["a"], metadatas=[{"f": None}])
        assert len(await store.get(["a"])) == 1  # as it was before vectors were kept so
        await store.close()
        client.close()

    run(main())


def test_neighbours_are_those_that_counting_out_finds_in_a_larger_namespace(tmp_path: Path) -> None:
    noise = np.random.default_rng(3)
    vectors = noise.standard_normal((4000, 32)).astype(np.float32)
    queries = noise.standard_normal((25, 32)).astype(np.float32)

    async def main() -> None:
        store = stored(tmp_path, dimension=32, metric="dot")
        await store.upsert([Record(str(n), vector) for n, vector in enumerate(vectors)])

        hits = 0
        for query in queries:
            best = {str(row) for row in np.argsort(-(vectors @ query))[:10]}
            hits += len(best & {match.id for match in await store.query(query, 10)})
        assert hits >= 245  # of 250
        await store.close()

    run(main())


def test_the_elements_of_two_fields_are_kept_apart_whatever_their_names() -> None:
    assert records.element("a", "b\x1fs:c") != records.element("a\x1fs:b", "c")
    assert records.element("1", "x") != records.element("11", "x")
    assert records.element("a", 1) == records.element("a", 1.0) != records.element("a", item=True)
    assert records.element("a", 0.0) == records.element("a", -0.0) != records.element("a", "0.0")


def test_large_filters_are_taken(tmp_path: Path) -> None:
    async def main() -> None:
        store = stored(tmp_path)
        await store.upsert([Record(str(n), X, "", {"x": n, f"f{n}": n}) for n in range(30)])
        mixed = [F(f"f{n}").in_([n, "a", True, None]) for n in range(256)]
        deep: Filter = F("x") >= 20
        for n in range(7):
            deep = Or((~deep, F("f1") == 1)) if n % 2 else ~(deep & (F("x") > -1))

        assert await store.count(filter=Or(tuple(mixed))) == 30
        assert await store.count(filter=~Or(tuple(mixed))) == 0
        assert await store.count(filter=F("x").in_(range(10_000))) == 30
        await store.count(filter=deep)
        await store.close()

    run(main())


# -- collections ---------------------------------------------------------------------------------


def test_a_folder_made_for_other_vectors_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        store = stored(tmp_path)
        await store.upsert([Record("a", X)])
        await store.close()

        with pytest.raises(MetricMismatch) as metric:
            await stored(tmp_path, metric="dot").setup()
        assert (metric.value.expected, metric.value.got) == ("cosine", "dot")
        with pytest.raises(DimensionMismatch) as dimension:
            await stored(tmp_path, dimension=3).setup()
        assert (dimension.value.expected, dimension.value.got) == (2, 3)
        await stored(tmp_path, dimension=3, prefix="other").setup()

    run(main())


def test_a_collection_made_meanwhile_for_other_vectors_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        one, other = stored(tmp_path), stored(tmp_path, metric="dot")
        await one.setup()
        await other.setup()
        await one.upsert([Record("a", X)])

        with pytest.raises(MetricMismatch):
            await other.upsert([Record("a", X)])
        with pytest.raises(MetricMismatch):
            await other.query(X)
        await one.close()
        await other.close()

    run(main())


def test_stores_of_two_prefixes_share_nothing_though_one_begins_with_the_other(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        short, long = stored(tmp_path, prefix="lib"), stored(tmp_path, prefix="lib-x")
        await short.upsert([Record("a", X)])
        await long.upsert([Record("b", X)], namespace="n")

        assert await short.namespaces() == [""]
        assert await long.namespaces() == ["n"]
        await long.delete(filter=EVERYTHING, namespace="n")
        assert await short.count() == 1
        await short.close()
        await long.close()

    run(main())


def test_an_emptied_namespace_is_not_listed_and_its_collection_goes_when_all_is_deleted(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        store = stored(tmp_path)
        await store.upsert([Record("a", X)])
        await store.delete(["a"])
        assert await store.namespaces() == []
        client = await asyncio.to_thread(raw, tmp_path)
        assert len(client.list_collections()) == 1

        await store.delete(filter=EVERYTHING)
        await store.delete(filter=EVERYTHING)
        assert client.list_collections() == []
        await store.close()
        client.close()

    run(main())


def test_a_collection_that_somebody_deleted_or_made_anew_is_found_again(tmp_path: Path) -> None:
    async def main() -> None:
        one, other = stored(tmp_path), stored(tmp_path)
        await one.upsert([Record("a", X)])
        await other.delete(filter=EVERYTHING)
        assert await one.query(X) == []
        assert await one.get(["a"]) == []

        await one.upsert([Record("a", X)])
        await other.delete(filter=EVERYTHING)
        await other.upsert([Record("b", X)])
        assert [match.id for match in await one.query(X)] == ["b"]
        await other.delete(filter=EVERYTHING)
        await one.upsert([Record("c", X)])
        assert [match.id for match in await other.query(X)] == ["c"]
        await one.close()
        await other.close()

    run(main())


def test_collections_and_records_of_somebody_else_are_told(tmp_path: Path) -> None:
    async def main() -> None:
        store = stored(tmp_path)
        await store.upsert([Record("a", X)])
        client = await asyncio.to_thread(raw, tmp_path)
        (collection,) = client.list_collections()
        collection.add(ids=["foreign"], embeddings=[X], metadatas=[{"x": 1}])
        with pytest.raises(StoreCorrupt, match="not written"):
            await store.query(X)
        with pytest.raises(StoreCorrupt, match="not written"):
            await store.get(["foreign"])

        await store.delete(filter=EVERYTHING)
        client.create_collection(collection.name, embedding_function=None)
        with pytest.raises(StoreCorrupt, match="prefix"):
            await store.upsert([Record("a", X)])
        await store.close()
        client.close()

    run(main())


def test_a_batch_is_sent_in_requests_of_bounded_number_and_size(tmp_path: Path) -> None:
    async def main() -> None:
        sizes: list[int] = []
        client = await asyncio.to_thread(raw, tmp_path)

        def watched(collection: Any) -> dict[str, Any]:
            def upsert(**columns: Any) -> None:
                sizes.append(len(columns["ids"]))
                collection.upsert(**columns)

            return {"upsert": upsert}

        store = stored(tmp_path, path=None, client=_Altered(client, watched))
        await store.upsert([Record(str(n), X) for n in range(6000)])
        assert sizes == [5461, 539]

        sizes.clear()
        await store.upsert([Record(f"x{n}", X, "x" * 900_000) for n in range(6)])
        assert sizes == [2, 2, 2]
        assert await store.count() == 6006
        await store.close()
        client.close()

    run(main(), timeout_s=60)


class _Altered:
    """A client whose collections do some things otherwise."""

    def __init__(self, client: Any, otherwise: Callable[[Any], dict[str, Any]]) -> None:
        self._client, self._otherwise = client, otherwise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_or_create_collection(self, *args: Any, **kwargs: Any) -> Any:
        collection = self._client.get_or_create_collection(*args, **kwargs)
        usual = {name: getattr(collection, name) for name in _OF_A_COLLECTION}
        return SimpleNamespace(**{**usual, **self._otherwise(collection)})


_OF_A_COLLECTION = (
    *("name", "metadata", "configuration_json"),
    *("upsert", "get", "query", "delete", "count"),
)


# -- where it is ---------------------------------------------------------------------------------


def in_memory() -> list[str]:
    client: Any = chromadb.EphemeralClient(Settings(anonymized_telemetry=False))
    names = [collection.metadata["lib:namespace"] for collection in client.list_collections()]
    client.close()
    return names


def test_memory_is_each_stores_own_and_gone_when_it_is_closed() -> None:
    async def main() -> None:
        one, other = ChromaVectorStore(dimension=2), ChromaVectorStore(dimension=2, metric="dot")
        await one.upsert([Record("a", X)])
        await other.upsert([Record("b", X)], namespace="n")
        assert (await one.namespaces(), await other.namespaces()) == ([""], ["n"])

        await one.close()
        assert await asyncio.to_thread(in_memory) == ["n"]
        await other.close()
        assert await asyncio.to_thread(in_memory) == []

    run(main())


def test_a_given_client_is_used_and_not_closed(tmp_path: Path) -> None:
    async def main() -> None:
        client = await asyncio.to_thread(raw, tmp_path)
        store = stored(tmp_path, path=None, client=client)
        await store.upsert([Record("a", X)])
        await store.close()
        await store.close()

        assert client.heartbeat()
        with pytest.raises(StoreClosed):
            await store.count()
        client.close()
        await stored(tmp_path).close()  # never opened

    run(main())


def held(place: Path) -> int:
    """Return how often this process has the folder open."""
    shared: Any = SharedSystemClient
    return shared._identifier_to_refcount.get(str(place / "chroma"), 0)


def test_stores_of_one_folder_open_and_close_at_the_same_time(tmp_path: Path) -> None:
    async def main() -> None:
        for turn in range(6):
            place = tmp_path / str(turn)
            stores = [stored(place, prefix=f"p{n}") for n in range(6)]
            await asyncio.gather(*(store.setup() for store in stores))
            await asyncio.gather(*(store.close() for store in stores[1:]))
            await stores[0].upsert([Record("a", X)])
            await stores[0].close()
            assert held(place) == 0

    run(main())


def test_two_stores_of_one_folder_that_write_the_same_id_leave_the_fields_of_one(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        one, other = stored(tmp_path), stored(tmp_path)
        await one.setup()
        await other.setup()
        for turn in range(20):
            given = [{f"{name}{turn}": 1} for name in "ab"]
            await asyncio.gather(
                one.upsert([Record("x", X, "", given[0])]),
                other.upsert([Record("x", X, "", given[1])]),
            )
            (record,) = await one.get(["x"])
            assert [await one.count(filter=dict(meta)) for meta in given] == [
                int(meta == record.meta) for meta in given
            ]
        await one.close()
        await other.close()

    run(main())


@pytest.mark.parametrize("wait_s", [0.0, 0.002, 0.05])
@pytest.mark.parametrize("path", [True, False], ids=["folder", "memory"])
def test_closing_during_the_first_call_lets_it_end_and_leaves_nothing_open(
    tmp_path: Path, wait_s: float, *, path: bool
) -> None:
    async def main() -> None:
        store = stored(tmp_path) if path else ChromaVectorStore(dimension=2)
        first = asyncio.create_task(store.upsert([Record("a", X)], namespace="first"))
        await asyncio.wait([first], timeout=wait_s)
        await store.close()

        await first
        with pytest.raises(StoreClosed):
            await store.count()
        assert held(tmp_path) == 0
        assert "first" not in await asyncio.to_thread(in_memory)

    run(main())


def test_a_cancelled_closing_can_be_repeated_and_gives_the_folder_free(tmp_path: Path) -> None:
    async def main() -> None:
        store: Any = stored(tmp_path)
        await store.setup()
        busy = threading.Event()
        store._thread.submit(busy.wait)
        closing = asyncio.create_task(store.close())
        await asyncio.wait([closing], timeout=0.01)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert held(tmp_path) > 0
        busy.set()
        await store.close()
        assert held(tmp_path) == 0

    run(main())


def test_a_cancelled_first_call_leaves_the_store_to_others_and_to_be_closed(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        store: Any = stored(tmp_path)
        busy = threading.Event()
        store._thread.submit(busy.wait)
        first, other = asyncio.create_task(store.setup()), asyncio.create_task(store.count())
        await asyncio.wait([first, other], timeout=0)
        first.cancel()
        busy.set()
        assert await other == 0
        await asyncio.wait([first])
        await store.close()
        assert held(tmp_path) == 0

    run(main())


def test_more_is_asked_for_than_chroma_can_count(tmp_path: Path) -> None:
    async def main() -> None:
        store = stored(tmp_path)
        await store.upsert([Record("a", X), Record("b", X)])
        for k in (2**31, 2**32, 2**63, 2**70):
            assert [match.id for match in await store.query(X, k)] == ["a", "b"]
        await store.close()

    run(main())


def test_asking_what_is_in_a_folder_makes_nothing_there(tmp_path: Path) -> None:
    place = tmp_path / "chroma"
    place.mkdir()
    (tmp_path / "file").touch()

    async def main() -> None:
        assert await stored(tmp_path).existing() is None
        assert await stored(tmp_path / "missing").existing() is None
        assert await stored(tmp_path, path=str(tmp_path / "file")).existing() is None
        with pytest.raises(StoreUnavailable, match="cannot be read"):
            await stored(tmp_path, path="x" * 5000).existing()

    run(main())
    assert list(place.iterdir()) == []
    assert sorted(one.name for one in tmp_path.iterdir()) == ["chroma", "file"]


def test_a_folder_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    client = raw(tmp_path)

    async def main() -> None:
        with pytest.raises(StoreUnavailable, match="InternalError"):
            await stored(tmp_path, path=str(tmp_path / "file")).setup()
        other: Any = await asyncio.to_thread(
            lambda: chromadb.PersistentClient(str(tmp_path / "other"), Settings(allow_reset=True))
        )
        with pytest.raises(StoreUnavailable, match="pass that client"):
            await stored(tmp_path, path=str(tmp_path / "other")).setup()
        other.close()

    run(main())
    client.close()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"path": "a", "host": "b"}, "one of path, host and client"),
        ({"host": "b", "client": object()}, "one of path, host and client"),
        ({"prefix": ""}, "prefix"),
        ({"prefix": "-a"}, "prefix"),
        ({"prefix": "a" * 257}, "prefix"),
        ({"prefix": "a b"}, "prefix"),
        ({"dimension": 0}, "dimension"),
        ({"metric": "ip"}, "metric"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(
    arguments: dict[str, Any], reason: str
) -> None:
    everything: dict[str, Any] = {"dimension": 2, **arguments}

    with pytest.raises(ValueError, match=reason):
        ChromaVectorStore(**everything)


def test_without_chromadb_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.vector.stores.chroma.store.find_spec", lambda _: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType] - a stand-in

    with pytest.raises(MissingDriver, match="chromadb"):
        ChromaVectorStore(dimension=2)


def test_a_client_that_is_neither_is_a_mistake(tmp_path: Path) -> None:
    client = SimpleNamespace(list_collections=list, get_max_batch_size=_Sleeper)

    async def main() -> None:
        store = ChromaVectorStore(dimension=2, client=client)
        with pytest.raises(RuntimeError):
            await store.setup()

    run(main())


class _Sleeper:
    def __await__(self) -> Any:
        yield


def test_only_a_filter_can_be_translated() -> None:
    with pytest.raises(TypeError, match="not a filter"):
        condition(Filter())
