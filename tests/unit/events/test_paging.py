"""Lists of runs that others start and erase meanwhile, and logs: each once, and none left out."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

import pytest

from lib.errors import RunNotFound
from lib.events import Event, MemoryEventStore, RunInfo, RunQuery
from lib.events.paging import each_run, log_pages
from lib.events.tenant import TenantEventStore
from lib.events.verify import Fault, verify_store
from lib.llm import ScriptedClient
from lib.privacy import expire
from lib.testing.agents import make_engine
from lib.testing.event_store.kit import begin


class Counting(MemoryEventStore):
    """Counts pages, and how long they are."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[int] = []

    async def runs(self, query: RunQuery | None = None) -> list[RunInfo]:
        found = await super().runs(query)
        self.pages.append(len(found))
        return found


async def store_with(runs: int) -> Counting:
    store = Counting()
    await store.setup()
    for number in range(runs):
        await begin(store, str(number))
    return store


async def erase(store: Counting, numbers: Iterable[int]) -> None:
    for number in numbers:
        await store.erase(str(number))


@pytest.mark.parametrize("runs", [0, 1, 4, 5, 8, 9])
@pytest.mark.parametrize("limit", [None, 0, 1, 4, 5, 20])
async def test_every_run_is_listed_once_and_none_beyond_the_limit(
    runs: int, limit: int | None
) -> None:
    store = await store_with(runs)
    query = None if limit is None else RunQuery(limit=limit)
    found = [info.run_id async for info in each_run(store, query, page=4)]
    assert found == [str(number) for number in range(runs)][:limit]
    assert max(store.pages, default=0) <= 4


@pytest.mark.parametrize("kept_ids", [2, 4096])
@pytest.mark.parametrize("gone", [[3], [2, 3], range(4), range(8), range(1, 9), range(12), []])
@pytest.mark.parametrize("at", [1, 4, 5, 8])
async def test_erasures_under_way_end_no_list_and_repeat_no_run(
    gone: Iterable[int], at: int, kept_ids: int
) -> None:
    store, found = await store_with(12), list[str]()
    async for info in each_run(store, page=4, kept_ids=kept_ids):
        found.append(info.run_id)
        if len(found) == at:
            await erase(store, gone)
    assert found == sorted(set(found), key=int)
    left = {str(number) for number in range(12)} - set(map(str, gone))
    assert left <= set(found)


async def test_a_list_that_erases_what_it_yields_gets_to_the_end() -> None:
    store, found = await store_with(21), list[str]()
    async for info in each_run(store, page=4):
        found.append(info.run_id)
        if len(found) % 10:
            await store.erase(info.run_id)
    assert found == [str(number) for number in range(21)]


async def test_a_list_after_a_missing_run_is_refused() -> None:
    store = await store_with(2)
    with pytest.raises(RunNotFound):
        _ = [info async for info in each_run(store, RunQuery(after="none"))]


# -- callers that list runs ----------------------------------------------------------------------


async def many(runs: int, *, end: bool) -> Counting:
    store = Counting()
    await store.setup()
    for number in range(runs):
        await begin(store, str(number), end=end, tenant="acme")
    return store


async def test_a_store_in_which_retention_is_at_work_can_be_verified() -> None:
    store = await many(600, end=True)

    async def check(info: RunInfo, _: Sequence[Event]) -> list[Fault]:
        if info.run_id == "255":
            await erase(store, range(200, 300))
        return []

    report = await verify_store(store, checks=[check])
    assert (report.runs, report.faults) == (556, [])
    assert max(store.pages) == 256


async def test_a_claim_through_a_view_lists_no_more_than_it_needs() -> None:
    store = await many(600, end=False)
    view = TenantEventStore(store, "acme")
    leases = await view.claim("me", ttl_s=60, limit=2)
    assert [lease.run_id for lease in leases] == ["0", "1"]
    assert store.pages == [256]
    assert len(await view.claim("me", ttl_s=60, limit=600)) == 598


async def test_a_recovery_lists_no_more_than_it_needs() -> None:
    store = await many(600, end=False)
    async with make_engine(ScriptedClient(["done"] * 2), store=store) as engine:
        assert [taken.id for taken in await engine.recover(limit=2)] == ["0", "1"]
        assert store.pages == [256]


async def test_retention_continues_beside_another_process_that_erases() -> None:
    class Raced(Counting):
        async def erase(self, run_id: str) -> bool:
            if run_id == "150":
                await erase(self, [3, 99, 149])
            return await super().erase(run_id)

        async def run(self, run_id: str) -> RunInfo | None:
            return await super().run(run_id)

    store = Raced()
    await store.setup()
    for number in range(350):
        await begin(store, str(number), end=True)
        if number in (3, 99, 149):  # these are kept for their open children
            await begin(store, f"child-{number}", root=str(number))
    await expire(store, older_than=timedelta(days=1), limit=1000)
    assert [info.run_id for info in await store.runs()] == ["child-3", "child-99", "child-149"]


@pytest.mark.parametrize("events", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("after", [0, 1, 9])
async def test_a_log_comes_in_pages_and_each_event_once(events: int, after: int) -> None:
    reads: list[int] = []

    class Counted(MemoryEventStore):
        async def read(
            self, run_id: str, *, after: int = 0, limit: int | None = None
        ) -> list[Event]:
            reads.append(after)
            return await super().read(run_id, after=after, limit=limit)

    store = Counted()
    await store.setup()
    await begin(store, "run", events - 1)
    log = await store.read("run")
    reads.clear()
    pages = [page async for page in log_pages(store, "run", after=after, page=2)]

    assert [event for page in pages for event in page] == log[after:]
    assert all(pages)
    assert len(reads) == max(events - after, 0) // 2 + 1  # the last one finds fewer
    assert [page async for page in log_pages(store, "missing", page=2)] == []
