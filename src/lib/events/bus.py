"""The bus: carries the events of all runs to groups of handlers, in the order of their commits.

Each group has a cursor of its own, which the store keeps as the mark `bus/<group>` and which moves
only when a batch has been handled. So a group sees every event at least once, whatever crashes: a
batch may come again, and a handler tells events that it knows by `(run_id, seq)`. Groups do not
wait for each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.events.event import Event
from lib.events.store import END, START, EventStore

Handler = Callable[[list[Event]], Awaitable[None]]

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 30.0


@dataclass(slots=True, eq=False)
class _Subscription:
    group: str
    handler: Handler
    cursor: str = START
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    pump: asyncio.Task[None] | None = None


class Bus:
    """Carries events inside one process, from any store.

    Attributes:
        can_flush: whether `flush` delivers, or (on a bus between machines) has nothing to do.
    """

    can_flush: Final = True

    def __init__(
        self,
        store: EventStore,
        *,
        clock: Clock = SYSTEM_CLOCK,
        batch: int = 512,
        poll_s: float = 1.0,
    ) -> None:
        """Make a bus without groups.

        Args:
            store: where the events and the cursors are; `setup()` is the caller's.
            clock: paces the retries of a handler that fails.
            batch: how many events a handler gets at most at once.
            poll_s: how often to look for events of which no wake-up tells.
        """
        self._store = store
        self._clock = clock
        self._batch = batch
        self._poll_s = poll_s
        self._subscriptions: dict[str, _Subscription] = {}
        self._pumps: asyncio.TaskGroup | None = None

    async def subscribe(
        self, group: str, handler: Handler, *, start: Literal["beginning", "now"] = "beginning"
    ) -> None:
        """Let a handler have every event, from where its group has come to.

        Args:
            group: names the cursor, for good.
            handler: gets batches in commit order, one at a time, and some of them again.
            start: where a group begins that has no cursor yet: at the store's first event, or
                after its last.

        Raises:
            ValueError: the group has a handler already.
        """
        if group in self._subscriptions:
            raise ValueError(f"group {group!r} has a handler already: unsubscribe it first")
        subscription = self._subscriptions[group] = _Subscription(group, handler)
        try:
            async with subscription.turn:
                subscription.cursor = await self._first_cursor(group, start)
        except BaseException:
            await self.unsubscribe(group)
            raise
        self._start(subscription)

    async def _first_cursor(self, group: str, start: str) -> str:
        kept = await self._store.mark(_mark(group))
        if kept is not None or start == "beginning":
            return kept or START
        cursor = (await self._store.feed(END)).cursor
        await self._store.set_mark(_mark(group), cursor)
        return cursor

    async def unsubscribe(self, group: str) -> None:
        """Stop giving events to a group, which keeps its cursor.

        A batch under way is waited for, so a handler cannot unsubscribe itself.

        Raises:
            KeyError: no such group.
        """
        subscription = self._subscriptions.pop(group)
        async with subscription.turn:
            if subscription.pump is not None:
                subscription.pump.cancel()

    async def run(self) -> None:
        """Deliver to all groups until cancelled; a batch under way is then cut off.

        Raises:
            RuntimeError: it runs already.
        """
        if self._pumps is not None:
            raise RuntimeError("this bus runs already")
        try:
            async with asyncio.TaskGroup() as self._pumps:
                for subscription in self._subscriptions.values():
                    self._start(subscription)
                await asyncio.Event().wait()
        finally:
            self._pumps = None

    async def flush(self) -> bool:
        """Deliver all that has been appended so far, to every group.

        Returns:
            False if a handler failed; its group is left where it stands, for `run` to try again.
        """
        async with asyncio.TaskGroup() as tasks:
            delivered = [
                tasks.create_task(self._deliver(subscription))
                for subscription in self._subscriptions.values()
            ]
        return all(task.result() for task in delivered)

    def _start(self, subscription: _Subscription) -> None:
        pump = subscription.pump
        if self._pumps is not None and (pump is None or pump.done()):
            name = f"lib.bus {subscription.group}"
            subscription.pump = self._pumps.create_task(self._pump(subscription), name=name)

    async def _pump(self, subscription: _Subscription) -> None:
        pause_s = _FIRST_PAUSE_S
        with self._store.wakeups.listen() as listener:
            while True:
                if await self._deliver(subscription):
                    pause_s = _FIRST_PAUSE_S
                    await listener.wait(self._poll_s)
                else:
                    await self._clock.sleep(pause_s)
                    pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _deliver(self, subscription: _Subscription) -> bool:
        """Give a group all there is; return False if its handler, or the store, failed."""
        async with subscription.turn:
            while self._subscriptions.get(subscription.group) is subscription:
                try:
                    more = await self._deliver_page(subscription)
                # A boundary like those around tools and sinks: what a consumer of the log does
                # wrong is its own affair. It is told here, and the group stays where it is.
                except Exception:  # noqa: BLE001 - see above
                    _log.exception("bus group %r: a batch will be tried again", subscription.group)
                    return False
                if not more:
                    break
        return True

    async def _deliver_page(self, subscription: _Subscription) -> bool:
        page = await self._store.feed(subscription.cursor, limit=self._batch)
        if page.events:
            await subscription.handler(page.events)
        if page.cursor != subscription.cursor:
            await self._store.set_mark(_mark(subscription.group), page.cursor)
            subscription.cursor = page.cursor
        return len(page.events) == self._batch


def _mark(group: str) -> str:
    return f"bus/{group}"
