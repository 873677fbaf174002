"""The grants of a rate limiter: requests and tokens by second, in the past and ahead.

A call gets the first second in which no window of a minute comes to hold more than the limits, and
what it takes is written down for that second. So a call that comes later fills the room that is
left and never delays one that came before; a large call is not overtaken for ever by small ones.

A request may go out at any moment of its second. Therefore `SECONDS` consecutive seconds are kept
under a limit: they contain each window of 60 s, wherever it begins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

SECONDS: Final = 61
HORIZON_S: Final = 3_600
"""How far ahead a second is granted, and the longest pause."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The requests and tokens that a minute may hold; None is unlimited."""

    requests: int | None
    tokens: int | None

    def capped(self, tokens: int) -> int:
        """Return what a call of so many tokens takes: at most a whole minute's."""
        return tokens if self.tokens is None else min(tokens, self.tokens)


@dataclass(slots=True)
class Window:
    """The seconds that have something in them, and the second until which all calls wait."""

    used: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    paused_until: int = 0

    def first_free(self, limits: Limits, tokens: int, now: int) -> int:
        """Return the first second, from `now` on, that has room for a call."""
        earliest = now
        if now < self.paused_until <= now + HORIZON_S:  # else a clock was wrong
            earliest = self.paused_until
        begin = earliest - SECONDS + 1
        requests, of_tokens = self._total(begin, begin + SECONDS - 1)
        fitting = 0
        second, last = earliest, max(self.used, default=earliest)
        while True:  # the window of SECONDS that ends with `second`
            requests_in, tokens_in = self.used.get(second, (0, 0))
            requests, of_tokens = requests + requests_in, of_tokens + tokens_in
            fits = (limits.requests is None or requests < limits.requests) and (
                limits.tokens is None or of_tokens + tokens <= limits.tokens
            )
            fitting = fitting + 1 if fits else 0
            # All windows that contain a second are those that end with it and with the 60 next.
            if fitting == SECONDS or (fits and second >= last):
                return second - fitting + 1
            leaving = self.used.get(second - SECONDS + 1, (0, 0))
            requests, of_tokens = requests - leaving[0], of_tokens - leaving[1]
            second += 1

    def add(self, second: int, requests: int, tokens: int) -> None:
        """Count what a call takes in a second, or give it back."""
        before = self.used.get(second, (0, 0))
        after = (max(0, before[0] + requests), max(0, before[1] + tokens))
        self.used[second] = after
        if after == (0, 0):
            del self.used[second]

    def forget(self, now: int) -> None:
        """Drop the seconds that no window reaches any more, and those of wrong clocks."""
        for second in [s for s in self.used if not now - SECONDS < s <= now + HORIZON_S]:
            del self.used[second]

    def to_text(self) -> str:
        """Return the window as JSON."""
        used = {str(second): taken for second, taken in sorted(self.used.items())}
        return json.dumps({"used": used, "paused_until": self.paused_until}, separators=(",", ":"))

    def _total(self, begin: int, end: int) -> tuple[int, int]:
        """Return what the seconds from `begin` up to and without `end` hold."""
        held = [taken for second, taken in self.used.items() if begin <= second < end]
        return sum(taken[0] for taken in held), sum(taken[1] for taken in held)


def window_of(text: str | None) -> Window:
    """Return the window that `Window.to_text` has written, an empty one of what is no such text."""
    try:
        value: Any = json.loads(text or "{}")
        used = cast("Mapping[str, list[int]]", value.get("used", {}))
        window = Window({int(s): (int(taken[0]), int(taken[1])) for s, taken in used.items()})
        window.paused_until = int(value.get("paused_until", 0))
    except (ValueError, TypeError, AttributeError, IndexError):
        return Window()
    return window
