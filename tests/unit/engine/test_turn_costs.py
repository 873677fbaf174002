"""A turn costs the same however many turns came before it, and still sees what was erased."""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from lib._util.contexts import AsyncStore
from lib.algorithms import React
from lib.engine import Engine, Finish, Session
from lib.engine.core.conversation import History, begin_conversation
from lib.engine.runtime.caches import TurnRequestCache, TurnRequests
from lib.errors import IdempotencyMismatch, RunNotFound, SessionClosed
from lib.events import Event, EventStore, MemoryEventStore, RunInfo, RunQuery, SQLiteEventStore
from lib.events.store import erasures_of
from lib.llm import Message, Reply
from lib.privacy import erase_run
from lib.testing.agents import make_engine
from lib.testing.aio import run
from lib.testing.providers import StrictClient

AGENT = React(system="be kind")
EARLY, LATE = 8, 100


def echo(messages: Sequence[Message]) -> str:
    return f"re: {messages[-1].text}"


class Counting(MemoryEventStore):
    """Counts calls, the events that are read, and the runs that are listed."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[str]()

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        events = await super().read(run_id, after=after, limit=limit)
        self.counts.update({"reads": 1, "events": len(events)})
        return events

    async def runs(self, query: RunQuery | None = None) -> list[RunInfo]:
        found = await super().runs(query)
        self.counts.update({"lists": 1, "runs": len(found)})
        return found

    async def run(self, run_id: str) -> RunInfo | None:
        self.counts["run"] += 1
        return await super().run(run_id)

    async def close(self) -> None:
        pass


class Uncounted(AsyncStore):
    """A store that does not count its erasures."""

    def __init__(self, store: EventStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def setup(self) -> None:
        await self._store.setup()

    async def close(self) -> None:
        await self._store.close()


async def say(session: Session, text: str, **more: Any) -> str:
    """Return the id of the run that has answered."""
    turn = await session.send(text, **more)
    await turn.result()
    return turn.run_id


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


def hashed(history: History) -> int:
    """Return how many messages of a conversation have to be hashed yet."""
    count = 0
    while history.hash_incrementally(1):
        count += 1
    return count


@pytest.mark.parametrize("fresh", [False, True], ids=["a handle", "a new handle each turn"])
@pytest.mark.parametrize("tenant", [None, "acme"])
async def test_a_late_turn_reads_the_new_events_only(*, fresh: bool, tenant: str | None) -> None:
    store, costs = Counting(), list[Counter[str]]()
    async with make_engine(StrictClient(echo), store=store, agent=AGENT) as engine:
        session = await engine.start_session(tenant=tenant)
        for number in range(LATE):
            store.counts.clear()
            if fresh:
                session = engine.session(session.id, tenant=tenant)
            await say(session, f"word {number}")
            costs.append(+store.counts)
        # How often it is looked depends on the machine; a look at nothing new reads nothing.
        late = sum(costs[-EARLY:], Counter[str]())
        assert late["lists"] == 0
        assert late["events"] < 60 * EARLY, "the log of the session alone has 300 events"


async def test_a_late_turn_hashes_no_more_messages_than_an_early_one() -> None:
    class Silent(StrictClient):
        """Says nothing now and then: an empty reply is no part of the conversation."""

        async def complete(self, messages: Sequence[Message], **options: Any) -> Reply:
            reply = await super().complete(messages, **options)
            return Reply(()) if messages[-1].text.endswith("5") else reply

    new, costs, length = [Message.user("new")], list[int](), 0
    agent = React(system="be kind", allow_empty=True)
    async with make_engine(Silent(echo), agent=agent) as engine:
        session = await engine.start_session()
        for number in range(LATE):
            await say(session, f"word {number}", stream=False)
            past = await engine.conversations.upto(session.id, number * 3 + 4)
            costs.append(hashed(begin_conversation("be kind", past.conversation, new)[0]))
            length = len(past.conversation)
        assert length == 2 * LATE - LATE // 10
    assert max(costs) <= 4


async def test_an_algorithm_without_a_conversation_hashes_no_more_either() -> None:
    class Parrot:
        name = "parrot"

        def config(self) -> dict[str, Any]:
            return {}

        def initial(self, started: Event, history: Sequence[Message] = ()) -> int:
            return hashed(begin_conversation("", history, ())[0])

        def evolve(self, state: int, event: Event) -> int:
            return state

        def decide(self, state: int) -> Finish:
            return Finish(outcome="COMPLETED", output=f"{state} hashed")

    engine = make_engine(StrictClient(echo), agent=cast("Any", Parrot()))
    async with engine:
        session = await engine.start_session()
        results = [await (await session.send(str(n))).result() for n in range(EARLY)]
        assert {result.output for result in results[1:]} == {"1 hashed"}


def test_an_erased_turn_is_not_in_the_next_one_for_any_count_of_the_store(tmp_path: Path) -> None:
    @asynccontextmanager
    async def engines(*, counted: bool) -> AsyncGenerator[tuple[Engine, Engine, EventStore]]:
        path = tmp_path / f"{counted}.db"
        stores: list[Any] = [SQLiteEventStore(path) for _ in range(3)]
        if not counted:
            stores = [Uncounted(store) for store in stores]
        one, other = (make_engine(StrictClient(echo), store=s, agent=AGENT) for s in stores[:2])
        async with one, other, stores[2] as elsewhere:
            yield one, other, elsewhere

    async def main(*, counted: bool) -> None:
        async with engines(counted=counted) as (one, other, elsewhere):
            assert (await erasures_of(elsewhere) is not None) is counted
            session = await one.start_session()
            same = other.session(session.id)
            await say(session, "one")
            secret = await say(same, "MARKER")
            await say(session, "three")
            await say(same, "four")
            unrelated = await one.start("unrelated")
            await unrelated.result()
            await erase_run(elsewhere, unrelated.id)
            await say(session, "five")
            await erase_run(elsewhere, secret)
            for handle in (session, same, one.session(session.id)):
                await say(handle, "more")
                left = texts(await handle.history())
                assert left[:8:2] == ["one", "three", "four", "five"], counted
                assert "MARKER" not in left

    for counted in (True, False):
        run(main(counted=counted))


async def test_runs_are_listed_once_for_an_erasure_and_not_again() -> None:
    store = Counting()
    async with make_engine(StrictClient(echo), store=store, agent=AGENT) as engine:
        session = await engine.start_session()
        for number in range(EARLY):
            await say(session, str(number))
        other = await engine.start("other")
        await other.result()
        await store.erase(other.id)
        lists: list[int] = []
        for number in range(3):
            store.counts.clear()
            await say(session, str(number))
            lists.append(store.counts["lists"])
        assert lists == [1, 0, 0]


async def test_new_handles_reuse_what_others_have_read() -> None:
    store = Counting()
    async with make_engine(StrictClient(echo), store=store, agent=AGENT) as engine:
        session = await engine.start_session(tenant="acme")
        first = await say(session, "hello", idempotency_key="k")
        again = await engine.session(session.id).send("hello", idempotency_key="k")
        assert again.run_id == first
        with pytest.raises(IdempotencyMismatch):
            await engine.session(session.id).send("else", idempotency_key="k")
        for _ in range(2):
            with pytest.raises(RunNotFound):
                await engine.session(session.id, tenant="other").turns()
        assert len(await engine.session(session.id, tenant="acme").turns()) == 1

        run_id = (await engine.start("hello")).id
        for handle in [engine.session(run_id)] * 2:
            with pytest.raises(ValueError, match="is no session"):
                await handle.send("hello")
        await session.close()
        with pytest.raises(SessionClosed):
            await engine.session(session.id).send("late")

        await store.erase(session.id)
        for handle in (session, engine.session(session.id)):
            with pytest.raises(RunNotFound):
                await handle.turns()


async def test_a_log_that_was_replaced_is_read_anew() -> None:
    stores = Counting(), Counting()
    logs: list[str] = []
    for store, words in zip(stores, (("a", "b", "c"), ("d",)), strict=True):
        ids = iter(f"{id(store)}-{number}" for number in range(100))
        engine = make_engine(StrictClient(echo), store=store, new_id=lambda ids=ids: next(ids))
        async with engine:
            session = await engine.start_session()
            for word in words:
                await say(session, word)
            logs.append(session.id)
    read = TurnRequests()
    for store in stores:
        await store.setup()
    assert await read.catch_up(stores[0], logs[0])
    assert await read.catch_up(stores[0], logs[0])
    assert len(read.turns) == 3
    assert not await read.catch_up(stores[1], logs[1])


def test_the_requests_of_recently_used_sessions_are_cached() -> None:
    kept = TurnRequestCache(kept=2)
    requests = {name: TurnRequests() for name in "abc"}
    for name in "abab":
        kept.keep(name, requests[name])
    kept.keep("c", requests["c"])

    assert kept.of("b") is requests["b"]
    assert kept.of("a") is not requests["a"]
    kept.forget("b")
    assert kept.of("b") is not requests["b"]
