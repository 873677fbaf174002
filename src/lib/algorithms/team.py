"""The base of algorithms that have several agents at work in one run, and their conversations.

Every member keeps its model, tools and guards: the requests that it makes name it, and the engine
has its handlers carry them out. The run has one log and one budget, which is that of its start.
"""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Self, cast

from lib.algorithms.react import LoopState, React, known_config, wrote_config
from lib.context.view import begin_view
from lib.engine.arguments import as_list, require_attribute
from lib.engine.core.algorithm import Decision
from lib.engine.core.conversation import Conversation, History
from lib.engine.handlers.agent_tool import AgentParts, AgentSpec, Start, TeamMember
from lib.events import Event
from lib.llm import Message
from lib.tools import Tool

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,48}")


class Team(ABC):
    """The base of algorithms with members: `Agent(…, algorithm=team)` takes an instance.

    That agent is the one that the run belongs to; what it does beside its members is up to the
    algorithm.

    Attributes:
        drafts: True if replies are written on the way that are not the answer: front ends that
            cannot take back what they have shown then show the answer alone.
    """

    drafts: bool = False
    _members: Mapping[str, TeamMember] = MappingProxyType({})
    _react: React

    def __init__(self, members: Iterable[TeamMember], name: str, **options: Any) -> None:
        """Take the members.

        Args:
            members: agents, with names of letters, digits, "_" and "-".
            name: see `React`.
            options: those of `React`, for use without an `Agent`.

        Raises:
            TypeError: a member is no agent, is a team itself, or they are not in a list.
            ValueError: a name is unfit, or two members have one.
        """
        self._react = React(name, **options)
        found: dict[str, TeamMember] = {}
        for member in as_list(members, "members of a team", "[Agent(…), Agent(…)]"):
            require_attribute(member, "config", "an Agent", "use Agent(model, name='…')")
            if not _NAME.fullmatch(member.name):
                raise ValueError(
                    "expected a name of at most 48 letters, digits, '_' and '-' for a member of a "
                    f"team, got {member.name!r}: rename that agent"
                )
            if member.name in found:
                raise ValueError(f"two members have the name {member.name!r}: rename one")
            if "memory" in member.config():
                raise TypeError(
                    f"expected a member without a memory, got {member.name!r}: give it to the "
                    "agent whose team this is"
                )
            if not wrote_config(member.config()):
                raise TypeError(
                    f"expected an agent without algorithm=, got {member.name!r}: a team has no "
                    "teams as members; give one the other as a tool"
                )
            found[member.name] = member
        self._members = found

    def __call__(self, name: str, **options: Any) -> Self:
        """Return the same team as the algorithm of an agent, with the options of `React`."""
        team = copy.copy(self)
        team._react = React(name, **options)  # noqa: SLF001 - of the same class
        return team

    @property
    def name(self) -> str:
        """The name that starts runs of it."""
        return self._react.name

    @property
    def tool_names(self) -> Sequence[str] | None:
        """The names of the tools and agents that the run's own agent is offered; see `React`."""
        return self._react.tool_names

    @abstractmethod
    def initial(self, started: Event, history: Sequence[Message] = ()) -> Any:
        """Return the state after `lib.run.started`."""

    @abstractmethod
    def conversation(self, state: Any) -> Conversation:
        """Return what the next turn of a session goes on with."""

    @abstractmethod
    def evolve(self, state: Any, event: Event) -> Any:
        """Return the state after one more event."""

    @abstractmethod
    def decide(self, state: Any) -> Decision:
        """Return what the agents request, or how the run ends."""

    @classmethod
    def of_log(cls) -> Self:
        """Return an instance that folds recorded runs: they remember their members."""
        team = cls.__new__(cls)
        team._react = React()  # noqa: SLF001 - of the same class
        return team

    def config(self) -> dict[str, Any]:
        """Return what a run must remember of this instance and of its members."""
        members = {name: dict(member.config()) for name, member in self._members.items()}
        return {**self._react.config(), "members": members}

    # -- what `Agent` needs of it ------------------------------------------------------------

    @property
    def callees(self) -> Sequence[AgentSpec[Any]]:
        """The agents that its members may call."""
        return [callee for member in self._members.values() for callee in member.callees]

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools that the run's own agent is offered beside its own."""
        return ()

    def parts(self) -> Mapping[str, AgentParts]:
        """Return the algorithm and handlers of each member, made for one engine."""
        return {name: member.parts() for name, member in self._members.items()}

    async def run_config(self, start: Start) -> Mapping[str, Any]:
        """Return the instructions of members in a run that starts now, if they depend on it."""
        made = {name: await member.run_config(start) for name, member in self._members.items()}
        systems = {name: config["system"] for name, config in made.items() if "system" in config}
        return {"systems": systems} if systems else {}


def recorded_member(started: Event, name: str) -> dict[str, Any]:
    """Return the config of a member as the start of a run has recorded it."""
    config = _mapping(started.data.get("config"))
    member = known_config(_mapping(_mapping(config.get("members")).get(name)))
    system = _mapping(config.get("systems")).get(name)
    return {**member, "system": system} if isinstance(system, str) else member


def member_loop(
    config: Mapping[str, Any], messages: Sequence[Message], *, agent: str, scope: str
) -> LoopState:
    """Return the conversation of a member that begins with these messages.

    Args:
        config: of the member.
        messages: without instructions, which the config has.
        agent: the name of the member, "" for the run's own agent.
        scope: see `LoopState`.
    """
    system = config.get("system", "")
    first = [Message.system(system)] if system else []
    whole = History().extend([*first, *messages])
    return LoopState(
        config,
        whole,
        prior=len(whole),
        agent=agent,
        scope=scope,
        unread=True,
        view=begin_view(config, whole),
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
