"""What a sink has of a trace, and what of it is still to be sent. Pure.

A span is settled once the log has closed it: it never changes again. What is sent before, an open
root or a span told as interrupted, is sent early. A sink that replaces what it has gets it again
whenever it has changed; one for which the first word counts gets no open spans, and once only what
was interrupted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from lib._util.json import canonical, parse
from lib.events import RunInfo
from lib.observe import attributes as a
from lib.observe.span import Span, Updates
from lib.observe.trace import Judgement, RunTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What a sink has acknowledged of one trace.

    Attributes:
        heads: by run, the `seq` up to which it has every settled span.
        scored: by run, the `seq` of the last score that it has, of runs with scores.
        unscored: the runs of which it lacks scores.
        cut: the runs that it was told to be interrupted.
        early: by span id, a digest of what it was last told of spans that are not settled.
    """

    heads: Mapping[str, int] = field(default_factory=dict[str, int])
    scored: Mapping[str, int] = field(default_factory=dict[str, int])
    unscored: frozenset[str] = frozenset()
    cut: frozenset[str] = frozenset()
    early: Mapping[str, str] = field(default_factory=dict[str, str])

    def lacks(self, info: RunInfo, *, dead: bool) -> bool:
        """Tell whether there may be anything of a run that the sink does not have."""
        if info.head != self.heads.get(info.run_id, 0) or info.run_id in self.unscored:
            return True
        return dead and info.run_id not in self.cut

    def to_json(self) -> dict[str, Any]:
        """Return the same as JSON values, what is empty left out."""
        told: dict[str, Any] = {
            "heads": dict(self.heads),
            "scored": dict(self.scored),
            "unscored": sorted(self.unscored),
            "cut": sorted(self.cut),
            "early": dict(self.early),
        }
        return {name: value for name, value in told.items() if value}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Delivered:
        """Return what `to_json` has told."""
        return cls(
            heads=told.get("heads", {}),
            scored=told.get("scored", {}),
            unscored=frozenset(told.get("unscored", ())),
            cut=frozenset(told.get("cut", ())),
            early=told.get("early", {}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """What a sink is to get of one trace.

    Attributes:
        spans: parents before children.
        judgements: the scores that it lacks, and can be given.
        held: the runs of which a score waits for the span that it is of.
        then: what it has once it has taken the spans.
    """

    spans: Sequence[Span] = ()
    judgements: Sequence[Judgement] = ()
    held: frozenset[str] = frozenset()
    then: Delivered = field(default_factory=Delivered)


def parcel(
    runs: Sequence[RunTrace],
    done: Delivered,
    *,
    updates: Updates,
    again: bool,
    known: frozenset[str] = frozenset(),
    scores_apart: bool = False,
    root_first: bool = False,
) -> Parcel:
    """Return what a sink lacks of a trace.

    Args:
        runs: the trace, or those runs of it of which something may be lacking; the root's first.
        done: what the sink has.
        updates: what it does with a span that it has already.
        again: whether a sink that replaces gets everything again, open spans included.
        known: the ids of spans that it turned out to have, though it has not acknowledged them.
        scores_apart: whether it gets scores as such, and so no spans of them: a score that comes
            hours later would stretch its trace.
        root_first: whether it needs the root before all else: that of an open session is sent as
            if it had ended with its last turn.
    """
    if root_first and runs and runs[0].is_root and runs[0].spans[0].end is None:
        if not (closed := _ended_with_its_turns(runs[0])):
            return Parcel(then=done)
        runs = [closed, *runs[1:]]
    everything = again and updates == "replace"
    spans, judgements, held = list[Span](), list[Judgement](), set[str]()
    heads, early = dict(done.heads), dict(done.early)
    cut, unscored = set(done.cut), set(done.unscored)
    for run in runs:
        lacking = list(run.spans) if everything else list(_lacking(run, done, updates))
        if scores_apart:
            lacking = [span for span in lacking if span.kind != "evaluator"]
        spans += [span for span in lacking if span.span_id not in known]
        early |= {s.span_id: digest(s) for s in lacking if s.span_id not in run.settled}
        told = early.keys() | run.settled
        for span_id in run.settled:
            early.pop(span_id, None)
        heads[run.run_id] = run.head
        (cut.add if run.cut else cut.discard)(run.run_id)
        due, waiting = _due_judgements(run, done, told=told)
        judgements += due
        held |= {run.run_id} if waiting else set()
        (unscored.add if due or waiting else unscored.discard)(run.run_id)
    then = Delivered(
        heads=heads,
        scored=done.scored,
        unscored=frozenset(unscored),
        cut=frozenset(cut),
        early=early,
    )
    return Parcel(spans=spans, judgements=judgements, held=frozenset(held), then=then)


def _ended_with_its_turns(session: RunTrace) -> RunTrace | None:
    """Return an open session as if it had ended with its last turn, None if it has had none."""
    root, *others = session.spans
    ends = [span.end for span in others if span.end is not None]
    if not ends:
        return None
    attributes = dict(sorted({**root.attributes, a.RUN_OPEN: True}.items()))
    return replace(session, spans=[replace(root, end=max(ends), attributes=attributes), *others])


def _due_judgements(
    run: RunTrace, done: Delivered, *, told: AbstractSet[str]
) -> tuple[list[Judgement], bool]:
    """Return the scores that a sink lacks, and whether one waits for the span that it is of.

    No backend keeps a score for long whose span does not come, and some none of a run without its
    root: scores are held until both are there, and then come in their order.
    """
    last = done.scored.get(run.run_id, 0)
    lacking = [judged for judged in run.judgements if judged.seq > last]
    if run.spans[0].span_id not in told:
        return [], bool(lacking)
    due = list(takewhile(lambda judged: judged.span_id in told, lacking))
    return due, len(due) < len(lacking)


def with_early(done: Delivered, spans: Iterable[Span]) -> Delivered:
    """Return what a sink has that took some spans of a trace, and then failed."""
    return replace(done, early={**done.early, **{span.span_id: digest(span) for span in spans}})


def with_scores(
    done: Delivered, judged: Sequence[Judgement], *, left: AbstractSet[str]
) -> Delivered:
    """Return what a sink has that took more scores.

    Args:
        done: what it had.
        judged: the scores, those of a run in their order.
        left: the runs of which more are to come.
    """
    scored = {**done.scored, **{each.run_id: each.seq for each in judged}}
    complete = {each.run_id for each in judged} - left
    return replace(done, scored=scored, unscored=done.unscored - complete)


def _lacking(run: RunTrace, done: Delivered, updates: Updates) -> Iterator[Span]:
    had = run.settled_by(done.heads.get(run.run_id, 0))
    for span in run.spans:
        if span.span_id in had:
            continue
        told = done.early.get(span.span_id)
        if told is not None and (updates == "first" or told == digest(span)):
            continue
        root = span is run.spans[0] and run.is_root
        if span.end is not None or (root and updates == "replace"):
            yield span


def digest(span: Span) -> str:
    """Return a short text that differs between different versions of a span."""
    raw = repr(span).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(raw, digest_size=8).hexdigest()


def encode(told: Mapping[str, Any]) -> str:
    """Return JSON values as the text that a store keeps."""
    return canonical(told)


def decode(text: str | None) -> dict[str, Any]:
    """Return what `encode` was given, nothing if there is no text."""
    return parse(text) if text else {}
