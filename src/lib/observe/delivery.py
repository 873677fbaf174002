"""Takes traces to one sink: reads what it lacks, claims it, sends it, writes down what arrived."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, Final, Protocol, runtime_checkable

from lib._util.clock import Clock
from lib.errors import ExportError, LibError
from lib.events import EventStore, RunInfo
from lib.observe.delivered import Delivered, Parcel, parcel, with_early, without_scores
from lib.observe.lane import Result, is_permanent
from lib.observe.ledger import Account, Ledger
from lib.observe.span import ScoringSink, Span, TraceSink, Updates, trace_id_of
from lib.observe.trace import Capture, RunTrace, read_trace

_log = logging.getLogger(__name__)

_AFTER_CLAIM_S: Final = 1.0


@runtime_checkable
class _KnowingSink(Protocol):
    """A sink that can tell which spans of a trace have arrived."""

    async def known(self, trace_id: str) -> frozenset[str]: ...


@dataclass(slots=True, kw_only=True, eq=False)
class _Claimed:
    """A trace on its way: what the sink has of it, what it is to get, and what it took of that."""

    root_id: str
    account: Account
    parcel: Parcel
    taken: frozenset[str] = frozenset()


class Delivery:
    """Exports traces to one sink; nothing that the sink does is raised."""

    def __init__(
        self,
        sink: TraceSink,
        ledger: Ledger,
        store: EventStore,
        *,
        clock: Clock,
        capture: Capture,
        timeout_s: float,
    ) -> None:
        """Take a sink.

        Args:
            sink: where spans go.
            ledger: what it has.
            store: the logs.
            clock: tells who is dead, and whose claim has ended.
            capture: what spans may show.
            timeout_s: seconds, per call of the sink.
        """
        self._sink: Any = sink
        self._name = type(sink).__name__
        self._updates: Updates = getattr(sink, "updates", "replace")
        self._scores = isinstance(sink, ScoringSink) and not getattr(sink, "scores_as_spans", False)
        self._ledger = ledger
        self._store = store
        self._clock = clock
        self._capture = capture
        self._timeout_s = timeout_s
        self._turn = asyncio.Lock()
        self._claimed: list[_Claimed] = []

    async def send(
        self, root_ids: Sequence[str], *, dead_at: datetime | None = None, again: bool = False
    ) -> Result:
        """Give the sink what it lacks of some traces.

        Args:
            root_ids: their roots.
            dead_at: runs whose lease has ended by then count as interrupted; None for now.
            again: whether a sink that replaces gets everything once more.
        """
        async with self._turn:
            busy, failed = dict[str, float](), dict[str, Exception]()
            await self.give_back()  # what a call that was cancelled has left
            for root_id in root_ids:
                try:
                    wait_s = await self._prepare(root_id, dead_at or self._clock.now(), again=again)
                except Exception as error:  # noqa: BLE001 - around a log: only its trace is lost
                    _log.exception("the trace of run %r cannot be read for %s", root_id, self._name)
                    failed[root_id] = error if isinstance(error, LibError) else _unreadable(root_id)
                    continue
                if wait_s is not None:
                    busy[root_id] = wait_s
            ready = [each for each in self._claimed if each.root_id not in failed]
            sent, refused = await self._send(ready)
            await self.give_back()
            return Result(sent=sent, busy=busy, failed={**failed, **refused})

    async def close(self) -> None:
        """Give back what a call that was cancelled has left; one that goes on does so itself."""
        if not self._turn.locked():
            await self.give_back()

    async def give_back(self) -> None:
        """Let other observers try what this one has not delivered, or was kept from delivering."""
        claimed, self._claimed = self._claimed, []
        for each in claimed:
            taken = [span for span in each.parcel.spans if span.span_id in each.taken]
            has = with_early(each.account.delivered, taken)
            now = self._clock.now()
            try:
                await self._ledger.give_back(each.root_id, each.account, has, now=now)
            except LibError:
                _log.exception("the claim on the trace of run %r runs out by itself", each.root_id)

    async def _prepare(self, root_id: str, dead_at: datetime, *, again: bool) -> float | None:
        """Claim a trace of which something is lacking, and note what.

        Returns:
            None, or for how many seconds another observer has it.
        """
        peeked = await self._ledger.peek(root_id)
        runs = await self._read(root_id, peeked, dead_at, again=again)
        if not self._anything(self._parcel(runs, peeked, again=again)):
            return None
        now = self._clock.now()
        account = await self._ledger.claim(root_id, now=now)
        if isinstance(account, datetime):
            return (account - now).total_seconds() + _AFTER_CLAIM_S
        nothing = Parcel(spans=(), judgements=(), then=account.delivered)
        self._claimed.append(_Claimed(root_id=root_id, account=account, parcel=nothing))
        known = await self._known(trace_id_of(root_id)) if account.doubt else frozenset[str]()
        if account.delivered != peeked:  # somebody else has just sent what is newer than was read
            runs = await self._read(root_id, account.delivered, dead_at, again=again)
        what = self._parcel(runs, account.delivered, again=again, known=known)
        self._claimed[-1].parcel = what
        return None

    async def _read(
        self, root_id: str, delivered: Delivered, dead_at: datetime, *, again: bool
    ) -> list[RunTrace]:
        everything = again and self._updates == "replace"

        def wanted(info: RunInfo, dead: bool) -> bool:
            return everything or delivered.lacks(info, dead=dead)

        return await read_trace(
            self._store, root_id, dead_at=dead_at, capture=self._capture, wanted=wanted
        )

    def _parcel(
        self,
        runs: Sequence[RunTrace],
        delivered: Delivered,
        *,
        again: bool,
        known: frozenset[str] = frozenset(),
    ) -> Parcel:
        return parcel(runs, delivered, updates=self._updates, again=again, known=known)

    def _anything(self, what: Parcel) -> bool:
        return bool(what.spans) or (self._scores and bool(what.judgements))

    async def _known(self, trace_id: str) -> frozenset[str]:
        if self._updates != "first" or not isinstance(self._sink, _KnowingSink):
            return frozenset()
        try:
            return await self._within(self._sink.known(trace_id))
        except LibError:
            raise
        except Exception as error:  # around a sink: nothing is wrong with the log
            raise ExportError(f"{self._name} does not tell what it has") from error

    async def _send(
        self, claimed: Sequence[_Claimed]
    ) -> tuple[frozenset[str], dict[str, Exception]]:
        """Return which spans have arrived, and why which traces have not."""
        spans = [span for each in claimed for span in self._left(each)]
        try:
            if spans:
                await self._within(self._sink.export(spans))
        except Exception as error:  # noqa: BLE001 - around a sink: its failure goes no further
            taken: frozenset[str] = getattr(error, "taken", frozenset())
            for each in claimed:
                each.taken |= taken
            if len(claimed) > 1 and is_permanent(error):  # one cannot be taken: the others can
                parts = [await self._send([each]) for each in claimed]
                sent = frozenset[str]().union(*(part for part, _ in parts))
                return sent, {root: why for _, failed in parts for root, why in failed.items()}
            roots = [each.root_id for each in claimed]
            _log.exception("%s did not take the traces of runs %r", self._name, roots)
            return frozenset(), dict.fromkeys(roots, error)
        failed = {each.root_id: await self._settle(each) for each in claimed}
        sent = frozenset(span.span_id for span in spans)
        return sent, {root_id: error for root_id, error in failed.items() if error is not None}

    def _left(self, claimed: _Claimed) -> list[Span]:
        """Return the spans of a trace that the sink had not taken when it failed."""
        return [span for span in claimed.parcel.spans if span.span_id not in claimed.taken]

    async def _settle(self, claimed: _Claimed) -> Exception | None:
        """Send the scores of a trace that has arrived, and write down what the sink has."""
        failure, then = None, claimed.parcel.then
        try:
            await self._score(claimed)
        except Exception as error:  # noqa: BLE001 - around a sink: its failure goes no further
            _log.exception("%s did not take the scores of run %r", self._name, claimed.root_id)
            failure, then = error, without_scores(claimed.parcel, claimed.account.delivered)
        try:
            await self._ledger.settle(claimed.root_id, claimed.account, then)
            self._claimed.remove(claimed)
        except LibError as error:
            _log.exception("what %s has of run %r cannot be written", self._name, claimed.root_id)
            failure = failure or error
        return failure

    async def _score(self, claimed: _Claimed) -> None:
        if not self._scores:
            return
        trace_id = trace_id_of(claimed.root_id)
        refused: Exception | None = None
        for span_id, group in groupby(claimed.parcel.judgements, lambda judged: judged.span_id):
            scores = [judged.score for judged in group]
            try:
                await self._within(self._sink.score(trace_id, scores, span_id=span_id))
            except (ExportError, ValueError) as error:
                if not is_permanent(error):
                    raise
                refused = refused or error  # which keeps none of another span back
        if refused is not None:
            raise refused

    async def _within(self, call: Awaitable[Any]) -> Any:
        """Return what the sink returns, and do not wait longer than the time-out for it.

        Raises:
            ExportError: the sink did not answer in time, even if it ignores being cancelled.
        """
        running = asyncio.ensure_future(call)
        running.add_done_callback(_seen)
        try:
            await asyncio.wait([running], timeout=self._timeout_s)
        finally:
            running.cancel()  # without effect if it is done
        if not running.done() or running.cancelled():
            raise ExportError(f"{self._name} gave no answer within {self._timeout_s:g} s")
        return running.result()


def _unreadable(root_id: str) -> ExportError:
    return ExportError(f"the log of run {root_id!r} cannot be read", permanent=True)


def _seen(running: asyncio.Future[Any]) -> None:
    """Look at the exception of a call that nobody waits for any more."""
    if not running.cancelled():
        running.exception()
