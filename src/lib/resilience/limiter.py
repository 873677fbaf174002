"""A rate limiter: requests and tokens a minute, counted in a process or in the store of several."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

from lib._util.attempts import count
from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.errors import RateLimited, StoreError
from lib.resilience.deadlines import time_left_s
from lib.resilience.window import HORIZON_S, Limits, Window, window_of

T = TypeVar("T")

MAX_PER_MINUTE: Final = 1_000_000_000
_log = logging.getLogger("lib.resilience")


class SharedMarks(Protocol):
    """The part of an event store in which processes share a limiter."""

    async def mark(self, name: str) -> str | None:
        """Return the value of a mark, or None."""
        ...

    async def compare_and_set_mark(
        self, name: str, *, expected: str | None, value: str | None
    ) -> bool:
        """Set a mark if its value is the expected one; return True if it was."""
        ...


@dataclass(slots=True)
class Permit:
    """The permission to make one call now.

    Attributes:
        waited_s: how long the call has waited for it.
        tokens: what is counted for the call.
    """

    second: int
    tokens: int
    waited_s: float = 0.0


class RateLimiter:
    """Lets calls go as fast as an account may: no minute holds more than its limits.

    One object for each account and model, shared by all that call it. Calls get their turn in the
    order in which they come; a small one may use room that a large one before it cannot. A call
    that would have to wait longer than `max_wait_s` is refused at once.

    With a `store`, all processes that give it the same `name` share the limits. Their clocks should
    agree to a second. While the store fails, each process counts for itself. What a process that
    died has taken is free again after a minute.

    It may be used from several threads and event loops; a store belongs to one of them.

    Attributes:
        name: of what is limited.
    """

    def __init__(
        self,
        name: str = "the service",
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        max_wait_s: float = 120.0,
        store: SharedMarks | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Begin with nothing used.

        Args:
            name: of what is limited, such as the model and the account; with a store, processes
                share the limits by it.
            requests_per_minute: None for no limit.
            tokens_per_minute: input and output together; None for no limit. A call is counted by an
                estimate, which its usage then corrects. One above the limit takes a minute alone.
            max_wait_s: how long a call may have to wait, at most an hour.
            store: an event store, which is yours to open and close.
            clock: measures and waits.

        Raises:
            ValueError: a number that makes no sense, no limit at all, or a store without a name.
        """
        for limit in (requests_per_minute, tokens_per_minute):
            if limit is not None and not 1 <= limit <= MAX_PER_MINUTE:
                raise ValueError(f"expected 1 to {MAX_PER_MINUTE} a minute, got {limit!r}")
        if requests_per_minute is None and tokens_per_minute is None:
            raise ValueError("expected requests_per_minute, tokens_per_minute or both, got neither")
        if not 0 <= max_wait_s <= HORIZON_S:
            raise ValueError(f"expected max_wait_s of 0 to {HORIZON_S}, got {max_wait_s!r}")
        if store is not None and name == "the service":
            raise ValueError("a limiter in a store needs a name: RateLimiter('openai/gpt-5', …)")
        self.name: str = name
        self._limits = Limits(requests_per_minute, tokens_per_minute)
        self._max_wait_s = max_wait_s
        self._store, self._clock = store, clock
        self._own = Window()
        self._own_lock = threading.Lock()
        self._store_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )
        self._store_failed = False

    async def acquire(self, tokens: int = 0) -> Permit:
        """Wait until a call may be made. A cancelled wait takes nothing.

        Args:
            tokens: how many it is estimated to use, input and output.

        Raises:
            RateLimited: the wait would be longer than `max_wait_s`, or than the time that the
                caller's deadline leaves.
        """
        permit = Permit(0, self._limits.capped(max(0, tokens)))
        began, longest_s = self._clock.monotonic(), self._max_wait_s
        if (left_s := time_left_s()) is not None:
            longest_s = min(longest_s, left_s)
        ends = began + longest_s
        due = await self._change(lambda window: self._reserve(window, permit, ends), permit)
        try:
            while not due:
                await self._clock.sleep(max(0.0, permit.second - self._now_s()))
                due = await self._is_due(permit, ends)
        except BaseException:
            await self.cancel(permit)
            raise
        permit.waited_s = self._clock.monotonic() - began
        count("waited_s", permit.waited_s)
        return permit

    async def settle(self, permit: Permit, tokens: int) -> None:
        """Count the tokens that a call has used in the place of their estimate."""
        more = tokens - permit.tokens
        if more and self._limits.tokens is not None:
            permit.tokens = tokens
            await self._change(lambda window: window.add(permit.second, 0, more))

    async def cancel(self, permit: Permit) -> None:
        """Give a permit back: the call was not made."""
        await self._change(lambda window: window.add(permit.second, -1, -permit.tokens))

    async def pause(self, seconds: float) -> None:
        """Let no call go for so long, in any process: as a server requests."""
        until = math.ceil(self._now_s() + min(seconds, HORIZON_S - 1))

        def change(window: Window) -> None:
            window.paused_until = max(window.paused_until, until)

        if seconds > 0:
            await self._change(change)

    def _now_s(self) -> float:
        """Return the present: of all machines where they share the limits."""
        return self._clock.monotonic() if self._store is None else self._clock.now().timestamp()

    def _reserve(self, window: Window, permit: Permit, ends: float) -> bool:
        """Take the first second that has room for a call; return True if it is the present one.

        Raises:
            RateLimited: it is too late.
        """
        now = self._now_s()
        second = window.first_free(self._limits, permit.tokens, math.floor(now))
        wait_s = max(0.0, second - now)
        longest_s = max(0.0, ends - self._clock.monotonic())
        if wait_s > longest_s:
            raise RateLimited(self.name, retry_after_s=wait_s, max_wait_s=longest_s)
        window.add(second, 1, permit.tokens)
        permit.second = second
        return wait_s == 0

    async def _is_due(self, permit: Permit, ends: float) -> bool:
        """Return True if the call may be made in the second that it has got.

        After a pause, or if the process was late, it gets another one.
        """
        held = permit.second

        def change(window: Window) -> bool:
            now = self._now_s()
            permit.second = held
            if now < held:
                return False
            if held == math.floor(now) and window.paused_until <= now:
                return True
            window.add(held, -1, -permit.tokens)
            try:
                return self._reserve(window, permit, ends)
            except RateLimited:
                window.add(held, 1, permit.tokens)  # the caller gives it back
                raise

        return await self._change(change)

    # -- where it is counted -----------------------------------------------------------------

    async def _change(self, change: Callable[[Window], T], permit: Permit | None = None) -> T:
        """Return what a change of the window returns. What it raises leaves the window as it was.

        Args:
            change: it may be called several times, each time with the present window.
            permit: what it takes, to be given back if the caller is cancelled meanwhile.
        """
        if self._store is None:
            return self._change_own(change)
        task = asyncio.ensure_future(self._change_shared(self._store, change))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            if permit is not None and not task.cancelled() and task.exception() is None:
                await self.cancel(permit)
            raise

    def _change_own(self, change: Callable[[Window], T]) -> T:
        with self._own_lock:
            self._own.forget(math.floor(self._now_s()))
            return change(self._own)

    async def _change_shared(self, store: SharedMarks, change: Callable[[Window], T]) -> T:
        name = f"lib.resilience/rate/{self.name}"
        loop = asyncio.get_running_loop()
        # One at a time: only other processes can come between.
        async with self._store_locks.setdefault(loop, asyncio.Lock()):
            try:
                while True:
                    text = await store.mark(name)
                    window = window_of(text)
                    window.forget(math.floor(self._now_s()))
                    result = change(window)
                    if await store.compare_and_set_mark(
                        name, expected=text, value=window.to_text()
                    ):
                        self._store_failed = False
                        return result
            except StoreError as error:
                if not self._store_failed:
                    self._store_failed = True
                    what = "the rate of %s is counted in this process alone, its store failed: %s"
                    _log.warning(what, self.name, error)
        return self._change_own(change)
