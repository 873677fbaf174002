"""Brave's rate limits, as its headers tell them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

SECOND_S: Final = 1.0
SHORT_S: Final = 60.0
"""What is counted over more than this is a quota: nobody waits for it."""

_POLICY: Final = re.compile(r"\s*[0-9]+\s*;\s*w\s*=\s*([0-9]{1,9})\s*")
_NUMBER: Final = re.compile(r"\s*([0-9]{1,9})\s*")


@dataclass(frozen=True, slots=True)
class Window:
    """One of the spans of time over which requests are counted.

    Attributes:
        length_s: how long it is.
        limit: how many requests it takes; 0 is unlimited.
        remaining: how many are left.
        reset_s: when it begins anew.
    """

    length_s: float
    limit: float
    remaining: float
    reset_s: float

    @property
    def empty(self) -> bool:
        """Whether no request is left in it."""
        return self.limit > 0 and self.remaining <= 0


def windows(headers: Mapping[str, str]) -> list[Window]:
    """Return the windows that an answer's headers tell of, none where they cannot be read.

    Source: https://api-dashboard.search.brave.com/documentation/guides/rate-limiting (2026-11):
    `X-RateLimit-Policy: 1;w=1, 15000;w=2592000`, and `-Limit`, `-Remaining` and `-Reset` in the
    same order.
    """
    resets = _numbers(headers, "reset", _NUMBER)
    lengths = _numbers(headers, "policy", _POLICY) or resets
    limits, remaining = (_numbers(headers, name, _NUMBER) for name in ("limit", "remaining"))
    return [Window(*told) for told in zip(lengths, limits, remaining, resets, strict=False)]


def wait_s(headers: Mapping[str, str], body: Mapping[str, Any] | None) -> float | None:
    """Return how long to wait after a 429, or None where a quota is used up.

    Args:
        headers: of the answer.
        body: its error, which holds the quota, too.
    """
    empty = [window for window in windows(headers) if window.empty]
    if _quota_used_up(body) or any(window.length_s > SHORT_S for window in empty):
        return None
    return max([SECOND_S, *(window.reset_s for window in empty)])


def _numbers(headers: Mapping[str, str], name: str, form: re.Pattern[str]) -> list[float]:
    told = headers.get(f"x-ratelimit-{name}", "")
    found = [form.fullmatch(part) for part in told.split(",")[:8]]
    numbers = [float(each[1]) for each in found if each]
    return numbers if len(numbers) == len(found) else []


def _quota_used_up(body: Mapping[str, Any] | None) -> bool:
    meta: Any = body
    for name in ("error", "meta"):
        meta = cast(dict[str, Any], meta).get(name) if isinstance(meta, dict) else None
    if not isinstance(meta, dict):
        return False
    limit, current = (cast(dict[str, Any], meta).get(f"quota_{n}") for n in ("limit", "current"))
    if not isinstance(limit, int) or not isinstance(current, int):
        return False
    return 0 < limit <= current
