"""Calls of a server's tools are in the log before they are made, and are not made again."""

from __future__ import annotations

import sys
from pathlib import Path

from fakes.mcp_servers.kit import FAKES, friendly, friendly_http, over_http
from lib import Agent
from lib.events import kinds as k
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.mcp.client.toolset import MCPTools

NOTE = Reply((ToolCall("c1", "note_it", {"text": "hello"}),))


async def test_an_agent_uses_the_tools_of_a_server(tmp_path: Path) -> None:
    log, client = tmp_path / "log", ScriptedClient([NOTE, "Noted."])
    async with friendly_http(str(log)) as url:
        agent = Agent(client, tools=[over_http(url)])
        async with agent.engine() as engine:
            run = await agent.start(engine, "Note hello.")
            result = await run.result(timeout_s=120)
            events = await engine.store.read(run.id)

    assert result.output == "Noted."
    assert "note_it" in [spec.name for spec in client.calls[0].tools]
    assert log.read_text(encoding="utf-8") == "hello\n"
    (requested,) = [event.data for event in events if event.kind == k.TOOL_REQUESTED]
    assert requested["effects"] == "once"
    assert requested["version"]
    (completed,) = [event.data for event in events if event.kind == k.TOOL_COMPLETED]
    assert "output of note_it, written by strangers" in completed["output"]


async def test_a_call_cut_off_by_the_end_of_its_engine_is_not_made_again(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    command = [sys.executable, "-I", "-S", str(FAKES / "hostile.py"), "hangs"]
    server = MCPTools(command=command, connect_timeout_s=120, timeout_s=None)
    call = Reply((ToolCall("c1", "act", {}),))
    agent = Agent(ScriptedClient([call, "I cannot tell."]), tools=[server])
    async with agent.engine(store) as engine:
        run = await agent.start(engine, "Act.")
        async for event in run.events():
            if event.kind == k.TOOL_REQUESTED:
                break
    async with agent.engine(store) as engine:
        run = engine.run(run.id)
        result = await run.result(timeout_s=120)
        events = await engine.store.read(run.id)

    assert result.output == "I cannot tell."
    (failed,) = [event.data for event in events if event.kind == k.TOOL_FAILED]
    assert failed["reason"] == "unknown"


async def test_a_result_in_the_log_is_used_again(tmp_path: Path) -> None:
    store, log = tmp_path / "runs.db", tmp_path / "log"
    agent = Agent(ScriptedClient([NOTE, "Noted."]), tools=[friendly(str(log))])
    for _ in range(2):
        result = await agent.run("Note hello.", store=store, key="one", timeout_s=120)

        assert result.output == "Noted."
    assert log.read_text(encoding="utf-8") == "hello\n"


async def test_an_engine_starts_and_works_while_a_server_is_down() -> None:
    down = MCPTools(command=["/nonexistent/program"])
    agent = Agent(ScriptedClient([NOTE, "I have no such tool."]), tools=[down])
    result = await agent.run("Note hello.", timeout_s=120)

    assert result.output == "I have no such tool."
