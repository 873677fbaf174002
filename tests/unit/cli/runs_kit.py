"""Shared by tests of `lib store` and `lib trace`: a store with finished and begun runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lib.events import NewEvent, SQLiteEventStore
from lib.events import kinds as k
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.testing.agents import make_engine
from lib.testing.aio import run
from lib.testing.clock import ManualClock
from lib.tools import tool

BEGUN: dict[str, Any] = {"algorithm": "react", "input": []}


def filled(
    folder: Path, begun: Mapping[str, dict[str, Any]], *, tenant: str | None = None, text: str
) -> Path:
    """Return the path of a store with `run-one`, which is finished, and runs that have only begun.

    Args:
        folder: where the store is made.
        begun: the runs that have only begun, with what their logs begin with.
        tenant: whose the finished run is.
        said: what its one tool call has returned.
    """
    clock = ManualClock()
    ids = iter(["worker", "run-one"])
    call_act = Reply((ToolCall("c1", "act"),), stop="tool_calls")

    @tool
    def act() -> str:
        return text

    async def fill() -> None:
        store = SQLiteEventStore(folder / "runs.db", clock=clock)
        client = ScriptedClient([call_act, "done"])
        options: dict[str, Any] = {"store": store, "clock": clock, "new_id": ids.__next__}
        async with make_engine(client, act, **options) as engine:
            await (await engine.start("go", tenant=tenant)).result()
            for run_id, data in begun.items():
                started = NewEvent(k.RUN_STARTED, data, clock.now())
                await store.append(run_id, [started], expected=0)

    run(fill())
    return folder / "runs.db"
