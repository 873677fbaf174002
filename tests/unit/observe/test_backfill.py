"""A backfill exports what is lacking, page by page, and gets further each time."""

from typing import Any

from lib.errors import ExportError
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.observe.ledger import StoreLedger
from lib.testing.logs import make_log
from lib.testing.observed import ended, observed

from .delivery_kit import Backend, Engine, main


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
        ledger = StoreLedger(engine.store, "x", owner="one", claim_s=30)
        batches = [await ledger.owe([f"run-{number}"]) for number in range(150)]
        for batch in batches[:140]:
            await ledger.paid(batch)
        last = await ledger.owe(["last"])
        assert last == 150
        return await StoreLedger(engine.store, "x", owner="two", claim_s=30).owed()

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
