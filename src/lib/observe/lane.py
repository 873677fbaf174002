"""One sink as the observer sees it: what waits for it, and what it has acknowledged.

Each sink has a lane of its own, so that a slow one delays nobody but itself. What it has
acknowledged is known for this process only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from lib._util.clock import Clock
from lib.errors import ExportError
from lib.observe.span import Span, TraceSink
from lib.observe.trace import Trace

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Acknowledged:
    """What a sink has of one trace.

    Attributes:
        complete: whether it has all there will ever be.
        settled: spans that it has for good.
        provisional: what it was last told of spans that can still change.
    """

    complete: bool = False
    settled: set[str] = field(default_factory=set[str])
    provisional: dict[str, Span] = field(default_factory=dict[str, Span])

    def lacking(self, trace: Trace) -> Sequence[Span]:
        """Return the closed spans, and the root, of which the sink does not know this version."""
        if self.complete:
            return ()
        root = trace.spans[0]
        return [
            span
            for span in trace.spans
            if (span.end is not None or span is root)
            and span.span_id not in self.settled
            and self.provisional.get(span.span_id) != span
        ]

    def take(self, trace: Trace, spans: Sequence[Span]) -> None:
        """Note that the sink has these spans of the trace."""
        for span in spans:
            if span.span_id in trace.settled:
                self.settled.add(span.span_id)
                self.provisional.pop(span.span_id, None)
            else:
                self.provisional[span.span_id] = span
        if len(self.settled) == len(trace.spans):
            self.complete = True
            self.settled, self.provisional = set(), {}


class Lane:
    """Exports to one sink, one trace at a time, in the order in which they became due."""

    def __init__(
        self, sink: TraceSink, *, clock: Clock, timeout_s: float, max_tracked: int
    ) -> None:
        """Take a sink.

        Args:
            sink: where spans go.
            clock: tells when a trace is due.
            timeout_s: seconds, per export.
            max_tracked: how many traces may wait, and of how many it is known what the sink has.
        """
        self._sink = sink
        self._name = type(sink).__name__
        self._clock = clock
        self._timeout_s = timeout_s
        self._max_tracked = max_tracked
        self._due: dict[str, float] = {}
        self._changed = asyncio.Condition()
        self._turn = asyncio.Lock()
        self._closed = False
        self._acknowledged: OrderedDict[str, _Acknowledged] = OrderedDict()
        self._failed: dict[str, None] = {}

    @property
    def failed(self) -> bool:
        """Whether a trace that was due has not arrived, and has not since."""
        return bool(self._failed)

    def has(self, root_id: str) -> bool:
        """Tell whether the sink has the whole trace of a run that has ended."""
        known = self._acknowledged.get(root_id)
        return known is not None and known.complete

    # -- waiting ---------------------------------------------------------------------------

    async def add(self, root_id: str, *, due: float) -> None:
        """Let a trace be exported when its time has come; wait as long as there is no room.

        Args:
            root_id: the run.
            due: by the clock's `monotonic`.

        Raises:
            ExportError: the lane is closed.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._closed or len(self._due) < self._max_tracked)
            if self._closed:
                raise ExportError(f"the observer of this {self._name} is closed")
            self._due.setdefault(root_id, due)
            self._changed.notify_all()

    async def caught_up(self) -> None:
        """Return when nothing is left of what is waiting now."""
        async with self._changed:
            waiting = set(self._due)
            await self._changed.wait_for(lambda: waiting.isdisjoint(self._due))

    async def run(self, export: Callable[[str, Lane], Awaitable[object]]) -> None:
        """Export what is added, until cancelled.

        Args:
            export: exports the trace of this run to this lane.
        """
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._due)
                root_id, due = next(iter(self._due.items()))
            await self._clock.sleep(due - self._clock.monotonic())
            try:
                await export(root_id, self)
            except Exception:  # noqa: BLE001 - around a sink: nothing but this trace is lost
                _log.exception("the trace of run %r cannot be read for %s", root_id, self._name)
                self._fail(root_id)
            async with self._changed:
                del self._due[root_id]
                self._changed.notify_all()

    async def close(self) -> None:
        """Take nothing more, and let go of those who wait for room."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    # -- sending ---------------------------------------------------------------------------

    async def send(self, trace: Trace, *, final: bool) -> frozenset[str]:
        """Give a trace to the sink; return the ids of the spans that it has acknowledged.

        Args:
            trace: the trace.
            final: all of it; else what the sink does not have yet of closed spans, and the root.
        """
        async with self._turn:
            known = self._acknowledged.get(trace.root_id) or _Acknowledged()
            spans = trace.spans if final else known.lacking(trace)
            if not spans:
                return frozenset()
            try:
                await self._deliver(spans)
            except Exception:  # noqa: BLE001 - around a sink: its failure goes no further
                _log.exception("%s did not take the trace of run %r", self._name, trace.root_id)
                self._fail(trace.root_id)
                return frozenset()
            known.take(trace, spans)
            self._remember(trace.root_id, known)
            return frozenset(span.span_id for span in spans)

    async def _deliver(self, spans: Sequence[Span]) -> None:
        """Export, and do not wait longer than the time-out, even for what ignores being cancelled.

        Raises:
            ExportError: the sink did not answer in time.
        """
        export = asyncio.ensure_future(self._sink.export(spans))
        export.add_done_callback(_seen)
        try:
            await asyncio.wait([export], timeout=self._timeout_s)
        finally:
            export.cancel()  # without effect if it is done
        if not export.done() or export.cancelled():
            raise ExportError(f"{self._name} gave no answer within {self._timeout_s:g} s")
        export.result()

    def _remember(self, root_id: str, known: _Acknowledged) -> None:
        self._failed.pop(root_id, None)
        self._acknowledged[root_id] = known
        self._acknowledged.move_to_end(root_id)
        if len(self._acknowledged) > self._max_tracked:
            self._acknowledged.popitem(last=False)

    def _fail(self, root_id: str) -> None:
        if len(self._failed) < self._max_tracked:
            self._failed[root_id] = None


def _seen(export: asyncio.Future[None]) -> None:
    """Look at the exception of an export that nobody waits for any more."""
    if not export.cancelled():
        export.exception()
