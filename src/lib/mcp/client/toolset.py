"""`MCPTools`: the tools of an MCP server, for agents."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, get_args

import httpx2

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.errors import LibError, ToolError
from lib.llm import LLMClient
from lib.mcp.client.connection import (
    Connection,
    ConnectionLostError,
    Connector,
    is_certain_refusal,
)
from lib.mcp.client.definitions import ToolRules, as_output, as_tools
from lib.mcp.client.inputs import Elicit, Sampling, elicitation_callback
from lib.mcp.client.network import EndpointTransport, Headers, policy_for
from lib.mcp.client.process import ServerProcess, process_streams
from lib.mcp.client.sdk import Client, MCPError, advertise, streamable_http_client, types
from lib.mcp.client.tasks import UNKNOWN, TaskFollower
from lib.mcp.task_types import IDEMPOTENCY_KEY, TASKS, CreateTaskResult
from lib.tools import Effects, OpenToolset, Tool, ToolContext
from lib.tools.definition import ToolCallable

_log = logging.getLogger("lib.mcp")

LEGACY_TTL_S: Final = 60.0
"""How long a list is kept whose server cannot say it: one of a protocol before 2026-07-28."""

COOLDOWN_S: Final = 15.0
"""How long a server is left alone whose tools were not found."""

MAX_TTL_S: Final = 3_600.0

LATE_S: Final = 2.0
"""How long a server that makes tasks may take to name the one of a call that was cancelled."""

_Answer = types.CallToolResult | CreateTaskResult


class MCPTools:
    """The tools of an MCP server: a description, which each engine opens for itself.

    `Agent(…, tools=[MCPTools("https://example.com/mcp")])`. The server is a stranger: its texts are
    fenced, its list, results and messages are limited, and a call whose outcome is not known is not
    repeated. Its tools are found when a run needs them; while it is down, calls fail, and the
    engine goes on. It speaks 2026-07-28 and the versions before it.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        command: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        inherit_env: Collection[str] = (),
        cwd: str | None = None,
        headers: Headers | None = None,
        auth: httpx2.Auth | None = None,
        allow_private_networks: bool = False,
        prefix: str = "",
        include: Collection[str] | None = None,
        exclude: Collection[str] = (),
        effects: Mapping[str, Effects] | None = None,
        trusted: bool = False,
        approval: bool | Collection[str] = False,
        sampling: bool = False,
        elicit: Elicit | None = None,
        timeout_s: float | None = 60.0,
        task_timeout_s: float | None = 3_600.0,
        connect_timeout_s: float = 10.0,
        max_tools: int = 128,
        max_bytes: int = 4_000_000,
        max_output_chars: int = 20_000,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Describe a server; nothing is opened.

        Args:
            url: of a server that speaks Streamable HTTP. Only its host and port are reached, over
                connections to checked public addresses; redirects within its origin are followed.
            command: instead of a URL, a program and its arguments that speaks over stdin and
                stdout. It is started when it is needed and ends with the engine, and with this
                process however that ends.
            env: variables of the program's environment. Of ours it gets `PATH`, `HOME`, the locale
                and the like, and no others, so that it inherits no secrets.
            inherit_env: names of further variables of ours that it gets.
            cwd: the program's directory.
            headers: sent to the URL's origin alone, or an async function that returns them for
                each request.
            auth: authenticates requests, as `mcp.client.auth.OAuthClientProvider` does; then other
                public hosts may be reached, too.
            allow_private_networks: whether the URL may lead to a private network, and be an http
                one.
            prefix: put before the names of the tools, such as "github_".
            include: the names, as the server has them, of the tools that are offered; None for all.
            exclude: the names of those that are not.
            effects: what some tools do, by name, whatever the server says. Else one with
                `readOnlyHint` has the effect "none", and any other "once".
            trusted: whether to believe `idempotentHint`, which makes a tool "idempotent": it then
                gets the same key with a repeated call in `_meta`, as "lib.agents/idempotency-key".
            approval: whether a person must approve calls: all, none, or those of these names.
            sampling: whether the server may have the agent's model answer, a few times a call, at
                the cost of the application and outside the run's budget.
            elicit: hands the server's questions to a person, within a call's time-out.
            timeout_s: seconds for one call; None is unlimited.
            task_timeout_s: seconds that a call may take beyond that if the server makes it a task,
                whose state is read while it goes on there; None is unlimited.
            connect_timeout_s: seconds for connecting, and for finding the tools.
            max_tools: a server that lists more has none.
            max_bytes: how much it may send at a time: in a response, or between two messages of
                ours.
            max_output_chars: how much of an output a model gets.
            clock: the time.

        Raises:
            MissingDriver: the extra `mcp` is not installed.
            ValueError: not exactly one of URL and command was passed, or a value makes no sense.
            TypeError: the command is no list of texts.
            FetchBlocked: the URL is not one of http or https.
        """
        if (url is None) == (command is None):
            raise ValueError("expected either a URL or command=[…] of an MCP server")
        self._rules = ToolRules(
            prefix=prefix,
            include=None if include is None else _names(include, "include"),
            exclude=_names(exclude, "exclude"),
            effects=_effects(effects or {}),
            trusted=trusted,
            approval=approval if isinstance(approval, bool) else _names(approval, "approval"),
            timeout_s=timeout_s,
            task_timeout_s=task_timeout_s,
            max_output_chars=max_output_chars,
        )
        self._url, self._headers, self._auth = url, headers or {}, auth
        self._server = (
            None
            if command is None
            else ServerProcess(
                command=_command(command),
                env=dict(env or {}),
                inherit=_names(inherit_env, "inherit_env"),
                cwd=cwd,
                max_bytes=max_bytes,
            )
        )
        self._policy = (
            None
            if url is None
            else policy_for(
                url, private=allow_private_networks, anywhere=auth is not None, max_bytes=max_bytes
            )
        )
        self._sampling, self._elicit = sampling, elicit
        self.connect_timeout_s: float = connect_timeout_s
        self.max_tools: int = max_tools
        self.clock: Clock = clock

    def __repr__(self) -> str:
        """Return it without what may be secret: arguments, paths, headers."""
        target = self._server.command[0] if self._server else "https://…"
        return f"MCPTools({target!r})"

    def open_tools(self, models: Sequence[LLMClient]) -> OpenToolset:
        """Return the tools for one engine; nothing is connected yet."""
        sampling = Sampling(models[0]) if self._sampling else None
        return _OpenMCPTools(self, self._rules, sampling)

    @asynccontextmanager
    async def client(
        self, ended: asyncio.Event, sampling: Sampling | None, on_message: Callable[[Any], Any]
    ) -> AsyncGenerator[Client]:
        """Connect, and yield the client of the SDK; see `Connector`."""
        options: dict[str, Any] = {
            "sampling_callback": sampling,
            "elicitation_callback": elicitation_callback(self._elicit) if self._elicit else None,
            "message_handler": on_message,
            "client_info": types.Implementation(name="lib", version="1"),
            "cache": None,
            "extensions": [advertise(TASKS)],
        }
        if self._server is not None:
            async with Client(process_streams(self._server, ended), **options) as client:
                yield client
            return
        assert self._url is not None and self._policy is not None  # noqa: S101, PT018 - the other way
        network = EndpointTransport(self._url, self._policy, self._headers)
        timeout = httpx2.Timeout(None)  # calls and lists have time-outs of their own
        async with httpx2.AsyncClient(transport=network, auth=self._auth, timeout=timeout) as http:
            streams = streamable_http_client(self._url, http_client=http)
            async with Client(streams, **options) as client:
                yield client


class _OpenMCPTools:
    """The tools of a server as one engine uses them."""

    def __init__(self, server: MCPTools, rules: ToolRules, sampling: Sampling | None) -> None:
        self._server, self._rules, self._sampling = server, rules, sampling
        self._tools: list[Tool] = []
        self._fresh_until = self._retry_at = float("-inf")
        self._changed = False
        self._refreshing = asyncio.Lock()
        self._late = set[asyncio.Task[None]]()
        self._connector = Connector(
            lambda ended: server.client(ended, sampling, self._on_message), on_open=self._on_open
        )

    @property
    def tools(self) -> Sequence[Tool]:
        return self._tools

    async def refresh(self) -> None:
        async with self._refreshing:
            now = self._server.clock.monotonic()
            if now < self._fresh_until or now < self._retry_at:
                return
            try:
                async with asyncio.timeout(self._server.connect_timeout_s):
                    await self._list()
            except TimeoutError:
                self._back_off("it gave no answer in time")
            except ToolError as error:
                self._back_off(error.message)
            # Around a stranger's server: a list that cannot be read is no list.
            except Exception as error:  # noqa: BLE001 - see above
                self._back_off(type(error).__name__)

    def _back_off(self, why: str) -> None:
        self._retry_at = self._server.clock.monotonic() + COOLDOWN_S
        _log.warning("the tools of an MCP server were not found: %s", why)

    async def _list(self) -> None:
        connection = await self._connect()
        self._fresh_until = float("inf")  # until a change that comes meanwhile says otherwise
        try:
            listed, ttl_ms = await connection.list_tools(self._server.max_tools)
        except BaseException:
            self._fresh_until = float("-inf")
            connection.retire()
            raise
        self._changed = False
        self._tools = as_tools(listed, self._rules, self._caller)
        ttl_s = min(ttl_ms / 1000, MAX_TTL_S) if connection.is_stateless else LEGACY_TTL_S
        until = self._server.clock.monotonic() + ttl_s
        self._fresh_until = min(self._fresh_until, until)

    def _caller(self, name: str, version: str) -> ToolCallable:
        async def call(arguments: Mapping[str, Any], context: ToolContext) -> str:
            tool, connection = await self._tool_and_connection(version)
            if self._sampling is not None:
                self._sampling.begin_call()
            meta = {IDEMPOTENCY_KEY: context.idempotency_key}
            try:
                calling = connection.call(name, arguments, meta)
                result = await self._result(connection, calling, cancels=tool.effects == "once")
            except MCPError as error:
                raise self._failed(connection, error) from error
            except ConnectionLostError:
                message = f"the connection to the server was lost; {UNKNOWN}"
                raise ToolError("unknown", message) from None
            except LibError:
                raise
            # Around the SDK: what it cannot read is an answer all the same.
            except Exception as error:
                message = f"the server's answer cannot be read; {UNKNOWN}"
                raise ToolError("unknown", message) from error
            return as_output(result, name)

        return call

    async def _result(
        self, connection: Connection, calling: Coroutine[Any, Any, _Answer], *, cancels: bool
    ) -> types.CallToolResult:
        """Return the result of a call, also if the server makes it a task.

        Args:
            connection: the call is made on it.
            calling: makes the call.
            cancels: whether to cancel the task when its end is not waited for any more.
        """
        if cancels and connection.makes_tasks:
            calling = self._without_late_task(calling)
        async with self._time_for_a_call():
            result = await calling
        if isinstance(result, CreateTaskResult):
            follower = TaskFollower(result, self._connect, self._server.clock)
            return await follower.result(cancels=cancels)
        return result

    async def _without_late_task(self, call: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Return the answer to a call; a caller that is cancelled leaves no task behind.

        Only the answer names the task, so it is waited for in the background for a moment longer.
        """
        calling = asyncio.ensure_future(call)
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            late = asyncio.create_task(self._cancel_late_task(calling), name="lib.mcp.late_task")
            self._late.add(late)
            late.add_done_callback(self._late.discard)
            raise

    async def _cancel_late_task(self, calling: asyncio.Future[_Answer]) -> None:
        with suppress(Exception):  # around a stranger's server, and too late for errors
            async with asyncio.timeout(LATE_S):
                created = await calling
            if isinstance(created, CreateTaskResult):
                await TaskFollower(created, self._connect, self._server.clock).cancel()

    @asynccontextmanager
    async def _time_for_a_call(self) -> AsyncGenerator[None]:
        """Limit the body to the time of a call that is no task.

        Raises:
            ToolError: it takes longer.
        """
        timeout_s = self._rules.timeout_s
        deadline = asyncio.timeout(timeout_s)
        try:
            async with deadline:
                yield
        except TimeoutError:
            if not deadline.expired():
                raise
            raise ToolError("timeout", f"no answer within {timeout_s:g} s; {UNKNOWN}") from None

    async def _connect(self) -> Connection:
        return await self._connector.get(self._server.connect_timeout_s)

    async def _tool_and_connection(self, version: str) -> tuple[Tool, Connection]:
        """Return the tool of this version, and a connection for a call of it.

        Raises:
            ToolError: there is none, or the tool is another one by now.
        """
        connection = await self._connect()
        if self._changed:  # the server says so, or is another process by now
            await self.refresh()
        for tool in self._tools:
            if tool.version == version:
                return tool, connection
        raise ToolError("denied", "not called: the server has changed the tool's definition")

    def _failed(self, connection: Connection, error: MCPError) -> ToolError:
        """Return a call's failure; the server's words stay out of it."""
        if error.code == types.HEADER_MISMATCH:
            self._note_change()
        if error.code in {types.CONNECTION_CLOSED, types.INVALID_REQUEST}:
            connection.retire()
        if not is_certain_refusal(error):
            return ToolError("unknown", f"the server answered with error {error.code}; {UNKNOWN}")
        if error.code == types.INVALID_PARAMS:
            return ToolError("invalid_arguments", "the server refuses the arguments or the tool")
        return ToolError("unavailable", f"not called: the server cannot take it ({error.code})")

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._note_change()

    def _on_open(self, connection: Connection) -> Sequence[Any]:
        self._note_change()  # another process may be another release of the server
        if connection.is_stateless and connection.announces_changes:
            return [self._listen(connection)]
        return []

    async def _listen(self, connection: Connection) -> None:
        async for _ in connection.each_change():
            self._note_change()

    def _note_change(self) -> None:
        self._fresh_until, self._changed = float("-inf"), True

    async def aclose(self) -> None:
        if self._late:
            await asyncio.wait(self._late)
        await self._connector.aclose()


def _names(values: Collection[str], parameter: str) -> frozenset[str]:
    if isinstance(values, str):
        raise TypeError(f"expected a list of names as {parameter}, got one: write [{values!r}]")
    return frozenset(values)


def _effects(effects: Mapping[str, Effects]) -> Mapping[str, Effects]:
    for name, effect in effects.items():
        if effect not in get_args(Effects):
            raise ValueError(
                f"effects of {name!r} is 'none', 'idempotent' or 'once', not {effect!r}"
            )
    return dict(effects)


def _command(command: Sequence[object]) -> tuple[str, ...]:
    texts = tuple(each for each in command if isinstance(each, str))
    if isinstance(command, str) or not texts or len(texts) < len(command):
        raise TypeError(
            "expected a program and its arguments as command, such as ['uvx', 'mcp-server-time'], "
            f"got {type(command).__name__}"
        )
    return texts
