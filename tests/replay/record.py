"""Records the logs of a release: `python tests/replay/record.py vX.Y.Z`, once, before its tag.

What is recorded is never edited: later releases must read it and fold it to the same end.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from lib.algorithms import React
from lib.engine import Budget, Engine
from lib.engine.core.state import fold
from lib.events import Event, EventStore, MemoryBlobStore, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.events.codec import event_to_json
from lib.events.store import run_mark
from lib.events.stores.sqlite import SQLiteEventStore
from lib.llm import Image, Message, Reply, ScriptedClient, Text, Thinking, ToolCall, Usage
from lib.testing.agents import make_engine
from lib.testing.clock import ManualClock
from lib.tools import ToolError, tool

CLOCK = ManualClock()
NUMBERS = iter(range(10**6))


def new_id() -> str:
    return f"id-{next(NUMBERS)}"


@tool(effects="none")
async def look(place: str) -> str:
    CLOCK.advance(0.5)
    if place == "nowhere":
        raise ToolError("not_found", "no such place")
    return f"seen {place}"


@tool(effects="idempotent", approval=True)
async def pay(amount: int) -> str:
    CLOCK.advance(0.25)
    return f"paid {amount}"


@tool
async def hang() -> str:
    await asyncio.Event().wait()
    return "never"


def asks(*calls: ToolCall) -> Reply:
    usage = Usage(input_tokens=100, output_tokens=20, cache_read_tokens=50, cost=0.001)
    parts = (Thinking("hm", signature="s1"), Text("let me see"), *calls)
    return Reply(parts, usage, "tool_calls", "model-1", "reply-1", {"provider": "p", "id": "1"})


def engine(store: MemoryEventStore, *steps: Reply | str, agent: React | None = None) -> Engine:
    client = ScriptedClient(steps, modalities=frozenset({"text", "image"}))
    options = {"clock": CLOCK, "new_id": new_id, "worker": "w", "blobs": MemoryBlobStore()}
    tools = (look, pay, hang)
    return make_engine(client, *tools, store=store, agent=agent, **options)


async def approvals() -> list[Event]:
    """Calls in parallel, one failing, one approved, one denied, with attachments and Unicode."""
    store = MemoryEventStore()
    steps = (
        asks(
            ToolCall("c1", "look", {"place": "hère ☃"}),
            ToolCall("c2", "look", {"place": "nowhere"}),
        ),
        asks(ToolCall("c1", "pay", {"amount": 5}), ToolCall("c2", "pay", {"amount": 500})),
        "paid 5, not 500",
    )
    picture = Image(data=b"\x89PNG", media_type="image/png")
    async with engine(store, *steps, agent=React(system="Be kind.")) as shop:
        run = await shop.start(
            Message.user("Pay what is due.", picture),
            tenant="acme",
            user="ada",
            idempotency_key="order-1",
            budget=Budget(tokens=10_000, llm_calls=9),
        )
        await shop.wait_while_driven(run.id)
        await run.approve("tool/2/c1", comment="fine", user="grace")
        await shop.wait_while_driven(run.id)
        await run.deny("tool/2/c2", comment="too much", user="grace")
        await run.result()
        await shop.signal(run.id, "lib.eval.score", {"name": "quality", "value": 0.9})
        await shop.signal(run.id, "acme.note", {"anything": [1, None, {"nested": True}]})
        return await store.read(run.id)


async def takeover() -> list[Event]:
    """A process that dies in a call; the next one settles it as unknown."""
    store = MemoryEventStore()
    async with engine(store, asks(ToolCall("c1", "hang"))) as first:
        run = await first.start("Do it.")
        async for event in run.events():
            if event.kind == "lib.tool.requested":
                break
    async with engine(store, "I do not know whether it was done.") as second:
        await second.run(run.id).result()
        return await store.read(run.id)


async def cancelled() -> list[Event]:
    """A run that is cancelled while one call is under way and another waits for a person."""
    store = MemoryEventStore()
    steps = asks(ToolCall("c1", "hang"), ToolCall("c2", "pay", {"amount": 1}))
    async with engine(store, steps) as shop:
        run = await shop.start("Do it.")
        async for event in run.events():
            if event.kind == "lib.approval.requested":
                break
        await run.cancel("changed my mind", user="ada")
        await run.result()
        return await store.read(run.id)


async def limited() -> list[Event]:
    """A run that cannot pay for its calls."""
    store = MemoryEventStore()
    async with engine(store, asks(ToolCall("c1", "look", {"place": "here"}))) as shop:
        run = await shop.start("Look.", budget=Budget(tool_calls=0))
        await run.result()
        return await store.read(run.id)


def ending(log: list[Event]) -> dict[str, object]:
    """Return what the log must fold to in every later release."""
    state = fold(React(), log)
    return {
        "outcome": state.outcome,
        "finish": dict(state.finish or {}),
        "conversation": state.loop.messages.digest,
        "messages": len(state.loop.messages),
        "spend": state.spend._asdict(),
    }


async def family(store: EventStore) -> None:
    """Runs that are not over: a parent that refers to a blob, its child, and one that is leased."""
    at = CLOCK.now()
    blob = {"$blob": "ab" * 32, "size": 300_000, "type": "image/png"}
    image = {"type": "image", "blob": blob}
    start = {"algorithm": "planner", "input": [{"role": "user", "parts": [image]}]}
    child = {"key": "tool/1/c1", "run_id": "child", "name": "helper", "algorithm": "react"}
    await store.append(
        "parent",
        [
            NewEvent(k.RUN_STARTED, start, at, "acme", "ada"),
            NewEvent(k.CHILD_REQUESTED, {**child, "call_id": "c1", "input": []}, at),
        ],
        expected=0,
    )
    link = {"root": "parent", "parent": {"run_id": "parent", "key": "tool/1/c1"}}
    started: dict[str, Any] = {"algorithm": "react", "input": [], **link}
    await store.append("child", [NewEvent(k.RUN_STARTED, started, at, "acme")], expected=0)
    await store.append("leased", [NewEvent(k.RUN_STARTED, {"algorithm": "other"}, at)], expected=0)
    await store.claim("w", ttl_s=30, run_id="leased")
    await store.set_mark(run_mark("parent", "trace"), "kept")


async def the_store(path: Path, logs: list[list[Event]]) -> dict[str, object]:
    """Write the logs and a family to a SQLite store, and return what is in it."""
    store = SQLiteEventStore(path, clock=CLOCK)
    await store.setup()
    for log in logs:
        news = [NewEvent(e.kind, e.data, e.at, e.tenant, e.user) for e in log]
        await store.append(log[0].run_id, news, expected=0)
    cursor = (await store.feed(limit=7)).cursor
    await store.set_mark("bus/lib.observe", cursor)
    await family(store)
    feed = await store.feed(limit=10_000)
    rest = await store.feed(cursor, limit=10_000)
    content: dict[str, object] = {
        "layout": await store.schema_version(),
        "cursor": cursor,
        "runs": {info.run_id: [info.head, info.status, info.owner] for info in await store.runs()},
        "events": [event_to_json(event) for event in feed.events],
        "after_cursor": len(rest.events),
    }
    await store.close()
    return content


def write(path: Path, value: dict[str, object]) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def main(folder: Path) -> None:
    folder.mkdir()
    logs: list[list[Event]] = []
    for record in (approvals, takeover, cancelled, limited):
        logs.append(log := asyncio.run(record()))
        lines = [json.dumps(event_to_json(event), ensure_ascii=False) for event in log]
        name = folder / record.__name__
        name.with_suffix(".jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        write(name.with_suffix(".json"), ending(log))
    write(folder / "store.json", asyncio.run(the_store(folder / "store.db", logs)))


if __name__ == "__main__":
    main(Path(__file__).with_name(sys.argv[1]))
