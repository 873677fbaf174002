"""The handler protocol: handlers carry requests out, and are the only place of effects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

from lib._util.clock import Clock
from lib._util.json import canonical, digest
from lib._util.trace_context import TraceContext
from lib.engine.core.algorithm import Request
from lib.engine.core.budget import UNLIMITED, Budget
from lib.engine.core.result import Result
from lib.engine.core.settle import PendingEvent
from lib.events import BlobStore, Event, EventStore
from lib.llm import Delta, Reply, ToolSpec
from lib.privacy.redactor import NOTHING_REDACTED, Redaction
from lib.tools import Deps
from lib.tools.definition import NO_DEPS

R = TypeVar("R", bound=Request, default=Any)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDelta:
    """A part of a reply while it is being written; never an event.

    Attributes:
        key: the request that it belongs to.
        attempt: from 1; a higher one starts the reply anew.
        delta: what has been added.
        epoch: that of the lease under which it was written: a higher one, after another worker has
            taken the run over, starts the reply anew. Handlers leave it and what follows out.
        seq: that of the request.
        text_at: how many characters of the answer were written before.
        thinking_at: how many characters of the thinking were written before.
    """

    key: str
    attempt: int
    delta: Delta
    epoch: int = 0
    seq: int = 0
    text_at: int = 0
    thinking_at: int = 0


class ToolOffers:
    """The tools that all handlers of an engine offer to models, in a fixed order."""

    def __init__(
        self, specs: Iterable[ToolSpec], *, only_by_name: Collection[str] = frozenset()
    ) -> None:
        """Keep the specifications.

        Args:
            specs: all of them.
            only_by_name: the names of those offered only to algorithms that name them.
        """
        self._specs = tuple(specs)
        self._unrestricted = tuple(spec for spec in self._specs if spec.name not in only_by_name)
        self._digests: dict[tuple[str, ...] | None, str] = {}

    def select(self, names: Sequence[str] | None) -> Sequence[ToolSpec]:
        """Return those of these names; None means all that need not be named."""
        if names is None:
            return self._unrestricted
        return [spec for spec in self._specs if spec.name in names]

    def digest(self, names: Sequence[str] | None) -> str:
        """Return a digest of the definitions of those, "" if there are none."""
        key = None if names is None else tuple(names)
        if key not in self._digests:
            self._digests[key] = self.digest_of(names)
        return self._digests[key]

    def digest_of(self, names: Sequence[str] | None) -> str:
        """Return the same digest, and remember nothing: for names from anywhere."""
        described = [canonical([s.name, s.description, s.input_schema]) for s in self.select(names)]
        return digest(*described) if described else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The facts that a handler gets when it logs a request.

    Attributes:
        run_id: the run that makes the request.
        upto: the `seq` of the last event that the request rests on.
        offers: what all handlers of the engine offer to models.
        approved: whether a person has approved the request.
        approved_version: the version of the tool's definition that the person was shown.
        answered: whether the client of the run has answered the call.
        repeats: the key of an equal tool call of the run whose outcome is unknown, None if there
            is none.
        remaining: what the run may still spend, beside what it has granted to others.
        sharers: how many requests of this batch a grant has still to do for, this one included.
    """

    run_id: str
    upto: int
    offers: ToolOffers
    approved: bool = False
    approved_version: str | None = None
    answered: bool = False
    repeats: str | None = None
    remaining: Budget = UNLIMITED
    sharers: int = 1


class ChildRuns(Protocol):
    """The runs that one run starts: its children, or the turns of a session.

    While the store fails, its calls are repeated for as long as the lease lasts.
    """

    async def exists(self, request: Event) -> bool:
        """Return True if the run that the request names has begun, even if it was erased since."""
        ...

    async def run(
        self,
        request: Event,
        *,
        algorithm: str,
        input: Sequence[Mapping[str, Any]],  # noqa: A002 - the name in the log
        budget: Mapping[str, Any] | None = None,
        user: str | None = None,
        upto: int | None = None,
        client_tools: Sequence[Mapping[str, Any]] = (),
    ) -> Result:
        """Start the run that the request names, unless it is there already; wait for its end.

        Meanwhile it is driven here whenever no other worker does. When the parent run is
        cancelled, so is this one, and its end is waited for all the same.

        Args:
            request: a request event whose payload has `key` and `run_id`.
            algorithm: how the run goes on; one of the engine's.
            input: its messages, as JSON.
            budget: what it may spend, as JSON; None for no limit.
            user: the user of the run; None for that of the parent.
            upto: see `lib.run.started`.
            client_tools: see `lib.run.started`.

        Raises:
            UnknownAlgorithm: the engine has no such algorithm.
            RunAbandoned: the engine is closing.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[R]):
    """A request to carry out, and what its handler may use of the run and the engine.

    Attributes:
        event: the request in the log.
        request: the same as the algorithm decided it; None where the algorithm has changed and no
            longer makes the request for a run that it has started already.
        children: starts other runs for it.
        offers: what all handlers of the engine offer to models.
        blobs: where large content is kept, if anywhere.
        on_delta: takes deltas of a reply; None without a listener.
        redacted: what is done to every payload before it enters the log.
        first_model_call: whether no model of the run has read its input yet, so that guards
            check all of it.
        interrupted: True if a process died while it carried the request out, and this is the first
            call of the handler since.
        answer: what the client of the run has answered, as the payload of `lib.tool.answered`.
        budget: what the run may spend in all.
        trace: the span of this request in the application's trace, with the headers to send on as
            `traceparent` and `state`; None if the run was started within no trace.
        deps: the application's own objects, for its tools.
        store: where the runs are kept, None by hand.
        known_reply: returns the reply to a model request where it is known, so that guards look at
            it and no model is called; None, or a reply of None, for a call.
    """

    event: Event
    request: R | None
    run_id: str
    tenant: str | None
    user: str | None
    offers: ToolOffers
    blobs: BlobStore | None
    clock: Clock
    children: ChildRuns
    on_delta: Callable[[LiveDelta], None] | None = None
    redacted: Redaction = NOTHING_REDACTED
    first_model_call: bool = False
    interrupted: bool = False
    answer: Mapping[str, Any] | None = None
    budget: Budget = UNLIMITED
    trace: TraceContext | None = None
    deps: Deps = NO_DEPS
    store: EventStore | None = None
    known_reply: Callable[[], Awaitable[Reply | None]] | None = None

    @property
    def decided(self) -> R:
        """The request as it was decided, of a kind that starts no other run."""
        assert self.request is not None  # noqa: S101 - such a request is settled, not carried out
        return self.request


class Handler(Protocol[R]):
    """Carries out one kind of request."""

    @property
    def kind(self) -> str:
        """The kind of the request events that it fulfils."""
        ...

    @property
    def request_type(self) -> type[R]:
        """The type of the decided requests that it admits.

        A tool request goes to the handler that offers a tool of its name, and to the handler of
        `lib.tool.requested` if there is none.
        """
        ...

    @property
    def offers(self) -> Sequence[ToolSpec]:
        """The tools that models may call through it."""
        ...

    def admit(self, request: R, admission: Admission) -> PendingEvent:
        """Return the intent to record before the effect, or the question to a person.

        Raises:
            ToolError: this tool request is refused: the model reads why, and nothing is begun.
        """
        ...

    async def handle(self, call: Call[R]) -> Sequence[PendingEvent]:
        """Have the effect and return what happened; the last draft is the result.

        It does not raise for what the outside world does wrong: that is a result, too. Where the
        request is an interrupted tool call, the last draft may be `lib.tool.checked` with the
        answer "did_not_happen": once that is in the log, this is called again to make the call.
        """
        ...

    def recover(self, request: Event) -> PendingEvent | None:
        """Return the result of a request whose process died, or None to carry it out again."""
        ...
