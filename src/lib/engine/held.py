"""The lease of a run in the hands of this process: kept, and the measure of its patience."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeVar

from lib._util.clock import Clock
from lib.engine.outage import outlast
from lib.errors import RunAbandoned, StoreError
from lib.events import EventStore, Lease
from lib.events.runs import lease_length

T = TypeVar("T")

_log = logging.getLogger("lib.engine")


class HeldLease:
    """Renews a lease when a third of it is over.

    How long it lasts is measured by this process's clock, from before it was asked for: the store
    may go by another clock.

    Attributes:
        lease: as it is now.
    """

    def __init__(
        self, store: EventStore, lease: Lease, *, clock: Clock, lease_s: float, grace_s: float
    ) -> None:
        """Take a lease; `keep` renews it.

        Args:
            store: has given it.
            lease: the lease.
            clock: the time.
            lease_s: how long it lasts.
            grace_s: how long a store that fails is borne once `hurry` was called.
        """
        self.lease = lease
        self._store = store
        self._clock = clock
        self._lease_s = lease_s
        self._length = lease_length(lease_s)
        self._grace_s = grace_s
        self._until = clock.now() + self._length
        self._give_up: datetime | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._stopped = False

    @property
    def lasts(self) -> bool:
        """Whether nobody else may have it by now."""
        return self._clock.now() < self._until

    def keep(self, ended: Callable[[asyncio.Task[None]], None]) -> None:
        """Renew it from now on; `ended` is told of each attempt, above all of one that failed."""
        if self._stopped:  # while a store did not let go of a renewal
            return
        self._timer = asyncio.get_running_loop().call_later(
            self._length.total_seconds() / 3, self._start_to_renew, ended
        )

    def stop(self) -> None:
        """Keep it no longer, and never again."""
        self._stopped = True
        for each in (self._timer, self._keeper):
            if each is not None:
                each.cancel()

    def hurry(self) -> None:
        """Bear a store that fails for a short while only, from now on."""
        self._give_up = self._give_up or self._clock.now() + timedelta(seconds=self._grace_s)

    async def renew(self) -> None:
        """Renew it now.

        Raises:
            RunAbandoned: another worker has it.
        """
        until = self._clock.now() + self._length
        renewed = await self._store.renew(self.lease, ttl_s=self._lease_s)
        if renewed is None:
            raise RunAbandoned(self.lease.run_id, "another worker has its lease")
        self.lease, self._until = renewed, until

    async def outlast(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call again while the store fails and the lease lasts; return its result.

        Raises:
            StoreError: it fails in a way that does not pass, or has failed for too long.
        """
        what = f"run {self.lease.run_id!r}"
        return await outlast(call, what, clock=self._clock, until=self._patient_until)

    def _patient_until(self) -> datetime:
        return self._until if self._give_up is None else min(self._until, self._give_up)

    def _start_to_renew(self, ended: Callable[[asyncio.Task[None]], None]) -> None:
        self._keeper = asyncio.create_task(self._renew_and_wait(ended), name="lib.lease")
        self._keeper.add_done_callback(ended)

    async def _renew_and_wait(self, ended: Callable[[asyncio.Task[None]], None]) -> None:
        try:
            await self.outlast(self.renew)
        except StoreError as error:
            if not self.lasts:
                raise
            _log.warning("run %r: its lease was not renewed", self.lease.run_id, exc_info=error)
        self.keep(ended)
