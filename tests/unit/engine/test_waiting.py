"""Waiting for a result: what it waits for is logged once, and returned where it does not wait."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fakes.team import boss_of, call, child_of, say, task, team, tool_results
from lib.engine import Engine, Result, Run, Spend, Turn, WaitingFor
from lib.engine.api.waiting import condition
from lib.events import RunInfo
from lib.events import kinds as k
from lib.events.runs import FARTHEST_LEASE
from lib.llm import FunctionClient, ScriptedClient
from lib.testing.agents import make_engine
from lib.tools import tool

from .run_kit import NEVER_ANSWERS, Kept, ask, reached
from .run_kit import join_results as answers
from .worker_kit import until


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def reasons(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if re.search(" waits | holds ", each.getMessage())]


@asynccontextmanager
async def caller(
    engine: Engine, watched: Run | Turn, caplog: pytest.LogCaptureFixture
) -> AsyncGenerator[Result]:
    """Let a caller wait until something is logged, and look again after each of three notes."""
    run_id = watched.session_id if isinstance(watched, Turn) else watched.id
    waiting = asyncio.create_task(watched.result())
    try:
        await until(lambda: reasons(caplog))
        for _ in range(3):
            await engine.signal(run_id, "note", {})
            await engine.wait_while_driven(run_id)
            await asyncio.sleep(0.02)  # noqa: TID251 - lets the caller look
        yield await watched.result(wait=False)
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_a_call_that_waits_for_a_person_is_logged_once_and_returned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        client = ScriptedClient([ask("pay", amount=987654321), answers])
        async with make_engine(client, pay) as engine:
            started = await engine.start("go")
            async with caller(engine, started, caplog) as so_far:
                (record,) = reasons(caplog)
                assert (record.name, record.levelno) == ("lib.engine", logging.WARNING)
                assert started.id in record.getMessage()
                assert "'pay'" in record.getMessage()
                assert "987654321" not in record.getMessage()
                assert (so_far.outcome, so_far.output, so_far.spend.llm_calls) == (None, "", 1)
                assert so_far.waiting_for is not None
                (waits,) = so_far.waiting_for.approvals
                assert (waits.run_id, waits.key, waits.name) == (started.id, "tool/1/c1", "pay")
                assert waits.arguments_digest[:12] in record.getMessage()

            await engine.run(waits.run_id).approve(waits.key)
            done = await started.result()
            assert (done.outcome, done.output, done.waiting_for) == (
                "COMPLETED",
                "paid 987654321",
                None,
            )

    with caplog.at_level(logging.WARNING, "lib"):
        await main()


async def test_the_lease_of_a_dead_worker_is_logged_once_with_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        store = Kept()
        async with make_engine(NEVER_ANSWERS, store=store, drive=False) as web:
            started = await web.start("go")
            (lease,) = await store.claim("dead-worker", ttl_s=3600, run_id=started.id)
        async with (
            make_engine(NEVER_ANSWERS, store=store) as engine,
            caller(engine, engine.run(started.id), caplog) as result,
        ):
            (record,) = reasons(caplog)
            assert record.levelno == logging.WARNING
            assert "'dead-worker'" in record.getMessage()
            assert f"{lease.until:%Y-%m-%d %H:%M:%S} UTC" in record.getMessage()
            assert result.waiting_for == WaitingFor(
                owner="dead-worker", lease_until=lease.until, ready=True
            )

    with caplog.at_level(logging.INFO, "lib"):
        await main()


async def test_an_engine_without_drivers_logs_waits_for_workers_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with make_engine(NEVER_ANSWERS, drive=False) as web:
            started = await web.start("go")
            async with caller(web, started, caplog):
                assert ["waits for a worker" in each.getMessage() for each in reasons(caplog)] == [
                    True
                ]
                await web.store.claim("busy-worker", ttl_s=3600, run_id=started.id)
                await until(lambda: "'busy-worker'" in caplog.text)
            assert {record.levelno for record in reasons(caplog)} == {logging.INFO}

    with caplog.at_level(logging.INFO, "lib.engine"):
        await main()


async def test_a_parent_reports_what_its_child_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    def helper(messages: Any) -> Any:
        results = tool_results(messages)
        return say(results[0].content) if results else call(*ask("pay", amount=7).tool_calls)

    async def main() -> None:
        async with team(boss_of(task(0, "pay")), helper, pay) as engine:
            started = await engine.start("go")
            child = await child_of(engine.store, started.id)
            await reached(engine.run(child.run_id), k.APPROVAL_REQUESTED)
            waiting = asyncio.create_task(started.result())
            await until(lambda: reasons(caplog))
            so_far = await started.result(timeout_s=0.01)

            assert so_far.waiting_for is not None
            (waits,) = so_far.waiting_for.approvals
            assert (so_far.waiting_for.children, waits.run_id) == ((child.run_id,), child.run_id)
            (line,) = (each.getMessage() for each in reasons(caplog))
            assert child.run_id in line
            assert child.run_id in str(so_far.waiting_for)
            await engine.run(child.run_id).approve(waits.key)
            assert (await waiting).output == "paid 7"

    with caplog.at_level(logging.WARNING, "lib.engine"):
        await main()


async def test_a_turn_reports_what_it_waits_for_and_an_idle_session_that_it_is_idle(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        client = ScriptedClient([ask("pay", amount=1), answers])
        async with make_engine(client, pay) as engine:
            session = await engine.start_session()
            turn = await session.send("go")
            waiting = asyncio.create_task(turn.result())
            await until(lambda: reasons(caplog))
            so_far = await turn.result(timeout_s=0.01)

            assert so_far.waiting_for is not None
            (waits,) = so_far.waiting_for.approvals
            assert (so_far.run_id, waits.run_id) == (turn.run_id, turn.run_id)
            whole = (await session.run.result(wait=False)).waiting_for
            assert whole is not None
            assert (whole.children, whole.approvals) == ((turn.run_id,), (waits,))
            await turn.run.approve(waits.key)
            done = await waiting
            assert await turn.result(wait=False) == done
            await engine.wait_while_driven(session.id)
            idle = (await session.run.result(wait=False)).waiting_for
            assert idle == WaitingFor()
            assert "waits for a signal" in str(idle)

    with caplog.at_level(logging.WARNING, "lib.engine"):
        await main()
    assert len(reasons(caplog)) == 1


async def test_a_turn_whose_session_another_worker_holds_names_that_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with make_engine(NEVER_ANSWERS, drive=False) as web:
            session = await web.start_session()
            turn = await session.send("go")
            so_far = await turn.result(wait=False)
            assert (so_far.run_id, so_far.outcome, so_far.spend) == (turn.run_id, None, Spend())
            assert so_far.waiting_for == WaitingFor(ready=True)
            await web.store.claim("other", ttl_s=3600, run_id=session.id)
            async with caller(web, turn, caplog):
                (line,) = (each.getMessage() for each in reasons(caplog))
                assert "worker 'other' holds its lease until" in line

    with caplog.at_level(logging.INFO, "lib.engine"):
        await main()


async def test_without_waiting_nothing_is_driven_and_an_end_is_returned_once_there_is_one() -> None:
    store = Kept()
    async with make_engine(NEVER_ANSWERS, store=store, drive=False) as web:
        started = await web.start("go")
    async with make_engine(ScriptedClient(["done"]), store=store) as engine:
        so_far = await engine.run(started.id).result(wait=False)
        assert (so_far.outcome, so_far.waiting_for) == (None, WaitingFor(ready=True))
        assert started.id not in engine.hosting
        done = await engine.run(started.id).result()
        assert await engine.run(started.id).result(wait=False) == done
        assert await engine.run(started.id).result(timeout_s=0) == done


async def test_a_timeout_of_the_caller_ends_no_run_and_reports_what_it_waits_for() -> None:
    async with make_engine(NEVER_ANSWERS, worker="me") as engine:
        started = await engine.start("go")
        await reached(started, k.LLM_REQUESTED)
        so_far = await started.result(timeout_s=0.01)
        assert so_far.waiting_for is not None
        assert (so_far.waiting_for.owner, so_far.waiting_for.approvals) == ("me", ())
        assert started.id in engine.hosting


async def test_a_fault_of_a_handler_that_is_a_timeout_is_raised() -> None:
    async def fail(_: object) -> str:
        raise TimeoutError("the handler's")

    async with make_engine(FunctionClient(fail)) as engine:
        started = await engine.start("go")
        session = await engine.start_session()
        turn = await session.send("go")
        for watched in (started, turn):
            with pytest.raises(TimeoutError, match="the handler's"):
                await watched.result(timeout_s=60)


async def test_invalid_wait_arguments_are_refused_before_any_effect() -> None:
    wrong: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"wait": 5}, TypeError),
        ({"wait": None}, TypeError),
        ({"timeout_s": "5"}, TypeError),
        ({"timeout_s": True}, TypeError),
        ({"timeout_s": -1}, ValueError),
        ({"timeout_s": float("nan")}, ValueError),
        ({"timeout_s": 5, "wait": False}, ValueError),
    ]

    async with make_engine(NEVER_ANSWERS) as engine:
        started = await engine.start("go")
        turn = await (await engine.start_session()).send("go")
        for options, error in wrong:
            for watched in (started, turn):
                with pytest.raises(error):
                    await watched.result(**options)


def test_an_owner_is_dead_if_its_lease_has_ended_or_ends_later_than_any_lease_can() -> None:
    now = datetime(2026, 11, 23, 12, tzinfo=UTC)
    info = RunInfo(
        run_id="run",
        root_id="run",
        parent_id=None,
        algorithm="react",
        tenant=None,
        user=None,
        created_at=now,
        updated_at=now,
        head=1,
        owner="worker",
    )

    def tool_results(until: timedelta) -> str:
        return condition(replace(info, lease_until=now + until), WaitingFor(), now)

    assert [
        tool_results(until)
        for until in (
            timedelta(0),
            timedelta(seconds=30),
            FARTHEST_LEASE,
            FARTHEST_LEASE + timedelta(microseconds=1),
            timedelta(days=365),  # by a clock that is a year ahead
        )
    ] == ["owner dead", "working", "working", "owner dead", "owner dead"]
