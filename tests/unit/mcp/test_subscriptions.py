"""The subscriptions of a session hold in each process over a store, on one stream, bounded."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from lib.events import MemoryEventStore
from lib.mcp.changes import Change, Changes
from lib.mcp.sessions import LegacySession, LegacySessions
from lib.mcp.subscriptions import SessionStream, Subscriptions
from lib.testing.clock import ManualClock

OWNER = '["acme","ada"]'


def anything(_: Change) -> bool:
    return True


class Process:
    """The part of one process over a store."""

    def __init__(self, store: MemoryEventStore, clock: ManualClock) -> None:
        self.changes = Changes(store, clock=clock)
        self.subscriptions = Subscriptions(store, self.changes, clock=clock)
        self.sessions = LegacySessions(store, clock=clock)

    @asynccontextmanager
    async def stream(self, session: LegacySession) -> AsyncGenerator[SessionStream]:
        async with self.subscriptions.stream(session, anything) as stream:
            yield stream


class World:
    def __init__(self) -> None:
        self.clock, self.store = ManualClock(), MemoryEventStore()
        self.one, self.other = (Process(self.store, self.clock) for _ in range(2))

    async def session(self, owner: str = OWNER) -> LegacySession:
        await self.store.setup()
        return await self.one.sessions.begin({}, owner)

    async def heard(self, stream: SessionStream) -> list[Any]:
        """Return the next URIs that a stream hears of, while the clock goes on."""
        coming = asyncio.ensure_future(stream.next())
        while not coming.done():
            self.clock.advance(1)
            await asyncio.sleep(0)  # noqa: TID251 - lets the processes look
        return [getattr(each.params, "uri", None) for each in coming.result()]

    async def kept(self) -> int:
        return len(await self.store.marks("mcp/subscriptions/"))


async def test_a_session_hears_of_what_it_has_subscribed_to_in_another_process() -> None:
    world = World()
    session = await world.session()
    async with world.one.stream(session) as stream:
        for uri in ("a:1", "a:2", "a:3"):
            await world.other.subscriptions.subscribe(session, uri)
        await world.other.subscriptions.unsubscribe(session, "a:2")
        await world.one.subscriptions.unsubscribe(session, "a:9")
        for uri in ("a:0", "a:1", "a:2"):
            await world.one.changes.publish(Change("resource", uri))
        here = await world.heard(stream)
        await world.other.changes.publish(Change("resource", "a:3"))
        elsewhere = await world.heard(stream)

    assert (here, elsewhere) == (["a:1"], ["a:3"])


async def test_lists_are_heard_of_without_a_subscription() -> None:
    world = World()
    async with world.one.stream(await world.session()) as stream:
        await world.one.changes.publish(Change("resource", "a:1"))
        world.one.changes.tell(Change("tools"))

        assert [each.method for each in await stream.next()] == ["notifications/tools/list_changed"]


async def test_the_stream_that_was_opened_last_hears_and_the_others_end() -> None:
    world = World()
    session = await world.session()
    await world.one.subscriptions.subscribe(session, "a:1")
    async with world.one.stream(session) as first, world.other.stream(session) as second:
        await world.other.changes.publish(Change("resource", "a:1"))
        heard = await world.heard(second), await world.heard(first)
        async with world.other.stream(session) as third:
            ended = await second.next()
            await world.other.changes.publish(Change("resource", "a:1"))
            last = await world.heard(third)

    assert heard == (["a:1"], [])
    assert (ended, last) == ([], ["a:1"])


async def test_of_streams_that_were_open_before_the_subscription_one_hears() -> None:
    world = World()
    session = await world.session()
    async with world.one.stream(session) as first, world.other.stream(session) as second:
        await world.one.subscriptions.subscribe(session, "a:1")
        await world.one.changes.publish(Change("resource", "a:1"))
        heard = [await world.heard(each) for each in (first, second)]

    assert sorted(heard) == [[], ["a:1"]]


async def test_streams_of_a_process_share_their_looks_at_the_store() -> None:
    class Counting(MemoryEventStore):
        looks = 0

        async def marks(self, prefix: str) -> dict[str, str]:
            self.looks += prefix == "mcp/subscriptions/"
            return await super().marks(prefix)

    store = Counting()
    await store.setup()
    process = Process(store, ManualClock())
    async with AsyncExitStack() as stack:
        streams = list[SessionStream]()
        for _ in range(20):
            session = await process.sessions.begin({}, OWNER)
            await process.subscriptions.subscribe(session, "a:1")
            streams.append(await stack.enter_async_context(process.stream(session)))
        before = store.looks
        await process.changes.publish(Change("resource", "a:1"))
        heard = await asyncio.gather(*(each.next() for each in streams))

    assert [len(each) for each in heard] == [1] * 20
    assert store.looks - before <= 2


async def test_subscriptions_end_with_their_session() -> None:
    world = World()
    session = await world.session()
    await world.one.subscriptions.subscribe(session, "a:1")
    world.clock.advance(6 * 86_400)
    await world.one.subscriptions.subscribe(session, "a:2")  # does not make it last longer
    world.clock.advance(86_401)
    await world.one.subscriptions.subscribe(await world.session(), "a:3")

    assert await world.kept() == 1


async def test_ten_thousand_subscriptions_of_a_session_are_refused() -> None:
    world = World()
    session = await world.session()
    refused = list[int]()
    for number in range(10_000):
        try:
            await world.one.subscriptions.subscribe(session, f"a:{number}")
        except MCPError:
            refused.append(number)
    await world.one.subscriptions.subscribe(session, "a:0")  # has it already

    assert refused == [*range(1_000, 10_000)]


@pytest.mark.parametrize("before", [0, 16])
async def test_huge_uris_are_refused(before: int) -> None:
    world = World()
    session = await world.session()
    for number in range(before):
        await world.one.subscriptions.subscribe(session, f"a:{number}{'x' * 1_000}")

    with pytest.raises(MCPError, match="16384 characters"):
        await world.one.subscriptions.subscribe(session, "a:" + "x" * (16_384 - 1_000 * before))


async def test_of_a_callers_sessions_the_last_ones_count() -> None:
    world = World()
    other = await world.session('["umbrella","ada"]')
    first, *_ = sessions = [await world.session() for _ in range(501)]
    for each in (other, *sessions):
        world.clock.advance(1)
        await world.one.subscriptions.subscribe(each, "a:1")
    last = sessions[-1]
    async with world.one.stream(first) as nothing, world.one.stream(last) as stream:
        await world.one.changes.publish(Change("resource", "a:1"))
        heard = await world.heard(stream)
        world.one.changes.tell(Change("tools"))
        lists_only = await world.heard(nothing)

    assert (heard, lists_only) == (["a:1"], [None])
    assert await world.kept() == 501  # 500 of this caller, and one of the other
