"""A limit of CPU time for work in a thread, and its cancellation.

A thread cannot be stopped from outside, and asyncio's time-outs leave it running. Code that loops
over untrusted content calls `check` now and then, which ends the work once its time is used up or
its caller has stopped waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar


class EffortSpent(Exception):
    """The work was cancelled, or its time was used up."""


class Effort:
    """CPU time for work in one thread; another thread may cancel it."""

    def __init__(self, cpu_s: float, *, clock: Callable[[], float] = time.thread_time) -> None:
        """Prepare; time counts within `counting`.

        Args:
            cpu_s: seconds of CPU of the thread that works.
            clock: returns how many seconds the calling thread has worked.
        """
        self._cpu_s, self._clock = cpu_s, clock
        self._end: float | None = None
        self._cancelled = threading.Event()

    @contextmanager
    def counting(self) -> Generator[None]:
        """Limit the work of the block, which is done in this thread and context."""
        self._end = self._clock() + self._cpu_s
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def cancel(self) -> None:
        """Cancel the work: the next `check` ends it."""
        self._cancelled.set()

    def check(self) -> None:
        """Return if there is time left.

        Raises:
            EffortSpent: there is none, or the work was cancelled.
        """
        if self._cancelled.is_set() or (self._end is not None and self._clock() > self._end):
            raise EffortSpent


_current: ContextVar[Effort | None] = ContextVar("effort", default=None)


def check() -> None:
    """End the work of this context if its time is used up; without a limit nothing happens.

    Raises:
        EffortSpent: it is.
    """
    effort = _current.get()
    if effort is not None:
        effort.check()
