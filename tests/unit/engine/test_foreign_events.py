"""Events that others append between two steps of a driver are neither lost nor undone."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lib.engine import Result
from lib.events import Lease, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.llm import ScriptedClient
from lib.testing.agents import kinds, make_engine
from lib.testing.event_store.kit import AT
from lib.tools import tool

from .fault_kit import Undecided
from .run_kit import NoteBefore, ask, new, reached


async def test_a_decision_that_comes_while_the_run_is_given_back_is_not_lost() -> None:
    @tool(approval=True)
    def act() -> str:
        return "acted"

    class Slow(MemoryEventStore):
        async def release(self, lease: Lease, *, idle_at: int | None = None) -> None:
            for _ in range(10):
                await asyncio.sleep(0)  # noqa: TID251 - the decision comes meanwhile
            await super().release(lease, idle_at=idle_at)

    async with make_engine(ScriptedClient([ask("act"), "done"]), act, store=Slow()) as engine:
        started = await engine.start("go")
        await reached(started, k.APPROVAL_REQUESTED)
        await started.approve("tool/1/c1")
        while (await started.info()).status == "open":  # noqa: ASYNC110 - a result would wait for it
            await asyncio.sleep(0)  # noqa: TID251 - lets the run go on


async def test_a_run_that_ends_while_it_is_taken_over_is_left_as_it_is() -> None:
    class Ending(MemoryEventStore):
        async def claim(self, owner: str, **options: Any) -> list[Lease]:
            (lease,) = await super().claim(owner, **options)
            end = NewEvent(k.RUN_COMPLETED, {"outcome": "COMPLETED", "output": "theirs"}, AT)
            await self.append(lease.run_id, [end], expected=1)
            return [replace(lease, epoch=2, takeover=True)]

    store = Ending()
    async with make_engine(ScriptedClient([]), store=store) as engine:
        started = await engine.start("go")
        result, happened = await started.result(), kinds(await store.read(started.id))
    assert (result.output, happened) == ("theirs", ["run.started", "run.completed"])


async def test_a_concurrent_signal_is_folded_and_the_decision_made_again() -> None:
    async def main(kind: str) -> tuple[Result, Sequence[str]]:
        store = NoteBefore(k.LLM_COMPLETED, new(kind, signal_id="s"))
        async with make_engine(ScriptedClient(["answer"]), store=store) as engine:
            started = await engine.start("go")
            return await started.result(), kinds(await store.read(started.id))

    noted, happened = await main("acme.note")
    assert (noted.outcome, noted.output) == ("COMPLETED", "answer")
    assert happened[2:] == ["acme.note", "llm.completed", "run.completed"]
    cancelled, happened = await main(k.CANCEL_REQUESTED)
    assert cancelled.outcome == "CANCELLED"
    assert happened[2:] == ["cancel.requested", "llm.completed", "run.completed"]


async def test_an_owner_that_finds_an_event_of_another_owner_stops() -> None:
    resumed = new(k.RUN_RESUMED, worker="other", epoch=2)
    store = NoteBefore(k.LLM_COMPLETED, resumed, expected=0)
    async with make_engine(ScriptedClient(["kept"]), store=store) as engine:
        started = await engine.start("go")
        assert await engine.wait_while_driven(started.id) is None
        happened = kinds(await store.read(started.id))
        assert happened[:3] == ["run.started", "llm.requested", "run.resumed"]
        assert happened[3:] == ["lease.lost"]  # it says that it lives, and nothing else
        assert (await started.result()).output == "kept"


async def test_a_failure_is_counted_though_a_signal_comes_first() -> None:
    async def main() -> Sequence[str]:
        store = NoteBefore(k.RUN_RESUMED, new("acme.note"))
        async with make_engine(ScriptedClient([]), store=store, agent=Undecided()) as engine:
            started = await engine.start("go")
            with pytest.raises(ZeroDivisionError):
                await started.result()
            return kinds(await store.read(started.id))

    assert (await main())[:3] == ["run.started", "acme.note", "run.resumed"]
