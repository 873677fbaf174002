"""A trace as a tree for people: kind, name, duration, tokens, status, and what it comes to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from rich.cells import set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from lib.observe import attributes as a
from lib.observe.glyphs import ASCII, COLOURS, UNICODE, Glyphs
from lib.observe.span import Span
from lib.observe.tree import Row, Totals, rows, totals

_GAP: Final = 2
_MIN_NAME: Final = 16
_MAX_STATUS: Final = 32
_MAX_LEVELS: Final = 12
"""Levels that are drawn; of a deeper tree, those nearest to the span."""

_LONG_S: Final = 0.01
"""What takes longer than this is shown in whole milliseconds."""

_OPERATIONS: Final[Mapping[str, str]] = {
    "invoke_agent": "agent",
    "execute_tool": "tool",
    "invoke_workflow": "workflow",
}
"""What the operations of the conventions are called here."""


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
        pen = _Pen(ASCII if options.ascii_only else UNICODE, options.encoding)
        lines = [pen.cells(row) for row in rows(self._spans)]
        if lines:
            widths = _widths(lines, options.max_width)
            for line in lines:
                yield _joined([pen.cut(line[0], widths[0]), *line[1:]], widths)
            yield from pen.totals(totals(self._spans), options.max_width)


def _widths(lines: Sequence[Sequence[Text]], room: int) -> list[int]:
    """Return the width of each column; tokens and then durations give way to names."""
    widths = [max(cell.cell_len for cell in column) for column in zip(*lines, strict=True)]
    for column in (2, 1):
        if _left(widths, room) < min(_MIN_NAME, widths[0]):
            widths[column] = 0
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


@dataclass(frozen=True, slots=True)
class _Pen:
    """Writes with the glyphs of one console."""

    glyphs: Glyphs
    encoding: str

    def cells(self, row: Row) -> Sequence[Text]:
        """Return the name with its branches, the duration, the tokens and the status."""
        span = row.span
        took = duration(span.end - span.start) if span.end and span.end > span.start else ""
        return self._name(row), Text(took), self._tokens(span.attributes), self._status(span)

    def cut(self, text: Text, width: int) -> Text:
        """Return the text if it is not wider than that, else its beginning."""
        if text.cell_len <= width:
            return text
        end = width - len(self.glyphs.cut)
        plain = set_cell_size(text.plain, end).rstrip()
        return text[: len(plain)].append(self.glyphs.cut, "dim")

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
        yield Text(f"{self.glyphs.open} open" if sums.took is None else duration(sums.took))
        yield Text(_count(sums.llm_calls, "model call"))
        yield Text(_count(sums.tool_calls, "tool call"))
        yield Text(f"{self._arrow(sums.input_tokens, sums.output_tokens)} tokens")
        if sums.cost is not None:
            yield Text(f"${sums.cost:.4f}")
        if sums.resumes:
            yield Text(_count(sums.resumes, "takeover"))
        if sums.errors:
            yield Text(_count(sums.errors, "error"), "not dim red")

    def _name(self, row: Row) -> Text:
        span, glyphs = row.span, self.glyphs
        steps = [glyphs.gap if last else glyphs.line for last in row.last[:-1]]
        steps += [glyphs.last if last else glyphs.branch for last in row.last[-1:]]
        operation, _, what = span.name.partition(" ")
        operation = self._plain(_OPERATIONS.get(operation, operation))
        return Text.assemble(
            ("".join(steps[-_MAX_LEVELS:]), "dim"),
            (f"{glyphs.kinds[span.kind]} ", COLOURS.get(span.kind, "")),
            (operation, "dim" if what else ""),
            (f" {self._plain(what)}" if what else "", "" if row.last else "bold"),
        )

    def _tokens(self, attributes: Mapping[str, Any]) -> Text:
        tokens = [attributes.get(name, 0) for name in (a.INPUT_TOKENS, a.OUTPUT_TOKENS)]
        return Text(self._arrow(*tokens) if any(tokens) else "", "dim")

    def _arrow(self, read: int, written: int) -> str:
        return f"{read:,} {self.glyphs.to} {written:,}"

    def _status(self, span: Span) -> Text:
        if span.end is None:
            mark, style = self.glyphs.open, "yellow"
        elif span.status == "error":
            mark, style = self.glyphs.error, "bold red"
        elif _called_off(span.attributes):
            mark, style = self.glyphs.off, "yellow"
        else:
            mark, style = self.glyphs.ok, "green"
        words = self._plain(", ".join(_words(span)))
        return self.cut(Text(f"{mark} {words}".rstrip(), style), _MAX_STATUS)

    def _plain(self, text: str) -> str:
        """Return the text as a console can show it: a name may be what a model has made up."""
        shown = "".join(char if char.isprintable() else "?" for char in text)
        return shown.encode(self.encoding, "replace").decode(self.encoding)


def _called_off(attributes: Mapping[str, Any]) -> bool:
    return (
        attributes.get(a.RUN_OUTCOME) == "CANCELLED"
        or attributes.get(a.REASON) in ("cancelled", "denied")
        or attributes.get(a.APPROVED) is False
    )


def _words(span: Span) -> Iterator[str]:
    """Yield what to say of how a span came out."""
    attributes = span.attributes
    if span.end is None:
        yield "waiting" if span.kind == "internal" else "open"
    elif outcome := attributes.get(a.RUN_OUTCOME):
        why = attributes.get(_EXPLAINED.get(outcome, ""))
        yield f"{outcome}: {why}" if why else outcome
    elif span.status == "error":
        yield str(attributes.get(a.ERROR_TYPE, "error"))
    else:
        yield from _decided(attributes)
    if attempts := attributes.get(a.ATTEMPTS):
        yield f"{attempts} attempts"
    if a.RESUMES in attributes:
        yield "taken over"


_EXPLAINED: Final = {"FAILED": a.ERROR_TYPE, "LIMITED": a.REASON, "BLOCKED": a.REASON}
"""Where the reason of an outcome is found, if it is told at all."""


def _decided(attributes: Mapping[str, Any]) -> Iterator[str]:
    for name in (a.REASON, a.GUARD_VERDICT):
        if name in attributes:
            yield str(attributes[name])
    if a.APPROVED in attributes:
        said = "approved" if attributes[a.APPROVED] else "denied"
        by = attributes.get(a.APPROVED_BY)
        yield f"{said} by {by}" if by else said


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(took: timedelta) -> str:
    """Return a time in the two units that matter, such as `3.20 s` and `2 m 03 s`."""
    seconds = took.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.{0 if seconds >= _LONG_S else 1}f} ms"
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004 - an hour
        return f"{minutes} m {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:  # noqa: PLR2004 - two days
        return f"{hours} h {minutes:02} m"
    return f"{hours // 24} d {hours % 24:02} h"
