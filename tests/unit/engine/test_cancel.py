"""A cancelled run ends soon, and every call in it has a result."""

import asyncio
from collections import Counter

from lib.engine import Result
from lib.events import Event
from lib.events import kinds as k
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.testing.agents import make_engine
from lib.tools import tool

from .run_kit import reached, stubborn_until


@tool
async def wait_for_ever() -> str:
    await asyncio.Event().wait()
    return "never"


@tool(approval=True)
async def ask_first() -> str:
    return "approved"


def calls(*names: str) -> Reply:
    tool_calls = [ToolCall(f"c{number}", name) for number, name in enumerate(names)]
    return Reply(tuple(tool_calls), stop="tool_calls")


def unpaired(events: list[Event]) -> Counter[str]:
    keys = Counter(e.data["key"] for e in events if e.kind in k.REQUESTS)
    keys.subtract(e.data["key"] for e in events if e.kind in k.RESULTS)
    return +keys + Counter({key: -n for key, n in keys.items() if n < 0})


async def test_a_cancel_interrupts_running_calls_and_drops_waiting_ones() -> None:
    client = ScriptedClient([calls("wait_for_ever", "ask_first")])

    async with make_engine(client, wait_for_ever, ask_first) as engine:
        started = await engine.start("go")
        await reached(started, k.APPROVAL_REQUESTED)
        assert await started.cancel("changed my mind", user="ada") is True
        result = await started.result()
        assert await started.cancel() is False
        log = await engine.store.read(started.id)

    failures = [e.data for e in log if e.kind == k.TOOL_FAILED]
    assert (result.outcome, result.reason) == ("CANCELLED", "changed my mind")
    assert [(f["key"], f["reason"], f["code"]) for f in failures] == [
        ("tool/1/c0", "cancelled", "cancelled"),
        ("tool/1/c1", "cancelled", "cancelled"),
    ]
    assert "may or may not have had its effect" in failures[0]["message"]
    assert "not called" in failures[1]["message"]
    assert unpaired(log) == Counter()


async def test_a_run_without_a_driver_can_be_cancelled() -> None:
    client = ScriptedClient([calls("ask_first")])

    async def main() -> Result:
        async with make_engine(client, ask_first) as engine:
            started = await engine.start("go")
            await engine.wait_while_driven(started.id)
            await started.cancel()
            return await started.result()

    assert (await main()).outcome == "CANCELLED"


async def test_a_call_that_ends_within_the_grace_keeps_its_result() -> None:
    @tool
    async def tidy() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "tidied up"
        return "never"

    client = ScriptedClient([calls("tidy")])

    async with make_engine(client, tidy) as engine:
        started = await engine.start("go")
        await reached(started, k.TOOL_REQUESTED)
        await started.cancel()
        await started.result()
        log = await engine.store.read(started.id)

    assert [e.data["output"] for e in log if e.kind == k.TOOL_COMPLETED] == ["tidied up"]
    assert unpaired(log) == Counter()


async def test_a_call_that_ignores_its_cancellation_is_left_behind(caplog: object) -> None:
    release = asyncio.Event()

    client = ScriptedClient([calls("stubborn")])

    async with make_engine(client, stubborn_until(release), grace_s=0.01) as engine:
        started = await engine.start("go")
        await reached(started, k.TOOL_REQUESTED)
        await started.cancel()
        result = await started.result()
        release.set()
        assert result.outcome == "CANCELLED"
        log = await engine.store.read(started.id)

    assert [e.data["reason"] for e in log if e.kind == k.TOOL_FAILED] == ["cancelled"]
    assert [e for e in log if e.kind == k.TOOL_COMPLETED] == []
