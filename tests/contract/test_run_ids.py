"""Ids of runs that are derived from a key: one per store, and the same whenever it is opened."""

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from lib._util.clock import SYSTEM_CLOCK
from lib._util.json import canonical, digest
from lib.errors import IdempotencyMismatch
from lib.events import EventStore, MemoryEventStore, SQLiteEventStore
from lib.events.tenant import TenantEventStore
from lib.llm import FunctionClient
from lib.testing.agents import make_engine
from lib.testing.event_store import StoreKind

sys.path.insert(0, str(Path(__file__).parent))

from test_event_stores import EVENT_STORES, SERVERS

KEY = "ticket-1234"
OLD_STORE = Path(__file__).parents[1] / "replay" / "v0.2.0" / "store.db"


@pytest.fixture(params=list(EVENT_STORES))
def each_kind(request: pytest.FixtureRequest) -> StoreKind:
    if start := SERVERS.get(request.param):
        start()
    return EVENT_STORES[request.param]


async def _done(_: object) -> str:
    return "done"


async def started(store: EventStore, message: str = "go", **options: Any) -> str:
    """Start a run under the key, and return its id."""
    async with make_engine(FunctionClient(_done), store=store) as engine:
        begun = await engine.start(message, idempotency_key=KEY, **options)
        await begun.result()
        return begun.id


async def test_two_stores_give_one_key_two_run_ids(each_kind: StoreKind, tmp_path: Path) -> None:
    places = [tmp_path / "a", tmp_path / "b"]
    for place in places:
        place.mkdir()

    async def main() -> None:
        ids = [await started(each_kind.open(place, SYSTEM_CLOCK)) for place in places]
        assert len(set(ids)) == len(ids)

    await main()


async def test_one_store_gives_one_key_one_run_id_in_every_process(
    each_kind: StoreKind, tmp_path: Path
) -> None:
    store = each_kind.open(tmp_path, SYSTEM_CLOCK)
    first = await started(store)
    if each_kind.survives_close:
        assert await started(store) == first
        with pytest.raises(IdempotencyMismatch):
            await started(store, "something else")
    if each_kind.shared:
        opened = [each_kind.open(tmp_path, SYSTEM_CLOCK) for _ in range(3)]
        ids = await asyncio.gather(*(started(each, tenant="t") for each in opened))
        assert len(set(ids)) == 1
        assert ids[0] != first


def test_a_view_of_one_tenant_has_the_id_of_its_store() -> None:
    store = MemoryEventStore()
    assert TenantEventStore(store, "t").store_id == store.store_id != MemoryEventStore().store_id


async def test_a_store_of_an_older_release_keeps_the_ids_of_its_runs(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    shutil.copyfile(OLD_STORE, path)

    expected = digest("start", canonical(None), KEY)[:32]
    assert [await started(SQLiteEventStore(path)) for _ in range(2)] == [expected] * 2
    store = SQLiteEventStore(path, read_only=True)
    await store.setup()
    assert store.store_id == ""
    await store.close()
