"""Turns at what is shared, so that no party uses it up: few for each party, some for all."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final

_SHORT: Final = 3
_LABELS: Final = 2


def party_of(host: str) -> str:
    """Return the party behind a host: its registered domain, or the address.

    A label of up to three letters below the last one, as in `co.uk`, counts as a part of it.
    """
    try:
        return str(ip_address(host))
    except ValueError:
        labels = host.lower().split(".")
    kept = _LABELS
    if len(labels) > _LABELS and len(labels[-2]) <= _SHORT:
        kept += 1
    return ".".join(labels[-kept:])


class FairTurns:
    """Turns of one event loop: the first that waits and whose party has room is next."""

    def __init__(self, each: int, all_: int) -> None:
        """Prepare.

        Args:
            each: how many turns a party has at once.
            all_: how many there are at once.
        """
        self._each, self._all = each, all_
        self._busy: Counter[str] = Counter()
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def turn(self, party: str) -> AsyncGenerator[None]:
        """Wait for a turn, and have it for the block."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append((party, waiting))
        self._next()
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self._leave(party)
            raise
        try:
            yield
        finally:
            self._leave(party)

    def _leave(self, party: str) -> None:
        self._busy[party] -= 1
        self._busy += Counter()  # drops what is zero
        self._next()

    def _next(self) -> None:
        held: deque[tuple[str, asyncio.Future[None]]] = deque()
        while self._waiting:
            party, waiting = self._waiting.popleft()
            if waiting.done():
                continue
            if self._busy.total() < self._all and self._busy[party] < self._each:
                self._busy[party] += 1
                waiting.set_result(None)
            else:
                held.append((party, waiting))
        self._waiting = held


class LoopTurns:
    """Turns of each event loop."""

    def __init__(self, each: int, all_: int) -> None:
        """Prepare; see `FairTurns`."""
        self._each, self._all = each, all_
        self._turns: dict[asyncio.AbstractEventLoop, FairTurns] = {}

    def here(self) -> FairTurns:
        """Return those of this event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._turns:
            for ended in [each for each in list(self._turns) if each.is_closed()]:
                self._turns.pop(ended, None)
            self._turns[loop] = FairTurns(self._each, self._all)
        return self._turns[loop]
