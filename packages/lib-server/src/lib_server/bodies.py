"""The bodies of requests and answers: one pydantic model each, from which OpenAPI is made."""

from __future__ import annotations

import base64
import re
from datetime import date, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from lib_server.auth.principal import Scope as Right

Id = Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f]+$")]
Name = Annotated[
    str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")
]
Key = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[\x20-\x7e]+$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_MOST = 2**53
_MOST_OF_A_BUDGET = 1_000_000_000.0
_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)


def _only(pattern: re.Pattern[str], expected: str) -> BeforeValidator:
    """Refuse a parameter of another form, which pydantic might read as well."""

    def check(value: Any) -> Any:
        if isinstance(value, str) and not pattern.fullmatch(value):
            raise ValueError(f"expected {expected}")
        return value

    return BeforeValidator(check)


def _as_integer(value: Any) -> Any:
    """Read `5.0` as JSON schema has it: as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Time = Annotated[AwareDatetime, _only(_RFC_3339, "a time such as 2026-11-23T09:00:00Z")]
_INTEGER = _only(re.compile("-?[0-9]{1,16}"), "an integer")
PageSize = Annotated[int, Field(ge=1, le=200), _INTEGER]
Whole = Annotated[int, Field(ge=0, le=_MOST), BeforeValidator(_as_integer)]
Flag = Annotated[bool, _only(re.compile("true|false"), "true or false")]
Outcome = Literal["COMPLETED", "FAILED", "CANCELLED", "BLOCKED", "LIMITED"]
RunState = Literal["queued", "working", "waiting", "closed"]


class Body(BaseModel):
    """A body of a request: unknown fields are refused, and no type is guessed."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class Query(BaseModel):
    """The parameters of a request: unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)


class Empty(Query):
    """No parameters."""


class Answer(BaseModel):
    """A body of an answer; clients ignore fields that they do not know."""

    model_config = ConfigDict(allow_inf_nan=False, defer_build=True)


class Page(Query):
    """A page of a list."""

    cursor: Id | None = Field(None, description="`next_cursor` of the page before")
    limit: PageSize = 50


# -- input -----------------------------------------------------------------------------------------


class TextPart(Body):
    """Plain text."""

    type: Literal["text"]
    text: str


class UploadPart(Body):
    """Content that was uploaded to `/v1/blobs`."""

    digest: Digest
    media_type: Annotated[str, StringConstraints(max_length=256)] = Field(
        default="", description="that of the upload by default"
    )


def _decode(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value.encode("ascii"), validate=True)
    except ValueError:
        raise ValueError("expected base64") from None


def _encode(value: bytes) -> str:
    return base64.b64encode(value).decode()


BASE_64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
Base64 = Annotated[
    bytes,
    BeforeValidator(_decode),
    PlainSerializer(_encode),
    WithJsonSchema({"type": "string", "contentEncoding": "base64", "pattern": f"^{BASE_64}$"}),
]
_NOTHING: dict[str, Any] = {"type": "null"}
_ONE_SOURCE: dict[str, Any] = {
    "oneOf": [
        {
            "required": ["data", "media_type"],
            "properties": {
                "data": {"type": "string"},
                "media_type": {"minLength": 1},
                "upload": _NOTHING,
                "url": _NOTHING,
            },
        },
        {
            "required": ["upload"],
            "properties": {"upload": {"type": "object"}, "data": _NOTHING, "url": _NOTHING},
        },
        {
            "required": ["url"],
            "properties": {
                "url": {"type": "string", "pattern": "^https://"},
                "data": _NOTHING,
                "upload": _NOTHING,
            },
        },
    ]
}


class AttachmentPart(Body):
    """Content beside text, from exactly one source."""

    model_config = ConfigDict(json_schema_extra=_ONE_SOURCE)

    type: Literal["image", "audio", "file"]
    data: Base64 | None = Field(default=None, description="the content, in base64")
    upload: UploadPart | None = None
    url: str | None = Field(default=None, description="where the model's provider can fetch it")
    media_type: str = ""
    name: str = ""

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        sources = [each for each in (self.data, self.upload, self.url) if each is not None]
        if len(sources) != 1:
            raise ValueError("expected exactly one of data, upload and url")
        if self.data is not None and not self.media_type:
            raise ValueError("data needs a media_type such as image/png")
        if self.url is not None and not self.url.startswith("https://"):
            raise ValueError("expected a url that begins with https://")
        return self


class UserMessage(Body):
    """A message of a user, or of the agent before."""

    role: Literal["user", "assistant"] = "user"
    content: str | list[Annotated[TextPart | AttachmentPart, Field(discriminator="type")]]


def _check_user(message: UserMessage) -> UserMessage:
    if message.role != "user":
        raise ValueError("expected a message of the user: the session has those of the agent")
    return message


TurnMessage = Annotated[
    UserMessage,
    AfterValidator(_check_user),
    Field(json_schema_extra={"properties": {"role": {"const": "user"}}}),
]
Prompt = Annotated[str, StringConstraints(min_length=1)]
Input = Prompt | Annotated[list[UserMessage], Field(min_length=1)]
TurnInput = Prompt | Annotated[list[TurnMessage], Field(min_length=1)]


class BudgetBody(Body):
    """A ceiling for each resource; what is left out is not limited by the caller."""

    tokens: Whole | None = None
    cost: float | None = Field(None, ge=0, le=_MOST_OF_A_BUDGET, description="in US dollars")
    llm_calls: Whole | None = None
    tool_calls: Whole | None = None
    seconds: float | None = Field(None, ge=0, le=_MOST_OF_A_BUDGET)
    depth: Whole | None = None


def _check_turns(budget: BudgetBody) -> BudgetBody:
    if budget.depth == 0:
        raise ValueError("expected a depth of 1 or more: the turns are runs below the session")
    return budget


SessionBudget = Annotated[
    BudgetBody,
    AfterValidator(_check_turns),
    Field(json_schema_extra={"properties": {"depth": {"minimum": 1}}}),
]


# -- agents ----------------------------------------------------------------------------------------


class ToolView(Answer):
    """A tool that an agent's model may call."""

    name: str
    description: str


class AgentView(Answer):
    """An agent whose runs can be started here."""

    name: str
    tools: list[ToolView]
    agents: list[str] = Field(description="the agents that it may call")
    output: dict[str, Any] | None = Field(description="JSON schema of its answer; null for text")


class AgentList(Answer):
    """The agents of this server."""

    agents: list[AgentView]


# -- runs ------------------------------------------------------------------------------------------


class StartRun(Body):
    """A run to start."""

    agent: Name | None = Field(None, description="the first agent of the server by default")
    input: Input
    key: Key | None = Field(
        None, description="names the run within the tenant: the same key gives the same run"
    )
    budget: BudgetBody | None = None


class RunFilter(Page):
    """The filter of a list of runs."""

    status: Literal["open", "closed"] | None = None
    outcome: Outcome | None = None
    agent: Name | None = None
    user: Name | None = None
    order: Literal["newest", "oldest"] = "newest"
    session: Id | None = Field(None, description="only the turns of this session")
    roots: Flag = Field(default=False, description="only runs that no other run has started")
    since: Time | None = Field(None, description="only runs that began then or later")
    min_cost: float | None = Field(
        None,
        ge=0,
        le=_MOST_OF_A_BUDGET,
        description="only runs that cost so much in US dollars, or more; a page looks at 500 runs "
        "at most, and may have fewer than `limit` although there are more",
    )
    summary: Flag = Field(default=False, description="sum each run up; its log may have to be read")


class SummaryView(Answer):
    """A run in short."""

    question: str = Field(description="the first words of what the user has written")
    tokens: int = Field(description="without those of its child runs, as is the cost")
    cost: float | None = Field(description="in US dollars; null if a call has no price")


class RunView(Answer):
    """A run."""

    id: str
    agent: str
    status: Literal["open", "closed"]
    state: RunState
    outcome: Outcome | None
    tenant: str | None
    user: str | None
    root_id: str
    parent_id: str | None
    created_at: datetime
    updated_at: datetime
    head: int = Field(description="`seq` of its last event")
    summary: SummaryView | None = Field(default=None, description="in lists with `summary=true`")


class RunList(Answer):
    """A page of runs."""

    runs: list[RunView]
    next_cursor: str | None


class WaitFor(Query):
    """The time to wait for the end of a run."""

    wait_s: float = Field(0, ge=0, le=60, description="seconds; 0 answers at once")


class SpendView(Answer):
    """The use of a run."""

    tokens: int
    cost: float | None
    llm_calls: int
    tool_calls: int
    seconds: float


class ErrorView(Answer):
    """Why a run failed."""

    type: str
    message: str


class ResultView(Answer):
    """The result of a run, or how far it has come."""

    run_id: str
    outcome: Outcome | None = Field(description="null while it is open")
    text: str
    output: Any = Field(description="the answer as its agent's type, null for text")
    reason: str
    error: ErrorView | None
    spend: SpendView
    waiting_for: str | None = Field(description="in words, null once it has ended")


class CancelRun(Body):
    """Why a run is cancelled."""

    reason: Annotated[str, StringConstraints(max_length=2000)] = ""


class EventView(Answer):
    """One event of a run's log."""

    seq: int
    kind: str
    at: datetime
    user: str | None
    data: dict[str, Any]


class DeltaView(Answer):
    """A piece of a reply while the model writes it; the completed event replaces them all."""

    key: str = Field(description="the model call")
    epoch: int
    attempt: int
    text_at: int = Field(description="how many characters of the reply stand before the text")
    text: str
    thinking_at: int
    thinking: str


class EventPage(Answer):
    """Events of a run, in order."""

    run_id: str
    events: list[EventView]
    head: int = Field(description="`seq` of the last event when the page was read")


class EventQuery(Query):
    """The events to read."""

    after: Annotated[int, Field(ge=0, le=_MOST), _INTEGER] | None = Field(
        None, description="only events behind this `seq`"
    )
    limit: Annotated[int, Field(ge=1, le=1000), _INTEGER] = Field(
        256, description="of a page; a stream has no limit"
    )


class TraceView(Answer):
    """The spans of a trace, in the order of a waterfall; times are microseconds since it began."""

    begun_ms: float = Field(description="when it began, in milliseconds since 1970")
    length: float
    kinds: dict[str, str] = Field(description="a glyph for each kind of span")
    marks: dict[str, str] = Field(description="a glyph for each state")
    spans: list[dict[str, Any]]
    content: bool


class Health(Answer):
    """The state of the server process."""

    status: Literal["ok", "draining"]
    version: str


class OpenAPI(Answer):
    """An OpenAPI document."""

    model_config = ConfigDict(extra="allow")

    openapi: str


# -- spend -----------------------------------------------------------------------------------------


class SpendQuery(Query):
    """The days and groups to sum up."""

    by: Literal["agent", "model", "tenant", "user"] = "agent"
    since: Time | None = Field(None, description="30 days ago by default")
    until: Time | None = Field(None, description="now by default")


class SpendGroup(Answer):
    """The use of the runs of a group."""

    name: str | None = Field(description="of the agent, model, tenant or user; null for none")
    rest: bool = Field(description="true for all that are not among the 50 largest")
    runs: int
    tokens: int
    cost: float = Field(description="in US dollars, of the calls that have a price")
    unpriced: int = Field(description="how many calls have none")


class SpendDay(Answer):
    """The use of the runs that began on a day."""

    day: date
    groups: list[SpendGroup]


class SpendByDay(Answer):
    """The use of runs by day and group."""

    by: Literal["agent", "model", "tenant", "user"]
    since: datetime
    until: datetime
    days: list[SpendDay] = Field(description="in UTC; without days on which no run began")
    runs: int = Field(description="how many runs are in it")
    missing: int = Field(description="runs whose logs are still to be read: send the request again")
    truncated: bool = Field(description="true if only the newest 10,000 runs are considered")


# -- approvals -------------------------------------------------------------------------------------


class PageOfRuns(Query):
    """A page of a list that ends with a run: all that a run has comes on one page."""

    cursor: Id | None = Field(None, description="`next_cursor` of the page before")
    limit: PageSize = Field(50, description="at least so many, if there are")


class ApprovalView(Answer):
    """A tool call that waits, or has waited, for a person."""

    run_id: str
    agent: str
    key: str = Field(description="names the call in its run")
    call_id: str
    tool: str
    arguments: dict[str, Any]
    arguments_digest: str = Field(description="names the arguments that are decided on")
    reason: str = Field(description="why it waits although its tool needs no approval")
    tenant: str | None
    since: datetime
    status: Literal["pending", "approved", "denied", "withdrawn"]
    decided_by: str | None = None
    decided_at: datetime | None = None
    comment: str = ""


class ApprovalList(Answer):
    """Tool calls that wait for a person."""

    approvals: list[ApprovalView]
    next_cursor: str | None


class Decide(Body):
    """A decision about a tool call."""

    decision: Literal["approve", "deny"]
    arguments_digest: Digest = Field(description="of the arguments that the person has seen")
    comment: Annotated[str, StringConstraints(max_length=10_000)] = Field(
        "", description="why; the model reads it"
    )


# -- calls whose outcome is unknown ----------------------------------------------------------------


class UnknownCallView(Answer):
    """A tool call that may or may not have had its effect."""

    run_id: str
    agent: str
    key: str = Field(description="names the call in its run")
    call_id: str
    tool: str
    arguments: dict[str, Any]
    tenant: str | None
    since: datetime


class UnknownCallList(Answer):
    """Tool calls whose outcome is unknown."""

    calls: list[UnknownCallView]
    next_cursor: str | None


class Settle(Body):
    """The outcome of a tool call; a call that has not happened has no result."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"happened": {"const": False}}},
            "then": {"properties": {"result": {"type": "null"}}},
        }
    )

    happened: bool = Field(description="true if it had its effect")
    result: Any = Field(None, description="what it returned, if it happened")


class SettlementView(Answer):
    """The record of a tool call whose outcome was unknown."""

    run_id: str
    key: str
    happened: bool
    settled_by: str | None
    settled_at: datetime


# -- scores ----------------------------------------------------------------------------------------


class AddScore(Body):
    """One judgement of a run."""

    name: Annotated[str, StringConstraints(pattern=r"\S", max_length=256)]
    value: bool | float | Annotated[str, StringConstraints(max_length=1000)]
    comment: Annotated[str, StringConstraints(max_length=10_000)] | None = None
    source: Literal["code", "llm", "human"] = "human"
    span_id: Id | None = Field(None, description="the span that was judged; null for the run")
    key: Key | None = Field(None, description="names the judgement: it counts once under a key")


class ScoreView(Answer):
    """One judgement of a run."""

    name: str
    value: bool | float | str
    comment: str | None
    source: Literal["code", "llm", "human"]
    span_id: str | None
    user: str | None
    at: datetime


class ScoreList(Answer):
    """The judgements of a run, oldest first."""

    scores: list[ScoreView]


# -- sessions --------------------------------------------------------------------------------------


class StartSession(Body):
    """A session to start."""

    agent: Name | None = Field(None, description="the first agent of the server by default")
    key: Key | None = Field(
        None, description="names the session within the tenant: the same key gives the same one"
    )
    budget: SessionBudget | None = Field(None, description="of all turns together")
    turn_budget: BudgetBody | None = Field(None, description="of each turn")


class SessionView(Answer):
    """A session."""

    id: str
    agent: str
    status: Literal["open", "closed"]
    outcome: Outcome | None
    tenant: str | None
    user: str | None
    created_at: datetime
    updated_at: datetime
    turns: list[str] = Field(description="the ids of its turns, in order")


class SendMessage(Body):
    """A message to a session."""

    input: TurnInput
    key: Key | None = Field(None, description="names the turn: the same key gives the same turn")


class TurnView(Answer):
    """A turn of a session: a message, and the run that answers it."""

    id: str
    session_id: str
    run_id: str


class HistoryView(Answer):
    """The conversation after all turns that have ended."""

    messages: list[dict[str, Any]] = Field(description="as `input` of a run has them")


# -- credentials -----------------------------------------------------------------------------------


class MeView(Answer):
    """The credential of a request."""

    key_id: str = Field(description="names it in logs; `local` on a server without credentials")
    tenant: str | None = Field(description="whose runs it may see, null for those of all")
    user: str | None
    scopes: list[Right]
    expires_at: datetime | None
    uploads: bool = Field(description="true if the server has a place for `/v1/blobs`")
    manages_keys: bool = Field(description="true if it may use `/v1/keys` of this server")
    version: str = Field(description="of the server")


class BudgetView(Answer):
    """The rest of a ceiling of a day."""

    level: Literal["server", "tenant", "key"] = Field(description="whose ceiling it is")
    resource: Literal["tokens", "cost", "llm_calls", "tool_calls"]
    limit: float
    spent: float
    held: float = Field(description="by open runs, as they have a budget of their own")
    left: float = Field(description="for runs that are started now")
    ends_at: datetime = Field(description="when the day ends, and the ceiling is whole again")


class BudgetList(Answer):
    """The ceilings of a day that hold for the caller."""

    budgets: list[BudgetView] = Field(description="none if nothing limits what it spends in a day")


class CreateKey(Body):
    """An API key to create."""

    name: Annotated[str, StringConstraints(max_length=200)] = Field(
        "", description="which program or person holds it"
    )
    tenant: Name | None = Field(None, description="that of the caller, if it has one")
    user: Name | None = None
    scopes: list[Right] = Field(["read", "run"], min_length=1)
    expires_at: AwareDatetime | None = None


class KeyView(Answer):
    """An API key, without its secret."""

    id: str
    name: str
    tenant: str | None = Field(description="null if its caller sees the runs of all tenants")
    user: str | None
    scopes: list[Right]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="a few minutes old at most")


class NewKeyView(KeyView):
    """An API key that was just created."""

    key: str = Field(description="the key itself, which cannot be read again")


class KeyList(Answer):
    """The API keys that the caller administers."""

    keys: list[KeyView]


# -- blobs -----------------------------------------------------------------------------------------


class BlobView(Answer):
    """Content that was uploaded."""

    digest: str
    size: int
    media_type: str
