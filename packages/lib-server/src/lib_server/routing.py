"""A route: what it takes, what it answers, what it needs; and how a request goes through it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from lib.engine import Engine, Run, Session
from lib.events import EventStore, RunInfo
from lib.events.tenant import TenantEventStore
from lib_server.auth.keys import ApiKeys
from lib_server.auth.principal import Principal
from lib_server.auth.principal import Scope as Right
from lib_server.bodies import Empty
from lib_server.channels import Channels
from lib_server.limits import Limits
from lib_server.metrics import Metrics
from lib_server.problems import Problem, invalid
from lib_server.quotas import Quotas
from lib_server.spending import Spending
from lib_server.sse import Recheck
from lib_server.summaries import Summaries
from lib_server.waiting import PendingApprovals, UnknownOutcomes

Q_co = TypeVar("Q_co", covariant=True)
B_co = TypeVar("B_co", covariant=True)
Q = TypeVar("Q", bound=BaseModel)
B = TypeVar("B")

JSON: Final = "application/json"
_CONTEXT: Final = "lib_server"
_MOST_PARAMETERS: Final = 50
_LONGEST_ID: Final = 512


@dataclass(slots=True, kw_only=True)
class Context:
    """The facts of a request; the edge fills them in.

    Attributes:
        request_id: names the request in answers and logs.
        principal: its caller, None before the credentials are checked.
        is_allowed: checks the credentials again, for streams.
        route: the path of its route, with names for what varies; "" before it is found.
        headers: further ones of the answer, whatever it is.
        status: of the answer, 0 before it begins.
        problem: the code of the problem that the answer is, "" if it is none.
    """

    request_id: str
    principal: Principal | None = None
    is_allowed: Callable[[], Awaitable[bool]] | None = None
    route: str = ""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])
    status: int = 0
    problem: str = ""


def context_of(scope: Scope) -> Context:
    """Return what the server knows of the request."""
    context: Context = scope[_CONTEXT]
    return context


def route_path(scope: Scope) -> str:
    """Return the path of a request below the place where the server is mounted."""
    path, root = scope["path"], scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def set_context(scope: Scope, context: Context) -> None:
    """Begin to know something of the request."""
    scope[_CONTEXT] = context


@dataclass(slots=True, kw_only=True)
class Services:
    """The services that the routes of a server share.

    Attributes:
        engine: starts, reads and signals runs; entered.
        channels: bring what happens in runs to the streams.
        limits: of the server.
        quotas: what each caller may use.
        spending: what each caller has spent today.
        metrics: what is counted.
        summaries: of its runs.
        approvals: calls that wait for a person.
        unknown: calls whose outcome is unknown.
        openapi: returns the document of the server, mounted at a path.
        keys: the API keys that it takes; None if it takes none.
        issuers: the scopes of tokens, by the authorization server that issues them.
        mcp: returns what answers at `/mcp`; None where nothing does.
        draining: True once the server is shutting down.
        version: of the server.
    """

    engine: Engine
    channels: Channels
    limits: Limits
    quotas: Quotas
    spending: Spending
    metrics: Metrics
    summaries: Summaries
    approvals: PendingApprovals
    unknown: UnknownOutcomes
    openapi: Callable[[str], Mapping[str, Any]]
    keys: ApiKeys | None = None
    issuers: Mapping[str, Collection[str]] = field(default_factory=dict[str, Collection[str]])
    mcp: Callable[[], Awaitable[ASGIApp]] | None = None
    draining: bool = False
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[Q_co, B_co]):
    """One request, read and checked.

    Attributes:
        services: of the server.
        principal: its caller.
        request: as Starlette has it.
        query: its parameters.
        body: its body, None if the route takes none.
    """

    services: Services
    principal: Principal
    request: Request
    query: Q_co
    body: B_co

    @property
    def engine(self) -> Engine:
        """The engine of the server."""
        return self.services.engine

    @property
    def store(self) -> EventStore:
        """The event store as the caller sees it."""
        tenant, store = self.principal.tenant, self.engine.store
        return store if tenant is None else TenantEventStore(store, tenant)

    def path(self, name: str) -> str:
        """Return a part of the path; one that no id can be is like the id of nothing.

        Raises:
            Problem: `not_found`.
        """
        value: str = self.request.path_params[name]
        if not 0 < len(value) <= _LONGEST_ID or not value.isprintable():
            raise Problem("not_found", "no resource has this path")
        return value

    async def run(self) -> tuple[Run, RunInfo]:
        """Return the run that the path names.

        Raises:
            RunNotFound: there is none that the caller may see.
        """
        run = self.engine.run(self.path("run_id"), tenant=self.principal.tenant)
        return run, await run.info()

    def session(self) -> Session:
        """Return a handle on the session that the path names, which need not exist."""
        return self.engine.session(self.path("session_id"), tenant=self.principal.tenant)

    def recheck(self) -> Recheck:
        """Return what checks the credentials of the request again while it is answered."""
        is_allowed = context_of(self.request.scope).is_allowed or _always
        every_s = self.services.limits.recheck_s
        return Recheck(is_allowed, clock=self.engine.clock, every_s=every_s)

    def check_not_draining(self) -> None:
        """Refuse new work while the server shuts down.

        Raises:
            Problem: `draining`.
        """
        if self.services.draining:
            raise Problem("draining", "send it to another server, or again", retry_after_s=1)


class Header(NamedTuple):
    """A request header that a route reads.

    Attributes:
        line: about it, for the documentation.
        pattern: a regular expression for the whole of its value.
    """

    line: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Generic[Q, B]):
    """One method of one path.

    Attributes:
        method: in capitals.
        path: with `{names}` for what varies.
        handler: answers a call with an ASGI application.
        summary: one line for the documentation.
        tag: groups routes in the documentation.
        right: the scope that a caller needs, "any" for valid credentials of whatever scopes; None
            for a route that is open to all.
        query: the model of its parameters; None for none.
        body: the model of its body; None for none.
        content: the media type of a body that the handler reads by itself, "*/*" for any; "" for
            none.
        answers: the model of each status that it answers with; None for no body.
        problems: the codes of its own problems; those of every route are added, and that nothing
            has the id that a part of its path is.
        headers: the request headers that it reads, by name.
        events: the server-sent events that it may answer with, with a line for each.
        errors: the shape of its errors: problem+json, or that of OpenAI's API, or of A2A.
    """

    method: str
    path: str
    handler: Callable[[Call[Q, B]], Awaitable[ASGIApp]]
    summary: str
    tag: str
    right: Right | Literal["any"] | None
    query: type[Q] | None = None
    body: type[B] | None = None
    content: str = ""
    answers: Mapping[int, type[BaseModel] | None]
    problems: Sequence[str] = ()
    headers: Mapping[str, Header] = field(default_factory=dict[str, Header])
    events: Mapping[str, str] = field(default_factory=dict[str, str])
    errors: Literal["problem", "openai", "a2a"] = "problem"


AnyRoute = Route[Any, Any]


class Resource:
    """An ASGI application: the methods of one path."""

    def __init__(self, routes: Sequence[AnyRoute], services: Callable[[], Services]) -> None:
        """Serve routes of one path.

        Args:
            routes: one for each method.
            services: returns what they share.
        """
        self._routes = {route.method: route for route in routes}
        self._services = services
        self._allow = ", ".join(sorted(self._routes))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        answer = await self._answer(scope, receive)  # a stream keeps nothing else of its request
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> ASGIApp:
        route = self._routes.get(scope["method"])
        if route is None:
            detail = f"this resource has {self._allow}"
            raise Problem("method_not_allowed", detail, headers={"allow": self._allow})
        context = context_of(scope)
        context.route = route.path
        principal = context.principal or Principal(key_id="", scopes=frozenset())
        check_right(principal, route.right)
        request = Request(scope, receive)
        call: Call[Any, Any] = Call(
            services=self._services(),
            principal=principal,
            request=request,
            query=_query(route, scope["query_string"]),
            body=await _body(route, request),
        )
        return await route.handler(call)


async def _always() -> bool:
    return True


def check_right(principal: Principal, right: Right | Literal["any"] | None) -> None:
    """Refuse a caller without this scope.

    Raises:
        Problem: `forbidden`.
    """
    if right in (None, "any") or right in principal.scopes or "admin" in principal.scopes:
        return
    challenge = f'Bearer realm="lib-server", error="insufficient_scope", scope="{right}"'
    headers = {"www-authenticate": challenge}
    raise Problem("forbidden", f"expected the scope {right!r}", headers=headers, scope=right)


def _query(route: AnyRoute, query: bytes) -> Any:
    model: type[BaseModel] = route.query or Empty
    if not query:
        return model()
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MOST_PARAMETERS,
        )
    except ValueError:
        raise Problem("malformed", "the parameters of the request cannot be read") from None
    values = dict(pairs)
    if len(values) < len(pairs):
        raise Problem("invalid", "expected each parameter once")
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise invalid(error, body=False) from None


async def _body(route: AnyRoute, request: Request) -> Any:
    if route.body is None:
        return None
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    content = await request.body()
    if media_type != JSON and (content or media_type):
        raise Problem("unsupported_media_type", f"expected {JSON}")
    model: type[BaseModel] = route.body
    try:
        return model.model_validate_json(content or b"{}")
    except ValidationError as error:
        raise invalid(error, body=True) from None


def answer(
    body: BaseModel, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an answer with a body."""
    content = body.model_dump_json()
    return Response(
        content, status, {"cache-control": "no-store", **(headers or {})}, media_type=JSON
    )


def no_content() -> Response:
    """Return an answer without a body."""
    return Response(status_code=204, headers={"cache-control": "no-store"})
