"""The server: an ASGI application over an engine."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

from starlette.responses import Response
from starlette.routing import Mount, Router
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from lib import Agent, Engine
from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.engine import Worker
from lib.engine.core.state import RunState
from lib.events import EventStore
from lib_server import __version__
from lib_server.auth.api_key import keys_of
from lib_server.auth.principal import Attached, Authenticator, FetchesKeys, issuers_of
from lib_server.channels import Channels
from lib_server.console.serving import Console
from lib_server.edge.access_log import AccessLog
from lib_server.edge.authentication import Authentication
from lib_server.edge.boundary import ProblemBoundary
from lib_server.edge.hosts import LOOPBACK, HostCheck
from lib_server.edge.measured import Measured
from lib_server.edge.rates import RateLimit
from lib_server.edge.request_id import RequestId
from lib_server.edge.size import SizeLimit
from lib_server.limits import Limits
from lib_server.mcp.route import MCPEndpoint
from lib_server.metrics import Metrics, Reading
from lib_server.openapi import document
from lib_server.problems import Problem, openai_response
from lib_server.quotas import Quotas
from lib_server.routes import ROUTES
from lib_server.routing import AnyRoute, Resource, Services
from lib_server.spending import Spending
from lib_server.summaries import Summaries
from lib_server.waiting import PendingApprovals, UnknownOutcomes

if TYPE_CHECKING:
    from lib.mcp import MCPToolServer
    from lib_server.a2a.config import A2AConfig

_log = logging.getLogger("lib_server")

Served: TypeAlias = (
    "Engine | Agent[Any] | Sequence[Agent[Any]] | AbstractAsyncContextManager[Engine]"
)
Source: TypeAlias = "Served | Callable[[], Served | Awaitable[Served]]"
"""What a server serves, or a function, plain or async, that makes it in the server's loop."""


class Server:
    """Serves the agents of an engine: `uvicorn.run(Server(engine))`, or `lib-server serve`.

    An ASGI application with a life: the lifespan protocol enters the engine and leaves it. Within
    another application, which has the lifespan for itself, write
    `Starlette(routes=[Mount("/agents", server)], lifespan=server.lifespan)`.

    Without an authenticator it serves its own machine only, and no page of another site.

    Attributes:
        auth: finds the principal of each request.
        limits: what is taken at most.
        routes: all that it serves.
    """

    def __init__(
        self,
        source: Source,
        *,
        auth: Authenticator | None = None,
        limits: Limits | None = None,
        console: bool = True,
        mcp: bool | Callable[[Engine], MCPToolServer] = True,
        a2a: A2AConfig | None = None,
        hosts: Collection[str] | None = None,
        store: EventStore | str | os.PathLike[str] = "memory:",
        drive: bool = True,
        max_runs: int = 32,
        drain_s: float = 10.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Put the parts together; nothing is opened before the server starts.

        Args:
            source: an engine, which is entered and closed; an agent or several; or a function that
                makes one of them, or an async context manager of an engine.
            auth: see above; None for a server of its own machine.
            limits: see above.
            console: serve the console.
            mcp: offer the agents at `/mcp`, which needs the extra `mcp`; or a function that makes
                the server of tools, to offer more than them.
            a2a: offer an agent to other agents, at `/a2a`, over Agent2Agent; experimental.
            hosts: the names under which the server is reached, without ports. None for any; for
                those of this machine without `auth`.
            store: where the logs are, if `source` is agents.
            drive: if `source` is agents, False leaves driving their runs to workers.
            max_runs: how many runs of other processes, or of dead ones, it drives at once.
            drain_s: seconds that runs may go on when the server stops.
            clock: for rates, and the day of budgets.

        Raises:
            TypeError: the source is of another type.
        """
        self.auth = auth
        self.limits = limits or Limits()
        self.console = console
        self._mcp = mcp
        self._a2a = a2a
        self.routes: tuple[AnyRoute, ...] = ROUTES
        self._shapes: dict[str, Callable[[Problem], Response]] = {"openai": openai_response}
        if a2a is not None:
            bindings: Any = import_module("lib_server.a2a.routes")
            more = bindings.a2a_routes(a2a, secured=auth is not None, since=clock.now())
            self.routes = (*ROUTES, *more)
            self._shapes["a2a"] = bindings.http_response
        self._metrics = Metrics()
        self._quotas = Quotas(self.limits, clock=clock)
        self._spending = Spending(self.limits, clock=clock)
        self._source = source
        self._store = store
        self._drive = drive
        self._max_runs = max_runs
        self._drain_s = drain_s
        self._services: Services | None = None
        self._stack: AsyncExitStack | None = None
        if not callable(source):
            _check_served(source)
        if hosts is None and auth is None:
            hosts = LOOPBACK
        self._app = self._built(hosts)

    # -- the application -------------------------------------------------------------------

    def _built(self, hosts: Collection[str] | None) -> ASGIApp:
        by_path: dict[str, list[AnyRoute]] = {}
        for route in self.routes:
            by_path.setdefault(route.path, []).append(route)
        mounted: list[StarletteRoute | Mount] = [
            StarletteRoute(path, Resource(routes, self._opened)) for path, routes in by_path.items()
        ]
        app: ASGIApp = Router(mounted, redirect_slashes=False, default=_not_found)
        open_paths = [route.path for route in self.routes if route.right is None]
        app = RateLimit(app, quotas=self._quotas, open_paths=open_paths)
        app = Authentication(
            app,
            authenticator=self.auth,
            open_paths=open_paths,
            on_failure=self._metrics.authentication_failures.add,
        )
        if self.console:
            app = Console(app)
        app = SizeLimit(app, limits=self.limits)
        app = HostCheck(app, hosts=hosts, local=self.auth is None)
        shapes = {
            route.path.partition("{")[0]: self._shapes[route.errors]
            for route in self.routes
            if route.errors in self._shapes
        }
        app = ProblemBoundary(app, shapes=shapes)
        app = AccessLog(app, monotonic=self._monotonic)
        app = Measured(app, metrics=self._metrics, monotonic=self._monotonic)
        return RequestId(app, new_id=lambda: secrets.token_hex(12))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or live a life."""
        if scope["type"] == "http":
            await self._app(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    def openapi(self, base_path: str = "") -> dict[str, Any]:
        """Return the OpenAPI document of its routes."""
        return document(self.routes, version=__version__, base_path=base_path)

    def _opened(self) -> Services:
        if self._services is None:
            detail = "the application that mounts it has lifespan=server.lifespan"
            raise Problem("not_started", detail)
        return self._services

    def _monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    # -- life ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise RuntimeError("expected a server that is not open yet: enter it once")
        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(await self._made())
            if self._a2a is not None:
                self._a2a.agent_among(engine.agents)
            if isinstance(self.auth, Attached):
                self.auth.attach(engine.store)
                stack.push_async_callback(self.auth.aclose)
            self._quotas.attach(engine.store)
            observe = self._metrics.first_piece_seconds.observe
            channels = Channels(engine, self.limits, on_first_piece=observe)
            stack.push_async_callback(channels.close)
            self._measure(engine, channels)
            endpoint = self._endpoint(engine)
            stack.push_async_callback(endpoint.close)
            services = Services(
                engine=engine,
                channels=channels,
                limits=self.limits,
                quotas=self._quotas,
                spending=self._spending,
                metrics=self._metrics,
                summaries=Summaries(engine.store),
                approvals=PendingApprovals(),
                unknown=UnknownOutcomes(engine.store),
                openapi=self.openapi,
                keys=keys_of(self.auth),
                issuers=issuers_of(self.auth),
                mcp=endpoint.app if self._mcp else None,
                version=__version__,
            )
            if engine.drives:
                await stack.enter_async_context(self._working(engine))
            self._services, self._stack = services, stack.pop_all()
        return self

    def _endpoint(self, engine: Engine) -> MCPEndpoint:
        make = self._mcp if callable(self._mcp) else None
        return MCPEndpoint(engine, make, limits=self.limits)

    def _measure(self, engine: Engine, channels: Channels) -> None:
        """Let the metrics have what happens here."""
        metrics, quotas = self._metrics, self._quotas
        metrics.readings = [
            Reading(
                "open_runs",
                "Runs that this process drives now.",
                "gauge",
                lambda: {"": engine.hosting.count},
            ),
            Reading(
                "open_streams", "Streams that are open.", "gauge", lambda: {"": quotas.streams}
            ),
            Reading(
                "sse_events_total",
                "Events and pieces of replies that were streamed.",
                "counter",
                lambda: {"": channels.sent},
            ),
        ]
        if isinstance(self.auth, FetchesKeys):
            metrics.readings.append(
                Reading(
                    "jwks_refresh_total",
                    "Fetches of the keys of token issuers.",
                    "counter",
                    self.auth.key_fetches,
                    label="outcome",
                )
            )

        def ended(agent: str, state: RunState[Any]) -> None:
            outcome = state.outcome or ""
            metrics.run_seconds.observe(state.spend.seconds, agent, outcome)

        engine.hosting.on_end = ended

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop: end the streams, let runs go on for `drain_s`, leave the engine; safe to repeat."""
        self.drain()
        stack, self._stack = self._stack, None
        if stack is not None:
            try:
                await stack.aclose()
            finally:
                self._services = None

    def drain(self) -> None:
        """Take no new work, and end every stream with `server.draining`; safe to repeat."""
        if self._services is not None and not self._services.draining:
            self._services.draining = True
            self._services.channels.end()

    @asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncGenerator[None]:
        """Be open as long as the application that mounts the server lives."""
        async with self:
            yield

    async def _live(self, receive: Receive, send: Send) -> None:
        started = False
        try:
            await receive()
            async with self:
                started = True
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except Exception as error:
            _log.exception("the server has failed to %s", "stop" if started else "start")
            kind = "shutdown" if started else "startup"
            await send({"type": f"lifespan.{kind}.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.shutdown.complete"})

    async def _made(self) -> AbstractAsyncContextManager[Engine]:
        """Return what the source serves, as an engine to enter."""
        served: Any = self._source
        if callable(served):
            served = served()
            if inspect.isawaitable(served):
                served = await served
            _check_served(served)
        if isinstance(served, Agent):
            served = [cast("Agent[Any]", served)]
        if isinstance(served, list | tuple):
            agents = cast("Sequence[Agent[Any]]", served)
            return Engine(self._store, agents=agents, drive=self._drive)
        return served

    @asynccontextmanager
    async def _working(self, engine: Engine) -> AsyncGenerator[None]:
        """Drive runs that other processes have left, until the end of the block."""
        worker = Worker(engine, max_runs=self._max_runs, drain_s=self._drain_s)
        task = asyncio.create_task(worker.run(), name="lib_server.worker")
        try:
            yield
        finally:
            worker.drain()
            await engine.hosting.wait_idle(self._drain_s)
            worker.stop()
            await asyncio.wait([task])


def _check_served(value: object) -> None:
    """Refuse what no server can serve.

    Raises:
        TypeError: it is of another type.
    """
    if isinstance(value, list | tuple):
        agents = cast("Sequence[object]", value)
        if agents and all(isinstance(each, Agent) for each in agents):
            return
    elif isinstance(value, Engine | Agent | AbstractAsyncContextManager):
        return
    raise TypeError(
        f"expected an Engine, an Agent, a list of agents or a function that makes one of them, "
        f"got {type(cast('object', value)).__name__}"
    )


async def _not_found(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise Problem("not_found", "no resource has this path")
