"""Summaries of conversations: model calls whose reply is for no reader."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lib._util.json import digest
from lib.engine.core.algorithm import SummaryRequest
from lib.engine.core.settle import PendingEvent
from lib.engine.handlers.base import Admission, Call, Handler
from lib.engine.logs import LLM_LOG, log_run
from lib.errors import StoreError
from lib.events import Event
from lib.events import kinds as k
from lib.events.summaries import share_summary, shared_summary
from lib.llm import Message, Reply, ToolSpec, reply_from_json

_ATTEMPTED: Final = ("attempts", "failed_models", "provider")


class SummaryHandler:
    """Has a summary made by the handler of model requests; every engine with one has this.

    Clients, retries, prices and guards are those of that handler. No piece of a summary is shown
    while it is written. What another run of the tenant and the user has summed up is not summed up
    again: guards look at that summary, and no model is called.
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
        found: list[Event] = []

        async def known_reply() -> Reply | None:
            if event := await _shared(call):
                found.append(event)
                return Reply(Message.assistant(event.data["text"]).parts)
            return None

        hidden = replace(call, on_delta=None, known_reply=known_reply)
        *verdicts, result = await self._models.handle(hidden)
        if result.kind != k.LLM_COMPLETED:
            return [*verdicts, PendingEvent(k.CONTEXT_FAILED, result.data)]
        provider = call.event.data.get("provider")
        data = {**({"provider": provider} if provider and not found else {}), **result.data}
        summary = _summary(call.decided, data, found)
        if summary.kind == k.CONTEXT_SUMMARY and not found:
            await _share(call)
        return [*verdicts, summary]

    def recover(self, request: Event) -> PendingEvent | None:
        """Ask again: a model call that was cut off costs money, nothing else."""
        return None


def _summary(
    request: SummaryRequest, data: Mapping[str, Any], found: Sequence[Event]
) -> PendingEvent:
    """Return the reply to a request as a summary, or as a failure that costs the same.

    Args:
        request: what was to be summed up.
        data: of the reply.
        found: the summary of another run, if the reply is its text.
    """
    reply = reply_from_json(data["reply"])
    made: dict[str, Any] = {"key": data["key"]}
    made |= {name: data[name] for name in _ATTEMPTED if name in data}
    made |= {name: data["reply"][name] for name in ("usage", "model") if name in data["reply"]}
    text = reply.text.strip()
    if problem := _problem(request, text, reply.stop):
        error = {"type": "NoSummary", "message": problem}
        return PendingEvent(k.CONTEXT_FAILED, {**made, "reason": "error", "error": error})
    covers = {"covers": request.summarises, "messages": request.count}
    for event in found:
        covers = {"covers": event.data["covers"], "messages": event.data["messages"]}
        made["reused"] = True
    return PendingEvent(k.CONTEXT_SUMMARY, {**made, **covers, "text": text})


def _problem(request: SummaryRequest, text: str, stop: str) -> str:
    if not text:
        return "expected a summary, got no text"
    if stop in ("length", "content_filter"):
        return f"expected a whole summary, got one that was cut off ({stop})"
    if len(text) > request.max_chars:
        return f"expected a summary of at most {request.max_chars} characters, got {len(text)}"
    return ""


# -- summaries of other runs -------------------------------------------------------------------


async def _shared(call: Call[SummaryRequest]) -> Event | None:
    """Return a summary that another run has made of the same, or of the beginning of it.

    None where the store fails: then a model is called.
    """
    if call.store is None:
        return None
    try:
        for name, count, covers in _names(call):
            event = await shared_summary(call.store, name)
            if event is not None and _fits(event, call, count, covers):
                return event
    except StoreError as error:
        what = "could not look for a summary of other runs for %s: %s"
        log_run(logging.WARNING, call.run_id, what, call.event.data["key"], error, logger=LLM_LOG)
    return None


async def _share(call: Call[SummaryRequest]) -> None:
    if call.store is None:
        return
    name, _, _ = next(_names(call))
    try:
        await share_summary(call.store, name, call.event)
    except StoreError as error:
        what = "could not share the summary of %s with other runs: %s"
        log_run(logging.WARNING, call.run_id, what, call.event.data["key"], error, logger=LLM_LOG)


def _names(call: Call[SummaryRequest]) -> Iterator[tuple[str, int, str]]:
    """Yield the names under which a summary may be shared, with the messages that it covers."""
    request = call.decided
    walls = [call.tenant or "", call.user or "", str(request.max_chars)]
    model = [str(call.event.data.get(name, "")) for name in ("provider", "model")]
    for count, covers in ((request.count, request.summarises), *request.beginnings):
        yield digest(*walls, *model, covers), count, covers


def _fits(event: Event, call: Call[SummaryRequest], count: int, covers: str) -> bool:
    """Return True if a summary is of these messages, and of this tenant and user."""
    data, whose = event.data, (event.tenant, event.user)
    of_it = (data.get("covers"), data.get("messages")) == (covers, count)
    return of_it and whose == (call.tenant, call.user) and bool(data.get("text"))
