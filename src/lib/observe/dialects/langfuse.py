"""Langfuse.

Source: Langfuse's server, packages/shared/src/server/otel (OtelIngestionProcessor.ts,
ObservationTypeMapper.ts), as of August 2026, and its documentation of ingestion version 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from lib.observe import attributes as a
from lib.observe.dialects.messages import chat_messages, conversation
from lib.observe.dialects.table import (
    COMMON,
    TableDialect,
    settings_of,
    trace_name_of,
    usage_of,
)
from lib.observe.dialects.values import json_text, text
from lib.observe.span import Span, SpanKind, Status

_TYPES: Final[Mapping[SpanKind, str]] = {
    "agent": "agent",
    "session": "chain",
    "workflow": "chain",
    "llm": "generation",
    "tool": "tool",
    "retriever": "retriever",
    "reranker": "retriever",
    "embedding": "embedding",
    "guardrail": "guardrail",
    "evaluator": "evaluator",
    "memory": "span",
    "internal": "span",
}

_LEVELS: Final[Mapping[Status, str]] = {"ok": "DEFAULT", "error": "ERROR"}

_MESSAGES: Final[frozenset[SpanKind]] = frozenset({"agent", "session", "workflow", "llm"})


def _observation(span: Span) -> dict[str, Any]:
    model = span.attributes.get(a.RESPONSE_MODEL) or span.attributes.get(a.REQUEST_MODEL)
    settings = settings_of(span)
    return {
        "langfuse.trace.name": trace_name_of(span),
        "langfuse.observation.level": _LEVELS[span.status],
        "langfuse.observation.status_message": _status_message(span),
        "langfuse.observation.model.name": model,
        "langfuse.observation.model.parameters": json_text(settings) if settings else None,
        "langfuse.observation.completion_start_time": _first_chunk_at(span),
    }


def _status_message(span: Span) -> Any:
    if span.status == "ok":
        return None
    return span.status_message or span.attributes.get(a.ERROR_TYPE)


def _first_chunk_at(span: Span) -> str | None:
    seconds = span.attributes.get(a.FIRST_CHUNK_S)
    if not isinstance(seconds, int | float) or not 0 <= seconds <= timedelta.max.days:
        return None
    at = span.start + timedelta(seconds=seconds)
    return json_text(at)  # JSON of a text: older servers read nothing else


def _usage(span: Span) -> dict[str, Any]:
    """Return the tokens in kinds that add up, and what they have cost.

    The server subtracts nothing itself, and takes any name that it does not know for a kind of its
    own; so all usage is in these attributes, and none in `gen_ai.usage`.
    """
    usage = usage_of(span)
    tokens = {name: max(number, 0) for name, number in usage.items() if name != "cost"}
    sent, received = tokens.get("input_tokens", 0), tokens.get("output_tokens", 0)
    # A part is never more than its whole, whatever a provider says.
    cached = min(tokens.get("cache_read_tokens", 0), sent)
    written = min(tokens.get("cache_write_tokens", 0), sent - cached)
    reasoning = min(tokens.get("reasoning_tokens", 0), received)
    details = {
        "input": sent - cached - written,
        "output": received - reasoning,
        "total": sent + received,
    }
    parts = {
        "input_cached_tokens": cached,
        "input_cache_creation": written,
        "output_reasoning_tokens": reasoning,
    }
    details |= {name: number for name, number in parts.items() if number}
    cost = usage.get("cost")
    return {
        "langfuse.observation.usage_details": json_text(details) if tokens else None,
        "langfuse.observation.cost_details": None if cost is None else json_text({"total": cost}),
    }


def _content(span: Span) -> dict[str, Any]:
    return {
        "langfuse.observation.input": _shown(span, span.input, "user"),
        "langfuse.observation.output": _shown(span, span.output, "assistant"),
    }


def _shown(span: Span, value: Any, role: str) -> str | None:
    if value is None:
        return None
    if span.kind in _MESSAGES and not isinstance(value, str):
        return json_text(chat_messages(conversation(value, role)))
    return text(value)


LANGFUSE: Final = TableDialect(
    name="Langfuse",
    kind="langfuse.observation.type",  # always sent: without it, a model makes a generation
    kinds=_TYPES,
    names={
        **COMMON,
        **dict.fromkeys([*a.SETTINGS.values(), a.FIRST_CHUNK_S, a.TRACE_NAME], ()),
        **{name: () for names in a.USAGE.values() for name in names},
        a.RUN_ID: (a.RUN_ID, "langfuse.observation.metadata.run_id"),
        a.TENANT: (a.TENANT, "langfuse.trace.metadata.tenant"),
        a.TAGS: ("langfuse.trace.tags",),
        a.ENVIRONMENT: ("langfuse.environment",),
        a.COST: (a.COST, "gen_ai.usage.cost"),
    },
    facts=[_observation, _usage, _content],
    omitted_prefix="gen_ai.usage.",
)
