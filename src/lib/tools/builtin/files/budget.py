"""Bounds the work of one read or listing, which another thread can cancel."""

from __future__ import annotations

import threading
from typing import Final, Literal

from lib._util.clock import SYSTEM_CLOCK, Clock

SCAN_BYTES: Final = 64 << 20
"""How many bytes are looked through for the first requested line."""
SCAN_S: Final = 10.0
"""How many seconds looking for a place may take."""

Spent = Literal["bytes", "time", "cancelled"]


class BudgetSpent(Exception):
    """The work stopped before its end; `reason` says why."""

    def __init__(self, reason: Spent) -> None:
        self.reason: Spent = reason
        super().__init__(reason)


class Budget:
    """Bytes and seconds for one call; another thread may call it off."""

    def __init__(
        self, *, scan_bytes: int = SCAN_BYTES, scan_s: float = SCAN_S, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """Start the clock."""
        self._bytes = scan_bytes
        self._clock = clock
        self._deadline = clock.monotonic() + scan_s
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Call the work off: the next `spend` raises."""
        self._cancelled.set()

    def spend(self, count: int = 0) -> None:
        """Take bytes from the budget.

        Raises:
            BudgetSpent: nothing is left, or the work was called off.
        """
        self._bytes -= count
        if self._cancelled.is_set():
            raise BudgetSpent("cancelled")
        if self._bytes < 0:
            raise BudgetSpent("bytes")
        if self._clock.monotonic() > self._deadline:
            raise BudgetSpent("time")
