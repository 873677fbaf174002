"""Rates: so many requests in a time under a name, counted in one process or in all of a store.

The generic cell rate algorithm: a name is as many microseconds ahead of the present as the requests
that it was granted take at its rate. A request is granted as long as the name stays within its
window; so a full window may come at once, and after that one request for each interval.

Source: ITU-T I.371, Annex A.1; one number for each name, and the same decisions as a token bucket.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from lib._util.clock import SYSTEM_CLOCK, Clock

MAX_NAMES: Final = 65_536
MAX_COUNT: Final = 1_000_000_000
MAX_WINDOW_S: Final = 86_400
_MICRO: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` requests in `window_s` seconds, which may all come at once.

    Attributes:
        count: at least 1.
        window_s: seconds, at most a day.
    """

    count: int
    window_s: float = 60.0

    def __post_init__(self) -> None:
        """Refuse a rate at which nothing could happen, or whose times could not be counted."""
        if not 1 <= self.count <= MAX_COUNT:
            raise ValueError(f"expected a count of 1 to {MAX_COUNT}, got {self.count!r}")
        if not 0 < self.window_s <= MAX_WINDOW_S:
            raise ValueError(f"expected window_s above 0, at most a day, got {self.window_s!r}")

    @property
    def interval_us(self) -> int:
        """The microseconds that one request takes."""
        return max(1, int(self.window_s * _MICRO) // self.count)

    @property
    def window_us(self) -> int:
        """The microseconds that a name may be ahead."""
        return self.interval_us * self.count


class RateState(NamedTuple):
    """The room that a name has left after a request.

    Attributes:
        remaining: how many requests are granted if they come now.
        reset_s: seconds until the whole window is free again.
        retry_after_s: seconds until the request that was refused can be granted; 0.0 if this name
            did not refuse it.
    """

    remaining: int
    reset_s: float
    retry_after_s: float


def rate_state(ahead_us: int, rate: Rate, *, granted: bool) -> RateState:
    """Return what a name may do after a request.

    Args:
        ahead_us: how far the name was ahead before it.
        rate: of the name.
        granted: True if the request counts.
    """
    interval, window = rate.interval_us, rate.window_us
    after = ahead_us + interval if granted else ahead_us
    wait = 0 if granted else max(0, ahead_us + interval - window)
    return RateState(max(0, (window - after) // interval), after / _MICRO, wait / _MICRO)


def fits(ahead_us: int, rate: Rate) -> bool:
    """Return True if a name that is so far ahead may make one more request."""
    return ahead_us + rate.interval_us <= rate.window_us


class Rates:
    """The rates of one process. What it holds is bounded: the names of longest ago are forgotten.

    A forgotten name begins anew, which only a caller of so many names within a window can make use
    of; limit that caller under one name as well.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, max_names: int = MAX_NAMES) -> None:
        """Begin without a name.

        Args:
            clock: for the windows.
            max_names: how many are held.
        """
        self._clock, self._max_names = clock, max_names
        self._full_at = OrderedDict[str, int]()

    def __len__(self) -> int:
        """Return the number of names that are held."""
        return len(self._full_at)

    def take(self, wanted: Sequence[tuple[str, Rate]]) -> list[RateState]:
        """Count a request under all names, or under none if one of them refuses it."""
        now = int(self._clock.monotonic() * _MICRO)
        ahead = [max(0, self._full_at.get(name, now) - now) for name, _ in wanted]
        each = list(zip(wanted, ahead, strict=True))
        granted = all(fits(before, rate) for (_, rate), before in each)
        if granted:
            for (name, rate), before in each:
                self._full_at[name] = now + before + rate.interval_us
                self._full_at.move_to_end(name)
            while len(self._full_at) > self._max_names:
                self._full_at.popitem(last=False)
        return [rate_state(before, rate, granted=granted) for (_, rate), before in each]


class SharesRates:
    """Base class of the event stores that count requests of all their processes together."""

    async def take_rates(self, wanted: Sequence[tuple[str, Rate]]) -> list[RateState]:
        """Count a request under all names, or under none if one of them refuses it.

        Args:
            wanted: names, of any length, with their rates.

        Raises:
            StoreError: the server does not answer; the request may have been counted.
        """
        raise NotImplementedError
