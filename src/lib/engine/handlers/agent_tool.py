"""Agents: what an engine needs of one, and agents as tools, whose calls are child runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Protocol

from typing_extensions import TypeVar

from lib._util.json import copied, digest
from lib.engine.arguments import as_list, require_attribute
from lib.engine.core.algorithm import Algorithm, ToolRequest
from lib.engine.core.budget import Budget, grant
from lib.engine.core.result import Result
from lib.engine.core.session import SESSION
from lib.engine.core.settle import PendingEvent, tool_requested
from lib.engine.handlers.base import Admission, Call, Handler
from lib.engine.handlers.guards import RequestGuards, as_guards
from lib.errors import ToolError
from lib.events import Event
from lib.events import kinds as k
from lib.guards import Guard
from lib.llm import Message, ToolSpec, message_to_json
from lib.llm.schema import violations
from lib.tools import Deps, Tool
from lib.tools.output import as_text

T_co = TypeVar("T_co", covariant=True, default=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start of a run, for instructions that depend on it.

    Attributes:
        tenant: owner of the run.
        user: the person or service that starts it.
        deps: the application's own objects.
    """

    tenant: str | None
    user: str | None
    deps: Deps


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParts:
    """The algorithm and handlers that carry out the runs of one agent in one engine.

    Attributes:
        algorithm: how its runs go on; it has the agent's name.
        handlers: carry out its requests, and those of no other agent.
        members: the handlers of the members of its team, by their names.
        close: releases what was opened for them, when the engine closes.
    """

    algorithm: Algorithm[Any]
    handlers: Sequence[Handler]
    close: Callable[[], Awaitable[None]]
    members: Mapping[str, Sequence[Handler]] = field(default_factory=dict[str, Any])


class AgentSpec(Protocol[T_co]):
    """A description of an agent, from which each engine makes the parts of its own."""

    @property
    def name(self) -> str:
        """The name that its runs are started by, distinct in an engine."""
        ...

    @property
    def budget(self) -> Budget | None:
        """The budget of a run that is started without one."""
        ...

    @property
    def callees(self) -> Sequence[AgentSpec[Any]]:
        """The agents that it may call."""
        ...

    def parts(self) -> AgentParts:
        """Return its algorithm and handlers, made for one engine."""
        ...

    async def run_config(self, start: Start) -> Mapping[str, Any]:
        """Return what a run that starts now remembers beside the algorithm's config."""
        ...

    def parse_output(self, text: str) -> T_co:
        """Return the output that the answer of a completed run is.

        Raises:
            InvalidReply: the text does not fit.
        """
        ...


class TeamMember(AgentSpec[Any], Protocol):
    """An agent that can be at work in the run of another one; every `Agent` is."""

    def config(self) -> Mapping[str, Any]:
        """Return what runs remember of its algorithm."""
        ...

    def parts(self, tools: Sequence[Tool] = ()) -> AgentParts:
        """Return its algorithm and handlers, with more tools, made for one engine."""
        ...


def with_callees(agents: Iterable[AgentSpec[Any]]) -> dict[str, AgentSpec[Any]]:
    """Return the agents and all that they may call, by name.

    Raises:
        TypeError: one is no agent, or they are not in a list.
        ValueError: two of them have one name.
    """
    found: dict[str, AgentSpec[Any]] = {}
    queue = as_list(agents, "agents", "[Agent(…)]")
    for agent in queue:
        require_attribute(agent, "parts", "an Agent", "use Agent(model, …)")
        if found.setdefault(agent.name, agent) is not agent:
            raise ValueError(f"two agents of one engine have the name {agent.name!r}: rename one")
        queue += [each for each in agent.callees if found.get(each.name) is not each]
    return found


MAX_PROBLEMS: Final = 5
ONE_TASK: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "description": "All it has to know: it sees nothing else."}
    },
    "required": ["task"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class AgentTool:
    """An agent that another one may call.

    Attributes:
        name: what the model calls it by; distinct among agents and tools.
        description: what it is good for.
        algorithm: the name of the algorithm, one of the engine's, by which its runs go on.
        budget: what one call may spend at most; what its caller has left may be less. None for
            no limit but that.
        input_schema: JSON schema of the arguments. By default one text, `task`, which the agent
            reads as it is; arguments of another schema reach it as JSON.
        approval: whether a person must approve each call.
        agent: the agent, where it is one with a model and tools of its own (`Agent.as_tool`).
    """

    name: str
    description: str
    algorithm: str
    budget: Budget | None = field(default=None, kw_only=True)
    input_schema: Mapping[str, Any] = field(default_factory=lambda: ONE_TASK, kw_only=True)
    approval: bool = field(default=False, kw_only=True)
    agent: AgentSpec[Any] | None = field(default=None, kw_only=True, repr=False)

    @property
    def spec(self) -> ToolSpec:
        """The definition that models get."""
        return ToolSpec(self.name, self.description, dict(self.input_schema))


class ChildHandler:
    """Fulfils calls of agents: starts a run for each, and waits for its end.

    The run has the tenant, the user and a part of the budget of the one that calls. It is a run
    like any other, which any worker may drive. A call that is interrupted finds its run there.
    """

    kind = k.CHILD_REQUESTED
    request_type = ToolRequest

    def __init__(self, agents: Iterable[AgentTool], *, guards: Iterable[Guard] = ()) -> None:
        """Take the agents.

        Args:
            agents: what models may call.
            guards: called in this order; "tool_call" of the arguments before a run is started, and
                "tool_result" of what it has answered before the model reads it, as for tools.
                A call that they block starts no run and ends as BLOCKED. The log of a run whose
                answer is withheld is as it was.

        Raises:
            TypeError: an agent or a guard is of another type, or is not in a list.
            ValueError: two of them have one name, or one would be a session, which never ends
                while its caller waits for the end.
        """
        self._agents: dict[str, AgentTool] = {}
        for agent in as_list(agents, "agents", "[AgentTool(…)]"):
            way_out = "use AgentTool(name, description, algorithm)"
            require_attribute(agent, "algorithm", "an AgentTool", way_out)
            if agent.algorithm == SESSION:
                raise ValueError(f"the agent {agent.name!r} would be a session, which never ends")
            if agent.name in self._agents:
                raise ValueError(f"two agents have the name {agent.name!r}")
            self._agents[agent.name] = agent
        self._guards = as_guards(guards)

    @property
    def offers(self) -> Sequence[ToolSpec]:
        """The definitions that models get, one for each agent."""
        return [agent.spec for agent in self._agents.values()]

    @property
    def algorithms(self) -> Sequence[str]:
        """The names of the algorithms that an engine needs to start their runs."""
        return [agent.algorithm for agent in self._agents.values()]

    def agents_of(self, algorithm: str) -> frozenset[str]:
        """Return the names of the agents whose runs go on by this algorithm."""
        return frozenset(a.name for a in self._agents.values() if a.algorithm == algorithm)

    def admit(self, request: ToolRequest, admission: Admission) -> PendingEvent:
        """Return the intent with the run's id, input and budget, or the question to a person.

        Raises:
            ToolError: the arguments do not fit, or no depth is left.
        """
        agent = self._agents[request.name]
        _check(request, agent)
        budget = _grant(agent, admission)
        if agent.approval and not admission.approved:
            return PendingEvent(k.APPROVAL_REQUESTED, tool_requested(request).data)
        data = {
            "key": request.key,
            "call_id": request.call_id,
            "run_id": digest("child", admission.run_id, request.key)[:32],
            "name": agent.name,
            "algorithm": agent.algorithm,
            "input": [message_to_json(Message.user(input_text(request.arguments)))],
            "budget": budget.to_json(),
        }
        return PendingEvent(k.CHILD_REQUESTED, data)

    async def handle(self, call: Call[ToolRequest]) -> Sequence[PendingEvent]:
        """Start the run, unless it is there already, and return how it ended."""
        request = call.event
        guarding = RequestGuards(self._guards, call)
        guarded = _guarded_call(request, call.request)
        if guarded is not None and guarding.watches("tool_call"):
            # A run that is there was begun because they have allowed it.
            exists = await call.children.exists(request)
            if not exists and (why := await guarding.call(guarded)):
                return [*guarding.verdicts, _blocked(request, why)]
        result = await call.children.run(
            request,
            algorithm=request.data["algorithm"],
            input=request.data["input"],
            budget=request.data.get("budget"),
        )
        completed = _completed(request, result)
        answer = _answer(completed.data)
        if answer and (why := await guarding.result(guarded or request.data, answer)):
            completed = _withheld(completed, why)
        return [*guarding.verdicts, completed]

    def recover(self, request: Event) -> PendingEvent | None:
        """Wait for its end again: starting a run that is there changes nothing."""
        return None


def _check(request: ToolRequest, agent: AgentTool) -> None:
    if request.invalid is not None:
        raise ToolError("invalid_arguments", "the arguments are no JSON object")
    problems = [*islice(violations(dict(request.arguments), agent.input_schema), MAX_PROBLEMS)]
    if problems:
        raise ToolError("invalid_arguments", "; ".join(problems))


def _grant(agent: AgentTool, admission: Admission) -> Budget:
    try:
        return grant(admission.remaining, agent.budget, sharers=admission.sharers)
    except ValueError as error:
        message = f"not called: {error}; do the work yourself"
        raise ToolError("unsupported", message) from error


def input_text(arguments: Mapping[str, Any]) -> str:
    """Return what an agent reads of the arguments of a call: its task, or all of them as JSON."""
    match arguments:
        case {"task": str(task)} if len(arguments) == 1:
            return task
        case _:
            return as_text(dict(arguments))


def _guarded_call(request: Event, decided: ToolRequest | None) -> Mapping[str, Any] | None:
    """Return the call for guards, None where the algorithm no longer makes it."""
    if decided is None:
        return None
    return {"name": request.data["name"], "args": copied(dict(decided.arguments))}


def _blocked(request: Event, why: str) -> PendingEvent:
    """Return how a call ends that guards have stopped: there is no run of this id."""
    data = {name: request.data[name] for name in ("key", "call_id", "run_id")}
    error = {"type": "Blocked", "message": f"not called: {why}"}
    ended = {"outcome": "BLOCKED", "reason": "guard", "error": error, "spend": {}}
    return PendingEvent(k.CHILD_COMPLETED, {**data, **ended, "unstarted": True})


def _answer(data: Mapping[str, Any]) -> str:
    """Return the answer and the error message of a run."""
    error: Mapping[str, Any] = data.get("error") or {}
    return "\n\n".join(filter(None, (data.get("output"), error.get("message"))))


def _withheld(completed: PendingEvent, why: str) -> PendingEvent:
    """Return the end of a run with its outcome, and without its answer."""
    notice = f"the agent has done its work; what it answered is withheld, {why}"
    remaining = {name: value for name, value in completed.data.items() if name != "error"}
    return PendingEvent(k.CHILD_COMPLETED, {**remaining, "output": notice})


def _completed(request: Event, result: Result) -> PendingEvent:
    names = {"key": request.data["key"], "call_id": request.data["call_id"]}
    return PendingEvent(k.CHILD_COMPLETED, {**names, **result.to_json()})
