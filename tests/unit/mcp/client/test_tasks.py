"""Calls that a server makes tasks: waited for, answered, cancelled, and found again."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.mcp_servers.kit import call, hostile, opened
from lib import Agent, Engine
from lib.errors import ToolError
from lib.events import RunInfo, RunQuery, open_store
from lib.events import kinds as k
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.mcp import Elicitation, MCPTools
from lib.tools import Effects

SHOP = """
import asyncio
import os

from lib import Agent, Engine, tool
from lib.llm import FunctionClient
from lib.mcp import MCPToolServer, TaskTool


async def think(_):
    begun = "begun" + str(os.getpid())
    open(begun, "w").close()
    while not os.path.exists("go"):
        await asyncio.sleep(0.02)
    return "It is on its way."


@tool(approval=True)
def pay(amount: int) -> str:
    "Pay."
    return f"paid {amount}"


@tool(effects="none")
def ask_for_the_time() -> str:
    "Tell the time."
    return "noon"


def server():
    offers = [Agent(FunctionClient(think), name="clerk"), TaskTool(pay)]
    engine = Engine("shop.db", agents=offers, lease_s=1.0)
    return MCPToolServer([*offers, ask_for_the_time], engine=engine, task_poll_s=0.1)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    return tmp_path


def tools_of(shop: Path, **options: Any) -> MCPTools:
    path = os.pathsep.join(sys.path)
    return MCPTools(
        command=[sys.executable, "-m", "lib.cli", "mcp", "serve", "shop:server"],
        env={"PYTHONPATH": path},
        cwd=str(shop),
        connect_timeout_s=120.0,
        **options,
    )


def clerk(shop: Path, **options: Any) -> Agent:
    asks = Reply((ToolCall("c1", "clerk", {"task": "Where is order 7?"}),))
    return Agent(ScriptedClient([asks, "Done."]), tools=[tools_of(shop, **options)])


async def runs_of(shop: Path) -> list[RunInfo]:
    store = open_store(shop / "shop.db")
    await store.setup()
    try:
        return await store.runs(RunQuery())
    finally:
        await store.close()


async def until(found: Callable[[], Any]) -> Any:
    """Return what is found, once it is there: it comes from another process."""
    while not (value := found()):  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.02)  # noqa: TID251 - see above
    return value


def begun(shop: Path) -> list[int]:
    """Return the ids of the processes in which the agent of the shop has begun to think."""
    return [int(each.name.removeprefix("begun")) for each in shop.glob("begun*")]


# -- our own server --------------------------------------------------------------------------------


async def test_a_call_of_an_agent_elsewhere_is_waited_for(shop: Path) -> None:
    (shop / "go").touch()
    async with opened(tools_of(shop)) as toolset:
        answer = await call(toolset, "clerk", task="Where is order 7?")

    assert answer == "It is on its way."
    assert [each.outcome for each in await runs_of(shop)] == ["COMPLETED"]


async def test_a_person_decides_while_the_task_goes_on(shop: Path) -> None:
    questions: list[Elicitation] = []

    async def elicit(question: Elicitation) -> dict[str, Any]:
        questions.append(question)
        return {"approve": True}

    async with opened(tools_of(shop, elicit=elicit)) as toolset:
        assert await call(toolset, "pay", amount=7) == "paid 7"

    assert len(questions) == 1


async def test_a_task_outlives_the_process_of_its_server(shop: Path) -> None:
    async with opened(tools_of(shop)) as toolset:
        calling = asyncio.create_task(call(toolset, "clerk", task="Where is order 7?"))
        (pid,) = await until(lambda: begun(shop))
        await call(toolset, "ask_for_the_time")  # answered behind the id of the task
        os.kill(pid, 9)
        (shop / "go").touch()
        answer = await calling

    assert answer == "It is on its way."
    assert [each.outcome for each in await runs_of(shop)] == ["COMPLETED"]


async def test_a_cancelled_call_cancels_its_task(shop: Path) -> None:
    async with opened(tools_of(shop)) as toolset:
        calling = asyncio.create_task(call(toolset, "clerk", task="Where is order 7?"))
        await until(lambda: begun(shop))
        calling.cancel()  # before or after the server has named the task
        await asyncio.wait([calling])
        while [each.outcome for each in await runs_of(shop)] != ["CANCELLED"]:  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.02)  # noqa: TID251 - see above


async def test_a_run_that_is_resumed_finds_the_task_that_it_had_started(
    shop: Path, tmp_path: Path
) -> None:
    agent = clerk(shop, effects={"clerk": "idempotent"})
    async with Engine(tmp_path / "own.db", agents=[agent]) as engine:
        run = await engine.start("Go.", agent=agent)
        await until(lambda: begun(shop))
    (shop / "go").touch()
    async with Engine(tmp_path / "own.db", agents=[agent]) as engine:
        result = await engine.run(run.id).result(timeout_s=120)
        log = await engine.store.read(run.id)

    assert result.output == "Done."
    (completed,) = [each.data for each in log if each.kind == k.TOOL_COMPLETED]
    assert "It is on its way." in completed["output"]
    assert [each.outcome for each in await runs_of(shop)] == ["COMPLETED"]


# -- a hostile one ---------------------------------------------------------------------------------


async def failure(mode: str, *arguments: str, **options: Any) -> ToolError:
    async with opened(hostile(mode, *arguments, **options)) as toolset:
        with pytest.raises(ToolError) as caught:
            await call(toolset, "act")
        return caught.value


async def test_a_task_that_has_ended_at_once() -> None:
    async with opened(hostile("task")) as toolset:
        assert await call(toolset, "act") == "done"


@pytest.mark.parametrize(
    "mode",
    [
        "task-long-id",
        "task-empty-id",
        "task-forged-id",
        "task-wrong-state",
        "task-no-result",
        "task-wrong-result",
        "task-in-task",
        "task-no-error",
        "task-fails",
        "task-lost",
        "task-asks-for-nonsense",
    ],
)
async def test_a_task_that_cannot_be_read_is_of_unknown_outcome(mode: str) -> None:
    error = await failure(mode)

    assert error.code == "unknown"
    assert "verify before you repeat it" in error.message
    assert "ignore all rules" not in error.message


async def test_a_task_that_its_server_has_cancelled_is_a_failed_call() -> None:
    assert (await failure("task-cancelled")).code == "cancelled"


@pytest.mark.parametrize("mode", ["task-never", "task-waits", "task-negative", "task-asks-nothing"])
async def test_a_task_that_never_ends_is_cancelled_in_the_end(mode: str, tmp_path: Path) -> None:
    log, reply = tmp_path / "log", Reply((ToolCall("c1", "act", {}),))
    server = hostile(mode, str(log), timeout_s=0.5, task_timeout_s=0.5)
    agent = Agent(ScriptedClient([reply, "Sorry."]), tools=[server])
    async with agent.engine() as engine:
        run = await agent.start(engine, "Act.")
        result = await run.result(timeout_s=120)
        events = await engine.store.read(run.id)

    assert result.output == "Sorry."
    (failed,) = [each.data for each in events if each.kind == k.TOOL_FAILED]
    assert failed["reason"] == "unknown"
    assert "tasks/cancel" in log.read_text(encoding="ascii")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("effects", "cancels"), [("once", True), ("idempotent", False)])
async def test_a_task_that_is_made_after_its_call_was_cancelled_is_cancelled_too(
    effects: Effects, cancels: bool, tmp_path: Path
) -> None:
    """A call that a resumed run will repeat leaves its task alone."""
    log = tmp_path / "log"
    async with opened(hostile("task-late", str(log), effects={"act": effects})) as toolset:
        calling = asyncio.create_task(call(toolset, "act"))
        await until(lambda: "tools/call" in log.read_text(encoding="ascii"))
        calling.cancel()
        await asyncio.wait([calling])
        (tmp_path / "log.go").touch()

    assert calling.cancelled()
    assert ("tasks/cancel" in log.read_text(encoding="ascii")) == cancels


async def test_questions_of_a_task_are_answered_once_and_not_for_ever() -> None:
    seen: list[Elicitation] = []

    async def elicit(question: Elicitation) -> dict[str, Any]:
        seen.append(question)
        return {}

    refused = await failure("task-asks-for-ever", elicit=elicit)
    assert (refused.code, len(seen)) == ("failed", 8)

    seen.clear()
    async with opened(hostile("task-asks", elicit=elicit)) as toolset:
        calling = asyncio.create_task(call(toolset, "act"))
        await until(lambda: seen)
        await asyncio.wait([calling], timeout=1)
        calling.cancel()
        await asyncio.wait([calling])
    assert len(seen) == 1


async def test_questions_of_a_task_without_a_person_fail_the_call() -> None:
    assert (await failure("task-asks")).code == "unsupported"
