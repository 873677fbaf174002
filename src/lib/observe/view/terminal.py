"""A trace for a terminal: the cells of its lines, and the tree that they form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.cells import set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from lib.observe import attributes as a
from lib.observe.span import Span
from lib.observe.view.glyphs import ASCII, COLOURS, UNICODE, Glyphs
from lib.observe.view.tree import Row, Totals, rows, totals
from lib.observe.view.words import State, count, duration, operation_of, state_of, status_words

STATE_COLOURS: Final[Mapping[State, str]] = {
    "ok": "green",
    "error": "bold red",
    "off": "yellow",
    "open": "yellow",
}

MAX_STATUS: Final = 32
"""Cells of a status that come before names, bars and numbers; more only if there is room."""

_MAX_LEVELS: Final = 12
"""Levels that are drawn; of a deeper tree, those nearest to the span."""

_GAP: Final = 2
_MIN_NAME: Final = 16


def pen_for(options: ConsoleOptions) -> Pen:
    """Return the pen for a console: in plain ASCII where its encoding has nothing else."""
    return Pen(ASCII if options.ascii_only else UNICODE, options.encoding)


@dataclass(frozen=True, slots=True)
class Pen:
    """Writes the cells of a line with the glyphs of one console."""

    glyphs: Glyphs
    encoding: str

    def name(self, row: Row) -> Text:
        """Return what a span is, behind its branches of the tree."""
        span, glyphs = row.span, self.glyphs
        steps = [*self._passing(row.last[:-1])]
        steps += [glyphs.last if last else glyphs.branch for last in row.last[-1:]]
        operation, what = (self.plain(part) for part in operation_of(span))
        return Text.assemble(
            ("".join(steps[-_MAX_LEVELS:]), "dim"),
            (f"{glyphs.kinds[span.kind]} ", COLOURS.get(span.kind, "")),
            (operation, "dim" if what else ""),
            (f" {what}" if what else "", "" if row.last else "bold"),
        )

    def passing(self, row: Row) -> str:
        """Return the branches that pass by on a line below the row's."""
        return "".join([*self._passing(row.last)][-_MAX_LEVELS:]) + self.glyphs.gap

    def _passing(self, last: Sequence[bool]) -> Iterator[str]:
        return (self.glyphs.gap if is_last else self.glyphs.line for is_last in last)

    def took(self, span: Span) -> Text:
        """Return how long it took, nothing if no time has passed or it is open."""
        return Text(duration(span.end - span.start) if span.end and span.end > span.start else "")

    def tokens(self, attributes: Mapping[str, Any]) -> Text:
        """Return the tokens that were read and written, nothing if there were none."""
        tokens = [attributes.get(name, 0) for name in (a.INPUT_TOKENS, a.OUTPUT_TOKENS)]
        return Text(self._arrow(*tokens) if any(tokens) else "", "dim")

    def status(self, span: Span) -> Text:
        """Return how it came out: a mark, and words if there is more to say."""
        state = state_of(span)
        words = self.plain(", ".join(status_words(span)))
        return Text(f"{self.glyphs.states[state]} {words}".rstrip(), STATE_COLOURS[state])

    def cut(self, text: Text, width: int) -> Text:
        """Return the text if it is not wider than that, else its beginning."""
        if text.cell_len <= width:
            return text
        end = width - len(self.glyphs.cut)
        plain = set_cell_size(text.plain, end).rstrip()
        return text[: len(plain)].append(self.glyphs.cut, "dim")

    def plain(self, text: str) -> str:
        """Return the text as a console can show it: a name may be what a model has made up."""
        shown = "".join(char if char.isprintable() else "?" for char in text)
        return shown.encode(self.encoding, "replace").decode(self.encoding)

    def totals(self, sums: Totals, room: int) -> Iterator[Text]:
        """Yield the totals, in one line if there is room."""
        dot, line = f" {self.glyphs.dot} ", Text("", "dim")
        for part in self._parts(sums):
            if line and line.cell_len + len(dot) + part.cell_len > room:
                yield line
                line = Text("", "dim")
            line.append(dot if line else "").append_text(part)
        yield line

    def _parts(self, sums: Totals) -> Iterator[Text]:
        glyphs = self.glyphs
        yield Text(f"{glyphs.states['open']} open" if sums.took is None else duration(sums.took))
        yield Text(count(sums.llm_calls, "model call"))
        yield Text(count(sums.tool_calls, "tool call"))
        yield Text(f"{self._arrow(sums.input_tokens, sums.output_tokens)} tokens")
        if sums.cost is not None:
            yield Text(f"${sums.cost:.4f}")
        if sums.resumes:
            yield Text(count(sums.resumes, "takeover"))
        if sums.errors:
            yield Text(count(sums.errors, "error"), "not dim red")

    def _arrow(self, read: int, written: int) -> str:
        return f"{read:,} {self.glyphs.to} {written:,}"


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
