"""One process's hold on one partition of a group, by compare-and-swap of one mark.

The clocks of the processes decide when a claim has ended: they should agree to within a part of
`lease_s`. A claim saves double work; that nothing is lost follows from the cursor, which moves
only after a delivery and only for whoever still has the claim.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import quote

from lib._util.clock import Clock
from lib.errors import StoreError
from lib.events.bus.place import Place, is_place
from lib.events.store import EventStore

_log = logging.getLogger(__name__)


class Claim:
    """The claim of this process, and what it knows of the place.

    Attributes:
        place: as it was read or written last.
        held: whether this process has the claim, as far as it knows.
        held_since: the clock's `monotonic` when it got it.
        early: whether it was taken before its pause was over, so that failures do not count.
    """

    def __init__(
        self,
        store: EventStore,
        group: str,
        partition: int,
        *,
        owner: str,
        lease_s: float,
        clock: Clock,
    ) -> None:
        """Know nothing yet, and hold nothing."""
        self.place = Place()
        self.held = False
        self.held_since = 0.0
        self.early = False
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
        self._unsure = False
        self._keeper: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        """Return the name of the mark."""
        return self._name

    def now(self) -> float:
        """Return the time of the clock in seconds, to the millisecond."""
        return int(self._clock.now().timestamp() * 1000) / 1000

    def _end(self) -> float:
        return self.now() + self._lease_s

    async def read(self) -> bool:
        """Read the place; return whether the group has been here before."""
        self._text = await self._store.mark(self._name)
        known = self._text
        if known is None and self._old_name is not None:
            old = await self._store.mark(self._old_name)
            if old is not None and not is_place(old):  # else it is that of another group
                known = self._old_text = old
        self.place = Place() if known is None else Place.decode(known)
        self.held, self._unsure = self.place.owner == self._owner, False
        return known is not None

    async def begin(self, cursor: str) -> None:
        """Let the group begin at the cursor, unless another process has let it begin."""
        await self._swap(Place(cursor=cursor))

    async def adopt(self) -> None:
        """Write the cursor of layout 1 down as a place."""
        if self._old_text is not None:
            await self._swap(self.place)

    async def take(self, *, early: bool, most: int, batch: int) -> bool:
        """Claim the partition; return whether this process has it now.

        Args:
            early: do not wait until a pause is over.
            most: after so many failed deliveries, events are delivered alone.
            batch: how many events that is for, if nobody has counted them.
        """
        await self.read()
        now, place = self.now(), self.place
        if not place.free(self._owner, now, early=early):
            return False
        self.early = place.owner is None and place.until > now
        self._paused_until = place.until if self.early else 0.0
        self.held_since = self._clock.monotonic()
        return await self._swap(place.claimed(self._owner, self._end(), most=most, batch=batch))

    async def hand_over(self, cursor: str) -> bool:
        """Write down which event is delivered alone, by the cursor after it; False if lost."""
        if self.place.hand == cursor:
            return await self.keep()
        return await self._swap(self.place.handed(cursor, self._end()))

    async def keep(self) -> bool:
        """Make sure that the claim lasts for most of `lease_s` from now; False if it is lost."""
        if self.place.until - self.now() > self._lease_s * 2 / 3:
            return True
        return await self._swap(replace(self.place, until=self._end()))

    @asynccontextmanager
    async def kept(self) -> AsyncGenerator[None]:
        """Renew the claim whenever a third of it is over, until the block ends."""
        self._wait_to_renew()
        try:
            yield
        finally:
            self._timer.cancel()
            if self._keeper is not None:  # not cancelled: one would not know what it has done
                keeper, self._keeper = self._keeper, None
                await asyncio.wait([keeper])

    def _wait_to_renew(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._lease_s / 3, self._start_to_renew)

    def _start_to_renew(self) -> None:
        self._keeper = asyncio.create_task(self._renew(), name=f"lib.{self._name}")

    async def _renew(self) -> None:
        try:
            lost = not await self._swap(replace(self.place, until=self._end()))
        # A boundary: whatever a store does wrong is borne for as long as the claim lasts; then
        # somebody takes it.
        except Exception as error:  # noqa: BLE001 - see above
            lost = False
            _log.warning("the claim %s was not renewed", self, exc_info=error)
        if lost:
            _log.warning("the claim %s was lost while a batch was handled", self)
        elif self._keeper is not None:
            self._wait_to_renew()

    async def move(self, cursor: str, *, release: bool = False) -> bool:
        """Write down that all before the cursor has been handled; False if the claim was lost."""
        place = self.place.moved(cursor, self._end())
        self.early, self._paused_until = False, 0.0
        return await self._swap(place.released() if release else place)

    async def fail(self, *, most: int, events: int) -> None:
        """Write down that a delivery of so many events has failed, and give the claim back."""
        if self.early:
            await self.give_back()
        else:
            await self._swap(self.place.failed(self.now(), most=most, events=events))

    async def bury(self, cursor: str) -> None:
        """Write down that the event before the cursor is a dead letter, and give the claim back."""
        await self._swap(self.place.buried(cursor, self.now()))

    async def give_back(self) -> None:
        """Let others have the claim; nothing if there is none.

        A store that fails is not tried again: then the claim ends by itself.
        """
        try:
            if self._unsure:
                await self.read()
            if self.held:
                await self._swap(self.place.released(self._paused_until))
        except StoreError as error:
            _log.info("the claim %s is left to end by itself: %s", self, error)
        except Exception as error:  # noqa: BLE001 - a boundary: it must stop no group
            _log.error("the claim %s is left to end by itself", self, exc_info=error)

    async def _swap(self, place: Place) -> bool:
        text, self.held = place.encode(), False
        self._unsure = True  # a swap that fails or is cancelled may have been made
        swapped = await self._store.swap_mark(self._name, expected=self._text, value=text)
        self._unsure = False
        if not swapped:
            return False
        self.place, self._text = place, text
        self.held = place.owner is not None
        if self._old_name is not None and self._old_text is not None:
            old, self._old_text = self._old_text, None
            await self._store.swap_mark(self._old_name, expected=old, value=None)
        return True
