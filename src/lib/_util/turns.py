"""Gives other tasks their turn where calls answer without waiting for anything.

A coroutine that never waits keeps the event loop to itself: a thousand such calls in a row, or in a
`gather`, are one round of it, in which no timer fires. A call that begins with `turn()` waits for
another round once such calls have worked for a millisecond in this one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final
from weakref import WeakKeyDictionary

_MOST_S: Final = 0.001
_CALLS_A_ROUND: Final = 3
"""So many of those that wait go on in one round; each works for some 0.3 ms at most."""


async def turn() -> None:
    """Return at once, unless such calls have worked for a millisecond since the loop went round."""
    loop = asyncio.get_running_loop()
    rounds = _rounds.get(loop)
    if rounds is None:
        rounds = _rounds[loop] = _Rounds()
    if not rounds.begin(loop):
        await rounds.another(loop)


class _Rounds:
    """The beginning of an event loop's current round, and the tasks that wait for a later one."""

    def __init__(self) -> None:
        self._began: float | None = None  # when the first call of this round came
        self._waiting = deque[asyncio.Future[None]]()

    def begin(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return True if a call may go on in this round."""
        if self._began is None:
            self._began = loop.time()
            loop.call_soon(self._end, loop)
            return True
        return not self._waiting and loop.time() - self._began < _MOST_S

    async def another(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for a later round."""
        waiting = loop.create_future()
        self._waiting.append(waiting)
        await waiting

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the round, and let the first calls that wait go on in the next."""
        self._began = None
        released = 0
        while self._waiting and released < _CALLS_A_ROUND:
            waiting = self._waiting.popleft()
            if not waiting.done():  # else its task was cancelled
                waiting.set_result(None)
                released += 1
        if released:
            self._began = loop.time()
            loop.call_soon(self._end, loop)


_rounds: Final = WeakKeyDictionary[asyncio.AbstractEventLoop, _Rounds]()
