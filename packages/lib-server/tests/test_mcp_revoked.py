"""Answers of `/mcp` that are open when the key of their caller is revoked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from server_kit import Up, parsed, serving

from lib import Agent, Engine
from lib.events import MemoryEventStore, RunQuery
from lib.llm import FunctionClient
from lib.mcp import MCPToolServer
from lib.testing.clock import ManualClock
from lib_server import ApiKeyAuthenticator, ApiKeys, Limits, Server
from lib_server.auth.keys import NewKey

OFTEN_S = 0.005  # between the looks at the clock, which stands still
LISTEN = ("2026-07-28", "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
CALL = ("2026-07-28", "tools/call", {"name": "slow", "arguments": {"task": "x"}})
LEGACY_CALL = ("2025-11-25", *CALL[1:])


class World:
    """A server whose agent answers when `go_on` is set, and a clock that the test moves."""

    tools: MCPToolServer

    def __init__(self) -> None:
        self.clock, self.store = ManualClock(), MemoryEventStore()
        self.keys = ApiKeys(self.store, clock=self.clock)
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

        async def answer(_: Any) -> str:
            self.begun.set()
            await self.go_on.wait()
            return "done"

        agents = [Agent(FunctionClient(answer), name="slow")]
        self.engine = Engine(self.store, agents=agents, clock=self.clock)

    def server(self) -> Server:
        def offered(engine: Engine) -> MCPToolServer:
            self.tools = MCPToolServer(engine, lists_change=True)
            return self.tools

        auth = ApiKeyAuthenticator(clock=self.clock, refusal_step_s=0)
        limits = Limits(heartbeat_s=OFTEN_S)
        return Server(self.engine, auth=auth, limits=limits, mcp=offered, drain_s=0)


def posted(key: NewKey, version: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return what posts a request of a version of the protocol."""
    headers = {
        "authorization": f"Bearer {key.key}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": version,
        "mcp-method": method,
        "mcp-name": params.get("name", ""),
    }
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    return {"headers": headers, "json": body}


@asynccontextmanager
async def listening(up: Up, key: NewKey) -> AsyncGenerator[Any]:
    """Yield the events of a listener, after the first one, which acknowledges."""
    async with up.client.stream("POST", "/mcp", **posted(key, *LISTEN)) as answer:
        events = parsed(answer.aiter_lines())
        assert "acknowledged" in (await anext(events)).data["method"]
        yield events


async def test_a_listener_whose_key_is_revoked_hears_no_more() -> None:
    world = World()
    async with serving(world.server()) as up:
        key = await world.keys.create(tenant="acme")
        async with listening(up, key) as events:
            await world.keys.revoke(key.record.key_id)
            world.clock.advance(61)
            heard = [each async for each in events]
        again = await up.client.post("/mcp", **posted(key, *LISTEN))

    assert [each.data for each in heard if "method" in each.data] == []
    assert again.status_code == 401


async def test_a_session_whose_key_is_revoked_hears_no_more() -> None:
    world = World()
    async with serving(world.server()) as up:
        key, other = [await world.keys.create(tenant="acme") for _ in range(2)]
        initialize = posted(key, "2025-11-25", "initialize", {"capabilities": {}})
        begun = await up.client.post("/mcp", **initialize)
        headers = {
            **initialize["headers"],
            "mcp-session-id": begun.headers["mcp-session-id"],
        }
        async with up.client.stream("GET", "/mcp", headers=headers) as answer:
            assert answer.status_code == 200
            await world.keys.revoke(other.record.key_id)
            world.clock.advance(61)
            for _ in range(5):
                await up.client.get("/healthz")  # a stream that ends then has ended
            world.tools.remove("slow")
            events = parsed(answer.aiter_lines())
            heard = [(await anext(events)).data["method"]]
            await world.keys.revoke(key.record.key_id)
            world.clock.advance(61)
            heard += [each.data["method"] async for each in events]

    assert heard == ["notifications/tools/list_changed"]


async def test_a_listener_with_a_valid_key_goes_on_until_the_server_stops() -> None:
    world = World()
    async with serving(world.server()) as up:
        key = await world.keys.create(tenant="acme")
        revoked = await world.keys.create(tenant="acme")
        async with listening(up, key) as events:
            await world.keys.revoke(revoked.record.key_id)
            world.clock.advance(61)
            for _ in range(5):
                await up.client.get("/healthz")  # a stream that ends then has ended
            stopping = asyncio.create_task(up.stop())
            heard = [each.data async for each in events]
        await stopping

    assert [each["id"] for each in heard] == [1]


@pytest.mark.parametrize("request_", [CALL, LEGACY_CALL], ids=["modern", "legacy"])
async def test_the_run_of_a_call_whose_key_is_revoked_goes_on(request_: Any) -> None:
    world = World()
    async with serving(world.server()) as up:
        key = await world.keys.create(tenant="acme")
        calling = asyncio.create_task(up.client.post("/mcp", **posted(key, *request_)))
        await world.begun.wait()
        await world.keys.revoke(key.record.key_id)
        world.clock.advance(61)
        answer = await calling
        (info,) = await world.store.runs(RunQuery())
        world.go_on.set()
        result = await world.engine.run(info.run_id).result(timeout_s=120)

    assert answer.status_code in (200, 401)
    assert "result" not in answer.text
    assert result.output == "done"
