"""The handlers and algorithms of an engine, by name, and the words in which requests are logged."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, cast

from lib.engine.arguments import as_list, require_attribute, type_label
from lib.engine.core.algorithm import (
    Algorithm,
    LLMRequest,
    MemoryRequest,
    Request,
    ToolRequest,
    TurnRequest,
)
from lib.engine.core.budget import remaining_beside
from lib.engine.core.decide import remaining_after
from lib.engine.core.session import SESSION, SessionLoop
from lib.engine.core.settle import PendingEvent, calls_not_made, reason_of
from lib.engine.core.state import RunState, call_digest
from lib.engine.handlers.agent_tool import AgentParts, ChildHandler
from lib.engine.handlers.base import Admission, Handler, ToolOffers
from lib.engine.handlers.memory import MemoryHandler
from lib.engine.handlers.summary import SummaryHandler
from lib.engine.handlers.tool import ToolHandler
from lib.engine.handlers.turn import TurnHandler
from lib.errors import MissingHandler, RedactionFailed, ToolError, UnknownAlgorithm, UnknownTool
from lib.events import Event
from lib.events import kinds as k
from lib.privacy.redactor import Redaction

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


class HandlerRegistry:
    """The handlers of an engine, and which request each of them admits.

    Attributes:
        by_kind: each handler by the kind of the request events that it fulfils.
        offers: the definitions of all their tools.
        can_change: whether these, or those of a member, can change while runs go on.
    """

    def __init__(
        self,
        handlers: Iterable[Handler],
        *,
        own: Mapping[str, HandlerRegistry] = _NONE,
        members: Mapping[str, HandlerRegistry] = _NONE,
        only_by_name: frozenset[str] = frozenset(),
    ) -> None:
        """Keep the handlers, in this order.

        Args:
            handlers: for the runs of all algorithms that have none of their own.
            own: the handlers of agents that have theirs, by the name of the agent.
            members: those of the members of a team, whose requests name them, by their names.
            only_by_name: the names of tools offered only to algorithms that name them.

        Raises:
            ValueError: two fulfil one kind, or two offer a tool of one name.
        """
        self.by_kind: dict[str, Handler] = {}
        self._own = only_by_name
        for handler in handlers:
            if handler.kind in self.by_kind:
                raise ValueError(f"two handlers of one engine have the kind {handler.kind!r}")
            self.by_kind[handler.kind] = handler
        self._by_tool: dict[str, Handler] = {}
        self.offers: ToolOffers = self._index()
        self._views: dict[str, HandlerRegistry] = dict(own)
        self._members = members
        tools = self.by_kind.get(k.TOOL_REQUESTED)
        self._changing = tools if isinstance(tools, ToolHandler) and tools.has_toolsets else None
        self._refreshed = False
        self.can_change: bool = self.has_toolsets or any(
            each.can_change for each in members.values()
        )

    def _index(self) -> ToolOffers:
        self._by_tool = {}
        for handler in self.by_kind.values():
            for spec in handler.offers:
                if spec.name in self._by_tool:
                    raise ValueError(f"two tools of one engine have the name {spec.name!r}")
                self._by_tool[spec.name] = handler
        specs = [spec for each in self.by_kind.values() for spec in each.offers]
        return ToolOffers(specs, only_by_name=self._own)

    def with_members(self) -> Iterator[tuple[str, HandlerRegistry]]:
        """Yield this registry under "", then those of the members of its team by their names."""
        yield "", self
        yield from self._members.items()

    def member(self, name: str | None) -> HandlerRegistry:
        """Return the registry of a member; itself for None, and for one that is gone since."""
        return self if name is None else self._members.get(name, self)

    def handler(self, request: Event) -> Handler | None:
        """Return what fulfils a request that is in the log, None if nothing does."""
        return self.member(request.data.get("agent")).by_kind.get(request.kind)

    @property
    def all_offers(self) -> Mapping[str, ToolOffers]:
        """The definitions of the tools of each member by its name, and under "" its own."""
        return {"": self.offers} | {name: each.offers for name, each in self._members.items()}

    @property
    def has_toolsets(self) -> bool:
        """True if its tools can change while runs go on."""
        return self._changing is not None

    def is_stale_for(self, requests: Iterable[Request], state: RunState[object]) -> bool:
        """Return True if `refresh` is due before these requests are admitted.

        That is before a model gets the tools, and before a call that a person has approved, which
        may have been long ago.
        """
        if not self.can_change:
            return False
        return any(self.member(_agent_of(each)).needs_refresh(each, state) for each in requests)

    def needs_refresh(self, request: Request, state: RunState[object]) -> bool:
        """Return True if its own toolsets are to be read before this request is admitted."""
        if self._changing is None:
            return False
        if isinstance(request, ToolRequest):
            return request.key in state.approvals or not self._refreshed
        return isinstance(request, LLMRequest)

    async def refresh(self) -> None:
        """Find the tools of toolsets again, where what is known of them is too old."""
        for _, each in self.with_members():
            await each.refresh_own()

    async def refresh_own(self) -> None:
        """Do that for its own toolsets, not for those of a team's members."""
        if self._changing is None:
            return
        others = [each for each in self.by_kind.values() if each is not self._changing]
        await self._changing.refresh({spec.name for each in others for spec in each.offers})
        self._refreshed = True
        self.offers = self._index()

    def with_client_tools(self, tools: Sequence[Mapping[str, Any]]) -> HandlerRegistry:
        """Return it for the run of a client that makes the calls of these tools, as JSON.

        A tool of a name that is taken is left out.
        """
        if not tools:
            return self
        taken = {
            spec.name
            for handler in self.by_kind.values()
            if not isinstance(handler, ToolHandler)
            for spec in handler.offers
        }
        made: list[Handler] = []
        for handler in self.by_kind.values():
            if isinstance(handler, ToolHandler):
                handler = copy(handler)  # noqa: PLW2901 - one of this run's own
                handler.add_client_tools(tools, taken)
            made.append(handler)
        members = {name: each.with_client_tools(tools) for name, each in self._members.items()}
        return HandlerRegistry(made, members=members, only_by_name=self._own)

    def check(self, algorithms: Iterable[Algorithm[Any]]) -> None:
        """Refuse algorithms that name tools which are not here; see `React.tool_names`.

        Raises:
            UnknownTool: one of them does.
        """
        for algorithm in algorithms:
            seen = self.for_algorithm(algorithm.name)
            if seen.has_toolsets:
                continue  # they are not all known yet; a call of one that is not there fails
            names = [spec.name for each in seen.by_kind.values() for spec in each.offers]
            for name in getattr(algorithm, "tool_names", None) or ():
                if name not in names:
                    raise UnknownTool(name, algorithm=algorithm.name, available=tuple(names))

    def for_algorithm(self, algorithm: str) -> HandlerRegistry:
        """Return the registry for the runs of an algorithm.

        An agent is not offered to the runs of its own algorithm, unless they name it: a model that
        can hand a task on to itself does, level below level.
        """
        if algorithm not in self._views:
            self._views[algorithm] = self._without(algorithm)
        return self._views[algorithm]

    def _without(self, algorithm: str) -> HandlerRegistry:
        agents = self.by_kind.get(k.CHILD_REQUESTED)
        own = agents.agents_of(algorithm) if isinstance(agents, ChildHandler) else ()
        if not own:
            return self
        return HandlerRegistry(self.by_kind.values(), only_by_name=frozenset(own))

    def admit(self, requests: Sequence[Request], state: RunState[object]) -> list[PendingEvent]:
        """Return the requests as events to be: intents, questions to people, and refusals.

        Raises:
            MissingHandler: nothing fulfils one of them.
        """
        members = [(request, self.member(_agent_of(request))) for request in requests]
        select = [(each, of, of.handler_for(each, state.run_id)) for each, of in members]
        # Grants come last: a fold that stops within the batch still finds the rest affordable.
        select.sort(key=lambda row: row[2].kind in k.SPAWNS_RUN)
        sharers = sum(handler.kind in k.SPAWNS_RUN for _, _, handler in select)
        remaining = remaining_after(state, requests)
        pending_events: list[PendingEvent] = []
        for request, member, handler in select:
            admission = Admission(
                run_id=state.run_id,
                upto=state.head,
                offers=member.offers,
                approved=state.approvals.get(request.key) == "approved",
                approved_version=state.versions.get(request.key) or None,
                answered=state.approvals.get(request.key) == "answered",
                repeats=_repeated(request, state),
                remaining=remaining,
                sharers=max(sharers, 1),
            )
            admitted = _admit(handler, request, admission)
            remaining = remaining_beside(remaining, admitted[0].kind, admitted[0].data)
            sharers -= handler.kind in k.SPAWNS_RUN
            pending_events += admitted
        return pending_events

    def handler_for(self, request: Request, run_id: str) -> Handler:
        """Return what fulfils a request that was decided.

        Raises:
            MissingHandler: nothing does.
        """
        if isinstance(request, ToolRequest):
            return self._for_tool(request)
        for handler in self.by_kind.values():
            if isinstance(request, handler.request_type):
                return handler
        raise MissingHandler(run_id, type(request).__name__)

    def _for_tool(self, request: ToolRequest) -> Handler:
        """Return the handler of the tool; without one, the tool handler, which reports that."""
        if request.offered is None:
            offered = request.name not in self._own
        else:
            offered = request.name in request.offered
        handler = self._by_tool.get(request.name) if offered else None
        return handler or self.by_kind[k.TOOL_REQUESTED]


def as_handlers(values: Iterable[Handler]) -> list[Handler]:
    """Return the handlers as a list, with those that every engine has.

    Raises:
        TypeError: one is of another type, or is not in a list.
    """
    handlers = as_list(values, "handlers", "[LLMHandler(…), ToolHandler(…)]")
    way_out = "give clients to an LLMHandler, tools to a ToolHandler"
    for handler in handlers:
        require_attribute(handler, "kind", "a Handler", way_out)
    kinds = {handler.kind: handler for handler in handlers}
    if k.LLM_REQUESTED in kinds and k.CONTEXT_REQUESTED not in kinds:
        # Before the one that it has make its calls, which would take its requests for its own.
        handlers.insert(0, SummaryHandler(kinds[k.LLM_REQUESTED]))
    if k.MEMORY_REQUESTED not in kinds:
        handlers.append(MemoryHandler(None))  # for runs of an agent that had one
    if k.TOOL_REQUESTED not in kinds:
        # A model may make up a call where there are no tools: that is answered, too.
        handlers.append(ToolHandler(()))
    if k.TURN_STARTED not in kinds:
        handlers.append(TurnHandler())
    return handlers


def registry_of(parts: AgentParts) -> HandlerRegistry:
    """Return the registry of an agent, with those of the members of its team."""
    members = {name: HandlerRegistry(as_handlers(each)) for name, each in parts.members.items()}
    return HandlerRegistry(as_handlers(parts.handlers), members=members)


def _repeated(request: Request, state: RunState[object]) -> str | None:
    """Return the key of an equal call of the run whose outcome is unknown."""
    if not state.unknown or not isinstance(request, ToolRequest):
        return None
    return state.unknown.get(call_digest(request.name, request.arguments))


def _agent_of(request: Request) -> str | None:
    return None if isinstance(request, (TurnRequest, MemoryRequest)) else request.agent


def _admit(handler: Handler, request: Request, admission: Admission) -> list[PendingEvent]:
    try:
        admitted, agent = handler.admit(request, admission), _agent_of(request)
        if agent is None:
            return [admitted]
        return [replace(admitted, data={**admitted.data, "agent": agent})]
    except ToolError as error:
        if not isinstance(request, ToolRequest):
            raise
        return calls_not_made([request], reason_of(error), error.message, code=error.code)


class AlgorithmRegistry(Mapping[str, Algorithm[Any]]):
    """Algorithms by name; that of sessions is always among them.

    Attributes:
        default: the name of the first one.
    """

    def __init__(self, algorithms: Iterable[Algorithm[Any]]) -> None:
        """Keep them.

        Raises:
            TypeError: one is of another type, or is not in a list.
            ValueError: two have one name, or there is none.
        """
        self._by_name: dict[str, Algorithm[Any]] = {SESSION: SessionLoop()}
        names: list[str] = []
        for algorithm in as_list(algorithms, "algorithms", "[React()]"):
            way_out = "use an instance, such as React()"
            require_attribute(algorithm, "decide", "an Algorithm", way_out)
            taken = algorithm.name == SESSION and not isinstance(algorithm, SessionLoop)
            if taken or algorithm.name in names:
                raise ValueError(f"two algorithms of one engine have the name {algorithm.name!r}")
            names.append(algorithm.name)
            self._by_name[algorithm.name] = algorithm
        if not names:
            raise ValueError("an engine needs at least one algorithm")
        self.default: str = names[0]
        self._names = tuple(names)

    def select(self, name: object) -> Algorithm[Any]:
        """Return the algorithm of this name, the first one for None.

        Raises:
            UnknownAlgorithm: there is none.
            TypeError: it is no name, such as the algorithm itself.
        """
        if name is not None and not isinstance(name, str):
            expected = f"an algorithm's name, such as {self.default!r}"
            raise TypeError(f"expected {expected}, got {type_label(name)}")
        return self.require(name or self.default)

    def require(self, name: str) -> Algorithm[Any]:
        """Return the algorithm of this name.

        Raises:
            UnknownAlgorithm: there is none.
        """
        try:
            return self._by_name[name]
        except KeyError:
            raise UnknownAlgorithm(name, available=self._names) from None

    def __getitem__(self, name: str) -> Algorithm[Any]:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


_log = logging.getLogger("lib.engine")


class ToolDefinitions:
    """Gives the definitions of tools as models got them, if their digest is that of the log."""

    def __init__(self, registries: Iterable[HandlerRegistry], redacted: Redaction) -> None:
        """Take the tools, and the redaction of what leaves the engine.

        Args:
            registries: that of the engine's handlers, and that of each agent, with its team's.
            redacted: the engine's redaction.
        """
        self._registries = [each for one in registries for _, each in one.with_members()]
        self._redacted = redacted
        self._cache: dict[str, Sequence[Mapping[str, Any]] | None] = {}

    def __call__(
        self, names: Sequence[str], tools_digest: str
    ) -> Sequence[Mapping[str, Any]] | None:
        """Return the definitions of these tools, redacted.

        Args:
            names: of the tools.
            tools_digest: of the definitions that the model got.

        Returns:
            None if the tools of this engine are others, or cannot be redacted.
        """
        if tools_digest in self._cache:
            return self._cache[tools_digest]
        for offers in (registry.offers for registry in self._registries):
            if offers.digest_of(names) == tools_digest:
                self._cache[tools_digest] = definitions = self._definitions(offers, names)
                return definitions
        return None  # not remembered: logs hold any number of others

    def _definitions(
        self, offers: ToolOffers, names: Sequence[str]
    ) -> Sequence[Mapping[str, Any]] | None:
        definitions = [
            {
                "type": "function",
                "name": spec.name,
                "description": spec.description,
                "parameters": spec.input_schema,
            }
            for spec in offers.select(names)
        ]
        try:
            redacted = self._redacted(k.LLM_REQUESTED, {"definitions": definitions})
        except RedactionFailed:
            _log.warning("traces show tools by name only: their definitions cannot be redacted")
            return None
        return cast("Sequence[Mapping[str, Any]]", redacted["definitions"])
