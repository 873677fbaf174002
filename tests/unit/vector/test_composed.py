"""Tests calls that read and write back, beside calls that come between the two."""

import asyncio
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib._util.clock import SYSTEM_CLOCK
from lib.vector import Backend, ComposedBackend, F, Filter, Match, Record
from lib.vector.backend import BackedStore
from lib.vector.filter import matches
from lib.vector.validate import Batch


class Dict(ComposedBackend):
    """Records in a dict; the first upsert after `writing` was cleared waits for the test."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.writing, self.open = asyncio.Event(), asyncio.Event()
        self.open.set()

    async def upsert(self, namespace: str, batch: Batch) -> None:
        if not self.writing.is_set():
            self.writing.set()
            await self.open.wait()
        for row, name in enumerate(batch.ids):
            vector = batch.vectors[row].tolist()
            self.records[name] = Record(name, vector, batch.texts[row], batch.metas[row])

    async def get(self, namespace: str, ids: list[str]) -> list[Record]:
        return [self.records[name] for name in ids if name in self.records]

    async def scan(
        self, namespace: str, after: str, limit: int, filter: Filter | None
    ) -> list[Record]:
        found = (self.records[name] for name in sorted(self.records) if name > after)
        return [one for one in found if filter is None or matches(filter, one.meta)][:limit]

    async def query(
        self,
        namespace: str,
        query: NDArray[np.float32],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[Match]:
        return []

    async def delete(self, namespace: str, ids: list[str] | None, filter: Filter | None) -> int:
        wanted = list(self.records) if ids is None else ids
        return sum(self.records.pop(name, None) is not None for name in wanted)

    async def count(self, namespace: str, filter: Filter | None) -> int:
        return len(self.records)

    async def namespaces(self, prefix: str) -> list[str]:
        return [""]


class DictStore(BackedStore[Backend]):
    def __init__(self) -> None:
        super().__init__(2)
        self.dict = Dict()

    async def open_backend(self) -> Backend:
        return self.dict


async def held(store: DictStore, work: Any) -> asyncio.Task[int]:
    """Begin a call, and return when it writes; it goes on when `open` is set."""
    store.dict.writing.clear()
    store.dict.open.clear()
    task = asyncio.create_task(work)
    await store.dict.writing.wait()
    return task


async def beside(store: DictStore, *works: Any) -> list[asyncio.Task[Any]]:
    """Begin calls, and let them get as far as they can."""
    tasks = [asyncio.create_task(work) for work in works]
    for _ in range(20):
        await SYSTEM_CLOCK.sleep(0)
    return tasks


def records(count: int, **meta: Any) -> list[Record]:
    return [Record(f"{n:04}", [1.0, 0.0], "", dict(meta)) for n in range(count)]


async def test_a_record_that_is_deleted_while_its_metadata_changes_does_not_come_back() -> None:
    choices: list[dict[str, Any]] = [{"ids": ["0000", "0001"]}, {"filter": F("x") == 1}]
    for chosen in choices:
        store = DictStore()
        await store.upsert(records(2, x=1))

        update = await held(store, store.update_meta({"seen": True}, **chosen))
        (deletion,) = await beside(store, store.delete(["0000"]))
        store.dict.open.set()

        assert (await update, await deletion) == (2, 1)
        assert list(store.dict.records) == ["0001"]
        assert store.dict.records["0001"].meta == {"x": 1, "seen": True}


async def test_a_record_that_is_replaced_meanwhile_is_not_lost() -> None:
    store = DictStore()
    await store.upsert(records(1, x=1))

    update = await held(store, store.update_meta({"seen": True}, ids=["0000"]))
    (replacement,) = await beside(store, store.upsert([Record("0000", [0.0, 1.0], "new")]))
    store.dict.open.set()

    await asyncio.gather(update, replacement)
    assert store.dict.records["0000"] == Record("0000", [0.0, 1.0], "new")


async def test_an_insert_leaves_alone_what_comes_while_it_looks() -> None:
    store = DictStore()

    insertion = await held(store, store.insert([Record("a", [1.0, 0.0], "inserted")]))
    (other,) = await beside(store, store.upsert([Record("a", [1.0, 0.0], "upserted")]))
    store.dict.open.set()

    await asyncio.gather(insertion, other)
    assert store.dict.records["a"].text == "upserted"


async def test_other_writes_come_between_two_pages() -> None:
    store = DictStore()
    await store.upsert(records(1200))

    update = await held(
        store, store.update_meta({"seen": True}, ids=[f"{n:04}" for n in range(1200)])
    )
    (deletion,) = await beside(store, store.delete(["0000", "0700", "1199"]))
    store.dict.open.set()

    assert (await deletion, await update) == (3, 1198)
    assert len(store.dict.records) == 1197
    assert all(one.meta == {"seen": True} for one in store.dict.records.values())


async def test_a_cancelled_change_of_metadata_lets_nothing_in_before_its_write_has_ended() -> None:
    store = DictStore()
    await store.upsert(records(1))

    update = await held(store, store.update_meta({"seen": True}, ids=["0000"]))
    (deletion,) = await beside(store, store.delete(["0000"]))
    update.cancel()
    await beside(store)
    assert not update.done()
    store.dict.open.set()

    assert await deletion == 1
    assert update.cancelled()
    assert store.dict.records == {}
    assert len(store.dict.gates) == 0


async def test_many_namespaces_leave_nothing_behind() -> None:
    store = DictStore()

    for n in range(2_000):
        await store.upsert(records(1), namespace=f"tenant-{n}")
        await store.insert(records(1), namespace=f"tenant-{n}")
    assert len(store.dict.gates) == 0
