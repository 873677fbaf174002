"""The cost of a turn late in a session beside an early one: CPU time, medians of 100 turns.

    make bench ARGS=sessions
    make bench ARGS="sessions --turns 8000"

A session is sent one turn after another, by one handle that is kept and by a new handle each time,
as a web server makes one for each request. The model answers at once and reads nothing, so that
what is measured is the engine's and the store's. Both kinds of handle and both stores take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from lib.algorithms import React
from lib.engine import Engine, LLMHandler, Session
from lib.events import open_store
from lib.llm import Delta, Message, Reply, Usage

AROUND: Final = 50
"""A turn's cost is the median of so many turns before and after it."""
EARLY: Final = 100


class Constant:
    """A model that reads nothing and says the same each time."""

    name = model = "constant"
    modalities = frozenset({"text"})
    reply = Reply(Message.assistant("ok").parts, Usage(input_tokens=1, output_tokens=1), model="m")

    async def complete(self, messages: Sequence[Message], **_: Any) -> Reply:
        return self.reply

    async def stream(self, messages: Sequence[Message], **_: Any) -> AsyncIterator[Delta | Reply]:
        yield self.reply

    async def close(self) -> None:
        pass


async def turn_ms(engine: Engine, session: Session, number: int, *, fresh: bool) -> float:
    begun = time.process_time()
    handle = engine.session(session.id) if fresh else session
    await (await handle.send(f"word {number}")).result()
    return (time.process_time() - begun) * 1_000


async def measure(turns: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        async with AsyncExitStack() as held:
            rows: list[tuple[str, bool, Engine, Session, list[float]]] = []
            for store in ("memory:", str(Path(place, "log.db"))):
                engine = Engine(
                    open_store(store),
                    [LLMHandler(Constant())],
                    algorithms=[React(system="You are a clerk.")],
                )
                await held.enter_async_context(engine)
                name = "memory" if store == "memory:" else "SQLite"
                for fresh in (False, True):
                    session = await engine.start_session()
                    rows.append((name, fresh, engine, session, []))
            for number in range(turns + AROUND):
                for _, fresh, engine, session, spent in rows:
                    spent.append(await turn_ms(engine, session, number, fresh=fresh))
    print(f"| store | handle | turn {EARLY} | turn {turns} | ratio |\n|---|---|---|---|---|")
    for name, fresh, _, _, spent in rows:
        early, late = (statistics.median(spent[at - AROUND : at + AROUND]) for at in (EARLY, turns))
        handle = "new each turn" if fresh else "kept"
        print(f"| {name} | {handle} | {early:.2f} ms | {late:.2f} ms | {late / early:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=2_000, help="the late turn (2000)")
    asyncio.run(measure(parser.parse_args().turns))


if __name__ == "__main__":
    main()
