"""The claim of one process on one partition of a group, and the group's progress there.

Both are the value of one mark, which is written by compare-and-set. Functions without `async`
decide which progress may follow another one; `Claim` writes it.

A page that fails is delivered again, after pauses that grow. After `max_deliveries`, its events are
delivered one by one, to find the one that is at fault. An exception shows that at once; a process
may die of anything, so two dead processes are needed.

The clocks of the processes decide when a claim has ended: they should agree to within a part of
`lease_s`. A claim saves double work; that no event is lost follows from the cursor, which moves
only after a delivery and only for the owner of the claim.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote

from lib._util.clock import Clock
from lib._util.json import canonical, parse
from lib.errors import StoreError
from lib.events.store import START, Marks

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 30.0
_MAX_DEATHS: Final = 2
"""So many processes that died during the delivery of one event make it a dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a group in one partition. The fields are the keys of the stored JSON.

    Attributes:
        cursor: every event before it has been handled, or is a dead letter.
        owner: the bus that holds the claim, or None.
        until: when the claim ends; without an owner, when the pause after a failure ends. Seconds
            since 1970.
        tries: failed deliveries in a row: of the page at the cursor, or of single events.
        alone: so many events from the cursor on are delivered one by one.
        hand: the cursor after the event that was last delivered alone, empty if none was: it tells
            whether that event is still the one at the cursor, or has been erased.
        died: so many processes died during the delivery of that event.
    """

    cursor: str = START
    owner: str | None = None
    until: float = 0.0
    tries: int = 0
    alone: int = 0
    hand: str = ""
    died: int = 0

    @classmethod
    def decode(cls, text: str) -> Progress:
        """Return the progress that a mark holds; a bare cursor is one of layout 1."""
        if not is_progress(text):
            return cls(cursor=text)
        data: dict[str, Any] = parse(text)
        return cls(**{name: data[name] for name in cls.__slots__ if name in data})

    def encode(self) -> str:
        """Return the value of the mark; defaults are left out."""
        data = {name: getattr(self, name) for name in self.__slots__}
        return canonical({name: value for name, value in data.items() if value or name == "cursor"})

    @property
    def kills_processes(self) -> bool:
        """True if the event last delivered alone is not to be delivered again."""
        return self.died >= _MAX_DEATHS

    def is_free(self, owner: str, now: float, *, early: bool) -> bool:
        """Return True if this owner may claim the partition; `early` skips a pause."""
        return self.owner == owner or self.until <= now or (early and self.owner is None)

    def claimed(self, owner: str, until: float, *, max_deliveries: int, batch: int) -> Progress:
        """Return the progress claimed by this owner; another owner counts as a failed delivery."""
        claimed = replace(self, owner=owner, until=until)
        if self.owner in (None, owner):
            return claimed
        if self.alone:
            return replace(claimed, died=self.died + bool(self.hand))
        return _split(replace(claimed, tries=self.tries + 1), max_deliveries, batch)

    def delivering(self, hand: str, until: float) -> Progress:
        """Return the progress before the delivery of a single event."""
        return replace(self, hand=hand, died=self.died if hand == self.hand else 0, until=until)

    def moved(self, cursor: str, until: float) -> Progress:
        """Return the progress after a delivery."""
        left = max(self.alone - 1, 0)
        return Progress(cursor=cursor, owner=self.owner, until=until, alone=left)

    def failed(self, now: float, *, max_deliveries: int, events: int) -> Progress:
        """Return the progress after a failed page: without an owner, and with a pause."""
        tries = self.tries + 1
        failed = replace(self, owner=None, until=now + pause_s(tries), tries=tries)
        return _split(failed, max_deliveries, events)

    def skipped(self, cursor: str, now: float) -> Progress:
        """Return the progress after a dead letter.

        The more of them follow each other, the longer the pauses: then the handler may be at fault,
        and not the events.
        """
        streak = self.tries + 1
        left, until = max(self.alone - 1, 0), now + pause_s(streak)
        return Progress(cursor=cursor, until=until, alone=left, tries=streak if left else 0)

    def released(self, until: float = 0.0) -> Progress:
        """Return the progress without an owner."""
        return replace(self, owner=None, until=until)


def is_progress(text: str) -> bool:
    """Return True for an encoded progress, False for the bare cursor of layout 1."""
    return text.startswith("{")


def _split(progress: Progress, max_deliveries: int, events: int) -> Progress:
    """Return the progress with single deliveries ahead, if it has failed often enough."""
    return progress if progress.tries < max_deliveries else replace(progress, tries=0, alone=events)


def pause_s(failures: int) -> float:
    """Return how long to wait after so many failures in a row."""
    return min(_FIRST_PAUSE_S * 2 ** min(failures - 1, 20), _LONGEST_PAUSE_S)


_log = logging.getLogger(__name__)


class Claim:
    """The claim of this process, and the progress of the group.

    Attributes:
        progress: as it was read or written last.
        held: whether this process has the claim, as far as it can tell.
        held_since: the clock's `monotonic` at which it took the claim.
        early: whether it was taken before its pause was over, so that failures do not count.
    """

    def __init__(
        self,
        store: Marks,
        group: str,
        partition: int,
        *,
        owner: str,
        lease_s: float,
        clock: Clock,
    ) -> None:
        """Begin without a claim; nothing is read yet."""
        self.progress: Progress = Progress()
        self.held: bool = False
        self.held_since: float = 0.0
        self.early: bool = False
        self._paused_until = 0.0
        self._store = store
        self._name = f"bus/{quote(group, safe='')}/{partition}"
        # Layout 1 had one cursor for each group, and one partition.
        self._old_name = f"bus/{group}" if partition == 0 else None
        self._owner = owner
        self._lease_s = lease_s
        self._clock = clock
        self._text: str | None = None
        self._old_text: str | None = None
        self._uncertain = False
        self._renewal: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        """Return the name of the mark."""
        return self._name

    def now(self) -> float:
        """Return the time of the clock in seconds, to the millisecond."""
        return int(self._clock.now().timestamp() * 1000) / 1000

    def _end(self) -> float:
        return self.now() + self._lease_s

    async def read(self) -> bool:
        """Read the progress; return False if the group has none in this partition."""
        self._text = await self._store.mark(self._name)
        found = self._text
        if found is None and self._old_name is not None:
            old = await self._store.mark(self._old_name)
            if old is not None and not is_progress(old):  # else it is that of another group
                found = self._old_text = old
        self.progress = Progress() if found is None else Progress.decode(found)
        self.held, self._uncertain = self.progress.owner == self._owner, False
        return found is not None

    async def begin(self, cursor: str) -> None:
        """Let the group begin at the cursor, unless another process has let it begin."""
        await self._write(Progress(cursor=cursor))

    async def migrate(self) -> None:
        """Write the cursor of layout 1 as a progress."""
        if self._old_text is not None:
            await self._write(self.progress)

    async def take(self, *, early: bool, max_deliveries: int, batch: int) -> bool:
        """Claim the partition; return True if this process has it now.

        Args:
            early: do not wait until a pause is over.
            max_deliveries: after so many failed deliveries, events are delivered one by one.
            batch: how many events that is for, where no failure has recorded their number.
        """
        await self.read()
        now, progress = self.now(), self.progress
        if not progress.is_free(self._owner, now, early=early):
            return False
        self.early = progress.owner is None and progress.until > now
        self._paused_until = progress.until if self.early else 0.0
        self.held_since = self._clock.monotonic()
        return await self._write(
            progress.claimed(self._owner, self._end(), max_deliveries=max_deliveries, batch=batch)
        )

    async def deliver_alone(self, cursor: str) -> bool:
        """Record which event is delivered alone, by the cursor after it; False if lost."""
        if self.progress.hand == cursor:
            return await self.ensure()
        return await self._write(self.progress.delivering(cursor, self._end()))

    async def ensure(self) -> bool:
        """Renew the claim unless it lasts for most of `lease_s`; return False if it is lost."""
        if self.progress.until - self.now() > self._lease_s * 2 / 3:
            return True
        return await self._write(replace(self.progress, until=self._end()))

    @asynccontextmanager
    async def renewed(self) -> AsyncGenerator[None]:
        """Renew the claim whenever a third of it is over, until the block ends."""
        self._schedule_renewal()
        try:
            yield
        finally:
            self._timer.cancel()
            if self._renewal is not None:  # not cancelled: its write may or may not have happened
                renewal, self._renewal = self._renewal, None
                await asyncio.wait([renewal])

    def _schedule_renewal(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._lease_s / 3, self._start_renewal)

    def _start_renewal(self) -> None:
        self._renewal = asyncio.create_task(self._renew(), name=f"lib.{self._name}")

    async def _renew(self) -> None:
        try:
            lost = not await self._write(replace(self.progress, until=self._end()))
        # A boundary: the claim survives every fault of a store until it ends; then another process
        # takes it.
        except Exception as error:  # noqa: BLE001 - see above
            lost = False
            _log.warning("the claim %s was not renewed", self, exc_info=error)
        if lost:
            _log.warning("the claim %s was lost while a batch was handled", self)
        elif self._renewal is not None:
            self._schedule_renewal()

    async def move(self, cursor: str, *, release: bool = False) -> bool:
        """Record that the events before the cursor are handled; False if the claim is lost."""
        progress = self.progress.moved(cursor, self._end())
        self.early, self._paused_until = False, 0.0
        return await self._write(progress.released() if release else progress)

    async def fail(self, *, max_deliveries: int, events: int) -> None:
        """Record a failed delivery of so many events, and release the claim."""
        if self.early:
            await self.release()
        else:
            failed = self.progress.failed(self.now(), max_deliveries=max_deliveries, events=events)
            await self._write(failed)

    async def skip(self, cursor: str) -> None:
        """Record that the event before the cursor is a dead letter, and release the claim."""
        await self._write(self.progress.skipped(cursor, self.now()))

    async def release(self) -> None:
        """Release the claim, if this process has it.

        A store that fails is not tried again: then the claim ends by itself.
        """
        try:
            if self._uncertain:
                await self.read()
            if self.held:
                await self._write(self.progress.released(self._paused_until))
        except StoreError as error:
            _log.info("the claim %s is left to end by itself: %s", self, error)
        except Exception as error:  # noqa: BLE001 - a boundary: it must stop no group
            _log.error("the claim %s is left to end by itself", self, exc_info=error)

    async def _write(self, progress: Progress) -> bool:
        text, self.held = progress.encode(), False
        self._uncertain = True  # a write that fails or is cancelled may have happened
        written = await self._store.compare_and_set_mark(
            self._name, expected=self._text, value=text
        )
        self._uncertain = False
        if not written:
            return False
        self.progress, self._text = progress, text
        self.held = progress.owner is not None
        if self._old_name is not None and self._old_text is not None:
            old, self._old_text = self._old_text, None
            await self._store.compare_and_set_mark(self._old_name, expected=old, value=None)
        return True
