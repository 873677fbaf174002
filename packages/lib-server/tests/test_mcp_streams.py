"""`GET /mcp`: the stream on which a session of an older client hears of changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import EmptyResult, SubscribeRequest, SubscribeRequestParams
from server_kit import OneKey, Up, as_, echo_agent, parsed, serving, url_of

from lib import Engine, tool
from lib.events import EventStore, MemoryEventStore
from lib.events.urls import open_store
from lib.mcp import MCPToolServer, resource
from lib.testing.clock import ManualClock
from lib_server import Limits, Server
from lib_server.limits import Quota

JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
LISTEN = {"accept": "text/event-stream"}
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@resource("orders://{order}", watched=True)
def order_page(order: str) -> str:
    """An order."""
    return order


@tool(effects="none")
def late() -> str:
    """Come later."""
    return "here"


class Shop:
    """An HTTP server whose resource changes."""

    tools: MCPToolServer

    def __init__(self, store: Any = "memory:", **options: Any) -> None:
        self.store = store
        self.options: dict[str, Any] = {"auth": OneKey(), "drain_s": 0, **options}
        self.clock = ManualClock()

    def server(self, **engine: Any) -> Server:
        def offered(engine: Engine) -> MCPToolServer:
            self.tools = MCPToolServer(
                [], engine=engine, resources=[order_page], lists_change=True, clock=engine.clock
            )
            return self.tools

        served = Engine(self.store, agents=[echo_agent()], **engine)
        return Server(served, mcp=offered, **self.options)


async def session_of(up: Up, tenant: str = "acme") -> dict[str, str]:
    """Begin a session, and return the headers of its requests."""
    begun = await up.client.post("/mcp", headers={**JSON, **as_(tenant)}, json=INITIALIZE)
    of_session = {"mcp-session-id": begun.headers["mcp-session-id"]}
    return {**as_(tenant), **of_session, "mcp-protocol-version": "2025-11-25"}


async def post(up: Up, headers: dict[str, str], method: str, uri: str) -> Any:
    """Return the answer to a request about a resource."""
    body = {"jsonrpc": "2.0", "id": 2, "method": f"resources/{method}", "params": {"uri": uri}}
    answer = await up.client.post("/mcp", headers={**JSON, **headers}, json=body)
    (data,) = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    return json.loads(data.removeprefix("data: "))


@asynccontextmanager
async def listening(up: Up, headers: dict[str, str]) -> AsyncGenerator[Any]:
    async with up.client.stream("GET", "/mcp", headers={**LISTEN, **headers}) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"] == "text/event-stream"
        yield parsed(answer.aiter_lines())


async def heard(events: Any) -> tuple[str, str, Any]:
    event = await anext(events)
    assert event.data["jsonrpc"] == "2.0"
    return event.id, event.data["method"], event.data["params"].get("uri")


async def test_a_session_hears_of_its_resources_and_of_lists() -> None:
    shop = Shop()
    async with serving(shop.server()) as up:
        headers = await session_of(up)
        async with listening(up, headers) as events:
            refused = await post(up, headers, "subscribe", "about:shop")
            for method, uri in (("subscribe", "7"), ("subscribe", "8"), ("unsubscribe", "8")):
                assert "result" in await post(up, headers, method, f"orders://{uri}")
            for uri in ("6", "8", "7"):
                await shop.tools.resource_updated(f"orders://{uri}")
            updated = await heard(events)
            shop.tools.add(late)
            listed = await heard(events)

    assert refused["error"]["message"] == "no watched resource has this URI"
    assert updated == ("", "notifications/resources/updated", "orders://7")
    assert listed == ("", "notifications/tools/list_changed", None)


async def test_a_change_of_another_tenant_is_not_heard() -> None:
    shop = Shop()
    async with serving(shop.server()) as up:
        headers = await session_of(up)
        for uri in ("7", "8"):
            await post(up, headers, "subscribe", f"orders://{uri}")
        async with listening(up, headers) as events:
            await shop.tools.resource_updated("orders://7", tenant="umbrella")
            await shop.tools.resource_updated("orders://8", tenant="acme")
            updated = await heard(events)

    assert updated[2] == "orders://8"


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> list[EventStore]:
    url = url_of(request.param, tmp_path)  # blocks, so outside of an event loop
    return [open_store(url) for _ in range(3)]  # imports drivers, which blocks


async def test_stream_subscription_and_change_may_be_in_three_processes(
    stores: list[EventStore],
) -> None:
    one, two, three = (Shop(each) for each in stores)
    async with (
        serving(one.server()) as up,
        serving(two.server()) as second,
        serving(three.server()) as third,
    ):
        headers = await session_of(up)
        await session_of(third)  # loads its tools
        async with listening(up, headers) as events:
            await post(second, headers, "subscribe", "orders://7")
            await three.tools.resource_updated("orders://7")
            updated = await heard(events)

    assert updated[2] == "orders://7"


async def test_the_official_client_hears_of_a_resource() -> None:
    shop, messages = Shop(), asyncio.Queue[Any]()

    async def take(message: Any) -> None:
        await messages.put(message)

    async with (
        serving(shop.server()) as up,
        httpx2.AsyncClient(headers=as_("acme"), timeout=60) as http,
    ):
        transport = streamable_http_client(f"http://127.0.0.1:{up.port}/mcp", http_client=http)
        async with Client(transport, mode="legacy", message_handler=take) as client:
            params = SubscribeRequestParams(uri="orders://7")
            await client.session.send_request(SubscribeRequest(params=params), EmptyResult)
            while messages.empty():  # the client opens its stream when it likes
                await shop.tools.resource_updated("orders://7")
                await client.list_tools()
            capabilities = client.server_capabilities

    assert (await messages.get()).params.uri == "orders://7"
    assert capabilities.resources is not None
    assert (capabilities.resources.subscribe, capabilities.resources.list_changed) == (True, True)


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"mcp-session-id": None}, 405),
        ({"mcp-protocol-version": "2026-07-28"}, 405),
        ({"mcp-protocol-version": "1999-01-01"}, 400),
        ({"mcp-protocol-version": None}, 200),
        ({"last-event-id": "7"}, 400),  # streams of changes have no ids
        ({"mcp-session-id": "forged"}, 404),
        ({"mcp-session-id": "." * 20_000}, 404),
        ({"authorization": "Bearer umbrella"}, 404),  # the session is another one's
        ({"authorization": None}, 401),
        ({"accept": "application/json"}, 406),
        ({"origin": "https://evil.example"}, 403),
    ],
)
async def test_a_stream_is_opened_by_the_caller_of_its_session_alone(
    changed: dict[str, str | None], status: int
) -> None:
    async with serving(Shop().server()) as up:
        headers = {**LISTEN, **await session_of(up), **changed}
        present = {name: value for name, value in headers.items() if value is not None}
        async with up.client.stream("GET", "/mcp", headers=present) as answer:
            found = answer.status_code, answer.headers.get("allow")

    assert found == (status, "POST" if status == 405 else None)


async def test_where_nothing_changes_there_is_no_stream() -> None:
    async with serving(Server(echo_agent(), auth=OneKey())) as up:
        headers = {**LISTEN, **await session_of(up)}
        answer = await up.client.get("/mcp", headers=headers)

    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_a_second_stream_of_a_session_ends_the_first() -> None:
    shop = Shop()
    async with serving(shop.server()) as up:
        headers = await session_of(up)
        async with listening(up, headers) as first, listening(up, headers) as second:
            ended = [each async for each in first]
            shop.tools.add(late)
            change = await heard(second)

    assert ended == []
    assert change[1] == "notifications/tools/list_changed"


async def test_a_stream_ends_when_the_server_stops() -> None:
    async with serving(Shop().server()) as up, listening(up, await session_of(up)) as events:
        stopping = asyncio.create_task(up.stop())
        left = [each async for each in events]
        await stopping

    assert left == []


async def test_a_stream_ends_with_its_session() -> None:
    clock = ManualClock()
    shop = Shop(limits=Limits(heartbeat_s=0.005))
    async with (
        serving(shop.server(clock=clock)) as up,
        listening(up, await session_of(up)) as events,
    ):
        clock.advance(8 * 86_400)

        assert [each async for each in events] == []


async def test_a_stream_counts_against_the_quota_of_streams_until_it_ends() -> None:
    shop = Shop(limits=Limits(tenant=Quota(open_streams=1)))
    async with serving(shop.server()) as up:
        headers = {**JSON, **await session_of(up)}
        for _ in range(2):
            while await is_capped(up, headers):  # until the server has seen the end of the last
                pass
            async with listening_soon(up, headers):
                assert await is_capped(up, headers)


async def is_capped(up: Up, headers: dict[str, str]) -> bool:
    begun = await up.client.post("/mcp", headers=headers, json=INITIALIZE)
    return begun.status_code == 429


@asynccontextmanager
async def listening_soon(up: Up, headers: dict[str, str]) -> AsyncGenerator[None]:
    """Listen once the stream is not one too many."""
    while True:
        async with up.client.stream("GET", "/mcp", headers={**headers, **LISTEN}) as answer:
            if answer.status_code == 200:
                yield
                return


async def test_a_client_that_reads_nothing_is_cut() -> None:
    store = MemoryEventStore()
    shop = Shop(store, limits=Limits(stalled_s=0.05), auth=None)
    server = shop.server()
    async with serving(server) as up:
        begun = await up.client.post("/mcp", headers=JSON, json=INITIALIZE)
        headers = [
            (b"host", b"127.0.0.1"),
            (b"accept", b"text/event-stream"),
            (b"mcp-session-id", begun.headers["mcp-session-id"].encode()),
        ]
        sent = await _sent_to_a_client_that_reads_only_the_head(server, headers)

    assert sent == ["http.response.start", "http.response.body"]


async def _sent_to_a_client_that_reads_only_the_head(
    app: Callable[..., Awaitable[None]], headers: list[tuple[bytes, bytes]]
) -> list[str]:
    sent = list[str]()

    async def receive() -> dict[str, Any]:
        if "http.response.start" not in sent:
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.Event().wait()
        return {}

    async def send(message: Any) -> None:
        sent.append(message["type"])
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/mcp",
        "query_string": b"",
        "headers": headers,
    }
    await app(scope, receive, send)
    return sent


async def test_an_ended_session_is_known_to_no_process(tmp_path: Path) -> None:
    url = url_of("sqlite", tmp_path)
    async with serving(Shop(url).server()) as one, serving(Shop(url).server()) as other:
        headers, second = await session_of(one), await session_of(one)
        async with listening(one, headers) as events:
            ended = await one.client.delete("/mcp", headers=headers)
            assert (ended.status_code, ended.content) == (204, b"")
            assert [each async for each in events] == []
        ping = {"jsonrpc": "2.0", "id": 3, "method": "ping"}
        level = {"method": "logging/setLevel", "params": {"level": "error"}}
        for up in (one, other):
            for body in (ping, {**ping, **level}):
                answer = await up.client.post("/mcp", headers={**JSON, **headers}, json=body)
                assert answer.status_code == 404
            assert (await up.client.delete("/mcp", headers=headers)).status_code == 404
            listen = await up.client.get("/mcp", headers={**LISTEN, **headers})
            assert listen.status_code == 404
            answer = await up.client.post("/mcp", headers={**JSON, **second}, json=ping)
            assert answer.status_code == 200


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"mcp-session-id": None}, 405),
        ({"mcp-protocol-version": "2026-07-28"}, 405),
        ({"mcp-session-id": "forged"}, 404),
        ({"authorization": "Bearer umbrella"}, 404),  # the session is another one's
    ],
)
async def test_a_session_is_ended_by_its_caller_alone(
    changed: dict[str, str | None], status: int
) -> None:
    async with serving(Shop().server()) as up:
        headers = await session_of(up)
        sent = {name: each for name, each in {**headers, **changed}.items() if each is not None}
        assert (await up.client.delete("/mcp", headers=sent)).status_code == status
        ping = {"jsonrpc": "2.0", "id": 3, "method": "ping"}
        answer = await up.client.post("/mcp", headers={**JSON, **headers}, json=ping)
        assert answer.status_code == 200
