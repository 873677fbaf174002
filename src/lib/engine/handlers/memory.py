"""Memories: recalls facts about the user of a run, and remembers what that user has said."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from lib.engine.core.algorithm import RECALL, LLMRequest, MemoryRequest
from lib.engine.core.settle import PendingEvent, memory_failed, memory_requested
from lib.engine.handlers.base import Admission, Call, Handler
from lib.engine.logs import log_run
from lib.errors import LLMError
from lib.events import Event
from lib.events import kinds as k
from lib.llm import Delta, Message, Output, Reply, ToolSpec, Usage, reply_from_json
from lib.llm.client import usage_from_json, usage_to_json
from lib.llm.output import output_schema
from lib.resilience.deadlines import deadline

if TYPE_CHECKING:  # it imports numpy
    from lib.memory import Memory

_MESSAGE_CHARS: Final = 500
_SHOWN: Final = ("id", "text", "key", "said_at")
_OF_LAST: Final = ("attempts", "failed_models", "provider", "tries")


class MemoryHandler:
    """Fulfils the requests of runs with a memory; whatever fails there, the run goes on."""

    kind = k.MEMORY_REQUESTED
    request_type = MemoryRequest
    offers: Sequence[ToolSpec] = ()

    def __init__(self, memory: Memory | None, models: Handler[LLMRequest] | None = None) -> None:
        """Take a memory, which stays the caller's to close.

        Args:
            memory: None where there is none any more: all requests fail.
            models: the handler of the model requests that an extractor makes, with its clients,
                retries, guards and prices; None for an extractor that needs no model.
        """
        self._memory, self._models = memory, models

    def admit(self, request: MemoryRequest, admission: Admission) -> PendingEvent:
        """Return the intent: with the query, if something is to be recalled."""
        return memory_requested(request)

    async def handle(self, call: Call[MemoryRequest]) -> Sequence[PendingEvent]:
        """Recall or remember; return what was found or changed, or why not."""
        request, memory = call.decided, self._memory
        if memory is None:
            return [memory_failed(request.key, "NoMemory", "this agent has no memory any more")]
        model = None if self._models is None else _Model(self._models, call)
        try:
            async with deadline(memory.timeout_s, clock=call.clock):
                if request.operation == RECALL:
                    data = await _recall(memory, call)
                else:
                    data = await _remember(memory, call, model)
        except Exception as error:  # noqa: BLE001 - of any store or extractor; no run fails by it
            what = "goes on without its memory: %s failed: %s"
            log_run(logging.WARNING, call.run_id, what, request.key, type(error).__name__)
            message = str(error)[:_MESSAGE_CHARS]
            result = memory_failed(request.key, type(error).__name__, message)
        else:
            result = PendingEvent(k.MEMORY_COMPLETED, {"key": request.key, **data})
        if model is None:
            return [result]
        return [*model.verdicts, replace(result, data={**result.data, **model.used()})]

    def recover(self, request: Event) -> PendingEvent | None:
        """Do it again: a memory finds what the run has remembered already."""
        return None


class _Model:
    """The model of an extractor, called as those of runs are: it has a client's methods.

    Attributes:
        verdicts: of the guards of its calls.
    """

    name = "memory"
    modalities = frozenset({"text"})

    def __init__(self, models: Handler[LLMRequest], call: Call[MemoryRequest]) -> None:
        self._models, self._call = models, call
        self._results: list[Mapping[str, Any]] = []
        self.verdicts: list[PendingEvent] = []

    @property
    def model(self) -> str:
        return str(self._intent(LLMRequest(key="model", messages=())).data.get("model", ""))

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        model: str | None = None,
        tools: Sequence[ToolSpec] = (),
        output: Output | None = None,
        settings: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Return the model's reply; tools and a provider's state are not used.

        Raises:
            LLMError: all attempts at all clients have failed, or a guard has refused the reply.
        """
        request = LLMRequest(
            key=self._call.decided.key,
            messages=messages,
            model=model,
            tools=(),
            settings=settings or {},
            output=None if output is None else output_schema(output),
            checked=len(messages),  # guards have read the user's words in the run
        )
        event = replace(self._call.event, data=self._intent(request).data)
        call = replace(
            cast("Call[Any]", self._call),
            event=event,
            request=request,
            on_delta=None,
            first_model_call=False,
        )
        *verdicts, result = await self._models.handle(call)
        self.verdicts += verdicts
        names = {name: event.data[name] for name in ("model", "provider") if name in event.data}
        self._results.append({**names, **result.data})
        if result.kind != k.LLM_COMPLETED:
            raise LLMError(result.data["error"]["message"])
        return reply_from_json(result.data["reply"])

    async def stream(
        self, messages: Sequence[Message], **options: Any
    ) -> AsyncIterator[Delta | Reply]:
        """Yield the reply in one piece; see `complete`."""
        yield await self.complete(messages, **options)

    def used(self) -> dict[str, Any]:
        """Return what the result says of the calls: the usage of all, the attempts of the last."""
        if not self._results:
            return {}
        last = self._results[-1]
        used = {name: last[name] for name in _OF_LAST if name in last}
        replies = [{**each, **each.get("reply", {})} for each in self._results]
        if model := replies[-1].get("model"):
            used["model"] = model
        usages = [usage_from_json(each["usage"]) for each in replies if "usage" in each]
        return {**used, "usage": usage_to_json(sum(usages, Usage()))} if usages else used

    def _intent(self, request: LLMRequest) -> PendingEvent:
        call = self._call
        admission = Admission(run_id=call.run_id, upto=call.event.seq, offers=call.offers)
        return self._models.admit(request, admission)


async def _remember(
    memory: Memory, call: Call[MemoryRequest], model: _Model | None
) -> Mapping[str, Any]:
    done = await memory.learn(
        call.decided.texts,
        source=call.run_id,
        tenant=call.tenant,
        user=call.user,
        said_at=call.event.at,
        client=model,
    )
    return done.to_json()


async def _recall(memory: Memory, call: Call[MemoryRequest]) -> Mapping[str, Any]:
    (query,) = call.decided.texts
    facts = await memory.recall(query, tenant=call.tenant, user=call.user)
    found = [fact.to_json() for fact in facts]
    records = [{name: each[name] for name in _SHOWN if name in each} for each in found]
    return {"records": records, "count": len(records)}
