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
from typing import Final, Protocol, Self

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
from lib.observe.export.outbox import Ledger, MemoryLedger, StoreLedger
from lib.observe.export.queue import Lane, Result
from lib.observe.span import TraceSink, trace_id_of
from lib.observe.trace import Capture

_log = logging.getLogger("lib.observe")

_RANDOM_BITS: Final = 2**64
"""The last 64 bits of a trace id decide whether it is in the sample."""

_MAKES_DUE: Final = frozenset({k.RUN_COMPLETED, k.EVAL_SCORE})
_MAKES_DUE_OPEN: Final = frozenset({k.TURN_COMPLETED})
"""What makes a root run due that has not ended: a session can go on for months."""

_CLAIM_MARGIN_S: Final = 5.0
_GRACE_S: Final = 60.0
"""How long a run may be without a process before `flush_interval_s` calls it interrupted: a worker
that takes it over is a matter of seconds, and not every backend can be told otherwise later."""


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

    Every root run that ends is exported with all runs below it, a moment later; of a session, which
    may stay open for long, each turn is as it ends. Nothing that a sink does, or does not do,
    reaches a run.

    What each sink has acknowledged, and what is due, is kept in the store, so that a trace arrives
    once, however often the process dies. After a crash the next observer of the group exports what
    had ended; `flush_open` tells of the runs that were cut off, until somebody resumes them.
    Observers of one group, in as many processes as you like, share the work.
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
        self._capture = Capture(
            content=capture_content,
            limit=content_limit,
            definitions=getattr(engine, "tool_definitions", None),
        )
        self._sample_below = round(sample * _RANDOM_BITS)
        self._tenant = tenant
        self._settle_s = settle_s
        self._flush_interval_s = flush_interval_s
        self._group = group
        self._owner = new_id()
        self._channels = self._opened(
            list(sinks) if isinstance(sinks, Sequence) else [sinks], sink_timeout_s, max_tracked
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._receiving = asyncio.Lock()

    def _opened(
        self, sinks: Sequence[TraceSink], timeout_s: float, max_tracked: int
    ) -> list[_Channel]:
        engine, channels, names = self._engine, list[_Channel](), Counter[str]()
        for sink in sinks:
            destination: str | None = getattr(sink, "destination", type(sink).__qualname__)
            ledger: Ledger = MemoryLedger(most=max_tracked)
            if destination is not None:
                names[destination] += 1
                if names[destination] > 1:
                    destination = f"{destination}#{names[destination]}"
                ledger = StoreLedger(
                    engine.store,
                    f"{self._group}/{destination}",
                    owner=self._owner,
                    claim_s=timeout_s + _CLAIM_MARGIN_S,
                )
            delivery = Delivery(
                sink,
                ledger,
                engine.store,
                clock=engine.clock,
                capture=self._capture,
                timeout_s=timeout_s,
            )
            name = type(sink).__name__
            at_once: int = getattr(sink, "traces_at_once", 1)
            lane = Lane(
                name,
                partial(delivery.send, dead_for_s=_GRACE_S),
                ledger,
                clock=engine.clock,
                room=max_tracked,
                at_once=at_once,
            )
            channels.append(_Channel(delivery=delivery, lane=lane, at_once=at_once))
        return channels

    # -- life ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._engine.bus.subscribe(self._group, self._receive, start="now")
        self._tasks = [asyncio.create_task(channel.lane.run()) for channel in self._channels]
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
            for channel in self._channels:
                await channel.lane.close()
            await self._engine.bus.unsubscribe(self._group)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for channel in self._channels:
                await channel.delivery.close()

    # -- what a user asks for --------------------------------------------------------------

    async def drain(self, timeout_s: float = 10.0) -> bool:
        """Wait until every trace of a run that has ended so far has been exported.

        Returns:
            False if that took longer than `timeout_s`, or a sink has not taken some trace.
        """
        try:
            async with asyncio.timeout(timeout_s):
                flushed = await self._engine.bus.flush()
                for channel in self._channels:
                    await channel.lane.caught_up()
        except TimeoutError:
            return False
        return flushed and not any(channel.lane.failed for channel in self._channels)

    async def export_trace(
        self, root_run_id: str, *, final: bool = True, resend: bool = False
    ) -> int:
        """Export the trace of a root run, and return how many spans some sink has acknowledged.

        A trace outside of the sample or of the tenant is not exported.

        Args:
            root_run_id: the run.
            final: the whole trace, as it is now: once more, to sinks that replace what they have.
                False sends, to each sink, the closed spans that it does not have yet, and the root,
                which may still change, to those that replace it.
            resend: also what a sink has acknowledged, scores included, for a backend that has lost
                it. Sinks that can tell what they have, such as `LangfuseSink`, get what they lack.

        Raises:
            RunNotFound: there is no root run of this id.
        """
        root = await self._engine.store.run(root_run_id)
        if root is None or root.parent_id is not None:
            raise RunNotFound(root_run_id)
        wanted = [root.run_id] if await self._wants(root) else []
        return len((await self._export(wanted, again=final, resend=resend)).sent)

    async def flush_open(self) -> int:
        """Export what is new in every root run that is open; return how many spans were sent.

        Runs whose process has died are among them: they are closed as errors of the type
        `interrupted`. Should somebody resume them, sinks that replace what they have are told.
        """
        return await self._flush(dead_for_s=0.0)

    async def backfill(
        self, *, since: datetime | None = None, limit: int | None = None, resend: bool = False
    ) -> int:
        """Export what sinks lack of root runs that have ended; return how many spans were sent.

        Args:
            since: only runs that were started then or later; None for all.
            limit: at most so many of which a sink lacks something, the oldest first; None for all.
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
            left -= bool(result.lacked)
        return sent

    # -- the work --------------------------------------------------------------------------

    async def _receive(self, events: Sequence[Event]) -> None:
        """Take a batch from the bus: what has ended becomes due, a root or a turn; and late scores.

        Batches of several partitions come at the same time; they are written down one by one.
        """
        async with self._receiving:
            await self._note_due(events)

    async def _note_due(self, events: Sequence[Event]) -> None:
        roots = dict[str, RunInfo]()
        for run_id, though_open in _due_runs(events).items():
            info = await self._engine.store.run(run_id)
            if info is not None and info.parent_id is not None:
                info = await self._engine.store.run(info.root_id)
            if info is None or not await self._wants(info):
                continue
            if though_open or info.status == "closed":
                roots[info.run_id] = info
        if roots:
            due = self._engine.clock.monotonic() + self._settle_s
            async with asyncio.TaskGroup() as tasks:  # a full lane keeps none of the others
                for channel in self._channels:
                    tasks.create_task(channel.lane.add(roots, at=due))

    async def _roots(self, query: RunQuery) -> AsyncGenerator[RunInfo]:
        """Yield the runs of a query that are to be exported, read some at a time."""
        async for info in each_run(self._engine.store, query):
            if await self._wants(info):
                yield info

    async def _flush(self, *, dead_for_s: float, rested: bool = False) -> int:
        query = RunQuery(status="open", roots=True, tenant=self._tenant)
        roots = [info.run_id async for info in self._roots(query)]
        return len((await self._export(roots, dead_for_s=dead_for_s, rested=rested)).sent)

    async def _export(
        self,
        root_ids: Sequence[str],
        *,
        dead_for_s: float = 0.0,
        again: bool = False,
        resend: bool = False,
        rested: bool = False,
    ) -> _Sent:
        """Give every sink what it lacks of some traces; return what came of it in any."""
        async with asyncio.TaskGroup() as tasks:
            sending = [
                tasks.create_task(
                    channel.send(root_ids, dead_for_s=dead_for_s, again=again, resend=resend)
                )
                for channel in self._channels
                if not (rested and channel.lane.resting)
            ]
        return _Sent.of(task.result() for task in sending)

    async def _wants(self, root: RunInfo) -> bool:
        if self._tenant is not None and root.tenant != self._tenant:
            return False
        if self._sample_below == _RANDOM_BITS:
            return True
        started = await self._engine.store.read(root.run_id, limit=1)
        joined = trace_context_of(started[0].data) if started else None
        trace_id = trace_id_of(root.run_id) if joined is None else joined.trace_id
        return int(trace_id, 16) % _RANDOM_BITS < self._sample_below

    async def _keep_flushing(self, interval_s: float) -> None:
        failing = RepeatedFailure(_log, logging.ERROR, self._engine.clock)
        while True:
            await self._engine.clock.sleep(interval_s)
            try:
                await self._flush(dead_for_s=_GRACE_S, rested=True)
            except Exception as error:  # noqa: BLE001 - around sinks: the next flush sends what this one has not
                failing.failed(f"open runs cannot be read for {self._group}", error)


@dataclass(frozen=True, slots=True)
class _Sent:
    """The spans that have arrived, and the traces of which some sink lacked something."""

    sent: frozenset[str]
    lacked: frozenset[str]

    @classmethod
    def of(cls, results: Iterable[_Sent | Result]) -> Self:
        """Return several together."""
        several = list(results)
        return cls(
            frozenset[str]().union(*(each.sent for each in several)),
            frozenset[str]().union(*(each.lacked for each in several)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Channel:
    """A sink: what takes traces to it, and the queue before that."""

    delivery: Delivery
    lane: Lane
    at_once: int

    async def send(
        self, root_ids: Sequence[str], *, dead_for_s: float, again: bool, resend: bool
    ) -> _Sent:
        """Export traces now, past the queue."""
        results = list[Result]()
        for start in range(0, len(root_ids), self.at_once):
            some = root_ids[start : start + self.at_once]
            result = await self.delivery.send(
                some, dead_for_s=dead_for_s, again=again, resend=resend
            )
            await self.lane.note(some, result)
            results.append(result)
        return _Sent.of(results)


def _due_runs(events: Sequence[Event]) -> dict[str, bool]:
    """Return the runs that a batch makes due, and whether so though their root is open."""
    runs = {event.run_id: False for event in events if event.kind in _MAKES_DUE}
    return runs | {event.run_id: True for event in events if event.kind in _MAKES_DUE_OPEN}


def _check(name: str, value: float | None, fits: bool) -> None:
    if not fits:
        raise ValueError(f"{name}={value!r} is out of the range that an observer can work with")
