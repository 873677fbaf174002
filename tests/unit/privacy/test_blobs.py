"""Blobs that no run refers to are forgotten, and no other, despite concurrent writers."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lib.errors import StoreClosed
from lib.events import BlobStore, DirectoryBlobStore, MemoryBlobStore, MemoryEventStore
from lib.events.blobs import blob_refs
from lib.privacy.blobs import Collected, collect_blobs, release_blobs, released
from lib.privacy.erase import erase_run
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import attached, begin

BLOB_STORES: dict[str, Callable[[Path, ManualClock], BlobStore]] = {
    "memory": lambda _, clock: MemoryBlobStore(clock=clock),
    "directory": lambda place, clock: DirectoryBlobStore(place, clock=clock),
}
CLOCK = ManualClock()


@pytest.fixture(params=BLOB_STORES.values(), ids=list(BLOB_STORES))
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return request.param(tmp_path, CLOCK)


async def opened() -> MemoryEventStore:
    store = MemoryEventStore(clock=CLOCK)
    await store.setup()
    return store


async def test_only_blobs_without_users_are_released(blobs: BlobStore) -> None:
    store = await opened()
    used, free = await blobs.put(b"used"), await blobs.put(b"free")
    await begin(store, "run", input=attached(used))

    assert await release_blobs(store, blobs, [used, free, free, "0" * 64]) == 1
    assert (await blobs.has(used), await blobs.has(free)) == (True, False)
    assert await release_blobs(store, blobs, [used, free]) == 0


async def test_a_collector_leaves_what_is_in_use_or_was_put_of_late(blobs: BlobStore) -> None:
    store = await opened()
    used, again = await blobs.put(b"used"), await blobs.put(b"put again")
    await blobs.put(b"forgotten")
    await begin(store, "run", input=attached(used))
    CLOCK.advance(3601)
    await blobs.put(b"put again")
    late = await blobs.put(b"late")
    would = await collect_blobs(store, blobs, clock=CLOCK, dry_run=True)
    done = await collect_blobs(store, blobs, clock=CLOCK)

    assert would == done == Collected(1, len(b"forgotten"))
    assert {one.digest for one in await blobs.stored()} == {used, again, late}
    with pytest.raises(ValueError, match="not negative"):
        await collect_blobs(store, blobs, older_than=timedelta(-1))


class Meanwhile(MemoryBlobStore):
    """Lets something happen right after a deletion."""

    def __init__(self, then: Callable[[], Any]) -> None:
        super().__init__()
        self._then = then

    async def delete(self, digest: str) -> bool:
        gone = await super().delete(digest)
        await self._then()
        return gone


async def test_content_is_given_back_if_a_run_refers_to_it_by_now() -> None:
    store = await opened()

    async def start() -> None:
        await begin(store, "run", input=attached(digest))

    blobs = Meanwhile(start)
    digest = await blobs.put(b"hello")

    assert await released(store, blobs, digest) is False
    assert await blobs.get(digest) == b"hello"


async def test_content_is_restored_when_no_record_of_it_is_left() -> None:
    store = await opened()
    blobs = Meanwhile(store.close)
    digest = await blobs.put(b"hello")

    with pytest.raises(StoreClosed):
        await released(store, blobs, digest)
    assert await blobs.get(digest) == b"hello"


async def test_a_caller_that_is_cancelled_in_a_release_leaves_it_whole() -> None:
    store, reached, go_on = await opened(), asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        reached.set()
        await go_on.wait()
        await begin(store, "run", input=attached(digest))

    blobs = Meanwhile(wait)
    digest = await blobs.put(b"hello")
    task = asyncio.create_task(released(store, blobs, digest))
    await reached.wait()
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await blobs.get(digest) == b"hello"


async def test_damaged_content_is_released_like_any_other(tmp_path: Path) -> None:
    blobs = DirectoryBlobStore(tmp_path)
    digest = await blobs.put(b"hello")
    (tmp_path / digest[:2] / digest).write_bytes(b"hellO")

    assert await released(await opened(), blobs, digest) is True


CONTENTS = [bytes([number]) * 8 for number in range(6)]


class World:
    """Writers, who do as engines do (put, append, look, put again), and erasers."""

    def __init__(self, blobs: BlobStore, seed: int) -> None:
        self.blobs = blobs
        self.random = Random(seed)
        self.store = MemoryEventStore()

    async def pause(self) -> None:
        for _ in range(self.random.randrange(4)):
            await asyncio.sleep(0)  # noqa: TID251 - lets others go on

    async def write(self, name: str) -> None:
        for number in range(12):
            content = self.random.choice(CONTENTS)
            digest = await self.blobs.put(content)
            await self.pause()
            await begin(self.store, f"{name}-{number}", end=True, input=attached(digest))
            await self.pause()
            if not await self.blobs.has(digest):
                await self.blobs.put(content)

    async def erase(self) -> None:
        for _ in range(40):
            await self.pause()
            for info in (await self.store.runs())[-1:]:
                await erase_run(self.store, info.run_id, blobs=self.blobs)
            await collect_blobs(self.store, self.blobs, older_than=timedelta(0))

    async def references(self) -> set[str]:
        return {
            ref.digest
            for info in await self.store.runs()
            for event in await self.store.read(info.run_id)
            for ref in blob_refs(event.kind, event.data)
        }


@pytest.mark.parametrize("seed", range(4))
async def test_writers_and_erasers_at_random_leave_every_living_reference_resolved(
    seed: int, tmp_path: Path
) -> None:
    world = World([MemoryBlobStore(), DirectoryBlobStore(tmp_path)][seed % 2], seed)
    await world.store.setup()
    async with asyncio.TaskGroup() as tasks:
        for work in (world.write("a"), world.write("b"), world.erase(), world.erase()):
            tasks.create_task(work)
    for digest in await world.references():
        assert await world.blobs.get(digest)
    await collect_blobs(world.store, world.blobs, older_than=timedelta(0))

    left = {one.digest for one in await world.blobs.stored()}
    assert left == await world.references()
