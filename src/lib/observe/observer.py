"""Follows the log of every run and exports its trace: the shell around `spans_from_events`."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Final, Protocol, Self, runtime_checkable

from lib._util.clock import Clock
from lib._util.ids import new_id
from lib._util.repeated import RepeatedFailure
from lib._util.trace_context import trace_context_of
from lib.errors import RunNotFound
from lib.events import Event, EventStore, RunInfo, RunQuery
from lib.events import kinds as k
from lib.events.bus import Bus
from lib.events.paging import each_run
from lib.observe.export.delivery import Delivery
from lib.observe.export.outbox import MemoryOutbox, Outbox, StoreOutbox
from lib.observe.export.queue import ExportQueue, ExportResult
from lib.observe.sink import TraceSink, traits_of
from lib.observe.span import trace_id_of
from lib.observe.spans.content import Definitions
from lib.observe.trace import Capture

_log = logging.getLogger("lib.observe")

_RANDOM_BITS: Final = 2**64
"""The last 64 bits of a trace id decide whether it is in the sample."""

_DUE_WHEN_CLOSED: Final = frozenset({k.RUN_COMPLETED, k.EVAL_SCORE})
_DUE_WHEN_OPEN: Final = frozenset({k.TURN_COMPLETED})
"""Kinds of events after which a root run that is open is exported: a session lasts for months."""

_CLAIM_MARGIN_S: Final = 5.0
_GRACE_S: Final = 60.0
"""How long the lease of a run must have expired before its trace is sent as interrupted: a takeover
is a matter of seconds, and a backend that keeps the first version cannot be corrected."""


class ObservedEngine(Protocol):
    """The parts of an engine that an observer needs."""

    @property
    def store(self) -> EventStore:
        """The logs."""
        ...

    @property
    def bus(self) -> Bus:
        """Delivers their events."""
        ...

    @property
    def clock(self) -> Clock:
        """The time."""
        ...


@runtime_checkable
class _DefinesTools(Protocol):
    """An engine that can look up the definitions of tools which a log names."""

    @property
    def tool_definitions(self) -> Definitions: ...


class Observer:
    """Exports the traces of an engine's runs: `async with engine, Observer(engine, sinks):`.

    A root run is exported with all runs below it a moment after it ends; of a session, which may
    stay open for long, each turn as it ends. A failing or slow sink never affects a run.

    What each sink has acknowledged, and what is pending, is kept in the store, so that a trace
    arrives once, however often the process dies. After a crash the next observer of the group
    exports what had ended; `flush_open` sends interrupted runs until a worker resumes them.
    Observers of one group, in any number of processes, share the work.
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
        """Create the observer; nothing happens before `async with`.

        Args:
            engine: runs what is to be observed; entered before, and left after the observer.
            sinks: where the spans go.
            capture_content: whether to export prompts, replies, arguments, results and error texts.
            content_limit: characters of each of them.
            sample: the share of traces to export, from 0 to 1. A trace is exported whole or not at
                all, and other services that sample by OpenTelemetry's rule keep the same ones.
            tenant: export only this tenant's runs; None for all.
            settle_s: seconds to wait after the end of a run for events that may follow it.
            flush_interval_s: seconds between calls of `flush_open`, None for never.
            sink_timeout_s: seconds that one export may take.
            max_tracked: how many traces may wait for a sink; beyond that the bus waits.
            group: the name under which the bus keeps the position of this observer.

        Raises:
            ValueError: an argument is out of its range.
        """
        _check("content_limit", content_limit, content_limit >= 0, "of 0 or more")
        _check("sample", sample, 0 <= sample <= 1, "from 0 to 1")
        _check("settle_s", settle_s, settle_s >= 0, "of 0 or more")
        interval_s = flush_interval_s
        _check("flush_interval_s", interval_s, interval_s is None or interval_s > 0, "above 0")
        _check("sink_timeout_s", sink_timeout_s, sink_timeout_s > 0, "above 0")
        _check("max_tracked", max_tracked, max_tracked > 0, "above 0")
        self._engine = engine
        self._capture = Capture(
            content=capture_content,
            limit=content_limit,
            definitions=engine.tool_definitions if isinstance(engine, _DefinesTools) else None,
        )
        self._sample_below = round(sample * _RANDOM_BITS)
        self._tenant = tenant
        self._settle_s = settle_s
        self._flush_interval_s = flush_interval_s
        self._group = group
        self._owner = new_id()
        self._channels = self._create_channels(
            list(sinks) if isinstance(sinks, Sequence) else [sinks], sink_timeout_s, max_tracked
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._receiving = asyncio.Lock()

    def _create_channels(
        self, sinks: Sequence[TraceSink], timeout_s: float, max_tracked: int
    ) -> list[_Channel]:
        names = Counter[str]()
        channels = list[_Channel]()
        for sink in sinks:
            destination = traits_of(sink).destination
            if destination is not None:
                names[destination] += 1
                if names[destination] > 1:
                    destination = f"{destination}#{names[destination]}"
            channels.append(self._create_channel(sink, destination, timeout_s, max_tracked))
        return channels

    def _create_channel(
        self, sink: TraceSink, destination: str | None, timeout_s: float, max_tracked: int
    ) -> _Channel:
        engine, traces_per_export = self._engine, traits_of(sink).traces_per_export
        outbox: Outbox = MemoryOutbox(max_traces=max_tracked)
        if destination is not None:
            outbox = StoreOutbox(
                engine.store,
                f"{self._group}/{destination}",
                owner=self._owner,
                claim_s=timeout_s + _CLAIM_MARGIN_S,
            )
        delivery = Delivery(
            sink,
            outbox,
            engine.store,
            clock=engine.clock,
            capture=self._capture,
            timeout_s=timeout_s,
        )
        queue = ExportQueue(
            type(sink).__name__,
            partial(delivery.send, dead_for_s=_GRACE_S),
            outbox,
            clock=engine.clock,
            capacity=max_tracked,
            traces_per_export=traces_per_export,
        )
        return _Channel(delivery=delivery, queue=queue, traces_per_export=traces_per_export)

    # -- lifetime --------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._engine.bus.subscribe(self._group, self._receive, start="now")
        self._tasks = [asyncio.create_task(channel.queue.run()) for channel in self._channels]
        if self._flush_interval_s is not None:
            self._tasks.append(asyncio.create_task(self._flush_forever(self._flush_interval_s)))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop; `drain` first unless an exception is being raised."""
        try:
            if kind is None:
                await self.drain()
        finally:
            for channel in self._channels:
                await channel.queue.close()
            await self._engine.bus.unsubscribe(self._group)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for channel in self._channels:
                await channel.delivery.close()

    # -- exports on demand -----------------------------------------------------------------

    async def drain(self, timeout_s: float = 10.0) -> bool:
        """Wait until every trace of a run that has ended so far has been exported.

        Returns:
            False if that took longer than `timeout_s`, or a sink has not taken a trace.
        """
        try:
            async with asyncio.timeout(timeout_s):
                flushed = await self._engine.bus.flush()
                for channel in self._channels:
                    await channel.queue.drained()
        except TimeoutError:
            return False
        return flushed and not any(channel.queue.failed for channel in self._channels)

    async def export_trace(
        self, root_run_id: str, *, final: bool = True, resend: bool = False
    ) -> int:
        """Export the trace of a root run; return how many spans a sink has acknowledged.

        A trace outside of the sample or of the tenant is not exported.

        Args:
            root_run_id: the run.
            final: the whole trace as it is now; sinks that replace spans get it once more. False
                sends each sink the closed spans that it does not have yet, and to those that
                replace spans also the root, which may still change.
            resend: also what a sink has acknowledged, scores included, for a backend that has lost
                it. Sinks that can be queried, such as `LangfuseSink`, get what they lack.

        Raises:
            RunNotFound: there is no root run of this id.
        """
        root = await self._engine.store.run(root_run_id)
        if root is None or root.parent_id is not None:
            raise RunNotFound(root_run_id)
        root_ids = [root.run_id] if await self._is_selected(root) else []
        return len((await self._export(root_ids, full=final, resend=resend)).sent)

    async def flush_open(self) -> int:
        """Export what is new in every root run that is open; return how many spans were sent.

        Runs whose process has died are among them: their open spans end as errors of the type
        `interrupted`. Once a worker resumes them, sinks that replace spans get them again.
        """
        return await self._flush(dead_for_s=0.0)

    async def backfill(
        self, *, since: datetime | None = None, limit: int | None = None, resend: bool = False
    ) -> int:
        """Export what sinks lack of root runs that have ended; return how many spans were sent.

        Args:
            since: only runs that were started then or later; None for all.
            limit: at most this many of those that a sink lacks, the oldest first; None for all.
            resend: also what sinks have acknowledged; see `export_trace`.
        """
        query = RunQuery(status="closed", roots=True, tenant=self._tenant, since=since)
        if limit is None:
            roots = [info.run_id async for info in self._roots(query)]
            return len((await self._export(roots, resend=resend)).sent)
        sent, left = 0, limit
        async for info in self._roots(query):
            if left <= 0:
                break
            result = await self._export([info.run_id], resend=resend)
            sent += len(result.sent)
            left -= bool(result.incomplete)
        return sent

    # -- exports of what has ended ---------------------------------------------------------

    async def _receive(self, events: Sequence[Event]) -> None:
        """Queue the traces of a batch of events in which a run or a turn ended or was scored.

        Batches of several partitions come at the same time; they are queued one by one.
        """
        async with self._receiving:
            await self._enqueue(events)

    async def _enqueue(self, events: Sequence[Event]) -> None:
        roots = dict[str, RunInfo]()
        for run_id, even_if_open in _due_runs(events).items():
            info = await self._engine.store.run(run_id)
            if info is not None and info.parent_id is not None:
                info = await self._engine.store.run(info.root_id)
            if info is None or not await self._is_selected(info):
                continue
            if even_if_open or info.status == "closed":
                roots[info.run_id] = info
        if roots:
            due = self._engine.clock.monotonic() + self._settle_s
            async with asyncio.TaskGroup() as tasks:  # a full queue delays no other
                for channel in self._channels:
                    tasks.create_task(channel.queue.enqueue(roots, at=due))

    async def _roots(self, query: RunQuery) -> AsyncGenerator[RunInfo]:
        """Yield the runs of a query that are to be exported, read in pages."""
        async for info in each_run(self._engine.store, query):
            if await self._is_selected(info):
                yield info

    async def _flush(self, *, dead_for_s: float, skip_backing_off: bool = False) -> int:
        query = RunQuery(status="open", roots=True, tenant=self._tenant)
        roots = [info.run_id async for info in self._roots(query)]
        result = await self._export(roots, dead_for_s=dead_for_s, skip_backing_off=skip_backing_off)
        return len(result.sent)

    async def _export(
        self,
        root_ids: Sequence[str],
        *,
        dead_for_s: float = 0.0,
        full: bool = False,
        resend: bool = False,
        skip_backing_off: bool = False,
    ) -> _Sent:
        """Send every sink what it lacks of some traces; return the union of the outcomes."""
        async with asyncio.TaskGroup() as tasks:
            sending = [
                tasks.create_task(
                    channel.send(root_ids, dead_for_s=dead_for_s, full=full, resend=resend)
                )
                for channel in self._channels
                if not (skip_backing_off and channel.queue.backing_off)
            ]
        return _Sent.union(task.result() for task in sending)

    async def _is_selected(self, root: RunInfo) -> bool:
        """Return True if a root run is of the tenant and in the sample."""
        if self._tenant is not None and root.tenant != self._tenant:
            return False
        if self._sample_below == _RANDOM_BITS:
            return True
        started = await self._engine.store.read(root.run_id, limit=1)
        joined = trace_context_of(started[0].data) if started else None
        trace_id = trace_id_of(root.run_id) if joined is None else joined.trace_id
        return int(trace_id, 16) % _RANDOM_BITS < self._sample_below

    async def _flush_forever(self, interval_s: float) -> None:
        failures = RepeatedFailure(_log, logging.ERROR, self._engine.clock)
        while True:
            await self._engine.clock.sleep(interval_s)
            try:
                await self._flush(dead_for_s=_GRACE_S, skip_backing_off=True)
            except Exception as error:  # noqa: BLE001 - around sinks: the next flush sends the rest
                failures.failed(f"open runs cannot be read for {self._group}", error)


@dataclass(frozen=True, slots=True)
class _Sent:
    """The spans that have arrived, and the traces of which a sink lacked something."""

    sent: frozenset[str]
    incomplete: frozenset[str]

    @classmethod
    def union(cls, results: Iterable[_Sent | ExportResult]) -> Self:
        """Return the union of several outcomes."""
        several = list(results)
        return cls(
            frozenset[str]().union(*(each.sent for each in several)),
            frozenset[str]().union(*(each.incomplete for each in several)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Channel:
    """The delivery to one sink, and the queue in front of it."""

    delivery: Delivery
    queue: ExportQueue
    traces_per_export: int

    async def send(
        self, root_ids: Sequence[str], *, dead_for_s: float, full: bool, resend: bool
    ) -> _Sent:
        """Export traces now, bypassing the queue."""
        results = list[ExportResult]()
        for start in range(0, len(root_ids), self.traces_per_export):
            some = root_ids[start : start + self.traces_per_export]
            result = await self.delivery.send(some, dead_for_s=dead_for_s, full=full, resend=resend)
            await self.queue.record(some, result)
            results.append(result)
        return _Sent.union(results)


def _due_runs(events: Sequence[Event]) -> dict[str, bool]:
    """Return the runs to export after a batch, and whether to do so while their root is open."""
    runs = {event.run_id: False for event in events if event.kind in _DUE_WHEN_CLOSED}
    return runs | {event.run_id: True for event in events if event.kind in _DUE_WHEN_OPEN}


def _check(name: str, value: float | None, ok: bool, expected: str) -> None:
    if not ok:
        raise ValueError(f"expected {name} {expected}, got {value!r}")
