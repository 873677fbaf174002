"""A trace as a waterfall for a terminal: the tree, and each span's place in time beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from lib.observe import attributes as a
from lib.observe.span import Span
from lib.observe.view.axis import Axis, Stretch, Tick, axis_of, stretch, ticks
from lib.observe.view.glyphs import COLOURS
from lib.observe.view.terminal import MAX_STATUS, STATE_COLOURS, Pen, pen_for
from lib.observe.view.tree import Row, rows, totals
from lib.observe.view.words import (
    CONVERSATIONS,
    count,
    dead_times,
    is_waiting,
    last_message,
    state_of,
)

_GAP: Final = 2
_MIN_NAME: Final = 16
_MIN_BAR: Final = 16
_TICKS_APART: Final = 10
_FEW_WORDS: Final = 14
_MIN_STATUS: Final = 6
"""Cells; a narrower status shows its mark only."""

_MAX_CONTENT: Final = 2_000
"""Characters of content that are looked at, to fill a line of which fewer are shown."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A row of the tree, and how many spans below it are left out."""

    row: Row
    below: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The widths of the columns; 0 leaves a column out."""

    name: int
    took: int
    bar: int
    used: int
    status: int


def select(tree: Sequence[Row], *, depth: int | None, limit: int | None) -> list[Shown]:
    """Return the rows to show.

    Args:
        tree: all rows.
        depth: levels of them, 1 for the top alone; None for all.
        limit: how many rows at most, from the top; None for all.
    """
    out: list[Shown] = []
    for row in tree:
        if depth is not None and row.depth >= depth:
            out[-1] = Shown(out[-1].row, out[-1].below + 1)
        elif limit is not None and len(out) == limit:
            break
        else:
            out.append(Shown(row))
    return out


def columns(room: int, natural: Columns, mark: int) -> Columns:
    """Return how wide the columns are so that a line fits.

    What a span has used gives way first, then most words of its status, much of its name, all
    words of its status, its duration, and last the bars.

    Args:
        room: cells of a line.
        natural: the widths that the columns need; that of the bar is ignored.
        mark: cells of a status without words.
    """
    name = min(natural.name, max(_MIN_NAME, room * 2 // 5))
    least = min(natural.name, _MIN_NAME)
    few = min(natural.status, _FEW_WORDS)
    most = min(natural.status, MAX_STATUS)
    tries = (
        (name, natural.took, natural.used, most),
        (name, natural.took, 0, most),
        (name, natural.took, 0, few),
        (least, natural.took, 0, few),
        (least, natural.took, 0, mark),
        (least, 0, 0, mark),
    )
    for named, took, used, status in tries:
        bar = room - named - sum(width + _GAP for width in (took, used, status) if width) - _GAP
        if bar >= _MIN_BAR:
            more = min(natural.status - status, bar - _MIN_BAR) if status > mark else 0
            return Columns(name=named, took=took, bar=bar - more, used=used, status=status + more)
    return Columns(name=max(room - _GAP - mark, 1), took=0, bar=0, used=0, status=mark)


class Waterfall:
    """A trace that rich can print, no wider than the console.

    Names and content come from models and customers: nothing of them but what can be printed
    reaches the terminal.
    """

    def __init__(
        self, spans: Sequence[Span], *, depth: int | None = None, limit: int | None = None
    ) -> None:
        """Take the spans, parents first.

        Args:
            spans: of one trace. Content is shown if they hold any, one line each.
            depth: levels to show, None for all.
            limit: rows to show at most, None for all.
        """
        self._spans = spans
        self._depth = depth
        self._limit = limit

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the axis, a line for each span that is shown, totals, and what is not shown."""
        if not self._spans:
            return
        pen, room = pen_for(options), options.max_width
        shown = select(rows(self._spans), depth=self._depth, limit=self._limit)
        lines = [_Line(pen, row) for row in shown]
        chart = _Chart(pen, axis_of(self._spans), columns(room, *_natural(lines)))
        yield from chart.head()
        for line in lines:
            yield chart.line(line)
            yield from _content(pen, line.row, room)
        yield from pen.totals(totals(self._spans), room)
        if hidden := len(self._spans) - len(shown):
            note = f"{count(hidden, 'span')} of {len(self._spans):,} not shown: --depth, --limit"
            yield Text(note, "yellow")


class _Line:
    """The cells of a row without the bar."""

    def __init__(self, pen: Pen, shown: Shown) -> None:
        self.row = shown.row
        span = shown.row.span
        self.name = pen.name(shown.row)
        if shown.below:
            self.name.append(f" +{shown.below:,}", "dim yellow")
        self.took = pen.took(span)
        self.used = pen.tokens(span.attributes)
        if (cost := span.attributes.get(a.COST)) is not None:
            self.used.append(f" ${cost:.4f}" if self.used else f"${cost:.4f}", "dim")
        self.status = pen.status(span)
        self.mark = len(pen.glyphs.states[state_of(span)])


def _natural(lines: Sequence[_Line]) -> tuple[Columns, int]:
    """Return the widths that the columns need, and the widest mark of a status."""
    return Columns(
        name=max(line.name.cell_len for line in lines),
        took=max(line.took.cell_len for line in lines),
        bar=0,
        used=max(line.used.cell_len for line in lines),
        status=max(line.status.cell_len for line in lines),
    ), max(line.mark for line in lines)


class _Chart:
    """Joins the cells of a line, with a bar between them."""

    def __init__(self, pen: Pen, axis: Axis, widths: Columns) -> None:
        self._pen = pen
        self._axis = axis
        self._widths = widths
        self._ticks: list[Tick] = []
        if widths.bar:
            self._ticks = ticks(axis, widths.bar, apart=min(_TICKS_APART, widths.bar))
        self._grid = [" "] * widths.bar
        for tick in self._ticks:
            self._grid[tick.cell] = pen.glyphs.tick

    def head(self) -> Iterator[Text]:
        """Yield the labels of the axis, if there are bars."""
        bar = self._widths.bar
        labels = ""
        for tick in self._ticks:
            if tick.cell + len(tick.label) <= bar:
                labels = labels.ljust(tick.cell) + tick.label
        if bar:
            yield _one_line(Text(" " * self._left() + labels, "dim"))

    def _left(self) -> int:
        widths = self._widths
        return widths.name + _GAP + (widths.took + _GAP if widths.took else 0)

    def line(self, line: _Line) -> Text:
        """Return the whole line of a span."""
        widths = self._widths
        out = self._pen.cut(line.name, widths.name)
        out.append(" " * (widths.name - out.cell_len))
        if widths.took:
            out.append(" " * (_GAP + widths.took - line.took.cell_len)).append_text(line.took)
        if widths.bar:
            out.append(" " * _GAP).append_text(self._bar(line.row.span))
        if widths.used:
            out.append(" " * (_GAP + widths.used - line.used.cell_len)).append_text(line.used)
        return _one_line(out.append(" " * _GAP).append_text(self._status(line)))

    def _status(self, line: _Line) -> Text:
        if self._widths.status < _MIN_STATUS:
            return line.status[: line.mark]
        return self._pen.cut(line.status, self._widths.status)

    def _bar(self, span: Span) -> Text:
        covered = stretch(self._axis, span, self._widths.bar)
        first, last = covered.begin // 2, max(covered.end - 1, covered.begin) // 2
        drawn = "".join(self._cell(span, covered, cell) for cell in range(first, last + 1))
        for lost, resumed in self._dead(span):
            begin, end = max(lost, first) - first, min(resumed, last) - first
            if begin <= end:
                gap = self._pen.glyphs.dead + self._pen.glyphs.waits * (end - begin)
                drawn = drawn[:begin] + gap + drawn[end + 1 :]
        return Text.assemble(
            ("".join(self._grid[:first]), "dim"),
            (drawn, _colour(span)),
            ("".join(self._grid[last + 1 :]), "dim"),
        )

    def _dead(self, span: Span) -> Iterator[tuple[int, int]]:
        """Yield the cells in which a run had no process, the first that of its death."""
        cells, axis = self._widths.bar, self._axis
        for lost, resumed in dead_times(span):
            begin, end = [axis.offset_us(at) * cells // axis.length_us for at in (lost, resumed)]
            yield min(begin, cells - 1), max(begin, end - 1)

    def _cell(self, span: Span, covered: Stretch, cell: int) -> str:
        glyphs = self._pen.glyphs
        if covered.begin == covered.end:
            return glyphs.moment
        if covered.begin > 2 * cell:
            return glyphs.starts
        if covered.end < 2 * cell + 2:
            return glyphs.stops
        if is_waiting(span):
            return glyphs.waits
        return glyphs.goes_on if span.end is None else glyphs.bar


def _colour(span: Span) -> str:
    state = state_of(span)
    return COLOURS.get(span.kind, "") if state == "ok" else STATE_COLOURS[state]


def _content(pen: Pen, row: Row, room: int) -> Iterator[Text]:
    """Yield the captured content of a span, one line each."""
    span = row.span
    indent = pen.passing(row)
    content = [("in", span.input), ("out", span.output), ("error", span.status_message)]
    if span.kind in CONVERSATIONS:
        content[:2] = [
            ("in", last_message(span.input, "user")),
            ("out", last_message(span.output, "assistant")),
        ]
    for name, value in content:
        if value is not None:
            line = Text.assemble((f"{indent}{name:<5} ", "dim"), (_flat(pen, value), "dim italic"))
            yield _one_line(pen.cut(line, room))


def _flat(pen: Pen, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return pen.plain(" ".join(text[:_MAX_CONTENT].split()))


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "crop"
    return text
