"""A backfill exports what is lacking, page by page, and gets further each time."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from fakes.observed import ended, observed
from lib.errors import ExportError
from lib.evals import Score
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.observe.export.outbox import StoreOutbox
from lib.testing.logs import make_log

from .delivery_kit import Backend, Engine, QueryableBackend, called, main

HOUR: Final = timedelta(hours=1)


def test_a_limit_of_a_backfill_counts_what_is_lacking_so_that_it_gets_further_each_time():
    sink = Backend()

    async def body(engine: Engine) -> list[int]:
        await engine.has(*[ended(f"run-{number}") for number in range(5)])
        async with observed(engine, sink) as observer:
            return [await observer.backfill(limit=2) for _ in range(4)]

    assert main(body) == [2, 2, 1, 0]


def test_a_long_log_is_read_in_pages():
    sink = Backend()

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

        sink = Backend(erase, erase)
        await engine.has(ended("run-0"), ended("run-1"))
        async with observed(engine, sink) as observer:
            return await observer.backfill(limit=5)

    assert main(body) == 1


def test_batches_that_are_gone_are_passed_over_some_at_a_time():
    async def body(engine: Engine) -> list[tuple[str, int]]:
        outbox = StoreOutbox(engine.store, "x", owner="one", claim_s=30)
        batches = [await outbox.enqueue([f"run-{number}"]) for number in range(150)]
        for batch in batches[:140]:
            await outbox.ack(batch)
        last = await outbox.enqueue(["last"])
        assert last == 150
        return await StoreOutbox(engine.store, "x", owner="two", claim_s=30).pending()

    found = main(body)

    assert found == [*[(f"run-{number}", number) for number in range(140, 150)], ("last", 150)]


def test_a_limit_of_a_backfill_holds_for_a_sink_that_takes_nothing():
    sink = Backend(*[ExportError("down")] * 9)

    async def body(engine: Engine) -> int:
        await engine.has(*[ended(f"run-{number}") for number in range(5)])
        async with observed(engine, sink) as observer:
            sent = await observer.backfill(limit=2)
            assert sink.exports == [["run-0"], ["run-1"]]
            return sent

    assert main(body) == 0


# -- what a backend has lost -------------------------------------------------------------------


class Lossy(Backend):
    """A backend that takes scores, and loses what it has acknowledged."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.scores: list[str] = []

    async def score(
        self, trace_id: str, scores: Sequence[Score], *, span_id: str | None = None
    ) -> None:
        self.scores += [score.name for score in scores]

    def lose(self, *span_ids: str) -> None:
        self.spans = [span for span in self.spans if span_ids and span.span_id not in span_ids]
        self.scores.clear()


class QueryableLossy(Lossy, QueryableBackend):
    """A lossy backend that returns what it still has."""


@pytest.mark.parametrize("updates", ["first", "replace"])
def test_what_a_backend_has_acknowledged_and_lost_is_sent_again_scores_included(updates: str):
    sink = Lossy(updates=updates)

    async def body(engine: Engine) -> None:
        await engine.has(ended("run-0"), ended("run-1"))
        await engine.judged("run-0", "one", "two")
        async with observed(engine, sink) as observer:
            assert await observer.backfill() == 2
            whole = sink.ids()
            sink.lose()
            assert await observer.backfill() == 0
            assert await observer.backfill(resend=True) == 2
            assert (sink.ids(), sink.scores) == (whole, ["one", "two"])
            sink.lose()
            assert await observer.export_trace("run-0", resend=True) == 1
            assert (sink.ids(), sink.scores) == (whole[:1], ["one", "two"])
            assert await observer.backfill() == 0

    main(body)


def test_a_backfill_sends_again_only_what_began_since():
    sink = Lossy(updates="first")

    async def body(engine: Engine) -> None:
        old, new = ended("old"), [replace(event, at=event.at + HOUR) for event in ended("new")]
        await engine.has(old, new)
        async with observed(engine, sink) as observer:
            await observer.backfill()
            sink.lose()
            since = new[0].at
            assert await observer.backfill(resend=True, since=since, limit=5) == 1

    main(body)

    assert [span.run_id for span in sink.spans] == ["new"]


def test_a_queryable_sink_is_sent_only_what_it_lost():
    sink = QueryableLossy(updates="first")

    async def body(engine: Engine) -> None:
        await engine.has(called())
        await engine.grows("run", (3, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
        async with observed(engine, sink) as observer:
            assert await observer.backfill() == 2
            lost = sink.spans[1]
            sink.lose(lost.span_id)
            assert await observer.backfill(resend=True) == 1
            assert sink.spans[-1] == lost
            assert await observer.backfill(resend=True) == 0

    main(body)


def test_a_run_that_was_interrupted_is_sent_again_as_it_is_now():
    sink = Lossy(updates="first")

    async def body(engine: Engine) -> None:
        await engine.has(called())
        async with observed(engine, sink) as observer:
            await observer.export_trace("run", final=False)
            sink.lose()
            await engine.grows("run", (3, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
            assert await observer.backfill(resend=True) == 2

    main(body)

    assert [span.kind for span in sink.spans] == ["agent", "tool"]
