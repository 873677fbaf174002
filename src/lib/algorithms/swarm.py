"""Agents that hand a conversation over to each other: one at a time has it.

A hand-off is a call of a tool that the algorithm answers itself. The answer and the hand-off
(`lib.swarm.handoff`) enter the log in one append; the next model call is made by the other agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Self, cast, get_args

from lib.algorithms.react import LoopState
from lib.algorithms.team import Team, member_loop, recorded_member
from lib.context.view import begin_view
from lib.engine.arguments import as_list
from lib.engine.core.algorithm import (
    Answer,
    Decision,
    Fact,
    Finish,
    Note,
    Refuse,
    Request,
    ToolRequest,
    Wait,
)
from lib.engine.core.conversation import Conversation, without_calls
from lib.engine.handlers.agent_tool import AgentParts, AgentTool, TeamMember
from lib.errors import ToolError
from lib.events import Event
from lib.events import kinds as k
from lib.llm import Message
from lib.tools import Tool, ToolContext

Seen = Literal["all", "text", "input"]

PREFIX: Final = "hand_off_to_"
MAX_NOTE_CHARS: Final = 4_000
_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "note": {"type": "string", "description": "What it has to know beside the conversation."}
    },
    "additionalProperties": False,
}
_ANSWER: Final = "{target} has the conversation now"
_ONE: Final = "not handed over: one hand-off at a time; the other one of this reply counts"
_SELF: Final = "not handed over: you have the conversation already"
_NONE_LEFT: Final = "not handed over: no hand-off is left in this run; answer it yourself"
_TAKEN_OVER: Final = "You have taken this conversation over from {source}. Go on with it."


class SwarmState(NamedTuple):
    """The state of a run.

    Attributes:
        loop: the conversation of the agent that has it.
        name: of the run's own agent.
        members: what the run remembers of the agents, by name.
        limit: how many hand-offs there are at most.
        seen: what an agent sees of the conversation that it takes over.
        before: what was said before that agent took over, calls included.
        since: how many messages of `loop` were there before it.
        input: the input of the run.
        earlier: how many messages of `before` are of earlier turns of a session.
        handing: the agent that is to have the conversation once all calls have their results.
        note: what it has to know.
    """

    loop: LoopState
    name: str
    members: Mapping[str, Mapping[str, Any]]
    limit: int
    seen: str
    before: tuple[Message, ...]
    since: int
    input: tuple[Message, ...]
    earlier: int
    handing: str | None = None
    note: str = ""

    @property
    def speaker(self) -> str:
        """The name of the agent that has the conversation."""
        return self.loop.agent or self.name


class Swarm(Team):
    """Agents that hand the conversation over to each other; the run's own agent begins.

    Every agent is offered a tool `hand_off_to_NAME` for each other one. There is at most one
    hand-off in a reply and `max_handoffs` in a run; the model reads why one more is refused. In a
    session, the agent that has the conversation answers the next turn. `max_steps` and `output` of
    the run's own agent hold for all.
    """

    def __init__(
        self,
        agents: Iterable[TeamMember | AgentTool],
        *,
        max_handoffs: int = 10,
        seen: Seen = "all",
        name: str = "swarm",
        **options: Any,
    ) -> None:
        """Take the other agents.

        Args:
            agents: each with a model, instructions, tools and guards of its own;
                `agent.as_tool("what it is good for")` describes it to the others.
            max_handoffs: of one run, 0 or more.
            seen: what an agent sees of the conversation that it takes over: "all", with calls and
                their results as text; "text": only what the user and agents have written; "input":
                the input of the run alone.
            name: see `React`.
            options: see `Team`.

        Raises:
            TypeError: see `Team`.
            ValueError: there is no other agent, one would need approval, or an argument is out of
                range.
        """
        listed = as_list(agents, "agents of a swarm", "[billing, shipping]")
        super().__init__([_agent(each) for each in listed], name, **options)
        if not listed:
            raise ValueError("expected agents to hand over to, got none")
        if isinstance(max_handoffs, bool) or max_handoffs < 0:
            raise ValueError(f"expected 0 or more hand-offs, got {max_handoffs!r}")
        if seen not in get_args(Seen):
            raise ValueError(f"expected seen='all', 'text' or 'input', got {seen!r}")
        self._limit, self._seen = max_handoffs, seen
        self._purposes = {
            each.agent.name: each.description
            for each in listed
            if isinstance(each, AgentTool) and each.agent is not None
        }

    def __call__(self, name: str, **options: Any) -> Self:
        """Return the same swarm as the algorithm of an agent, with the options of `React`."""
        if name in self._members:
            raise ValueError(f"two agents of the swarm have the name {name!r}: rename one")
        return super().__call__(name, **options)

    def config(self) -> dict[str, Any]:
        """Return what a run must remember of this instance and of the agents."""
        return {**super().config(), "max_handoffs": self._limit, "seen": self._seen}

    @property
    def tools(self) -> Sequence[Tool]:
        """The hand-offs that the run's own agent is offered."""
        return [_handoff(name, self._purposes.get(name, "")) for name in self._members]

    def parts(self) -> Mapping[str, AgentParts]:
        """Return the algorithm and handlers of each other agent, with its hand-offs."""
        return {
            name: member.parts(
                [
                    _handoff(self.name, "It began the conversation."),
                    *(each for each in self.tools if each.name != PREFIX + name),
                ]
            )
            for name, member in self._members.items()
        }

    def initial(self, started: Event, history: Sequence[Message] = ()) -> SwarmState:
        """Return the conversation that the run begins with."""
        config, agent = started.data.get("config", {}), getattr(history, "agent", "")
        if agent and agent not in config.get("members", ()):
            history = without_calls(history)  # that agent has left the swarm since
        loop, name = self._react.initial(started, history), str(started.data.get("algorithm", ""))
        shared = {field: loop.config[field] for field in ("output",) if field in loop.config}
        shared["max_steps"] = loop.config.get("max_steps", 50)
        members: dict[str, Mapping[str, Any]] = {
            each: {**recorded_member(started, each), **shared} for each in config.get("members", ())
        }
        members[name] = loop.config
        new = tuple(loop.messages[loop.prior :])
        if agent in members:
            messages = [*history, *new]
            loop = member_loop(members[agent], messages, agent=agent, scope="")
            loop = loop._replace(
                prior=len(loop.messages) - len(new),
                unread=False,
                view=begin_view(members[agent], loop.messages, history),
            )
        return SwarmState(
            loop=loop,
            name=name,
            members=members,
            limit=config.get("max_handoffs", 0),
            seen=config.get("seen", "all"),
            before=(),
            since=_instructions(loop),
            input=new,
            earlier=len(history),
        )

    def conversation(self, state: SwarmState) -> Conversation:
        """Return what the next turn of a session goes on with, and the agent that has it."""
        loop = state.loop
        if not loop.handoffs:
            left = self._react.conversation(loop)
            left.agent = loop.agent
            return left
        new = self._react.conversation(loop._replace(prior=state.since))
        assert new.full is not None  # noqa: S101 - as React makes it
        before = state.before[: state.earlier] if loop.refused else state.before
        return Conversation(without_calls([*before, *new.full[state.since :]]), agent=loop.agent)

    def evolve(self, state: SwarmState, event: Event) -> SwarmState:
        """Return the state after one more event."""
        if event.kind == k.SWARM_HANDOFF:
            return _with_handoff(state, event.data)
        loop = self._react.evolve(state.loop, event)
        if loop is state.loop:
            return state
        state = state._replace(loop=loop)
        if state.handing is not None and not loop.calls:
            return _handed_over(state, state.handing)
        return state

    def decide(self, state: SwarmState) -> Decision:
        """Return what the agent requests, with its hand-off answered, or the end."""
        decision = self._react.decide(state.loop)
        if isinstance(decision, Finish | Wait):
            return decision
        return [*_resolved(state, decision)]


def _resolved(state: SwarmState, requests: Sequence[Request]) -> Iterator[Request | Fact]:
    """Yield the requests with calls of hand-offs answered: the first is taken, if one is left."""
    handing = state.handing
    for request in requests:
        if not (isinstance(request, ToolRequest) and request.name.startswith(PREFIX)):
            yield request
            continue
        target = request.name.removeprefix(PREFIX)
        if target == state.speaker:
            yield Refuse(request, _SELF)
        elif target not in state.members:
            yield request  # no such tool: the tool handler says so
        elif handing is not None:
            yield Refuse(request, _ONE)
        elif state.loop.handoffs >= state.limit:
            yield Refuse(request, _NONE_LEFT)
        else:
            handing = target
            data = {"source": state.speaker, "target": target, "key": request.key}
            note = request.arguments.get("note")
            if isinstance(note, str) and note:
                data["text"] = note[:MAX_NOTE_CHARS]
            yield Note(k.SWARM_HANDOFF, data)
            yield Answer(request, _ANSWER.format(target=target))


def _with_handoff(state: SwarmState, data: Mapping[str, Any]) -> SwarmState:
    """Take note of a hand-off; it happens when all calls of the reply have their results."""
    target = data["target"]
    if target not in state.members or state.handing is not None:
        return state
    loop = state.loop._replace(handoffs=state.loop.handoffs + 1)
    return state._replace(loop=loop, handing=target, note=str(data.get("text", "")))


def _handed_over(state: SwarmState, target: str) -> SwarmState:
    """Let another agent go on."""
    before, old = (*state.before, *state.loop.messages[state.since :]), state.loop
    taken_over = _TAKEN_OVER.format(source=state.speaker)
    note = f" Its note for you: {state.note}" if state.note else ""
    messages = [*_visible(state, before), Message.user(taken_over + note)]
    agent = "" if target == state.name else target
    loop = member_loop(state.members[target], messages, agent=agent, scope="")
    loop = loop._replace(
        model_calls=old.model_calls, handoffs=old.handoffs, refused=old.refused, unread=True
    )
    since = len(loop.messages)
    return state._replace(loop=loop, before=before, since=since, handing=None, note="")


def _visible(state: SwarmState, before: Sequence[Message]) -> Sequence[Message]:
    match state.seen:
        case "input":
            return state.input
        case "text":
            written = (each for each in before if each.role in ("user", "assistant"))
            texts = (m if m.role == "user" else Message.assistant(m.text) for m in written)
            return [message for message in texts if message.role == "user" or message.text]
        case _:
            return without_calls(before)


def _instructions(loop: LoopState) -> int:
    return int(bool(loop.messages) and loop.messages[0].role == "system")


def _agent(value: TeamMember | AgentTool) -> TeamMember:
    if not isinstance(value, AgentTool):
        return value
    if value.approval:
        raise ValueError(
            f"expected a hand-off to {value.name!r} without approval: ask for it at the tools of "
            "that agent"
        )
    return cast("TeamMember", value.agent)


def _handoff(name: str, purpose: str) -> Tool:
    async def call(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
        raise ToolError("unsupported", "a hand-off is answered by its swarm")

    description = f"Hand this conversation over to {name}, who then goes on with it. {purpose}"
    return Tool(
        name=PREFIX + name,
        description=description.strip(),
        input_schema=_SCHEMA,
        call=call,
        effects="none",
    )
