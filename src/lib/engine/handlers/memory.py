"""Memories: recalls facts about the user of a run, and remembers what that user has said."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lib.engine.core.algorithm import RECALL, MemoryRequest
from lib.engine.core.settle import PendingEvent, memory_failed, memory_requested
from lib.engine.handlers.base import Admission, Call
from lib.engine.logs import log_run
from lib.events import Event
from lib.events import kinds as k
from lib.llm import LLMClient, Reply, ToolSpec
from lib.llm.prices import PriceBook, with_cost
from lib.resilience.deadlines import deadline

if TYPE_CHECKING:  # it imports numpy
    from lib.memory import Memory, Remembered

_MESSAGE_CHARS: Final = 500
_SHOWN: Final = ("id", "text", "key", "said_at")


class MemoryHandler:
    """Fulfils the requests of runs with a memory; whatever fails there, the run goes on."""

    kind = k.MEMORY_REQUESTED
    request_type = MemoryRequest
    offers: Sequence[ToolSpec] = ()

    def __init__(
        self,
        memory: Memory | None,
        client: LLMClient | None = None,
        *,
        prices: PriceBook | None = None,
    ) -> None:
        """Take a memory, which stays the caller's to close.

        Args:
            memory: None where there is none any more: all requests fail.
            client: the model for a memory whose extractor has none of its own.
            prices: for an extractor whose provider states no cost.
        """
        self._memory, self._client, self._prices = memory, client, prices

    def admit(self, request: MemoryRequest, admission: Admission) -> PendingEvent:
        """Return the intent: with the query, if something is to be recalled."""
        return memory_requested(request)

    async def handle(self, call: Call[MemoryRequest]) -> Sequence[PendingEvent]:
        """Recall or remember; return what was found or changed, or why not."""
        request, memory = call.decided, self._memory
        if memory is None:
            return [memory_failed(request.key, "NoMemory", "this agent has no memory any more")]
        try:
            async with deadline(memory.timeout_s, clock=call.clock):
                if request.operation == RECALL:
                    data = await _recall(memory, call)
                else:
                    data = await self._remember(memory, call)
        except Exception as error:  # noqa: BLE001 - of any store or extractor; no run fails by it
            what = "goes on without its memory: %s failed: %s"
            log_run(logging.WARNING, call.run_id, what, request.key, type(error).__name__)
            message = str(error)[:_MESSAGE_CHARS]
            return [memory_failed(request.key, type(error).__name__, message)]
        return [PendingEvent(k.MEMORY_COMPLETED, {"key": request.key, **data})]

    async def _remember(self, memory: Memory, call: Call[MemoryRequest]) -> Mapping[str, Any]:
        done = await memory.learn(
            call.decided.texts,
            source=call.run_id,
            tenant=call.tenant,
            user=call.user,
            said_at=call.event.at,
            client=self._client,
        )
        return self._with_cost(done, call).to_json()

    def _with_cost(self, done: Remembered, call: Call) -> Remembered:
        if self._prices is None or done.usage is None or done.model is None:
            return done
        reply = Reply((), usage=done.usage, model=done.model)
        priced = with_cost(
            reply, self._prices, provider=done.provider, model=done.model, at=call.clock.now()
        )
        return replace(done, usage=priced.usage)

    def recover(self, request: Event) -> PendingEvent | None:
        """Do it again: a memory finds what the run has remembered already."""
        return None


async def _recall(memory: Memory, call: Call[MemoryRequest]) -> Mapping[str, Any]:
    (query,) = call.decided.texts
    facts = await memory.recall(query, tenant=call.tenant, user=call.user)
    found = [fact.to_json() for fact in facts]
    records = [{name: each[name] for name in _SHOWN if name in each} for each in found]
    return {"records": records, "count": len(records)}
