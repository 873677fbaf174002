"""Laws of sessions, whatever happens to them: order, once each, and one conversation."""

import asyncio
import inspect
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from hypothesis import example, given
from hypothesis import strategies as st

from lib.algorithms import React
from lib.engine import Budget, Engine, Session
from lib.engine.api.check import request_check
from lib.errors import LLMError, SessionClosed, StoreError
from lib.events import Event, EventStore, MemoryEventStore, SQLiteEventStore
from lib.events import kinds as k
from lib.events.codec import encode_data
from lib.events.verify import verify_store
from lib.llm import (
    FunctionClient,
    Message,
    Reply,
    Text,
    ToolCall,
    ToolResult,
    message_from_json,
    reply_from_json,
)
from lib.testing.agents import make_engine
from lib.testing.clock import ManualClock
from lib.testing.providers import KeepingClient, StrictClient
from lib.tools import tool

SYSTEM = "be kind"
LEASE_S = 30.0
WORDS = ("say", "call", "fail", "hang", "hang in a call", "twice")
Op = tuple[str, int]

ops = st.lists(
    st.tuples(
        st.sampled_from(
            ["send"] * 6 + ["yield"] * 4 + ["cancel"] * 2 + ["restart", "die", "again", "forget"]
        ),
        st.integers(0, 40),
    ),
    max_size=14,
)


class Mortal:
    """A store as one process sees it, until that is killed: then nothing it does arrives."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if not inspect.iscoroutinefunction(value):
            return value

        async def living(*args: Any, **options: Any) -> Any:
            if self.dead:
                raise StoreError("the process is dead")
            return await value(*args, **options)

        return living

    async def close(self) -> None:
        """Leave it to the test."""


class World:
    """A model, its tools, and the processes that come and go."""

    def __init__(self, store: EventStore, clock: ManualClock, *, keeping: bool) -> None:
        self.agent = React(system=SYSTEM, provider_state=keeping)
        self.client: FunctionClient = (KeepingClient if keeping else StrictClient)(self.think)
        self.seen: set[tuple[Message, ...]] = set()
        self.released = asyncio.Event()
        self._store, self._clock = store, clock
        self._engines = 0

        @tool(effects="none")
        async def look(wait: bool = False) -> str:
            if wait:
                await self.released.wait()
            return "seen"

        self._look = look

    async def think(self, messages: Sequence[Message]) -> Any:
        self.seen.add(_plain(messages))
        text = next(m.text for m in reversed(messages) if m.role == "user").partition(":")[2]
        if text == "fail":
            raise LLMError("no", status=500)
        if text == "hang":
            await self.released.wait()
        calls = {"call": [False], "hang in a call": [True], "twice": [False, False]}.get(text, [])
        if calls and messages[-1].role == "user":
            made = [ToolCall(f"c{n}", "look", {"wait": wait}) for n, wait in enumerate(calls)]
            return Reply((Text("let me see"), *made), stop="tool_calls")
        return f"answer {len(messages)}"

    def engine(self) -> tuple[Engine, Mortal]:
        mortal, self._engines = Mortal(self._store), self._engines + 1
        engine = make_engine(
            self.client,
            self._look,
            store=cast("EventStore", mortal),
            agent=self.agent,
            clock=self._clock,
            lease_s=LEASE_S,
            worker=f"worker-{self._engines}",
        )
        return engine, mortal


class Life:
    """One session in one process after another."""

    def __init__(self, world: World, clock: ManualClock) -> None:
        self.world, self._clock = world, clock
        self.sent: dict[str, str] = {}

    async def live(self, ops: Sequence[Op]) -> str:
        self.engine, self.mortal = self.world.engine()
        await self.engine.__aenter__()
        self.session = await self.engine.start_session(budget=Budget(depth=3))
        for op, number in ops:
            await getattr(self, f"_{op}")(number)
        self.world.released.set()
        await self.session.close()
        for turn in await self.session.turns():
            with suppress(SessionClosed):
                await turn.result()
        ended = await self.session.run.result()
        assert ended.outcome == "COMPLETED"
        self.history = await self.session.history()
        await self.engine.close()
        return self.session.id

    async def _send(self, number: int) -> None:
        key, word = f"k{len(self.sent)}", WORDS[number % len(WORDS)]
        self.sent[key] = f"{key}:{word}"
        await self.session.send(self.sent[key], idempotency_key=key, stream=number % 2 == 0)

    async def _again(self, number: int) -> None:
        if self.sent:
            key = list(self.sent)[number % len(self.sent)]
            await self.session.send(self.sent[key], idempotency_key=key)

    async def _yield(self, number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0)  # noqa: TID251 - lets others run

    async def _cancel(self, number: int) -> None:
        turns = await self.session.turns()
        if turns:
            await turns[number % len(turns)].cancel("enough")

    async def _forget(self, _number: int) -> None:
        if isinstance(self.world.client, KeepingClient):
            self.world.client.forget()

    async def _restart(self, _number: int) -> None:
        await self.engine.close()
        await self._next()

    async def _die(self, _number: int) -> None:
        self.mortal.dead = True
        await self.engine.close()
        self._clock.advance(LEASE_S + 1)
        await self._next()

    async def _next(self) -> None:
        session_id = self.session.id
        self.engine, self.mortal = self.world.engine()
        await self.engine.__aenter__()
        self.session: Session = self.engine.session(session_id)


def _plain(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages as values that can be compared and kept in a set."""
    return tuple(cast("Any", str(message)) for message in messages)


def turn_content(log: Sequence[Event]) -> tuple[list[Message], list[int]]:
    """Return what a turn has added, and its length at each model request."""
    messages = [message_from_json(each) for each in log[0].data["input"]]
    waiting: dict[str, Message | None] = {}
    sizes: list[int] = []
    for event in log[1:]:
        if event.kind == k.LLM_REQUESTED:
            sizes.append(len(messages))
        elif event.kind == k.LLM_COMPLETED:
            reply = reply_from_json(event.data["reply"])
            messages.append(reply.message)
            waiting = dict.fromkeys((call.id for call in reply.tool_calls), None)
        elif event.kind in (k.TOOL_COMPLETED, k.TOOL_FAILED):
            failed = event.kind == k.TOOL_FAILED
            content = event.data["message" if failed else "output"]
            call_id = event.data["call_id"]
            waiting[call_id] = Message.tool(ToolResult(call_id, content, failed))
            results = [result for result in waiting.values() if result is not None]
            if len(results) == len(waiting):
                messages += results
                waiting = {}
    assert not waiting
    return messages, sizes


async def check(store: EventStore, world: World, life: Life, session_id: str) -> None:
    """Hold what is in the store, and what the model was sent, against the laws."""
    report = await verify_store(store, deep=True, checks=[request_check([world.agent], store)])
    assert report.faults == []
    log = await store.read(session_id)
    started = [e.data for e in log if e.kind == k.TURN_STARTED]
    dropped = {e.data["key"] for e in log if e.kind == k.CANCEL_REQUESTED and "key" in e.data}
    began = [data["key"] for data in started]
    assert began == [key for key in life.sent if key in began]  # in order, once each
    assert set(life.sent) - set(began) <= dropped
    assert [e.data["key"] for e in log if e.kind == k.TURN_COMPLETED] == began

    conversation, expected = list[Message](), set[tuple[Message, ...]]()
    for data in started:
        turn = await store.read(data["run_id"])
        assert [e.kind for e in turn if e.kind == k.RUN_STARTED] == [k.RUN_STARTED]
        assert turn[0].data["input"] == [{"role": "user", "content": life.sent[data["key"]]}]
        added, sizes = turn_content(turn)
        for size in sizes:
            expected.add(_plain([Message.system(SYSTEM), *conversation, *added[:size]]))
        conversation += added
    assert world.seen <= expected
    assert life.history == conversation


async def play(store: EventStore, clock: ManualClock, ops: Sequence[Op], *, keeping: bool) -> None:
    world = World(store, clock, keeping=keeping)
    life = Life(world, clock)
    await store.setup()
    session_id = await life.live(ops)
    await check(store, world, life, session_id)
    await store.close()


@given(ops=ops, keeping=st.booleans())
async def test_turns_are_answered_in_order_once_each_with_the_whole_conversation(
    ops: list[Op], keeping: bool
) -> None:
    clock = ManualClock()

    await play(MemoryEventStore(clock=clock), clock, ops, keeping=keeping)


@given(ops=ops, keeping=st.booleans())
@example(ops=[("send", 38), ("send", 6), ("yield", 0), ("restart", 26)], keeping=True)
async def test_turns_are_answered_in_order_in_a_store_on_disk(ops: list[Op], keeping: bool) -> None:
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteEventStore(Path(folder) / "log.db", durability="normal", clock=clock)
        await play(store, clock, ops, keeping=keeping)


TURNS, NEWS = 100, "n" * 2_000


@tool(effects="none")
async def work() -> str:
    return NEWS


def use_the_tool(messages: Sequence[Message]) -> Any:
    if messages[-1].role == "user":
        return Reply((ToolCall("c", "work"),), stop="tool_calls")
    return "done"


async def test_a_session_of_100_turns_grows_with_what_is_new() -> None:
    store = MemoryEventStore()
    client = StrictClient(use_the_tool)
    async with make_engine(client, work, store=store, agent=React()) as engine:
        session = await engine.start_session()
        sizes: list[int] = []
        for _ in range(TURNS):
            turn = await session.send("go")
            assert (await turn.result()).outcome == "COMPLETED"
            sizes.append(sum(len(encode_data(e.data)) for e in await store.read(turn.run_id)))
            client.calls.clear()
        log = await store.read(session.id)
        assert len(await session.history()) == 4 * TURNS
        session_size = sum(len(encode_data(event.data)) for event in log)

    assert max(sizes) < 1.05 * min(sizes)  # a late turn costs what an early one did
    assert sum(sizes) < 2 * TURNS * len(NEWS)
    assert session_size < TURNS * 1_000
