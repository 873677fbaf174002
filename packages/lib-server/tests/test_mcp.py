"""`POST /mcp` speaks every version of the protocol, behind authentication and limits."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ElicitResult, TextContent
from server_kit import OneKey, as_, echo_agent, serving

from lib import Agent, Engine, tool
from lib.events import MemoryEventStore, RunQuery
from lib.llm import FunctionClient
from lib.mcp import MCPToolServer
from lib.tools import ToolContext
from lib_server import (
    ApiKeyAuthenticator,
    Authenticator,
    FirstOf,
    JWTAuthenticator,
    Limits,
    Server,
    StaticKeys,
)
from lib_server.limits import Quota

MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
MODERN = {**JSON, "mcp-protocol-version": "2026-07-28"}
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments, "_meta": META}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def of_call(name: str) -> dict[str, str]:
    return {**MODERN, "mcp-method": "tools/call", "mcp-name": name}


def text(result: CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


@asynccontextmanager
async def connected(up: Any, mode: str, **headers: str) -> AsyncGenerator[Client]:
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"http://127.0.0.1:{up.port}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


@MODES
async def test_the_agents_of_the_server_are_tools_and_their_calls_are_runs(mode: str) -> None:
    store = MemoryEventStore()
    server = Server(Engine(store, agents=[echo_agent(name="clerk")]), auth=OneKey())
    async with serving(server) as up:
        async with connected(up, mode, **as_("acme")) as client:
            names = [each.name for each in (await client.list_tools()).tools]
            result = await client.call_tool("clerk", {"task": "hello"})
        runs = [(each.tenant, each.user, each.status) for each in await store.runs(RunQuery())]

    assert (names, text(result)) == (["clerk"], "You wrote: hello")
    assert runs == [("acme", "u@acme", "closed")]


@MODES
async def test_a_function_makes_what_is_offered_and_tools_see_the_caller(mode: str) -> None:
    @tool(effects="none")
    async def whoami(context: ToolContext) -> str:
        """Return the caller."""
        for done in range(3):
            context.progress(done, 3)
        return f"{context.user} of {context.tenant}"

    seen: list[float] = []

    async def take(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    server = Server(
        echo_agent(), auth=OneKey(), mcp=lambda engine: MCPToolServer([whoami], engine=engine)
    )
    async with serving(server) as up, connected(up, mode, **as_("umbrella")) as client:
        result = await client.call_tool("whoami", {}, progress_callback=take)

    assert text(result) == "u@umbrella of umbrella"
    assert seen[-1] == 2


@pytest.mark.parametrize(
    ("method", "allow"), [("GET", "POST"), ("DELETE", "POST"), ("PUT", "DELETE, GET, POST")]
)
async def test_without_a_session_there_is_only_post(method: str, allow: str) -> None:
    async with serving(Server(echo_agent())) as up:
        answer = await up.client.request(method, "/mcp", headers=JSON)

    assert (answer.status_code, answer.headers["allow"]) == (405, allow)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/jsonp"}, 415),
        ({"accept": "application/json"}, 406),
        ({"accept": "text/html"}, 406),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example"}, 421),
        ({"mcp-protocol-version": "1999-01-01"}, 400),
        ({"mcp-name": "other"}, 400),
        ({"content-type": "application/json; charset=utf-8"}, 200),
        ({"mcp-session-id": "forged", "last-event-id": "7"}, 200),
    ],
)
async def test_a_request_is_answered_with_the_status_of_the_protocol(
    headers: dict[str, str], status: int
) -> None:
    async with serving(Server(echo_agent())) as up:
        answer = await up.client.post(
            "/mcp", headers={**of_call("agent"), **headers}, json=call("agent", task="hello")
        )

    assert answer.status_code == status
    assert "mcp-session-id" not in answer.headers


async def test_white_space_around_the_values_of_headers_does_not_count() -> None:
    headers = {**of_call("agent"), "mcp-name": "  agent \t", "host": "localhost"}
    body = json.dumps(call("agent", task="hello")).encode()
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    async with serving(Server(echo_agent())) as up:
        reader, writer = await asyncio.open_connection("127.0.0.1", up.port)
        writer.write(f"POST /mcp HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n".encode())
        writer.write(body)
        status = await reader.readline()
        writer.close()

    assert status.split()[1] == b"200"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, -32700),
        (b"[]", 400, -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', 400, -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "result": {}}', 400, -32600),
        (json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode(), 400, -32602),
    ],
)
async def test_a_malformed_message_is_an_error_of_the_protocol(
    body: bytes, status: int, code: int
) -> None:
    async with serving(Server(echo_agent())) as up:
        answer = await up.client.post(
            "/mcp", headers={**MODERN, "mcp-method": "tools/list"}, content=body
        )

    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_a_notification_is_accepted() -> None:
    async with serving(Server(echo_agent())) as up:
        answers = [
            await up.client.post(
                "/mcp",
                headers=headers,
                json={
                    "jsonrpc": "2.0",
                    "method": "notifications/cancelled",
                    "params": {"requestId": 1},
                },
            )
            for headers in (JSON, MODERN)
        ]

    assert [(each.status_code, each.content) for each in answers] == [(202, b""), (202, b"")]


async def test_a_body_above_the_limit_is_refused() -> None:
    async with serving(Server(echo_agent(), limits=Limits(body_bytes=2_000))) as up:
        declared = await up.client.post("/mcp", headers=MODERN, content=b" " * 2_001)

        async def pieces() -> AsyncGenerator[bytes]:
            for _ in range(3):
                yield b" " * 1_000

        streamed = await up.client.post("/mcp", headers=MODERN, content=pieces())

    assert (declared.status_code, streamed.status_code) == (413, 413)


async def test_a_caller_without_credentials_or_scope_is_refused() -> None:
    request: dict[str, Any] = {"headers": of_call("agent"), "json": call("agent", task="x")}
    async with serving(Server(echo_agent(), auth=OneKey("read"))) as up:
        without: Any = await up.client.post("/mcp", **request)
        request["headers"] |= as_("acme")
        forbidden: Any = await up.client.post("/mcp", **request)

    assert (without.status_code, without.headers["www-authenticate"]) == (
        401,
        'Bearer realm="lib-server"',
    )
    assert forbidden.status_code == 403


async def test_a_run_above_a_quota_is_a_failed_call() -> None:
    limits = Limits(tenant=Quota(open_runs=0))
    async with (
        serving(Server(echo_agent(), auth=OneKey(), limits=limits)) as up,
        connected(up, "auto", **as_("acme")) as client,
    ):
        result = await client.call_tool("agent", {"task": "x"})

    assert result.is_error
    assert text(result).startswith("not called: ")


async def test_a_client_that_closes_the_response_cancels_the_run() -> None:
    store, begun = MemoryEventStore(), asyncio.Event()

    async def answer(messages: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    agent = Agent(FunctionClient(answer), name="slow")
    engine = Engine(store, agents=[agent])
    async with serving(Server(engine)) as up:
        sending = asyncio.create_task(
            up.client.post("/mcp", headers=of_call("slow"), json=call("slow", task="x"))
        )
        await begun.wait()
        sending.cancel()
        await asyncio.wait([sending])
        (info,) = await store.runs(RunQuery())
        result = await engine.run(info.run_id).result(timeout_s=120)

    assert result.outcome == "CANCELLED"


async def test_a_server_that_stops_answers_and_lets_the_run_go_on() -> None:
    store, begun = MemoryEventStore(), asyncio.Event()

    async def answer(messages: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    engine = Engine(store, agents=[Agent(FunctionClient(answer), name="slow")])
    async with serving(Server(engine, drain_s=0)) as up:
        sending = asyncio.create_task(
            up.client.post("/mcp", headers=of_call("slow"), json=call("slow", task="x"))
        )
        await begun.wait()
        (info,) = await store.runs(RunQuery())
        await up.stop()
        result = (await sending).json()["result"]

    assert (result["isError"], info.status) == (True, "open")
    assert info.run_id in result["content"][0]["text"]


async def test_agents_of_another_engine_are_not_offered(caplog: pytest.LogCaptureFixture) -> None:
    def offered(_: Engine) -> MCPToolServer:
        return MCPToolServer([echo_agent(name="other")])

    async with serving(Server(echo_agent(), mcp=offered)) as up:
        answer = await up.client.post("/mcp", headers=of_call("other"), json=call("other"))

    assert answer.status_code == 500
    assert "use MCPToolServer(…, engine=engine)" in caplog.text


# -- clients of 2025-11-25 and before, which answer questions while a call goes on ----------------

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
PAY = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {"name": "pay", "arguments": {"amount": 20}},
}


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def paying(store: MemoryEventStore | str, **options: Any) -> Server:
    def offered(engine: Engine) -> MCPToolServer:
        return MCPToolServer([pay], engine=engine)

    engine = Engine(store, agents=[echo_agent()])
    return Server(engine, auth=OneKey(), mcp=offered, **options)


async def session_of(up: Any, tenant: str = "acme") -> dict[str, str]:
    """Begin a session, and return the headers of its requests."""
    headers = {**JSON, **as_(tenant)}
    begun = await up.client.post("/mcp", headers=headers, json=INITIALIZE)
    of_session = {"mcp-session-id": begun.headers["mcp-session-id"]}
    return {**headers, **of_session, "mcp-protocol-version": "2025-11-25"}


@asynccontextmanager
async def question_from(up: Any, headers: dict[str, str]) -> AsyncGenerator[tuple[Any, Any]]:
    """Call, and yield the question and the messages that follow it."""
    async with up.client.stream("POST", "/mcp", headers=headers, json=PAY) as response:
        lines = response.aiter_lines()

        async def messages() -> AsyncGenerator[Any]:
            async for line in lines:
                if line.startswith("data: {"):  # the first event has an id alone
                    yield json.loads(line.removeprefix("data: "))

        following = messages()
        yield await anext(following), following


def yes(question: Any) -> dict[str, Any]:
    result = {"action": "accept", "content": {"approve": True}}
    return {"jsonrpc": "2.0", "id": question["id"], "result": result}


async def test_the_person_behind_an_older_client_approves_a_call() -> None:
    questions: list[str] = []

    async def answer(context: Any, params: Any) -> ElicitResult:
        questions.append(params.message)
        return ElicitResult(action="accept", content={"approve": True})

    async with (
        serving(paying("memory:")) as up,
        httpx2.AsyncClient(headers=as_("acme"), timeout=60) as http,
    ):
        transport = streamable_http_client(f"http://127.0.0.1:{up.port}/mcp", http_client=http)
        async with Client(transport, mode="legacy", elicitation_callback=answer) as client:
            result = await client.call_tool("pay", {"amount": 20})

    assert text(result) == "paid 20"
    assert questions == ["Allow the call of 'pay' with {\"amount\":20}?"]


async def test_an_answer_may_be_sent_to_another_process(tmp_path: Path) -> None:
    url = str(tmp_path / "log.db")
    async with serving(paying(url)) as up, serving(paying(url)) as other:
        headers = await session_of(up)
        async with question_from(up, headers) as (question, following):
            accepted = await other.client.post("/mcp", headers=headers, json=yes(question))
            result = await anext(following)

    assert accepted.status_code == 202
    assert (result["id"], result["result"]["content"][0]["text"]) == (2, "paid 20")


async def test_only_the_client_of_the_session_answers() -> None:
    async with serving(paying("memory:")) as up:
        headers, others = await session_of(up), await session_of(up)
        stranger = await session_of(up, "umbrella")
        stolen = {**stranger, "mcp-session-id": headers["mcp-session-id"]}
        async with question_from(up, headers) as (question, following):
            refused = [
                (await up.client.post("/mcp", headers=each, json=yes(question))).status_code
                for each in (others, stranger, stolen)
            ]
            error = {"code": -32603, "message": "no user is here"}
            failed = {"jsonrpc": "2.0", "id": question["id"], "error": error}
            await up.client.post("/mcp", headers=headers, json=failed)
            result = await anext(following)

    assert refused == [400, 400, 404]
    assert result["error"]["message"] == "no user is here"


async def test_a_client_without_a_session_gets_no_question() -> None:
    async with serving(paying("memory:")) as up:
        answer = await up.client.post("/mcp", headers={**JSON, **as_("acme")}, json=PAY)

    assert "a person must approve it" in answer.text


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"jsonrpc": "2.0", "id": "a", "result": {"a": 1e400}}',
        b'{"jsonrpc": "2.0", "id": "\\ud800", "result": {}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": 7}',
    ],
)
async def test_a_hostile_body_of_a_session_is_refused_or_ignored(body: bytes) -> None:
    async with serving(paying("memory:")) as up:
        headers = await session_of(up)
        answer = await up.client.post("/mcp", headers=headers, content=body)

    assert answer.status_code in (202, 400)


async def test_an_answer_that_is_none_to_the_question_is_an_error_of_the_call() -> None:
    async with serving(paying("memory:")) as up:
        headers = await session_of(up)
        async with question_from(up, headers) as (question, following):
            answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "shrug"}}
            accepted = await up.client.post("/mcp", headers=headers, json=answer)
            result = await anext(following)

    assert accepted.status_code == 202
    assert "error" in result


async def test_a_question_ends_when_the_server_stops() -> None:
    async with serving(paying("memory:", drain_s=0)) as up:
        async with question_from(up, await session_of(up)) as (_, following):
            stopping = asyncio.create_task(up.stop())
            result = await anext(following)
        await stopping

    assert "the server stops" in result["error"]["message"]


async def test_without_the_endpoint_there_is_nothing() -> None:
    async with serving(Server(echo_agent(), mcp=False)) as up:
        answer = await up.client.post("/mcp", headers=MODERN, json={})

    assert answer.status_code == 404


# -- where tokens come from --------------------------------------------------------------------

METADATA = "/.well-known/oauth-protected-resource"


def tokens() -> JWTAuthenticator:
    key = {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": "1", "x": "A" * 43}
    keys = StaticKeys(json.dumps({"keys": [key]}))
    return JWTAuthenticator(keys, issuer="https://issuer.example/", audience="lib-server")


@pytest.mark.parametrize("authenticator", [tokens(), FirstOf(ApiKeyAuthenticator(), tokens())])
@pytest.mark.parametrize("path", [METADATA, f"{METADATA}/mcp"])
async def test_a_client_without_a_token_reads_where_to_get_one(
    authenticator: Authenticator, path: str
) -> None:
    async with serving(Server(echo_agent(), auth=authenticator)) as up:
        refused = await up.client.post("/mcp", headers=MODERN, json={})
        other = await up.client.get("/v1/agents")
        metadata = await up.client.get(path)
        base = f"http://127.0.0.1:{up.port}"

    assert refused.headers["www-authenticate"] == (
        f'Bearer realm="lib-server", resource_metadata="{base}{METADATA}/mcp"'
    )
    assert other.headers["www-authenticate"] == 'Bearer realm="lib-server"'
    assert metadata.json() == {
        "resource": f"{base}/mcp",
        "authorization_servers": ["https://issuer.example/"],
        "scopes_supported": ["admin", "approve", "read", "run"],
        "bearer_methods_supported": ["header"],
    }


@pytest.mark.parametrize("authenticator", [None, ApiKeyAuthenticator()])
async def test_without_issuers_of_tokens_there_is_no_metadata(
    authenticator: Authenticator | None,
) -> None:
    async with serving(Server(echo_agent(), auth=authenticator)) as up:
        metadata = await up.client.get(f"{METADATA}/mcp")

    assert metadata.status_code == 404


async def test_a_client_with_a_session_cancels_its_call_in_another_request() -> None:
    store, begun = MemoryEventStore(), asyncio.Event()

    async def answer(messages: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    engine = Engine(store, agents=[Agent(FunctionClient(answer), name="slow")])
    async with serving(Server(engine, auth=OneKey())) as up:
        headers, others = await session_of(up), await session_of(up)
        calling = asyncio.create_task(
            up.client.post("/mcp", headers=headers, json={**call("slow", task="x"), "id": 7})
        )
        await begun.wait()
        (info,) = await store.runs(RunQuery())
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        for of_session, request_id in ((others, 7), (headers, 8), (headers, [7]), (headers, 7)):
            assert [each.status for each in await store.runs(RunQuery())] == ["open"]
            params = {"requestId": request_id}
            await up.client.post("/mcp", headers=of_session, json={**cancel, "params": params})
        response = await calling
        result = await engine.run(info.run_id).result(timeout_s=120)

    assert "result" not in response.text
    assert result.outcome == "CANCELLED"
