"""Deltas reach watchers in whatever process drives the run, without a gap and nothing twice."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from lib import Agent
from lib.engine import Engine, LiveDelta, ModelReplied, ReplyDelta, ReplyReset, Run, RunEnded
from lib.engine.runtime.deltas import (
    MAX_SHARED_CHARS,
    MAX_WAITING,
    DeltaHub,
    DeltaQueue,
    ShownReplies,
    delta_of,
    messages_of,
)
from lib.errors import RunNotFound
from lib.events import MemoryEventStore
from lib.events.live import LocalLive
from lib.events.wakeups import Wakeups
from lib.llm import CutOff, Delta, LLMError, Reply, ScriptedClient, ToolCall
from lib.privacy import PatternRedactor
from lib.resilience import RetryPolicy
from lib.testing.agents import make_engine


class Paced(ScriptedClient):
    """Streams pieces, and goes on after the first one when it may."""

    def __init__(self, *pieces: str) -> None:
        super().__init__(["".join(pieces)])
        self.pieces, self.begun, self.may_go_on = pieces, asyncio.Event(), asyncio.Event()
        self.completed = 0

    async def complete(self, *args: Any, **options: Any) -> Reply:
        self.completed += 1
        return await super().complete(*args, **options)

    async def stream(self, *args: Any, **options: Any) -> AsyncIterator[Delta | Reply]:
        for piece in self.pieces:
            yield Delta(text=piece)
            self.begun.set()
            await self.may_go_on.wait()
        yield await super().complete(*args, **options)


class Held(ScriptedClient):
    """Streams replies whose connections only `aclose` returns, as `returned` counts them."""

    def __init__(self, *replies: Any) -> None:
        super().__init__(replies)
        self.streams: list[Any] = []
        self.returned = 0

    def stream(self, *args: Any, **options: Any) -> AsyncIterator[Delta | Reply]:
        self.streams.append(self._stream(*args, **options))
        return self.streams[-1]

    async def _stream(self, *args: Any, **options: Any) -> AsyncIterator[Delta | Reply]:
        try:
            reply = await super().complete(*args, **options)
            yield Delta(text="piece")
            yield reply
        finally:
            self.returned += 1


async def streamed(run: Run, **options: Any) -> list[Any]:
    async with aclosing(run.stream(**options)) as items:
        return [item async for item in items]


def shown(items: list[Any]) -> str:
    """Return what a reader sees of the first reply before it is in the log."""
    text = ""
    for item in items:
        if isinstance(item, ReplyReset):
            text = ""
        elif isinstance(item, ReplyDelta):
            text += item.text
        elif isinstance(item, ModelReplied):
            break
    return text


async def subscribed(store: MemoryEventStore, run_id: str) -> None:
    """Wait until the run has a subscriber that does not drive it."""
    joined = asyncio.Event()
    stop = store.live.drive(run_id, joined.set)
    if not store.live.watched(run_id):
        await joined.wait()
    stop()


def watcher_of(store: MemoryEventStore) -> Engine:
    return make_engine(ScriptedClient([]), store=store, drive=False, poll_s=1.0)


async def test_an_engine_that_does_not_drive_shows_the_deltas_of_the_one_that_does() -> None:
    client, store = Paced("one ", "two ", "three"), MemoryEventStore()
    async with make_engine(client, store=store) as driver, watcher_of(store) as watcher:
        started = await watcher.start("hi")
        items = asyncio.create_task(streamed(started))
        pieces = asyncio.create_task(_texts(watcher.run(started.id)))
        await subscribed(store, started.id)
        client.may_go_on.set()
        assert await driver.resume(started.id)
        found = await items

        assert shown(found).startswith("one ")
        assert "one two three".startswith(shown(found))
        assert [type(item) for item in found][-1] is RunEnded
        assert found[-1].result.output == "one two three"
        assert "one two three".startswith("".join(await pieces))


async def _texts(run: Run) -> list[str]:
    return [piece.delta.text async for piece in run.deltas()]


async def test_a_subscriber_that_comes_late_sees_the_reply_from_its_beginning() -> None:
    client, store = Paced("one ", "two"), MemoryEventStore()
    async with make_engine(client, store=store) as driver, watcher_of(store) as watcher:
        started = await driver.start("hi", stream=True)
        await client.begun.wait()
        for engine in (driver, watcher):
            async with aclosing(engine.run(started.id).deltas()) as pieces:
                assert (await anext(pieces)).delta.text == "one "
        client.may_go_on.set()
        await started.result()


async def test_a_takeover_resets_the_reply_and_nothing_comes_twice() -> None:
    store = MemoryEventStore()
    dead, alive = Paced("the old ", "reply"), Paced("the new ", "reply")
    alive.may_go_on.set()
    async with (
        watcher_of(store) as watcher,
        make_engine(dead, store=store, worker="a") as first,
        make_engine(alive, store=store, worker="b") as second,
    ):
        started = await watcher.start("hi")
        items = asyncio.create_task(streamed(started))
        await subscribed(store, started.id)
        assert await first.resume(started.id)
        await dead.begun.wait()
        stopped = first.wait_while_driven(started.id)
        first.hosting.interrupt(started.id)
        assert await stopped is None
        assert await second.resume(started.id)
        found = await items

    assert sum(isinstance(item, ReplyReset) for item in found) == 1
    first_text = next(item.text for item in found if isinstance(item, ReplyDelta))
    assert first_text == "the old "
    assert shown(found).startswith("the new ")
    assert "the new reply".startswith(shown(found))
    assert found[-1].result.output == "the new reply"


async def test_an_attempt_that_fails_resets_the_reply() -> None:
    cut = CutOff("Good mor", LLMError("connection lost", retryable=True))
    client = ScriptedClient([cut, "Good morning."])
    store = MemoryEventStore()
    agent = Agent(client, retries=RetryPolicy(attempts=2, base_s=0))
    async with Engine(store, agents=[agent]) as engine:
        found = await streamed(await engine.start("hi", stream=True))

    kinds = [type(item) for item in found if isinstance(item, ReplyDelta | ReplyReset)]
    assert kinds == [ReplyDelta, ReplyReset, ReplyDelta, ReplyDelta]
    assert shown(found) == "Good morning."


async def test_without_a_watcher_a_reply_is_not_streamed() -> None:
    client, store = Paced("one"), MemoryEventStore()
    client.may_go_on.set()
    async with make_engine(client, store=store) as engine:
        await (await engine.start("hi")).result()
    assert (client.completed, client.begun.is_set()) == (1, False)


async def test_an_engine_with_a_redactor_sends_no_deltas_to_others() -> None:
    client, store = Paced("mail ", "ada@example.com"), MemoryEventStore()
    client.may_go_on.set()
    redacting = make_engine(client, store=store, redactor=PatternRedactor())
    async with redacting as driver, watcher_of(store) as watcher:
        started = await watcher.start("hi")
        items = asyncio.create_task(streamed(started))
        await subscribed(store, started.id)
        assert await driver.resume(started.id)
        found = await items

    assert shown(found) == ""
    (reply,) = [item for item in found if isinstance(item, ModelReplied)]
    assert "ada@example.com" not in reply.text
    assert not client.begun.is_set()


async def test_a_stream_of_another_tenants_run_yields_nothing() -> None:
    client = Paced("secret ", "reply")
    async with make_engine(client) as engine:
        started = await engine.start("hi", tenant="globex", stream=True)
        await client.begun.wait()
        foreign = engine.run(started.id, tenant="acme").stream()
        with pytest.raises(RunNotFound):
            await anext(foreign)
        client.may_go_on.set()
        await started.result()


async def test_a_thousand_subscribers_of_which_one_never_reads_see_the_whole_reply() -> None:
    client, store = Paced(*("word " for _ in range(50))), MemoryEventStore()
    async with make_engine(client, store=store) as driver, watcher_of(store) as watcher:
        started = await watcher.start("hi")
        idle = watcher.run(started.id).stream()
        tasks = [asyncio.create_task(streamed(watcher.run(started.id))) for _ in range(1_000)]
        first = asyncio.create_task(anext(idle))
        await subscribed(store, started.id)
        client.may_go_on.set()
        assert await driver.resume(started.id)
        found = await asyncio.gather(*tasks)
        assert isinstance(await first, ReplyDelta | ModelReplied)
        await idle.aclose()

    reply = "word " * 50
    assert {reply.startswith(shown(items)) for items in found} == {True}
    assert {items[-1].result.output for items in found} == {reply}


async def test_a_reply_of_5_mb_is_shown_from_its_beginning_and_bounded() -> None:
    reply, store = "é\U0001f600" * 2_500_000, MemoryEventStore()
    live, hub = store.live, DeltaHub(store.live, store.wakeups)
    hub.begin("run")
    received: list[LiveDelta | None] = []
    leave = live.subscribe("run", lambda message: received.append(delta_of(message)))
    writer = hub.writer("run", seq=2, epoch=1)
    assert writer is not None
    writer(LiveDelta(key="llm/1", attempt=1, delta=Delta(reply)))

    shows, text = ShownReplies(), ""
    for piece in received:
        assert piece is not None
        new, _ = shows.take(piece)
        assert new is not None
        text += new.delta.text
    assert text == reply[:MAX_SHARED_CHARS]
    leave()


def test_messages_are_cut_below_the_limit_and_make_the_same_text() -> None:
    text, thinking = "a\x00é漢\U0001f600e\u0301\ufffd" * 400, "hm \U0001f914" * 300
    whole = LiveDelta(key="llm/1", attempt=2, delta=Delta(text, thinking), epoch=3, seq=4)
    messages = list(messages_of(whole, 1_000))

    assert max(len(message.encode("ascii")) for message in messages) <= 1_000
    shows, written, thought = ShownReplies(), "", ""
    for message in messages:
        piece = delta_of(message)
        assert piece is not None
        new, _ = shows.take(piece)
        assert new is not None
        written, thought = written + new.delta.text, thought + new.delta.thinking
    assert (written, thought) == (text, thinking)


async def test_characters_that_are_cut_into_two_pieces_are_shown_whole() -> None:
    live = LocalLive()
    hub, queue = DeltaHub(live, Wakeups()), DeltaQueue[str]()
    hub.begin("run")
    hub.add("run", queue)
    received: list[LiveDelta | None] = []
    leave = live.subscribe("run", lambda message: received.append(delta_of(message)))
    writer = hub.writer("run")
    assert writer is not None
    for text in ("a\ud83d", "\ude00!", "\ud800", "b", "\udc00", "c", "\ud83d"):
        writer(LiveDelta(key="llm/1", attempt=1, delta=Delta(text, text)))
    writer.repeat()

    queue.end()
    whole, shows = "a\U0001f600!\ufffdb\ufffdc", ShownReplies()
    pieces: list[LiveDelta] = []
    while isinstance(piece := await queue.get(), LiveDelta):
        pieces.append(piece)
    assert "".join(piece.delta.text for piece in pieces) == whole
    last = received[-1]
    assert last is not None
    assert shows.take(last)[0] == last
    assert (last.delta.text, last.delta.thinking) == (whole, whole)
    leave()


def test_a_key_that_fills_a_message_sends_nothing() -> None:
    live = LiveDelta(key="k" * 2_000, attempt=1, delta=Delta("text"))
    assert list(messages_of(live, 1_000)) == []


@pytest.mark.parametrize(
    "message",
    [
        *("", "[", "{}", "null", "[1]", '[1,1,1,0,0,"k","t"]', '[1,1,1,0,-1,"k","t",""]'),
        "[" * 100_000,
        json.dumps([1, 1, True, 0, 0, "k", "t", ""]),
        json.dumps([1, 1, 1, 0, 0, "k", 7, ""]),
    ],
)
def test_what_is_no_message_is_ignored(message: str) -> None:
    assert delta_of(message) is None


def test_repeats_gaps_and_older_deltas_are_dropped() -> None:
    shows = ShownReplies()

    def take(text: str, at: int, *, epoch: int = 1, attempt: int = 1) -> tuple[str | None, bool]:
        delta = Delta(text)
        live = LiveDelta(key="llm/1", attempt=attempt, delta=delta, epoch=epoch, text_at=at)
        new, restarts = shows.take(live)
        return (None if new is None else new.delta.text), restarts

    assert take("one ", 0) == ("one ", False)
    assert take("one ", 0) == (None, False)  # twice
    assert take("three", 8) == (None, False)  # a gap
    assert take("one two ", 0) == ("two ", False)  # sent anew
    assert take("uno ", 0, attempt=2) == ("uno ", True)
    assert take("three", 8) == (None, False)  # of the older attempt
    assert take("eins", 0, epoch=2) == ("eins", True)
    assert take("dos", 4, attempt=2) == (None, False)  # of the older lease
    shows.resume(3)
    assert take(" zwei", 4, epoch=2) == (None, False)
    shows.settle("llm/1")
    assert take("late", 0, epoch=9) == (None, False)


def test_what_is_shown_is_remembered_of_the_last_replies_only() -> None:
    shows = ShownReplies()
    for number in range(1_000):
        shows.take(LiveDelta(key=f"llm/{number}", attempt=1, delta=Delta("x")))
    assert len(shows._replies) == 256  # pyright: ignore[reportPrivateUsage] - no caller sees the bound


async def test_a_queue_that_is_not_read_drops_deltas_and_lets_events_wait() -> None:
    queue: DeltaQueue[str] = DeltaQueue()
    for _ in range(MAX_WAITING + 10):
        queue.put_nowait(LiveDelta(key="llm/1", attempt=1, delta=Delta("x")))
    assert len(queue) == MAX_WAITING
    waiting = asyncio.create_task(queue.put("event"))
    await asyncio.sleep(0)  # noqa: TID251 - lets it begin
    assert not waiting.done()
    await queue.get()
    await waiting
    queue.end()
    taken = [await queue.get() for _ in range(MAX_WAITING)]
    assert taken[-1] == "event"
    assert await queue.get() is None


async def test_a_hub_subscribes_only_to_runs_that_others_drive() -> None:
    live = LocalLive()
    hub, queue = DeltaHub(live, Wakeups()), DeltaQueue[str]()
    hub.add("run", queue)
    assert live.watched("run")
    hub.begin("run")
    assert not live.watched("run")
    hub.end("run")
    assert live.watched("run")
    hub.discard("run", queue)
    assert not live.watched("run")


async def test_a_connection_is_returned_with_the_reply():
    returned: list[int] = []

    def look_up(n: int) -> str:
        """Look it up."""
        returned.append(client.returned)
        return "found"

    call = ToolCall("c1", "look_up", {"n": 1})
    client = Held(Reply((call,), stop="tool_calls"), "done")
    async with Engine(MemoryEventStore(), agents=[Agent(client, tools=[look_up])]) as engine:
        run = await engine.start("go", stream=True)
        assert (await run.result()).text == "done"
    assert returned == [1]
    assert client.returned == 2
