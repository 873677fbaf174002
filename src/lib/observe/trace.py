"""One trace: a root run and everything below it, read from the store and turned into spans."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from lib.evals import Score, score_of
from lib.events import Event, EventStore, RunInfo, RunQuery
from lib.events import kinds as k
from lib.observe.span import Span, span_id_of
from lib.observe.spans import interrupt, spans_from_events
from lib.observe.spans.values import word

_INLINE_EVENTS: Final = 16
"""A longer log is turned into spans in a thread: it takes some 12 microseconds an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Whether spans show content, and how many characters of each piece."""

    content: bool
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A score, and the span that it is of."""

    seq: int
    span_id: str
    score: Score


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrace:
    """The spans of one run, as its log tells them.

    Attributes:
        run_id: the run.
        events: its log.
        spans: the run's own first, every parent before its children.
        settled: the ids of those which will never change.
        cut: whether its process has died, so that what was open is told as interrupted.
        judgements: the scores in its log.
    """

    run_id: str
    events: Sequence[Event]
    spans: Sequence[Span]
    settled: frozenset[str]
    cut: bool
    judgements: Sequence[Judgement]

    @property
    def head(self) -> int:
        """The `seq` up to which the log was read."""
        return self.events[-1].seq

    def settled_by(self, seq: int) -> frozenset[str]:
        """Return the ids of the spans that the log had closed by then."""
        if seq >= self.head:
            return self.settled
        return _closed(spans_from_events(self.events[:seq]))


Wanted = Callable[[RunInfo, bool], bool]
"""Tells of a run, and whether its process has died, whether its spans are of interest."""


async def read_trace(
    store: EventStore, root_id: str, *, dead_at: datetime, capture: Capture, wanted: Wanted
) -> list[RunTrace]:
    """Return the runs of a trace that are wanted, parents first; none if the root is not here.

    Args:
        store: the logs.
        root_id: the run at the root.
        dead_at: a run whose lease has ended by then, unreturned, has lost its process.
        capture: what the spans may show.
        wanted: which runs to read.
    """
    runs = await store.runs(RunQuery(root_id=root_id))
    if not runs or runs[0].run_id != root_id:
        return []
    dead = {info.run_id for info in runs if is_dead(info, dead_at)}
    chosen = [info for info in runs if wanted(info, info.run_id in dead)]
    needed = {info.run_id for info in chosen} | {info.parent_id or root_id for info in chosen}
    logs = {run_id: await store.read(run_id) for run_id in sorted(needed)}
    chosen = [info for info in chosen if logs[info.run_id]]  # others were erased meanwhile

    def derived() -> list[RunTrace]:
        return [
            _run_trace(
                logs[info.run_id],
                logs.get(info.parent_id or "", ()),
                cut=info.run_id in dead,
                capture=capture,
            )
            for info in chosen
        ]

    if sum(map(len, logs.values())) > _INLINE_EVENTS:
        return await asyncio.to_thread(derived)
    return derived()


def _run_trace(
    events: Sequence[Event], parent_events: Sequence[Event], *, cut: bool, capture: Capture
) -> RunTrace:
    spans = spans_from_events(
        events,
        parent_events=parent_events,
        capture_content=capture.content,
        content_limit=capture.limit,
    )
    own = span_id_of(events[0].run_id, "run", "")
    known = {span.span_id for span in spans}
    return RunTrace(
        run_id=events[0].run_id,
        events=events,
        spans=interrupt(spans, _last_heard_of(events)) if cut else spans,
        settled=_closed(spans),
        cut=cut,
        judgements=_judgements(events, own, known, content=capture.content),
    )


def _judgements(
    events: Sequence[Event], own: str, known: set[str], *, content: bool
) -> list[Judgement]:
    found: dict[str, Judgement] = {}
    for event in events:
        score = score_of(event) if event.kind == k.EVAL_SCORE else None
        if score is not None and not content:
            score = _without_content(score)
        if score is None:
            continue
        span_id = event.data.get("span_id")
        judged = Judgement(seq=event.seq, span_id=span_id if span_id in known else own, score=score)
        found.setdefault(str(event.data.get("signal_id", event.seq)), judged)
    return list(found.values())


def _without_content(score: Score) -> Score | None:
    """Return a score without what somebody wrote, None if nothing is left of it."""
    if isinstance(score.value, str) and word(score.value) is None:
        return None
    return score.model_copy(update={"comment": None, "meta": {}})


def _closed(spans: Sequence[Span]) -> frozenset[str]:
    return frozenset(span.span_id for span in spans if span.end is not None)


def is_dead(info: RunInfo, at: datetime) -> bool:
    """Tell whether the run's owner has died: it is open, and its lease has ended unreturned."""
    lease = info.lease_until
    return info.status == "open" and info.owner is not None and lease is not None and lease <= at


def _last_heard_of(events: Sequence[Event]) -> datetime:
    """Return when the run's owner wrote its last event; signals come from anybody."""
    return next(event.at for event in reversed(events) if not k.is_signal(event.kind))
