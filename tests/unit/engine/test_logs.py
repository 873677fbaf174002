"""Tests the engine's log records: their logger, their level, and the run's id."""

import logging

import pytest

from fakes.team import boss_of, child_of, task, team
from lib.algorithms import React
from lib.engine import Engine, LLMHandler
from lib.events import MemoryEventStore
from lib.events import kinds as k
from lib.llm import ChatClient, ScriptedClient
from lib.resilience import RetryPolicy
from lib.testing.agents import make_engine
from lib.testing.clock import ManualClock
from lib.tools import tool

from .run_kit import NEVER_ANSWERS, Kept, add, ask, join_results, reached
from .worker_kit import until

Line = tuple[str, str, str]


@pytest.fixture(autouse=True)
def every_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "lib")


def lines(caplog: pytest.LogCaptureFixture, run_id: str) -> list[Line]:
    """Return logger, level and message of what was logged of a run, its id left out."""
    return [
        (each.name, each.levelname, each.getMessage().removeprefix(f"run {run_id!r} "))
        for each in caplog.records
        if getattr(each, "run_id", None) == run_id
    ]


async def test_starts_and_ends_of_runs_are_logged_without_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = ScriptedClient([ask("add", a=1, b=2), "the secret answer"])
    async with make_engine(client, add) as engine:
        started = await engine.start("the secret question")
        await started.result()
        run_id = started.id

    first, last = lines(caplog, run_id)
    assert first == ("lib.engine", "INFO", "starts: react")
    assert last[:2] == ("lib.engine", "INFO")
    assert last[2].startswith("ended as COMPLETED: 2 model calls, 1 tool calls,")
    assert "secret" not in caplog.text


async def test_log_lines_of_children_name_their_parent(caplog: pytest.LogCaptureFixture) -> None:
    async with team(boss_of(task(0, "count"))) as engine:
        started = await engine.start("go")
        await started.result()
        run_id, child = started.id, (await child_of(engine.store, started.id)).run_id

    first, last = lines(caplog, child)
    assert first == ("lib.engine", "INFO", f"starts: helper for {run_id!r}")
    assert last[2].startswith("ended as COMPLETED")


async def test_a_takeover_is_a_warning_that_names_what_became_unknown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hung: list[str] = []

    @tool(effects="once")
    async def act() -> str:
        """Act."""
        hung.append("")
        await until(lambda: False)
        return ""

    store, clock = Kept(), ManualClock()
    async with make_engine(ScriptedClient([ask("act")]), act, store=store) as engine:
        started = await engine.start("go")
        await until(lambda: hung)
    await store.claim("dead", ttl_s=0, run_id=started.id)
    del clock
    async with make_engine(ScriptedClient([join_results]), act, store=store) as engine:
        await engine.run(started.id).result()
        run_id = started.id

    taken, unknown, _ = lines(caplog, run_id)[-3:]
    assert taken[:2] == ("lib.engine", "WARNING")
    assert taken[2].startswith("is taken over with 1 calls under way")
    assert unknown[:2] == ("lib.engine", "WARNING")
    assert "call 'tool/1/c1' of tool 'act'" in unknown[2]


async def test_a_run_given_back_goes_on_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    store = Kept()
    async with make_engine(NEVER_ANSWERS, store=store) as engine:
        started = await engine.start("go")
        await reached(started, k.LLM_REQUESTED)
    async with make_engine(ScriptedClient(["done"]), store=store) as engine:
        await engine.run(started.id).result()
        run_id = started.id

    assert ("lib.engine", "INFO", "goes on with 1 calls that were under way (epoch 2)") in lines(
        caplog, run_id
    )


async def test_a_model_server_that_cannot_be_reached_is_named_and_retries_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    client = ChatClient(
        "m",
        base_url="http://ada:hunter2@127.0.0.1:9/v1?token=hunter3",
        api_key="sk-hunter4",
        clock=clock,
    )
    retries = RetryPolicy(attempts=3, base_s=0)

    handlers = [LLMHandler(client, retries=retries)]
    store = MemoryEventStore()
    async with client, Engine(store, handlers, algorithms=[React()], clock=clock) as engine:
        started = await engine.start("go")
        assert (await started.result()).outcome == "FAILED"
        run_id = started.id

    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert [(each.name, "127.0.0.1:9:" in each.getMessage()) for each in warnings] == [
        ("lib.llm", True),
        ("lib.llm", False),
        ("lib.engine", False),
    ]
    assert "hunter" not in caplog.text
    logged = lines(caplog, run_id)
    assert [line[:2] for line in logged] == [
        ("lib.engine", "INFO"),
        ("lib.llm", "INFO"),
        ("lib.llm", "INFO"),
        ("lib.llm", "WARNING"),
        ("lib.engine", "WARNING"),
    ]
    assert "got no reply for llm/1" in logged[3][2]
    assert logged[4][2].startswith("ended as FAILED (")


async def test_a_call_that_ran_out_of_time_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    @tool(timeout_s=0.01)
    async def slow() -> str:
        """Take too long."""
        await until(lambda: False)
        return ""

    async def main() -> str:
        async with make_engine(ScriptedClient([ask("slow"), join_results]), slow) as engine:
            started = await engine.start("go")
            await started.result()
            return started.id

    assert ("lib.engine", "WARNING", "got no answer of tool 'slow' within 0.01 s") in lines(
        caplog, await main()
    )


async def test_a_run_that_waits_for_approval_logs_for_which_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    async def main() -> str:
        async with make_engine(ScriptedClient([ask("pay", amount=5)]), pay) as engine:
            started = await engine.start("go")
            await engine.wait_while_driven(started.id)
            session = await engine.start_session()
            await engine.wait_while_driven(session.id)
            assert ("lib.engine", "DEBUG", "waits for a signal") in lines(caplog, session.id)
            return started.id

    assert ("lib.engine", "INFO", "waits for a person to decide tool/1/c1") in lines(
        caplog, await main()
    )


def test_nothing_is_formatted_where_nothing_is_logged() -> None:
    class Loud:
        def __str__(self) -> str:
            raise AssertionError("formatted")

    from lib.engine.logs import log_run

    logger = logging.getLogger("lib.engine.test")
    logger.setLevel(logging.ERROR)
    log_run(logging.INFO, "r", "says %s", Loud(), logger=logger)
