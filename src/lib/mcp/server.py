"""`MCPToolServer`: tools, agents, resources and prompts for clients of the protocol."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, Self, TypeVar, cast

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.ids import new_id
from lib._util.json import canonical, digest
from lib._util.tasks import cancelled
from lib._util.version import __version__
from lib.engine import AgentTool, Engine, Worker
from lib.errors import ToolError
from lib.events import EventStore
from lib.events.urls import open_store
from lib.mcp.calls import call_tool, can_approve, check_arguments, require_approval
from lib.mcp.changes import Change, Changes
from lib.mcp.functions import Prompt, Resource
from lib.mcp.inputs import ANSWERS, INPUTS, InputRequired, Inputs
from lib.mcp.listening import LegacyListening, Listening, Sources
from lib.mcp.notices import LogLevels, level_of_request, notices_of
from lib.mcp.offered import CALLER, Caller, Offered, Source, agents_in, offered_by
from lib.mcp.results import ToolSurface, failure
from lib.mcp.sdk import (
    MODERN_VERSIONS,
    InitializationOptions,
    MCPError,
    RequestContext,
    RequestMetadata,
    Server,
    types,
)
from lib.mcp.sessions import LegacySession, LegacySessions
from lib.mcp.state import StateSeal
from lib.mcp.subscriptions import SessionStream, Subscriptions
from lib.mcp.task_tool import TaskTool
from lib.mcp.task_types import IDEMPOTENCY_KEY
from lib.mcp.tasks import Tasks, takes_tasks, tasks_required
from lib.tools import Deps, Tool, ToolContext, ToolRegistry
from lib.tools.definition import ProgressCallback

_log = logging.getLogger("lib.mcp")

T = TypeVar("T")
ANYONE: Final = Caller()
CALLER_KEY: Final = "lib.mcp.caller"
_Context = RequestContext[Any, Any]
_Paged = types.PaginatedRequestParams | None

_MAX_ROUNDS: Final = 10
_MAX_KEY_CHARS: Final = 255
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
        engine: carries out the runs of agents and tasks; None if nothing that it serves is one.
        protocol: the server of the SDK behind it, for transports.
        sessions: those of clients of 2025-11-25 and before over HTTP, for transports.
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
        lists_change: bool = False,
        task_poll_s: float = 1.0,
        task_ttl_s: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
        new_id: Callable[[], str] = new_id,
    ) -> None:
        """Put the parts together; nothing is opened.

        Args:
            tools: tools, functions, agents, `TaskTool`s; or an engine, whose agents are offered.
            name: see above.
            version: of the server, as clients show it.
            title: its name for people.
            instructions: how to use it, for the models of clients.
            resources: made by `@resource`.
            prompts: made by `@prompt`.
            deps: the application's own objects, for the tools: `context.deps[Pool]`.
            store: where the runs of agents and tasks are logged, and what counts once is kept, if
                there is no engine.
            engine: carries out the runs of agents that are its own, which `tools` may offer.
            caller: returns the caller of a request of the transport, None on stdio.
            max_calls: how many calls are carried out at once; further ones wait.
            page_size: how many tools, resources or prompts a list has at once.
            lists_change: True to `add` and `remove` while it serves, as clients then hear.
            task_poll_s: how long clients should wait before they look at a task again.
            task_ttl_s: for how long after its start a task that has ended is found; None for as
                long as its run is kept.
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
        self.engine: Engine | None = tools if isinstance(tools, Engine) else engine
        agents = agents_in(tools)
        if agents and self.engine is None:
            self.engine = Engine(store, agents=agents, deps=deps)
        offered = offered_by(tools, self.engine)
        self.tools: ToolRegistry = ToolRegistry(each.tool for each in offered)
        self._offered = {each.tool.name: each for each in offered}
        self._surfaces = {tool.name: ToolSurface(tool) for tool in self.tools}
        self._resources = _by_name(resources, Resource, "@resource(…)")
        self._prompts = _by_name(prompts, Prompt, "@prompt")
        self._deps = Deps(deps)
        self._caller = caller
        self._store: EventStore = self.engine.store if self.engine else _opened(store)
        self._seal = StateSeal(self._store, clock=clock)
        self._changes = Changes(self._store, clock=clock)
        self.sessions: LegacySessions = LegacySessions(self._store, clock=clock)
        self._log_levels = LogLevels(self.sessions)
        self._slots, self._page_size = asyncio.Semaphore(max_calls), page_size
        self._new_id = new_id
        self._stack: AsyncExitStack | None = None
        self.protocol: Server[Any] = self._protocol(version, title, instructions, lists_change)
        self._tasks = self._served_tasks(offered, task_poll_s, task_ttl_s)
        self._sources = self._listened_to(lists_change=lists_change)
        if self._sources.lists or self._sources.watches or self._tasks is not None:
            Listening(self._sources, self.protocol)
        self._legacy = LegacyListening(
            self._sources, Subscriptions(self._store, self._changes, clock=clock), self.protocol
        )

    def _served_tasks(
        self, offered: Sequence[Offered], poll_s: float, ttl_s: float | None
    ) -> Tasks | None:
        if self.engine is None or not any(each.runs for each in offered):
            return None
        tasks = Tasks(
            self.engine, offered, self._surfaces, self._caller, poll_s=poll_s, ttl_s=ttl_s
        )
        tasks.serve_on(self.protocol)
        return tasks

    def _listened_to(self, *, lists_change: bool) -> Sources:
        def is_watched(uri: str) -> bool:
            return any(each.watched and each.match(uri) is not None for each in resources.values())

        resources = self._resources
        lists = {"tools", "resources", "prompts"} if lists_change else set[str]()
        return Sources(
            changes=self._changes,
            lists=frozenset(lists),
            is_watched=is_watched,
            watches=any(each.watched for each in resources.values()),
            tasks=self._tasks,
            caller=self._caller,
        )

    def _protocol(
        self, version: str, title: str | None, instructions: str, lists_change: bool
    ) -> Server[Any]:
        handlers: dict[str, Any] = {"on_list_tools": self._list_tools, "on_call_tool": self._call}
        if self._resources or lists_change:
            handlers["on_list_resources"] = self._list_resources
            handlers["on_list_resource_templates"] = self._list_templates
            handlers["on_read_resource"] = self._read
        if self._prompts or lists_change:
            handlers["on_list_prompts"] = self._list_prompts
            handlers["on_get_prompt"] = self._get_prompt
        completed = (*self._resources.values(), *self._prompts.values())
        if lists_change or any(each.parameters for each in completed):
            handlers["on_completion"] = self._complete
        protocol: Server[Any] = Server(
            self.name,
            version=version,
            title=title,
            instructions=instructions or None,
            get_tool_input_schema=self._input_schema,
            **handlers,
        )
        set_level = types.SetLevelRequestParams
        protocol.add_request_handler("logging/setLevel", set_level, self._set_log_level)
        return protocol

    def initialization_options(self) -> InitializationOptions:
        """Return what this server says of itself to clients of 2025-11-25 and before.

        It is for a pipe, and for an HTTP server that has `sessions` and opens `stream`.
        """
        options = self.protocol.create_initialization_options()
        capabilities = self._sources.capabilities(options.capabilities)
        return options.model_copy(update={"capabilities": capabilities})

    @property
    def has_streams(self) -> bool:
        """True if there are changes of which a client could hear."""
        return bool(self._sources.lists) or self._sources.watches

    def stream(
        self, session: LegacySession, tenant: str | None
    ) -> AbstractAsyncContextManager[SessionStream]:
        """Return a context manager of the changes that a session over HTTP hears of, in it."""
        return self._legacy.stream(session, tenant)

    # -- life ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise RuntimeError("expected a server that is not open yet: enter it once")
        async with AsyncExitStack() as stack:
            if self.engine is None:
                await self._store.setup()
                stack.push_async_callback(self._store.close)
            elif not self.engine.is_open:
                await stack.enter_async_context(self.engine)
                if self.engine.drives:  # what this process, or another one, has left
                    worker = asyncio.create_task(Worker(self.engine).run(), name="lib.mcp.worker")
                    stack.push_async_callback(cancelled, worker)
            stack.push_async_callback(self._legacy.close)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    # -- changes ---------------------------------------------------------------------------

    def add(self, *offers: Tool | Callable[..., Any]) -> None:
        """Offer more in this process, and tell the clients.

        Args:
            offers: tools, functions, resources and prompts.

        Raises:
            RuntimeError: the server was made without `lists_change`.
            TypeError: one cannot be offered.
            ValueError: the server has one of this name, or it needs an engine, as agents do.
        """
        self._check_lists_change()
        for offer in offers:
            if isinstance(offer, Resource):
                _add(self._resources, cast("Resource[..., Any]", offer))
                self._changes.tell(Change("resources"))
            elif isinstance(offer, Prompt):
                _add(self._prompts, cast("Prompt[..., Any]", offer))
                self._changes.tell(Change("prompts"))
            else:
                (offered,) = offered_by([offer], None)
                _add(self._offered, offered)
                self._surfaces[offered.name] = ToolSurface(offered.tool)
                self._tools_changed()

    def remove(self, *names: str) -> None:
        """Offer the tools, resources and prompts of these names no more, and tell the clients.

        Raises:
            RuntimeError: the server was made without `lists_change`.
            KeyError: nothing has this name.
        """
        self._check_lists_change()
        for name in names:
            if name not in {*self._offered, *self._resources, *self._prompts}:
                raise KeyError(name)
            if self._offered.pop(name, None) is not None:
                del self._surfaces[name]
                self._tools_changed()
            if self._resources.pop(name, None) is not None:
                self._changes.tell(Change("resources"))
            if self._prompts.pop(name, None) is not None:
                self._changes.tell(Change("prompts"))

    async def resource_updated(self, uri: str, *, tenant: str | None = None) -> None:
        """Tell the clients that have subscribed to this URI, of every process over the store.

        Args:
            uri: of a resource, or one that matches its template.
            tenant: only clients of this tenant hear of it; None for all clients.

        Raises:
            ValueError: no resource with `watched=True` has this URI.
        """
        if not self._sources.is_watched(uri):
            raise ValueError(f"no resource of {uri!r} is watched: use @resource(…, watched=True)")
        await self._changes.publish(Change("resource", uri, tenant))

    def _check_lists_change(self) -> None:
        if not self._sources.lists:
            raise RuntimeError("what is offered is fixed: use MCPToolServer(…, lists_change=True)")

    def _tools_changed(self) -> None:
        self.tools = ToolRegistry(each.tool for each in self._offered.values())
        self._changes.tell(Change("tools"))

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
    ) -> types.CallToolResult | types.InputRequiredResult | dict[str, Any]:
        try:
            tool = self.tools.get(params.name)
        except ToolError as error:
            raise MCPError(types.INVALID_PARAMS, error.message) from None
        arguments = params.arguments or {}
        work = partial(self._called, context, tool, arguments)
        return await self._with_inputs(context, params, [params.name, arguments], work)

    async def _called(
        self, context: _Context, tool: Tool, arguments: Mapping[str, Any]
    ) -> types.CallToolResult | dict[str, Any]:
        try:
            check_arguments(tool, arguments)
            if (runs := self._task_of(context, tool, arguments)) is not None:
                return await self._started(context, runs, arguments)
            require_approval(tool, arguments)
            level = partial(self._log_level, context)
            async with self._slots, notices_of(context, level) as notices:
                tool_context = self._tool_context(context, notices.report, tool.name)
                value = await call_tool(tool, arguments, tool_context)
                return self._surfaces[tool.name].result(value, legacy=_is_legacy(context))
        except ToolError as error:
            return failure(error.message)

    async def _log_level(self, context: _Context) -> str | None:
        if not _is_legacy(context):
            return level_of_request(context.meta)
        return self._log_levels.get(self._caller(context.request).session)

    async def _set_log_level(
        self, context: _Context, params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        await self._log_levels.set(self._caller(context.request).session, params.level)
        return types.EmptyResult()

    def _task_of(
        self, context: _Context, tool: Tool, arguments: Mapping[str, Any]
    ) -> AgentTool | None:
        """Return the agent whose run this call is to be as a task, None if it is to be none.

        Raises:
            MCPError: it can be nothing else, and the client takes no tasks.
        """
        offered = self._offered[tool.name]
        if offered.runs is None:
            return None
        if not takes_tasks(context):
            if offered.mode == "required":
                raise tasks_required()
            return None
        if offered.mode == "approval" and can_approve(tool, arguments):
            return None
        return offered.runs

    async def _started(
        self, context: _Context, runs: AgentTool, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Start a call as a task, once its client has answered the questions before it."""
        assert self._tasks is not None  # noqa: S101 - there are runs
        inputs = INPUTS.get()
        if isinstance(runs.agent, TaskTool):
            answers = inputs.ask(runs.agent.questions)
            inputs = replace(inputs, answers=answers)
        key = self._tool_context(context, None, runs.name).idempotency_key
        repeatable = _sent_key(context) is not None
        return await self._tasks.start(context, runs, arguments, inputs, key, repeatable=repeatable)

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
        key = digest(self.name, context.method, canonical([request, caller.tenant, caller.user]))
        answers, sent = dict[str, types.InputResponse](), frozenset[str]()
        if params.request_state is not None:
            answers, sent = await self._seal.open(params.request_state, key)
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
                    state = await self._seal.seal(inputs, required, key)
                    return types.InputRequiredResult(
                        input_requests=required.requests, request_state=state
                    )
                inputs = replace(
                    inputs,
                    answers={**inputs.answers, **await _answers_of(context, required)},
                    sent=inputs.sent | required.requests.keys(),
                )
        raise MCPError(types.INVALID_REQUEST, "the answers of the client do not fit the questions")

    def _tool_context(
        self, context: _Context, on_progress: ProgressCallback | None, name: str
    ) -> ToolContext:
        caller = self._caller(context.request)
        CALLER.set(caller)
        call_id = self._new_id()
        sent = _sent_key(context)
        owner = canonical([caller.tenant, caller.user])
        return ToolContext(
            run_id=f"mcp-{call_id}",
            call_id=str(context.request_id),
            idempotency_key=digest("mcp", owner, name, sent) if sent else call_id,
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
        made = resource.contents(uri, arguments, self._tool_context(context, None, resource.name))
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
        made = prompt.messages(arguments, self._tool_context(context, None, prompt.name))
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


def _opened(store: EventStore | str | os.PathLike[str]) -> EventStore:
    return open_store(store) if isinstance(store, str | os.PathLike) else store


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


def _add(values: dict[str, N], value: N) -> None:
    if value.name in values:
        raise ValueError(f"two have the name {value.name!r}: remove the other one")
    values[value.name] = value


def _sent_key(context: _Context) -> str | None:
    """Return the key under which a client may send its call again, None if it has sent none."""
    key: Any = (context.meta or {}).get(IDEMPOTENCY_KEY)
    return key if isinstance(key, str) and 0 < len(key) <= _MAX_KEY_CHARS else None


def _is_legacy(context: _Context) -> bool:
    return context.protocol_version not in MODERN_VERSIONS
