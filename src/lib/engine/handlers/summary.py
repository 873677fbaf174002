"""Summaries of conversations: model calls whose reply is for no reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lib.engine.core.algorithm import SummaryRequest
from lib.engine.core.settle import PendingEvent
from lib.engine.handlers.base import Admission, Call, Handler
from lib.events import Event
from lib.events import kinds as k
from lib.llm import ToolSpec, reply_from_json

_ATTEMPTED: Final = ("attempts", "failed_models", "provider")


class SummaryHandler:
    """Has a summary made by the handler of model requests; every engine with one has this.

    Clients, retries, prices and guards are those of that handler. No piece of a summary is shown
    while it is written.
    """

    kind = k.CONTEXT_REQUESTED
    request_type = SummaryRequest
    offers: Sequence[ToolSpec] = ()

    def __init__(self, models: Handler) -> None:
        """Take the handler of model requests."""
        self._models = models

    def admit(self, request: SummaryRequest, admission: Admission) -> PendingEvent:
        """Return the intent: what the summary is of, never its content."""
        intent = self._models.admit(request, admission)
        covers = {"covers": request.summarises, "messages": request.count}
        return PendingEvent(k.CONTEXT_REQUESTED, {**intent.data, **covers})

    async def handle(self, call: Call[SummaryRequest]) -> Sequence[PendingEvent]:
        """Call the model; return its summary, or why there is none."""
        *verdicts, result = await self._models.handle(replace(call, on_delta=None))
        if result.kind != k.LLM_COMPLETED:
            return [*verdicts, PendingEvent(k.CONTEXT_FAILED, result.data)]
        provider = (
            {"provider": call.event.data["provider"]} if "provider" in call.event.data else {}
        )
        return [*verdicts, _summary(call.decided, {**provider, **result.data})]

    def recover(self, request: Event) -> PendingEvent | None:
        """Ask again: a model call that was cut off costs money, nothing else."""
        return None


def _summary(request: SummaryRequest, data: Mapping[str, Any]) -> PendingEvent:
    """Return the reply to a request as a summary, or as a failure that costs the same."""
    reply = reply_from_json(data["reply"])
    made: dict[str, Any] = {"key": data["key"]}
    made |= {name: data[name] for name in _ATTEMPTED if name in data}
    made |= {name: data["reply"][name] for name in ("usage", "model") if name in data["reply"]}
    text = reply.text.strip()
    if problem := _problem(request, text, reply.stop):
        error = {"type": "NoSummary", "message": problem}
        return PendingEvent(k.CONTEXT_FAILED, {**made, "reason": "error", "error": error})
    covers = {"covers": request.summarises, "messages": request.count}
    return PendingEvent(k.CONTEXT_SUMMARY, {**made, **covers, "text": text})


def _problem(request: SummaryRequest, text: str, stop: str) -> str:
    if not text:
        return "expected a summary, got no text"
    if stop in ("length", "content_filter"):
        return f"expected a whole summary, got one that was cut off ({stop})"
    if len(text) > request.max_chars:
        return f"expected a summary of at most {request.max_chars} characters, got {len(text)}"
    return ""
