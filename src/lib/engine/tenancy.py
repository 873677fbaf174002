"""An engine as one tenant may use it: the runs of others are as missing ones."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing, closing
from typing import Any

from lib.engine.core.algorithm import Algorithm
from lib.engine.core.state import RunState
from lib.engine.handler import Live
from lib.engine.session import Input, SessionHost
from lib.errors import RunNotFound
from lib.evals import Score
from lib.events import EventStore, NewEvent
from lib.events.tenant import TenantEventStore
from lib.llm import Message


class OneTenant:
    """What handles of one tenant need of an engine; see `Engine.run`.

    A server that makes its handles with it answers for a foreign id as it does for a missing one.
    """

    def __init__(self, engine: SessionHost, tenant: str) -> None:
        """Look at an engine through a tenant's view of its store.

        Raises:
            ValueError: the tenant is empty.
        """
        self._engine = engine
        self.store: EventStore = TenantEventStore(engine.store, tenant)
        self.poll_s = engine.poll_s
        self.histories = engine.histories
        self.hub = engine.hub
        self.new_id = engine.new_id

    @property
    def drives(self) -> bool:
        """Whether the engine drives runs."""
        return self._engine.drives

    def hosted(self, run_id: str) -> Coroutine[Any, Any, RunState[Any] | None]:
        """Wait until this process stops driving the run; None if it is not the tenant's."""
        return self._own(run_id, self._engine.hosted(run_id))

    async def _own(
        self, run_id: str, ended: Coroutine[Any, Any, RunState[Any] | None]
    ) -> RunState[Any] | None:
        with closing(ended):
            return None if await self.store.run(run_id) is None else await ended

    async def resume(self, run_id: str) -> bool:
        """Drive the run here if nobody does.

        Raises:
            RunNotFound: the tenant has no such run.
        """
        await self._check(run_id)
        return await self._engine.resume(run_id)

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

    async def event(self, kind: str, data: dict[str, Any], *, user: str | None = None) -> NewEvent:
        """Return an event of now, redacted."""
        return await self._engine.event(kind, data, user=user)

    async def messages(self, given: Input, *, tenant: str | None = None) -> list[Message]:
        """Return the messages, with large attachments in the blob store."""
        return await self._engine.messages(given, tenant=tenant)

    async def watch(self, run_id: str) -> AsyncGenerator[Live]:
        """Yield the run's replies while they are written here; nothing of a foreign one."""
        if await self.store.run(run_id) is not None:
            async with aclosing(self._engine.watch(run_id)) as pieces:
                async for piece in pieces:
                    yield piece

    async def _check(self, run_id: str) -> None:
        if await self.store.run(run_id) is None:
            raise RunNotFound(run_id)
