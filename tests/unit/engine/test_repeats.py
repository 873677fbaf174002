"""After a call of unknown outcome, the same call waits for a person."""

import asyncio
from collections.abc import Sequence
from typing import Any, get_args

import pytest

from lib.algorithms import React
from lib.engine import Engine, PendingApproval
from lib.engine.api.check import request_check
from lib.engine.core.state import call_digest
from lib.events import MemoryEventStore, verify
from lib.events import kinds as k
from lib.llm import Message, Reply, ScriptedClient, ToolCall
from lib.observe import spans_from_events
from lib.privacy import PatternRedactor
from lib.testing.agents import kinds, make_engine
from lib.tools import Tool, tool
from lib.tools.definition import Effects, RepeatAfterUnknown

from .run_kit import join_results, reached

KEYED = PatternRedactor(key=b"32 secret bytes, kept like others")


def call(number: int, **arguments: Any) -> Reply:
    return Reply((ToolCall(f"c{number}", "pay", arguments),), stop="tool_calls")


def payment(
    effects: Effects = "once", repeat: RepeatAfterUnknown = "ask"
) -> tuple[Tool, list[int | float]]:
    """Return a tool that never ends the first time, and the amount of each call."""
    made: list[int | float] = []

    @tool(effects=effects, repeat_after_unknown=repeat, timeout_s=None)
    async def pay(amount: float, to: str = "ann") -> str:
        """Pay."""
        made.append(amount)
        if len(made) == 1:
            await asyncio.Event().wait()
        return "paid"

    return pay, made


async def interrupted(store: MemoryEventStore, steps: list[Any], pay: Tool, **more: Any) -> Engine:
    """Interrupt a run inside its first call; return the engine that resumes it, not entered."""
    async with make_engine(ScriptedClient(steps), pay, store=store, **more) as engine:
        started = await engine.start("go", idempotency_key="k")
        await reached(started, k.TOOL_REQUESTED)
    return make_engine(ScriptedClient(steps), pay, store=store, **more)


async def waits(pay: Tool, *steps: Any, **more: Any) -> list[PendingApproval]:
    """Return what waits for a person after the resumed run has played these steps."""
    store = MemoryEventStore()

    async def main() -> list[PendingApproval]:
        async with await interrupted(store, [*steps, join_results], pay, **more) as engine:
            started = await engine.start("go", idempotency_key="k")
            await engine.wait_while_driven(started.id)
            return await started.pending()

    return await main()


async def test_the_same_call_after_an_unknown_outcome_waits_with_a_reason() -> None:
    pay, made = payment()
    store = MemoryEventStore()
    steps = [call(1, amount=5), call(2, amount=5), join_results]

    async with await interrupted(store, steps, pay) as engine:
        started = await engine.start("go", idempotency_key="k")
        await engine.wait_while_driven(started.id)
        (waiting,) = await started.pending()
        assert (waiting.key, waiting.reason[:32]) == (
            "tool/2/c2",
            "the outcome of an equal call of ",
        )
        assert made == [5]
        assert "because the outcome of an equal call" in str(
            (await started.result(wait=False)).waiting_for
        )
        await started.approve(waiting.key)
        result, log = await started.result(), await store.read(started.id)
        report = await verify.verify_store(store, checks=[request_check([React()])])
        assert report.faults == []

    assert (result.outcome, made) == ("COMPLETED", [5, 5])
    requested = next(event.data for event in log if event.kind == k.APPROVAL_REQUESTED)
    assert requested["repeats"] == "tool/1/c1"
    spans = [span for span in spans_from_events(log) if span.name == "approval pay"]
    assert [span.attributes["lib.approval.repeats"] for span in spans] == ["tool/1/c1"]


async def test_a_person_who_denies_the_repetition_ends_it() -> None:
    pay, made = payment()
    store = MemoryEventStore()

    async def main() -> str:
        steps = [call(1, amount=5), call(2, amount=5), join_results]
        async with await interrupted(store, steps, pay) as engine:
            started = await engine.start("go", idempotency_key="k")
            await engine.wait_while_driven(started.id)
            await started.deny("tool/2/c2", comment="it was paid")
            return (await started.result()).output

    assert (await main()).endswith("not called: a person denied it: it was paid")
    assert made == [5]


async def test_calls_are_the_same_if_tool_and_arguments_are_equal() -> None:
    same: dict[str, tuple[Reply, Reply]] = {
        "equal": (call(1, amount=5), call(2, amount=5)),
        "in another order": (call(1, amount=5, to="b"), call(2, to="b", amount=5)),
        "5 and 5.0": (call(1, amount=5), call(2, amount=5.0)),
        "with the same id": (call(1, amount=5), call(1, amount=5)),
        "one of two": (
            call(1, amount=5),
            Reply((*call(2, amount=6).parts, *call(3, amount=5).parts)),
        ),
    }
    other: dict[str, tuple[Reply, Reply]] = {
        "another amount": (call(1, amount=5), call(2, amount=6)),
        "another receiver": (call(1, amount=5), call(2, amount=5, to="b")),
        "no call": (call(1, amount=5), Reply(Message.assistant("sorry").parts)),
    }
    for name, steps in {**same, **other}.items():
        pay, made = payment()
        waiting = await waits(pay, *steps)
        assert len(waiting) == (name in same), name
        assert made.count(5) == 1 + (name == "another receiver"), name


async def test_a_redacted_call_is_still_the_same() -> None:
    pay, _ = payment()
    steps = [call(n, amount=5, to="jo@example.org") for n in (1, 2)]

    assert len(await waits(pay, *steps, redactor=KEYED)) == 1


async def test_a_third_call_waits_after_two_unknown_outcomes() -> None:
    @tool(timeout_s=0.001)
    async def pay(amount: int) -> str:
        """Pay, too slowly."""
        await asyncio.Event().wait()
        return str(amount)

    steps = [*[call(n, amount=5) for n in (1, 2, 3)], join_results]

    async def main() -> list[str]:
        async with make_engine(ScriptedClient(steps), pay) as engine:
            started = await engine.start("go")
            await engine.wait_while_driven(started.id)
            await started.approve("tool/2/c2")
            await engine.wait_while_driven(started.id)
            return [call.key for call in await started.pending()]

    assert (await main()) == ["tool/3/c3"]


async def test_the_declaration_of_the_tool_decides_if_a_repetition_waits() -> None:
    for effects in get_args(Effects):

        @tool(effects=effects, timeout_s=0.001)
        async def pay(amount: int) -> str:
            """Pay, too slowly."""
            await asyncio.Event().wait()
            return str(amount)

        async def main(pay: Tool = pay) -> Sequence[str]:
            steps = [call(1, amount=5), call(2, amount=5), "done"]
            async with make_engine(ScriptedClient(steps), pay) as engine:
                started = await engine.start("go")
                await engine.wait_while_driven(started.id)
                return kinds(await engine.store.read(started.id))

        assert ("approval.requested" in (await main())) == (effects != "none"), effects

    paying, made = payment(repeat="allow")
    assert (await waits(paying, call(1, amount=5), call(2, amount=5))) == []
    assert made == [5, 5]


async def test_unknown_outcomes_of_another_run_do_not_count() -> None:
    pay, made = payment()
    store = MemoryEventStore()

    async def main() -> str:
        async with await interrupted(store, [call(1, amount=5), join_results], pay) as engine:
            await (await engine.start("go", idempotency_key="k")).result()
            return (await (await engine.start("go")).result()).output

    assert (await main(), made) == ("paid", [5, 5])


def test_a_misspelt_declaration_is_refused() -> None:
    wrong: Any = "never"
    with pytest.raises(ValueError, match="repeat_after_unknown is 'ask' or 'allow', not 'never'"):
        payment(repeat=wrong)


def test_a_fold_takes_any_payload_of_a_failure() -> None:
    assert call_digest(None, None) == call_digest(None, None)
    assert call_digest("a", {"x": [1.0, {"y": 2}]}) == call_digest("a", {"x": [1, {"y": 2.0}]})
    assert call_digest("a", {"x": 1.5}) != call_digest("a", {"x": 1})
    assert call_digest("a", {"x": True}) != call_digest("a", {"x": 1})
