"""What an engine needs of an agent; `lib.Agent` is one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from typing_extensions import TypeVar

from lib.engine.core.algorithm import Algorithm
from lib.engine.core.budget import Budget
from lib.engine.given import check_has, listed
from lib.engine.handler import Handler
from lib.tools import Deps

T_co = TypeVar("T_co", covariant=True, default=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start of a run, for instructions that depend on it.

    Attributes:
        tenant: who owns the run.
        user: who asks.
        deps: the application's own objects.
    """

    tenant: str | None
    user: str | None
    deps: Deps


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParts:
    """What carries out the runs of one agent in one engine.

    Attributes:
        algorithm: how its runs go on; it has the agent's name.
        handlers: carry out its requests, and those of no other agent.
        close: releases what was opened for them, when the engine closes.
    """

    algorithm: Algorithm[Any]
    handlers: Sequence[Handler]
    close: Callable[[], Awaitable[None]]


class AgentSpec(Protocol[T_co]):
    """A description of an agent, from which each engine makes the parts of its own."""

    @property
    def name(self) -> str:
        """The name that its runs are started by, distinct in an engine."""
        ...

    @property
    def budget(self) -> Budget | None:
        """What a run may spend that is started without a budget."""
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


def with_callees(agents: Iterable[AgentSpec[Any]]) -> dict[str, AgentSpec[Any]]:
    """Return the agents and all that they may call, by name.

    Raises:
        TypeError: one is no agent, or they are not in a list.
        ValueError: two of them have one name.
    """
    found: dict[str, AgentSpec[Any]] = {}
    queue = listed(agents, "agents", "[Agent(…)]")
    for agent in queue:
        check_has(agent, "parts", "is no agent: Agent(model, …) makes one")
        if found.setdefault(agent.name, agent) is not agent:
            raise ValueError(f"two agents of one engine have the name {agent.name!r}: rename one")
        queue += [each for each in agent.callees if found.get(each.name) is not each]
    return found
