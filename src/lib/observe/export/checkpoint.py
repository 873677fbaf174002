"""The delivery state of a trace: what a sink has, and what is still to be sent. Pure.

A span is final once the log has closed it: it never changes again. What is sent before that (an
open root, a span closed as interrupted) is provisional. A sink whose backend replaces spans gets a
provisional span again whenever it has changed; one whose backend keeps the first version gets no
open spans, and an interrupted span once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from lib.events import RunInfo
from lib.observe import attributes as a
from lib.observe.sink import Updates
from lib.observe.span import Span
from lib.observe.trace import LoggedScore, RunTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryState:
    """The part of one trace that a sink has acknowledged.

    Attributes:
        heads: by run, the `seq` up to which the sink has every final span.
        score_heads: by run, the `seq` of the last score that it has; runs without scores are
            missing.
        pending_scores: the runs of which it lacks scores.
        interrupted: the runs that were sent as interrupted.
        provisional: by span id, a digest of the version last sent of a span that is not final.
    """

    heads: Mapping[str, int] = field(default_factory=dict[str, int])
    score_heads: Mapping[str, int] = field(default_factory=dict[str, int])
    pending_scores: frozenset[str] = frozenset()
    interrupted: frozenset[str] = frozenset()
    provisional: Mapping[str, str] = field(default_factory=dict[str, str])

    def lacks(self, info: RunInfo, *, dead: bool) -> bool:
        """Return True if there may be something of a run that the sink does not have."""
        if info.head != self.heads.get(info.run_id, 0) or info.run_id in self.pending_scores:
            return True
        return dead and info.run_id not in self.interrupted

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values, without empty ones."""
        values: dict[str, Any] = {
            "heads": dict(self.heads),
            "scored": dict(self.score_heads),
            "unscored": sorted(self.pending_scores),
            "cut": sorted(self.interrupted),
            "early": dict(self.provisional),
        }
        return {name: value for name, value in values.items() if value}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> DeliveryState:
        """Return the state that `to_json` has written; other keys are ignored."""
        return cls(
            heads=values.get("heads", {}),
            score_heads=values.get("scored", {}),
            pending_scores=frozenset(values.get("unscored", ())),
            interrupted=frozenset(values.get("cut", ())),
            provisional=values.get("early", {}),
        )

    def with_provisional(self, spans: Iterable[Span]) -> DeliveryState:
        """Return the state after some spans of an export arrived and the rest failed."""
        digests = {span.span_id: digest(span) for span in spans}
        return replace(self, provisional={**self.provisional, **digests})

    def with_scores(
        self, scores: Sequence[LoggedScore], *, pending: AbstractSet[str]
    ) -> DeliveryState:
        """Return the state after more scores arrived.

        Args:
            scores: those of a run in their order.
            pending: the runs of which more are to come.
        """
        heads = {**self.score_heads, **{each.run_id: each.seq for each in scores}}
        complete = {each.run_id for each in scores} - pending
        return replace(self, score_heads=heads, pending_scores=self.pending_scores - complete)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingExport:
    """The part of one trace that is to be sent.

    Attributes:
        spans: parents before children.
        scores: the scores that the sink lacks and can take.
        waiting_runs: the runs with a score whose span was not sent yet.
        next_state: the state of the sink once it has taken the spans.
    """

    spans: Sequence[Span] = ()
    scores: Sequence[LoggedScore] = ()
    waiting_runs: frozenset[str] = frozenset()
    next_state: DeliveryState = field(default_factory=DeliveryState)


def pending_export(
    runs: Sequence[RunTrace],
    state: DeliveryState,
    *,
    updates: Updates,
    full: bool,
    stored: frozenset[str] = frozenset(),
    separate_scores: bool = False,
    root_first: bool = False,
) -> PendingExport:
    """Return what a sink lacks of a trace.

    Args:
        runs: the trace, or the runs of it of which something may be missing; the root's first.
        state: what the sink has acknowledged.
        updates: what its backend does with a second version of a span.
        full: whether a backend that replaces gets everything again, open spans included.
        stored: ids of spans that the backend has, though it has not acknowledged them.
        separate_scores: whether scores go through `score`, and so not as spans: a score that comes
            hours later would stretch its trace.
        root_first: whether the backend needs the root before all else: that of an open session is
            sent as if it had ended with its last turn.
    """
    if root_first and runs and runs[0].is_root and runs[0].spans[0].end is None:
        if not (closed := _ended_with_last_turn(runs[0])):
            return PendingExport(next_state=state)
        runs = [closed, *runs[1:]]
    everything = full and updates == "replace"
    spans, scores, waiting_runs = list[Span](), list[LoggedScore](), set[str]()
    heads, provisional = dict(state.heads), dict(state.provisional)
    interrupted, pending_scores = set(state.interrupted), set(state.pending_scores)
    for run in runs:
        missing = list(run.spans) if everything else list(_missing_spans(run, state, updates))
        if separate_scores:
            missing = [span for span in missing if span.kind != "evaluator"]
        spans += [span for span in missing if span.span_id not in stored]
        provisional |= {s.span_id: digest(s) for s in missing if s.span_id not in run.final_ids}
        sent_ids = provisional.keys() | run.final_ids
        for span_id in run.final_ids:
            provisional.pop(span_id, None)
        heads[run.run_id] = run.head
        (interrupted.add if run.interrupted else interrupted.discard)(run.run_id)
        ready, waiting = _ready_scores(run, state, sent_ids=sent_ids)
        scores += ready
        waiting_runs |= {run.run_id} if waiting else set()
        (pending_scores.add if ready or waiting else pending_scores.discard)(run.run_id)
    next_state = DeliveryState(
        heads=heads,
        score_heads=state.score_heads,
        pending_scores=frozenset(pending_scores),
        interrupted=frozenset(interrupted),
        provisional=provisional,
    )
    return PendingExport(
        spans=spans, scores=scores, waiting_runs=frozenset(waiting_runs), next_state=next_state
    )


def _ended_with_last_turn(session: RunTrace) -> RunTrace | None:
    """Return an open session as if it had ended with its last turn, None if no turn has ended."""
    root, *others = session.spans
    ends = [span.end for span in others if span.end is not None]
    if not ends:
        return None
    attributes = dict(sorted({**root.attributes, a.RUN_OPEN: True}.items()))
    return replace(session, spans=[replace(root, end=max(ends), attributes=attributes), *others])


def _ready_scores(
    run: RunTrace, state: DeliveryState, *, sent_ids: AbstractSet[str]
) -> tuple[list[LoggedScore], bool]:
    """Return the missing scores whose spans were sent, and whether others wait for theirs.

    No backend keeps a score for long whose span does not come, and some keep none of a run without
    its root: scores are held until both are there, and then go in their order.
    """
    last = state.score_heads.get(run.run_id, 0)
    missing = [score for score in run.scores if score.seq > last]
    if run.spans[0].span_id not in sent_ids:
        return [], bool(missing)
    ready = list(takewhile(lambda score: score.span_id in sent_ids, missing))
    return ready, len(ready) < len(missing)


def _missing_spans(run: RunTrace, state: DeliveryState, updates: Updates) -> Iterator[Span]:
    delivered = run.final_ids_at(state.heads.get(run.run_id, 0))
    for span in run.spans:
        if span.span_id in delivered:
            continue
        sent = state.provisional.get(span.span_id)
        if sent is not None and (updates == "first" or sent == digest(span)):
            continue
        root = span is run.spans[0] and run.is_root
        if span.end is not None or (root and updates == "replace"):
            yield span


def digest(span: Span) -> str:
    """Return a short text that differs between different versions of a span."""
    raw = repr(span).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(raw, digest_size=8).hexdigest()
