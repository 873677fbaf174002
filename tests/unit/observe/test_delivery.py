"""What a sink gets: once, in the end, whatever fails or dies on the way."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from lib.errors import ExportError, StoreCorrupt
from lib.evals import Score, score_event
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.events.store import run_mark
from lib.observe import Observer, Span, span_id_of, trace_id_of
from lib.observe.ledger import Account, StoreLedger
from lib.testing.logs import at, make_log
from lib.testing.observed import HandEngine, ended, observed, until, within


class Engine(HandEngine):
    """An engine whose runs are judged."""

    async def scored(self, run_id: str, value: float | str, **more: Any) -> None:
        score = Score(name="good", value=value, comment="a secret", meta={"by": "a secret"})
        event = score_event(score, signal_id=f"{run_id}/{value}", now=at(90), **more)
        await self.store.append(run_id, [event], expected=None)


class Backend:
    """A backend that keeps its spans when processes die, and the sink in front of it."""

    destination = "backend"
    updates = "replace"

    def __init__(self, **traits: Any) -> None:
        self.exports: list[list[str]] = []
        self.spans: list[Span] = []
        self.scores: list[tuple[str, str | None, Score]] = []
        self.trouble: list[Exception | Callable[[], Any]] = []
        for name, value in traits.items():
            setattr(self, name, value)

    async def export(self, spans: Sequence[Span]) -> None:
        self.exports.append([span.run_id for span in spans])
        if self.trouble:
            trouble = self.trouble.pop(0)
            if isinstance(trouble, Exception):
                raise trouble
            await trouble()
        self.spans += spans

    def ids(self) -> list[str]:
        return [span.span_id for span in self.spans]


class Scoring(Backend):
    """A backend with a place for scores."""

    async def score(
        self, trace_id: str, scores: Sequence[Score], *, span_id: str | None = None
    ) -> None:
        if self.trouble:
            raise self.trouble.pop(0)  # type: ignore[misc] - the tests give errors
        self.scores += [(trace_id, span_id, score) for score in scores]


class Telling(Backend):
    """A backend that can be asked what it has."""

    async def known(self, trace_id: str) -> frozenset[str]:
        return frozenset(span.span_id for span in self.spans if span.trace_id == trace_id)


def begun(run_id: str = "run") -> list[Event]:
    return make_log((0, k.RUN_STARTED, {"algorithm": "a", "input": []}), run_id=run_id)


async def killed(engine: Engine, *sinks: Any, **options: Any) -> None:
    """Let an observer learn of all that has happened, and die before it exports anything."""
    observer = Observer(engine, list(sinks), settle_s=1000, **options)
    await observer.__aenter__()
    await engine.bus.flush()
    await observer.__aexit__(ZeroDivisionError, None, None)


def main(body: Callable[[Engine], Any], engine: Engine | None = None) -> Any:
    return within(engine or Engine(), body)


# -- after a restart ---------------------------------------------------------------------------


def test_what_was_due_when_a_process_died_is_exported_by_the_next_one_without_being_asked():
    backend = Backend()

    async def body(engine: Engine) -> None:
        async with observed(engine, backend):
            pass  # from here on the group has a cursor
        await engine.has(ended("one"), ended("two"))
        await killed(engine, backend)
        assert backend.exports == []
        async with observed(engine, backend) as observer:
            await until(lambda: len(backend.exports) == 2)
            assert await observer.drain()
        next_one = StoreLedger(engine.store, "lib.observe/backend", owner="next", claim_s=35)
        assert await next_one.owed() == []

    main(body)

    assert backend.exports == [["one"], ["two"]]


def test_what_a_sink_has_is_known_after_a_restart():
    backend = Backend()

    async def body(engine: Engine) -> list[int]:
        await engine.has(ended("one"))
        sent: list[int] = []
        for _ in range(3):
            async with observed(engine, backend) as observer:
                sent.append(await observer.backfill())
        return sent

    assert main(body) == [1, 0, 0]
    assert len(backend.spans) == 1


def test_another_destination_and_another_group_have_ledgers_of_their_own():
    async def body(engine: Engine) -> list[int]:
        await engine.has(ended("one"))
        sent: list[int] = []
        for destination, group in (("a", "x"), ("b", "x"), ("a", "y"), ("a", "x")):
            backend = Backend(destination=destination)
            async with observed(engine, backend, group=group) as observer:
                sent.append(await observer.backfill())
        return sent

    assert main(body) == [1, 1, 1, 0]


def test_two_sinks_of_one_destination_do_not_share_a_ledger():
    one, two = Backend(), Backend()

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        async with observed(engine, one, two) as observer:
            await observer.backfill()

    main(body)

    assert len(one.spans) == len(two.spans) == 1


def test_a_ledger_goes_with_its_run():
    backend = Backend()

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        async with observed(engine, backend) as observer:
            await observer.backfill()
            mark = run_mark("run", "observe/lib.observe/backend")
            assert await engine.store.mark(mark) is not None
            await engine.store.erase("run")
            assert await engine.store.mark(mark) is None
            assert await observer.backfill() == 0

    main(body)


def test_a_run_that_is_erased_while_it_is_exported_leaves_no_ledger():
    async def body(engine: Engine) -> None:
        async def erase() -> None:
            await engine.store.erase("run")

        backend = Backend()
        backend.trouble = [erase]
        await engine.has(ended("run"))
        async with observed(engine, backend) as observer:
            assert await observer.backfill() == 1
        assert await engine.store.mark(run_mark("run", "observe/lib.observe/backend")) is None

    main(body)


# -- several observers -------------------------------------------------------------------------


def test_observers_of_one_group_share_the_work():
    async def body(engine: Engine) -> None:
        gate = asyncio.Event()
        backend = Backend()
        backend.trouble = [gate.wait]
        other = Engine(engine.store)
        other.clock = engine.clock
        async with observed(engine, backend) as one, observed(other, backend) as two:
            await engine.has(ended("run"))
            first = asyncio.create_task(one.backfill())
            await until(lambda: backend.exports)
            assert await two.backfill() == 0  # the other one exports it just now
            gate.set()
            assert await first == 1
            engine.clock.advance(60)
            assert await two.drain()
        assert backend.exports == [["run"]]

    main(body)


def test_what_another_observer_exports_is_looked_at_again_when_its_claim_has_ended():
    gate = asyncio.Event()
    backend = Backend()
    backend.trouble = [gate.wait]

    async def body(engine: Engine) -> None:
        other = Engine(engine.store)
        other.clock = engine.clock
        async with observed(engine, backend) as one:
            async with observed(other, backend) as two:
                await engine.has(ended("run"))
                first = asyncio.create_task(one.backfill())
                await until(lambda: backend.exports)
                draining = asyncio.create_task(two.drain())
                await until(lambda: engine.clock.sleepers)
                gate.set()
                await first
                engine.clock.advance(60)
                assert await draining
            assert await one.drain()

    main(body)

    assert backend.exports == [["run"]]


def test_of_two_who_claim_a_trace_at_once_one_has_it():
    async def body(engine: Engine) -> list[object]:
        ledgers = [
            StoreLedger(engine.store, "x", owner=owner, claim_s=30) for owner in ("one", "two")
        ]
        now = engine.clock.now()
        return await asyncio.gather(*[ledger.claim("run", now=now) for ledger in ledgers])

    class Slow(MemoryEventStore):
        async def mark(self, name: str) -> str | None:
            found = await super().mark(name)
            await asyncio.sleep(0)  # noqa: TID251 - the other one reads the same
            return found

    found = main(body, Engine(Slow()))

    assert [type(each) for each in found] == [Account, datetime]


def test_a_log_that_makes_no_sense_is_given_up():
    backend = Backend()

    class Odd(MemoryEventStore):
        async def read(self, run_id: str, **rest: Any) -> list[Event]:
            events = await super().read(run_id, **rest)
            return [replace(event, data=None) for event in events]

    async def body(engine: Engine) -> bool:
        async with observed(engine, backend) as observer:
            await engine.has(ended("run"))
            return await observer.drain()

    assert not main(body, Engine(Odd()))


def test_flushes_go_on_after_a_store_that_could_not_be_read(
    caplog: pytest.LogCaptureFixture,
):
    backend = Backend()

    class Flaky(MemoryEventStore):
        broken = 1

        async def runs(self, query: Any = None) -> Any:
            if query.status == "open" and self.broken:
                self.broken -= 1
                raise StoreCorrupt("a page cannot be read")
            return await super().runs(query)

    async def body(engine: Engine) -> None:
        async with observed(engine, backend, flush_interval_s=1):
            await engine.has(begun())
            for _ in range(2):
                await until(lambda: engine.clock.sleepers)
                engine.clock.advance(1)
            await until(lambda: backend.spans)

    main(body, Engine(Flaky()))

    assert "open runs cannot be read for lib.observe" in caplog.text


def test_a_trace_whose_exporter_has_died_is_exported_once_its_claim_has_ended():
    backend = Telling()

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        dead = Observer(engine, backend, settle_s=0, group="g")
        backend.trouble = [asyncio.Event().wait]
        async with asyncio.timeout(10):
            dying = asyncio.create_task(dead.backfill())
            await until(lambda: backend.exports)
            dying.cancel()
        async with observed(engine, backend, group="g") as observer:
            assert await observer.backfill() == 0
            await until(lambda: engine.clock.sleepers)
            engine.clock.advance(60)
            assert await observer.drain()

    main(body)

    assert len(backend.spans) == 1


def test_spans_that_had_arrived_when_their_exporter_died_are_not_sent_again_if_the_sink_can_tell():
    async def body(engine: Engine, backend: Backend) -> int:
        await engine.has(ended("run"))

        async def taken_then_dead() -> None:
            backend.spans += [span]
            raise ExportError("the connection was lost")

        async with observed(engine, Backend(destination="other")) as observer:
            await observer.backfill()
        span = Span(
            trace_id_of("run"), span_id_of("run", "run", ""), None, "x", "agent", at(0), at(1)
        )
        backend.trouble = [taken_then_dead]
        async with observed(engine, backend) as observer:
            assert await observer.backfill() == 0
            return await observer.backfill()

    for backend, again in ((Telling(updates="first"), 0), (Backend(updates="first"), 1)):
        assert main(lambda engine, backend=backend: body(engine, backend)) == again
        assert len(backend.spans) == 1 + again


# -- sinks in trouble --------------------------------------------------------------------------


def test_a_sink_is_tried_again_and_left_alone_as_long_as_it_asks_for():
    backend = Backend()
    backend.trouble = [ExportError("busy", retry_after_s=7.0), ExportError("busy")]

    async def body(engine: Engine) -> None:
        async with observed(engine, backend):
            await engine.has(ended("one"), ended("two"))
            await engine.bus.flush()
            await until(lambda: engine.clock.sleepers)
            assert backend.exports == [["one"]]
            engine.clock.advance(6.9)
            await until(lambda: engine.clock.sleepers)
            assert backend.exports == [["one"]]
            engine.clock.advance(0.2)
            await until(lambda: len(backend.exports) == 2 and engine.clock.sleepers)
            assert backend.exports == [["one"], ["two"]]
            engine.clock.advance(60)
            await until(lambda: len(backend.spans) == 2)

    main(body)

    assert backend.exports == [["one"], ["two"], ["one"], ["two"]]


def test_the_pauses_of_a_sink_that_keeps_failing_grow_up_to_a_minute():
    backend = Backend()

    async def body(engine: Engine) -> list[float]:
        async with observed(engine, backend):
            backend.trouble = [ExportError("down")] * 12
            await engine.has(ended("run"))
            await engine.bus.flush()
            pauses: list[float] = []
            for tries in range(1, 10):
                await until(lambda tries=tries: len(backend.exports) == tries)
                await until(lambda: engine.clock.sleepers)
                before = engine.clock.monotonic()
                while len(backend.exports) == tries:
                    engine.clock.advance(0.5)
                    await until(lambda: engine.clock.sleepers)
                pauses.append(engine.clock.monotonic() - before)
            backend.trouble = []
            return pauses

    pauses = main(body)

    assert pauses[:4] == sorted(pauses[:4])
    assert pauses[-1] == pytest.approx(60, abs=1)


def test_several_traces_go_into_one_export_where_the_sink_says_so_and_a_bad_one_alone_is_lost():
    backend = Backend(traces_at_once=2)

    async def refuse_two() -> None:
        if "two" in backend.exports[-1]:
            raise ExportError("malformed", permanent=True)

    backend.trouble = [refuse_two] * 9

    async def body(engine: Engine) -> bool:
        async with observed(engine, backend) as observer:
            await engine.has(ended("one"), ended("two"), ended("three"))
            drained = await observer.drain()
            assert await observer.backfill() == 0
            backend.trouble = []
            assert await observer.backfill() == 1
            assert await observer.drain()
            return drained

    assert not main(body)
    assert backend.exports[:4] == [["one", "two"], ["one"], ["two"], ["three"]]
    assert sorted(span.run_id for span in backend.spans) == ["one", "three", "two"]


def test_spans_that_were_taken_before_a_failure_are_not_sent_again():
    backend = Backend(updates="first")
    call: dict[str, Any] = {"key": "t", "call_id": "c", "name": "n", "args": {}, "effects": "none"}

    async def take_one_and_fail() -> None:
        taken = frozenset({span_id_of("run", "run", "")})
        raise ExportError("the second request failed", taken=taken)

    backend.trouble = [take_one_and_fail]

    async def body(engine: Engine) -> None:
        await engine.has(begun())
        await engine.grows("run", (2, k.TOOL_REQUESTED, call))
        await engine.grows("run", (3, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
        async with observed(engine, backend) as observer:
            assert await observer.backfill() == 0
            assert await observer.backfill() == 1

    main(body)

    assert [len(export) for export in backend.exports] == [2, 1]


def test_of_several_traces_what_was_taken_before_one_is_refused_is_not_sent_again():
    backend = Backend(updates="first", traces_at_once=3)

    async def take_one_and_refuse() -> None:
        if len(backend.exports) == 1:
            taken = frozenset({span_id_of("one", "run", "")})
            raise ExportError("the second span is malformed", permanent=True, taken=taken)
        if backend.exports[-1] == ["two"]:
            raise ExportError("malformed", permanent=True)

    backend.trouble = [take_one_and_refuse] * 3

    async def body(engine: Engine) -> None:
        async with observed(engine, backend) as observer:
            await engine.has(ended("one"), ended("two"), ended("three"))
            assert not await observer.drain()

    main(body)

    assert backend.exports == [["one", "two", "three"], ["two"], ["three"]]


def test_what_cannot_be_written_down_is_told_and_sent_again():
    backend = Backend()

    class Full(MemoryEventStore):
        full = False

        async def swap_mark(self, name: str, **rest: Any) -> bool:
            if self.full:
                raise StoreCorrupt("no room")
            return await super().swap_mark(name, **rest)

    store = Full()

    async def fill() -> None:
        store.full = True

    backend.trouble = [fill]

    async def body(engine: Engine) -> None:
        async with observed(engine, backend) as observer:
            await engine.has(ended("run"))
            assert not await observer.drain()
            store.full = False
            assert await observer.drain()

    main(body, Engine(store))

    assert backend.exports == [["run"], ["run"]]


def test_a_lane_goes_on_where_its_list_of_what_is_due_cannot_be_read():
    backend = Backend()

    class Broken(MemoryEventStore):
        broken = True

        async def swap_mark(self, name: str, **rest: Any) -> bool:
            if self.broken and not name.startswith("bus/"):
                raise StoreCorrupt("a page cannot be read")
            return await super().swap_mark(name, **rest)

    store = Broken()

    async def body(engine: Engine) -> None:
        async with observed(engine, backend) as observer:
            await asyncio.sleep(0)  # noqa: TID251 - the lane begins
            store.broken = False
            await engine.has(ended("run"))
            assert await observer.drain()

    main(body, Engine(store))

    assert backend.exports == [["run"]]


def test_claims_that_cannot_be_given_back_run_out():
    backend = Backend()

    class Stuck(MemoryEventStore):
        async def swap_mark(self, name: str, *, expected: str | None, value: str | None) -> bool:
            if expected and "claim" in expected:
                raise StoreCorrupt("no room")
            return await super().swap_mark(name, expected=expected, value=value)

    backend.trouble = [ExportError("down")]

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        async with observed(engine, backend) as observer:
            assert await observer.backfill() == 0

    main(body, Engine(Stuck()))


# -- sinks that cannot be corrected ------------------------------------------------------------


def test_a_sink_for_which_the_first_word_counts_gets_no_open_span_and_none_twice():
    backend = Backend(updates="first")
    call: dict[str, Any] = {"key": "t", "call_id": "c", "name": "n", "args": {}, "effects": "none"}

    async def body(engine: Engine) -> None:
        async with observed(engine, backend) as observer:
            await engine.has(begun())
            assert await observer.flush_open() == 0
            await engine.grows("run", (2, k.TOOL_REQUESTED, call))
            await engine.grows("run", (3, k.TOOL_COMPLETED, {"key": "t", "output": "x"}))
            assert await observer.flush_open() == 1
            assert await observer.export_trace("run") == 0
            await engine.store.claim("worker", ttl_s=5, run_id="run")
            engine.clock.advance(10)
            assert await observer.flush_open() == 1  # the root, as interrupted
            await engine.grows("run", (120, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
            assert await observer.drain()
            assert await observer.export_trace("run") == 0

    main(body)

    assert len(set(backend.ids())) == len(backend.ids()) == 2


def test_periodic_flushes_leave_a_dead_run_a_minute_to_be_taken_over():
    backend = Backend(updates="first")

    async def body(engine: Engine) -> None:
        await engine.has(begun())
        await engine.store.claim("worker", ttl_s=5, run_id="run")
        async with observed(engine, backend, flush_interval_s=30):
            for _ in range(2):
                await until(lambda: engine.clock.sleepers)
                assert backend.spans == []
                engine.clock.advance(30)
            await until(lambda: engine.clock.sleepers)
            engine.clock.advance(30)
            await until(lambda: backend.spans)

    main(body)


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

    told = [(trace_id, span_id, score.value) for trace_id, span_id, score in backend.scores]
    run_span = trace_id_of("run"), span_id_of("run", "run", "")
    assert told == [(*run_span, 0.25), (*run_span, 0.75)]
    assert all(score.at == at(90) for _, _, score in backend.scores)
    assert len(set(backend.ids())) == 3  # the run and its two judgements


@pytest.mark.parametrize("captured", [True, False])
def test_what_a_score_says_in_words_is_content(captured: bool):
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
            assert len(backend.exports) == exported + 1

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
