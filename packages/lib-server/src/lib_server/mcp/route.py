"""`/mcp`: the agents of the server as tools, for clients of the Model Context Protocol.

Source: modelcontextprotocol.io, Streamable HTTP, 2026-07-28.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lib._util.tasks import cancelled
from lib.engine import AgentTool, Engine, Run
from lib.engine.arguments import Input
from lib.errors import MissingDriver, ToolError
from lib_server.api.runs import admitted, allowed_budget
from lib_server.bodies import Empty
from lib_server.limits import Limits
from lib_server.problems import Problem
from lib_server.routing import JSON, AnyRoute, Call, Header, Route
from lib_server.sse import Recheck

if TYPE_CHECKING:
    from lib.mcp import MCPToolServer

_log = logging.getLogger("lib_server")
_SSE: Final = "text/event-stream"


class MCPEndpoint:
    """The endpoint of a server, opened with its first request: loading the SDK takes a second."""

    def __init__(
        self,
        engine: Engine,
        make: Callable[[Engine], MCPToolServer] | None,
        *,
        limits: Limits,
    ) -> None:
        """Take what is served; see `transport.opened`."""
        self._engine = engine
        self._make = make
        self._limits = limits
        self._stop = asyncio.Event()
        self._opened: asyncio.Future[ASGIApp] | None = None
        self._task: asyncio.Task[None] | None = None

    async def app(self) -> ASGIApp:
        """Return what answers requests.

        Raises:
            MissingDriver: the extra `mcp` is not installed.
            Exception: whatever making the server of tools raises.
        """
        if self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run(self._opened), name="lib_server.mcp")
        return await asyncio.shield(self._opened)

    async def _run(self, opened: asyncio.Future[ASGIApp]) -> None:
        try:
            transport: Any = await asyncio.to_thread(
                importlib.import_module, "lib_server.mcp.transport"
            )
            async with transport.opened(self._engine, self._make, limits=self._limits) as app:
                opened.set_result(app)
                await self._stop.wait()
        # Around what opens the endpoint: the requests that wait for it get its error.
        except Exception as error:  # noqa: BLE001 - see above
            if opened.done():
                _log.exception("the endpoint /mcp has failed")
            else:
                opened.set_exception(error)

    async def close(self) -> None:
        """Answer nothing more; safe to repeat."""
        self._stop.set()
        if self._task is not None:
            await asyncio.wait([self._task])


class ProtocolMessage(BaseModel):
    """A message of JSON-RPC 2.0; the protocol says what is in it."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    jsonrpc: str


async def _post(call: Call[Empty, None]) -> ASGIApp:
    if call.request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise Problem("unsupported_media_type", f"expected {JSON}")
    _check_accepts(call, JSON, _SSE)
    return await _answer(call)


async def _delete(call: Call[Empty, None]) -> ASGIApp:
    _check_has_session(call)
    answer, _ = await _answered(call)
    return answer


async def _get(call: Call[Empty, None]) -> ASGIApp:
    _check_has_session(call)
    _check_accepts(call, _SSE)
    return await _answer(call, resumes="last-event-id" in call.request.headers)


def _check_has_session(call: Call[Empty, None]) -> None:
    """Refuse a request that names no session.

    Raises:
        Problem: `method_not_allowed`.
    """
    if "mcp-session-id" not in call.request.headers:
        detail = "expected the id of a session of 2025-11-25 or before"
        raise Problem("method_not_allowed", detail, headers={"allow": "POST"})


async def _answer(call: Call[Empty, None], *, resumes: bool = False) -> ASGIApp:
    """Return an answer that may be a stream, and counts as one.

    Args:
        call: the request.
        resumes: whether it takes the place of a response that was lost, and that counts until its
            call has ended: it is never one too many.
    """
    quotas, principal = call.services.quotas, call.principal
    if not resumes:
        quotas.check_streams(principal)
    answer, stopping = await _answered(call)
    return quotas.counted(principal, _checked(call, answer, stopping))


async def _answered(call: Call[Empty, None]) -> tuple[ASGIApp, asyncio.Event]:
    """Return an answer, and what ends it."""
    call.check_not_draining()
    services = call.services
    if services.mcp is None:
        raise Problem("not_found", "this server does not offer its agents over MCP")
    try:
        app = await services.mcp()
    except MissingDriver as error:
        raise Problem("unsupported", "the server lacks the extra mcp") from error
    body = await call.request.body()
    stopping = asyncio.Event()
    members = _members(call, body, stopping)

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, **members}, _replaying(body, receive), send)

    return answered, stopping


def _checked(call: Call[Any, Any], answer: ASGIApp, stopping: asyncio.Event) -> ASGIApp:
    """Return an answer for whose application a caller without valid credentials has gone.

    Args:
        call: whose credentials are checked again and again.
        answer: ends when its client has gone.
        stopping: is set when the answer should end but not its runs: the server stops, or the
            credentials are no longer valid.
    """
    refused = asyncio.Event()

    async def answer_checked(scope: Scope, receive: Receive, send: Send) -> None:
        last: Message = {"type": ""}

        async def send_if_allowed(message: Message) -> None:
            nonlocal last
            if not refused.is_set():
                last = message
                await send(message)

        watching = asyncio.create_task(_watch(call, stopping, refused), name="lib_server.mcp.check")
        try:
            await answer(scope, _receiving_until(refused, receive), send_if_allowed)
        finally:
            await cancelled(watching)
        if not refused.is_set():
            return
        if not last["type"]:
            raise Problem("unauthenticated", "the credential is no longer valid")
        if last["type"] == "http.response.start" or last.get("more_body"):
            async with asyncio.timeout(call.services.limits.stalled_s):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    return answer_checked


async def _watch(call: Call[Any, Any], stopping: asyncio.Event, refused: asyncio.Event) -> None:
    """Set `stopping` when the server stops, both when a check of the credentials fails."""
    recheck, limits = call.recheck(), call.services.limits
    idle_s = min(limits.heartbeat_s, limits.recheck_s)
    ending = asyncio.ensure_future(call.services.channels.ending.wait())
    try:
        while True:
            await asyncio.wait([ending], timeout=idle_s)
            if ending.done():
                stopping.set()
                return
            if not await _passes(recheck):
                stopping.set()  # first: a client that has gone cancels its run
                refused.set()
                return
    finally:
        ending.cancel()


async def _passes(recheck: Recheck) -> bool:
    try:
        return await recheck.passes()
    # Around an authenticator of the application: what cannot be checked is not allowed.
    except Exception:  # noqa: BLE001 - see above
        _log.exception("an answer ends, since its credentials cannot be checked")
        return False


def _receiving_until(refused: asyncio.Event, receive: Receive) -> Receive:
    """Return what receives, and says that the client has gone once it is refused."""

    async def receive_or_end() -> Message:
        received = asyncio.ensure_future(receive())
        ended = asyncio.ensure_future(refused.wait())
        try:
            await asyncio.wait([received, ended], return_when=asyncio.FIRST_COMPLETED)
            return received.result() if received.done() else {"type": "http.disconnect"}
        finally:
            received.cancel()
            ended.cancel()

    return receive_or_end


def _check_accepts(call: Call[Any, Any], *media_types: str) -> None:
    """Refuse a client that does not take what may come.

    Raises:
        Problem: `not_acceptable`.
    """
    header = call.request.headers.get("accept", "")
    accepted = {each.partition(";")[0].strip() for each in header.split(",")}
    for media_type in media_types:
        if not accepted & {media_type, "*/*", f"{media_type.partition('/')[0]}/*"}:
            raise Problem("not_acceptable", f"expected {' and '.join(media_types)} in Accept")


def _members(call: Call[Any, Any], body: bytes, stopping: asyncio.Event) -> dict[str, Any]:
    """Return the members of a scope: for whom runs are started and how, and the body."""
    transport: Any = importlib.import_module("lib_server.mcp.transport")

    async def start(value: Input, offered: AgentTool, key: str) -> Run[Any]:
        try:
            budget = allowed_budget(call, offered.algorithm, None, field="budget")
            async with admitted(call, key, budget) as start_key:
                return await call.engine.start(
                    value,
                    agent=offered.agent or offered.algorithm,
                    idempotency_key=start_key,
                    tenant=call.principal.tenant,
                    user=call.principal.user,
                    budget=budget,
                    traceparent=call.request.headers.get("traceparent", ""),
                    tracestate=call.request.headers.get("tracestate"),
                )
        except Problem as problem:
            raise ToolError("denied", f"not called: {problem.detail}") from problem

    caller = transport.Caller(
        tenant=call.principal.tenant,
        user=call.principal.user,
        start=start,
        approves=bool(call.principal.scopes & {"approve", "admin"}),
        stopping=stopping,
    )
    return {transport.CALLER_KEY: caller, transport.BODY_KEY: body}


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Return what receives a body that was read already, and then what comes after it."""
    unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return unread.pop() if unread else await receive()

    return replay


ROUTES: list[AnyRoute] = [
    Route(
        method="POST",
        path="/mcp",
        handler=_post,
        summary="Exchange a message of the Model Context Protocol",
        tag="mcp",
        right="run",
        content=JSON,
        answers={
            200: ProtocolMessage,
            202: None,
            400: ProtocolMessage,
            404: ProtocolMessage,
        },
        problems=["not_acceptable", "stream_cap", "draining", "unsupported", "not_found"],
        events={"message": "a message of the protocol: progress, and at last the result"},
    ),
    Route(
        method="GET",
        path="/mcp",
        handler=_get,
        summary="Hear of changes, or the rest of a response, in a session of MCP up to 2025-11-25",
        tag="mcp",
        right="run",
        answers={200: None, 400: ProtocolMessage, 404: ProtocolMessage},
        problems=[
            *("method_not_allowed", "not_acceptable", "stream_cap"),
            *("draining", "unsupported", "not_found"),
        ],
        headers={
            "Mcp-Session-Id": Header("of the session; without one there is no stream", "[!-~]+")
        },
        events={"message": "a message of the protocol"},
    ),
    Route(
        method="DELETE",
        path="/mcp",
        handler=_delete,
        summary="End a session of MCP 2025-11-25 or before",
        tag="mcp",
        right="run",
        answers={204: None, 404: ProtocolMessage},
        problems=["method_not_allowed", "draining", "unsupported", "not_found"],
        headers={"Mcp-Session-Id": Header("of the session that ends", "[!-~]+")},
    ),
]
