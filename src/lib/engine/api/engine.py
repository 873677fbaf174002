"""The engine: starts runs, drives them, and takes them up again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from typing import Any, Never, Self, overload

from typing_extensions import TypeVar

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.ids import new_id
from lib._util.tasks import cancelled
from lib.engine.api.run import Run
from lib.engine.api.session import Session, session_start
from lib.engine.api.starting import begin_run, check_start, joined_trace, start_id
from lib.engine.arguments import (
    Input,
    as_client_tools,
    as_list,
    as_messages,
    as_run_id,
    require_attribute,
    require_optional_text,
)
from lib.engine.core.algorithm import Algorithm
from lib.engine.core.budget import Budget
from lib.engine.core.conversation import as_said
from lib.engine.core.result import Result
from lib.engine.core.session import SESSION
from lib.engine.core.state import RunState
from lib.engine.handlers import attachments
from lib.engine.handlers.agent_tool import AgentSpec, ChildHandler, Start, with_callees
from lib.engine.handlers.base import Handler, LiveDelta
from lib.engine.handlers.registry import (
    AlgorithmRegistry,
    HandlerRegistry,
    ToolDefinitions,
    as_handlers,
    registry_of,
)
from lib.engine.logs import best_effort_after_commit
from lib.engine.runtime.caches import ConversationCache, StateCache
from lib.engine.runtime.deltas import DeltaHub, DeltaQueue, ShownReplies
from lib.engine.runtime.hosting import Hosting
from lib.engine.runtime.services import Services, TenantEngine
from lib.errors import RunNotFound, StoreClosed
from lib.evals import Score, ScoreSource, as_score, score_event
from lib.events import BlobStore, Event, EventStore, NewEvent, RunQuery
from lib.events.bus import Bus
from lib.events.live import live_of
from lib.events.paging import each_run
from lib.events.payloads import check_signal
from lib.events.tenant import TenantEventStore
from lib.events.urls import open_store
from lib.events.wakeups import Listener
from lib.llm import Message, ToolSpec, message_to_json
from lib.privacy.redactor import Redactor, off_loop_if_large, redaction
from lib.tools import Deps

T = TypeVar("T", default=str)


class Engine:
    """Drives runs over a store: `async with Engine(store, agents=[…]) as engine`.

    Entering sets the store up; leaving stops what is under way, which any engine over the same
    store can take up again, and closes the store.

    Attributes:
        store: the logs.
        bus: carries their events to observers.
        poll_s: seconds between looks at what other processes have done, where no wake-up comes.
        conversations: what the turns of sessions go on with.
        hub: carries pieces of replies.
        tool_definitions: gives observers the definitions of tools that models get.
        hosting: the runs that it drives.
    """

    def __init__(
        self,
        store: EventStore | str | os.PathLike[str],
        handlers: Iterable[Handler] = (),
        *,
        agents: Iterable[AgentSpec[Any]] = (),
        algorithms: Iterable[Algorithm[Any]] = (),
        deps: Iterable[object] = (),
        blobs: BlobStore | None = None,
        redactor: Redactor | None = None,
        clock: Clock = SYSTEM_CLOCK,
        new_id: Callable[[], str] = new_id,
        worker: str | None = None,
        lease_s: float = 30.0,
        grace_s: float = 5.0,
        poll_s: float = 1.0,
        drive: bool = True,
    ) -> None:
        """Put the parts together; nothing happens before `async with`.

        Args:
            store: where the logs are: an event store, or a path or URL for `open_store`.
            handlers: carry out the requests of `algorithms`, one per kind.
            agents: those whose runs are started and driven here, and with them all that they may
                call. Each has a model, tools and guards of its own.
            algorithms: how runs without an agent go on, by name. The first of them is the default
                of `start`, else the first agent.
            deps: the application's own objects, for tools: `context.deps[Pool]`. They are never
                logged and not closed.
            blobs: where content above 256 KiB is kept; without one it is refused.
            redactor: takes out of every event what must not be kept, before anything sees it; the
                pieces of replies in `Run.deltas` are shown as they come in this process, and not
                at all in others.
            clock: the time.
            new_id: makes run and signal ids.
            worker: the name of this engine in leases; unique among live engines.
            lease_s: how long a dead engine keeps others from taking up its runs.
            grace_s: how long a cancelled call may take to end by itself; a plain function runs in
                a thread, cannot be cancelled, and is left behind at once.
            poll_s: see above.
            drive: False for a process that starts, signals and watches runs, and leaves the
                driving to workers.

        Raises:
            TypeError: the store, a handler or another part is of another type, or not in a list.
            ValueError: two handlers fulfil one kind or offer a tool of one name, or two algorithms
                or agents have one name, or there is none.
            UnknownAlgorithm: an agent's runs would go on by one that is not here.
            UnknownTool: an algorithm offers a tool that no handler has, and `drive` is not False.
        """
        if isinstance(store, str | os.PathLike):
            store = open_store(store)
        require_attribute(store, "claim", "an EventStore", "use open_store(…)")
        handlers = as_handlers(handlers)
        self._agents = with_callees(agents)
        if blobs is not None:
            require_attribute(blobs, "put", "a BlobStore", "use DirectoryBlobStore(…)")
        self.store = store
        self.bus: Bus = Bus(store, clock=clock, lease_s=lease_s)
        self.clock = clock
        self.poll_s = poll_s
        self.hub: DeltaHub = DeltaHub(
            live_of(store), store.wakeups, shares=redactor is None, drives=drive
        )
        self._redacted = redaction(redactor)
        self.new_id = new_id
        self._parts = {name: agent.parts() for name, agent in self._agents.items()}
        own = {name: registry_of(each) for name, each in self._parts.items()}
        described = [each.algorithm for each in self._parts.values()]
        self._algorithms = AlgorithmRegistry(
            [*as_list(algorithms, "algorithms", "[React()]"), *described]
        )
        self.conversations: ConversationCache = ConversationCache(store, self._algorithms)
        for handler in handlers:
            if isinstance(handler, ChildHandler):
                for name in handler.algorithms:
                    self.algorithm(name)
        self._equipment = Services(
            store=store,
            states=StateCache(store, self.conversations),
            handlers=HandlerRegistry(handlers, own=own),
            engine=self,
            blobs=attachments.held(blobs),
            redacted=self._redacted,
            clock=clock,
            worker=worker or f"worker-{new_id()}",
            lease_s=lease_s,
            grace_s=grace_s,
            deps=Deps(deps),
        )
        self.tool_definitions: ToolDefinitions = ToolDefinitions(
            [self._equipment.handlers, *own.values()], self._redacted
        )
        if drive:
            self._equipment.handlers.check(self._algorithms.values())
        self.hosting: Hosting = Hosting(
            self._equipment, self._algorithms, self.hub, self._resume_if_ready, drives=drive
        )
        self._pump: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def drives(self) -> bool:
        """True if it drives runs; False leaves that to other processes."""
        return self.hosting.drives

    @property
    def is_open(self) -> bool:
        """True between entering and leaving it."""
        return self._pump is not None and self._closing is None

    @property
    def agents(self) -> Mapping[str, AgentSpec[Any]]:
        """Its agents by name, those that they may call included."""
        return dict(self._agents)

    @property
    def algorithms(self) -> Sequence[str]:
        """The names by which its runs go on: of algorithms and of agents, without the sessions'."""
        return [name for name in self._algorithms if name != SESSION]

    def budget_of(self, agent: str | None = None) -> Budget | None:
        """Return the budget of runs that are started without one, None for no limit.

        Args:
            agent: the name of an agent or an algorithm; None for the first one, as in `start`.

        Raises:
            UnknownAlgorithm: the engine has none of this name.
        """
        spec = self._select(agent, None)[1]
        return None if spec is None else spec.budget

    @property
    def blobs(self) -> BlobStore | None:
        """The blob store, None without one."""
        return self._equipment.blobs

    # -- life ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.store.setup()
        self._closing, self.hosting.closing = None, False
        self._pump = asyncio.create_task(self.bus.run(), name="lib.bus")
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop driving; what is under way is interrupted and can be resumed. Safe to repeat."""
        if self._pump is None:
            return
        if self._closing is None:
            self.hosting.closing = True
            self._closing = asyncio.create_task(self._close(self._pump), name="lib.close")
        await asyncio.shield(self._closing)

    async def _close(self, pump: asyncio.Task[None]) -> None:
        pump.cancel()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.store.close)
            for parts in self._parts.values():
                stack.push_async_callback(parts.close)
            await self.hosting.close()
            await asyncio.wait([pump])

    # -- runs ------------------------------------------------------------------------------

    @overload
    async def start(
        self,
        input: Input,
        *,
        agent: AgentSpec[T],
        idempotency_key: str | None = None,
        tenant: str | None = None,
        user: str | None = None,
        budget: Budget | None = None,
        client_tools: Iterable[ToolSpec] = (),
        traceparent: str | None = None,
        tracestate: str | None = None,
        stream: bool = False,
    ) -> Run[T]: ...
    @overload
    async def start(
        self,
        input: Input,
        *,
        agent: str | None = None,
        algorithm: str | None = None,
        idempotency_key: str | None = None,
        tenant: str | None = None,
        user: str | None = None,
        budget: Budget | None = None,
        client_tools: Iterable[ToolSpec] = (),
        traceparent: str | None = None,
        tracestate: str | None = None,
        stream: bool = False,
    ) -> Run: ...
    async def start(
        self,
        input: Input,  # noqa: A002 - the word that fits
        *,
        agent: AgentSpec[Any] | str | None = None,
        algorithm: str | None = None,
        idempotency_key: str | None = None,
        tenant: str | None = None,
        user: str | None = None,
        budget: Budget | None = None,
        client_tools: Iterable[ToolSpec] = (),
        traceparent: str | None = None,
        tracestate: str | None = None,
        stream: bool = False,
    ) -> Run[Any]:
        """Start a run and drive it here, in the background.

        Args:
            input: what the user says: text, a message, or a conversation.
            agent: one of the engine's agents, or the name of one; then the output is text.
            algorithm: the name of one of the engine's algorithms. Without an agent and an
                algorithm it is the engine's first.
            idempotency_key: makes the start repeatable: within a tenant, the same key gives the
                same run, which is resumed here if no worker drives it.
            tenant: owner of the run and of everything derived from it.
            user: the person or service that starts it.
            budget: what it may spend; None for the agent's own, or no limit.
            client_tools: tools whose calls the caller makes itself: the run waits for
                `Run.answer`. What is answered is fenced, as it is not to be trusted.
            traceparent: the application's span to run within, as the header of W3C Trace Context
                has it. None for the tool call, or the active span of OpenTelemetry, that this is
                called in; "" for none. A malformed one is ignored.
            tracestate: the header that came with it.
            stream: keep the pieces of its replies from the start on, for `Run.stream`.

        Raises:
            UnknownAlgorithm: the engine has no such agent or algorithm.
            IdempotencyMismatch: the key has started another request.
            BlobMissing: it names a blob to which no run of the tenant refers.
            ContentTooLarge: an attachment is above 256 KiB and there is no blob store.
            RunErased: the run that the key has started has been erased.
            ValueError: there is no message, or the tenant or the key is empty; or a tool of the
                caller is malformed, or has the name of another one.
            TypeError: an argument is of another type; nothing is stored.
        """
        check_start(tenant=tenant, user=user, idempotency_key=idempotency_key, budgets=(budget,))
        require_optional_text(traceparent=traceparent, tracestate=tracestate)
        chosen, spec = self._select(agent, algorithm)
        if chosen.name == SESSION:
            raise ValueError(
                "a session is started by `start_session`, and what is said is sent to it"
            )
        messages = await self.messages(input, tenant=tenant)
        if not messages:
            raise ValueError("a run starts with at least one message")
        data: dict[str, Any] = {
            "algorithm": chosen.name,
            "input": [message_to_json(message) for message in messages],
        }
        if tools := as_client_tools(client_tools, self.tool_names(chosen.name)):
            data["client_tools"] = tools
        if budget is None and spec is not None:
            budget = spec.budget
        if budget is not None:
            data["budget"] = budget.to_json()
        more = await self.run_config(chosen.name, tenant=tenant, user=user)
        config = {**chosen.config(), **more}
        key = idempotency_key
        run = Run(self, start_id(self, key, tenant), parse=_parser(agent))
        if stream:
            run.keep_deltas()
        trace = joined_trace(traceparent, tracestate)
        run.repeated = not await begin_run(
            self, run.id, data, config, key=key, tenant=tenant, user=user, trace=trace
        )
        return run

    def _select(
        self, agent: AgentSpec[Any] | str | None, algorithm: str | None
    ) -> tuple[Algorithm[Any], AgentSpec[Any] | None]:
        """Return how a run goes on, and the agent if it has one.

        Raises:
            UnknownAlgorithm: there is no such agent or algorithm.
            TypeError: both are set, or one is of another type.
            ValueError: the engine has another agent of this name.
        """
        if agent is not None and algorithm is not None:
            raise TypeError("expected agent= or algorithm=, got both: leave one out")
        if agent is None or isinstance(agent, str):
            chosen = self._algorithms.select(agent or algorithm)
            return chosen, self._agents.get(chosen.name)
        require_attribute(agent, "parse_output", "an Agent", "use Agent(model, …)")
        chosen = self._algorithms.select(agent.name)
        if self._agents.get(agent.name) is not agent:
            raise ValueError(
                f"expected one of the engine's agents, got another one of the name {agent.name!r}: "
                "give it to Engine(…, agents=[…])"
            )
        return chosen, agent

    @overload
    async def start_session(
        self,
        *,
        agent: AgentSpec[T],
        tenant: str | None = None,
        user: str | None = None,
        budget: Budget | None = None,
        turn_budget: Budget | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> Session[T]: ...
    @overload
    async def start_session(
        self,
        algorithm: str | None = None,
        *,
        agent: str | None = None,
        tenant: str | None = None,
        user: str | None = None,
        budget: Budget | None = None,
        turn_budget: Budget | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> Session: ...
    async def start_session(
        self,
        algorithm: str | None = None,
        *,
        agent: AgentSpec[Any] | str | None = None,
        tenant: str | None = None,
        user: str | None = None,
        budget: Budget | None = None,
        turn_budget: Budget | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> Session[Any]:
        """Start a session: a conversation that goes on, turn by turn, until it is closed.

        Args:
            algorithm: the name of the one by which its turns are answered; see `start`.
            agent: the agent that answers, one of the engine's, or its name.
            tenant: owner of the session and its turns.
            user: the person who starts it; each turn may name another user.
            budget: what all its turns together may spend, None for no limit.
            turn_budget: what each of them may spend at most; None for the agent's own budget.
            idempotency_key: makes it repeatable, as in `start`.
            traceparent: the application's span to run within, all turns included, as in `start`.
                None for none: a session mostly outlives the request that starts it.
            tracestate: the header that came with it.

        Raises:
            UnknownAlgorithm: the engine has no such algorithm.
            IdempotencyMismatch: the key has started another request.
            ValueError: the algorithm is a session itself, or no run may hang below it, or the
                tenant or the key is empty.
            TypeError: an argument is of another type.
        """
        budgets = (budget, turn_budget)
        check_start(tenant=tenant, user=user, idempotency_key=idempotency_key, budgets=budgets)
        require_optional_text(traceparent=traceparent, tracestate=tracestate)
        chosen, spec = self._select(agent, algorithm)
        if turn_budget is None and spec is not None:
            turn_budget = spec.budget
        data = session_start(chosen.name, budget, turn_budget)
        run_id = start_id(self, idempotency_key, tenant)
        trace = joined_trace(traceparent or "", tracestate)
        session = Session(self, run_id, parse=_parser(agent))
        session.repeated = not await begin_run(
            self, run_id, data, key=idempotency_key, tenant=tenant, user=user, trace=trace
        )
        return session

    @overload
    def session(
        self, session_id: str, *, tenant: str | None = None, agent: AgentSpec[T]
    ) -> Session[T]: ...
    @overload
    def session(self, session_id: str, *, tenant: str | None = None) -> Session: ...
    def session(
        self,
        session_id: str,
        *,
        tenant: str | None = None,
        agent: AgentSpec[Any] | None = None,
    ) -> Session[Any]:
        """Return a handle on a session of the store; see `run`."""
        require_optional_text(tenant=tenant)
        host = self if tenant is None else TenantEngine(self, tenant)
        return Session(host, as_run_id(session_id), parse=_parser(agent))

    @overload
    def run(self, run_id: str, *, tenant: str | None = None, agent: AgentSpec[T]) -> Run[T]: ...
    @overload
    def run(self, run_id: str, *, tenant: str | None = None) -> Run: ...
    def run(
        self,
        run_id: str,
        *,
        tenant: str | None = None,
        agent: AgentSpec[Any] | None = None,
    ) -> Run[Any]:
        """Return a handle on a run of the store; to a tenant, another's run is a missing one.

        Args:
            run_id: the run.
            tenant: the tenant that reads it, None for the application itself.
            agent: the agent whose run it is, for an output of the agent's type.

        Raises:
            ValueError: the tenant is empty.
            TypeError: the id or the tenant is no text.
        """
        require_optional_text(tenant=tenant)
        host = self if tenant is None else TenantEngine(self, tenant)
        return Run(host, as_run_id(run_id), parse=_parser(agent))

    async def resume(self, run_id: str) -> bool:
        """Drive a run here if no worker does; return True if this engine drives it now.

        Raises:
            RunNotFound: there is no such run.
            UnknownAlgorithm: the engine does not have its algorithm.
            TypeError: the id is no text.
        """
        if as_run_id(run_id) in self.hosting:
            return True
        info = await self.store.run(run_id)
        if info is None:
            raise RunNotFound(run_id)
        return await self.hosting.claim(run_id, self.algorithm(info.algorithm))

    async def recover(self, *, limit: int = 100) -> list[Run]:
        """Drive ready runs that no worker holds, oldest first, and return them.

        Call it when a process starts, to go on with what its predecessor left.
        """
        taken: list[Run] = []
        async for info in each_run(self.store, RunQuery(status="open")):
            algorithm = self._algorithms.get(info.algorithm)
            if len(taken) == limit:
                break
            if algorithm is None or not info.ready or info.run_id in self.hosting:
                continue
            if await self.hosting.claim(info.run_id, algorithm):
                taken.append(Run(self, info.run_id))
        return taken

    async def signal(
        self, run_id: str, kind: str, data: dict[str, Any], *, user: str | None = None
    ) -> None:
        """Append a signal to a run, and drive it if it was waiting for one.

        Once it is appended nothing is raised any more: what fails then is logged.

        Raises:
            RunNotFound: there is no such run.
            InvalidEvent: the payload lacks what readers of this kind rely on.
            ValueError: the kind is no signal.
            TypeError: the user is no text, or the payload no dict.
        """
        require_optional_text(user=user)
        check_signal(kind, data)
        event = await self.event(kind, {"signal_id": self.new_id(), **data}, user=user)
        await self._append_signal(run_id, event)

    async def _append_signal(self, run_id: str, event: NewEvent) -> None:
        await self.store.append(run_id, [event], expected=None)
        with best_effort_after_commit(
            run_id, "a signal was appended, and its blobs were not looked at again"
        ):
            await attachments.appended(self._equipment.blobs, [event])
        with best_effort_after_commit(
            run_id, "a signal was appended, and it could not be driven at once"
        ):
            await self._resume_if_ready(run_id)

    async def score(
        self,
        run_id: str,
        score: Score | str | None = None,
        value: float | str | None = None,
        *,
        name: str | None = None,
        comment: str | None = None,
        source: ScoreSource | None = None,
        at: datetime | None = None,
        meta: Mapping[str, Any] | None = None,
        span_id: str | None = None,
        signal_id: str | None = None,
        user: str | None = None,
    ) -> None:
        """Append a judgement of a run, or of one span of it, to its log; see `Run.score`.

        Raises:
            RunNotFound: there is no such run.
            ValueError: it is no score, such as NaN or a blank name.
            TypeError: a Score and its fields are mixed, or no name or value is there.
        """
        judged = as_score(score, value, name=name, comment=comment, source=source, at=at, meta=meta)
        await self.add_score(run_id, judged, span_id=span_id, signal_id=signal_id, user=user)

    # -- for handles, drivers and observers ------------------------------------------------

    async def event(
        self, kind: str, data: dict[str, Any], *, tenant: str | None = None, user: str | None = None
    ) -> NewEvent:
        """Return an event of now, redacted; one with much text in a thread.

        Raises:
            RedactionFailed: the redactor raised; nothing is to be written.
        """
        redacted = await off_loop_if_large(self._redacted, kind, data)
        return NewEvent(kind, redacted, self.clock.now(), tenant, user)

    async def add_score(
        self,
        run_id: str,
        score: Score,
        *,
        span_id: str | None,
        signal_id: str | None,
        user: str | None,
    ) -> None:
        """Append a score, redacted, to a run; see `Run.score`."""
        require_optional_text(user=user, span_id=span_id, signal_id=signal_id)
        signal = score_event(
            score, signal_id=signal_id or self.new_id(), now=self.clock.now(), span_id=span_id
        )
        data = await off_loop_if_large(self._redacted, signal.kind, signal.data)
        await self._append_signal(as_run_id(run_id), replace(signal, data=data, user=user))

    async def run_config(
        self, algorithm: str, *, tenant: str | None, user: str | None
    ) -> Mapping[str, Any]:
        """Return what a run that starts now remembers beside the config of its algorithm.

        Raises:
            Exception: whatever the instructions of an agent raise.
        """
        spec = self._agents.get(algorithm)
        if spec is None:
            return {}
        return await spec.run_config(Start(tenant=tenant, user=user, deps=self._equipment.deps))

    def tool_names(self, algorithm: str) -> frozenset[str]:
        """Return the names of the tools and agents that runs of an algorithm may call.

        Those of toolsets are among them as far as they are known.
        """
        handlers = self._equipment.handlers.for_algorithm(algorithm)
        members = [each.by_kind.values() for _, each in handlers.with_members()]
        return frozenset(spec.name for each in members for one in each for spec in one.offers)

    def algorithm(self, name: str) -> Algorithm[Any]:
        """Return the algorithm of this name.

        Raises:
            UnknownAlgorithm: there is none.
        """
        return self._algorithms.require(name)

    async def messages(self, value: Input, *, tenant: str | None = None) -> list[Message]:
        """Return the input as messages, with large attachments in the blob store.

        Args:
            value: the input of a run or a turn.
            tenant: the owner: a blob to which none of its runs refers is missing. None may name
                any blob.

        Raises:
            BlobMissing: it names a blob that it may not.
            ContentTooLarge: there is no blob store.
        """
        view = TenantEventStore(self.store, tenant) if tenant else None
        messages = [as_said(message) for message in as_messages(value)]
        return await attachments.store(messages, self._equipment.blobs, view=view)

    async def watch(self, run_id: str) -> AsyncGenerator[LiveDelta]:
        """Yield replies of this run while they are written; see `Run.deltas`."""
        with self.store.wakeups.listen(run_id) as wake:
            queue, shown = DeltaQueue[Never](wake.wake), ShownReplies()
            self.hub.add(run_id, queue)
            rest = asyncio.create_task(self._rest_of(run_id, wake), name="lib.watch")
            rest.add_done_callback(lambda _: queue.end())
            try:
                while (piece := await queue.get()) is not None:
                    new, _ = shown.take(piece)
                    if new is not None:
                        yield new
                await rest
            finally:
                self.hub.discard(run_id, queue)
                await cancelled(rest)

    async def _rest_of(self, run_id: str, wake: Listener) -> None:
        """Wait until no process drives the run, nor is about to."""
        while await self._is_driven(run_id):
            await wake.wait(self.poll_s)

    async def _is_driven(self, run_id: str) -> bool:
        """Return True if a process drives the run, or will do so soon."""
        if run_id in self.hosting:
            return True
        try:
            info = await self.store.run(run_id)
        except StoreClosed:
            return False
        return info is not None and info.status == "open" and (info.ready or info.owner is not None)

    async def start_driving(self, run_id: str, log: Sequence[Event]) -> bool:
        """Drive a run that has just been started, from its log, unless another worker does.

        Raises:
            UnknownAlgorithm: the engine does not have its algorithm.
        """
        await attachments.appended(self._equipment.blobs, log)
        return await self.hosting.claim(run_id, self.algorithm(log[0].data["algorithm"]), log)

    def wait_while_driven(self, run_id: str) -> Coroutine[Any, Any, RunState[Any] | None]:
        """Wait until this process stops driving the run; return its state then.

        Returns None if the run is not driven here, or no longer because another worker is.

        Raises:
            RunAbandoned: this engine is closing.
        """
        return self.hosting.wait_stopped(run_id)

    async def result_of(self, run_id: str) -> Result:
        """Wait for the end of a run and return it; see `Run.result`."""
        return await Run(self, run_id).result()

    async def _resume_if_ready(self, run_id: str) -> None:
        """Drive a ready run here, if its algorithm is here and no other worker drives it."""
        info = await self.store.run(run_id)
        if info is not None and info.ready and info.algorithm in self._algorithms:
            await self.resume(run_id)


def _parser(agent: AgentSpec[T] | str | None) -> Callable[[str], T] | None:
    return None if agent is None or isinstance(agent, str) else agent.parse_output
