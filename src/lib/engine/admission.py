"""Who fulfils a request, and the words in which it enters the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from lib.engine.core.algorithm import Algorithm, Request, ToolRequest
from lib.engine.core.grants import left_after, left_beside
from lib.engine.core.settle import Draft, never_made, reason_of
from lib.engine.core.state import RunState, call_digest
from lib.engine.given import check_has, listed
from lib.engine.handler import Admission, Handler, Offers
from lib.engine.handlers.child import ChildHandler
from lib.engine.handlers.tool import ToolHandler
from lib.engine.handlers.turn import TurnHandler
from lib.errors import MissingHandler, ToolError, UnknownTool
from lib.events import kinds as k

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


class Handlers:
    """The handlers of an engine, and which request each of them admits.

    Attributes:
        by_kind: each handler by the kind of the request events that it fulfils.
        offers: what models are told of all of them.
    """

    def __init__(self, handlers: Iterable[Handler], *, own: Mapping[str, Handlers] = _NONE) -> None:
        """Keep the handlers, in this order.

        Args:
            handlers: for the runs of all algorithms that have none of their own.
            own: the handlers of agents that have theirs, by the name of the agent.

        Raises:
            ValueError: two fulfil one kind, or two offer a tool of one name.
        """
        self.by_kind: dict[str, Handler] = {}
        self._by_tool: dict[str, Handler] = {}
        self._own: frozenset[str] = frozenset()
        for handler in handlers:
            if handler.kind in self.by_kind:
                raise ValueError(f"two handlers of one engine have the kind {handler.kind!r}")
            self.by_kind[handler.kind] = handler
            for spec in handler.offers:
                if spec.name in self._by_tool:
                    raise ValueError(f"two tools of one engine have the name {spec.name!r}")
                self._by_tool[spec.name] = handler
        self.offers = Offers(spec for each in self.by_kind.values() for spec in each.offers)
        self._seen: dict[str, Handlers] = dict(own)

    def check(self, algorithms: Iterable[Algorithm[Any]]) -> None:
        """Refuse algorithms that offer what there is not, where they tell: see `React.tool_names`.

        Raises:
            UnknownTool: one of them does.
        """
        for algorithm in algorithms:
            seen = self.seen_by(algorithm.name)
            known = [spec.name for each in seen.by_kind.values() for spec in each.offers]
            for name in getattr(algorithm, "tool_names", None) or ():
                if name not in known:
                    raise UnknownTool(name, algorithm=algorithm.name, known=tuple(known))

    def seen_by(self, algorithm: str) -> Handlers:
        """Return these as the runs of an algorithm see them.

        An agent is not offered to the runs of its own algorithm, unless they name it: a model that
        can hand a task on to itself does, level below level.
        """
        if algorithm not in self._seen:
            self._seen[algorithm] = self._without(algorithm)
        return self._seen[algorithm]

    def _without(self, algorithm: str) -> Handlers:
        agents = self.by_kind.get(k.CHILD_REQUESTED)
        own = agents.going_on_by(algorithm) if isinstance(agents, ChildHandler) else ()
        if not own:
            return self
        seen = Handlers(self.by_kind.values())
        specs = [spec for each in self.by_kind.values() for spec in each.offers]
        seen.offers = Offers(specs, unless_named=own)
        seen._own = frozenset(own)
        return seen

    def admit(self, requests: Sequence[Request], state: RunState[object]) -> list[Draft]:
        """Return the requests as events to be: intents, questions to people, and refusals.

        Raises:
            MissingHandler: nothing fulfils one of them.
        """
        chosen = [(request, self._handler(request, state.run_id)) for request in requests]
        # Grants come last: a fold that stops within the batch still finds the rest affordable.
        chosen.sort(key=lambda pair: pair[1].kind in k.DERIVING)
        sharers = sum(handler.kind in k.DERIVING for _, handler in chosen)
        left = left_after(state, requests)
        drafts: list[Draft] = []
        for request, handler in chosen:
            admission = Admission(
                run_id=state.run_id,
                upto=state.head,
                offers=self.offers,
                approved=state.approvals.get(request.key) == "approved",
                repeats=_repeated(request, state),
                left=left,
                sharers=max(sharers, 1),
            )
            admitted = _admitted(handler, request, admission)
            left = left_beside(left, admitted[0].kind, admitted[0].data)
            sharers -= handler.kind in k.DERIVING
            drafts += admitted
        return drafts

    def _handler(self, request: Request, run_id: str) -> Handler:
        if isinstance(request, ToolRequest):
            return self._of_tool(request)
        for handler in self.by_kind.values():
            if isinstance(request, handler.request_type):
                return handler
        raise MissingHandler(run_id, type(request).__name__)

    def _of_tool(self, request: ToolRequest) -> Handler:
        """Return who offers the tool; if nobody does, the tool handler says so to the model."""
        if request.offered is None:
            offered = request.name not in self._own
        else:
            offered = request.name in request.offered
        handler = self._by_tool.get(request.name) if offered else None
        return handler or self.by_kind[k.TOOL_REQUESTED]


def as_handlers(given: Iterable[Handler]) -> list[Handler]:
    """Return the handlers that an engine was given, and those that every engine has.

    Raises:
        TypeError: one is none, or is given alone.
    """
    handlers = listed(given, "handlers", "[LLMHandler(…), ToolHandler(…)]")
    told = "is no handler: give clients to an LLMHandler, tools to a ToolHandler"
    for handler in handlers:
        check_has(handler, "kind", told)
    kinds = {handler.kind for handler in handlers}
    if k.TOOL_REQUESTED not in kinds:
        # A model may make up a call where there are no tools: that is answered, too.
        handlers.append(ToolHandler(()))
    if k.TURN_STARTED not in kinds:
        handlers.append(TurnHandler())
    return handlers


def _repeated(request: Request, state: RunState[object]) -> str | None:
    """Return the key of an equal call of the run whose outcome is unknown."""
    if not state.unknown or not isinstance(request, ToolRequest):
        return None
    return state.unknown.get(call_digest(request.name, request.arguments))


def _admitted(handler: Handler, request: Request, admission: Admission) -> list[Draft]:
    try:
        return [handler.admit(request, admission)]
    except ToolError as error:
        if not isinstance(request, ToolRequest):
            raise
        return never_made([request], reason_of(error), error.message, code=error.code)
