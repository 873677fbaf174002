"""What an observer does about slow, odd and failing sinks, odd logs, and backends with demands."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lib.errors import ExportError
from lib.evals import Score, score_event
from lib.events import Event, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.events.store import run_mark
from lib.observe import Observer, Span, span_id_of
from lib.observe.ledger import StoreLedger
from lib.testing.logs import at, make_log
from lib.testing.observed import HandEngine, ended, observed, until, within

CALL: dict[str, Any] = {"key": "t", "call_id": "c", "name": "n", "args": {}, "effects": "none"}


class Engine(HandEngine):
    """An engine whose runs are judged."""

    async def scored(self, run_id: str, *names: str) -> None:
        for name in names:
            event = score_event(Score(name=name, value=1), signal_id=name, now=at(90))
            await self.store.append(run_id, [event], expected=None)


class Sink:
    """Keeps what it is given, and does before that what a test says."""

    destination: str | None = "backend"

    def __init__(self, *then: Any, **traits: Any) -> None:
        self.exports: list[list[str]] = []
        self.spans: list[Span] = []
        self.then = list(then)
        for name, value in traits.items():
            setattr(self, name, value)

    async def export(self, spans: Sequence[Span]) -> None:
        self.exports.append([span.run_id for span in spans])
        if self.then:
            then = self.then.pop(0)
            if isinstance(then, Exception):
                raise then
            await then()
        self.spans += spans


class ScoringSink(Sink):
    """The same, with scores, each of which may be refused."""

    refuses: tuple[str, ...] = ()
    limit = 1000

    async def score(
        self, trace_id: str, scores: Sequence[Score], *, span_id: str | None = None
    ) -> None:
        self.calls = getattr(self, "calls", 0) + 1
        if scores[0].name in self.refuses:
            raise ExportError("no such name", permanent=True)
        if scores[0].name == "odd":
            raise ValueError("no place for it")
        if len(getattr(self, "names", [])) >= self.limit:
            raise ExportError("too many", retry_after_s=60)
        self.names = [*getattr(self, "names", []), scores[0].name]


def called(run_id: str = "run") -> list[Event]:
    return make_log(
        (0, k.RUN_STARTED, {"algorithm": "a", "input": []}),
        (1, k.TOOL_REQUESTED, CALL),
        (2, k.TOOL_COMPLETED, {"key": "t", "call_id": "c", "output": "x"}),
        run_id=run_id,
    )


def main(body: Callable[[Engine], Any], engine: Engine | None = None) -> Any:
    return within(engine or Engine(), body)


# -- several observers, and slow sinks ---------------------------------------------------------


def test_two_observers_of_one_group_drain_as_soon_as_one_of_them_has_exported():
    sink = Sink(updates="first")

    async def body(engine: Engine) -> None:
        other = Engine(engine.store)
        other.clock = engine.clock
        async with observed(engine, sink) as one, observed(other, sink) as two:
            await engine.has(*[ended(f"run-{number}") for number in range(5)])
            draining = asyncio.gather(one.drain(), two.drain())
            while not draining.done():
                await asyncio.sleep(0)  # noqa: TID251 - lets the observers run
                engine.clock.advance(0.1)
            assert await draining == [True, True]
            assert engine.clock.monotonic() < 100 + 15

    main(body)

    assert sorted(sink.exports) == [[f"run-{number}"] for number in range(5)]


def test_a_hanging_sink_delays_no_other_when_open_runs_are_flushed():
    stuck, healthy = Sink(*[asyncio.Event().wait] * 9), Sink(destination="healthy")

    async def body(engine: Engine) -> None:
        await engine.has(*[called(f"run-{number}") for number in range(5)])
        async with observed(engine, stuck, healthy, sink_timeout_s=30) as observer:
            flushing = asyncio.create_task(observer.flush_open())
            await until(lambda: len(healthy.exports) == 5)
            assert len(stuck.exports) == 1
            flushing.cancel()
            raise ZeroDivisionError  # leaves without draining

    with pytest.raises(ZeroDivisionError):
        main(body)


def test_a_periodic_flush_leaves_a_sink_alone_that_rests():
    sink = Sink(ExportError("busy", retry_after_s=300))

    async def body(engine: Engine) -> None:
        await engine.has(called())
        async with observed(engine, sink, flush_interval_s=10):
            await engine.has(ended("other"))
            await engine.bus.flush()
            await until(lambda: sink.exports)
            for _ in range(10):
                for _ in range(50):
                    await asyncio.sleep(0)  # noqa: TID251 - lets the observer run
                engine.clock.advance(10)
            assert len(sink.exports) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        main(body)


def test_a_wait_that_a_backend_asks_for_is_an_hour_at_most():
    sink = Sink(ExportError("later", retry_after_s=1e12))

    async def body(engine: Engine) -> None:
        async with observed(engine, sink):
            await engine.has(ended("run"))
            await engine.bus.flush()
            await until(lambda: sink.exports)
            await until(lambda: engine.clock.sleepers)
            engine.clock.advance(3601)
            await until(lambda: sink.spans)

    main(body)


def test_a_trace_that_a_backend_stumbles_over_does_not_keep_the_others_back():
    sink = Sink(traces_at_once=8)

    async def stumble() -> None:
        if "run-3" in sink.exports[-1]:
            raise ExportError("internal error")

    sink.then = [stumble] * 100

    async def body(engine: Engine) -> None:
        async with observed(engine, sink):
            await engine.has(*[ended(f"run-{number}") for number in range(8)])
            await engine.bus.flush()
            while len(sink.spans) < 7:
                await asyncio.sleep(0)  # noqa: TID251 - lets the observer run
                engine.clock.advance(1)
            assert engine.clock.monotonic() < 100 + 120
            sink.then = []

    main(body)

    assert "run-3" in {span.run_id for span in sink.spans}


def test_an_odd_error_of_a_sink_is_one_that_passes_and_ends_no_lane():
    odd = RuntimeError("odd")
    odd.retry_after_s = "30"  # type: ignore[attr-defined] - that is what is odd
    odd.taken = 7  # type: ignore[attr-defined] - likewise
    sink = Sink(odd, ValueError("not JSON"), ExportError("down"))

    async def body(engine: Engine) -> None:
        async with observed(engine, sink):
            await engine.has(ended("run"))
            await engine.bus.flush()
            while not sink.spans:
                await asyncio.sleep(0)  # noqa: TID251 - lets the observer run
                engine.clock.advance(1)

    main(body)

    assert len(sink.exports) == 4


def test_spans_that_are_lost_for_good_are_told_and_not_sent_again():
    taken = frozenset(span_id_of(run_id, "run", "") for run_id in ("one", "two"))
    partial = ExportError("2 of 2 spans were refused", permanent=True, taken=taken, lost=2)
    sink = Sink(partial, updates="first", traces_at_once=2)

    async def body(engine: Engine) -> None:
        async with observed(engine, sink) as observer:
            await engine.has(ended("one"), ended("two"))
            assert not await observer.drain()
            assert await observer.backfill() == 0

    main(body)

    assert sink.exports == [["one", "two"]]


def test_what_a_sink_has_taken_before_the_time_was_up_is_not_sent_again():
    class Telling(Sink):
        tells_taken = True

        async def export(
            self, spans: Sequence[Span], *, on_taken: Callable[[Sequence[str]], None] | None = None
        ) -> None:
            assert on_taken is not None
            self.exports.append([span.name for span in spans])
            on_taken([spans[0].span_id])
            if len(self.exports) == 1:
                await asyncio.Event().wait()

    sink = Telling(updates="first")

    async def body(engine: Engine) -> None:
        await engine.has(called())
        await engine.grows("run", (3, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
        async with observed(engine, sink, sink_timeout_s=0.02) as observer:
            assert await observer.backfill() == 0
            assert await observer.backfill() == 1

    main(body)

    assert sink.exports == [["invoke_agent a", "execute_tool n"], ["execute_tool n"]]


def test_what_is_due_under_a_wrong_key_arrives_once_the_key_is_right():
    wrong = ExportError("check the API key", permanent=True, setup=True)
    sink = Sink(*[wrong] * 4)

    async def body(engine: Engine) -> None:
        async with observed(engine, sink) as observer:
            await engine.has(ended("one"), ended("two"))
            assert not await observer.drain()
            assert len(sink.exports) < 4  # it is left alone meanwhile
            raise ZeroDivisionError

    async def later(engine: Engine) -> None:
        with pytest.raises(ZeroDivisionError):
            await body(engine)
        sink.then = []
        async with observed(engine, sink) as observer:
            assert await observer.drain()

    main(later)

    assert sorted(span.run_id for span in sink.spans) == ["one", "two"]


def test_an_observer_can_be_used_again():
    sink = Sink()

    async def body(engine: Engine) -> None:
        observer = Observer(engine, sink, settle_s=0)
        for name in ("one", "two"):
            async with observer:
                await engine.has(ended(name))
                assert await observer.drain()

    main(body)

    assert sink.exports == [["one"], ["two"]]


# -- backends that drop what has no root -------------------------------------------------------


def test_a_backend_that_needs_the_root_gets_nothing_before_it():
    sink = Sink(updates="first", needs_root=True)

    async def body(engine: Engine) -> None:
        await engine.has(called())
        async with observed(engine, sink) as observer:
            assert await observer.flush_open() == 0
            await engine.grows("run", (3, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
            assert await observer.drain()
        await engine.has(called("dead"))
        await engine.store.claim("worker", ttl_s=1, run_id="dead")
        engine.clock.advance(5)
        async with observed(engine, sink) as observer:
            assert await observer.flush_open() == 2

    main(body)

    assert [len(export) for export in sink.exports] == [2, 2]


def test_a_run_is_not_called_interrupted_early_because_another_observer_was_at_it():
    gate = asyncio.Event()
    sink = Sink(gate.wait, updates="first")

    async def body(engine: Engine) -> None:
        other = Engine(engine.store)
        other.clock = engine.clock
        await engine.has(called())
        await engine.store.claim("worker", ttl_s=30, run_id="run")
        async with observed(engine, sink) as one, observed(other, sink):
            first = asyncio.create_task(one.flush_open())
            await until(lambda: sink.exports)
            gate.set()
            await first
            engine.clock.advance(45)  # the lease has ended 15 seconds ago
            async with observed(engine, sink, group="other") as third:
                await third._flush(dead_for_s=60.0)  # pyright: ignore[reportPrivateUsage] - as the periodic one
            for _ in range(20):
                await asyncio.sleep(0)  # noqa: TID251 - lets the lanes run

    main(body)

    assert all(span.attributes.get("error.type") is None for span in sink.spans)


# -- scores ------------------------------------------------------------------------------------


def test_scores_beyond_a_rate_limit_go_on_where_they_stopped():
    sink = ScoringSink(limit=3)

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        await engine.scored("run", *[f"score-{number}" for number in range(5)])
        async with observed(engine, sink) as observer:
            assert await observer.backfill() == 6
            assert len(sink.names) == 3
            sink.limit = 1000
            await observer.backfill()

    main(body)

    assert sink.names == [f"score-{number}" for number in range(5)]
    assert sink.calls == 6


def test_a_score_that_is_refused_for_good_holds_no_other_back_and_is_not_sent_again():
    sink = ScoringSink(refuses=("note",))

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        await engine.scored("run", "one", "note", "odd", "two")
        async with observed(engine, sink) as observer:
            await observer.backfill()
            await engine.scored("run", "three")
            await observer.drain()
            assert await observer.backfill() == 0
            assert await observer.drain()

    main(body)

    assert sink.names == ["one", "two", "three"]
    assert sink.calls == 5


def test_a_score_that_somebody_else_sends_is_left_to_them():
    class Slow(ScoringSink):
        async def export(self, spans: Sequence[Span]) -> None:
            await super().export(spans)
            mark = run_mark("run", "observe/lib.observe/backend")
            self.taken_over = mark

    sink = Slow()

    class Store(MemoryEventStore):
        settled = 0

        async def swap_mark(self, name: str, *, expected: str | None, value: str | None) -> bool:
            done = await super().swap_mark(name, expected=expected, value=value)
            if name.startswith("run/") and value and "claim" not in value and done:
                self.settled += 1
                claimed = value[:-1] + ',"claim":["somebody","2999-01-01T00:00:00+00:00"]}'
                await self.set_mark(name, claimed)
            return done

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        await engine.scored("run", "one")
        async with observed(engine, sink) as observer:
            assert await observer.backfill() == 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        main(body, Engine(Store()))

    assert not hasattr(sink, "names")


# -- logs that make no sense -------------------------------------------------------------------


@pytest.mark.parametrize("span_id", [[], {}, 7, "not one of its spans"])
def test_a_score_of_nothing_is_a_score_of_the_run(span_id: Any):
    sink = ScoringSink()
    odd = {"signal_id": "s", "name": "good", "value": 1, "span_id": span_id}

    async def body(engine: Engine) -> int:
        await engine.has(ended("run"))
        await engine.store.append("run", [NewEvent(k.EVAL_SCORE, odd, at(5))], expected=None)
        async with observed(engine, sink) as observer:
            return await observer.backfill()

    assert main(body) == 2
    assert sink.names == ["good"]


def test_a_child_whose_log_makes_no_sense_does_not_take_its_trace_along(
    caplog: pytest.LogCaptureFixture,
):
    sink = Sink()

    class Odd(MemoryEventStore):
        async def read(self, run_id: str, **rest: Any) -> list[Event]:
            events = await super().read(run_id, **rest)
            return events[1:] if run_id == "child" else events

    async def body(engine: Engine) -> int:
        below = {"root": "run", "parent": {"run_id": "run", "key": "t"}}
        child = make_log(
            (1, k.RUN_STARTED, {"algorithm": "a", "input": [], **below}),
            (2, k.RUN_COMPLETED, {"outcome": "COMPLETED"}),
            run_id="child",
        )
        await engine.has(called(), child)
        await engine.grows("run", (3, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
        async with observed(engine, sink) as observer:
            return await observer.backfill()

    assert main(body, Engine(Odd())) == 2
    assert "the log of run 'child' is damaged" in caplog.text


def test_a_run_that_is_erased_between_looking_and_claiming_leaves_nothing():
    sink = Sink()

    class Erasing(MemoryEventStore):
        async def swap_mark(self, name: str, *, expected: str | None, value: str | None) -> bool:
            if name.startswith("run/") and expected is None:
                await self.erase("run")
            return await super().swap_mark(name, expected=expected, value=value)

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        async with observed(engine, sink) as observer:
            assert await observer.backfill() == 0
        mark = run_mark("run", "observe/lib.observe/backend")
        assert await engine.store.mark(mark) is None

    main(body, Engine(Erasing()))

    assert sink.exports == []


def test_the_same_holds_for_a_sink_that_ends_with_the_process():
    class Erasing(MemoryEventStore):
        runs_read = 0

        async def read(self, run_id: str, **rest: Any) -> list[Event]:
            await self.erase("run")
            return await super().read(run_id, **rest)

    sink = Sink(destination=None)

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        async with observed(engine, sink) as observer:
            assert await observer.backfill() == 0

    main(body, Engine(Erasing()))

    assert sink.exports == []


# -- backfill ----------------------------------------------------------------------------------


def test_a_limit_of_a_backfill_counts_what_is_lacking_so_that_it_gets_further_each_time():
    sink = Sink()

    async def body(engine: Engine) -> list[int]:
        await engine.has(*[ended(f"run-{number}") for number in range(5)])
        async with observed(engine, sink) as observer:
            return [await observer.backfill(limit=2) for _ in range(4)]

    assert main(body) == [2, 2, 1, 0]


def test_what_is_known_of_a_trace_is_on_every_span_of_it():
    sink = Sink()

    async def body(engine: Engine) -> None:
        turn: dict[str, Any] = {"signal_id": "s", "input": []}
        await engine.has(called())
        await engine.store.append("run", [NewEvent(k.TURN_REQUESTED, turn, at(3))], expected=None)
        async with observed(engine, sink) as observer:
            await observer.flush_open()

    main(body)

    assert {span.trace["lib.trace.name"] for span in sink.spans} == {"invoke_workflow a"}
    assert {span.trace["gen_ai.conversation.id"] for span in sink.spans} == {"run"}


def test_a_long_log_is_read_in_pages():
    sink = Sink()

    class Paged(MemoryEventStore):
        longest = 0

        async def read(
            self, run_id: str, *, after: int = 0, limit: int | None = None
        ) -> list[Event]:
            found = await super().read(run_id, after=after, limit=limit)
            self.longest = max(self.longest, len(found))
            return found

    store = Paged()

    async def body(engine: Engine) -> None:
        started: dict[str, Any] = {"algorithm": "a", "input": []}
        entries: list[tuple[float, str, dict[str, Any]]] = [(0, k.RUN_STARTED, started)]
        entries += [(1, "note", {})] * 2500
        await engine.has(make_log(*entries, (2, k.RUN_COMPLETED, {"outcome": "COMPLETED"})))
        async with observed(engine, sink) as observer:
            assert await observer.backfill() == 1

    main(body, Engine(store))

    assert store.longest == 1000


def test_a_backfill_goes_on_though_runs_are_erased_meanwhile():
    async def body(engine: Engine) -> int:
        async def erase() -> None:
            await engine.store.erase("run-1")

        sink = Sink(erase, erase)
        await engine.has(ended("run-0"), ended("run-1"))
        async with observed(engine, sink) as observer:
            return await observer.backfill(limit=5)

    assert main(body) == 1


def test_a_sink_that_ends_with_the_process_is_tried_again_with_what_it_lacks():
    taken = frozenset({span_id_of("run", "run", "")})
    sink = Sink(ExportError("down", taken=taken), destination=None, updates="first")

    async def body(engine: Engine) -> None:
        await engine.has(called())
        await engine.grows("run", (3, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
        async with observed(engine, sink) as observer:
            assert await observer.backfill() == 0
            assert await observer.backfill() == 1

    main(body)

    assert [span.kind for span in sink.spans] == ["tool"]


def test_a_store_that_fails_oddly_ends_no_lane(caplog: pytest.LogCaptureFixture):
    class Odd(MemoryEventStore):
        faults = 1

        async def swap_mark(self, name: str, *, expected: str | None, value: str | None) -> bool:
            if self.faults and expected and "claim" in expected:
                self.faults -= 1
                raise RuntimeError("odd")
            return await super().swap_mark(name, expected=expected, value=value)

    sink = Sink(ExportError("down"))

    async def body(engine: Engine) -> None:
        async with observed(engine, sink):
            await engine.has(ended("run"))
            await engine.bus.flush()
            while not sink.spans:
                await asyncio.sleep(0)  # noqa: TID251 - lets the observer run
                engine.clock.advance(10)

    main(body, Engine(Odd()))

    assert "the lane of Sink goes on after an error" in caplog.text


def test_batches_that_are_gone_are_passed_over_some_at_a_time():
    async def body(engine: Engine) -> list[tuple[str, int]]:
        ledger = StoreLedger(engine.store, "x", owner="one", claim_s=30)
        batches = [await ledger.owe([f"run-{number}"]) for number in range(150)]
        for batch in batches[:140]:
            await ledger.paid(batch)
        last = await ledger.owe(["last"])
        assert last == 150
        return await StoreLedger(engine.store, "x", owner="two", claim_s=30).owed()

    found = main(body)

    assert found == [*[(f"run-{number}", number) for number in range(140, 150)], ("last", 150)]


def test_what_is_left_when_an_observer_is_used_again_is_struck_off_the_list_once(
    caplog: pytest.LogCaptureFixture,
):
    sink = Sink(ExportError("down"), ExportError("still down"), ExportError("and still"))

    async def body(engine: Engine) -> list[tuple[str, int]]:
        observer = Observer(engine, sink, settle_s=0)
        async with observer:
            await engine.has(ended("one"), ended("two"))
            await observer.drain()
        caplog.clear()
        sink.then = []
        async with observer:
            assert await observer.drain()
        ledger = StoreLedger(engine.store, "lib.observe/backend", owner="next", claim_s=35)
        return await ledger.owed()

    assert main(body) == []
    assert caplog.messages == []
    assert sorted(span.run_id for span in sink.spans) == ["one", "two"]


def test_a_limit_of_a_backfill_holds_for_a_sink_that_takes_nothing():
    sink = Sink(*[ExportError("down")] * 9)

    async def body(engine: Engine) -> int:
        await engine.has(*[ended(f"run-{number}") for number in range(5)])
        async with observed(engine, sink) as observer:
            sent = await observer.backfill(limit=2)
            assert sink.exports == [["run-0"], ["run-1"]]
            return sent

    assert main(body) == 0
