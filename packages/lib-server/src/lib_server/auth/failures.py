"""Counts refused credentials by the caller's address, and stops those that guess."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

from lib._util.clock import SYSTEM_CLOCK, Clock

MAX_FAILURES: Final = 20
WINDOW_S: Final = 60.0
MAX_ADDRESSES: Final = 10_000
MAX_ADMITTED: Final = 4096


@dataclass(slots=True)
class _Window:
    began_at: float
    failures: int


class FailureLimit:
    """Allows each address so many refused credentials in a window of time.

    After that, a request from there is refused before its credential is looked at, until the window
    ends, unless it carries one that was admitted a short while ago: behind one proxy, who guesses
    does not lock out those who are at work. An IPv6 address counts as its network of 64 bits.
    """

    def __init__(
        self,
        *,
        max_failures: int = MAX_FAILURES,
        window_s: float = WINDOW_S,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Begin without failures.

        Args:
            max_failures: of an address in a window.
            window_s: from the first failure on, in seconds.
            clock: for the windows.
        """
        self._max_failures, self._window_s, self._clock = max_failures, window_s, clock
        self._windows = OrderedDict[str, _Window]()
        self._admitted = OrderedDict[bytes, float]()

    def retry_after_s(self, address: str, authorization: str | None) -> float | None:
        """Return the seconds until a request may be made again, None if it may be made now."""
        if not self._windows:
            return None
        window = self._current(_network(address))
        if window is None or window.failures < self._max_failures:
            return None
        admitted_at = self._admitted.get(_digest(authorization))
        now = self._clock.monotonic()
        if admitted_at is not None and now - admitted_at < self._window_s:
            return None
        return window.began_at + self._window_s - now

    def note_failure(self, address: str, authorization: str | None) -> None:
        """Count a refused credential; a missing one is no guess."""
        self._admitted.pop(_digest(authorization), None)
        if authorization is None:
            return
        network = _network(address)
        window = self._current(network)
        if window is None:
            window = self._windows[network] = _Window(self._clock.monotonic(), 0)
            self._windows.move_to_end(network)
        window.failures += 1
        if len(self._windows) > MAX_ADDRESSES:
            self._windows.popitem(last=False)

    def note_admission(self, authorization: str | None) -> None:
        """Remember a credential that was admitted, by its digest."""
        name = _digest(authorization)
        self._admitted[name] = self._clock.monotonic()
        self._admitted.move_to_end(name)
        if len(self._admitted) > MAX_ADMITTED:
            self._admitted.popitem(last=False)

    def _current(self, network: str) -> _Window | None:
        window = self._windows.get(network)
        if window is not None and self._clock.monotonic() - window.began_at >= self._window_s:
            del self._windows[network]
            return None
        return window


def _network(address: str) -> str:
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return parsed.packed[:8].hex()


def _digest(authorization: str | None) -> bytes:
    return hashlib.sha256((authorization or "").encode("utf-8", "surrogatepass")).digest()
