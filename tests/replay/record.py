"""Records the logs of a release: `python tests/replay/record.py vX.Y.Z`, once, before its tag.

What is recorded is never edited: later releases must read it and fold it to the same end.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from lib.algorithms import React
from lib.engine import Budget, Engine
from lib.engine.core.state import fold
from lib.events import Event, MemoryBlobStore, MemoryEventStore
from lib.events.codec import event_to_json
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
        await shop.hosted(run.id)
        await run.approve("tool/2/c1", comment="fine", user="grace")
        await shop.hosted(run.id)
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


def main(folder: Path) -> None:
    folder.mkdir()
    for record in (approvals, takeover, cancelled, limited):
        log = asyncio.run(record())
        lines = [json.dumps(event_to_json(event), ensure_ascii=False) for event in log]
        name = folder / record.__name__
        name.with_suffix(".jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        told = json.dumps(ending(log), indent=1, ensure_ascii=False)
        name.with_suffix(".json").write_text(told + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(__file__).with_name(sys.argv[1]))
