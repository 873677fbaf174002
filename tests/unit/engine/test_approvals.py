"""A call that a person must approve: the run holds nothing while it waits."""

import asyncio
from collections.abc import Sequence

import pytest

from lib.engine import NotPending, PendingApproval, Result
from lib.events import MemoryEventStore
from lib.llm import Message, Reply, ScriptedClient, ToolCall, ToolResult
from lib.testing.agents import kinds, make_engine
from lib.testing.aio import run
from lib.tools import tool

paid: list[int] = []


@tool(approval=lambda arguments: arguments["amount"] > 10)
def pay(amount: int) -> str:
    """Pay."""
    paid.append(amount)
    return "paid"


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    paid.clear()


def ask(amount: int) -> Reply:
    return Reply((ToolCall("c1", "pay", {"amount": amount}),), stop="tool_calls")


def told(messages: Sequence[Message]) -> str:
    return "|".join(p.content for m in messages for p in m.parts if isinstance(p, ToolResult))


def test_an_approved_call_is_made_and_only_then_recorded_as_intended() -> None:
    async def main() -> None:
        async with make_engine(ScriptedClient([ask(50), told]), pay) as engine:
            started = await engine.start("pay")
            await engine.hosted(started.id)

            assert await started.pending() == [
                PendingApproval(key="tool/1/c1", call_id="c1", name="pay", arguments={"amount": 50})
            ]
            info = await started.info()
            assert (info.owner, info.ready, info.status, paid) == (None, False, "open", [])

            await started.approve("tool/1/c1", comment="fine", user="boss")
            assert (await started.result()).output == "paid"
            assert await started.pending() == []
            log = await engine.store.read(started.id)
            assert kinds(log)[3:6] == [
                "approval.requested",
                "approval.decided",
                "tool.requested",
            ]
            assert (log[4].user, log[4].data["comment"]) == ("boss", "fine")

    run(main())
    assert paid == [50]


def test_a_denied_call_is_never_made_and_the_model_is_told_why() -> None:
    async def main() -> Result:
        async with make_engine(ScriptedClient([ask(50), told]), pay) as engine:
            started = await engine.start("pay")
            await engine.hosted(started.id)
            await started.deny("tool/1/c1", comment="too much")
            return await started.result()

    result = run(main())

    assert (result.output, paid) == ("not called: a person denied it: too much", [])
    assert result.spend.tool_calls == 0


def test_the_rule_decides_which_calls_wait() -> None:
    async def main() -> Result:
        async with make_engine(ScriptedClient([ask(10), told]), pay) as engine:
            return await (await engine.start("pay")).result()

    assert (run(main()).output, paid) == ("paid", [10])


def test_a_rule_that_fails_makes_the_call_wait() -> None:
    call = Reply((ToolCall("c1", "pay", {}),), stop="tool_calls")

    async def main() -> str:
        async with make_engine(ScriptedClient([call, told]), pay) as engine:
            started = await engine.start("pay")
            await engine.hosted(started.id)
            await started.approve("tool/1/c1")
            return (await started.result()).output

    assert run(main()) == "amount: Field required"


def test_the_first_decision_counts() -> None:
    async def main() -> None:
        async with make_engine(ScriptedClient([ask(50), told]), pay) as engine:
            started = await engine.start("pay")
            await engine.hosted(started.id)
            with pytest.raises(NotPending) as caught:
                await started.approve("tool/9/c9")
            assert (caught.value.run_id, caught.value.call_id) == (started.id, "tool/9/c9")

            await started.deny("tool/1/c1")
            with pytest.raises(NotPending):
                await started.approve("tool/1/c1")
            await engine.signal(
                started.id, "lib.approval.decided", {"key": "tool/1/c1", "approved": True}
            )
            await started.result()

    run(main())
    assert paid == []


def test_the_wait_survives_the_process_and_nothing_is_done_twice() -> None:
    store = MemoryEventStore()

    async def ask_and_stop() -> str:
        async with make_engine(ScriptedClient([ask(50)]), pay, store=store) as engine:
            started = await engine.start("pay")
            await engine.hosted(started.id)
            return started.id

    async def approve_and_finish(run_id: str) -> str:
        async with make_engine(ScriptedClient([told]), pay, store=store) as engine:
            assert await engine.recover() == []
            waiting = engine.run(run_id)
            await waiting.approve("tool/1/c1")
            return (await waiting.result()).output

    run_id = run(ask_and_stop())

    assert run(approve_and_finish(run_id)) == "paid"
    assert paid == [50]


def test_calls_that_need_nobody_do_not_wait_for_the_one_that_does() -> None:
    calls = (ToolCall("c1", "pay", {"amount": 50}), ToolCall("c2", "pay", {"amount": 5}))
    client = ScriptedClient([Reply(calls, stop="tool_calls"), told])

    async def main() -> str:
        async with make_engine(client, pay) as engine:
            started = await engine.start("pay")
            await engine.hosted(started.id)
            assert paid == [5]
            await started.approve("tool/1/c1")
            return (await started.result()).output

    assert run(main()) == "paid|paid"
    assert paid == [5, 50]


def test_whoever_waits_for_the_result_waits_for_the_person_too() -> None:
    async def main() -> str:
        async with make_engine(ScriptedClient([ask(50), told]), pay) as engine:
            started = await engine.start("pay")
            waiting = asyncio.create_task(started.result())
            await engine.hosted(started.id)
            await asyncio.sleep(0)  # noqa: TID251 - lets it begin to wait
            await started.approve("tool/1/c1")
            return (await waiting).output

    assert run(main()) == "paid"
