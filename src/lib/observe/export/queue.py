"""The queue in front of one sink: which traces wait, in which order, and when to retry.

Each sink has a queue of its own, so that a slow sink delays no other. What a sink does not take is
retried with growing pauses while other traces have their turn; what it refuses permanently is
abandoned until it is exported explicitly. The queue has a capacity: when it is full the bus waits,
and pending traces wait in the log.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from lib._util.clock import Clock
from lib._util.repeated import RepeatedFailure
from lib.errors import ExportError
from lib.observe.export.outbox import Outbox

_log = logging.getLogger("lib.observe")

_MIN_BACKOFF_S: Final = 0.5
_MAX_BACKOFF_S: Final = 60.0
_MAX_RETRY_AFTER_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """The outcome of an export of some traces; those in neither `busy` nor `failed` have arrived.

    Attributes:
        sent: the ids of the spans that the sink has acknowledged.
        incomplete: the traces of which the sink lacked something before, whatever came of them.
        busy: the traces that another observer exports now, with the seconds to wait for it.
        failed: the traces that did not arrive, and why.
    """

    sent: frozenset[str] = frozenset()
    incomplete: frozenset[str] = frozenset()
    busy: Mapping[str, float] = field(default_factory=dict[str, float])
    failed: Mapping[str, Exception] = field(default_factory=dict[str, Exception])


Export = Callable[[Sequence[str]], Awaitable[ExportResult]]


@dataclass(slots=True)
class _QueuedTrace:
    """The time of a trace's next export, by the clock's `monotonic`, and its failures so far.

    Attributes:
        batches: the batches of the outbox that contain it.
    """

    at: float
    failures: int = 0
    batches: list[int] = field(default_factory=list[int])


class ExportQueue:
    """Exports traces to one sink in the order in which they came, several at once."""

    def __init__(
        self,
        name: str,
        export: Export,
        outbox: Outbox,
        *,
        clock: Clock,
        capacity: int,
        traces_per_export: int,
    ) -> None:
        """Create an empty queue.

        Args:
            name: of the sink, for messages.
            export: exports the traces of root runs, and never raises for what the sink does.
            outbox: keeps pending traces for the next process.
            clock: the time at which a trace is due.
            capacity: how many traces may wait.
            traces_per_export: how many traces go into one export.
        """
        self._name = name
        self._export = export
        self._outbox = outbox
        self._clock = clock
        self._capacity = capacity
        self._traces_per_export = self._batch_size = traces_per_export
        self._queued: dict[str, _QueuedTrace] = {}
        self._running: dict[str, _QueuedTrace] = {}
        self._settled = set[str]()  # of those running, the ones with an outcome
        self._abandoned: dict[str, None] = {}
        self._backoff_until = 0.0
        self._backoff_s = _MIN_BACKOFF_S
        self._drains = 0  # callers of `drained`, for which a backoff is skipped
        self._restored = asyncio.Event()
        self._wakeup = asyncio.Event()
        self._changed = asyncio.Condition()
        self._closed = False
        self._failures = RepeatedFailure(_log, logging.ERROR, clock)

    @property
    def failed(self) -> bool:
        """True while a trace is queued again or abandoned because its export failed."""
        return bool(self._abandoned) or any(trace.failures for trace in self._queued.values())

    @property
    def backing_off(self) -> bool:
        """True while the queue waits because the sink has just failed."""
        return self._clock.monotonic() < self._backoff_until

    async def record(self, root_ids: Iterable[str], result: ExportResult) -> None:
        """Record an export that bypassed the queue; traces of other observers are queued again."""
        self._record([root_id for root_id in root_ids if root_id not in result.busy], result)
        if result.busy:
            batch = await self._outbox.enqueue(list(result.busy))
            at = self._clock.monotonic() + max(result.busy.values())
            self._enqueue([(root_id, batch) for root_id in result.busy], at=at)

    def _record(self, root_ids: Iterable[str], result: ExportResult) -> None:
        for root_id in root_ids:
            self._abandoned.pop(root_id, None)
            if root_id in result.failed:
                self._abandoned[root_id] = None
        while len(self._abandoned) > self._capacity:
            self._abandoned.pop(next(iter(self._abandoned)))

    async def enqueue(self, root_ids: Iterable[str], *, at: float) -> None:
        """Queue traces for export at a time; waits while the queue is full.

        Raises:
            ExportError: the queue is closed.
        """
        remaining = list(dict.fromkeys(root_ids))
        while remaining:
            async with self._changed:
                await self._changed.wait_for(lambda: self._closed or self._free() > 0)
                if self._closed:
                    raise ExportError(f"the observer of this {self._name} is closed")
            free = max(self._free(), 1)
            fitting, remaining = remaining[:free], remaining[free:]
            batch = await self._outbox.enqueue(fitting)
            self._enqueue([(root_id, batch) for root_id in fitting], at=at)

    def _free(self) -> int:
        return self._capacity - len(self._queued) - len(self._running)

    async def drained(self) -> None:
        """Wait until every trace queued now was exported, or failed once more."""
        await self._restored.wait()
        async with self._changed:
            for trace in self._queued.values():
                if trace.failures:
                    trace.at = min(trace.at, self._clock.monotonic())
            # A trace may be both running and queued again, for events that came meanwhile.
            waiting = [*self._queued.items(), *self._running.items()]
            before = [trace.failures for _, trace in waiting]

            def is_waiting() -> bool:
                return any(
                    (self._queued.get(root_id) is trace or self._running.get(root_id) is trace)
                    and trace.failures == failures
                    for (root_id, trace), failures in zip(waiting, before, strict=True)
                )

            self._drains += 1
            self._wakeup.set()
            try:
                await self._changed.wait_for(lambda: not is_waiting())
            finally:
                self._drains -= 1

    async def run(self) -> None:
        """Export what is queued, pending traces of earlier processes first, until cancelled."""
        self._closed = False
        self._requeue_unsettled()  # of an earlier `run` that was cancelled
        with self._logged(f"pending traces of {self._name} cannot be read"):
            self._enqueue(await self._outbox.pending(), at=self._clock.monotonic())
        self._restored.set()
        while True:
            root_ids = await self._next()
            with self._logged(f"the queue of {self._name} goes on after an error"):
                await self._settle(root_ids, await self._export(root_ids))
            self._requeue_unsettled()
            async with self._changed:
                self._changed.notify_all()

    async def close(self) -> None:
        """Refuse further traces, and end the calls of `enqueue` that wait."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    @contextmanager
    def _logged(self, message: str) -> Generator[None]:
        """Log an error and go on: at worst a trace is read once more."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - nothing else would report it
            self._failures.failed(message, error)

    # -- one export ------------------------------------------------------------------------

    def _enqueue(self, traces: Iterable[tuple[str, int]], *, at: float) -> None:
        for root_id, batch in traces:
            batches = self._queued.setdefault(root_id, _QueuedTrace(at)).batches
            if batch not in batches:
                batches.append(batch)
        self._wakeup.set()

    def _requeue(self, root_id: str, trace: _QueuedTrace) -> None:
        """Queue a trace again, after all others; it may have been queued again already."""
        newer = self._queued.pop(root_id, None)
        trace.batches += newer.batches if newer else []
        self._queued[root_id] = trace

    def _requeue_unsettled(self) -> None:
        """Queue running traces again unless their outcome is known."""
        for root_id, trace in self._running.items():
            if root_id not in self._settled:
                self._requeue(root_id, trace)
        self._running.clear()
        self._settled.clear()

    async def _next(self) -> list[str]:
        """Wait for traces that are due, and move them from queued to running."""
        while True:
            self._wakeup.clear()
            now, ready = self._clock.monotonic(), list[str]()
            backoff_s = 0.0 if self._drains else self._backoff_until - now
            if backoff_s <= 0:
                ready = [root_id for root_id, trace in self._queued.items() if trace.at <= now]
            if ready := ready[: self._batch_size]:
                self._running = {root_id: self._queued.pop(root_id) for root_id in ready}
                return ready
            first = min((trace.at for trace in self._queued.values()), default=math.inf)
            await self._sleep(max(first - now, backoff_s))

    async def _sleep(self, delay_s: float) -> None:
        """Sleep for that time, or until the queue is woken up."""
        waiting: set[asyncio.Future[Any]] = {asyncio.ensure_future(self._wakeup.wait())}
        if delay_s < math.inf:
            waiting.add(asyncio.ensure_future(self._clock.sleep(delay_s)))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    async def _settle(self, root_ids: Sequence[str], result: ExportResult) -> None:
        now, done = self._clock.monotonic(), dict[str, _QueuedTrace]()
        for root_id in root_ids:
            self._settled.add(root_id)
            trace, failure = self._running[root_id], result.failed.get(root_id)
            if root_id in result.busy:
                trace.at = now + result.busy[root_id]
                self._requeue(root_id, trace)
            elif failure is None or is_permanent(failure):
                done[root_id] = trace
            else:
                trace.at = now + min(
                    _MIN_BACKOFF_S * 2.0 ** min(trace.failures, 16), _MAX_BACKOFF_S
                )
                trace.failures += 1
                self._requeue(root_id, trace)
        self._record(done, result)
        self._back_off(root_ids, result.failed.values())
        for batch in [batch for trace in done.values() for batch in trace.batches]:
            await self._outbox.ack(batch)

    def _back_off(self, root_ids: Sequence[str], failures: Iterable[Exception]) -> None:
        """Pause after a failure, longer each time, or for as long as the backend demands.

        A single trace may be the cause, so the next export takes fewer of them.
        """
        passing = [failure for failure in failures if not is_permanent(failure)]
        if not passing:
            self._backoff_s = _MIN_BACKOFF_S
            self._batch_size = min(2 * self._batch_size, self._traces_per_export)
            return
        demands = [
            error.retry_after_s or 0.0 for error in passing if isinstance(error, ExportError)
        ]
        demanded = min(max([0.0, *demands]), _MAX_RETRY_AFTER_S)
        self._backoff_until = self._clock.monotonic() + max(demanded, self._backoff_s)
        self._backoff_s = min(self._backoff_s * 2, _MAX_BACKOFF_S)
        self._batch_size = max(1, len(root_ids) // 2)


def is_permanent(failure: Exception) -> bool:
    """Return True if a retry cannot help, even once the sink is configured correctly."""
    return isinstance(failure, ExportError) and failure.permanent and not failure.setup
