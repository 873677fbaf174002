"""Concurrent queues, observers and callers, in rare orders."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fakes.observed import HandEngine
from lib.errors import ExportError
from lib.evals import Score, score_event
from lib.events import Event, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.observe import Observer, SinkTraits, Span, span_id_of
from lib.observe.export.outbox import StoreOutbox
from lib.testing.logs import at, make_log, store_log


class Engine(HandEngine):
    """An engine whose run ends, and is judged."""

    async def ends(self) -> None:
        info = await self.store.run("run")
        assert info is not None
        await self.store.append("run", [NewEvent(*END, at(3))], expected=info.head)

    async def scored(self, run_id: str, name: str, span_id: str | None = None) -> None:
        event = score_event(Score(name=name, value=1), signal_id=name, now=at(9), span_id=span_id)
        await self.store.append(run_id, [event], expected=None)


class Backend:
    """Keeps every export and every score, and does before each what a test says."""

    def __init__(self, *then: Callable[[], Awaitable[Any]], **traits: Any) -> None:
        self.exports: list[list[str]] = []
        self.scores: list[str] = []
        self.then = list(then)
        declared: dict[str, Any] = {"destination": "backend", **traits}
        self.traits = SinkTraits(**declared)

    async def export(self, spans: Sequence[Span]) -> None:
        self.exports.append([span.span_id for span in spans])
        if self.then:
            await self.then.pop(0)()

    async def score(
        self, trace_id: str, scores: Sequence[Score], *, span_id: str | None = None
    ) -> None:
        if scores[0].name == "note":
            raise ExportError("no such name", permanent=True)
        self.scores += [score.name for score in scores]


END: tuple[str, dict[str, Any]] = (k.RUN_COMPLETED, {"outcome": "COMPLETED"})
CALLED: list[tuple[float, str, dict[str, Any]]] = [
    (0, k.RUN_STARTED, {"algorithm": "a", "input": []}),
    (1, k.TOOL_REQUESTED, {"key": "tool/1", "call_id": "c", "name": "look", "args": {}}),
    (1, k.TOOL_COMPLETED, {"key": "tool/1", "call_id": "c", "output": "x"}),
]


def called() -> list[Event]:
    return make_log(*CALLED)


def ended() -> list[Event]:
    return make_log(*CALLED, (3, *END))


ROOT, CALL = span_id_of("run", "run", ""), span_id_of("run", "tool", "tool/1")


@asynccontextmanager
async def observed(engine: Engine, *sinks: Any, **more: Any) -> AsyncGenerator[Observer]:
    await engine.store.setup()
    settings: dict[str, Any] = {"settle_s": 0, **more}
    async with Observer(engine, list(sinks), **settings) as observer:
        yield observer


async def fail() -> None:
    raise ExportError("not now")


async def test_draining_waits_for_a_score_that_came_while_its_trace_was_under_way():
    engine, going_on = Engine(), asyncio.Event()

    async def score_it() -> None:
        await engine.scored("run", "late")
        await engine.bus.flush()
        going_on.set()

    backend = Backend(score_it)

    async with observed(engine, backend) as observer:
        await store_log(engine.store, ended())
        flushing = asyncio.create_task(engine.bus.flush())
        await going_on.wait()
        assert await observer.drain()
        assert backend.scores == ["late"]
        await flushing


async def test_draining_waits_for_what_an_earlier_process_has_left():
    class SlowStore(MemoryEventStore):
        async def mark(self, name: str) -> str | None:
            for _ in range(50):
                await asyncio.sleep(0)  # noqa: TID251 - lets others run
            return await super().mark(name)

    engine, backend = Engine(SlowStore()), Backend()

    await engine.store.setup()
    first = Observer(engine, backend, settle_s=1000)
    await first.__aenter__()
    await store_log(engine.store, ended())
    await engine.bus.flush()
    await first.__aexit__(ZeroDivisionError, None, None)
    async with observed(engine, backend) as second:
        assert await second.drain()
        assert backend.exports == [[ROOT, CALL]]


async def test_a_score_waits_until_the_sink_has_the_span_that_it_is_of():
    engine = Engine()
    backends = [Backend(updates="first", destination="a"), Backend(destination="b")]

    async def main() -> None:
        async with observed(engine, *backends) as observer:
            await store_log(engine.store, called())
            await engine.scored("run", "of the call", CALL)
            await engine.scored("run", "of the run")
            await observer.flush_open()
            assert [backend.scores for backend in backends] == [[], ["of the call", "of the run"]]
            await engine.ends()
            assert await observer.drain()

    await main()

    assert [backend.scores for backend in backends] == [["of the call", "of the run"]] * 2


async def test_a_score_that_is_refused_for_good_keeps_none_of_another_span_back():
    engine, backend = Engine(), Backend()

    async def main() -> bool:
        async with observed(engine, backend) as observer:
            await store_log(engine.store, called())
            await engine.scored("run", "note", CALL)
            await engine.scored("run", "good")
            await observer.flush_open()
            return await observer.drain()

    assert not (await main())
    assert backend.scores == ["good"]


async def test_a_query_of_the_sink_that_fails_is_repeated():
    engine = Engine()

    class QueryableBackend(Backend):
        queries = 0

        async def stored_span_ids(self, trace_id: str) -> frozenset[str]:
            self.queries += 1
            if self.queries == 1:
                raise ZeroDivisionError
            return frozenset([CALL])

    backend = QueryableBackend(fail, updates="first")

    async with observed(engine, backend) as observer:
        await store_log(engine.store, ended())
        assert not await observer.drain()
        assert not await observer.drain()
        assert await observer.drain()

    assert backend.exports == [[ROOT, CALL], [ROOT]]


async def test_a_sink_that_replaces_spans_is_not_queried():
    engine = Engine()

    class QueryableBackend(Backend):
        async def stored_span_ids(self, trace_id: str) -> frozenset[str]:
            return frozenset([ROOT, CALL])  # of versions that may be outdated

    backend = QueryableBackend(fail)

    async with observed(engine, backend) as observer:
        await store_log(engine.store, ended())
        assert not await observer.drain()
        assert await observer.drain()

    assert backend.exports == [[ROOT, CALL]] * 2


async def test_a_trace_enqueued_again_stays_pending_when_others_ack_earlier_batches():
    store = MemoryEventStore()

    await store.setup()
    one, two, three = (
        StoreOutbox(store, "group/sink", owner=owner, claim_s=35)
        for owner in ("one", "two", "three")
    )
    before = [await outbox.enqueue(["run"]) for outbox in (one, two)]
    again = await one.enqueue(["run"])  # for what has come since
    await one.ack(before[0])
    await two.ack(before[1])
    assert [each for each in await three.pending() if each[1] == again] == [("run", 2)]


async def test_an_observer_that_read_a_log_before_another_sent_more_of_it_does_not_go_back():
    store = MemoryEventStore()
    one, two = Engine(store), Engine(store)
    backend = Backend(updates="first")

    async with observed(one, backend) as first, observed(two, backend) as second:
        await store_log(store, called())
        usual, looks = store.mark, list[str]()

        async def mark(name: str) -> str | None:
            looks.extend([name] * name.startswith("run/"))
            if looks == [name] * 2:  # it has read the log, and is about to claim the trace
                await one.ends()
                assert await second.export_trace("run", final=False) == 2
            return await usual(name)

        store.mark = mark
        assert await first.export_trace("run", final=False) == 0
        assert await first.drain()
        assert await first.backfill() == await second.backfill() == 0

    assert backend.exports == [[ROOT, CALL]]


async def test_a_flush_goes_on_while_its_observer_closes():
    engine, going_on = Engine(), asyncio.Event()
    backend = Backend(going_on.wait)

    await engine.store.setup()
    observer = Observer(engine, backend, settle_s=0)
    await observer.__aenter__()
    await store_log(engine.store, called())
    flushing = asyncio.create_task(observer.flush_open())
    while not backend.exports:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0)  # noqa: TID251 - lets it begin
    await observer.__aexit__(ZeroDivisionError, None, None)
    going_on.set()
    assert (await flushing) == 2


async def test_traces_claimed_by_another_observer_stay_pending_when_this_one_closes():
    engine, stuck = Engine(), Backend(asyncio.Event().wait)
    other = Engine(engine.store)

    await engine.store.setup()
    await store_log(engine.store, called())
    first, second = Observer(engine, stuck), Observer(other, stuck)
    await first.__aenter__()
    flushing = asyncio.create_task(first.flush_open())
    while not stuck.exports:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0)  # noqa: TID251 - lets it begin
    await second.__aenter__()
    await second.__aexit__(ZeroDivisionError, None, None)
    sent = await second.flush_open()
    flushing.cancel()
    await first.__aexit__(ZeroDivisionError, None, None)
    next_one = StoreOutbox(engine.store, "lib.observe/backend", owner="next", claim_s=35)
    assert (sent, await next_one.pending()) == (0, [("run", 0)])
