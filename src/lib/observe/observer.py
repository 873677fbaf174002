"""Follows the log of every run and exports its trace: the shell around `spans_from_events`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, Protocol, Self

from lib._util.clock import Clock
from lib.errors import RunNotFound
from lib.events import Event, EventStore, RunInfo, RunQuery
from lib.events import kinds as k
from lib.events.bus import Bus
from lib.observe.lane import Lane
from lib.observe.span import TraceSink, trace_id_of
from lib.observe.trace import Capture, read_trace

_log = logging.getLogger(__name__)

_PAGE: Final = 256
_RANDOM_BITS: Final = 2**64
"""The last 64 bits of a trace id decide whether it is in the sample."""


class ObservedEngine(Protocol):
    """What an observer needs of an engine."""

    @property
    def store(self) -> EventStore:
        """The logs."""
        ...

    @property
    def bus(self) -> Bus:
        """Carries their events."""
        ...

    @property
    def clock(self) -> Clock:
        """The time."""
        ...


class Observer:
    """Exports the traces of an engine's runs: `async with engine, Observer(engine, sinks):`.

    Every root run that ends is exported with all runs below it, a moment later. Nothing that a
    sink does, or does not do, reaches a run.

    What each sink has acknowledged is known for this process only. After a crash, `flush_open`
    exports the runs that were cut off, and `backfill` those which had ended but were not exported.
    """

    def __init__(
        self,
        engine: ObservedEngine,
        sinks: Sequence[TraceSink] | TraceSink,
        *,
        capture_content: bool = False,
        content_limit: int = 4000,
        sample: float = 1.0,
        tenant: str | None = None,
        settle_s: float = 0.2,
        flush_interval_s: float | None = None,
        sink_timeout_s: float = 30.0,
        max_tracked: int = 10000,
        group: str = "lib.observe",
    ) -> None:
        """Put the parts together; nothing happens before `async with`.

        Args:
            engine: whose runs to observe; entered before, and left after the observer.
            sinks: where the spans go.
            capture_content: whether prompts, replies, arguments, results and error texts go, too.
            content_limit: characters of each of them.
            sample: the share of traces to export, from 0 to 1. A trace is exported whole or not at
                all, and everybody who samples by the rule of OpenTelemetry keeps the same ones.
            tenant: export only this tenant's runs; None for all.
            settle_s: how long after the end of a run to wait for what may follow it.
            flush_interval_s: how often to call `flush_open`, None for never.
            sink_timeout_s: how long one export may take.
            max_tracked: how many traces may wait for a sink; then the bus waits, in the log.
            group: the name under which the bus keeps how far this observer has come.

        Raises:
            ValueError: an argument is out of its range.
        """
        _check("content_limit", content_limit, content_limit >= 0)
        _check("sample", sample, 0 <= sample <= 1)
        _check("settle_s", settle_s, settle_s >= 0)
        _check(
            "flush_interval_s", flush_interval_s, flush_interval_s is None or flush_interval_s > 0
        )
        _check("sink_timeout_s", sink_timeout_s, sink_timeout_s > 0)
        _check("max_tracked", max_tracked, max_tracked > 0)
        self._engine = engine
        self._capture = Capture(content=capture_content, limit=content_limit)
        self._sample_below = round(sample * _RANDOM_BITS)
        self._tenant = tenant
        self._settle_s = settle_s
        self._flush_interval_s = flush_interval_s
        self._group = group
        self._lanes = [
            Lane(sink, clock=engine.clock, timeout_s=sink_timeout_s, max_tracked=max_tracked)
            for sink in (sinks if isinstance(sinks, Sequence) else [sinks])
        ]
        self._tasks: list[asyncio.Task[None]] = []

    # -- life ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._engine.bus.subscribe(self._group, self._receive, start="now")
        self._tasks = [asyncio.create_task(lane.run(self._export_ended)) for lane in self._lanes]
        if self._flush_interval_s is not None:
            self._tasks.append(asyncio.create_task(self._keep_flushing(self._flush_interval_s)))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop; unless an exception is under way, `drain` first."""
        try:
            if kind is None:
                await self.drain()
        finally:
            for lane in self._lanes:
                await lane.close()
            await self._engine.bus.unsubscribe(self._group)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- what a user asks for --------------------------------------------------------------

    async def drain(self, timeout_s: float = 10.0) -> bool:
        """Wait until every trace of a run that has ended so far has been exported.

        Returns:
            False if that took longer than `timeout_s`, or a sink has not taken some trace.
        """
        try:
            async with asyncio.timeout(timeout_s):
                flushed = await self._engine.bus.flush()
                for lane in self._lanes:
                    await lane.caught_up()
        except TimeoutError:
            return False
        return flushed and not any(lane.failed for lane in self._lanes)

    async def export_trace(self, root_run_id: str, *, final: bool = True) -> int:
        """Export the trace of a root run, and return how many spans some sink has acknowledged.

        A trace outside of the sample or of the tenant is not exported.

        Args:
            root_run_id: the run.
            final: the whole trace, as it is now. False sends, to each sink, the closed spans that
                it does not have yet, and the root, which may still change.

        Raises:
            RunNotFound: there is no root run of this id.
        """
        root = await self._engine.store.run(root_run_id)
        if root is None or root.parent_id is not None:
            raise RunNotFound(root_run_id)
        return await self._export(root, self._lanes, final=final)

    async def flush_open(self) -> int:
        """Export what is new in every root run that is open; return how many spans were sent.

        Runs whose process has died are among them: they are closed as errors of the type
        `interrupted`, until somebody resumes them.
        """
        query = RunQuery(status="open", roots=True, tenant=self._tenant)
        sent = 0
        for root in await self._engine.store.runs(query):
            sent += await self._export(root, self._lanes, final=False)
        return sent

    async def backfill(self, *, since: datetime | None = None, limit: int | None = None) -> int:
        """Export the traces of root runs that have ended; return how many spans were sent.

        Args:
            since: only runs that were started then or later; None for all.
            limit: at most so many runs, the oldest first; None for all.
        """
        sent, left, after = 0, limit, None
        while left is None or left > 0:
            page = await self._engine.store.runs(
                RunQuery(
                    status="closed",
                    roots=True,
                    tenant=self._tenant,
                    since=since,
                    after=after,
                    limit=_PAGE if left is None else min(left, _PAGE),
                )
            )
            for root in page:
                lacking = [lane for lane in self._lanes if not lane.has(root.run_id)]
                sent += await self._export(root, lacking, final=True)
            if not page:
                break
            left, after = left and left - len(page), page[-1].run_id
        return sent

    # -- the work --------------------------------------------------------------------------

    async def _receive(self, events: Sequence[Event]) -> None:
        """Take a batch from the bus: root runs that have ended become due."""
        for event in events:
            if event.kind != k.RUN_COMPLETED:
                continue
            info = await self._engine.store.run(event.run_id)
            if info is not None and info.parent_id is None and self._wants(info):
                due = self._engine.clock.monotonic() + self._settle_s
                for lane in self._lanes:
                    await lane.add(info.run_id, due=due)

    async def _export_ended(self, root_id: str, lane: Lane) -> None:
        root = await self._engine.store.run(root_id)
        if root is not None and not lane.has(root_id):  # neither erased nor delivered again
            await self._export(root, [lane], final=True)

    async def _export(self, root: RunInfo, lanes: Sequence[Lane], *, final: bool) -> int:
        if not lanes or not self._wants(root):
            return 0
        now = self._engine.clock.now()
        trace = await read_trace(self._engine.store, root.run_id, now=now, capture=self._capture)
        if trace is None:
            return 0
        async with asyncio.TaskGroup() as tasks:
            sending = [tasks.create_task(lane.send(trace, final=final)) for lane in lanes]
        return len(frozenset[str]().union(*(task.result() for task in sending)))

    def _wants(self, root: RunInfo) -> bool:
        if self._tenant is not None and root.tenant != self._tenant:
            return False
        return int(trace_id_of(root.run_id), 16) % _RANDOM_BITS < self._sample_below

    async def _keep_flushing(self, interval_s: float) -> None:
        while True:
            await self._engine.clock.sleep(interval_s)
            try:
                await self.flush_open()
            except Exception:  # noqa: BLE001 - around sinks: the next flush sends what this one has not
                _log.exception("open runs cannot be read for %s", self._group)


def _check(name: str, value: float | None, fits: bool) -> None:
    if not fits:
        raise ValueError(f"{name}={value!r} is out of the range that an observer can work with")
