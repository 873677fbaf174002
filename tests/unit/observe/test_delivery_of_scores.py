"""Scores follow their trace, each once, and a refused one holds no other back."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fakes.observed import ended, observed
from lib.errors import ExportError
from lib.evals import Score, score_event
from lib.events import MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.observe import span_id_of, trace_id_of
from lib.testing.logs import at

from .delivery_kit import Backend, Engine, begun, main


class Scoring(Backend):
    """A backend with a place for scores."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.scores: list[tuple[str, str | None, Score]] = []

    async def score(
        self, trace_id: str, scores: Sequence[Score], *, span_id: str | None = None
    ) -> None:
        if self.trouble:
            raise self.trouble.pop(0)  # type: ignore[misc] - the tests give errors
        self.scores += [(trace_id, span_id, score) for score in scores]


class PickyBackend(Backend):
    """A backend that takes some scores, and only so many."""

    def __init__(self, *, refuses: tuple[str, ...] = (), limit: int = 1000) -> None:
        super().__init__()
        self.refuses, self.limit = refuses, limit
        self.names: list[str] = []
        self.calls = 0

    async def score(
        self, trace_id: str, scores: Sequence[Score], *, span_id: str | None = None
    ) -> None:
        self.calls += 1
        if scores[0].name in self.refuses:
            raise ExportError("no such name", permanent=True)
        if scores[0].name == "odd":
            raise ValueError("no place for it")
        if len(self.names) >= self.limit:
            raise ExportError("too many", retry_after_s=60)
        self.names.append(scores[0].name)


# -- scores ------------------------------------------------------------------------------------


def test_scores_follow_their_trace_late_ones_too_and_each_once():
    backend = Scoring()

    async def body(engine: Engine) -> None:
        async with observed(engine, backend) as observer:
            await engine.has(begun())
            await engine.scored("run", 0.25)
            await engine.grows("run", (2, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
            await observer.drain()
            await engine.scored("run", 0.75)
            await engine.scored("run", 0.75)  # the same signal once more
            await observer.drain()
        async with observed(engine, backend) as observer:
            assert await observer.backfill() == 0

    main(body)

    result = [(trace_id, span_id, score.value) for trace_id, span_id, score in backend.scores]
    run_span = trace_id_of("run"), span_id_of("run", "run", "")
    assert result == [(*run_span, 0.25), (*run_span, 0.75)]
    assert all(score.at == at(90) for _, _, score in backend.scores)
    assert [span.kind for span in backend.spans] == ["agent"]  # scores are no spans here


@pytest.mark.parametrize("captured", [True, False])
def test_the_label_of_a_score_is_content(captured: bool):
    backend = Scoring()

    async def body(engine: Engine) -> None:
        await engine.has(begun())
        await engine.scored("run", 1)
        await engine.scored("run", "a secret label")
        await engine.scored("run", "polite")
        await engine.grows("run", (2, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
        async with observed(engine, backend, capture_content=captured) as observer:
            await observer.backfill()

    main(body)

    assert ("a secret" in repr([backend.scores, backend.spans])) is captured
    assert len(backend.scores) == (3 if captured else 2)


def test_scores_that_a_sink_does_not_take_are_tried_again_without_the_spans():
    backend = Scoring()

    async def body(engine: Engine) -> None:
        await engine.has(begun())
        await engine.scored("run", 1, span_id=span_id_of("run", "run", ""))
        await engine.grows("run", (2, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
        async with observed(engine, backend) as observer:
            await observer.backfill()
            exported = len(backend.exports)
            backend.scores.clear()
            await engine.scored("run", 0)
            backend.trouble = []

            async def taken() -> None:
                backend.trouble = [ExportError("not yet there")]

            backend.trouble = [taken]
            assert not await observer.drain()
            assert await observer.drain()
            assert len(backend.exports) == exported

    main(body)

    assert [score.value for _, _, score in backend.scores] == [0.0]


def test_a_sink_that_shows_scores_as_spans_is_not_called_for_them():
    backend = Scoring(scores_as_spans=True)

    async def body(engine: Engine) -> None:
        await engine.has(begun())
        await engine.scored("run", 1)
        await engine.grows("run", (2, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
        async with observed(engine, backend) as observer:
            assert await observer.backfill() == 2

    main(body)

    assert backend.scores == []
    assert [span.kind for span in backend.spans] == ["agent", "evaluator"]


def test_a_score_in_words_that_are_none_is_left_out():
    backend = Scoring()

    async def body(engine: Engine) -> None:
        await engine.has(begun())
        odd = {"signal_id": "s", "name": "", "value": [1]}
        await engine.grows("run", (1, k.EVAL_SCORE, odd))
        await engine.grows("run", (2, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
        async with observed(engine, backend) as observer:
            await observer.backfill()

    main(body)

    assert backend.scores == []


@pytest.mark.parametrize("span_id", [[], {}, 7, "not one of its spans"])
def test_a_score_of_nothing_is_a_score_of_the_run(span_id: Any):
    sink = PickyBackend()
    odd = {"signal_id": "s", "name": "good", "value": 1, "span_id": span_id}

    async def body(engine: Engine) -> int:
        await engine.has(ended("run"))
        await engine.store.append("run", [NewEvent(k.EVAL_SCORE, odd, at(5))], expected=None)
        async with observed(engine, sink) as observer:
            return await observer.backfill()

    assert main(body) == 1
    assert sink.names == ["good"]


# -- scores that are refused -------------------------------------------------------------------


def test_scores_beyond_a_rate_limit_go_on_where_they_stopped():
    sink = PickyBackend(limit=3)

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        await engine.judged("run", *[f"score-{number}" for number in range(5)])
        async with observed(engine, sink) as observer:
            assert await observer.backfill() == 1
            assert len(sink.names) == 3
            sink.limit = 1000
            await observer.backfill()

    main(body)

    assert sink.names == [f"score-{number}" for number in range(5)]
    assert sink.calls == 5 + 2


def test_a_score_that_is_refused_for_good_holds_no_other_back_and_is_not_sent_again():
    sink = PickyBackend(refuses=("note",))

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        await engine.judged("run", "one", "note", "odd", "two")
        async with observed(engine, sink) as observer:
            await observer.backfill()
            await engine.judged("run", "three")
            await observer.drain()
            assert await observer.backfill() == 0
            assert await observer.drain()

    main(body)

    assert sink.names == ["one", "two", "three"]
    assert sink.calls == 5


def test_a_score_claimed_by_another_observer_is_not_sent():
    sink = PickyBackend()

    class Store(MemoryEventStore):
        settled = 0

        async def compare_and_set_mark(
            self, name: str, *, expected: str | None, value: str | None
        ) -> bool:
            done = await super().compare_and_set_mark(name, expected=expected, value=value)
            if name.startswith("run/") and value and "claim" not in value and done:
                self.settled += 1
                claimed = value[:-1] + ',"claim":["other","2999-01-01T00:00:00+00:00"]}'
                await self.set_mark(name, claimed)
            return done

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        await engine.judged("run", "one")
        async with observed(engine, sink) as observer:
            assert await observer.backfill() == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        main(body, Engine(Store()))

    assert (sink.names, sink.calls) == ([], 0)


# -- many scores -------------------------------------------------------------------------------


class Busy(Backend):
    """A backend that counts the scores that are under way at once."""

    def __init__(self, enough: int) -> None:
        super().__init__(traces_per_export=32)
        self.enough, self.most, self.under_way = enough, 0, 0
        self.full = asyncio.Event()
        self.scores: list[tuple[str | None, str, object]] = []

    async def score(
        self, trace_id: str, scores: Sequence[Score], *, span_id: str | None = None
    ) -> None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        if self.under_way == self.enough:
            self.full.set()
        await self.full.wait()
        self.under_way -= 1
        self.scores += [(span_id, score.name, score.value) for score in scores]


@pytest.mark.parametrize(("runs", "scores"), [(30, 1), (1, 30), (3, 10)])
def test_scores_are_sent_several_at_once_but_not_all(runs: int, scores: int):
    sink = Busy(enough=16)

    async def body(engine: Engine) -> None:
        for run_id in range(runs):
            await engine.has(ended(f"run-{run_id}"))
            await engine.judged(f"run-{run_id}", *[f"score-{number}" for number in range(scores)])
        async with observed(engine, sink) as observer:
            assert await observer.backfill() == runs
            for run_id in range(runs):
                await observer.export_trace(f"run-{run_id}", final=False)

    main(body)

    assert sink.most == 16
    assert len(sink.scores) == len(set(sink.scores)) == 30


def test_two_scores_of_one_name_are_sent_one_after_the_other():
    sink = Busy(enough=1)

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        for value in range(5):
            await engine.scored("run", value)
        async with observed(engine, sink) as observer:
            await observer.backfill()

    main(body)

    assert [value for _, _, value in sink.scores] == [0, 1, 2, 3, 4]
    assert sink.most == 1


def test_a_score_of_a_score_belongs_to_the_scored_span():
    sink = Busy(enough=1)
    judgement = span_id_of("run", "score", "run/1")

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        await engine.scored("run", 1)
        judged = Score(name="agreed", value=True)
        event = score_event(judged, signal_id="s", now=at(91), span_id=judgement)
        await engine.store.append("run", [event], expected=None)
        async with observed(engine, sink) as observer:
            await observer.backfill()

    main(body)

    root = span_id_of("run", "run", "")
    assert sink.scores == [(root, "good", 1), (root, "agreed", True)]


def test_a_score_that_comes_late_makes_no_trace_longer():
    with_scores, without = Scoring(), Backend()

    async def body(engine: Engine) -> None:
        async with observed(engine, with_scores, without) as observer:
            await engine.has(ended("run"))
            await observer.drain()
            event = score_event(Score(name="x", value=1), signal_id="s", now=at(72_000))
            await engine.store.append("run", [event], expected=None)
            await observer.drain()

    main(body)

    assert [span.kind for span in with_scores.spans] == ["agent"]
    assert [(name.name, name.at) for _, _, name in with_scores.scores] == [("x", at(72_000))]
    assert [span.kind for span in without.spans] == ["agent", "evaluator"]
