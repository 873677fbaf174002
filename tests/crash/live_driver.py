"""A process that drives one run, whose model streams a text: all of it, or half and then nothing.

Its arguments are the kind of the store, where it is, its name there, the run, "half" or "whole",
and a file for whose coming the model waits before its reply ends.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from lib._util.clock import SYSTEM_CLOCK
from lib.algorithms import React
from lib.engine import Engine, LLMHandler
from lib.events import EventStore, SQLiteEventStore
from lib.events.live import live_of
from lib.events.stores.postgres import PostgresEventStore
from lib.events.stores.redis import RedisEventStore
from lib.llm import Delta, Message, Reply

PAUSE_S = 0.005


def words(how: str) -> Sequence[str]:
    """Return the pieces of the reply of a process."""
    return [f"{how} é{number}\U0001f600 " for number in range(60)]


def open_one(kind: str, url: str, name: str) -> EventStore:
    if kind == "postgres":
        return PostgresEventStore(url, schema=name)
    if kind == "redis":
        return RedisEventStore(url, prefix=name)
    return SQLiteEventStore(url)


class Writer:
    """A model that streams slowly."""

    model, provider, modalities = "writer", "test", frozenset({"text"})

    def __init__(self, how: str, go: Path) -> None:
        self._how, self._go = how, go

    async def complete(self, messages: Sequence[Message], **options: Any) -> Reply:
        raise AssertionError("not streamed")

    async def stream(
        self, messages: Sequence[Message], **options: Any
    ) -> AsyncIterator[Delta | Reply]:
        pieces = words(self._how)
        for piece in pieces[: len(pieces) // 2] if self._how == "half" else pieces:
            yield Delta(text=piece)
            await SYSTEM_CLOCK.sleep(PAUSE_S)
        while self._how == "half" or not await asyncio.to_thread(self._go.exists):
            await SYSTEM_CLOCK.sleep(PAUSE_S)
        yield Reply(Message.assistant("".join(pieces)).parts)


async def main(kind: str, url: str, name: str, *rest: str) -> None:
    run_id, how, go = rest
    store = open_one(kind, url, name)
    client: Any = Writer(how, Path(go))
    async with Engine(store, [LLMHandler(client)], algorithms=[React()], lease_s=3600) as engine:
        live = live_of(store)
        assert live is not None
        leave = live.drive(run_id, lambda: None)
        while not live.watched(run_id):
            await SYSTEM_CLOCK.sleep(PAUSE_S)
        assert await engine.resume(run_id)
        leave()
        await engine.run(run_id).result()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
