"""A call that a person must approve: the run holds nothing while it waits."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from lib.engine import NotPending, PendingApproval, Result, Run, WaitingCall, pending_approvals
from lib.events import MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.llm import Message, Reply, ScriptedClient, ToolCall, ToolResult
from lib.llm.scripted import Step
from lib.testing.agents import kinds, make_engine
from lib.testing.clock import ManualClock
from lib.tools import tool

payments: list[int] = []


@tool(approval=lambda arguments: arguments["amount"] > 10)
def pay(amount: int) -> str:
    """Pay."""
    payments.append(amount)
    return "paid"


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    payments.clear()


def ask(amount: int) -> Reply:
    return Reply((ToolCall("c1", "pay", {"amount": amount}),), stop="tool_calls")


def join_results(messages: Sequence[Message]) -> str:
    return "|".join(p.content for m in messages for p in m.parts if isinstance(p, ToolResult))


async def test_an_approved_call_is_made_and_only_then_recorded_as_intended() -> None:
    async with make_engine(ScriptedClient([ask(50), join_results]), pay) as engine:
        started = await engine.start("pay")
        await engine.wait_while_driven(started.id)

        assert await started.pending() == [
            PendingApproval(key="tool/1/c1", call_id="c1", name="pay", arguments={"amount": 50})
        ]
        info = await started.info()
        assert (info.owner, info.ready, info.status, payments) == (None, False, "open", [])

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
    assert payments == [50]


async def test_a_denied_call_is_never_made_and_the_model_reads_the_reason() -> None:
    async with make_engine(ScriptedClient([ask(50), join_results]), pay) as engine:
        started = await engine.start("pay")
        await engine.wait_while_driven(started.id)
        await started.deny("tool/1/c1", comment="too much")
        result = await started.result()

    assert (result.output, payments) == ("not called: a person denied it: too much", [])
    assert result.spend.tool_calls == 0


async def test_the_rule_decides_which_calls_wait() -> None:
    async def main() -> Result:
        async with make_engine(ScriptedClient([ask(10), join_results]), pay) as engine:
            return await (await engine.start("pay")).result()

    assert ((await main()).output, payments) == ("paid", [10])


async def test_a_rule_that_fails_makes_the_call_wait() -> None:
    call = Reply((ToolCall("c1", "pay", {}),), stop="tool_calls")

    async def main() -> str:
        async with make_engine(ScriptedClient([call, join_results]), pay) as engine:
            started = await engine.start("pay")
            await engine.wait_while_driven(started.id)
            await started.approve("tool/1/c1")
            return (await started.result()).output

    assert (await main()) == "amount: Field required"


async def test_the_first_decision_wins() -> None:
    async with make_engine(ScriptedClient([ask(50), join_results]), pay) as engine:
        started = await engine.start("pay")
        await engine.wait_while_driven(started.id)
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
    assert payments == []


async def test_the_wait_survives_the_process_and_nothing_is_done_twice() -> None:
    store = MemoryEventStore()

    async def approve_and_finish(run_id: str) -> str:
        async with make_engine(ScriptedClient([join_results]), pay, store=store) as engine:
            assert await engine.recover() == []
            waiting = engine.run(run_id)
            await waiting.approve("tool/1/c1")
            return (await waiting.result()).output

    async with make_engine(ScriptedClient([ask(50)]), pay, store=store) as engine:
        started = await engine.start("pay")
        await engine.wait_while_driven(started.id)
        run_id = started.id

    assert (await approve_and_finish(run_id)) == "paid"
    assert payments == [50]


async def test_calls_without_approval_do_not_wait_for_the_one_with_approval() -> None:
    calls = (ToolCall("c1", "pay", {"amount": 50}), ToolCall("c2", "pay", {"amount": 5}))
    client = ScriptedClient([Reply(calls, stop="tool_calls"), join_results])

    async def main() -> str:
        async with make_engine(client, pay) as engine:
            started = await engine.start("pay")
            await engine.wait_while_driven(started.id)
            assert payments == [5]
            await started.approve("tool/1/c1")
            return (await started.result()).output

    assert (await main()) == "paid|paid"
    assert payments == [5, 50]


async def test_waiting_for_a_result_includes_waiting_for_approval() -> None:
    async def main() -> str:
        async with make_engine(ScriptedClient([ask(50), join_results]), pay) as engine:
            started = await engine.start("pay")
            waiting = asyncio.create_task(started.result())
            await engine.wait_while_driven(started.id)
            await asyncio.sleep(0)  # noqa: TID251 - lets it begin to wait
            await started.approve("tool/1/c1")
            return (await waiting).output

    assert (await main()) == "paid"


async def test_open_approvals_are_listed_across_all_runs_of_a_store() -> None:
    store, clock = MemoryEventStore(), ManualClock()
    clock.advance(3600)
    steps: list[Step] = [lambda messages: ask(int(messages[0].text)), "done"]
    agents: dict[str, Any] = {"store": store, "clock": clock}

    async def listed(tenant: str | None = None) -> list[WaitingCall]:
        return [call async for call in pending_approvals(store, tenant=tenant)]

    async with make_engine(ScriptedClient(steps), pay, **agents) as engine:
        runs = list[Run]()
        for amount, tenant in (("50", "acme"), ("60", "acme"), ("70", "other"), ("5", "other")):
            runs.append(await engine.start(amount, tenant=tenant))
            await engine.wait_while_driven(runs[-1].id)
        await engine.start_session(tenant="acme")
        first, second, third, _ = runs
        calls = [
            WaitingCall(
                key="tool/1/c1",
                call_id="c1",
                name="pay",
                arguments={"amount": amount},
                run_id=waiting.id,
                tenant=tenant,
                since=clock.now(),
            )
            for waiting, amount, tenant in (
                (first, 50, "acme"),
                (second, 60, "acme"),
                (third, 70, "other"),
            )
        ]
        assert await listed() == calls
        assert await listed("acme") == calls[:2]
        assert await listed("without-runs") == []
        await second.approve("tool/1/c1")
        await second.result()
        assert await listed() == [calls[0], calls[2]]
        async with make_engine(ScriptedClient([]), pay, store=store, drive=False) as desk:
            await desk.start("no worker drives it")
            assert await listed("acme") == [calls[0]]


async def test_an_open_approval_late_in_a_long_log_is_found() -> None:
    store, clock = MemoryEventStore(), ManualClock()

    def requested(key: str) -> NewEvent:
        data: dict[str, Any] = {"key": key, "call_id": key, "name": "pay", "args": {}}
        return NewEvent(k.APPROVAL_REQUESTED, data, clock.now())

    await store.setup()
    started = NewEvent(k.RUN_STARTED, {"algorithm": "react", "input": []}, clock.now())
    many = [requested(str(number)) for number in range(1_100)]
    decided = [
        NewEvent(k.APPROVAL_DECIDED, {"key": str(n), "approved": True}, clock.now())
        for n in range(1_099)
    ]
    await store.append("run", [started, *many, *decided], expected=0)
    assert [call.key async for call in pending_approvals(store)] == ["1099"]
