"""Delivery of traces to one sink: claim, read, send, commit the checkpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from lib._util.clock import Clock
from lib._util.repeated import RepeatedFailure
from lib.engine.core.session import SESSION
from lib.errors import ExportError, LibError
from lib.events import EventStore, RunInfo, RunQuery
from lib.observe.export.checkpoint import DeliveryState, PendingExport, pending_export
from lib.observe.export.outbox import Checkpoint, Outbox
from lib.observe.export.queue import ExportResult, is_permanent
from lib.observe.sink import QueryableSink, ScoringSink, TraceSink, traits_of
from lib.observe.span import Span
from lib.observe.trace import (
    Capture,
    LoggedScore,
    derive_runs,
    is_dead,
    read_logs,
    root_span,
    run_beside_loop,
)

_log = logging.getLogger("lib.observe")

_MAX_IDS_LOGGED: Final = 3
_MAX_BUSY_S: Final = 1.0
"""How soon to try a trace again that another observer exports: most exports are short."""

_MAX_CONCURRENT_SCORES: Final = 16
"""How many calls of `score` may run at one sink."""


@dataclass(slots=True, kw_only=True, eq=False)
class _ClaimedTrace:
    """A claimed trace: its checkpoint, what to send of it, and what the sink took of that."""

    root_id: str
    checkpoint: Checkpoint
    trace_id: str = ""
    pending: PendingExport = field(default_factory=PendingExport)
    taken: set[str] = field(default_factory=set[str])

    def remaining(self) -> list[Span]:
        """Return the spans that the sink has not taken yet."""
        return [span for span in self.pending.spans if span.span_id not in self.taken]


@dataclass(slots=True)
class _TraceScores:
    """The scores that are left to send of a trace whose spans have arrived.

    Attributes:
        refused: why the sink will never take one of them.
    """

    claimed: _ClaimedTrace
    remaining: list[LoggedScore]
    refused: Exception | None = None


@dataclass(slots=True)
class _Attempt:
    """The options of one call of `Delivery.send`, and its outcome so far."""

    dead_at: datetime
    full: bool
    resend: bool
    sent: set[str] = field(default_factory=set[str])
    incomplete: set[str] = field(default_factory=set[str])
    busy: dict[str, float] = field(default_factory=dict[str, float])
    failed: dict[str, Exception] = field(default_factory=dict[str, Exception])


class Delivery:
    """Exports traces to one sink; an error of the sink is an outcome and is never raised."""

    def __init__(
        self,
        sink: TraceSink,
        outbox: Outbox,
        store: EventStore,
        *,
        clock: Clock,
        capture: Capture,
        timeout_s: float,
    ) -> None:
        """Create the delivery to a sink.

        Args:
            sink: where spans go.
            outbox: the checkpoints of the sink.
            store: the logs.
            clock: the time against which leases and claims expire.
            capture: what spans may show.
            timeout_s: seconds, for each call of the sink.
        """
        self._sink: Any = sink
        self._name = type(sink).__name__
        self._traits = traits_of(sink)
        self._sends_scores = isinstance(sink, ScoringSink) and not self._traits.scores_as_spans
        self._can_query = self._traits.updates == "first" and isinstance(sink, QueryableSink)
        self._outbox = outbox
        self._store = store
        self._clock = clock
        self._capture = capture
        self._timeout_s = timeout_s
        self._outage = RepeatedFailure(_log, logging.ERROR, clock)
        self._trace_failures = RepeatedFailure(_log, logging.ERROR, clock)
        self._lock = asyncio.Lock()
        self._claimed: list[_ClaimedTrace] = []

    async def send(
        self,
        root_ids: Sequence[str],
        *,
        dead_for_s: float = 0.0,
        full: bool = False,
        resend: bool = False,
    ) -> ExportResult:
        """Send what the sink lacks of some traces.

        Args:
            root_ids: their roots.
            dead_for_s: seconds since its lease expired after which a run counts as interrupted.
            full: whether a sink that replaces gets everything once more.
            resend: whether to ignore what the sink has acknowledged, and ask the sink itself if it
                can be queried.
        """
        async with self._lock:
            await self.release()  # what a cancelled call has left
            dead_at = self._clock.now() - timedelta(seconds=dead_for_s)
            attempt = _Attempt(dead_at, full, resend)
            for root_id in root_ids:
                with self._recording_failure(root_id, attempt):
                    await self._claim(root_id, attempt)
            claimed = list(self._claimed)
            queried = [each for each in claimed if self._queries(each, attempt)]
            await self._deliver([each for each in claimed if each not in queried], attempt)
            for each in queried:  # alone, since an answer may take seconds
                await self._deliver([each], attempt)
            await self.release()
            return ExportResult(
                sent=frozenset(attempt.sent),
                incomplete=frozenset(
                    attempt.incomplete | attempt.failed.keys() | attempt.busy.keys()
                ),
                busy=attempt.busy,
                failed=attempt.failed,
            )

    async def close(self) -> None:
        """Release what a cancelled call has left; a call that runs does so itself."""
        if not self._lock.locked():
            await self.release()

    async def release(self) -> None:
        """Release the claims on traces that were not delivered, for other observers."""
        claimed, self._claimed = self._claimed, []
        for each in claimed:
            taken = [span for span in each.pending.spans if span.span_id in each.taken]
            state = each.checkpoint.state.with_provisional(taken)
            now = self._clock.now()
            try:
                await self._outbox.release(each.root_id, each.checkpoint, state, now=now)
            except LibError:
                _log.exception(
                    "the claim on the trace of run %r stays until it expires", each.root_id
                )

    # -- claiming and reading --------------------------------------------------------------

    async def _claim(self, root_id: str, attempt: _Attempt) -> None:
        """Claim a trace if there may be something that the sink lacks."""
        state = await self._outbox.state(root_id)
        runs = await self._store.runs(RunQuery(root_id=root_id))
        if not self._is_exportable(root_id, runs, attempt):
            return
        dead = {info.run_id for info in runs if is_dead(info, attempt.dead_at)}
        everything = attempt.resend or (attempt.full and self._traits.updates == "replace")
        if not everything and not any(state.lacks(i, dead=i.run_id in dead) for i in runs):
            return
        now = self._clock.now()
        checkpoint = await self._outbox.claim(root_id, now=now)
        if isinstance(checkpoint, datetime):
            attempt.busy[root_id] = min((checkpoint - now).total_seconds(), _MAX_BUSY_S)
        else:
            self._claimed.append(_ClaimedTrace(root_id=root_id, checkpoint=checkpoint))

    def _is_exportable(self, root_id: str, runs: Sequence[RunInfo], attempt: _Attempt) -> bool:
        """Return True if the trace exists and the backend would keep what there is of it."""
        if not runs or runs[0].run_id != root_id:
            return False
        final = runs[0].status == "closed" or is_dead(runs[0], attempt.dead_at)
        return final or not self._traits.needs_root or runs[0].algorithm == SESSION

    async def _read(self, claimed: _ClaimedTrace, attempt: _Attempt) -> bool:
        """Read what to send of a claimed trace; return False if its run was deleted."""
        stored = frozenset[str]()
        state = DeliveryState() if attempt.resend else claimed.checkpoint.state
        everything = attempt.full and self._traits.updates == "replace"
        runs = await self._store.runs(RunQuery(root_id=claimed.root_id))
        logs = await read_logs(
            self._store,
            claimed.root_id,
            runs,
            dead_at=attempt.dead_at,
            wanted=lambda info, dead: everything or state.lacks(info, dead=dead),
        )
        if logs is None:
            await self._outbox.drop(claimed.root_id, claimed.checkpoint)
            self._claimed.remove(claimed)
            return False
        claimed.trace_id = self._traits.trace_id_of(root_span(logs))
        if self._queries(claimed, attempt):
            stored = await self._stored_span_ids(claimed.trace_id)

        def compare() -> PendingExport:
            return pending_export(
                derive_runs(logs, self._capture),
                state,
                updates=self._traits.updates,
                full=attempt.full,
                stored=stored,
                separate_scores=self._sends_scores,
                root_first=self._traits.needs_root,
            )

        claimed.pending = await run_beside_loop(logs.size, compare)
        return True

    def _queries(self, claimed: _ClaimedTrace, attempt: _Attempt) -> bool:
        """Return True if the sink itself is to be queried for what it has of a trace."""
        return self._can_query and (attempt.resend or claimed.checkpoint.uncertain)

    async def _stored_span_ids(self, trace_id: str) -> frozenset[str]:
        try:
            return await self._within_timeout(self._sink.stored_span_ids(trace_id))
        except LibError:
            raise
        except Exception as error:  # around a sink: nothing is wrong with the log
            raise ExportError(f"{self._name} did not return the spans that it has") from error

    # -- sending ---------------------------------------------------------------------------

    async def _deliver(self, claimed: Sequence[_ClaimedTrace], attempt: _Attempt) -> None:
        read: list[_ClaimedTrace] = []
        for each in claimed:
            with self._recording_failure(each.root_id, attempt):
                if await self._read(each, attempt):
                    read.append(each)
        await self._send(read, attempt)
        if self._sends_scores:
            await self._send_scores([each for each in read if each not in self._claimed], attempt)

    async def _send(self, claimed: Sequence[_ClaimedTrace], attempt: _Attempt) -> None:
        """Export the remaining spans of some traces together, and commit what has arrived."""
        spans = [span for each in claimed for span in each.remaining()]
        try:
            if spans:
                await self._within_timeout(self._export(spans, claimed))
        except Exception as error:  # noqa: BLE001 - around a sink: its failure goes no further
            await self._handle_failure(claimed, error, attempt)
            return
        if spans:
            self._outage.ended(f"{self._name} takes traces again")
        attempt.sent.update(span.span_id for span in spans)
        attempt.incomplete.update(each.root_id for each in claimed if self._is_due(each.pending))
        await asyncio.gather(*[self._commit(each, attempt) for each in claimed])

    def _export(self, spans: Sequence[Span], claimed: Sequence[_ClaimedTrace]) -> Awaitable[None]:
        if not self._traits.reports_taken:
            return self._sink.export(spans)
        return self._sink.export(spans, on_taken=partial(_record_taken, claimed))

    async def _handle_failure(
        self, claimed: Sequence[_ClaimedTrace], error: Exception, attempt: _Attempt
    ) -> None:
        """Commit what a failing sink has taken, and send the other traces on their own."""
        self._outage.failed(f"{self._name} did not take {_list_traces(claimed)}", error)
        permanent = is_permanent(error)
        if isinstance(error, ExportError):
            _record_taken(claimed, error.taken)
        for each in claimed:
            if permanent and not each.remaining():  # the sink has them, or has dropped them
                await self._commit(each, attempt)
                if isinstance(error, ExportError) and error.lost:
                    attempt.failed[each.root_id] = error
            elif permanent and len(claimed) > 1:  # one is refused: the others may be taken
                await self._send([each], attempt)
            else:
                attempt.failed[each.root_id] = error

    @contextmanager
    def _recording_failure(self, root_id: str, attempt: _Attempt) -> Generator[None]:
        """Log and record an error of one trace, and go on with the others."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - around one trace: the result reports it
            message = f"the trace of run {root_id!r} does not get to {self._name}"
            self._trace_failures.failed(message, error)
            attempt.failed[root_id] = error

    async def _commit(self, claimed: _ClaimedTrace, attempt: _Attempt) -> None:
        with self._recording_failure(claimed.root_id, attempt):
            state = claimed.pending.next_state
            await self._outbox.commit(claimed.root_id, claimed.checkpoint, state)
            self._claimed.remove(claimed)

    def _is_due(self, pending: PendingExport) -> bool:
        return bool(pending.spans or (self._sends_scores and pending.scores))

    # -- scores ----------------------------------------------------------------------------

    async def _send_scores(self, claimed: Sequence[_ClaimedTrace], attempt: _Attempt) -> None:
        """Send the scores that the sink lacks, several at once, and commit those that it took."""
        traces = [_TraceScores(each, list(each.pending.scores)) for each in claimed]
        while batch := _next_scores(traces):
            calls = [self._send_trace_scores(each, scores, attempt) for each, scores in batch]
            await asyncio.gather(*calls)
        for each in traces:
            with self._recording_failure(each.claimed.root_id, attempt):
                if each.refused is not None:
                    raise each.refused

    async def _send_trace_scores(
        self, trace: _TraceScores, scores: Sequence[LoggedScore], attempt: _Attempt
    ) -> None:
        """Send some scores of a trace; those after them follow unless one must be retried."""
        root_id, rest = trace.claimed.root_id, trace.remaining
        trace.remaining = []
        with self._recording_failure(root_id, attempt):
            checkpoint = await self._outbox.claim(root_id, now=self._clock.now())
            if isinstance(checkpoint, datetime):
                return  # another observer sends them
            heads = checkpoint.state.score_heads
            due = [score for score in scores if heads.get(score.run_id, 0) < score.seq]
            calls = [self._send_score(trace.claimed.trace_id, each) for each in due]
            errors = await asyncio.gather(*calls, return_exceptions=True)
            failed = next((i for i, error in enumerate(errors) if _may_pass(error)), len(due))
            refused = [error for error in errors[:failed] if isinstance(error, Exception)]
            trace.refused = trace.refused or next(iter(refused), None)
            pending = {each.run_id for each in [*due[failed:], *rest]}
            pending |= trace.claimed.pending.waiting_runs
            state = checkpoint.state.with_scores(due[:failed], pending=pending)
            await self._outbox.commit(root_id, checkpoint, state)
            if failed < len(due) and (error := errors[failed]) is not None:
                raise error
            trace.remaining = rest

    async def _send_score(self, trace_id: str, logged: LoggedScore) -> None:
        try:
            call = self._sink.score(trace_id, [logged.score], span_id=logged.span_id)
            await self._within_timeout(call)
        except ValueError as error:
            raise ExportError(f"{self._name} cannot store a score", permanent=True) from error

    async def _within_timeout(self, call: Awaitable[Any]) -> Any:
        """Return what the sink returns, or stop waiting at the time-out.

        Raises:
            ExportError: the sink did not answer in time, even if it ignores being cancelled.
        """
        task = asyncio.ensure_future(call)
        task.add_done_callback(_retrieve_exception)
        try:
            await asyncio.wait([task], timeout=self._timeout_s)
        finally:
            task.cancel()  # without effect if it is done
        if not task.done() or task.cancelled():
            raise ExportError(f"{self._name} gave no answer within {self._timeout_s:g} s")
        return task.result()


def _next_scores(traces: Iterable[_TraceScores]) -> list[tuple[_TraceScores, list[LoggedScore]]]:
    """Take out the scores to send together: two of one name on one span keep their order."""
    room, found = _MAX_CONCURRENT_SCORES, list[tuple[_TraceScores, list[LoggedScore]]]()
    for trace in traces:
        names, scores = set[tuple[str, str]](), list[LoggedScore]()
        for logged in trace.remaining[:room]:
            if (name := (logged.span_id, logged.score.name)) in names:
                break
            names.add(name)
            scores.append(logged)
        if scores:
            found.append((trace, scores))
            del trace.remaining[: len(scores)]
            room -= len(scores)
    return found


def _may_pass(error: BaseException | None) -> bool:
    """Return True if a failed call is to be retried."""
    return error is not None and not (isinstance(error, Exception) and is_permanent(error))


def _list_traces(claimed: Sequence[_ClaimedTrace]) -> str:
    """Return a phrase with the first run ids, for the log."""
    shown = ", ".join(repr(each.root_id) for each in claimed[:_MAX_IDS_LOGGED])
    more = len(claimed) - _MAX_IDS_LOGGED
    return f"the traces of runs {shown}{f' and {more} more' if more > 0 else ''}"


def _record_taken(claimed: Sequence[_ClaimedTrace], ids: Iterable[str]) -> None:
    taken = frozenset(ids)
    for each in claimed:
        each.taken |= taken.intersection(span.span_id for span in each.pending.spans)


def _retrieve_exception(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a call that timed out, or asyncio logs that it was never read."""
    if not task.cancelled():
        task.exception()
