"""What tests of runs share: waiting until one has come so far, and tools that are hard to stop."""

import asyncio

from lib.engine import Run, Turn
from lib.tools import Tool, tool


async def reached(watched: Run | Turn, kind: str) -> None:
    """Wait until a run, or a turn of a session, has an event of that kind."""
    async for event in watched.events():
        if event.kind == kind:
            return


@tool
async def pay() -> str:
    """Take for ever, and have an effect all the same when it is interrupted."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "paid"
    return "never"


def stubborn_until(release: asyncio.Event) -> Tool:
    """Return a tool that ignores its cancellation until it is released."""

    @tool
    async def stubborn() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    return stubborn
