"""Calls that need a person, from logs that are read once; and the first page of many runs."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from server_kit import OneKey, as_, serving
from test_metrics import read
from test_summaries import AT, Counting, engine_of, set_up

from lib.errors import RunNotFound
from lib.events import Event, FeedPage, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.events.codec import encode_time
from lib.events.stores.sqlite import SQLiteEventStore
from lib_server import Server
from lib_server.waiting import PendingApprovals, UnknownOutcomes

MANY = 100_000


class Feeding(Counting):
    """A store that counts how many events of its feed are read, too."""

    fed = 0

    async def feed(self, after: str = "", *, limit: int = 512, partition: int = 0) -> FeedPage:
        page = await super().feed(after, limit=limit, partition=partition)
        self.fed += len(page.events)
        return page


def begun(tenant: str = "acme") -> NewEvent:
    return NewEvent(k.RUN_STARTED, {"algorithm": "clerk", "input": []}, AT, tenant=tenant)


def requested(key: str) -> NewEvent:
    call = {"key": key, "call_id": "c", "name": "refund", "args": {"order": "7"}}
    return NewEvent(k.TOOL_REQUESTED, {**call, "effects": "once", "idempotency_key": "i"}, AT)


def lost(key: str) -> NewEvent:
    failed = {"key": key, "call_id": "c", "reason": "unknown", "code": "x", "message": ""}
    return NewEvent(k.TOOL_FAILED, failed, AT)


def done(key: str) -> NewEvent:
    return NewEvent(k.TOOL_COMPLETED, {"key": key, "call_id": "c", "content": "ok"}, AT)


def asks(key: str) -> NewEvent:
    call = {"key": key, "call_id": "c", "name": "refund", "args": {"order": "7"}}
    return NewEvent(k.APPROVAL_REQUESTED, call, AT)


def settled(key: str) -> NewEvent:
    return NewEvent(k.CALL_SETTLED, {"key": key, "happened": True}, AT)


async def unknown(
    found: UnknownOutcomes, store: MemoryEventStore, **options: Any
) -> list[tuple[str, str]]:
    return [(call.run_id, call.key) async for call in found.calls(store, **options)]


async def test_calls_of_unknown_outcome_are_found_without_reading_a_log() -> None:
    store = await set_up(Feeding())
    for number in range(700):
        log = [begun(), requested("tool/1"), done("tool/1")]
        await store.append(f"fine-{number}", log, expected=0)
    await store.append("one", [begun(), requested("tool/1"), lost("tool/1")], expected=0)
    log = [begun("umbrella"), requested("tool/1"), requested("tool/2"), lost("tool/2")]
    await store.append("two", log, expected=0)
    outcomes = UnknownOutcomes(store)

    first, fed = await unknown(outcomes, store), store.fed
    again, fed_again = await unknown(outcomes, store), store.fed
    await store.append("one", [settled("tool/1")], expected=3)
    await store.append("two", [lost("tool/1")], expected=4)
    later, fed_later = await unknown(outcomes, store), store.fed

    assert (store.reads, fed, fed_again, fed_later) == (0, 2107, 2107, 2109)
    assert first == again == [("one", "tool/1"), ("two", "tool/2")]
    assert later == [("two", "tool/2"), ("two", "tool/1")]


async def test_calls_of_unknown_outcome_have_pages_and_tenants_and_go_with_their_run() -> None:
    store = await set_up(MemoryEventStore())
    for number in range(4):
        log = [begun("acme" if number else "umbrella"), requested("tool/1"), lost("tool/1")]
        await store.append(f"run-{number}", log, expected=0)
    outcomes = UnknownOutcomes(store)

    own = await unknown(outcomes, store, tenant="acme")
    behind = await unknown(outcomes, store, after="run-1")
    await store.erase("run-2")
    left = await unknown(outcomes, store)
    with pytest.raises(RunNotFound):
        await unknown(outcomes, store, after="run-2")

    assert [run_id for run_id, _ in own] == ["run-1", "run-2", "run-3"]
    assert [run_id for run_id, _ in behind] == ["run-2", "run-3"]
    assert [run_id for run_id, _ in left] == ["run-0", "run-1", "run-3"]
    assert "run-2" not in repr(vars(outcomes)), "what is erased stays in no process"


async def test_of_open_runs_only_what_has_come_since_is_read_for_approvals() -> None:
    store = await set_up(Counting())
    await store.append("one", [begun(), asks("tool/1")], expected=0)
    await store.append("two", [begun(), requested("tool/1")], expected=0)
    approvals = PendingApprovals()

    async def keys() -> list[tuple[str, str]]:
        return [(call.run_id, call.key) async for call in approvals.calls(store)]

    first, reads = await keys(), store.reads
    again, reads_again = await keys(), store.reads
    decided = NewEvent(k.APPROVAL_DECIDED, {"key": "tool/1", "approved": True}, AT)
    await store.append("one", [decided], expected=2)
    await store.append("two", [asks("tool/2")], expected=2)
    later, reads_later = await keys(), store.reads

    assert first == again == [("one", "tool/1")]
    assert later == [("two", "tool/2")]
    assert (reads_again, reads_later) == (reads, reads + 2)


async def test_calls_that_wait_for_a_person_are_counted() -> None:
    store = await set_up(MemoryEventStore())
    await store.append("one", [begun(), asks("tool/1"), asks("tool/2")], expected=0)
    await store.append("two", [begun("umbrella"), asks("tool/1")], expected=0)

    async with serving(Server(engine_of(store))) as up:
        answer = await up.client.get("/metrics")

    assert read(answer.text)["approvals_pending"] == 3


# -- lists ---------------------------------------------------------------------------------------


class Counted(SQLiteEventStore):
    """A store that counts the rows and events that it returns."""

    rows = 0

    async def runs(self, query: Any = None) -> Any:
        found = await super().runs(query)
        self.rows += len(found)
        return found

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        found = await super().read(run_id, after=after, limit=limit)
        self.rows += len(found)
        return found


def write_many(path: Path) -> None:
    """Put runs into the file of a store at once."""
    at = encode_time(AT)
    with sqlite3.connect(path) as connection:
        connection.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            " INSERT INTO lib_runs (run_id, root_id, algorithm, tenant, created_at, updated_at,"
            " head, outcome, ready) SELECT 'run-' || i, 'run-' || i, 'clerk', 'acme', ?, ?, 0,"
            " 'COMPLETED', 0 FROM n",
            (MANY, at, at),
        )
    connection.close()


async def test_the_first_page_of_many_runs_reads_no_more_than_itself(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    empty = SQLiteEventStore(path)
    await empty.setup()
    await empty.close()
    write_many(path)
    store = Counted(path)

    async with serving(Server(engine_of(store), auth=OneKey())) as up:
        seen: list[int] = []
        steps = [0]
        await count_steps(store, steps)
        for query in ("limit=100", "limit=100&summary=true", "limit=100&cursor=run-50000"):
            before = store.rows, steps[0]
            page = (await up.client.get(f"/v1/runs?{query}", headers=as_("acme"))).json()
            assert len(page["runs"]) == 100, page
            seen += [store.rows - before[0], steps[0] - before[1]]
        costly = (await up.client.get("/v1/runs?min_cost=1", headers=as_("acme"))).json()

    assert seen[::2] == [100, 100, 100]
    assert max(seen[1::2]) < 300  # thousands of instructions of SQLite: a scan takes far more
    assert (costly["runs"], costly["next_cursor"]) == ([], f"run-{MANY - 499}")


async def count_steps(store: SQLiteEventStore, steps: list[int]) -> None:
    """Count each thousand instructions of SQLite that reading takes from now on."""

    def step() -> int:
        steps[0] += 1
        return 0

    reader, thread = store._reader, store._reading
    assert reader is not None
    assert thread is not None
    thread.submit(reader._connection.set_progress_handler, step, 1000).result()
