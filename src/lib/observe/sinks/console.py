"""The sink that prints traces to a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from errno import EPIPE
from itertools import groupby
from typing import TextIO

from rich.console import Console
from rich.text import Text

from lib._util.contexts import AsyncClosable
from lib.errors import ExportError
from lib.observe.sink import SinkTraits
from lib.observe.sinks.thread import OneThread
from lib.observe.span import Span
from lib.observe.view.terminal import render_trace


class ConsoleSink(AsyncClosable):
    """Prints each trace as an indented tree, in colour on a terminal unless NO_COLOR is set."""

    traits: SinkTraits = SinkTraits(destination=None)  # a new process prints to a new terminal

    def __init__(self, out: TextIO | None = None) -> None:
        """Take where to print, None for standard output."""
        self._out = out
        self._thread = OneThread("ConsoleSink")

    async def export(self, spans: Sequence[Span]) -> None:
        """Print the spans; a trace that comes again is printed again.

        Raises:
            ExportError: they cannot be written.
        """
        if not spans:
            return
        try:
            await self._thread.run(lambda: self._print(spans))
        except (OSError, ValueError) as error:  # the second is what a closed file raises
            raise ExportError(f"the console cannot be written: {error}") from error

    def _print(self, spans: Sequence[Span]) -> None:
        console = _Console(file=self._out, highlight=False)
        with console:  # one write for all, so that nothing else comes between
            for trace_id, trace in groupby(spans, lambda span: span.trace_id):
                shown = list(trace)
                first = shown[0]
                heading = (
                    f"run {first.run_id}  {first.start:%Y-%m-%d %H:%M:%S} UTC  trace {trace_id}"
                )
                console.print(Text(heading, "dim"), no_wrap=True, overflow="crop")
                console.print(render_trace(shown))


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error; the method of rich ends the process."""
        raise BrokenPipeError(EPIPE, "the reader of the pipe is gone")
