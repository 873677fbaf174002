"""Redactors that fail: nothing is written unredacted, and the run ends all the same."""

import asyncio
from collections.abc import Sequence

import pytest

from lib.algorithms import React
from lib.engine import Result
from lib.engine.core.state import MAX_RESUMES
from lib.errors import RedactionFailed
from lib.events import Event, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.llm import Message, Reply, ScriptedClient
from lib.testing.agents import kinds, make_engine
from lib.tools import tool

from .fault_kit import asks_helper, until_done, with_helper
from .run_kit import ask


class Unredacted:
    """Fails at every text."""

    def __init__(self) -> None:
        self.failing = False

    def redact(self, text: str) -> str:
        if self.failing:
            raise ZeroDivisionError("a bug in a redactor")
        return text


@pytest.mark.parametrize("cancel", [False, True])
async def test_a_redactor_that_fails_at_every_text_ends_the_run_without_any(
    *, cancel: bool
) -> None:
    redactor = Unredacted()

    @tool
    async def act() -> str:
        redactor.failing = True
        return "acted"

    client = ScriptedClient([ask("act")])
    async with make_engine(client, act, redactor=redactor) as engine:
        started = await engine.start("go")
        for _ in range(MAX_RESUMES):
            with pytest.raises(RedactionFailed):
                await started.result()
            if cancel:
                redactor.failing = False
                await started.cancel("stop")
                redactor.failing = True
        result = await started.result()
        log = await engine.store.read(started.id)
    assert result.outcome == "FAILED"
    assert result.error == {"type": "poison", "message": ""}
    assert kinds(log).count("run.resumed") == MAX_RESUMES
    assert kinds(log)[-2:] == ["tool.failed", "run.completed"]


async def test_a_poisoned_run_with_a_child_ends_though_nothing_can_be_redacted() -> None:
    redactor = Unredacted()

    @tool(approval=True)
    async def act() -> str:
        return "acted"

    def think(messages: Sequence[Message]) -> Reply | str:
        if messages[0].text == "x":
            return ask("act")
        return asks_helper(messages)

    async def main() -> Result:
        child = React("child", tools=["act"])
        async with with_helper(child, act, answer=think, redactor=redactor) as engine:
            started = await engine.start("go")
            while not any(i.parent_id and not i.ready for i in await engine.store.runs()):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.001)  # noqa: TID251 - lets it go on
            await started.cancel("stop")
            redactor.failing = True
            return await until_done(started.result, fault=RedactionFailed)

    assert (await main()).outcome == "FAILED"


async def test_a_child_whose_input_cannot_be_redacted_fails_its_parent() -> None:
    redactor = Unredacted()

    class Noticing(MemoryEventStore):
        async def append(
            self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
        ) -> list[Event]:
            stored = await super().append(run_id, events, expected=expected)
            redactor.failing = any(event.kind == k.CHILD_REQUESTED for event in events)
            return stored

    child = React("child", tools=[])
    async with with_helper(child, store=Noticing(), redactor=redactor) as engine:
        started = await engine.start("go")
        with pytest.raises(RedactionFailed):
            await started.result()
        log = await engine.store.read(started.id)
    assert log[-1].data["error"] == {"type": "RedactionFailed"}
