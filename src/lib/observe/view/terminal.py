"""A trace as a tree for people: kind, name, duration, tokens, status, and what it comes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from lib.observe.span import Span
from lib.observe.view.pen import MAX_STATUS, Pen, pen_for
from lib.observe.view.tree import Row, rows, totals

_GAP: Final = 2
_MIN_NAME: Final = 16


def render_trace(spans: Sequence[Span]) -> TraceView:
    """Return the spans of a trace, parents first, as a tree that rich can print.

    It is as wide as the console at most: names are cut, and tokens left out where there is no room.
    """
    return TraceView(spans)


class TraceView:
    """A tree of spans; in plain ASCII where the console's encoding has nothing else."""

    def __init__(self, spans: Sequence[Span]) -> None:
        """Take the spans, parents first."""
        self._spans = spans

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield a line for each span, and one of totals."""
        pen = pen_for(options)
        lines = [_cells(pen, row) for row in rows(self._spans)]
        if lines:
            widths = _widths(lines, options.max_width)
            for line in lines:
                first, *numbers, status = line
                status = pen.cut(status, widths[-1])
                yield _joined([pen.cut(first, widths[0]), *numbers, status], widths)
            yield from pen.totals(totals(self._spans), options.max_width)


def _cells(pen: Pen, row: Row) -> Sequence[Text]:
    """Return the name with its branches, the duration, the tokens and the status."""
    span = row.span
    return pen.name(row), pen.took(span), pen.tokens(span.attributes), pen.status(span)


def _widths(lines: Sequence[Sequence[Text]], room: int) -> list[int]:
    """Return the width of each column; tokens and then durations give way to names."""
    widths = [max(cell.cell_len for cell in column) for column in zip(*lines, strict=True)]
    longest = widths[-1]
    widths[-1] = min(longest, MAX_STATUS)
    for column in (2, 1):
        if _left(widths, room) < min(_MIN_NAME, widths[0]):
            widths[column] = 0
    widths[-1] = min(longest, widths[-1] + max(_left(widths, room) - widths[0], 0))
    return [max(min(widths[0], _left(widths, room)), 1), *widths[1:]]


def _left(widths: Sequence[int], room: int) -> int:
    return room - sum(width + _GAP for width in widths[1:] if width)


def _joined(cells: Sequence[Text], widths: Sequence[int]) -> Text:
    """Return the cells as one line: the first one left, numbers right, the status as it is."""
    first, *numbers, status = cells
    line = first.copy()
    line.append(" " * (widths[0] - first.cell_len))
    for cell, width in zip(numbers, widths[1:-1], strict=True):
        if width:
            line.append(" " * (_GAP + width - cell.cell_len)).append_text(cell)
    line.append(" " * _GAP).append_text(status)
    line.no_wrap, line.overflow = True, "crop"
    return line
