"""The states of sessions, kept between their turns: equal to what their logs tell."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from lib.algorithms import React, SessionLoop
from lib.engine import Engine, Request
from lib.engine.core.decide import next_step, rehydrate
from lib.engine.core.state import fold
from lib.engine.runtime.caches import PAGE, ConversationCache, StateCache
from lib.errors import RunNotFound
from lib.events import Event, EventStore, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.llm import FunctionClient, Message, Reply, ToolCall
from lib.testing.agents import make_engine
from lib.tools import tool

LOOP = SessionLoop()


class Watched(MemoryEventStore):
    """Notes how many events each read has returned."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: list[int] = []

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        events = await super().read(run_id, after=after, limit=limit)
        self.lengths.append(len(events))
        return events


def echo(messages: Sequence[Message]) -> str:
    return f"{len(messages)} {messages[-1].text}"


def talk(store: EventStore) -> Engine:
    return make_engine(FunctionClient(echo), store=store)


def states(store: EventStore, *, kept: int = 64, page: int = PAGE) -> StateCache:
    return StateCache(store, ConversationCache(store, {}), kept=kept, page=page)


async def idle_session(store: EventStore, turns: int = 3) -> str:
    """Hold a session of so many turns and return its id."""
    async with talk(store) as engine:
        session = await engine.start_session()
        for number in range(turns):
            await (await session.send(f"{number}")).result()
        await engine.wait_while_driven(session.id)
    await store.setup()  # the engine has closed it
    return session.id


async def test_a_late_turn_of_a_session_reads_no_more_than_an_early_one() -> None:
    store, longest = Watched(), list[int]()
    async with talk(store) as engine:
        session = await engine.start_session()
        for number in range(40):
            await (await session.send(f"{number}")).result()
            await engine.wait_while_driven(session.id)
            longest.append(max(store.lengths))
            store.lengths.clear()

    assert max(longest[-10:]) <= max(longest[:5])


async def test_a_session_goes_on_after_another_process_has_answered_a_turn_of_it() -> None:
    store = MemoryEventStore()
    async with talk(store) as one, talk(store) as two:
        session = await one.start_session()
        seen: list[str] = []
        for number in range(6):
            engine = one if number % 3 == 0 else two
            turn = await engine.session(session.id).send(f"{number}")
            seen.append((await turn.result()).output)
            await engine.wait_while_driven(session.id)
        log = await store.read(session.id)
        found = await one.hosting._services.states.read(session.id, LOOP)  # pyright: ignore[reportPrivateUsage] - what it has kept
        whole = rehydrate(LOOP, log)

    assert seen == ["1 0", "3 1", "5 2", "7 3", "9 4", "11 5"]
    assert found is not None
    assert _comparable(found[0]) == _comparable(whole[0])


async def test_an_erased_session_is_not_served_from_cached_state() -> None:
    store = MemoryEventStore()
    async with talk(store) as engine:
        session = await engine.start_session()
        await (await session.send("a")).result()
        await engine.wait_while_driven(session.id)
        await store.erase(session.id)
        assert await engine.hosting._services.states.read(session.id, LOOP) is None  # pyright: ignore[reportPrivateUsage] - what it has kept
        with pytest.raises(RunNotFound):
            await session.send("b")


async def test_a_kept_state_is_not_used_for_a_log_that_has_been_replaced() -> None:
    source, used = MemoryEventStore(), list[list[int]]()
    session_id = await idle_session(source)
    log = await source.read(session_id)
    whole, _ = rehydrate(LOOP, log)
    for late, cut in ((timedelta(), 0), (timedelta(seconds=1), 0), (timedelta(), 2)):
        store = Watched()
        await store.setup()
        visible = log[: len(log) - cut]
        copies = [NewEvent(each.kind, each.data, each.at + late) for each in visible]
        await store.append(session_id, copies, expected=0)
        kept = states(store)
        kept.keep(LOOP, whole)
        found = await kept.read(session_id, LOOP)
        assert found is not None
        assert found[0].head == len(visible)
        used.append(store.lengths)
    same, later, shorter = used

    assert same == [1]
    assert (len(later), later[0]) == (2, 1)
    assert (len(shorter), shorter[0]) == (2, 0)


async def test_newer_requests_are_found_as_they_were_decided() -> None:
    store = MemoryEventStore()
    session_id = await idle_session(store)
    log = await store.read(session_id)
    kept = states(store)
    kept.keep(LOOP, rehydrate(LOOP, log)[0])
    at, head = log[-1].at, log[-1].seq
    requested = {"signal_id": "new", "input": [{"role": "user", "content": "?"}]}
    begun = {"key": "new", "run_id": "r", "algorithm": "react", "upto": head + 1}
    new = [NewEvent(k.TURN_REQUESTED, requested, at), NewEvent(k.TURN_STARTED, begun, at)]
    await store.append(session_id, new, expected=head)
    found = await kept.read(session_id, LOOP)
    assert found is not None
    assert list(found[0].open) == ["new"]
    assert set(found[1]) == {"new"}


async def test_only_idle_sessions_are_cached_up_to_the_limit() -> None:
    store = Watched()
    names = [await idle_session(store, turns=1) for _ in range(3)]
    logs = {name: await store.read(name) for name in names}
    kept = states(store, kept=1)
    for log in logs.values():
        kept.keep(LOOP, rehydrate(LOOP, log)[0])
    kept.keep(React(), rehydrate(LOOP, logs[names[0]])[0])
    opened = next(n for n, each in enumerate(logs[names[0]], 1) if each.kind == k.TURN_STARTED)
    kept.keep(LOOP, rehydrate(LOOP, logs[names[0]][:opened])[0])
    store.lengths.clear()
    for name in names:
        await kept.read(name, LOOP)
    assert [length > 1 for length in store.lengths] == [True, True, False]


@tool(effects="none")
async def work() -> str:
    return "news"


async def worked() -> list[Event]:
    """Return the log of a run of two batches of three calls."""

    def think(messages: Sequence[Message]) -> Reply:
        made = sum(message.role == "tool" for message in messages)
        calls = tuple(ToolCall(f"c{number}", "work") for number in range(3))
        return Reply(Message.assistant("done").parts) if made == 6 else Reply(calls)

    store = MemoryEventStore()
    async with make_engine(FunctionClient(think), work, store=store) as engine:
        started = await engine.start("go")
        await started.result()
        return await store.read(started.id)


def redecided(log: Sequence[Event]) -> dict[str, Request]:
    """Decide every open request again from what stood before it."""
    state, decided = fold(React(), log), dict[str, Request]()
    for place, event in enumerate(log):
        if event.data.get("key") in state.open and event.kind in k.REQUESTS:
            step = next_step(React(), fold(React(), log[:place]))
            decided |= {request.key: request for request in step.requests}
    return decided


@pytest.mark.parametrize("page", [1, 2, 5, 500])
async def test_a_log_read_in_pages_gives_the_same_state_and_open_requests(
    page: int,
) -> None:
    log = await worked()
    opened = set[int]()
    for size in range(1, len(log) + 1):
        store = Watched()
        await store.setup()
        copies = [NewEvent(each.kind, each.data, each.at) for each in log[:size]]
        [first, *_] = await store.append(log[0].run_id, copies, expected=0)
        found = await states(store, page=page).read(first.run_id, React())
        assert found is not None
        assert found == (fold(React(), log[:size]), redecided(log[:size]))
        assert max(store.lengths) <= page
        opened.add(len(found[0].open))
    assert opened == {0, 1, 2, 3}


async def test_a_log_that_is_in_memory_is_not_read() -> None:
    log, store = await worked(), Watched()
    await store.setup()
    found = await states(store).read(log[0].run_id, React(), log)
    assert found == (fold(React(), log), {})
    assert store.lengths == []


def _comparable(state: Any) -> Any:
    """Return a session's state with the keys of its turns spelled out, to be compared."""
    return state._replace(loop=state.loop._replace(seen=list(state.loop.seen)))
