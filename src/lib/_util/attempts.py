"""Counts of what a call took, such as retries and waits: kept for its log by the code below it.

The writer of the log opens a count around the call; the code below adds to it, in tasks and
threads too. Without one nothing is counted.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

Counted = Literal["retries", "waited_s", "hedges", "fallbacks"]

_CURRENT: ContextVar[dict[str, float] | None] = ContextVar("attempts", default=None)


@contextmanager
def counting() -> Generator[dict[str, float]]:
    """Yield the counts of the block, which an outer one does not get."""
    counts: dict[str, float] = {}
    token = _CURRENT.set(counts)
    try:
        yield counts
    finally:
        _CURRENT.reset(token)


def count(what: Counted, amount: float = 1) -> None:
    """Add to the innermost count."""
    counts = _CURRENT.get()
    if counts is not None and amount:
        counts[what] = counts.get(what, 0) + amount


def counted_facts(counts: Mapping[str, float]) -> dict[str, float]:
    """Return the counts as fields of an event, seconds with three places."""
    return {what: round(amount, 3) for what, amount in counts.items() if amount}
