"""A client of MCP 2025-11-25 goes on reading the response of a call that it has lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CallToolResult,
    ClientCapabilities,
    JSONRPCNotification,
    JSONRPCResponse,
    TextContent,
)
from server_kit import OneKey, Up, as_, serving

from lib import Agent, Engine, tool
from lib.events import MemoryEventStore, RunQuery
from lib.llm import FunctionClient
from lib.mcp import MCPToolServer, close_response
from lib.mcp.sessions import LegacySession
from lib.testing.clock import ManualClock
from lib.tools import ToolContext
from lib_server import Limits, Principal, Server, Unauthenticated
from lib_server.limits import Quota
from lib_server.mcp import kept_calls
from lib_server.mcp.kept_calls import KeptCall, KeptCalls

JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
VERSION = "2025-11-25"


class Shop:
    """A server with a tool that goes on once it may, and an agent that never answers."""

    engine: Engine

    def __init__(self, **limits: Any) -> None:
        self.clock = ManualClock()
        self.let, self.begun = asyncio.Event(), asyncio.Event()
        self.limits = Limits(**limits)
        self.store = MemoryEventStore()
        self.auth: OneKey = OneKey()

    def server(self) -> Server:
        @tool(effects="none")
        async def pack(context: ToolContext, closing: bool = True) -> str:
            """Pack an order."""
            context.progress(1, 3, "found")
            if closing:
                close_response()
            self.begun.set()
            await self.let.wait()
            context.progress(2, 3, "packed")
            return "sent"

        async def answer(messages: Any) -> str:
            self.begun.set()
            await asyncio.Event().wait()
            return ""

        agent = Agent(FunctionClient(answer), name="slow")
        self.engine = Engine(self.store, agents=[agent], clock=self.clock)

        def offered(engine: Engine) -> MCPToolServer:
            return MCPToolServer([pack, agent], engine=engine, clock=engine.clock)

        return Server(self.engine, mcp=offered, auth=self.auth, limits=self.limits, drain_s=0)


class Keys(OneKey):
    """A caller with two keys, which can be revoked."""

    def __init__(self) -> None:
        super().__init__()
        self.revoked: dict[str, Exception] = {}

    async def authenticate(self, authorization: str | None) -> Principal:
        key = (authorization or "").rpartition(" ")[2]
        if key in self.revoked:
            raise self.revoked[key]
        return await super().authenticate("Bearer acme" if key == "newer" else authorization)


async def session_of(up: Up, tenant: str = "acme") -> dict[str, str]:
    """Begin a session, and return the headers of its requests."""
    params = {
        "protocolVersion": VERSION,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    begun = await up.client.post("/mcp", headers={**JSON, **as_(tenant)}, json=body)
    of_session = {"mcp-session-id": begun.headers["mcp-session-id"]}
    return {**JSON, **as_(tenant), **of_session, "mcp-protocol-version": VERSION}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments, "_meta": {"progressToken": "here"}}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


@asynccontextmanager
async def events_of(answer: httpx2.Response) -> AsyncGenerator[Any]:
    """Yield the id and the data of each event of a stream."""

    async def events() -> AsyncGenerator[tuple[str, Any]]:
        fields: dict[str, str] = {}
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            if line:
                fields[name] = value
            elif "id" in fields:
                yield fields["id"], json.loads(fields.get("data") or "null")
                fields = {}

    found = events()
    try:
        yield found
    finally:
        await found.aclose()


def short(data: Any) -> Any:
    """Return what a message says: how far a call is, or its result."""
    if data is None or "method" in data:
        return data and data["params"]["progress"]
    return data["result"]["content"][0]["text"]


async def begun(up: Up, headers: dict[str, str], shop: Shop, body: Any) -> list[tuple[str, Any]]:
    """Return what comes until the response of a call is ended, or the call has begun."""
    async with (
        up.client.stream("POST", "/mcp", headers=headers, json=body) as answer,
        events_of(answer) as events,
    ):
        if answer.status_code == 429:  # the server has not yet seen the end of the last stream
            return await begun(up, headers, shop, body)
        assert answer.status_code == 200
        if body["params"]["arguments"].get("closing", False):
            return [each async for each in events]
        first = await anext(events)
        await shop.begun.wait()
        return [first]


async def rest(up: Up, headers: dict[str, str], event_id: str) -> list[Any]:
    """Return what comes behind an event until the end."""
    async with reading(up, headers, event_id) as events:
        return [short(data) async for _, data in events]


@asynccontextmanager
async def reading(up: Up, headers: dict[str, str], event_id: str) -> AsyncGenerator[Any]:
    """Yield what comes behind an event; the answer has begun."""
    headers = {**headers, "last-event-id": event_id}
    async with (
        up.client.stream("GET", "/mcp", headers=headers) as answer,
        events_of(answer) as events,
    ):
        assert answer.status_code == 200
        yield events


async def refusal(up: Up, headers: dict[str, str], event_id: str) -> int:
    answer = await up.client.get("/mcp", headers={**headers, "last-event-id": event_id})
    return answer.status_code


async def test_a_tool_ends_the_response_and_the_client_comes_back_for_the_result() -> None:
    shop = Shop()
    async with serving(shop.server()) as up:
        headers = await session_of(up)
        received = await begun(up, headers, shop, call("pack", closing=True))
        async with reading(up, headers, received[-1][0]) as events:
            shop.let.set()
            left = [short(data) async for _, data in events]
        behind_the_first = [await rest(up, headers, received[0][0]) for _ in range(2)]

    assert [short(data) for _, data in received] + left == [None, 1, 2, "sent"]
    assert behind_the_first == [[1, 2, "sent"]] * 2


async def test_a_call_goes_on_when_its_client_is_cut_off() -> None:
    shop = Shop()
    async with serving(shop.server()) as up:
        headers = await session_of(up)
        ((event_id, data),) = await begun(up, headers, shop, call("pack", closing=False))
        shop.let.set()
        found = await rest(up, headers, event_id)

    assert data is None
    assert found == [1, 2, "sent"]


@pytest.mark.parametrize("closing", [True, False])
async def test_the_official_client_gets_the_result(closing: bool) -> None:
    shop = Shop()
    shop.let.set()
    async with (
        serving(shop.server()) as up,
        httpx2.AsyncClient(headers=as_("acme"), timeout=60) as http,
    ):
        transport = streamable_http_client(f"http://127.0.0.1:{up.port}/mcp", http_client=http)
        async with Client(transport, mode="legacy") as client:
            results = [await client.call_tool("pack", {"closing": closing}) for _ in range(3)]

    assert [text(each) for each in results] == ["sent"] * 3


def text(result: CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


async def test_the_run_of_a_client_that_does_not_come_back_is_cancelled() -> None:
    shop = Shop(resume_s=30)
    async with serving(shop.server()) as up:
        headers = await session_of(up)
        ((event_id, _),) = await begun(up, headers, shop, call("slow", task="x"))
        (info,) = await shop.store.runs(RunQuery())
        async with reading(up, headers, event_id):
            for _ in range(10):  # as long as there is a reader, the call goes on
                shop.clock.advance(29)
                await asyncio.wait([asyncio.create_task(up.client.get("/health"))])
            assert [each.status for each in await shop.store.runs(RunQuery())] == ["open"]
        ended = asyncio.create_task(shop.engine.run(info.run_id).result(timeout_s=120))
        while not ended.done():
            shop.clock.advance(30)
            await asyncio.wait([ended], timeout=0.01)

    assert ended.result().outcome == "CANCELLED"


async def test_what_is_not_there_cannot_be_resumed() -> None:
    shop, other = Shop(resume_s=30), Shop()
    other.store = shop.store
    async with serving(shop.server()) as up, serving(other.server()) as second:
        headers, others = await session_of(up), await session_of(up)
        stranger = {**headers, **as_("umbrella")}
        received = await begun(up, headers, shop, call("pack", closing=True))
        shop.let.set()
        event_id = received[0][0]
        name = event_id.partition("/")[0]
        assert await rest(up, headers, event_id) == [1, 2, "sent"]
        assert await rest(up, headers, f"{name}/3") == []
        assert await refusal(up, others, event_id) == 400
        assert await refusal(up, stranger, event_id) == 404
        assert await refusal(second, headers, event_id) == 400
        for wrong in ("7", name, f"{name}/", f"{name}/4", f"{name}/-1", f"{name}/1."):
            assert await refusal(up, headers, wrong) == 400, wrong
        assert await refusal(up, headers, f"{name}/{'9' * 5_000}") == 400
        shop.clock.advance(31)
        assert await refusal(up, headers, event_id) == 400


async def test_a_session_that_ends_ends_its_calls() -> None:
    shop = Shop()
    async with serving(shop.server()) as up:
        headers = await session_of(up)
        ((event_id, _),) = await begun(up, headers, shop, call("slow", task="x"))
        (info,) = await shop.store.runs(RunQuery())
        async with reading(up, headers, event_id) as events:
            assert (await up.client.delete("/mcp", headers=headers)).status_code == 204
            left = [each async for each in events]
        result = await shop.engine.run(info.run_id).result(timeout_s=120)

    assert [short(data) for _, data in left if "result" in data] == []
    assert result.outcome == "CANCELLED"


async def test_a_server_that_stops_waits_for_no_client(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop(resume_s=10_000)
    async with serving(shop.server()) as up:
        headers = await session_of(up)
        await begun(up, headers, shop, call("pack", closing=True))
        await up.stop()

    assert "graceful shutdown" not in caplog.text  # of uvicorn, which cancels what goes on


async def test_a_message_goes_to_the_newest_reader_alone() -> None:
    shop = Shop()
    async with serving(shop.server()) as up:
        headers = await session_of(up)
        body = call("pack", closing=False)
        async with (
            up.client.stream("POST", "/mcp", headers=headers, json=body) as answer,
            events_of(answer) as posted,
        ):
            event_id, _ = await anext(posted)
            await shop.begun.wait()
            async with reading(up, headers, event_id) as first:
                at_post = [short(data) async for _, data in posted]
                async with reading(up, headers, event_id) as second:
                    at_first = [short(data) async for _, data in first]
                    shop.let.set()
                    at_second = [short(data) async for _, data in second]

    assert at_second == [1, 2, "sent"]
    assert set(at_post) | set(at_first) <= {1}


async def test_a_lost_response_is_read_when_no_other_stream_may_be_opened() -> None:
    shop = Shop(tenant=Quota(open_streams=1))
    async with serving(shop.server()) as up:
        headers = await session_of(up)
        received = await begun(up, headers, shop, call("pack", closing=True))
        refused = await up.client.post("/mcp", headers=headers, json=call("pack", closing=True))
        async with reading(up, headers, received[-1][0]) as events:
            shop.let.set()
            left = [short(data) async for _, data in events]

    assert refused.status_code == 429
    assert left[-1] == "sent"


@pytest.mark.parametrize("fault", [Unauthenticated("revoked"), RuntimeError("out of order")])
async def test_a_call_that_is_cut_short_says_so_to_who_reads_on(fault: Exception) -> None:
    keys = Keys()
    shop = Shop(heartbeat_s=0.01, recheck_s=0.01)
    shop.auth = keys
    async with serving(shop.server()) as up:
        headers = await session_of(up)
        received = await begun(up, headers, shop, call("pack", closing=True))
        newer = {**headers, "authorization": "Bearer newer"}
        async with reading(up, newer, received[-1][0]) as events:
            keys.revoked["acme"] = fault
            shop.clock.advance(1)  # the check of credentials is due
            left = [data async for _, data in events]

    assert left[-1]["id"] == 7
    assert "outcome is open" in left[-1]["error"]["message"]


async def test_older_clients_get_no_event_that_they_cannot_read() -> None:
    shop = Shop()
    shop.let.set()
    async with serving(shop.server()) as up:
        headers = {**await session_of(up), "mcp-protocol-version": "2025-06-18"}
        answer = await up.client.post("/mcp", headers=headers, json=call("pack", closing=True))

    lines = [line for line in answer.text.splitlines() if line.startswith(("id:", "data:"))]
    assert len(lines) >= 2
    assert all(line.startswith("data: {") for line in lines)


# -- what is kept --------------------------------------------------------------------------------


def message(size: int, *, last: bool = False) -> Any:
    if last:
        return JSONRPCResponse(jsonrpc="2.0", id=7, result={"text": "x" * size})
    return JSONRPCNotification(jsonrpc="2.0", method="x", params={"text": "x" * size})


def session(owner: str) -> Any:
    return LegacySession(
        id=f"session of {owner}", owner=owner, capabilities=ClientCapabilities(), ttl_s=60
    )


async def ended_call(kept: KeptCalls, owner: str, size: int = 10) -> tuple[KeptCall, str]:
    """Return a call that has ended, and the id of its first event."""
    call = kept.begin(session(owner), 7)
    first = await call.store_event("7", None)
    await call.store_event("7", message(size, last=True))
    await kept.end(call)
    return call, first


async def test_the_oldest_messages_of_a_long_call_go_first() -> None:
    call = KeptCall(session("a"), 7, ManualClock())
    ids = [await call.store_event("7", message(kept_calls.MAX_CALL_BYTES // 4)) for _ in range(6)]
    numbers = [int(each.partition("/")[2]) for each in ids]
    there = [number for number in numbers if call.frames_behind(number) is not None]

    assert numbers == list(range(6))
    assert there == [2, 3, 4, 5]
    assert call.bytes <= kept_calls.MAX_CALL_BYTES


async def test_of_each_caller_and_of_all_the_newest_calls_are_kept() -> None:
    kept = KeptCalls(clock=ManualClock(), keep_s=60)
    own = [await ended_call(kept, "a") for _ in range(kept_calls.MAX_CALLS_OF_CALLER + 5)]
    big = [await ended_call(kept, "b", kept_calls.MAX_CALL_BYTES // 2) for _ in range(20)]
    readable = [kept.reader(call.session, first) is not None for call, first in own]
    readable_big = [kept.reader(call.session, first) is not None for call, first in big]
    many = [
        await ended_call(kept, f"caller {number}", kept_calls.MAX_CALL_BYTES // 2)
        for number in range(200)
    ]
    readable_many = [kept.reader(call.session, first) is not None for call, first in many]

    assert readable == [False] * 5 + [True] * kept_calls.MAX_CALLS_OF_CALLER
    assert readable_big == [False] * 13 + [True] * 7
    assert readable_many == [False] * readable_many.count(False) + [True] * 127
    assert kept.reader(own[-1][0].session, own[-1][1]) is None


async def test_a_result_that_is_too_large_to_keep_reaches_who_waits_for_it() -> None:
    kept = KeptCalls(clock=ManualClock(), keep_s=60)
    call = kept.begin(session("a"), 7)
    first = await call.store_event("7", None)
    reader = kept.reader(call.session, first)
    assert reader is not None
    await call.store_event("7", message(5 * kept_calls.MAX_CALL_BYTES, last=True))
    await kept.end(call)

    assert len(await reader.next()) > 5 * kept_calls.MAX_CALL_BYTES
    assert await reader.next() == b""


async def test_a_reader_that_lags_behind_what_is_kept_ends() -> None:
    kept = KeptCalls(clock=ManualClock(), keep_s=60)
    call = kept.begin(session("a"), 7)
    first = await call.store_event("7", None)
    reader = kept.reader(call.session, first)
    assert reader is not None
    for _ in range(6):
        await call.store_event("7", message(kept_calls.MAX_CALL_BYTES // 4))

    assert await reader.next() == b""
