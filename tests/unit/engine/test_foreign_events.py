"""What others do to a run just between two steps of its driver is neither lost nor undone."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lib.engine import Result
from lib.events import Lease, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.llm import ScriptedClient
from lib.testing.agents import kinds, make_engine
from lib.testing.aio import run
from lib.testing.event_store.kit import AT
from lib.tools import tool

from .run_kit import ask, reached


def test_a_decision_that_comes_while_the_run_is_given_back_is_not_lost() -> None:
    @tool(approval=True)
    def act() -> str:
        return "acted"

    class Slow(MemoryEventStore):
        async def release(self, lease: Lease, *, idle_at: int | None = None) -> None:
            for _ in range(10):
                await asyncio.sleep(0)  # noqa: TID251 - the decision comes meanwhile
            await super().release(lease, idle_at=idle_at)

    async def main() -> None:
        async with make_engine(ScriptedClient([ask("act"), "done"]), act, store=Slow()) as engine:
            started = await engine.start("go")
            await reached(started, k.APPROVAL_REQUESTED)
            await started.approve("tool/1/c1")
            while (await started.info()).status == "open":  # noqa: ASYNC110 - nobody waits for it
                await asyncio.sleep(0)  # noqa: TID251 - lets the run go on

    run(main())


def test_a_run_that_ends_while_it_is_taken_over_is_left_as_it_is() -> None:
    class Ending(MemoryEventStore):
        async def claim(self, owner: str, **options: Any) -> list[Lease]:
            (lease,) = await super().claim(owner, **options)
            end = NewEvent(k.RUN_COMPLETED, {"outcome": "COMPLETED", "output": "theirs"}, AT)
            await self.append(lease.run_id, [end], expected=1)
            return [replace(lease, epoch=2, takeover=True)]

    async def main() -> tuple[Result, Sequence[str]]:
        store = Ending()
        async with make_engine(ScriptedClient([]), store=store) as engine:
            started = await engine.start("go")
            return await started.result(), kinds(await store.read(started.id))

    result, happened = run(main())
    assert (result.output, happened) == ("theirs", ["run.started", "run.completed"])
