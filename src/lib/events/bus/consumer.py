"""The consumer of one group in one partition: claims it, delivers its pages, and releases it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, cast

from lib._util.clock import Clock
from lib.errors import Conflict, RunNotFound, StoreError
from lib.events.bus import dead_letters
from lib.events.bus.claim import Claim, pause_s
from lib.events.bus.dead_letters import DeadLetter
from lib.events.event import Event
from lib.events.store import END, EventStore, FeedPage

Handler = Callable[[list[Event]], Awaitable[None]]

_log = logging.getLogger(__name__)

_FIRST_LOOK_S: Final = 0.001
"""How soon `flush` looks again for the progress of another process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The settings that all consumers of a bus share."""

    store: EventStore
    clock: Clock
    owner: str
    batch: int
    poll_s: float
    lease_s: float
    max_deliveries: int


class End(Enum):
    """The result of a round of deliveries."""

    DONE = auto()
    """The group has every event."""
    NOT_OURS = auto()
    """There are more events, but another process has the claim, or a pause is not over."""
    FAILED = auto()


class PartitionConsumer:
    """Delivers the events of one partition to one group, as one of several processes."""

    def __init__(self, config: GroupConfig, group: str, partition: int, handler: Handler) -> None:
        """Begin without a claim."""
        self._config = config
        self._group = group
        self._partition = partition
        self._handler = handler
        self._claim = Claim(
            config.store,
            group,
            partition,
            owner=config.owner,
            lease_s=config.lease_s,
            clock=config.clock,
        )
        self._round = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._begun = self._stopped = False
        self._store_failures = 0
        self._pause_s = 0.0

    @property
    def name(self) -> str:
        """The name of its task."""
        return f"lib.{self._claim}"

    # -- start and stop --------------------------------------------------------------------

    async def begin(self, start: str) -> None:
        """Read the progress of the group, and let it begin if it has none yet."""
        async with self._round:
            if await self._claim.read():
                await self._claim.migrate()
            elif start == "now":
                page = await self._config.store.feed(END, partition=self._partition)
                await self._claim.begin(page.cursor)
            self._begun = True

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Deliver from now on, unless it does already, or has not begun."""
        if self._begun and not self._running and not self._stopped:
            self._task = tasks.create_task(self._deliver_for_ever(), name=self.name)

    @property
    def _running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def stop(self) -> None:
        """Stop for good, as soon as the batch under way has been handled."""
        self._stopped = True
        async with self._round:
            if self._task is not None:
                self._task.cancel()
            await self._claim.release()

    async def release(self) -> None:
        """Release the claim on the partition."""
        async with self._round:
            await self._claim.release()

    # -- rounds ----------------------------------------------------------------------------

    async def flush(self) -> bool:
        """Deliver every event; return True if the group has them all, or has no handler here.

        Waits while another process has the claim and makes progress.
        """
        async with self._round:
            try:
                for pause_s in self._pauses_while_progressing():
                    end = await self._deliver(early=True)
                    if end is not End.NOT_OURS:
                        return end is End.DONE
                    await self._config.clock.sleep(pause_s)
                return False
            finally:
                if not self._running:
                    await self._claim.release()

    def _pauses_while_progressing(self) -> Generator[float]:
        """Yield pauses until another process has made no progress for `lease_s`."""
        clock, lease_s, poll_s = self._config.clock, self._config.lease_s, self._config.poll_s
        cursor, since, pause_s = "", clock.monotonic(), 0.0
        while clock.monotonic() - since <= lease_s:
            yield pause_s
            if self._claim.progress.cursor != cursor:
                cursor, since, pause_s = self._claim.progress.cursor, clock.monotonic(), 0.0
            pause_s = min(pause_s * 2 or _FIRST_LOOK_S, poll_s)

    async def retry(self, letter: DeadLetter) -> bool:
        """Deliver a dead letter once more, out of order; return True if it was handled."""
        async with self._round:
            try:
                taken = self._begun and await self._take(early=True)
                return taken and await self._handle_letter(letter)
            finally:
                if not self._running:
                    await self._claim.release()

    async def _deliver_for_ever(self) -> None:
        clock = self._config.clock
        with self._config.store.wakeups.listen(partition=self._partition) as listener:
            while True:
                async with self._round:
                    end = await self._deliver(early=False)
                if end is End.FAILED:
                    await clock.sleep(self._pause_s)
                elif end is End.NOT_OURS:  # new events meanwhile are not for this process
                    await clock.sleep(self._config.poll_s)
                elif not await listener.wait(self._config.poll_s):
                    await self.release()

    async def _deliver(self, *, early: bool) -> End:
        """Deliver every event to the group; `early` skips a pause."""
        end: End | None = None
        while end is None and self._begun and not self._stopped:
            try:
                end = await self._deliver_page(early=early)
                self._store_failures = 0
            # A boundary: after any fault of a store, the group stays where it is, and the other
            # groups go on.
            except Exception as error:  # noqa: BLE001 - see above
                end = await self._store_failed(error)
        return end or End.DONE

    async def _deliver_page(self, *, early: bool) -> End | None:
        """Deliver one page; return None if there may be more."""
        claim = self._claim
        if not claim.held:
            if not await self._has_more():
                return End.DONE
            if not await self._take(early=early):
                return End.NOT_OURS if await self._has_more() else End.DONE
        limit = 1 if claim.progress.alone else self._config.batch
        page = await self._feed(limit)
        if not page.events:
            return End.DONE
        if claim.progress.hand == page.cursor and claim.progress.kills_processes:
            await self._add_dead_letter(page, None)
            return None
        if not await self._ensure_claim(page):
            return None
        return await self._handle(page, more=len(page.events) == limit, early=early)

    async def _ensure_claim(self, page: FeedPage) -> bool:
        """Renew the claim before a delivery if need be; return False if it is lost."""
        progress = self._claim.progress
        if not progress.alone:
            return await self._claim.ensure()
        if progress.hand not in ("", page.cursor):  # the event delivered last has been erased
            await dead_letters.remove_erased(self._config.store, self._group)
        return await self._claim.deliver_alone(page.cursor)

    async def _take(self, *, early: bool) -> bool:
        config = self._config
        return await self._claim.take(
            early=early, max_deliveries=config.max_deliveries, batch=config.batch
        )

    async def _has_more(self) -> bool:
        return bool((await self._feed(1)).events)

    async def _feed(self, limit: int) -> FeedPage:
        cursor = self._claim.progress.cursor
        return await self._config.store.feed(cursor, limit=limit, partition=self._partition)

    async def _handle(self, page: FeedPage, *, more: bool, early: bool) -> End | None:
        error = await self._call_handler(page.events)
        if error is not None:
            return await self._failed(page, error)
        gives_way = not early and self._held_for_long()
        moved = await self._claim.move(page.cursor, release=gives_way)
        if gives_way:
            return End.NOT_OURS
        return None if more or not moved else End.DONE

    async def _call_handler(self, events: list[Event]) -> Exception | None:
        """Call the handler; return its exception.

        A boundary like those around tools and sinks: a fault of a handler stops no group. It is
        logged, and the group gets the events again.
        """
        try:
            async with self._claim.renewed():
                await self._handler(events)
        except Exception as error:  # noqa: BLE001 - see above
            return error
        return None

    def _held_for_long(self) -> bool:
        """Return True if another process should have the partition; never where there is one."""
        held_s = self._config.clock.monotonic() - self._claim.held_since
        return self._config.store.partitions > 1 and held_s >= self._config.lease_s

    # -- failures --------------------------------------------------------------------------

    async def _failed(self, page: FeedPage, error: Exception) -> End:
        if _is_of_the_store(error):
            return await self._store_failed(error)
        claim = self._claim
        self._pause_s = pause_s(claim.progress.tries + 1)
        if claim.progress.alone and not claim.early:
            await self._add_dead_letter(page, error)
        else:
            _log.error("bus group %r: a batch will be tried again", self._group, exc_info=error)
            await claim.fail(max_deliveries=self._config.max_deliveries, events=len(page.events))
        return End.FAILED

    async def _add_dead_letter(self, page: FeedPage, error: Exception | None) -> None:
        (event,) = page.events
        died = self._claim.progress.died
        deliveries = self._config.max_deliveries + died + (error is not None)
        at = self._config.clock.now()
        letter = DeadLetter.of(event, self._group, error, deliveries=deliveries, at=at)
        _log.error(
            "bus group %r: event %d of run %r is a dead letter after %d deliveries",
            self._group,
            event.seq,
            event.run_id,
            deliveries,
            exc_info=error,
        )
        await dead_letters.add(self._config.store, letter)
        await self._claim.skip(page.cursor)

    async def _handle_letter(self, letter: DeadLetter) -> bool:
        store = self._config.store
        events = await store.read(letter.run_id, after=letter.seq - 1, limit=1)
        error = await self._call_handler(events) if events else None
        if error is None:
            await dead_letters.remove(store, letter)
            return bool(events)
        _log.error("bus group %r: a dead letter remains one", self._group, exc_info=error)
        (event,) = events
        deliveries = letter.deliveries + 1
        at = self._config.clock.now()
        new = DeadLetter.of(event, self._group, error, deliveries=deliveries, at=at)
        await dead_letters.replace(store, letter, new)
        return False

    async def _store_failed(self, error: Exception) -> End:
        """Release the claim and pause: no event is at fault."""
        if isinstance(error, StoreError) and error.retryable:  # a warning once while it lasts
            level = logging.DEBUG if self._store_failures else logging.WARNING
            _log.log(level, "bus group %r waits for the store: %s", self._group, error)
        else:
            _log.error("bus group %r: a batch will be tried again", self._group, exc_info=error)
        self._store_failures += 1
        self._pause_s = pause_s(self._store_failures)
        await self._claim.release()
        return End.FAILED


def _is_of_the_store(error: Exception) -> bool:
    """Return True if a store has failed; an answer such as a conflict is no failure."""
    if isinstance(error, ExceptionGroup):
        several = cast("ExceptionGroup[Exception]", error)
        return all(_is_of_the_store(each) for each in several.exceptions)
    return isinstance(error, StoreError) and not isinstance(error, Conflict | RunNotFound)
