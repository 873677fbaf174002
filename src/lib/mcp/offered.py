"""The tools that a server offers: tools, functions, and agents, each call of which is a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, cast

from anyio import CancelScope

from lib.agent import Agent
from lib.engine import (
    AgentTool,
    ApprovalRequested,
    Engine,
    Result,
    Run,
    RunEnded,
    ToolStarted,
)
from lib.engine.arguments import Input, as_list
from lib.engine.handlers.agent_tool import AgentSpec, input_text
from lib.errors import RunAbandoned, ToolError
from lib.mcp.sessions import LegacySession
from lib.mcp.task_tool import TaskTool
from lib.tools import Tool, ToolContext, ToolRegistry, tool

Offer: TypeAlias = "Tool | TaskTool | AgentTool | Agent[Any] | Callable[..., Any]"
Source: TypeAlias = "Iterable[Offer] | ToolRegistry | Agent[Any] | Engine"

StartRun: TypeAlias = Callable[[Input, AgentTool, str], Awaitable[Run[Any]]]
TaskMode: TypeAlias = Literal["optional", "required", "approval"]

_MAX_ANSWER_CHARS: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of a request.

    Attributes:
        tenant: owner of the runs that it starts.
        user: the person or service that calls.
        start: starts a run of an agent for it, under limits of its own, from its input, the agent,
            and the key that makes the start repeatable; None for `Engine.start`.
        approves: whether it may decide about calls that wait for a person in runs of agents.
        stopping: is set when calls should end because the server does, or because the caller's
            credentials are no longer valid; their runs go on.
        session: of a client of 2025-11-25 or before over HTTP; None for every other one.
    """

    tenant: str | None = None
    user: str | None = None
    start: StartRun | None = field(default=None, repr=False)
    approves: bool = True
    stopping: asyncio.Event | None = field(default=None, repr=False)
    session: LegacySession | None = field(default=None, repr=False)


CALLER: Final[ContextVar[Caller]] = ContextVar("lib.mcp.caller")
"""The caller of the call that is carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A tool that clients may call.

    Attributes:
        tool: what a call calls whose client waits for its result.
        runs: the agent, or `TaskTool`, whose runs are its calls; None if they are no runs.
        mode: whether a call is a task for clients that take tasks ("optional"), for all clients
            ("required"), or only where it needs an approval for which a client cannot ask.
    """

    tool: Tool
    runs: AgentTool | None = None
    mode: TaskMode = "optional"

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.tool.name


def agents_in(source: Source) -> list[AgentSpec[Any]]:
    """Return the agents that need an engine of the server's own; none where an engine is served."""
    found: list[AgentSpec[Any]] = []
    for each in [] if isinstance(source, Engine) else _offers(source):
        offer = each.agent if isinstance(each, AgentTool) else each
        if isinstance(offer, Tool) and offer.approval is not False:
            found.append(TaskTool(offer))
        elif isinstance(offer, Agent | TaskTool):
            found.append(cast("AgentSpec[Any]", offer))
    return list({id(each): each for each in found}.values())


def offered_by(source: Source, engine: Engine | None) -> list[Offered]:
    """Return what is offered as tools.

    Args:
        source: tools, functions, agents; or an engine, whose agents are offered.
        engine: carries out the runs of the agents.

    Raises:
        TypeError: the source, or something in it, cannot be offered.
        ValueError: an agent has a name that no tool can have, or is not the engine's.
    """
    if isinstance(source, Engine):
        return [_offered(each, source) for each in _agents(source)]
    return [_offered(each, engine) for each in _offers(source)]


def _agents(engine: Engine) -> Iterable[Any]:
    return engine.agents.values()


def _offers(source: Source) -> list[Offer]:
    if isinstance(source, Agent):
        return [source]
    return as_list(cast("Iterable[Offer]", source), "tools", "[refund]")


def _offered(offer: Offer, engine: Engine | None) -> Offered:
    if isinstance(offer, TaskTool):
        mode: TaskMode = "required" if offer.required else "optional"
        return Offered(tool=offer.tool, runs=_runs_of(offer, engine), mode=mode)
    if isinstance(offer, Tool):
        spec = None if engine is None else engine.agents.get(offer.name)
        if isinstance(spec, TaskTool) and spec.tool is offer:
            return Offered(tool=offer, runs=_runs_of(spec, engine), mode="approval")
        return Offered(tool=offer)
    if isinstance(offer, Agent):
        offer = _described(cast("Agent[Any]", offer))
    if isinstance(offer, AgentTool):
        return Offered(tool=_agent_tool(offer, _engine_of(offer, engine)), runs=offer)
    if callable(offer) and not isinstance(offer, type):
        return Offered(tool=tool(offer))
    raise TypeError(
        f"expected tools, functions or agents to serve, got {type(offer).__name__}: "
        "write @tool before the function"
    )


def _engine_of(offer: AgentTool, engine: Engine | None) -> Engine:
    if engine is None or (offer.agent is None and offer.algorithm not in engine.agents):
        raise ValueError(
            f"the agent {offer.name!r} is one of an engine's own: serve that engine, "
            "or use Agent.as_tool(…)"
        )
    if offer.agent is not None and engine.agents.get(offer.algorithm) is not offer.agent:
        raise ValueError(
            f"the engine does not have the agent {offer.algorithm!r}: "
            "give it to Engine(…, agents=[…]), too"
        )
    return engine


def _runs_of(task_tool: TaskTool, engine: Engine | None) -> AgentTool:
    if engine is None or engine.agents.get(task_tool.name) is not cast("Any", task_tool):
        raise ValueError(
            f"the engine does not have TaskTool({task_tool.name}): "
            "give it to Engine(…, agents=[…]), too"
        )
    tool = task_tool.tool
    return AgentTool(tool.name, tool.description, tool.name, agent=cast("Any", task_tool))


async def start_run(
    engine: Engine, caller: Caller, value: Input, offered: AgentTool, key: str
) -> Run[Any]:
    """Start a run for a caller; the same key starts it once.

    A caller that is cancelled waits: what has been started can be cancelled, too.

    Raises:
        ToolError: the limits of the caller forbid it.
        IdempotencyMismatch: the key has started another run.
    """
    with CancelScope(shield=True):
        if caller.start is not None:
            return await caller.start(value, offered, key)
        return await engine.start(
            value,
            agent=offered.agent or engine.agents[offered.algorithm],
            idempotency_key=key,
            budget=offered.budget,
            tenant=caller.tenant,
            user=caller.user,
        )
    raise AssertionError("a scope that is not cancelled returns")


def _described(agent: AgentSpec[Any]) -> AgentTool:
    description = f"Give a task to the agent {agent.name!r}, and get its answer."
    return AgentTool(agent.name, description, agent.name, agent=agent)


def _agent_tool(offered: AgentTool, engine: Engine) -> Tool:
    """Return a tool whose calls are runs of the agent.

    Raises:
        ValueError: the name of the agent is none that a tool can have.
    """
    agent = offered.agent or engine.agents[offered.algorithm]
    model = getattr(agent, "output", None)
    schema = None if model is None else model.model_json_schema(mode="serialization")

    async def call(arguments: Mapping[str, Any], context: ToolContext) -> Any:
        caller, task = CALLER.get(), input_text(arguments)
        run = await start_run(engine, caller, task, offered, context.idempotency_key)
        return answer_of(await _followed(run, context, caller))

    return Tool(
        name=offered.name,
        description=offered.description,
        input_schema=offered.input_schema,
        output_schema=schema,
        call=call,
        timeout_s=None,  # the budget limits a run
        approval=offered.approval,
        max_output_chars=_MAX_ANSWER_CHARS,
    )


@asynccontextmanager
async def cancels_with_its_call(run: Run[Any], caller: Caller) -> AsyncGenerator[None]:
    """Cancel the run if the body is cancelled, unless calls are to stop."""
    try:
        yield
    except asyncio.CancelledError:
        if caller.stopping is None or not caller.stopping.is_set():
            with CancelScope(shield=True):
                await run.cancel("the caller has gone", user=caller.user)
        raise


async def _followed(run: Run[Any], context: ToolContext, caller: Caller) -> Result[Any]:
    """Return the end of the run, and report what it does until then.

    Raises:
        ToolError: the server stops before the run ends.
    """
    stop = asyncio.ensure_future((caller.stopping or asyncio.Event()).wait())
    end = asyncio.ensure_future(_end(run, context))
    try:
        async with cancels_with_its_call(run, caller):
            await asyncio.wait([end, stop], return_when=asyncio.FIRST_COMPLETED)
        if end.done():
            return end.result()
        raise ToolError("failed", f"the server stops; the run {run.id} goes on")
    except RunAbandoned as error:
        raise ToolError("failed", f"the server stops; the run {run.id} is resumed later") from error
    finally:
        stop.cancel()
        end.cancel()


async def _end(run: Run[Any], context: ToolContext) -> Result[Any]:
    steps = 0
    async with aclosing(run.stream()) as items:
        async for item in items:
            match item:
                case RunEnded(result=result):
                    return result
                case ToolStarted(name=name):
                    steps += 1
                    context.progress(steps, None, f"calls {name}")
                case ApprovalRequested(name=name):
                    steps += 1
                    context.progress(steps, None, f"waits for a person to approve {name}")
                case _:
                    pass
    raise AssertionError("a stream ends with the end of the run")


def answer_of(result: Result[Any]) -> Any:
    """Return the answer of an agent.

    Raises:
        ToolError: its run has not completed.
    """
    if result.outcome != "COMPLETED":
        raise ToolError(
            "failed", f"the agent ended as {result.outcome}, because of {result.reason}"
        )
    return result.output
