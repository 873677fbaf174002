"""Takes traces to one sink: claims what it lacks, reads it, sends it, writes down what arrived."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

from lib._util.clock import Clock
from lib._util.repeated import RepeatedFailure
from lib.engine.core.session import SESSION
from lib.errors import ExportError, LibError
from lib.events import EventStore, RunInfo, RunQuery
from lib.observe.export.checkpoint import Delivered, Parcel, parcel, with_early, with_scores
from lib.observe.export.outbox import Account, Ledger
from lib.observe.export.queue import Result, is_permanent
from lib.observe.span import ScoringSink, Span, TraceSink, Updates
from lib.observe.trace import Capture, Judgement, beside, derived, is_dead, read_logs, root_of

_log = logging.getLogger("lib.observe")

_SHOWN: Final = 3
_LOOK_AGAIN_S: Final = 1.0
"""How soon to look at a trace again that another observer exports: it mostly takes no time."""


_SCORES_AT_ONCE: Final = 16
"""How many calls of `score` may be under way at one sink."""


@runtime_checkable
class _KnowingSink(Protocol):
    """A sink that can tell which spans of a trace have arrived."""

    async def known(self, trace_id: str) -> frozenset[str]: ...


@dataclass(slots=True, kw_only=True, eq=False)
class _Claimed:
    """A trace on its way: what the sink has of it, what it is to get, and what it took of that."""

    root_id: str
    account: Account
    trace_id: str = ""
    parcel: Parcel = field(default_factory=Parcel)
    taken: set[str] = field(default_factory=set[str])

    def left(self) -> list[Span]:
        """Return the spans that the sink has not taken yet."""
        return [span for span in self.parcel.spans if span.span_id not in self.taken]


@dataclass(slots=True)
class _Waiting:
    """A trace whose spans have arrived, and its scores that have not.

    Attributes:
        refused: why the sink will never take one of them.
    """

    claimed: _Claimed
    left: list[Judgement]
    refused: Exception | None = None


@dataclass(slots=True)
class _Round:
    """What one call of `Delivery.send` wants, and what has come of it."""

    dead_at: datetime
    again: bool
    resend: bool
    sent: set[str] = field(default_factory=set[str])
    lacked: set[str] = field(default_factory=set[str])
    busy: dict[str, float] = field(default_factory=dict[str, float])
    failed: dict[str, Exception] = field(default_factory=dict[str, Exception])


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
        self._needs_root: bool = getattr(sink, "needs_root", False)
        self._tells_taken: bool = getattr(sink, "tells_taken", False)
        self._scores = isinstance(sink, ScoringSink) and not getattr(sink, "scores_as_spans", False)
        self._knows = self._updates == "first" and isinstance(sink, _KnowingSink)
        self._ledger = ledger
        self._store = store
        self._clock = clock
        self._capture = capture
        self._timeout_s = timeout_s
        self._outage = RepeatedFailure(_log, logging.ERROR, clock)
        self._trouble = RepeatedFailure(_log, logging.ERROR, clock)
        self._turn = asyncio.Lock()
        self._claimed: list[_Claimed] = []

    async def send(
        self,
        root_ids: Sequence[str],
        *,
        dead_for_s: float = 0.0,
        again: bool = False,
        resend: bool = False,
    ) -> Result:
        """Give the sink what it lacks of some traces.

        Args:
            root_ids: their roots.
            dead_for_s: how long a run has been without a process to count as interrupted.
            again: whether a sink that replaces gets everything once more.
            resend: whether nothing counts that the sink has acknowledged, only what it tells to
                have if it can.
        """
        async with self._turn:
            await self.give_back()  # what a call that was cancelled has left
            dead_at = self._clock.now() - timedelta(seconds=dead_for_s)
            this = _Round(dead_at, again, resend)
            for root_id in root_ids:
                with self._logged(root_id, this):
                    await self._claim(root_id, this)
            claimed = list(self._claimed)
            asked = [each for each in claimed if self._asks(each, this)]
            await self._deliver([each for each in claimed if each not in asked], this)
            for each in asked:  # an answer may take a while: alone
                await self._deliver([each], this)
            await self.give_back()
            return Result(
                sent=frozenset(this.sent),
                lacked=frozenset(this.lacked | this.failed.keys() | this.busy.keys()),
                busy=this.busy,
                failed=this.failed,
            )

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

    # -- claiming and reading --------------------------------------------------------------

    async def _claim(self, root_id: str, this: _Round) -> None:
        """Claim a trace if there may be something that the sink lacks."""
        peeked = await self._ledger.peek(root_id)
        runs = await self._store.runs(RunQuery(root_id=root_id))
        if not self._wants(root_id, runs, this):
            return
        dead = {info.run_id for info in runs if is_dead(info, this.dead_at)}
        everything = this.resend or (this.again and self._updates == "replace")
        if not everything and not any(peeked.lacks(i, dead=i.run_id in dead) for i in runs):
            return
        now = self._clock.now()
        account = await self._ledger.claim(root_id, now=now)
        if isinstance(account, datetime):
            this.busy[root_id] = min((account - now).total_seconds(), _LOOK_AGAIN_S)
        else:
            self._claimed.append(_Claimed(root_id=root_id, account=account))

    def _wants(self, root_id: str, runs: Sequence[RunInfo], this: _Round) -> bool:
        """Tell whether the trace is here, and the sink could keep what there is of it."""
        if not runs or runs[0].run_id != root_id:
            return False
        final = runs[0].status == "closed" or is_dead(runs[0], this.dead_at)
        return final or not self._needs_root or runs[0].algorithm == SESSION

    async def _read(self, claimed: _Claimed, this: _Round) -> bool:
        """Find out what to send of a trace, now that nobody else does; tell if it is still here."""
        known = frozenset[str]()
        delivered = Delivered() if this.resend else claimed.account.delivered
        everything = this.again and self._updates == "replace"
        runs = await self._store.runs(RunQuery(root_id=claimed.root_id))
        logs = await read_logs(
            self._store,
            claimed.root_id,
            runs,
            dead_at=this.dead_at,
            wanted=lambda info, dead: everything or delivered.lacks(info, dead=dead),
        )
        if logs is None:
            await self._ledger.drop(claimed.root_id, claimed.account)
            self._claimed.remove(claimed)
            return False
        claimed.trace_id = self._trace_id(root_of(logs))
        if self._asks(claimed, this):
            known = await self._known(claimed.trace_id)

        def what() -> Parcel:
            return parcel(
                derived(logs, self._capture),
                delivered,
                updates=self._updates,
                again=this.again,
                known=known,
                scores_apart=self._scores,
                root_first=self._needs_root,
            )

        claimed.parcel = await beside(logs.size, what)
        return True

    def _asks(self, claimed: _Claimed, this: _Round) -> bool:
        """Tell whether the sink itself is to say what it has of a trace."""
        return self._knows and (this.resend or claimed.account.doubt)

    def _trace_id(self, root: Span) -> str:
        """Return the trace id by which the sink knows a trace."""
        told = getattr(self._sink, "trace_id_of", None)
        return root.trace_id if told is None else told(root)

    async def _known(self, trace_id: str) -> frozenset[str]:
        try:
            return await self._within(self._sink.known(trace_id))
        except LibError:
            raise
        except Exception as error:  # around a sink: nothing is wrong with the log
            raise ExportError(f"{self._name} does not tell what it has") from error

    # -- sending ---------------------------------------------------------------------------

    async def _deliver(self, claimed: Sequence[_Claimed], this: _Round) -> None:
        read: list[_Claimed] = []
        for each in claimed:
            with self._logged(each.root_id, this):
                if await self._read(each, this):
                    read.append(each)
        await self._send(read, this)
        if self._scores:
            await self._score([each for each in read if each not in self._claimed], this)

    async def _send(self, claimed: Sequence[_Claimed], this: _Round) -> None:
        """Export what is left of some traces together, and write down what has arrived."""
        spans = [span for each in claimed for span in each.left()]
        try:
            if spans:
                await self._within(self._exported(spans, claimed))
        except Exception as error:  # noqa: BLE001 - around a sink: its failure goes no further
            await self._failed(claimed, error, this)
            return
        if spans:
            self._outage.ended(f"{self._name} takes traces again")
        this.sent.update(span.span_id for span in spans)
        this.lacked.update(each.root_id for each in claimed if self._lacked(each.parcel))
        await asyncio.gather(*[self._settle(each, this) for each in claimed])

    def _exported(self, spans: Sequence[Span], claimed: Sequence[_Claimed]) -> Awaitable[None]:
        if not self._tells_taken:
            return self._sink.export(spans)
        return self._sink.export(spans, on_taken=partial(_note_taken, claimed))

    async def _failed(self, claimed: Sequence[_Claimed], error: Exception, this: _Round) -> None:
        """Write down what a failing sink has taken, and give the others of its traces a chance."""
        what = f"{self._name} did not take {_traces_of(claimed)}"
        self._outage.failed(what, error)
        permanent = is_permanent(error)
        if isinstance(error, ExportError):
            _note_taken(claimed, error.taken)
        for each in claimed:
            if permanent and not each.left():  # the sink has them, or has dropped them for good
                await self._settle(each, this)
                if isinstance(error, ExportError) and error.lost:
                    this.failed[each.root_id] = error
            elif permanent and len(claimed) > 1:  # one cannot be taken: the others can
                await self._send([each], this)
            else:
                this.failed[each.root_id] = error

    def _logged(self, root_id: str, this: _Round) -> _Told:
        return _Told(self._trouble, self._name, root_id, this)

    async def _settle(self, claimed: _Claimed, this: _Round) -> None:
        with self._logged(claimed.root_id, this):
            await self._ledger.settle(claimed.root_id, claimed.account, claimed.parcel.then)
            self._claimed.remove(claimed)

    def _lacked(self, parcel: Parcel) -> bool:
        return bool(parcel.spans or (self._scores and parcel.judgements))

    async def _score(self, claimed: Sequence[_Claimed], this: _Round) -> None:
        """Send the scores that the sink lacks, several at once, and write down which it took."""
        waiting = [_Waiting(each, list(each.parcel.judgements)) for each in claimed]
        while now := _next_scores(waiting):
            await asyncio.gather(*[self._score_some(each, some, this) for each, some in now])
        for each in waiting:
            with self._logged(each.claimed.root_id, this):
                if each.refused is not None:
                    raise each.refused

    async def _score_some(self, waiting: _Waiting, some: Sequence[Judgement], this: _Round) -> None:
        """Send some scores of a trace; those after them follow unless one is to be tried again."""
        root_id, rest = waiting.claimed.root_id, waiting.left
        waiting.left = []
        with self._logged(root_id, this):
            account = await self._ledger.claim(root_id, now=self._clock.now())
            if isinstance(account, datetime):
                return  # another observer sends them
            has = account.delivered
            due = [judged for judged in some if has.scored.get(judged.run_id, 0) < judged.seq]
            trace_id = waiting.claimed.trace_id
            calls = [self._judge(trace_id, each.span_id, each.score) for each in due]
            errors = await asyncio.gather(*calls, return_exceptions=True)
            failed = next((at for at, error in enumerate(errors) if _may_pass(error)), len(due))
            refused = [error for error in errors[:failed] if isinstance(error, Exception)]
            waiting.refused = waiting.refused or next(iter(refused), None)
            left = waiting.claimed.parcel.held | {each.run_id for each in [*due[failed:], *rest]}
            then = with_scores(has, due[:failed], left=left)
            await self._ledger.settle(root_id, account, then)
            if failed < len(due) and (error := errors[failed]) is not None:
                raise error
            waiting.left = rest

    async def _judge(self, trace_id: str, span_id: str, score: Any) -> None:
        try:
            await self._within(self._sink.score(trace_id, [score], span_id=span_id))
        except ValueError as error:
            raise ExportError(f"{self._name} has no place for a score", permanent=True) from error

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


class _Told:
    """Logs what goes wrong with one trace, and lets the others go on."""

    def __init__(self, log: RepeatedFailure, name: str, root_id: str, this: _Round) -> None:
        self._log, self._failed = log, this.failed
        self._name, self._root_id = name, root_id

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._log.failed(f"the trace of run {self._root_id!r} does not get to {self._name}", error)
        self._failed[self._root_id] = error
        return True


def _next_scores(waiting: Iterable[_Waiting]) -> list[tuple[_Waiting, list[Judgement]]]:
    """Take out the scores to send together: two of one name on one span keep their order."""
    room, found = _SCORES_AT_ONCE, list[tuple[_Waiting, list[Judgement]]]()
    for each in waiting:
        names, some = set[tuple[str, str]](), list[Judgement]()
        for judged in each.left[:room]:
            if (name := (judged.span_id, judged.score.name)) in names:
                break
            names.add(name)
            some.append(judged)
        if some:
            found.append((each, some))
            del each.left[: len(some)]
            room -= len(some)
    return found


def _may_pass(error: BaseException | None) -> bool:
    """Tell whether what failed is to be tried again."""
    return error is not None and not (isinstance(error, Exception) and is_permanent(error))


def _traces_of(claimed: Sequence[_Claimed]) -> str:
    """Return of which runs the traces are, for the log; the first few of many."""
    shown = ", ".join(repr(each.root_id) for each in claimed[:_SHOWN])
    more = f" and {len(claimed) - _SHOWN} more" if len(claimed) > _SHOWN else ""
    return f"the traces of runs {shown}{more}"


def _note_taken(claimed: Sequence[_Claimed], ids: Iterable[str]) -> None:
    known = frozenset(ids)
    for each in claimed:
        each.taken |= known.intersection(span.span_id for span in each.parcel.spans)


def _seen(running: asyncio.Future[Any]) -> None:
    """Look at the exception of a call that nobody waits for any more."""
    if not running.cancelled():
        running.exception()
