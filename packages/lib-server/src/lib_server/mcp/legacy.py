"""Streamable HTTP for clients of 2025-11-25 and before that have a session.

Each request has a transport of its own, as those without a session have. What is different: the
capabilities of the client are known, and it answers questions while a call goes on. The question is
sent in the response of the call; the answer comes as a request, to whichever process. Such a client
hears of changes on a stream that it opens with `GET`, from any process, and in the same way goes on
reading a response that it has lost, from the process that carries the call out.

Source: modelcontextprotocol.io, Streamable HTTP, 2025-11-25.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

import anyio
from mcp.server.connection import Connection
from mcp.server.runner import serve_connection
from mcp.server.streamable_http import (
    LAST_EVENT_ID_HEADER,
    MCP_SESSION_ID_HEADER,
    StreamableHTTPServerTransport,
)
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.dispatcher import CallOptions, coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher, cancelled_request_id_from_params
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    DEFAULT_NEGOTIATED_VERSION,
    INVALID_REQUEST,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from mcp_types.jsonrpc import jsonrpc_message_adapter
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from lib._util.clock import Clock
from lib._util.json import canonical
from lib.errors import StoreError
from lib.mcp import Caller, MCPToolServer
from lib.mcp.sdk import types
from lib.mcp.server import CALLER_KEY
from lib.mcp.sessions import LegacySession, LegacySessions
from lib_server.channels import message
from lib_server.limits import Limits
from lib_server.mcp.kept_calls import KeptCall, KeptCalls
from lib_server.problems import Problem
from lib_server.sse import HEADERS, HEARTBEAT, RETRY, RETRY_MS, disconnected

_log = logging.getLogger("lib_server")
_CHANNEL: Final = TransportContext(kind="streamable-http", can_send_request=True)


class LegacyEndpoint:
    """Answers the requests of clients that have a session, or begin one."""

    def __init__(self, server: MCPToolServer, state: Any, limits: Limits, clock: Clock) -> None:
        """Take the server of tools, the state of its lifespan, limits of streams, and a clock."""
        self._server = server
        self._limits = limits
        self._sessions = server.sessions
        self._state = state
        self._open: dict[str, set[_Asking]] = {}
        self._streams: dict[str, set[_SessionStream]] = {}
        self._kept = KeptCalls(clock=clock, keep_s=limits.resume_s)

    async def answer(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> bool:
        """Answer a request of 2025-11-25 or before; return False if it is of no session."""
        message, headers = _message(body), Headers(scope=scope)
        session_id = headers.get(MCP_SESSION_ID_HEADER)
        caller: Caller = scope[CALLER_KEY]
        owner = _owner(caller)
        session: LegacySession | None
        if message.get("method") == "initialize":
            params = message.get("params")
            declared = cast("Any", params).get("capabilities") if isinstance(params, dict) else None
            session = await self._sessions.begin(declared, owner)
        elif session_id is None:
            return False
        else:
            session = await self._sessions.read(session_id, owner)
        if session is None:
            await _NO_SESSION(scope, receive, send)
        elif _is_answer(message):
            await (await self._taken(session, message))(scope, receive, send)
        else:
            if message.get("method") == "notifications/cancelled":
                self._cancel(session, message.get("params"))
            scope = {**scope, CALLER_KEY: replace(caller, session=session)}
            await self._serve(session, message, scope, receive, send)
        return True

    async def listen(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a session what it hears of, or the rest of a response that its client has lost.

        The response ends with the session, when its client goes, or when the server stops.

        Raises:
            Problem: `method_not_allowed`: nothing changes here, or not for this version.
        """
        headers = Headers(scope=scope)
        last_event_id = headers.get(LAST_EVENT_ID_HEADER, "")
        version = headers.get(MCP_PROTOCOL_VERSION_HEADER, DEFAULT_NEGOTIATED_VERSION)
        can_hear = self._server.has_streams or last_event_id
        if version in MODERN_PROTOCOL_VERSIONS or not can_hear:
            detail = "there is nothing to hear of: no list and no resource changes"
            raise Problem("method_not_allowed", detail, headers={"allow": "POST"})
        if version not in HANDSHAKE_PROTOCOL_VERSIONS:
            refused = _refused(HTTPStatus.BAD_REQUEST, "this version of the protocol is not served")
            await refused(scope, receive, send)
            return
        caller: Caller = scope[CALLER_KEY]
        session_id = headers.get(MCP_SESSION_ID_HEADER, "")
        session = await self._sessions.read(session_id, _owner(caller))
        if session is None:
            await _NO_SESSION(scope, receive, send)
            return
        stopping = caller.stopping or asyncio.Event()
        sent = partial(
            _SessionStream, session, self._sessions, limits=self._limits, stopping=stopping
        )
        if last_event_id:
            reader = self._kept.reader(session, last_event_id)
            if reader is None:
                await _NOT_KEPT(scope, receive, send)
                return
            with self._opened(session, sent(reader.next, reader.end)) as stream:
                await stream(scope, receive, send)
        else:
            async with self._server.stream(session, caller.tenant) as heard:

                async def changes() -> bytes:
                    return b"".join(map(_event, await heard.next()))

                with self._opened(session, sent(changes, heard.end)) as stream:
                    await stream(scope, receive, send)

    @contextmanager
    def _opened(self, session: LegacySession, stream: _SessionStream) -> Generator[_SessionStream]:
        """Let a stream end with its session while it is open."""
        opened = self._streams.setdefault(session.name, set())
        opened.add(stream)
        try:
            yield stream
        finally:
            stream.end()
            opened.discard(stream)
            if not opened:
                self._streams.pop(session.name, None)

    async def end(self, scope: Scope, receive: Receive, send: Send) -> None:
        """End a session, and with it its streams and calls.

        Its streams in other processes end with their next heart-beat, its calls there go on.

        Raises:
            Problem: `method_not_allowed`: this version has no sessions.
        """
        version = Headers(scope=scope).get(MCP_PROTOCOL_VERSION_HEADER, DEFAULT_NEGOTIATED_VERSION)
        if version in MODERN_PROTOCOL_VERSIONS:
            detail = "this version of the protocol has no sessions"
            raise Problem("method_not_allowed", detail, headers={"allow": "POST"})
        session_id = Headers(scope=scope).get(MCP_SESSION_ID_HEADER, "")
        session = await self._sessions.read(session_id, _owner(scope[CALLER_KEY]))
        if session is None:
            await _NO_SESSION(scope, receive, send)
            return
        await self._sessions.end(session)
        for stream in tuple(self._streams.get(session.name, ())):
            stream.end()
        for calls in tuple(self._open.get(session.name, ())):
            calls.cancel_all()
        await Response(status_code=HTTPStatus.NO_CONTENT)(scope, receive, send)

    async def _taken(self, session: LegacySession, message: Mapping[str, Any]) -> Response:
        if await self._sessions.answer(session, message):
            return Response(status_code=HTTPStatus.ACCEPTED)
        return _refused(HTTPStatus.BAD_REQUEST, "no question to this client has this id")

    def _cancel(self, session: LegacySession, params: Any) -> None:
        """Cancel what this process does for another request of the session."""
        found = cast("dict[str, Any]", params) if isinstance(params, dict) else None
        request_id = cancelled_request_id_from_params(found)
        if request_id is not None:
            for each in self._open.get(session.name, ()):
                each.cancel(request_id)

    async def _serve(
        self,
        session: LegacySession,
        message: Mapping[str, Any],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        version = Headers(scope=scope).get(MCP_PROTOCOL_VERSION_HEADER, DEFAULT_NEGOTIATED_VERSION)
        resumable = version >= _RESUMABLE_SINCE and message.get("method") in _CALLS
        call = self._kept.begin(session, message.get("id", "")) if resumable else None
        transport = _Transport(session.id, call)
        connection = Connection.from_envelope(version, None, None)
        connection.client_capabilities = session.capabilities
        async with transport.connect() as (read, write), anyio.create_task_group() as group:
            stopping = scope[CALLER_KEY].stopping
            dispatcher = _Asking(read, write, self._sessions, session, stopping)
            serve = partial(
                serve_connection,
                connection=connection,
                lifespan_state=self._state,
                init_options=self._server.initialization_options(),
            )
            group.start_soon(serve, self._server.protocol, dispatcher)
            opened = self._open.setdefault(session.name, set())
            opened.add(dispatcher)
            try:
                await transport.handle_request(scope, receive, send)
                if call is not None and call.has_begun:
                    await self._kept.outlive(call, stopping)
            finally:
                if call is not None:
                    await self._kept.end(call)
                opened.discard(dispatcher)
                if not opened:
                    self._open.pop(session.name, None)
                with anyio.CancelScope(shield=True):
                    await transport.terminate()


class _Transport(StreamableHTTPServerTransport):
    """Carries a request; who ends its response ends what is read in its place, too."""

    def __init__(self, session_id: str, call: KeptCall | None) -> None:
        super().__init__(session_id, event_store=call, retry_interval=RETRY_MS)
        self._call = call
        if call is not None:
            call.close_response = partial(self.close_sse_stream, str(call.request_id))

    def close_sse_stream(self, request_id: RequestId) -> None:
        """End the response of a request, or who reads it."""
        super().close_sse_stream(request_id)
        if self._call is not None:
            self._call.end_readers()


class _Asking(JSONRPCDispatcher[TransportContext]):
    """Sends the questions of a call in its response, and waits for answers of other requests."""

    def __init__(
        self,
        read: ReadStream[SessionMessage | Exception],
        write: WriteStream[SessionMessage],
        sessions: LegacySessions,
        session: LegacySession,
        stopping: asyncio.Event | None,
    ) -> None:
        super().__init__(
            read,
            write,
            inline_methods=frozenset({"initialize"}),
            transport_builder=lambda _: _CHANNEL,
        )
        self._write_to = write
        self._sessions = sessions
        self._session = session
        self._stopping = stopping

    def cancel(self, request_id: RequestId) -> None:
        """Cancel a request, which then is not answered, if this process carries it out."""
        found = self._in_flight.get(coerce_request_id(request_id))
        if found is not None:
            found.dctx.cancel_requested.set()
            found.scope.cancel()

    def cancel_all(self) -> None:
        """Cancel every request."""
        for request_id in tuple(self._in_flight):
            self.cancel(request_id)

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        *,
        _related_request_id: RequestId | None = None,
    ) -> dict[str, Any]:
        """Return the answer to a question.

        Raises:
            MCPError: the answer is an error, or the server stops.
        """
        metadata = ServerMessageMetadata(related_request_id=_related_request_id)

        async def send(question_id: str) -> None:
            question = JSONRPCRequest(
                jsonrpc="2.0", id=question_id, method=method, params=dict(params or {})
            )
            await self._write_to.send(SessionMessage(question, metadata=metadata))

        answer = await self._sessions.ask(self._session, send, stopping=self._stopping)
        if "error" in answer:
            error = answer["error"]
            raise MCPError(error["code"], error["message"], error.get("data"))
        result: dict[str, Any] = answer["result"]
        return result


class _SessionStream:
    """An ASGI response that sends what a session hears."""

    def __init__(
        self,
        session: LegacySession,
        sessions: LegacySessions,
        following: Callable[[], Awaitable[bytes]],
        end: Callable[[], None],
        *,
        limits: Limits,
        stopping: asyncio.Event,
    ) -> None:
        """Send what comes.

        Args:
            session: with whose end the response ends.
            sessions: of the server.
            following: waits for what comes next and returns it; nothing at the end.
            end: lets it return nothing.
            limits: of the server.
            stopping: ends the response.
        """
        self._following = following
        self.end = end
        self._session = session
        self._sessions = sessions
        self._limits = limits
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        session_id = (MCP_SESSION_ID_HEADER.encode(), self._session.id.encode())
        await send(
            {"type": "http.response.start", "status": 200, "headers": [*HEADERS, session_id]}
        )
        gone = asyncio.ensure_future(disconnected(receive))
        stopped = asyncio.ensure_future(self._stopping.wait())
        for each in (gone, stopped):
            each.add_done_callback(lambda _: self.end())
        try:
            await self._send_all(send)
        except TimeoutError:
            _log.info("a stream was cut: its client has read nothing for a while")
            return
        except StoreError:
            _log.exception("a stream ends early: the event store cannot be read")
        finally:
            gone.cancel()
            stopped.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        """Send what comes, and heart-beats in between.

        Raises:
            TimeoutError: the client has read nothing for too long.
            StoreError: the store cannot be read.
        """
        idle_s = min(self._limits.heartbeat_s, self._limits.recheck_s)
        content = RETRY
        coming = asyncio.ensure_future(self._following())
        try:
            while True:
                async with asyncio.timeout(self._limits.stalled_s):
                    await send({"type": "http.response.body", "body": content, "more_body": True})
                await asyncio.wait([coming], timeout=idle_s)
                if await self._sessions.read(self._session.id, self._session.owner) is None:
                    return
                content = HEARTBEAT
                if coming.done():
                    if not (content := coming.result()):
                        return
                    coming = asyncio.ensure_future(self._following())
        finally:
            coming.cancel()


def _event(notification: types.ServerNotification) -> bytes:
    content: dict[str, Any] = notification.model_dump(mode="json", by_alias=True, exclude_none=True)
    return message("message", {"jsonrpc": "2.0", **content})


def _owner(caller: Caller) -> str:
    return canonical([caller.tenant, caller.user])


def _message(body: bytes) -> dict[str, Any]:
    """Return a message of JSON-RPC; {} for what the transport is to refuse."""
    try:
        found = from_json(body, allow_inf_nan=False)  # refuses what nests too deeply, too
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _is_answer(message: Mapping[str, Any]) -> bool:
    try:
        found = jsonrpc_message_adapter.validate_python(message, by_name=False)
    except ValidationError:
        return False
    return isinstance(found, JSONRPCResponse | JSONRPCError)


def _refused(status: HTTPStatus, message: str) -> Response:
    error = {"code": INVALID_REQUEST, "message": message}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status)


_CALLS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The requests that functions of the application answer, so that they may take long."""

_RESUMABLE_SINCE: Final = "2025-11-25"
_NOT_KEPT: Final = _refused(
    HTTPStatus.BAD_REQUEST, "no call has this event in this process, or has it any more"
)
_NO_SESSION: Final = _refused(  # its client is to begin another one
    HTTPStatus.NOT_FOUND, "there is no such session"
)
