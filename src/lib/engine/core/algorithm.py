"""The protocol of algorithms: pure functions over a log, and the requests that they return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar, cast

from lib._util.json import canonical, digest
from lib.engine.core.conversation import History
from lib.events import Event
from lib.events import kinds as k
from lib.events.kinds import Outcome
from lib.events.payloads import check_payload
from lib.llm import Message

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMRequest:
    """Ask a model to go on with a conversation.

    Attributes:
        key: unique in the run and the same whenever it is decided again.
        messages: all that is sent, any sequence of messages.
        model: which model, None for the client's own.
        tools: the names of the tools on offer, None for every tool there is.
        settings: temperature and the like.
        output: JSON schema that the reply must fit.
        state: a provider's handle on the first messages; the call may rest on it or not.
        covers: how many of the messages it stands for.
        agent: the member of a team whose model is called; None for the run's own agent.
        first_call: True if that member has read none of the messages: its guards check all.
        checked: how many of the first messages are none that guards have still to check, such as a
            summary of what they have checked.
    """

    key: str
    messages: Sequence[Message]
    model: str | None = None
    tools: Sequence[str] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    output: Mapping[str, Any] | None = None
    state: Mapping[str, Any] | None = None
    covers: int = 0
    agent: str | None = None
    first_call: bool = False
    checked: int = 0

    def __post_init__(self) -> None:
        """Keep the messages as a `History`.

        Raises:
            TypeError: `messages` is no sequence of messages.
        """
        if not isinstance(self.messages, History):
            object.__setattr__(self, "messages", _history(self.messages))

    @property
    def history(self) -> History:
        """The messages, as a value that grows and knows its digest."""
        return cast("History", self.messages)

    def digest(self, tools_digest: str) -> str:
        """Return a digest of the whole request and of the digest of its tools.

        What a provider holds does not change it: the conversation is the same.
        """
        settings, output = canonical(dict(self.settings)), canonical(self.output)
        return digest(self.history.digest, self.model or "", settings, output, tools_digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest(LLMRequest):
    """Ask a model for a summary of the first messages of a conversation, for no reader.

    Attributes:
        summarises: a digest of these messages.
        count: how many they are, instructions left out.
        max_chars: a longer summary is a failure.
        beginnings: fewer of them whose summary would do, the most first: their number and digest.
    """

    summarises: str
    count: int
    max_chars: int
    beginnings: Sequence[tuple[int, str]] = ()


def _history(messages: object) -> History:
    if isinstance(messages, Sequence):
        as_list = list(cast("Sequence[object]", messages))
        if not isinstance(messages, str) and all(isinstance(each, Message) for each in as_list):
            return History().extend(cast("list[Message]", as_list))
    raise TypeError(
        f"messages of an LLMRequest are a list of Message, got {messages!r:.100}: "
        "write [Message.user('…')]"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """Ask for a tool call that a model has made.

    Attributes:
        key: unique in the run, even if a model repeats its call ids.
        call_id: the model's own id of the call, by which it knows the result.
        invalid: the raw arguments, if they were no JSON object.
        offered: the names of the tools offered to the model, None for all; it may call no other.
        agent: the member of a team that has the tool; None for the run's own agent.
    """

    key: str
    call_id: str
    name: str
    arguments: Mapping[str, Any]
    invalid: str | None = None
    offered: Sequence[str] | None = None
    agent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """Ask for the answer to a message in a session: a run of its own.

    Attributes:
        key: unique in the session, the same however often the message was sent.
        algorithm: how the run goes on.
        input: its messages, as JSON.
        user: the person who sent it.
        budget: what the run may spend, as JSON; None for what the session has left.
        client_tools: the tools whose calls the client of the run makes, as JSON.
    """

    key: str
    algorithm: str
    input: Sequence[Mapping[str, Any]]
    user: str | None = None
    budget: Mapping[str, Any] | None = None
    client_tools: Sequence[Mapping[str, Any]] = ()


RECALL: Final = "search_memory"
REMEMBER: Final = "upsert_memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """Ask the memory of the run's agent for facts about the user, or to remember some.

    Attributes:
        key: unique in the run.
        operation: `RECALL` or `REMEMBER`, as OpenTelemetry names them.
        texts: the one query, or what the user has said.
    """

    key: str
    operation: str
    texts: Sequence[str]


Request = LLMRequest | ToolRequest | TurnRequest | MemoryRequest


@dataclass(frozen=True, slots=True)
class Note:
    """A fact for the log, such as a verdict or a hand-off, that has no effect outside it.

    Attributes:
        kind: one of the application's own, outside `lib.`, or one of `lib.events.kinds.NOTES`.
        data: its payload, as plain JSON.

    Raises:
        ValueError: the engine or another component writes events of this kind.
        InvalidEvent: the payload does not fit the kind.
    """

    kind: str
    data: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Refuse what would make the log contradict itself."""
        if not self.kind or (self.kind.startswith(k.PREFIX) and self.kind not in k.NOTES):
            raise ValueError(
                f"expected a kind outside {k.PREFIX!r} or one of {', '.join(sorted(k.NOTES))}, "
                f"got {self.kind!r}: use a prefix of your own, such as 'acme.note'"
            )
        check_payload(self.kind, self.data)


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a tool call that the algorithm answers itself: no tool is called."""

    request: ToolRequest
    output: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """The failure of a tool call that the algorithm does not allow: the model reads why."""

    request: ToolRequest
    message: str


Fact = Note | Answer | Refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The run is over.

    Attributes:
        output: the answer, as text.
        reason: why it is not COMPLETED, in a word or two.
        error: the type and message of what failed.
    """

    outcome: Outcome
    output: str = ""
    reason: str = ""
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to ask for until an open request has its result or a signal comes."""


Decision = Sequence[Request | Fact] | Finish | Wait
"""What an algorithm decides. Facts enter the log first; then it decides anew."""


class Algorithm(Protocol[S]):
    """The protocol of algorithms: pure functions, so that a resumed run decides as before.

    The same log gives the same state and the same decision, in any process, at any time. A
    decision does not depend on which of its own requests have been made already: a request that
    waits for its result may be returned again, under the same key, and is not made twice.

    A fact has no key: `evolve` takes note of its event, and the next decision leaves it out.
    """

    @property
    def name(self) -> str:
        """The name that starts runs of it; recorded in their logs."""
        ...

    def config(self) -> dict[str, Any]:
        """Return what a run must remember of this instance, as plain JSON."""
        ...

    def initial(self, started: Event, history: Sequence[Message] = ()) -> S:
        """Return the state after `lib.run.started`, from the config recorded in it.

        Args:
            started: the run's first event.
            history: the conversation that the run goes on with, if it is the turn of a session:
                without a system message, every tool call answered.
        """
        ...

    def evolve(self, state: S, event: Event) -> S:
        """Return the state after one more event, leaving the old one as it is.

        It is total: kinds and fields that it does not know change nothing.
        """
        ...

    def decide(self, state: S) -> Decision:
        """Return what to ask for and to write down now, or how the run ends, or that it waits."""
        ...


class NullAlgorithm:
    """Stands in for an algorithm that is not here, or that fails."""

    name = ""

    def config(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def initial(self, started: Event, history: Sequence[Message] = ()) -> None:
        """Return nothing."""

    def evolve(self, state: None, event: Event) -> None:
        """Return nothing."""

    def decide(self, state: None) -> Wait:
        """Return that there is nothing to ask for."""
        return Wait()


NULL_ALGORITHM: Final[Algorithm[None]] = NullAlgorithm()
