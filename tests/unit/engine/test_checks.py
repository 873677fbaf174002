"""A tool's check tells what became of a `once` call whose process died."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine import Result
from lib.engine.api.check import request_check
from lib.engine.core.settle import OUTCOME_UNKNOWN
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.llm import ScriptedClient
from lib.observe import spans_from_events
from lib.testing.agents import kinds, make_engine
from lib.tools import CannotTell, DidNotHappen, Happened, Tool, ToolContext, tool

from .guard_kit import Watch, guarded
from .run_kit import ask, join_results, reached

SCRIPT = [ask("pay", amount=5), join_results]


def payment(check: Any, **options: Any) -> tuple[Tool, list[str]]:
    """Return a tool that never ends the first time, and the idempotency key of each call."""
    made: list[str] = []

    @tool(effects="once", check=check, **options)
    async def pay(amount: int, context: ToolContext) -> str:
        """Pay."""
        made.append(context.idempotency_key)
        if len(made) == 1:
            await asyncio.Event().wait()
        return f"paid {amount}"

    return pay, made


async def interrupt(store: MemoryEventStore, pay: Tool) -> str:
    """Start a run, and close the engine while the tool is under way."""
    async with make_engine(ScriptedClient(SCRIPT), pay, store=store) as engine:
        started = await engine.start("go")
        await reached(started, k.TOOL_REQUESTED)
    return started.id


async def resumed(pay: Tool, *, timeout_s: float | None = None) -> tuple[Result, list[Event]]:
    """Interrupt a run inside its call, resume it, and hold its log against the rules."""
    store = MemoryEventStore()

    async def main() -> tuple[Result, list[Event]]:
        run_id = await interrupt(store, pay)
        again = replace(pay, timeout_s=timeout_s)
        async with make_engine(ScriptedClient(SCRIPT), again, store=store) as engine:
            result = await engine.run(run_id).result()
            report = await verify_store(store, checks=[request_check([React()])])
            assert report.faults == []
            return result, await store.read(run_id)

    return await main()


def answers(log: list[Event]) -> list[str]:
    return [event.data["answer"] for event in log if event.kind == k.TOOL_CHECKED]


async def test_a_call_that_happened_is_completed_with_its_result() -> None:
    seen: list[tuple[int, str]] = []

    def check(amount: int, context: ToolContext) -> Happened:
        seen.append((amount, context.idempotency_key))
        return Happened({"paid": amount})

    pay, made = payment(check)
    result, log = await resumed(pay)

    assert (result.outcome, result.output, len(made)) == ("COMPLETED", '{"paid":5}', 1)
    assert kinds(log)[4:7] == ["run.resumed", "tool.checked", "tool.completed"]
    assert (answers(log), seen) == (["happened"], [(5, made[0])])
    spans = {span.name: span for span in spans_from_events(log)}
    assert spans["execute_tool pay"].attributes["lib.tool.check"] == "happened"


async def test_a_call_that_did_not_happen_is_made_once_that_is_in_the_log() -> None:
    async def check() -> DidNotHappen:
        return DidNotHappen()

    pay, made = payment(check)
    store = MemoryEventStore()

    run_id = await interrupt(store, pay)
    async with make_engine(ScriptedClient(SCRIPT), pay, store=store) as engine:
        assert (await engine.run(run_id).result()).output == "paid 5"
        log = await store.read(run_id)

    assert kinds(log)[4:7] == ["run.resumed", "tool.checked", "tool.completed"]
    assert (answers(log), len(made), len(set(made))) == (["did_not_happen"], 2, 1)


async def test_an_outcome_that_a_check_cannot_determine_stays_unknown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def raises() -> Happened:
        raise ConnectionError("no route")

    def exits() -> Happened:
        raise SystemExit

    async def is_cancelled() -> Happened:
        raise asyncio.CancelledError

    async def hangs() -> Happened:
        await asyncio.Event().wait()
        return Happened()

    checks: dict[str, tuple[Callable[..., Any], str]] = {
        "says so": (lambda: CannotTell("the bank is closed"), "the bank is closed"),
        "says nothing": (CannotTell, ""),
        "raises": (raises, "ConnectionError: no route"),
        "exits": (exits, "SystemExit: "),
        "is cancelled": (is_cancelled, "it was cancelled by something of its own"),
        "hangs": (hangs, "no answer within 0.01 s"),
        "answers yes": (lambda: True, "TypeError: a check returns Happened"),
        "answers nothing": (lambda: None, "TypeError: a check returns Happened"),
    }
    for name, (check, reason) in checks.items():
        pay, made = payment(check)
        with caplog.at_level(logging.ERROR):
            result, log = await resumed(pay, timeout_s=0.01 if name == "hangs" else None)
        checked = next(event.data for event in log if event.kind == k.TOOL_CHECKED)
        assert (result.output, len(made)) == (OUTCOME_UNKNOWN, 1), name
        assert checked["answer"] == "cannot_tell", name
        assert checked.get("reason", "").startswith(reason), name
    assert caplog.text.count("the check of tool 'pay' failed") == 6


async def test_a_second_crash_asks_the_check_again() -> None:
    checked: list[str] = []

    def check() -> DidNotHappen | Happened:
        checked.append("pay")
        return DidNotHappen() if len(checked) == 1 else Happened("found it")

    @tool(effects="once", check=check)
    async def pay(amount: int) -> str:
        """Pay, and never say so."""
        await asyncio.Event().wait()
        return f"paid {amount}"

    store = MemoryEventStore()

    run_id = await interrupt(store, pay)
    async with make_engine(ScriptedClient(SCRIPT), pay, store=store) as engine:
        await engine.resume(run_id)
        await reached(engine.run(run_id), k.TOOL_CHECKED)
    async with make_engine(ScriptedClient(SCRIPT), pay, store=store) as engine:
        output, log = (await engine.run(run_id).result()).output, await store.read(run_id)

    assert (output, answers(log)) == ("found it", ["did_not_happen", "happened"])


async def test_a_run_that_was_cancelled_makes_no_call_that_did_not_happen() -> None:
    pay, made = payment(DidNotHappen)
    store = MemoryEventStore()

    async def main() -> str | None:
        run_id = await interrupt(store, pay)
        async with make_engine(ScriptedClient(SCRIPT), pay, store=store, drive=False) as desk:
            await desk.run(run_id).cancel("enough")
        async with make_engine(ScriptedClient(SCRIPT), pay, store=store) as engine:
            return (await engine.run(run_id).result()).outcome

    assert (await main(), len(made)) == ("CANCELLED", 1)


async def test_a_cancel_while_the_check_is_under_way_makes_no_call() -> None:
    release = asyncio.Event()
    store = MemoryEventStore()

    async def check() -> DidNotHappen:
        release.set()
        await asyncio.Event().wait()
        return DidNotHappen()

    pay, made = payment(check)

    run_id = await interrupt(store, pay)
    async with make_engine(ScriptedClient(SCRIPT), pay, store=store) as engine:
        await engine.resume(run_id)
        await release.wait()
        await engine.run(run_id).cancel()
        outcome = (await engine.run(run_id).result()).outcome
        log = await store.read(run_id)
    assert (outcome, len(made), answers(log)) == ("CANCELLED", 1, [])


async def test_a_tool_that_is_gone_leaves_the_outcome_unknown() -> None:
    pay, _ = payment(DidNotHappen)

    @tool(effects="once")
    def other() -> str:
        """Do something else."""
        return "done"

    store = MemoryEventStore()

    async def main() -> str:
        run_id = await interrupt(store, pay)
        async with make_engine(ScriptedClient(SCRIPT), other, store=store) as engine:
            return (await engine.run(run_id).result()).output

    assert (await main()) == OUTCOME_UNKNOWN


async def test_guards_see_the_output_that_a_check_has_found() -> None:
    pay, _ = payment(lambda: Happened("a secret"), untrusted_output=True)
    store = MemoryEventStore()

    async def main() -> str:
        run_id = await interrupt(store, pay)
        second = guarded(
            ScriptedClient(SCRIPT), pay, calls=[Watch("tool_result", word="secret")], store=store
        )
        async with second as engine:
            return (await engine.run(run_id).result()).output

    assert (await main()).startswith(
        "called, and it has had its effect; what came of it is withheld"
    )


async def test_a_plain_tool_takes_a_check_of_the_arguments_with_or_without_the_context() -> None:
    async def never(_arguments: object, _context: ToolContext) -> str:
        await asyncio.Event().wait()
        return ""

    def alone(arguments: Any) -> Happened:
        return Happened(f"{arguments['amount']}")

    async def both(arguments: Any, context: ToolContext) -> Happened:
        return Happened(f"{arguments['amount']} {context.call_id}")

    for check, output in ((alone, "5"), (both, "5 c1")):
        pay = Tool(name="pay", description="Pay.", input_schema={}, call=never, check=check)
        assert (await resumed(pay))[0].output == output


def test_a_check_that_cannot_be_called_is_refused_at_construction() -> None:
    def pay(amount: int) -> str:
        """Pay."""
        return str(amount)

    def other(order: int) -> Happened:
        return Happened(order)

    for effects in ("none", "idempotent"):
        with pytest.raises(ValueError, match=f"'pay': a check is for effects='once', .*{effects}"):
            tool(effects=effects, check=DidNotHappen)(pay)
    with pytest.raises(TypeError, match=r"has the parameter 'order: int', the tool has amount"):
        tool(check=other)(pay)
    wrong: Any = Happened()
    with pytest.raises(TypeError, match=r"check is a function .*, got Happened"):
        tool(check=wrong)(pay)
