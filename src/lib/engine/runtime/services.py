"""The engine as its parts see it: a protocol, services of drivers, a tenant's view."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any, Protocol

from lib._util.clock import Clock
from lib.engine.arguments import Input
from lib.engine.core.algorithm import Algorithm
from lib.engine.core.result import Result
from lib.engine.core.state import RunState
from lib.engine.handlers.attachments import PinnedBlobs
from lib.engine.handlers.base import LiveDelta
from lib.engine.handlers.registry import HandlerRegistry
from lib.engine.runtime.caches import ConversationCache, StateCache
from lib.engine.runtime.deltas import DeltaHub
from lib.errors import RunNotFound
from lib.evals import Score
from lib.events import Event, EventStore, NewEvent
from lib.events.tenant import TenantEventStore
from lib.llm import Message
from lib.privacy.redactor import Redaction
from lib.tools import Deps


class EngineAPI(Protocol):
    """An engine as its handles, its drivers and the runs that they start use it; see `Engine`."""

    store: EventStore
    clock: Clock
    poll_s: float
    conversations: ConversationCache
    hub: DeltaHub

    @property
    def drives(self) -> bool:
        """True if it drives runs, False if it leaves that to other processes."""
        ...

    @property
    def new_id(self) -> Callable[[], str]:
        """Makes ids of runs and signals."""
        ...

    def algorithm(self, name: str) -> Algorithm[Any]:
        """Return the algorithm of this name."""
        ...

    async def run_config(
        self, algorithm: str, *, tenant: str | None, user: str | None
    ) -> Mapping[str, Any]:
        """Return what a run that starts now remembers beside the config of its algorithm."""
        ...

    def tool_names(self, algorithm: str) -> frozenset[str]:
        """Return the names of the tools and agents that runs of an algorithm may call."""
        ...

    async def messages(self, value: Input, *, tenant: str | None = None) -> list[Message]:
        """Return the messages, with large attachments in the blob store."""
        ...

    async def event(
        self, kind: str, data: dict[str, Any], *, tenant: str | None = None, user: str | None = None
    ) -> NewEvent:
        """Return an event of now, redacted."""
        ...

    async def signal(
        self, run_id: str, kind: str, data: dict[str, Any], *, user: str | None = None
    ) -> None:
        """Append a signal to the run."""
        ...

    async def add_score(
        self,
        run_id: str,
        score: Score,
        *,
        span_id: str | None,
        signal_id: str | None,
        user: str | None,
    ) -> None:
        """Append a score, redacted, to the run."""
        ...

    async def resume(self, run_id: str) -> bool:
        """Drive the run here if no worker does; return True if this engine drives it now."""
        ...

    async def start_driving(self, run_id: str, log: Sequence[Event]) -> bool:
        """Drive a run that has just been started, from its log, unless another worker does."""
        ...

    def wait_while_driven(self, run_id: str) -> Coroutine[Any, Any, RunState[Any] | None]:
        """Wait until this process stops driving the run; return its state then."""
        ...

    async def result_of(self, run_id: str) -> Result:
        """Wait for the end of the run, driving it here whenever no worker does; return it."""
        ...

    def watch(self, run_id: str) -> AsyncGenerator[LiveDelta]:
        """Yield the run's replies while they are written, here or elsewhere."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of an engine that the drivers of its runs share."""

    store: EventStore
    states: StateCache
    handlers: HandlerRegistry
    engine: EngineAPI
    blobs: PinnedBlobs | None
    redacted: Redaction
    clock: Clock
    worker: str
    lease_s: float
    grace_s: float
    deps: Deps


class TenantEngine:
    """The view of an engine through which handles of one tenant see it; see `Engine.run`.

    A server that makes its handles with it answers for a foreign id as it does for a missing one.
    """

    def __init__(self, engine: EngineAPI, tenant: str) -> None:
        """Look at an engine through a tenant's view of its store.

        Raises:
            ValueError: the tenant is empty.
        """
        self._engine = engine
        self.store: EventStore = TenantEventStore(engine.store, tenant)
        self.clock: Clock = engine.clock
        self.poll_s: float = engine.poll_s
        self.conversations: ConversationCache = engine.conversations
        self.hub: DeltaHub = engine.hub
        self.new_id: Callable[[], str] = engine.new_id

    @property
    def drives(self) -> bool:
        """True if the engine drives runs."""
        return self._engine.drives

    def wait_while_driven(self, run_id: str) -> Coroutine[Any, Any, RunState[Any] | None]:
        """Wait until this process stops driving the run; None if it is not the tenant's."""
        return self._own(run_id, self._engine.wait_while_driven(run_id))

    async def _own(
        self, run_id: str, ended: Coroutine[Any, Any, RunState[Any] | None]
    ) -> RunState[Any] | None:
        with closing(ended):
            return None if await self.store.run(run_id) is None else await ended

    async def resume(self, run_id: str) -> bool:
        """Drive the run here if no worker does.

        Raises:
            RunNotFound: the tenant has no such run.
        """
        await self._check(run_id)
        return await self._engine.resume(run_id)

    async def start_driving(self, run_id: str, log: Sequence[Event]) -> bool:
        """Drive a run that has just been started, from its log, unless another worker does.

        Raises:
            RunNotFound: the tenant has no such run.
        """
        await self._check(run_id)
        return await self._engine.start_driving(run_id, log)

    async def result_of(self, run_id: str) -> Result:
        """Wait for the end of the run and return it.

        Raises:
            RunNotFound: the tenant has no such run.
        """
        await self._check(run_id)
        return await self._engine.result_of(run_id)

    async def signal(
        self, run_id: str, kind: str, data: dict[str, Any], *, user: str | None = None
    ) -> None:
        """Append a signal to the run.

        Raises:
            RunNotFound: the tenant has no such run.
        """
        await self._check(run_id)
        await self._engine.signal(run_id, kind, data, user=user)

    async def add_score(
        self,
        run_id: str,
        score: Score,
        *,
        span_id: str | None,
        signal_id: str | None,
        user: str | None,
    ) -> None:
        """Append a score, redacted, to the run.

        Raises:
            RunNotFound: the tenant has no such run.
        """
        await self._check(run_id)
        await self._engine.add_score(run_id, score, span_id=span_id, signal_id=signal_id, user=user)

    def algorithm(self, name: str) -> Algorithm[Any]:
        """Return the algorithm of this name."""
        return self._engine.algorithm(name)

    async def run_config(
        self, algorithm: str, *, tenant: str | None, user: str | None
    ) -> Mapping[str, Any]:
        """Return what a run that starts now remembers beside the config of its algorithm."""
        return await self._engine.run_config(algorithm, tenant=tenant, user=user)

    def tool_names(self, algorithm: str) -> frozenset[str]:
        """Return the names of the tools and agents that runs of an algorithm may call."""
        return self._engine.tool_names(algorithm)

    async def event(
        self, kind: str, data: dict[str, Any], *, tenant: str | None = None, user: str | None = None
    ) -> NewEvent:
        """Return an event of now, redacted."""
        return await self._engine.event(kind, data, tenant=tenant, user=user)

    async def messages(self, value: Input, *, tenant: str | None = None) -> list[Message]:
        """Return the messages, with large attachments in the blob store."""
        return await self._engine.messages(value, tenant=tenant)

    async def watch(self, run_id: str) -> AsyncGenerator[LiveDelta]:
        """Yield the run's replies while they are written; nothing of a foreign one."""
        if await self.store.run(run_id) is not None:
            async with aclosing(self._engine.watch(run_id)) as pieces:
                async for piece in pieces:
                    yield piece

    async def _check(self, run_id: str) -> None:
        if await self.store.run(run_id) is None:
            raise RunNotFound(run_id)
