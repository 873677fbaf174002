"""A trace: the logs of a root run and all runs below it, read and turned into spans."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeVar

from lib.errors import ExportError
from lib.evals import Score, score_of
from lib.events import Event, EventStore, RunInfo, RunQuery
from lib.events import kinds as k
from lib.events.paging import log_pages
from lib.events.runs import is_held
from lib.observe import attributes as a
from lib.observe.span import Span, span_id_of
from lib.observe.spans import interrupt, spans_from_events
from lib.observe.spans.content import Definitions
from lib.observe.spans.values import word

_log = logging.getLogger("lib.observe")

T = TypeVar("T")

_OF_ALL: Final = (a.SESSION, a.CONVERSATION_ID, a.TAGS, a.ENVIRONMENT)
"""What holds for a whole trace if its root says so."""

_PAGE: Final = 1000

_INLINE_EVENTS: Final = 16
"""A longer log is turned into spans in a thread: it takes some 12 microseconds an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Options of captured content: if spans show it, and how many characters of each piece.

    Attributes:
        definitions: looks up definitions of tools; without it, tools are shown by name.
    """

    content: bool
    limit: int
    definitions: Definitions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedScore:
    """A score, the run whose log contains it, and the span that was scored."""

    run_id: str
    seq: int
    span_id: str
    score: Score


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrace:
    """The spans of one run, derived from its log.

    Attributes:
        run_id: the run.
        is_root: whether it is the trace's root.
        events: its log.
        spans: the run's own first, every parent before its children.
        final_ids: the ids of the spans that will never change.
        interrupted: whether its process has died, so that its open spans end as interrupted.
        scores: the scores in its log.
    """

    run_id: str
    is_root: bool
    events: Sequence[Event]
    spans: Sequence[Span]
    final_ids: frozenset[str]
    interrupted: bool
    scores: Sequence[LoggedScore]

    @property
    def head(self) -> int:
        """The `seq` up to which the log was read."""
        return self.events[-1].seq

    def final_ids_at(self, seq: int) -> frozenset[str]:
        """Return the ids of the spans that the log had closed at that `seq`."""
        if seq >= self.head:
            return self.final_ids
        return _closed_ids(spans_from_events(self.events[:seq]))


Wanted = Callable[[RunInfo, bool], bool]
"""Takes a run, and whether its process has died; returns True to read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """The logs of some runs of a trace.

    Attributes:
        root_id: the run at the root, whose log is always contained.
        run_ids: the runs to derive spans of, parents first.
        by_run: the logs of these runs, and of those that have started them.
        parents: which run has started each of them.
        dead: the runs whose process has died.
    """

    root_id: str
    run_ids: Sequence[str]
    by_run: Mapping[str, Sequence[Event]]
    parents: Mapping[str, str | None]
    dead: frozenset[str]

    @property
    def size(self) -> int:
        """The number of events."""
        return sum(map(len, self.by_run.values()))


async def read_trace(
    store: EventStore, root_id: str, *, dead_at: datetime, capture: Capture, wanted: Wanted
) -> list[RunTrace]:
    """Return the chosen runs of a trace, parents first; none if the store lacks the root.

    Args:
        store: the logs.
        root_id: the run at the root.
        dead_at: a run whose lease expired before that time, without being released, is dead.
        capture: what the spans may show.
        wanted: chooses the runs to read.
    """
    runs = await store.runs(RunQuery(root_id=root_id))
    logs = await read_logs(store, root_id, runs, dead_at=dead_at, wanted=wanted)
    return (
        [] if logs is None else await run_beside_loop(logs.size, lambda: derive_runs(logs, capture))
    )


async def read_logs(
    store: EventStore,
    root_id: str,
    runs: Sequence[RunInfo],
    *,
    dead_at: datetime,
    wanted: Wanted,
) -> Logs | None:
    """Return the logs of the chosen runs of a trace; None if the store lacks the root."""
    dead = frozenset(info.run_id for info in runs if is_dead(info, dead_at))
    chosen = [info for info in runs if wanted(info, info.run_id in dead)]
    needed = {root_id, *(info.run_id for info in chosen)}
    needed |= {info.parent_id for info in chosen if info.parent_id is not None}
    by_run = {run_id: await _log_of(store, run_id) for run_id in sorted(needed)}
    if not by_run[root_id]:
        return None
    return Logs(
        root_id=root_id,
        run_ids=[info.run_id for info in chosen if by_run[info.run_id]],  # others were erased
        by_run=by_run,
        parents={info.run_id: info.parent_id for info in chosen},
        dead=dead,
    )


async def _log_of(store: EventStore, run_id: str) -> list[Event]:
    """Return a log, read in pages: a store in this process would block the event loop."""
    log: list[Event] = []
    async for page in log_pages(store, run_id, page=_PAGE):
        log += page
        await asyncio.sleep(0)  # noqa: TID251 - yields to other tasks
    return log


async def run_beside_loop(events: int, work: Callable[[], T]) -> T:
    """Return what the work returns, in a thread unless it is about few events."""
    return await asyncio.to_thread(work) if events > _INLINE_EVENTS else work()


def derive_runs(logs: Logs, capture: Capture) -> list[RunTrace]:
    """Return the spans of the chosen runs; a run below the root with a damaged log has none.

    Raises:
        ExportError: the root's log is damaged.
    """
    facts = _trace_attributes(_run_span(logs.root_id, logs.by_run[logs.root_id]))
    found: list[RunTrace] = []
    for run_id in logs.run_ids:
        events, parent = logs.by_run[run_id], logs.by_run.get(logs.parents[run_id] or "", ())
        try:
            run = _run_trace(
                events,
                parent,
                facts,
                root_id=logs.root_id,
                interrupted=run_id in logs.dead,
                capture=capture,
            )
        except Exception:  # noqa: BLE001 - around a log: only its run is lost
            _log.exception("the log of run %r is damaged: it is left out of its trace", run_id)
            continue
        found.append(run)
    return found


def root_span(logs: Logs) -> Span:
    """Return the span of a trace's root as it began.

    Raises:
        ExportError: its log is damaged.
    """
    return _run_span(logs.root_id, logs.by_run[logs.root_id][:1])


def _run_span(run_id: str, events: Sequence[Event]) -> Span:
    try:
        return spans_from_events(events)[0]
    except Exception as error:
        raise ExportError(f"the log of run {run_id!r} is damaged", permanent=True) from error


def _trace_attributes(root: Span) -> dict[str, Any]:
    """Return the attributes that hold for every span of a trace."""
    shared = {name: root.attributes[name] for name in _OF_ALL if name in root.attributes}
    return {**shared, a.TRACE_NAME: root.name}


def _run_trace(
    events: Sequence[Event],
    parent_events: Sequence[Event],
    facts: Mapping[str, Any],
    *,
    root_id: str,
    interrupted: bool,
    capture: Capture,
) -> RunTrace:
    spans = spans_from_events(
        events,
        parent_events=parent_events,
        capture_content=capture.content,
        content_limit=capture.limit,
        tool_definitions=capture.definitions,
    )
    own = span_id_of(events[0].run_id, "run", "")
    ended = interrupt(spans, _last_own_event_at(events)) if interrupted else spans
    return RunTrace(
        run_id=events[0].run_id,
        is_root=events[0].run_id == root_id,
        events=events,
        spans=[replace(span, trace=facts) for span in ended],
        final_ids=_closed_ids(spans),
        interrupted=interrupted,
        scores=_logged_scores(events, own, _scored_spans(spans), content=capture.content),
    )


def _scored_spans(spans: Sequence[Span]) -> dict[str, str | None]:
    """Return by span id which span a score of it belongs to: for a score's span, the one above."""
    found: dict[str, str | None] = {}
    for span in spans:  # parents come before their children
        score_of_score = span.kind == "evaluator"
        found[span.span_id] = found.get(span.parent_id or "") if score_of_score else span.span_id
    return found


def _logged_scores(
    events: Sequence[Event], own: str, scored_spans: Mapping[str, str | None], *, content: bool
) -> list[LoggedScore]:
    found: dict[str, LoggedScore] = {}
    for event in events:
        score = score_of(event) if event.kind == k.EVAL_SCORE else None
        if score is not None and not content:
            score = _without_content(score)
        if score is None:
            continue
        span_id = scored_spans.get(word(event.data.get("span_id")) or "") or own
        logged = LoggedScore(run_id=event.run_id, seq=event.seq, span_id=span_id, score=score)
        found.setdefault(str(event.data.get("signal_id", event.seq)), logged)
    return list(found.values())


def _without_content(score: Score) -> Score | None:
    """Return a score without free text, None if nothing is left of it."""
    if isinstance(score.value, str) and word(score.value) is None:
        return None
    return score.model_copy(update={"comment": None, "meta": {}})


def _closed_ids(spans: Sequence[Span]) -> frozenset[str]:
    return frozenset(span.span_id for span in spans if span.end is not None)


def is_dead(info: RunInfo, at: datetime) -> bool:
    """Return True if a run is open and its lease expired without being released."""
    until = info.lease_until
    return (
        info.status == "open"
        and info.owner is not None
        and not (until is None or is_held(until, at))
    )


def _last_own_event_at(events: Sequence[Event]) -> datetime:
    """Return when the run's owner wrote its last event; signals come from other processes."""
    return next(event.at for event in reversed(events) if not k.is_signal(event.kind))
