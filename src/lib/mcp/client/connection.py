"""One connection to a server: opened, kept and closed in a task of its own.

The SDK's client is a context that must be left by the task that has entered it, and that any fault
of a transport breaks. Neither is to reach the tasks of runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from lib._util.tasks import cancelled
from lib.errors import ToolError
from lib.mcp.client.sdk import Client, ClientRequestContext, ClientSession, MCPError, types
from lib.mcp.task_types import (
    TASKS,
    CancelTaskRequest,
    CreateTaskResult,
    GetTaskRequest,
    GetTaskResult,
    TaskParams,
    UpdateTaskParams,
    UpdateTaskRequest,
)

_log = logging.getLogger("lib.mcp")

T = TypeVar("T")

NOT_SENT: Final = -32097
"""The code of an error that our own transport answers for a server that was not reached."""

MAX_ROUNDS: Final = 8
MAX_PAGES: Final = 50

_Result = types.CallToolResult | types.InputRequiredResult | CreateTaskResult
_RESULT: Final = TypeAdapter[_Result](_Result)
_REQUESTS: Final = TypeAdapter[types.InputRequests](types.InputRequests)
_WIRE: Final[Mapping[str, Any]] = {"mode": "json", "by_alias": True, "exclude_none": True}
_FIRST_STATELESS: Final = "2026-07-28"

Open = Callable[[asyncio.Event], AbstractAsyncContextManager[Client]]
"""Makes a client that is not entered yet; it sets the event when its connection has ended."""


class ConnectionLostError(Exception):
    """The connection ended while an answer was waited for."""


class Connection:
    """A connection that is there until it breaks, is retired or closed."""

    def __init__(self, client: Client, ended: asyncio.Event) -> None:
        """Take an entered client, and the event that says that its connection has ended."""
        self._client = client
        self._ended = ended
        self._users = 0
        self._retired = False

    @property
    def usable(self) -> bool:
        """True if new calls may be made on it."""
        return not (self._retired or self._ended.is_set())

    @property
    def announces_changes(self) -> bool:
        """True if the server says when its tools change."""
        tools = self._client.server_capabilities.tools
        return tools is not None and bool(tools.list_changed)

    @property
    def makes_tasks(self) -> bool:
        """True if the server may make tasks of calls."""
        return TASKS in (self._client.server_capabilities.extensions or {})

    @property
    def is_stateless(self) -> bool:
        """True if the server speaks 2026-07-28 or later."""
        return self._client.protocol_version >= _FIRST_STATELESS

    def retire(self) -> None:
        """Make no new calls on it; it is closed when those under way have ended."""
        self._retired = True
        if self._users == 0:
            self._ended.set()

    async def list_tools(self, max_tools: int) -> tuple[list[types.Tool], int]:
        """Return the server's tools, and for how many milliseconds they may be kept.

        Raises:
            ToolError: there are more than `max_tools`.
            MCPError: the server refuses, or cannot be reached.
            ConnectionLostError: the connection ended.
        """
        tools: list[types.Tool] = []
        cursor, ttl_ms = None, None
        for _ in range(MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor)
            page = await self._used(self._client.session.list_tools(params=params))
            tools += page.tools
            ttl_ms = page.ttl_ms if ttl_ms is None else min(ttl_ms, page.ttl_ms)
            if len(tools) > max_tools:
                raise ToolError("too_large", f"it lists more than {max_tools} tools")
            if (cursor := page.next_cursor) is None:
                return tools, ttl_ms
        raise ToolError("too_large", f"its list has more than {MAX_PAGES} pages")

    async def call(
        self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> types.CallToolResult | CreateTaskResult:
        """Call a tool; requests for input are answered by the client's callbacks.

        The result is not held against the output schema: patterns in a schema that a stranger
        has written can take for ever.

        Raises:
            ToolError: the server wants too much input, or input that it does not get.
            MCPError: the server refuses, or cannot be reached.
            ConnectionLostError: the connection ended.
        """
        responses: dict[str, Any] | None = None
        state: str | None = None
        for _ in range(MAX_ROUNDS):
            params = types.CallToolRequestParams(
                name=name,
                arguments=dict(arguments),
                input_responses=responses,
                request_state=state,
                _meta=dict(meta),  # pyright: ignore[reportArgumentType] - a TypedDict of open keys
            )
            request = types.CallToolRequest(params=params)
            result = await self._used(self._client.session.send_request(request, _RESULT))
            if not isinstance(result, types.InputRequiredResult):
                return result
            state = result.request_state
            responses = await _answers(self._client.session, result.input_requests or {})
        raise ToolError("failed", f"the server wants input more than {MAX_ROUNDS} times")

    async def task(self, task_id: str) -> GetTaskResult:
        """Return the state of a task.

        Raises:
            MCPError: the server refuses, or cannot be reached.
            ConnectionLostError: the connection ended.
            ValidationError: it is no state.
        """
        request = GetTaskRequest(params=TaskParams(task_id=task_id))
        return await self._used(self._client.session.send_request(request, GetTaskResult))

    async def answer_task(self, task_id: str, requests: Mapping[str, Any]) -> None:
        """Answer questions of a task by the client's callbacks.

        Raises:
            ToolError: the server asks for input that it does not get.
            Exception: as `task` does.
        """
        questions = _REQUESTS.validate_python(dict(requests), by_name=False)
        answers = await _answers(self._client.session, questions)
        shown = {key: each.model_dump(**_WIRE) for key, each in answers.items()}
        params = UpdateTaskParams(task_id=task_id, input_responses=shown)
        request = UpdateTaskRequest(params=params)
        await self._used(self._client.session.send_request(request, types.EmptyResult))

    async def cancel_task(self, task_id: str) -> None:
        """Ask the server to end a task.

        Raises:
            Exception: as `task` does.
        """
        request = CancelTaskRequest(params=TaskParams(task_id=task_id))
        await self._used(self._client.session.send_request(request, types.EmptyResult))

    async def each_change(self) -> AsyncGenerator[None]:
        """Yield whenever a stateless server says that its tools have changed."""
        async with self._client.listen(tools_list_changed=True) as changes:
            async for _ in changes:
                yield None

    async def _used(self, answer: Any) -> Any:
        """Wait for an answer, but not beyond the end of the connection."""
        self._users += 1
        waiting = asyncio.ensure_future(answer)
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait([waiting, ended], return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
            raise ConnectionLostError
        finally:
            await cancelled(ended)
            await cancelled(waiting)
            self._users -= 1
            if self._retired and self._users == 0:
                self._ended.set()


async def _answers(
    session: ClientSession, requests: Mapping[str, types.InputRequest]
) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for key, request in requests.items():
        meta = request.params.meta if request.params else None
        context = ClientRequestContext(session=session, request_id=key, meta=meta)
        answer = await session.dispatch_input_request(context, request)
        if isinstance(answer, types.ErrorData):
            message = "the server asks for input that it does not get here"
            raise ToolError("unsupported", message)
        answers[key] = answer
    return answers


class Connector:
    """Opens connections to one server, one at a time, and closes them all in the end."""

    def __init__(self, opening: Open, *, on_open: Callable[[Connection], Sequence[Any]]) -> None:
        """Prepare; nothing is opened yet.

        Args:
            opening: makes a client.
            on_open: returns coroutines to run as long as a connection lasts.
        """
        self._opening, self._on_open = opening, on_open
        self._lock = asyncio.Lock()
        self._current: Connection | None = None
        self._owners: dict[asyncio.Task[None], asyncio.Event] = {}
        self._closed = False

    async def get(self, timeout_s: float) -> Connection:
        """Return a usable connection, opened within the time-out.

        Raises:
            ToolError: there is none: nothing was sent.
        """
        async with self._lock:
            if self._current is not None and self._current.usable:
                return self._current
            if self._closed:
                raise ToolError("unavailable", "not called: the engine is closing")
            self._current = await self._open(timeout_s)
            return self._current

    async def _open(self, timeout_s: float) -> Connection:
        ready: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        ended = asyncio.Event()
        owner = asyncio.create_task(self._own(ready, ended), name="lib.mcp.connection")
        self._owners[owner] = ended
        owner.add_done_callback(self._owners.pop)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wait([ready, owner], return_when=asyncio.FIRST_COMPLETED)
                if ready.done():
                    return ready.result()
            why = "the MCP server cannot be reached"
        except TimeoutError:
            why = f"the MCP server gave no answer within {timeout_s:g} s"
        finally:
            if not ready.done():
                owner.cancel()
        raise ToolError("unavailable", f"not called: {why}")

    async def _own(self, ready: asyncio.Future[Connection], ended: asyncio.Event) -> None:
        """Enter the client, wait for the end of its connection, and leave it."""
        try:
            async with self._opening(ended) as client:
                connection = Connection(client, ended)
                if not ready.done():
                    ready.set_result(connection)
                async with _running(self._on_open(connection)):
                    await ended.wait()
        # Around the SDK and a stranger's server: whatever they raise is the end of a connection.
        except Exception as error:  # noqa: BLE001 - see above
            _log.debug("a connection to an MCP server has ended: %s", type(error).__name__)
        finally:
            ended.set()

    async def aclose(self) -> None:
        """End all connections and wait for that. Safe to repeat."""
        self._closed = True
        owners = dict(self._owners)
        for ended in owners.values():
            ended.set()
        if owners:
            await asyncio.wait(owners)


@asynccontextmanager
async def _running(work: Sequence[Any]) -> AsyncGenerator[None]:
    """Run coroutines beside the body; what they raise ends them alone."""
    tasks = [asyncio.create_task(each, name="lib.mcp.listen") for each in work]
    try:
        yield
    finally:
        for task in tasks:
            await cancelled(task)
            with suppress(asyncio.CancelledError):
                if (error := task.exception()) is not None:
                    _log.debug("listening to an MCP server ended: %s", type(error).__name__)


def is_certain_refusal(error: MCPError) -> bool:
    """Return True if a call that got this error has had no effect."""
    return error.code in {
        NOT_SENT,
        types.METHOD_NOT_FOUND,
        types.INVALID_PARAMS,
        types.HEADER_MISMATCH,
        types.UNSUPPORTED_PROTOCOL_VERSION,
        types.MISSING_REQUIRED_CLIENT_CAPABILITY,
    }
