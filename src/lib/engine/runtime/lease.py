"""Renews the lease of a run; store calls are retried until it expires."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final, TypeVar

from lib._util.clock import Clock
from lib.errors import RunAbandoned, StoreError
from lib.events import EventStore, Lease
from lib.events.runs import lease_length

T = TypeVar("T")

_log = logging.getLogger("lib.engine")

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0


async def retry_while_held(
    call: Callable[[], Awaitable[T]], what: str, *, clock: Clock, until: Callable[[], datetime]
) -> T:
    """Make a call again and again while it fails in a way that may pass; return its result.

    Args:
        call: what may be done twice.
        what: is it, for the log.
        clock: the time.
        until: returns the time to give up; it may change meanwhile.

    Raises:
        StoreError: it fails in a way that does not pass, or has failed for too long.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return await call()
        except StoreError as error:
            if not error.retryable or clock.now() >= until():
                raise
            if pause_s == FIRST_PAUSE_S:
                _log.warning("%s: the store fails, trying again: %s", what, error)
        await clock.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


class LeaseKeeper:
    """Renews a lease when a third of it is over.

    Its expiry is measured by the clock of this process, from before each renewal: the store may
    have another clock.

    Attributes:
        lease: as it is now.
    """

    def __init__(
        self, store: EventStore, lease: Lease, *, clock: Clock, lease_s: float, grace_s: float
    ) -> None:
        """Take a lease; `start` renews it.

        Args:
            store: grants it.
            lease: the lease.
            clock: the time.
            lease_s: how long it lasts.
            grace_s: how long store calls are retried once `shorten_deadline` was called.
        """
        self.lease: Lease = lease
        self._what = f"run {lease.run_id!r}"
        self._store = store
        self._clock = clock
        self._lease_s = lease_s
        self._length = lease_length(lease_s)
        self._grace_s = grace_s
        self._until = clock.now() + self._length
        self._shortened: datetime | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._stopped = False

    @property
    def is_valid(self) -> bool:
        """True while no other worker can have it."""
        return self._clock.now() < self._until

    def start(self, on_end: Callable[[asyncio.Task[None]], None]) -> None:
        """Renew it from now on; `on_end` is called with the task of each renewal."""
        if self._stopped:  # while a store did not let go of a renewal
            return
        self._timer = asyncio.get_running_loop().call_later(
            self._length.total_seconds() / 3, self._start_to_renew, on_end
        )

    def stop(self) -> None:
        """Stop renewing it for good."""
        self._stopped = True
        for each in (self._timer, self._renewal):
            if each is not None:
                each.cancel()

    def shorten_deadline(self) -> None:
        """Retry store calls for `grace_s` only, from now on."""
        self._shortened = self._shortened or self._clock.now() + timedelta(seconds=self._grace_s)

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

    async def retry_while_held(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call again while the store fails and the lease lasts; return its result.

        Raises:
            StoreError: it fails in a way that does not pass, or has failed for too long.
        """
        return await retry_while_held(call, self._what, clock=self._clock, until=self._deadline)

    def _deadline(self) -> datetime:
        return self._until if self._shortened is None else min(self._until, self._shortened)

    def _start_to_renew(self, on_end: Callable[[asyncio.Task[None]], None]) -> None:
        self._renewal = asyncio.create_task(self._renew_and_wait(on_end), name="lib.lease")
        self._renewal.add_done_callback(on_end)

    async def _renew_and_wait(self, on_end: Callable[[asyncio.Task[None]], None]) -> None:
        try:
            await self.retry_while_held(self.renew)
        except StoreError as error:
            if not self.is_valid:
                raise
            _log.warning("run %r: its lease was not renewed", self.lease.run_id, exc_info=error)
        self.start(on_end)
