"""`MCPToolServer`: tools, agents, resources and prompts for clients of the protocol."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol, Self, TypeVar

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.ids import new_id
from lib._util.json import canonical, copied, digest
from lib._util.tasks import cancelled
from lib._util.version import __version__
from lib.engine import Engine
from lib.errors import ToolError
from lib.events import EventStore
from lib.llm.schema import violations
from lib.mcp.functions import Prompt, Resource
from lib.mcp.inputs import ANSWERS, INPUTS, InputRequired, Inputs, StateSeal, form
from lib.mcp.offered import CALLER, Caller, Source, agents_in, as_registry
from lib.mcp.results import ToolSurface, failure
from lib.mcp.sdk import (
    MODERN_VERSIONS,
    MCPError,
    RequestContext,
    RequestMetadata,
    Server,
    types,
)
from lib.tools import Deps, FunctionTool, Tool, ToolContext, ToolRegistry
from lib.tools.definition import ProgressCallback
from lib.tools.output import clip

_log = logging.getLogger("lib.mcp")

T = TypeVar("T")
ANYONE: Final = Caller()
CALLER_KEY: Final = "lib.mcp.caller"
_Context = RequestContext[Any, Any]
_Paged = types.PaginatedRequestParams | None

_MAX_PROBLEMS: Final = 5
_MAX_ROUNDS: Final = 10
_MAX_SHOWN_CHARS: Final = 2_000
_APPROVAL: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Allow it"}},
    "required": ["approve"],
}
_NOT_FOUND: Final = -32002  # of resources, for clients of 2025-11-25 and before


def caller_of(request: Any) -> Caller:
    """Return the caller that an HTTP server has put into the scope of a request."""
    caller: Caller = getattr(request, "scope", {}).get(CALLER_KEY, ANYONE)
    return caller


class MCPToolServer:
    """Serves tools to clients of the Model Context Protocol, of every version since 2025-03-26.

    `serve_stdio` serves it to the program that has started this one. Arguments are checked here,
    a failed call is a result that the model reads, and what a tool declares as its effect is what
    clients see as its annotations. Each call of an agent is a run.

    `async with` opens the engine of its agents, unless that is open already.

    Attributes:
        name: of the server.
        tools: what clients may call, by name.
        protocol: the server of the SDK behind it, for transports.
    """

    def __init__(
        self,
        tools: Source = (),
        *,
        name: str = "lib",
        version: str = __version__,
        title: str | None = None,
        instructions: str = "",
        resources: Iterable[Resource[..., Any]] = (),
        prompts: Iterable[Prompt[..., Any]] = (),
        deps: Iterable[object] = (),
        store: EventStore | str | os.PathLike[str] = "memory:",
        engine: Engine | None = None,
        caller: Callable[[Any], Caller] = caller_of,
        max_calls: int = 32,
        page_size: int = 200,
        clock: Clock = SYSTEM_CLOCK,
        new_id: Callable[[], str] = new_id,
    ) -> None:
        """Put the parts together; nothing is opened.

        Args:
            tools: tools, functions and agents; or an engine, whose agents are offered.
            name: see above.
            version: of the server, as clients show it.
            title: its name for people.
            instructions: how to use it, for the models of clients.
            resources: made by `@resource`.
            prompts: made by `@prompt`.
            deps: the application's own objects, for the tools: `context.deps[Pool]`.
            store: where the runs of agents are logged, if there is no engine for them.
            engine: carries out the runs of agents that are its own, which `tools` may offer.
            caller: returns the caller of a request of the transport, None on stdio.
            max_calls: how many calls are carried out at once; further ones wait.
            page_size: how many tools, resources or prompts a list has at once.
            clock: for how long a question to a client can be answered.
            new_id: makes ids of calls.

        Raises:
            TypeError: a tool, resource or prompt is of another type, or is not in a list.
            ValueError: two have one name, or a number is below 1.
            MissingDriver: the extra `mcp` is not installed.
        """
        if min(max_calls, page_size) < 1:
            raise ValueError(f"expected at least 1, got {max_calls=}, {page_size=}")
        self.name = name
        self._engine: Engine | None = tools if isinstance(tools, Engine) else engine
        agents = agents_in(tools)
        if agents and self._engine is None:
            self._engine = Engine(store, agents=agents, deps=deps)
        self.tools: ToolRegistry = as_registry(tools, self._engine)
        self._surfaces = {tool.name: ToolSurface(tool) for tool in self.tools}
        self._resources = _by_name(resources, Resource, "@resource(…)")
        self._prompts = _by_name(prompts, Prompt, "@prompt")
        self._deps = Deps(deps)
        self._caller = caller
        self._seal = StateSeal(clock=clock)
        self._slots = asyncio.Semaphore(max_calls)
        self._page_size = page_size
        self._new_id = new_id
        self._stack: AsyncExitStack | None = None
        self.protocol: Server[Any] = self._protocol(version, title, instructions)

    def _protocol(self, version: str, title: str | None, instructions: str) -> Server[Any]:
        handlers: dict[str, Any] = {"on_list_tools": self._list_tools, "on_call_tool": self._call}
        if self._resources:
            handlers["on_list_resources"] = self._list_resources
            handlers["on_list_resource_templates"] = self._list_templates
            handlers["on_read_resource"] = self._read
        if self._prompts:
            handlers["on_list_prompts"] = self._list_prompts
            handlers["on_get_prompt"] = self._get_prompt
        if any(each.parameters for each in (*self._resources.values(), *self._prompts.values())):
            handlers["on_completion"] = self._complete
        return Server(
            self.name,
            version=version,
            title=title,
            instructions=instructions or None,
            get_tool_input_schema=self._input_schema,
            **handlers,
        )

    # -- life ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise RuntimeError("expected a server that is not open yet: enter it once")
        async with AsyncExitStack() as stack:
            if self._engine is not None and not self._engine.is_open:
                await stack.enter_async_context(self._engine)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    # -- tools -----------------------------------------------------------------------------

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        surface = self._surfaces.get(name)
        return None if surface is None else surface.definition.input_schema

    async def _list_tools(self, context: _Context, params: _Paged) -> types.ListToolsResult:
        legacy = _is_legacy(context)
        surfaces = [*self._surfaces.values()]
        page, cursor = self._page(surfaces, params)
        tools = [each.legacy_definition if legacy else each.definition for each in page]
        return types.ListToolsResult(tools=tools, next_cursor=cursor)

    async def _call(
        self, context: _Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            tool = self.tools.get(params.name)
        except ToolError as error:
            raise MCPError(types.INVALID_PARAMS, error.message) from None
        arguments = params.arguments or {}
        work = partial(self._called, context, tool, arguments)
        return await self._with_inputs(context, params, [params.name, arguments], work)

    async def _called(
        self, context: _Context, tool: Tool, arguments: Mapping[str, Any]
    ) -> types.CallToolResult:
        try:
            check_arguments(tool, arguments)
            require_approval(tool, arguments)
            async with self._slots, _progress(context) as progress:
                tool_context = self._tool_context(context, progress.report)
                value = await call_tool(tool, arguments, tool_context)
                return self._surfaces[tool.name].result(value, legacy=_is_legacy(context))
        except ToolError as error:
            return failure(error.message)

    async def _with_inputs(
        self,
        context: _Context,
        params: types.InputResponseRequestParams,
        request: Sequence[Any],
        work: Callable[[], Awaitable[T]],
    ) -> T | types.InputRequiredResult:
        """Return the result of the work, or the questions that its client must answer first.

        Args:
            context: of the request.
            params: of the request, with the answers.
            request: what names it beside its method and its caller.
            work: carries the request out; it is done again once an answer is there.
        """
        caller = self._caller(context.request)
        key = digest(context.method, canonical([request, caller.tenant, caller.user]))
        answers, sent = dict[str, types.InputResponse](), frozenset[str]()
        if params.request_state is not None:
            answers, sent = self._seal.open(params.request_state, key)
        inputs = Inputs(
            capabilities=_can_answer(context),
            answers={**answers, **(params.input_responses or {})},
            sent=sent,
        )
        for _ in range(_MAX_ROUNDS):
            INPUTS.set(inputs)
            try:
                return await work()
            except InputRequired as required:
                if not _is_legacy(context):
                    state = self._seal.seal(inputs, required, key)
                    return types.InputRequiredResult(
                        input_requests=required.requests, request_state=state
                    )
                inputs = replace(
                    inputs,
                    answers={**inputs.answers, **await _answers_of(context, required)},
                    sent=inputs.sent | required.requests.keys(),
                )
        raise MCPError(types.INVALID_REQUEST, "the answers of the client do not fit the questions")

    def _tool_context(self, context: _Context, on_progress: ProgressCallback | None) -> ToolContext:
        caller = self._caller(context.request)
        CALLER.set(caller)
        call_id = self._new_id()
        return ToolContext(
            run_id=f"mcp-{call_id}",
            call_id=str(context.request_id),
            idempotency_key=call_id,
            tenant=caller.tenant,
            user=caller.user,
            deps=self._deps,
            on_progress=on_progress,
        )

    # -- resources and prompts -------------------------------------------------------------

    async def _list_resources(self, _: _Context, params: _Paged) -> types.ListResourcesResult:
        found = [each.definition for each in self._resources.values() if not each.is_template]
        page, cursor = self._page(found, params)
        return types.ListResourcesResult(resources=page, next_cursor=cursor)

    async def _list_templates(
        self, _: _Context, params: _Paged
    ) -> types.ListResourceTemplatesResult:
        found = [each.template_definition for each in self._resources.values() if each.is_template]
        page, cursor = self._page(found, params)
        return types.ListResourceTemplatesResult(resource_templates=page, next_cursor=cursor)

    async def _read(
        self, context: _Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        for each in self._resources.values():
            arguments = each.match(params.uri)
            if arguments is not None:
                work = partial(self._content, context, each, params.uri, arguments)
                return await self._with_inputs(context, params, [params.uri], work)
        code = _NOT_FOUND if _is_legacy(context) else types.INVALID_PARAMS
        raise MCPError(code, "no resource has this URI", {"uri": params.uri})

    async def _content(
        self,
        context: _Context,
        resource: Resource[..., Any],
        uri: str,
        arguments: Mapping[str, str],
    ) -> types.ReadResourceResult:
        made = resource.contents(uri, arguments, self._tool_context(context, None))
        return types.ReadResourceResult(contents=[await self._made(made, resource.name)])

    async def _list_prompts(self, _: _Context, params: _Paged) -> types.ListPromptsResult:
        page, cursor = self._page([each.definition for each in self._prompts.values()], params)
        return types.ListPromptsResult(prompts=page, next_cursor=cursor)

    async def _get_prompt(
        self, context: _Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        prompt = self._prompts.get(params.name)
        if prompt is None:
            raise MCPError(types.INVALID_PARAMS, "no prompt has this name")
        arguments = params.arguments or {}
        work = partial(self._conversation, context, prompt, arguments)
        return await self._with_inputs(context, params, [params.name, arguments], work)

    async def _conversation(
        self, context: _Context, prompt: Prompt[..., Any], arguments: Mapping[str, str]
    ) -> types.GetPromptResult:
        made = prompt.messages(arguments, self._tool_context(context, None))
        messages = await self._made(made, prompt.name)
        return types.GetPromptResult(description=prompt.description or None, messages=messages)

    async def _made(self, made: Awaitable[T], name: str) -> T:
        """Return what a function makes; a failure is an error of the protocol."""
        try:
            async with self._slots:
                return await made
        except ToolError as error:
            wrong = error.code == "invalid_arguments"
            code = types.INVALID_PARAMS if wrong else types.INTERNAL_ERROR
            raise MCPError(code, error.message) from None
        except (MCPError, InputRequired):
            raise
        # Around functions of the application, whose errors are none of the client's concern.
        except Exception as error:
            _log.exception("%r failed", name)
            raise MCPError(types.INTERNAL_ERROR, f"{name!r} failed") from error

    async def _complete(
        self, _: _Context, params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        found: Prompt[..., Any] | Resource[..., Any] | None
        if isinstance(params.ref, types.PromptReference):
            found = self._prompts.get(params.ref.name)
        else:
            uri = params.ref.uri
            found = next((each for each in self._resources.values() if each.uri == uri), None)
        if found is None or params.argument.name not in found.parameters:
            raise MCPError(types.INVALID_PARAMS, "no prompt or resource has this parameter")
        values = found.completions(params.argument.name, params.argument.value)
        return types.CompleteResult(completion=types.Completion(values=values))

    def _page(self, values: Sequence[T], params: _Paged) -> tuple[list[T], str | None]:
        """Return the page of a list that a cursor names, and the cursor of the next one.

        Raises:
            MCPError: the cursor is none of the list's.
        """
        cursor = None if params is None else params.cursor
        cursors = {str(at): at for at in range(self._page_size, len(values), self._page_size)}
        if cursor is not None and cursor not in cursors:
            raise MCPError(types.INVALID_PARAMS, "the list has no such cursor")
        start = 0 if cursor is None else cursors[cursor]
        following = str(start + self._page_size)
        page = list(values[start : start + self._page_size])
        return page, following if following in cursors else None


def check_arguments(tool: Tool, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that do not fit the schema; tools of `@tool` check theirs themselves.

    Raises:
        ToolError: they do not, or the schema cannot be read.
    """
    if isinstance(tool, FunctionTool):
        return
    try:
        problems = [*islice(violations(dict(arguments), tool.input_schema), _MAX_PROBLEMS)]
    except ValueError as error:
        _log.warning("the input schema of tool %r cannot be read: %s", tool.name, error)
        raise ToolError("invalid_arguments", "the schema of the tool cannot be read") from error
    if problems:
        raise ToolError("invalid_arguments", "; ".join(problems))


def require_approval(tool: Tool, arguments: Mapping[str, Any]) -> None:
    """Let a call pass that a person has approved, or that needs no approval.

    Raises:
        InputRequired: the person behind the client must decide.
        ToolError: the person has refused, or cannot be reached.
    """
    if not tool.needs_approval(copied(dict(arguments))):
        return
    shown, _ = clip(canonical(arguments), _MAX_SHOWN_CHARS)
    question = form(f"Allow the call of {tool.name!r} with {shown}?", _APPROVAL)
    inputs = INPUTS.get()
    if not inputs.can_ask(question):
        raise ToolError("denied", "not called: a person must approve it, whom nothing can ask here")
    answer = inputs.ask({"approval": question}, sealed=True)["approval"]
    match answer:
        case types.ElicitResult(action="accept", content={"approve": True}):
            return
        case _:
            raise ToolError("denied", "not called: a person has refused it")


async def call_tool(tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Any:
    """Return what a tool returns.

    Raises:
        ToolError: every failure, in words that any client may read.
    """
    deadline = asyncio.timeout(tool.timeout_s)
    try:
        async with deadline:
            return await tool.call(arguments, context)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise ToolError("failed", "the tool was cancelled by something of its own") from error
    except (ToolError, MCPError, InputRequired):
        raise
    # Around a tool call: whatever it raises is a result, even that it wants to exit.
    except (Exception, SystemExit) as error:
        if deadline.expired():
            raise ToolError("timeout", f"no answer within {tool.timeout_s:g} s") from error
        _log.exception("tool %r failed", tool.name)
        raise ToolError("failed", "the tool failed; the log of its server says why") from error


def _can_answer(context: _Context) -> types.ClientCapabilities:
    """Return what the client of a request can answer: with an older one, only over a pipe."""
    found = context.session.client_capabilities
    if found is None or (_is_legacy(context) and not context.session.can_send_request):
        return types.ClientCapabilities()
    return found


async def _answers_of(context: _Context, required: InputRequired) -> dict[str, types.InputResponse]:
    """Return the answers of a client of 2025-11-25 or before, which answers meanwhile."""
    related = RequestMetadata(related_request_id=context.request_id)
    return {
        key: await context.session.send_request(
            request, ANSWERS[type(request)][0], metadata=related
        )
        for key, request in required.requests.items()
    }


class _Progress:
    """Sends the newest report of a call; one that comes before the last was sent replaces it."""

    def __init__(self, context: _Context) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._newest: tuple[float, float | None, str] | None = None
        self._done = -math.inf
        self._sending: asyncio.Task[None] | None = None

    def report(self, done: float, total: float | None, message: str) -> None:
        """Take a report, from any thread."""
        if threading.get_ident() == self._thread:
            self._take(done, total, message)
        else:
            self._loop.call_soon_threadsafe(self._take, done, total, message)

    def _take(self, done: float, total: float | None, message: str) -> None:
        if not math.isfinite(done) or done <= self._done:
            return
        self._done, self._newest = done, (done, total, message)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send(), name="lib.mcp.progress")

    async def _send(self) -> None:
        while self._newest is not None:
            (done, total, message), self._newest = self._newest, None
            await self._context.session.report_progress(done, total, message or None)

    async def finish(self) -> None:
        """Send what was not sent yet; further reports are left out."""
        self._done = math.inf
        if self._sending is not None:
            await self._sending

    async def stop(self) -> None:
        """Send nothing more."""
        self._done = math.inf
        if self._sending is not None:
            await cancelled(self._sending)


@asynccontextmanager
async def _progress(context: _Context) -> AsyncGenerator[_Progress]:
    """Yield what takes the reports of a call."""
    progress = _Progress(context)
    try:
        yield progress
        await progress.finish()
    finally:
        await progress.stop()


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def _by_name(values: Iterable[N], expected: type[Any], way_out: str) -> dict[str, N]:
    """Return the values by name.

    Raises:
        TypeError: one is of another type.
        ValueError: two have one name.
    """
    found: dict[str, N] = {}
    for each in values:
        if not isinstance(each, expected):
            raise TypeError(
                f"expected a {expected.__name__}, got {type(each).__name__}: "
                f"write {way_out} before the function"
            )
        if each.name in found:
            raise ValueError(f"two have the name {each.name!r}: rename one of them")
        found[each.name] = each
    return found


def _is_legacy(context: _Context) -> bool:
    return context.protocol_version not in MODERN_VERSIONS
