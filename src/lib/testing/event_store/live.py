"""The contract of live channels: messages from the process that drives a run to its subscribers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from lib.events.live import LiveChannel, live_of
from lib.testing.aio import run
from lib.testing.event_store.kit import StoreTests, Using, all_events, begin

_HANGING_S = 120.0


@asynccontextmanager
async def _channels(using: Using) -> AsyncGenerator[tuple[LiveChannel, LiveChannel] | None]:
    """Yield the channels of a driver and of a subscriber, None of a store that has none."""
    async with using.opened() as one, using.opened() as two:
        driver, subscriber = live_of(one), live_of(two)
        if driver is None or subscriber is None:
            yield None
        else:
            async with asyncio.timeout(_HANGING_S):
                yield driver, subscriber if using.kind.shared else driver


class _Subscriber:
    """Subscribes to a run, and waits until its driver has learnt of it."""

    def __init__(self) -> None:
        self._received: asyncio.Queue[str] = asyncio.Queue()
        self._joined = asyncio.Event()

    async def join(self, driver: LiveChannel, channel: LiveChannel, run_id: str = "run") -> None:
        self._stop = driver.drive(run_id, self._joined.set)
        self.leave = channel.subscribe(run_id, self._received.put_nowait)
        await self._joined.wait()
        self._stop()

    async def take(self, count: int) -> Sequence[str]:
        """Return so many messages that differ: one may come twice."""
        found: dict[str, None] = {}
        while len(found) < count:
            found[await self._received.get()] = None
        return list(found)

    @property
    def empty(self) -> bool:
        return self._received.empty()


class LiveContract(StoreTests):
    """Messages over the live channel of a store that has one."""

    def test_messages_reach_subscribers_in_order(self, using: Using) -> None:
        async def main() -> None:
            async with _channels(using) as channels:
                if channels is None:
                    return
                one, two = _Subscriber(), _Subscriber()
                for each in (one, two):
                    await each.join(*channels)
                assert channels[0].watched("run")
                messages = [json.dumps(["é\ud83d\ude00\x00'\"\\ \n", n]) for n in range(100)]
                for message in messages:
                    channels[0].publish("run", message)

                assert await one.take(100) == messages
                assert await two.take(100) == messages

        run(main())

    def test_a_run_without_subscribers_is_not_watched_and_receives_nothing(
        self, using: Using
    ) -> None:
        async def main() -> None:
            async with _channels(using) as channels:
                if channels is None:
                    return
                driver, _ = channels
                other = _Subscriber()
                await other.join(*channels, run_id="other \ud800 ' \x00")
                assert not driver.watched("run")
                driver.publish("run", "secret")
                driver.publish("other \ud800 ' \x00", "last")

                assert await other.take(1) == ["last"]

        run(main())

    def test_a_message_that_is_too_large_is_dropped_alone(self, using: Using) -> None:
        async def main() -> None:
            async with _channels(using) as channels:
                if channels is None:
                    return
                driver, _ = channels
                reader = _Subscriber()
                await reader.join(*channels)
                driver.publish("run", "x" * 5_000_000)
                driver.publish("run", "y" * (driver.max_bytes + 1))
                driver.publish("run", "z" * driver.max_bytes)

                assert await reader.take(1) == ["z" * driver.max_bytes]

        run(main())

    def test_a_subscriber_that_has_left_receives_nothing(self, using: Using) -> None:
        async def main() -> None:
            async with _channels(using) as channels:
                if channels is None:
                    return
                leaves, stays = _Subscriber(), _Subscriber()
                for each in (leaves, stays):
                    await each.join(*channels)
                leaves.leave()
                leaves.leave()
                channels[0].publish("run", "late")

                assert await stays.take(1) == ["late"]
                assert leaves.empty

        run(main())

    def test_nothing_of_a_message_is_stored(self, using: Using) -> None:
        async def main() -> None:
            async with using.opened() as store:
                live = live_of(store)
                if live is None:
                    return
                await begin(store, "run")
                before = await all_events(store), await store.marks("")
                reader = _Subscriber()
                if not using.kind.shared:
                    await reader.join(live, live)
                live.publish("run", "text")

                assert (await all_events(store), await store.marks("")) == before

        run(main())

    def test_a_closed_channel_drops_what_it_gets(self, using: Using) -> None:
        async def main() -> None:
            async with using.opened() as store:
                live = live_of(store)
            if live is not None:
                live.subscribe("run", lambda _: None)()
                live.drive("run", lambda: None)()
                live.publish("run", "text")
                assert not live.watched("run")

        run(main())
