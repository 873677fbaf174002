"""Tests what a Qdrant store promises beside the contract: vectors, folders, the form of filters."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import pytest
from qdrant_client import AsyncQdrantClient, models

from lib.errors import MissingDriver, StoreCorrupt, StoreUnavailable
from lib.testing.vector_store import features, random_filter, random_meta
from lib.vector import F, Filter, InMemoryVectorStore, QdrantVectorStore, Record
from lib.vector.filter import fold
from lib.vector.stores.qdrant import filter as translate
from lib.vector.stores.qdrant.client import typed_errors

VECTORS = [[0.5, -2.25], [1e-18, 3e-18], [1e18, -1e17], [0.1, 0.2], [3.0, 0.0]]


def in_memory(**kwargs: Any) -> QdrantVectorStore:
    kwargs = {"location": ":memory:", "dimension": 2, **kwargs}
    return QdrantVectorStore(**kwargs)


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
async def test_vectors_come_back_to_the_last_bit_though_qdrant_normalises_them(metric: Any) -> None:
    store = in_memory(metric=metric)
    records = [Record(str(row), np.array(v, np.float32)) for row, v in enumerate(VECTORS)]
    await store.upsert(records)

    kept = await store.get(["0", "1", "2", "3", "4"])
    assert [record.vector for record in kept] == [list(record.vector) for record in records]
    found = await store.query([1.0, 0.0], include_vectors=True)
    assert {match.id: match.vector for match in found} == {r.id: r.vector for r in kept}
    await store.close()


async def test_the_same_id_in_two_namespaces_is_two_points() -> None:
    store = in_memory()
    pairs = [("a", "bc"), ("ab", "c"), ('a","b', "c"), ("", 'a","bc')]
    for namespace, name in pairs:
        await store.upsert([Record(name, [1.0, 0.0], namespace)], namespace=namespace)

    for namespace, name in pairs:
        (record,) = await store.get([name], namespace=namespace)
        assert record.text == namespace
    await store.close()


async def test_more_ids_than_fit_into_one_request_are_found_and_deleted() -> None:
    store = in_memory()
    names = [str(row) for row in range(1500)]
    await store.upsert([Record(name, [1.0, 0.0]) for name in names])

    assert [record.id for record in await store.get(names)] == names
    await store.delete(names[:1400])
    assert await store.count() == 100
    await store.close()


async def test_a_folder_keeps_what_was_stored_in_it(tmp_path: Path) -> None:
    record = Record("a", [0.5, -2.25], "text", {"x": [1.0, -0.0, 2**63 - 1]})
    for _ in range(2):
        store = QdrantVectorStore(dimension=2, path=str(tmp_path))
        await store.upsert([record])
        await store.close()
    store = QdrantVectorStore(dimension=2, path=str(tmp_path))
    (kept,) = await store.get(["a"])
    assert repr(kept) == repr(record)
    await store.close()


NAMES = ["a", "ab", "ä", "\U0001f600", *map(str, range(8))]
NAMESPACES = ["", "t:x", "ü"]


async def change(random: Random, namespace: str, stores: list[Any]) -> None:
    new = [
        Record(name, random.choice([[1.0, 2.0], [0.1, -3.0]]), name, random_meta(random))
        for name in random.sample(NAMES, 5)
    ]
    gone, passing = random.sample(NAMES, 2), random_filter(random, 1)
    refused = features(passing) & QdrantVectorStore.refusals
    for store in stores:
        await store.upsert(new, namespace=namespace)
        await store.delete(gone, namespace=namespace)
        if not refused:
            await store.delete(filter=passing, namespace=namespace)


async def contents(store: Any, namespace: str) -> list[Any]:
    there = F("a").exists()
    nearest = await store.query([1.0, 0.5], filter=there, namespace=namespace)
    return [
        await store.namespaces(),
        await store.scan(namespace=namespace),
        await store.count(filter=there, namespace=namespace),
        [match.id for match in nearest],
    ]


async def test_a_folder_holds_what_the_memory_store_does_whenever_it_is_opened(
    tmp_path: Path,
) -> None:
    """The contract is kept in memory alone: a folder commits each point, which takes long."""

    random, memory = Random(5), InMemoryVectorStore(2)
    for _ in range(6):
        store = QdrantVectorStore(dimension=2, path=str(tmp_path))
        for namespace in NAMESPACES:
            assert await contents(store, namespace) == await contents(memory, namespace)
            await change(random, namespace, [store, memory])
            assert await contents(store, namespace) == await contents(memory, namespace)
        await store.close()

    assert await memory.namespaces() == NAMESPACES


LOCKED = """
import asyncio, sys
from lib.errors import StoreUnavailable
from lib.vector import QdrantVectorStore

async def main(path):
    store = QdrantVectorStore(dimension=2, path=path)
    for _ in range(2):
        try:
            await store.setup()
        except StoreUnavailable as error:
            print(error, error.retryable)
    await store.close()

asyncio.run(main(sys.argv[1]))
"""


async def test_a_folder_that_is_in_use_says_so(tmp_path: Path) -> None:
    store = QdrantVectorStore(dimension=2, path=str(tmp_path))
    await store.setup()
    # in a process of its own, since the client forgets an open file where it fails
    logged = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", LOCKED, str(tmp_path)],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert logged.stdout.count("one client at a time may open it True\n") == 2
    await store.close()


DAMAGED = {
    "meta.json": [
        b'{"x',
        b"[]",
        b'{"collections": {"lib_vectors": {}}, "aliases": {}}',
        b"\xff\xfe",
    ],
    "collection/lib_vectors/storage.sqlite": [b"not a database" * 1000],
}


@pytest.mark.parametrize(
    ("name", "content"), [(name, content) for name in DAMAGED for content in DAMAGED[name]]
)
async def test_a_damaged_folder_says_so(tmp_path: Path, name: str, content: bytes) -> None:
    async def main() -> None:
        store = QdrantVectorStore(dimension=2, path=str(tmp_path))
        for call in (store.setup, store.existing):
            with pytest.raises(StoreCorrupt, match="damaged"):
                await call()
        await store.close()

    store = QdrantVectorStore(dimension=2, path=str(tmp_path))
    await store.upsert([Record("a", [1.0, 0.0])])
    await store.close()
    (tmp_path / name).write_bytes(content)
    await main()


async def test_a_file_where_the_folder_should_be_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = QdrantVectorStore(dimension=2, path=str(tmp_path / "file"))
    with pytest.raises(StoreUnavailable, match="FileExistsError"):
        await store.setup()
    await store.close()


async def test_arguments_that_contradict_each_other_are_no_damage(tmp_path: Path) -> None:
    store = QdrantVectorStore(dimension=2, path=str(tmp_path), url="http://localhost")
    with pytest.raises(ValueError, match="Only one of"):
        await store.setup()
    await store.close()


@pytest.mark.parametrize("fault", [PermissionError(13, "no"), OverflowError(), ValueError()])
def test_what_the_client_raises_of_its_own_is_typed(fault: Exception) -> None:
    with pytest.raises(StoreUnavailable) as failure, typed_errors():
        raise fault
    assert failure.value.__cause__ is fault


async def test_an_in_process_client_that_was_given_is_used_and_stays_open() -> None:
    client = AsyncQdrantClient(location=":memory:")
    store = QdrantVectorStore(dimension=2, client=client)
    await store.upsert([Record("a", [1.0, 0.0])])
    await store.close()

    assert (await client.count("lib_vectors")).count == 1
    await client.close()


async def test_what_asks_for_nothing_gets_nothing() -> None:
    store = in_memory(metric="euclidean")
    await store.upsert([])
    assert (store.metric, store.dimension, store.higher_is_better) == ("euclidean", 2, False)
    assert await store.query([1.0, 0.0], filter={"x": {"$in": []}}) == []
    await store.close()
    await store.close()


async def test_closing_a_store_that_was_never_used_opens_nothing(tmp_path: Path) -> None:
    for store in (
        QdrantVectorStore(dimension=2, path=str(tmp_path / "x")),
        QdrantVectorStore(dimension=2, host="127.0.0.1"),
    ):
        await store.close()
    assert not (tmp_path / "x").exists()


async def test_a_cancelled_call_does_not_keep_the_folder_locked(tmp_path: Path) -> None:
    store = QdrantVectorStore(dimension=2, path=str(tmp_path))
    call = asyncio.create_task(store.setup())
    await asyncio.wait([call], timeout=0)
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()

    await store.upsert([Record("a", [1.0, 0.0])])
    assert await store.count() == 1
    await store.close()


@pytest.mark.parametrize(
    "kwargs",
    [
        {"dimension": 0},
        {"metric": "l2"},
        {"collection": ""},
        {"collection": ".."},
        {"collection": "a/b"},
        {"collection": "x" * 256},
        {"client": object()},
    ],
)
def test_what_cannot_be_opened_is_refused_at_once(kwargs: Any) -> None:
    with pytest.raises(ValueError, match=r"dimension|metric|collection|not both"):
        in_memory(**kwargs)


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "qdrant_client", None)
    with pytest.raises(MissingDriver, match=r"pip install 'qdrant-client"):
        in_memory()


def test_any_filter_is_plain_json_without_empty_lists() -> None:
    def check(part: Any) -> None:
        match part:
            case dict():
                for key, value in cast(dict[str, Any], part).items():
                    assert not (key in {"must", "should", "must_not", "any"} and value == [])
                    check(value)
            case list():
                for one in cast(list[Any], part):
                    check(one)
            case _:
                assert part is None or isinstance(part, str | int | float | bool)

    random, tried = Random(0), 0
    while tried < 300:
        plan = fold(random_filter(random))
        if isinstance(plan, bool) or features(plan) & QdrantVectorStore.refusals:
            continue
        tried += 1
        among = translate.within("n", translate.condition(plan))
        plain = json.loads(json.dumps(among.model_dump(mode="json", exclude_none=True)))
        check(plain)
        assert models.Filter.model_validate(plain) == among


def test_what_is_no_filter_is_not_translated() -> None:
    with pytest.raises(TypeError, match="not a filter"):
        translate.condition(Filter())
