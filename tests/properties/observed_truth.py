"""The state that the logs imply and that every backend must have in the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from lib.evals import score_of
from lib.events import Event, RunInfo
from lib.events import kinds as k
from lib.events.store import run_mark
from lib.observe import Span, span_id_of, spans_from_events, trace_id_of
from lib.observe import attributes as a
from lib.observe.export.outbox import StoreOutbox
from lib.observe.spans import interrupt
from lib.observe.trace import is_dead
from lib.testing.clock import ManualClock

from .observed_world import GROUP, MARKER, Backend, Growing, ScoreKey


class Truth:
    """The state that the logs imply, to compare with backends."""

    def __init__(self, growing: Growing, backends: Sequence[Backend], clock: ManualClock) -> None:
        self._growing, self._backends, self._clock = growing, backends, clock
        self._store = growing.store

    async def check_pending(self) -> None:
        """Runs that had ended arrive by themselves, unless refused for good."""
        for backend in self._backends:
            for info in await self._store.runs():
                root = await self._growing.info(info.root_id)
                if root.status == "closed" and trace_id_of(root.run_id) not in backend.ever_refused:
                    self._check_closed(backend, info)

    def _check_closed(self, backend: Backend, info: RunInfo) -> None:
        if info.status == "open":
            return
        for span in self._spans(info):
            assert span.span_id in backend.held, (backend.name, span)
        assert set(self._score_keys(info)) <= set(backend.scores), backend.name

    def _spans(self, info: RunInfo) -> list[Span]:
        above = self._growing.logs.get(info.parent_id or "", ())
        spans = spans_from_events(self._growing.logs[info.run_id], parent_events=above)
        return [span for span in spans if span.kind != "evaluator"]  # these backends keep scores

    def _score_keys(self, info: RunInfo) -> Iterator[ScoreKey]:
        own = span_id_of(info.run_id, "run", "")
        for event in self._growing.logs[info.run_id]:
            score = score_of(event) if event.kind == k.EVAL_SCORE else None
            if score is not None:
                first = next(
                    e
                    for e in self._growing.logs[info.run_id]
                    if e.data.get("signal_id") == event.data["signal_id"]
                )
                span_id = event.data.get("span_id", own)
                yield trace_id_of(info.root_id), span_id, score.name, score.value, first.at

    async def check(self) -> None:
        """Every backend has what the logs tell, once."""
        infos = await self._store.runs()
        for backend in self._backends:
            spans = {span.span_id for info in infos for span in self._spans(info)}
            assert set(backend.held) <= spans
            for info in infos:
                self._check_run(backend, info)
            judged = {one for info in infos for one in self._score_keys(info)}
            assert set(backend.scores) <= judged, backend.name

    def _check_run(self, backend: Backend, info: RunInfo) -> None:
        spans = self._spans(info)
        dead = is_dead(info, self._clock.now())
        result = _cut(spans, self._growing.logs[info.run_id]) if dead else spans
        for span, now in zip(spans, result, strict=True):
            held = backend.held.get(span.span_id, [])
            assert len(held) <= 1, (backend.name, held)
            self._compare(backend, held, span, now)
        there = {span.span_id for span in result if span.end is not None}
        if backend.updates == "replace" and info.parent_id is None:
            there.add(spans[0].span_id)
        if spans[0].span_id in there:  # a score waits for its span, and those after it with it
            due = takewhile(lambda one: one[1] in there, self._score_keys(info))
            assert set(due) <= set(backend.scores), backend.name

    def _compare(self, backend: Backend, held: list[Span], span: Span, now: Span) -> None:
        where = (backend.name, span, held)
        early = [one for one in held if one.attributes.get(a.ERROR_TYPE) == "interrupted"]
        if now.end is not None:
            assert held == [now] or (backend.updates == "first" and early), where
        elif backend.updates == "first":
            assert held == early, where
        elif span.parent_id is None:
            assert held, where

    async def check_marks(self) -> None:
        """No trace is pending, and no mark quotes content."""
        for backend in self._backends:
            name = f"{GROUP}/{backend.name}"
            assert not await StoreOutbox(self._store, name, owner="x", claim_s=1).pending(), name
            for info in await self._store.runs():
                mark = run_mark(info.run_id, f"observe/{GROUP}/{backend.name}")
                assert MARKER not in (await self._store.mark(mark) or "")


def _cut(spans: Sequence[Span], log: Sequence[Event]) -> list[Span]:
    last = next(event.at for event in reversed(log) if not k.is_signal(event.kind))
    return interrupt(spans, last)
