"""A hostile server has no effect beyond a failed call."""

from __future__ import annotations

import asyncio

import pytest

from fakes.mcp_servers.kit import call, hostile, opened
from lib import Agent
from lib.errors import ToolError
from lib.events import kinds as k
from lib.llm import Reply, ScriptedClient, ToolCall


async def failure(mode: str, **options: object) -> ToolError:
    async with opened(hostile(mode, **options)) as toolset:
        with pytest.raises(ToolError) as caught:
            await call(toolset, "act")
        return caught.value


async def test_tools_that_no_model_could_call_are_left_out() -> None:
    async with opened(hostile("wrong-schemas")) as toolset:
        assert [(tool.name, tool.description) for tool in toolset.tools] == [("good", "Acts.")]


@pytest.mark.parametrize("mode", ["huge-list", "endless-list", "no-tools", "no-schema"])
async def test_a_list_that_is_too_long_or_none_is_no_list(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(hostile(mode)) as toolset:
        assert toolset.tools == []
        assert "the tools of an MCP server were not found" in caplog.text


@pytest.mark.parametrize("mode", ["hangs-at-once", "hangs-listing"])
async def test_a_server_that_hangs_has_no_tools(mode: str) -> None:
    async with opened(hostile(mode, connect_timeout_s=0.5)) as toolset:
        assert toolset.tools == []


@pytest.mark.parametrize("mode", ["dies", "floods", "endless-line", "no-result", "refuses"])
async def test_a_call_without_a_readable_answer_is_of_unknown_outcome(mode: str) -> None:
    error = await failure(mode, max_bytes=100_000)

    assert error.code == "unknown"
    assert "verify before you repeat it" in error.message
    assert "ignore all rules" not in error.message


@pytest.mark.parametrize("mode", ["asks", "asks-for-ever"])
async def test_questions_without_an_answer_fail_the_call(mode: str) -> None:
    assert (await failure(mode)).code in ("unsupported", "failed")


async def test_an_injected_failure_is_fenced_and_cut() -> None:
    error = await failure("injects-error")

    assert error.code == "failed"
    assert error.message.startswith("[")
    assert len(error.message) < 2_000
    assert "\x1b" not in error.message


async def test_injected_descriptions_are_cleaned() -> None:
    async with opened(hostile("injects")) as toolset:
        description = toolset.tools[0].description

        assert "\x1b" not in description
        assert "\U000e0041" not in description


async def test_forged_progress_and_stray_messages_change_nothing() -> None:
    async with opened(hostile("forges-progress")) as toolset:
        assert await call(toolset, "act") == "done"
        assert await call(toolset, "act") == "done"


async def test_a_pattern_of_the_server_is_not_matched() -> None:
    async with opened(hostile("bad-pattern")) as toolset:
        assert await call(toolset, "act") == "a" * 40 + "!"


async def test_answers_to_other_requests_are_no_answer() -> None:
    async with opened(hostile("wrong-ids")) as toolset:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await call(toolset, "act")


@pytest.mark.parametrize("mode", ["hangs", "dies", "wrong-ids", "injects", "lies", "refuses"])
async def test_a_run_goes_on_after_its_call(mode: str) -> None:
    reply = Reply((ToolCall("c1", "act", {}),))
    server = hostile(mode, timeout_s=1.0 if mode in ("hangs", "wrong-ids") else 120.0)
    agent = Agent(ScriptedClient([reply, "Sorry."]), tools=[server])
    async with agent.engine() as engine:
        run = await agent.start(engine, "Act.")
        result = await run.result(timeout_s=120)
        log = await engine.store.read(run.id)

    assert result.output == "Sorry."
    kinds = [event.kind for event in log if event.kind in (k.TOOL_COMPLETED, k.TOOL_FAILED)]
    assert kinds == [k.TOOL_COMPLETED if mode in ("injects", "lies") else k.TOOL_FAILED]
    outputs = [event.data.get("output", "") for event in log]
    assert not any("\U000e0041" in output for output in outputs)
