"""The time axis of a trace: its ticks, and the stretch that a bar covers. Pure.

Times are whole microseconds from the first moment of the trace, so nothing is rounded before it is
drawn. Clocks of processes differ: what hangs under a span can begin before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from lib.observe.span import Span

_US: Final = timedelta(microseconds=1)
_MS, _S, _M, _H, _D = 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
_STEPS: Final = (
    *(factor * 10**power for power in range(7) for factor in (1, 2, 5)),
    *(seconds * _S for seconds in (10, 15, 30)),
    *(minutes * _M for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * _H for hours in (1, 2, 3, 6, 12)),
)
"""What people like to count in, up to half a day; from there on it is days."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The time from the first moment of a trace to its last, at least a microsecond."""

    start: datetime
    length_us: int

    def offset_us(self, at: datetime) -> int:
        """Return how long after the first moment that is, at most the length of the axis."""
        return min(max((at - self.start) // _US, 0), self.length_us)

    def end_us(self, span: Span) -> int:
        """Return where a span ends; an open one goes on to the last moment there is."""
        return self.length_us if span.end is None else self.offset_us(span.end)


@dataclass(frozen=True, slots=True)
class Stretch:
    """The half cells that a bar covers; a moment begins and ends in one."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on the axis, at a cell."""

    cell: int
    label: str


def axis_of(spans: Sequence[Span]) -> Axis:
    """Return the axis of a trace of at least one span; moments of spans count, too.

    Scores do not: a person may judge a run days after it has ended.
    """
    drawn = [span for span in spans if span.kind != "evaluator"] or spans
    start = min(span.start for span in drawn)
    last = max(max(_times(span)) for span in drawn)
    return Axis(start, max((last - start) // _US, 1))


def _times(span: Span) -> Iterator[datetime]:
    yield span.end or span.start
    yield from (event.at for event in span.events)


def stretch(axis: Axis, span: Span, cells: int) -> Stretch:
    """Return which half cells of so many cells a span covers; whatever takes time covers one."""
    begin_us, end_us = axis.offset_us(span.start), axis.end_us(span)
    begin = min(begin_us * 2 * cells // axis.length_us, 2 * cells - 1)
    if end_us <= begin_us:
        return Stretch(begin, begin)
    return Stretch(begin, max(-(-end_us * 2 * cells // axis.length_us), begin + 1))


def ticks(axis: Axis, cells: int, *, apart: int) -> list[Tick]:
    """Return marks for so many cells, at round times and at least `apart` cells from each other."""
    least = apart * axis.length_us
    days = -(-least // (cells * _D)) * _D
    step = next((step for step in _STEPS if step * cells >= least), days)
    times = range(0, axis.length_us, step)
    return [Tick(time * cells // axis.length_us, label(time)) for time in times]


def label(time_us: int) -> str:
    """Return a time since the beginning exactly, such as `250 ms` and `1 m 30.5 s`."""
    if time_us < _S:
        return f"{_exact(time_us / _MS)} ms" if time_us else "0"
    parts: list[str] = []
    for size, unit in ((_D, "d"), (_H, "h"), (_M, "m")):
        whole, time_us = divmod(time_us, size)
        parts += [f"{whole} {unit}"] if whole else []
    return " ".join([*parts, f"{_exact(time_us / _S)} s"] if time_us else parts)


def _exact(number: float) -> str:
    return f"{number:.6f}".rstrip("0").rstrip(".")
