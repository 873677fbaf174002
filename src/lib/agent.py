"""The front door: an agent is one object."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypedDict, cast

from typing_extensions import TypeVar, Unpack

from lib.algorithms import React, Remembering, Team
from lib.algorithms.react import SUMMARIZER
from lib.context import Policy, Summarize
from lib.context.policies import as_policies
from lib.engine import (
    AgentTool,
    Algorithm,
    Budget,
    ChildHandler,
    Engine,
    Handler,
    LLMHandler,
    Result,
    Run,
    Session,
    ToolHandler,
)
from lib.engine.api.starting import require_budget
from lib.engine.api.stream import StreamItem
from lib.engine.arguments import (
    Input,
    as_list,
    as_settings,
    require_attribute,
    type_label,
)
from lib.engine.handlers.agent_tool import AgentParts, AgentSpec, Start
from lib.engine.handlers.memory import MemoryHandler
from lib.engine.handlers.registry import HandlerRegistry
from lib.events import EventStore
from lib.guards import Guard
from lib.llm import LLMClient, PriceBook, Reply, Text, open_client, parse_output
from lib.llm.models import check_model
from lib.resilience import RetryPolicy
from lib.resilience.deadlines import require_seconds
from lib.tools import OpenToolset, Tool, Toolset, tool

if TYPE_CHECKING:  # it imports numpy
    from lib.memory import Memory

T_co = TypeVar("T_co", covariant=True, default=str)

Model: TypeAlias = str | LLMClient
Instructions: TypeAlias = str | Callable[[Start], str] | Callable[[Start], Awaitable[str]]
Store: TypeAlias = EventStore | str | os.PathLike[str]


class RunOptions(TypedDict, total=False):
    """The options of a start of a run; see `Engine.start`.

    Attributes:
        key: makes the start repeatable: within a tenant, the same key gives the same run.
        tenant: owner of the run and of everything derived from it.
        user: the person or service that starts it.
        budget: what it may spend; None for the agent's own.
    """

    key: str | None
    tenant: str | None
    user: str | None
    budget: Budget | None


@dataclass(frozen=True, init=False, eq=False)
class Agent(Generic[T_co]):
    """A model with instructions, tools and limits: a description that any engine can carry out.

    `agent.run_sync("…").output` is the whole of it. `agent.engine(store)` is what stands behind:
    `Engine(store, agents=[…])` drives several, each with a model, tools and guards of its own.

    What decides how a run goes on (instructions, settings, output) is recorded at its start: a
    resumed run goes on as it began. What carries it out (models, tools, guards) is the agent's as
    it is now.

    Attributes:
        name: what its runs are started and listed by, distinct in an engine.
        models: the first answers; each next one when those before it are down.
        instructions: put before the conversation; a function gets the start of the run, and its
            text is recorded.
        tools: what its model may call.
        toolsets: where more tools come from, such as an MCP server; each engine opens its own.
        agents: the agents that its model may call.
        output: the pydantic model that the answer must fit; None for text.
        guards: judge what its model reads and says, and its calls.
        budget: what one run may spend, unless its start says otherwise.
        max_steps: model calls after which a run ends as LIMITED.
        settings: temperature and the like, passed to the model.
        provider_state: rest calls on what the provider has kept of the conversation; see `React`.
        retries: how often and how long each model is tried.
        deadline_s: seconds for each model call, with all its attempts, waits and models; None
            for no limit but those of `retries` and the clients.
        hedge_after_s: seconds after which a slow attempt gets a second one beside it, at the next
            model if there is one; the first reply counts, and both may cost. None for never.
        prices: for models whose provider states no cost.
        context: what of a long conversation its model is sent, see `lib.context`; by default all.
        memory: recalls what is known of a run's user before its model is called, and remembers
            what that user has said when it has answered; see `lib.memory`. What fails there fails
            no run. An agent that another one calls only recalls.
        algorithm: makes the algorithm of its runs, with the arguments of `React`; a team of agents
            is `Reflexion(judge)`, `Debate([…])` or `Swarm([…])`.
    """

    name: str
    models: tuple[Model, ...]
    instructions: Instructions
    tools: tuple[Tool, ...]
    toolsets: tuple[Toolset, ...]
    agents: tuple[AgentTool, ...]
    output: type[T_co] | None
    guards: tuple[Guard, ...]
    budget: Budget | None
    max_steps: int
    settings: Mapping[str, Any]
    provider_state: bool
    retries: RetryPolicy | None
    deadline_s: float | None
    hedge_after_s: float | None
    prices: PriceBook | None
    context: tuple[Policy, ...]
    memory: Memory | None
    algorithm: Callable[..., Algorithm[Any]]

    def __init__(
        self,
        model: Model | Sequence[Model],
        *,
        name: str = "agent",
        instructions: Instructions = "",
        tools: Iterable[Tool | AgentTool | Toolset | Callable[..., Any]] = (),
        output: type[T_co] | None = None,
        guards: Iterable[Guard] = (),
        budget: Budget | None = None,
        max_steps: int = 50,
        settings: Mapping[str, Any] | None = None,
        provider_state: bool = False,
        retries: RetryPolicy | None = None,
        deadline_s: float | None = None,
        hedge_after_s: float | None = None,
        prices: PriceBook | None = None,
        context: Iterable[Policy] = (),
        memory: Memory | None = None,
        algorithm: Callable[..., Algorithm[Any]] = React,
    ) -> None:
        """Describe an agent; nothing is opened.

        Args:
            model: "provider:model" (see `lib.llm.open_client`), a client, or a list of them: the
                next one is called when one is down. A client that you pass is yours to close.
            name: see above.
            instructions: see above.
            tools: functions (each becomes a `once` tool), tools, toolsets, and agents as tools.
            output: see above.
            guards: see above.
            budget: see above.
            max_steps: see above.
            settings: see above.
            provider_state: see above.
            retries: see above.
            deadline_s: see above.
            hedge_after_s: see above.
            prices: see above.
            context: see above.
            memory: see above.
            algorithm: see above.

        Raises:
            TypeError: an argument is of another type.
            ValueError: a model's name is unknown, two tools have one name, there is no model, or a
                limit is not above 0.
        """
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - not all callers are typed
            raise TypeError(f"expected text as an agent's name, got {type_label(name)}")
        if not name.strip():
            raise ValueError("expected a name of an agent, got an empty one")
        require_budget(budget)
        require_seconds(deadline_s=deadline_s, hedge_after_s=hedge_after_s)
        _check_services(retries, prices, algorithm)
        callables = [_as_tool(each) for each in as_list(tools, "tools", "[refund]")]
        fields: dict[str, Any] = {
            "name": name,
            "models": _as_models(model),
            "instructions": _checked_instructions(instructions),
            "tools": tuple(each for each in callables if isinstance(each, Tool)),
            "toolsets": tuple(each for each in callables if not isinstance(each, Tool | AgentTool)),
            "agents": tuple(each for each in callables if isinstance(each, AgentTool)),
            "output": None if output is str else _checked_output(output),
            "guards": tuple(as_list(guards, "guards", "[InjectionGuard()]")),
            "budget": budget,
            "max_steps": max_steps,
            "settings": as_settings(settings),
            "provider_state": provider_state,
            "retries": retries,
            "deadline_s": deadline_s,
            "hedge_after_s": hedge_after_s,
            "prices": prices,
            "context": _checked_context(context),
            "memory": _checked_memory(memory),
            "algorithm": algorithm,
        }
        for field, value in fields.items():
            object.__setattr__(self, field, value)
        # An impossible set of tools, or a team, is refused here and not where a run starts.
        HandlerRegistry(self._tool_handlers())
        self._make_algorithm()

    # -- runs ------------------------------------------------------------------------------

    async def run(
        self,
        input: Input,  # noqa: A002 - the word that fits
        *,
        store: Store = "memory:",
        deps: Iterable[object] = (),
        timeout_s: float | None = None,
        **options: Unpack[RunOptions],
    ) -> Result[T_co]:
        """Start a run in an engine of its own, wait for its end and return it.

        With a store on disk and a `key`, a process that was killed goes on where it was when it
        calls this again.

        Args:
            input: what the user says: text, a message, or a conversation.
            store: where the log is: a path, a URL, or an event store, which is closed at the end.
            deps: the application's own objects, for tools; see `Deps`.
            timeout_s: seconds to wait at most; then the present state is returned, and the run goes
                on when it is started again under its key. See `Run.result`.
            options: see `RunOptions`.

        Raises:
            Exception: as `Engine.start` and `Run.result` do.
        """
        async with self.engine(store, deps=deps) as engine:
            run = await self.start(engine, input, **options)
            return await run.result(timeout_s=timeout_s)

    def run_sync(
        self,
        input: Input,  # noqa: A002 - the word that fits
        *,
        store: Store = "memory:",
        deps: Iterable[object] = (),
        timeout_s: float | None = None,
        **options: Unpack[RunOptions],
    ) -> Result[T_co]:
        """Do what `run` does, in a program without an event loop.

        Raises:
            RuntimeError: an event loop runs in this thread: await `run`.
            Exception: as `run` does.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(
                self.run(input, store=store, deps=deps, timeout_s=timeout_s, **options)
            )
        raise RuntimeError("an event loop runs in this thread: write `await agent.run(…)`")

    async def start(
        self,
        engine: Engine,
        input: Input,  # noqa: A002 - the word that fits
        *,
        stream: bool = False,
        **options: Unpack[RunOptions],
    ) -> Run[T_co]:
        """Start a run in an engine that has this agent, and return it at once.

        Args:
            engine: made by `engine`, or with this agent among its `agents`.
            input: see `run`.
            stream: keep the pieces of its replies from the start on, for `Run.stream`.
            options: see `RunOptions`.

        Raises:
            Exception: as `Engine.start` does.
        """
        key = options.pop("key", None)
        return await engine.start(
            input, agent=self, stream=stream, idempotency_key=key, **cast("Any", options)
        )

    async def stream(
        self,
        input: Input,  # noqa: A002 - the word that fits
        *,
        store: Store = "memory:",
        deps: Iterable[object] = (),
        **options: Unpack[RunOptions],
    ) -> AsyncGenerator[StreamItem[T_co]]:
        """Start a run in an engine of its own and yield what happens in it; see `Run.stream`.

        Close the generator (`contextlib.aclosing`) if you leave it early: that interrupts the run,
        which goes on when it is started again under its key.
        """
        async with self.engine(store, deps=deps) as engine:
            run = await self.start(engine, input, stream=True, **options)
            async with aclosing(run.stream()) as items:
                async for item in items:
                    yield item

    async def session(
        self,
        engine: Engine,
        *,
        turn_budget: Budget | None = None,
        **options: Unpack[RunOptions],
    ) -> Session[T_co]:
        """Start a session whose turns this agent answers, in an engine that has it.

        Args:
            engine: made by `engine`, or with this agent among its `agents`.
            turn_budget: what each turn may spend; None for the agent's budget.
            options: see `RunOptions`; the budget is that of all turns together.

        Raises:
            Exception: as `Engine.start_session` does.
        """
        key = options.pop("key", None)
        return await engine.start_session(
            agent=self, turn_budget=turn_budget, idempotency_key=key, **cast("Any", options)
        )

    def engine(self, store: Store = "memory:", **options: Any) -> Engine:
        """Return an engine with this agent and all that it may call: `async with` opens it.

        Args:
            store: see `run`.
            options: see `Engine`.
        """
        return Engine(store, agents=[self], **options)

    def as_tool(
        self,
        description: str,
        *,
        name: str | None = None,
        budget: Budget | None = None,
        approval: bool = False,
    ) -> AgentTool:
        """Return this agent as something that another agent's model may call.

        Each call is a run of its own, with the tenant, the user and a part of the budget of the
        run that calls.

        Args:
            description: what it is good for, written for the model that calls it.
            name: what that model calls it by; the agent's own by default.
            budget: what one call may spend; None for the agent's own.
            approval: True if a person must approve each call.
        """
        return AgentTool(
            name or self.name,
            description,
            self.name,
            budget=budget or self.budget,
            approval=approval,
            agent=self,
        )

    # -- what an engine needs of it: see `AgentSpec` -----------------------------------------

    @property
    def callees(self) -> Sequence[AgentSpec[Any]]:
        """The agents that it and its team may call, those of the engine's own left out."""
        team = self._team
        own = [each.agent for each in self.agents if each.agent is not None]
        return own if team is None else [*own, *team.callees]

    @property
    def _team(self) -> Team | None:
        return self.algorithm if isinstance(self.algorithm, Team) else None

    def config(self) -> Mapping[str, Any]:
        """Return what a run remembers of this agent, see `Algorithm.config`."""
        return self._make_algorithm().config()

    def _make_algorithm(self) -> Algorithm[Any]:
        return self._with_memory(self._make_own_algorithm())

    def _with_memory(self, algorithm: Algorithm[Any]) -> Algorithm[Any]:
        if self.memory is None:
            return algorithm
        return Remembering(algorithm, self.memory.config())

    def _make_own_algorithm(self) -> Algorithm[Any]:
        return self.algorithm(
            self.name,
            system=self.instructions if isinstance(self.instructions, str) else "",
            settings=self.settings,
            output=self.output,
            max_steps=self.max_steps,
            provider_state=self.provider_state,
            **({"context": self.context} if self.context else {}),
        )

    def parts(self, tools: Sequence[Tool] = ()) -> AgentParts:
        """Return its algorithm and handlers, made for one engine.

        Args:
            tools: those that a team offers it beside its own.
        """
        algorithm = self._make_own_algorithm()
        members: Mapping[str, AgentParts] = {}
        if isinstance(algorithm, Team):
            members = algorithm.parts()
        memories = [] if self.memory is None else [self.memory.open()]
        named = [*self.models, *_summarizers(self.context)]
        opened = [open_client(each) for each in named if isinstance(each, str)]
        clients = iter(opened)
        every = [next(clients) if isinstance(each, str) else each for each in named]
        used, summarizers = every[: len(self.models)], every[len(self.models) :]
        toolsets = [each.open_tools(used) for each in self.toolsets]

        closable: list[Any] = [*opened, *memories, *toolsets]
        closing = [*(each.aclose for each in closable), *(each.close for each in members.values())]

        async def close() -> None:
            async with AsyncExitStack() as stack:
                for each in closing:
                    stack.push_async_callback(each)

        handlers = _member_handlers(members)
        if summarizers:
            handlers[SUMMARIZER] = [self._llm_handler(summarizers)]
        models = self._llm_handler(used)
        memory_handlers = [
            MemoryHandler(each, models if own is None else self._llm_handler([own]))
            for each in memories
            for own in [each.client]
        ]
        tool_handlers = self._tool_handlers(toolsets, tools)
        return AgentParts(
            algorithm=self._with_memory(algorithm),
            handlers=[models, *memory_handlers, *tool_handlers],
            close=close,
            members=handlers,
        )

    def _llm_handler(self, clients: Sequence[LLMClient]) -> LLMHandler:
        return LLMHandler(
            clients,
            guards=self.guards,
            retries=self.retries,
            deadline_s=self.deadline_s,
            hedge_after_s=self.hedge_after_s,
            prices=self.prices,
        )

    def _tool_handlers(
        self, toolsets: Sequence[OpenToolset] = (), more: Sequence[Tool] = ()
    ) -> list[Handler]:
        own = [*self.tools, *more, *(self._team.tools if self._team else ())]
        tools = ToolHandler(own, toolsets=toolsets, guards=self.guards)
        return [tools, *([ChildHandler(self.agents, guards=self.guards)] if self.agents else [])]

    async def run_config(self, start: Start) -> Mapping[str, Any]:
        """Return the instructions of a run that starts now, as far as they depend on it.

        Raises:
            TypeError: the function has returned no text.
            Exception: whatever it raises.
        """
        team = self._team
        of_team: Mapping[str, Any] = {} if team is None else await team.run_config(start)
        if isinstance(self.instructions, str):
            return of_team
        made = self.instructions(start)
        text = await made if isawaitable(made) else made
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - not all callers are typed
            raise TypeError(f"expected text of the instructions function, got {type_label(text)}")
        return {**of_team, "system": text} if text else of_team

    def parse_output(self, text: str) -> T_co:
        """Return the output that the answer of a completed run is.

        Raises:
            InvalidReply: the text does not fit.
        """
        if self.output is None:
            return cast("T_co", text)
        return cast("T_co", parse_output(Reply((Text(text),)), cast("Any", self.output)))


def _as_models(value: Model | Sequence[Model]) -> tuple[Model, ...]:
    one = isinstance(value, str) or hasattr(value, "complete")
    models: list[Any] = [value] if one else as_list(cast("Any", value), "models", "[client]")
    if not models:
        raise ValueError("expected a model or several, got an empty list")
    for each in models:
        if isinstance(each, str):
            check_model(each)
        else:
            require_attribute(each, "complete", "a model", "name one, or give a client of one")
    return tuple(models)


def _check_services(retries: object, prices: object, algorithm: object) -> None:
    if retries is not None and not isinstance(retries, RetryPolicy):
        message = f"expected a RetryPolicy, got {type_label(retries)}"
        raise TypeError(f"{message}: use RetryPolicy(attempts=…)")
    if prices is not None:
        require_attribute(prices, "price", "a PriceBook", "use GenAIPrices()")
    if not callable(algorithm):
        message = (
            f"expected a class or a function that makes an algorithm, got {type_label(algorithm)}"
        )
        raise TypeError(f"{message}: use React")


def _checked_memory(value: Any) -> Memory | None:
    if value is not None:
        require_attribute(value, "recall", "a Memory", "use Memory('memory.db')")
    return value


def _checked_context(value: Iterable[Policy]) -> tuple[Policy, ...]:
    policies = as_policies(value)
    for model in _summarizers(policies):
        _as_models(model)
    return policies


def _summarizers(policies: Iterable[Policy]) -> list[Model]:
    """Return the model that writes summaries, none if it is the agent's own."""
    found = [each.model for each in policies if isinstance(each, Summarize)]
    return [model for model in found if model is not None]


def _member_handlers(members: Mapping[str, AgentParts]) -> dict[str, Sequence[Handler]]:
    """Return the handlers of the members of a team, and those of what they have of their own."""
    handlers: dict[str, Sequence[Handler]] = {}
    for name, member in members.items():
        handlers[name] = member.handlers
        handlers |= {name + own: more for own, more in member.members.items()}
    return handlers


def _as_tool(value: Any) -> Tool | AgentTool | Toolset:
    if isinstance(value, Tool | AgentTool) or hasattr(value, "open_tools"):
        return value
    if isinstance(value, Agent):
        raise TypeError(
            f"expected a tool, got the agent {value.name!r}: give agent.as_tool('what it does')"
        )
    if isinstance(value, type) or not callable(value):
        raise TypeError(
            f"expected a function, a Tool or an agent as a tool, got {type_label(value)}"
        )
    return tool(value)


def _checked_instructions(value: Any) -> Instructions:
    if not (isinstance(value, str) or callable(value)):
        raise TypeError(f"expected text or a function as instructions, got {type_label(value)}")
    return cast("Instructions", value)


def _checked_output(value: Any) -> type[Any] | None:
    if value is not None and not (isinstance(value, type) and hasattr(value, "model_json_schema")):
        raise TypeError(f"expected a pydantic model as output, got {type_label(value)}")
    return value
