"""One group in one partition: claims it, delivers its pages, and gives it back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, cast

from lib._util.clock import Clock
from lib.errors import Conflict, RunNotFound, StoreError
from lib.events.bus.claim import Claim
from lib.events.bus.dead import DeadLetter, bury, rebury, sweep, unbury
from lib.events.bus.place import pause_s
from lib.events.event import Event
from lib.events.store import END, EventStore, Feed

Handler = Callable[[list[Event]], Awaitable[None]]

_log = logging.getLogger(__name__)

_GLANCE_S: Final = 0.001
"""How soon to look again for what another process does, when somebody waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What all shares of a bus have in common."""

    store: EventStore
    clock: Clock
    owner: str
    batch: int
    poll_s: float
    lease_s: float
    max_deliveries: int


class End(Enum):
    """How a turn of deliveries ended."""

    DONE = auto()
    """The group has everything."""
    ELSEWHERE = auto()
    """There is more, which is for another process, or not to be tried again yet."""
    FAILED = auto()


class Share:
    """What one process does for one group in one partition."""

    def __init__(self, terms: Terms, group: str, partition: int, handler: Handler) -> None:
        """Begin without a claim."""
        self._with = terms
        self._group = group
        self._partition = partition
        self._handler = handler
        self._claim = Claim(
            terms.store,
            group,
            partition,
            owner=terms.owner,
            lease_s=terms.lease_s,
            clock=terms.clock,
        )
        self._turn = asyncio.Lock()
        self._pump: asyncio.Task[None] | None = None
        self._begun = self._gone = False
        self._store_failures = 0
        self._pause_s = 0.0

    @property
    def name(self) -> str:
        """What its task is called."""
        return f"lib.{self._claim}"

    # -- coming and going ------------------------------------------------------------------

    async def begin(self, start: str) -> None:
        """Find out where the group is, and let it begin if it has never been here."""
        async with self._turn:
            if await self._claim.read():
                await self._claim.adopt()
            elif start == "now":
                cursor = (await self._with.store.feed(END, partition=self._partition)).cursor
                await self._claim.begin(cursor)
            self._begun = True

    def start(self, pumps: asyncio.TaskGroup) -> None:
        """Deliver from now on, unless it does already, or has not begun."""
        if self._begun and not self._running and not self._gone:
            self._pump = pumps.create_task(self._deliver_for_ever(), name=self.name)

    @property
    def _running(self) -> bool:
        return self._pump is not None and not self._pump.done()

    async def leave(self) -> None:
        """Stop for good, as soon as the batch under way has been handled."""
        self._gone = True
        async with self._turn:
            if self._pump is not None:
                self._pump.cancel()
            await self._claim.give_back()

    async def give_back(self) -> None:
        """Let others have the partition."""
        async with self._turn:
            await self._claim.give_back()

    # -- turns -----------------------------------------------------------------------------

    async def flush(self) -> bool:
        """Deliver all there is; return whether the group has everything, or has no handler here.

        What another process has claimed is waited for as long as that gets on.
        """
        async with self._turn:
            try:
                for pause_s in self._patience():
                    end = await self._deliver(early=True)
                    if end is not End.ELSEWHERE:
                        return end is End.DONE
                    await self._with.clock.sleep(pause_s)
                return False
            finally:
                if not self._running:
                    await self._claim.give_back()

    def _patience(self) -> Generator[float]:
        """Yield how long to wait for another process, until it has done nothing for `lease_s`."""
        clock, lease_s, poll_s = self._with.clock, self._with.lease_s, self._with.poll_s
        known, since, pause_s = "", clock.monotonic(), 0.0
        while clock.monotonic() - since <= lease_s:
            yield pause_s
            if self._claim.place.cursor != known:
                known, since, pause_s = self._claim.place.cursor, clock.monotonic(), 0.0
            pause_s = min(pause_s * 2 or _GLANCE_S, poll_s)

    async def retry(self, letter: DeadLetter) -> bool:
        """Deliver a dead letter once more, out of its order; return whether it was handled."""
        async with self._turn:
            try:
                taken = self._begun and await self._take(early=True)
                return taken and await self._handle_letter(letter)
            finally:
                if not self._running:
                    await self._claim.give_back()

    async def _deliver_for_ever(self) -> None:
        clock = self._with.clock
        with self._with.store.wakeups.listen(partition=self._partition) as listener:
            while True:
                async with self._turn:
                    end = await self._deliver(early=False)
                if end is End.FAILED:
                    await clock.sleep(self._pause_s)
                elif end is End.ELSEWHERE:  # whatever grows meanwhile is not for this process
                    await clock.sleep(self._with.poll_s)
                elif not await listener.wait(self._with.poll_s):
                    await self.give_back()

    async def _deliver(self, *, early: bool) -> End:
        """Give the group all there is; `early` waits for no pause."""
        end: End | None = None
        while end is None and self._begun and not self._gone:
            try:
                end = await self._deliver_page(early=early)
                self._store_failures = 0
            # A boundary: whatever a store does wrong, the group stays where it is, and the others
            # go on.
            except Exception as error:  # noqa: BLE001 - see above
                end = await self._bear_the_store(error)
        return end or End.DONE

    async def _deliver_page(self, *, early: bool) -> End | None:
        """Deliver one page; return None if there may be more."""
        claim = self._claim
        if not claim.held:
            if not await self._more():
                return End.DONE
            if not await self._take(early=early):
                return End.ELSEWHERE if await self._more() else End.DONE
        limit = 1 if claim.place.alone else self._with.batch
        page = await self._feed(limit)
        if not page.events:
            return End.DONE
        if claim.place.hand == page.cursor and claim.place.deadly:
            await self._bury(page, None)
            return None
        if not await self._keep(page):
            return None
        return await self._handle(page, more=len(page.events) == limit, early=early)

    async def _keep(self, page: Feed) -> bool:
        """Make sure of the claim before a delivery; False if it is lost."""
        place = self._claim.place
        if not place.alone:
            return await self._claim.keep()
        if place.hand not in ("", page.cursor):  # the event that was in hand has been erased
            await sweep(self._with.store, self._group)
        return await self._claim.hand_over(page.cursor)

    async def _take(self, *, early: bool) -> bool:
        most, batch = self._with.max_deliveries, self._with.batch
        return await self._claim.take(early=early, most=most, batch=batch)

    async def _more(self) -> bool:
        return bool((await self._feed(1)).events)

    async def _feed(self, limit: int) -> Feed:
        cursor = self._claim.place.cursor
        return await self._with.store.feed(cursor, limit=limit, partition=self._partition)

    async def _handle(self, page: Feed, *, more: bool, early: bool) -> End | None:
        error = await self._try(page.events)
        if error is not None:
            return await self._failed(page, error)
        rests = not early and self._held_for_long()
        moved = await self._claim.move(page.cursor, release=rests)
        if rests:
            return End.ELSEWHERE
        return None if more or not moved else End.DONE

    async def _try(self, events: list[Event]) -> Exception | None:
        """Call the handler; return what it raises.

        A boundary like those around tools and sinks: what a consumer of the log does wrong is its
        own affair. It is told in the log, and the group is given the events again.
        """
        try:
            async with self._claim.kept():
                await self._handler(events)
        except Exception as error:  # noqa: BLE001 - see above
            return error
        return None

    def _held_for_long(self) -> bool:
        """Tell whether it is another process's turn, where there is more than one partition."""
        held_s = self._with.clock.monotonic() - self._claim.held_since
        return self._with.store.partitions > 1 and held_s >= self._with.lease_s

    # -- failures --------------------------------------------------------------------------

    async def _failed(self, page: Feed, error: Exception) -> End:
        if _is_of_the_store(error):
            return await self._bear_the_store(error)
        claim = self._claim
        self._pause_s = pause_s(claim.place.tries + 1)
        if claim.place.alone and not claim.early:
            await self._bury(page, error)
        else:
            _log.error("bus group %r: a batch will be tried again", self._group, exc_info=error)
            await claim.fail(most=self._with.max_deliveries, events=len(page.events))
        return End.FAILED

    async def _bury(self, page: Feed, error: Exception | None) -> None:
        (event,) = page.events
        deliveries = self._with.max_deliveries + self._claim.place.died + (error is not None)
        at = self._with.clock.now()
        letter = DeadLetter.of(event, self._group, error, deliveries=deliveries, at=at)
        _log.error(
            "bus group %r: event %d of run %r is a dead letter after %d deliveries",
            self._group,
            event.seq,
            event.run_id,
            deliveries,
            exc_info=error,
        )
        await bury(self._with.store, letter)
        await self._claim.bury(page.cursor)

    async def _handle_letter(self, letter: DeadLetter) -> bool:
        store = self._with.store
        events = await store.read(letter.run_id, after=letter.seq - 1, limit=1)
        error = await self._try(events) if events else None
        if error is None:
            await unbury(store, letter)
            return bool(events)
        _log.error("bus group %r: a dead letter remains one", self._group, exc_info=error)
        (event,) = events
        more = letter.deliveries + 1
        at = self._with.clock.now()
        again = DeadLetter.of(event, self._group, error, deliveries=more, at=at)
        await rebury(store, letter, again)
        return False

    async def _bear_the_store(self, error: Exception) -> End:
        """Wait for a store that fails: that is not the fault of an event."""
        if isinstance(error, StoreError) and error.retryable:  # said once while it lasts
            level = logging.DEBUG if self._store_failures else logging.WARNING
            _log.log(level, "bus group %r waits for the store: %s", self._group, error)
        else:
            _log.error("bus group %r: a batch will be tried again", self._group, exc_info=error)
        self._store_failures += 1
        self._pause_s = pause_s(self._store_failures)
        await self._claim.give_back()
        return End.FAILED


def _is_of_the_store(error: Exception) -> bool:
    """Tell whether a store has failed, rather than said something of what was asked."""
    if isinstance(error, ExceptionGroup):
        several = cast("ExceptionGroup[Exception]", error)
        return all(_is_of_the_store(each) for each in several.exceptions)
    return isinstance(error, StoreError) and not isinstance(error, Conflict | RunNotFound)
