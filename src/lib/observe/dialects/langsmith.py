"""LangSmith.

Source: LangSmith's documentation, "Trace with OpenTelemetry", as of November 2026; the converter
of langchain-ai/langsmith-collector-proxy; the attributes of LangSmith's SDK for Go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

from lib.observe import attributes as a
from lib.observe.dialects.messages import (
    chat_messages,
    conversation,
    documents_of,
    genai_messages,
    query_of,
)
from lib.observe.dialects.table import COMMON, TableDialect, usage_of
from lib.observe.dialects.values import json_text, text
from lib.observe.span import Span, SpanEvent, SpanKind

_KINDS: Final[Mapping[SpanKind, str]] = {
    "agent": "chain",
    "session": "chain",
    "workflow": "chain",
    "llm": "llm",
    "tool": "tool",
    "retriever": "retriever",
    "reranker": "chain",
    "embedding": "embedding",
    "guardrail": "chain",
    "evaluator": "chain",
    "memory": "chain",
    "internal": "chain",
}

_INPUT: Final = {"cache_read_tokens": "cache_read", "cache_write_tokens": "cache_creation"}
_OUTPUT: Final = {"reasoning_tokens": "reasoning"}
_META: Final = "langsmith.metadata."
_CONVERSATIONS: Final[frozenset[SpanKind]] = frozenset({"agent", "session", "workflow"})


def with_exception_event(span: Span) -> Span:
    """Return the span with an `exception` event if it is an error.

    The status of a span does not reach LangSmith: only such an event makes a run an error.
    """
    if span.status == "ok" or span.end is None:
        return span
    kind = span.attributes.get(a.ERROR_TYPE)
    attributes = {
        "exception.type": kind,
        "exception.message": span.status_message or kind or "error",
    }
    event = SpanEvent(
        "exception", span.end, {key: attributes[key] for key in attributes if attributes[key]}
    )
    return replace(span, events=[*span.events, event])


def _run(span: Span) -> dict[str, Any]:
    tags = span.attributes.get(a.TAGS)
    attributes: dict[str, Any] = {
        "langsmith.span.tags": ",".join(map(text, cast(list[Any], tags)))
        if isinstance(tags, list | tuple)
        else None
    }
    if span.kind != "tool":  # the name of a tool makes a tool of anything
        attributes |= {a.TOOL_NAME: None, f"{_META}tool_name": span.attributes.get(a.TOOL_NAME)}
    return attributes


def _usage(span: Span) -> dict[str, Any]:
    usage = usage_of(span)
    if not usage:
        return {}
    sent, received = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
    details: dict[str, Any] = {
        "input_tokens": sent,
        "output_tokens": received,
        "total_tokens": sent + received,
        "total_cost": usage.get("cost"),
        "input_token_details": _details(usage, _INPUT),
        "output_token_details": _details(usage, _OUTPUT),
    }
    details = {name: number for name, number in details.items() if number not in (None, {})}
    attributes = {
        "langsmith.usage_metadata": json_text(details),
        "gen_ai.usage.total_tokens": sent + received,
        "gen_ai.usage.details.reasoning_tokens": usage.get("reasoning_tokens"),
    }
    # Usage is kept among a run's outputs, and lost where there are none.
    return attributes if span.output is not None else {**attributes, "output.value": "{}"}


def _details(usage: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {theirs: usage[ours] for ours, theirs in names.items() if usage.get(ours)}


def _content(span: Span) -> dict[str, Any]:
    if span.kind == "llm":
        names, values = ("gen_ai.input.messages", "gen_ai.output.messages"), _messages(span)
    else:
        names, values = ("input.value", "output.value"), _values(span)
    attributes = dict(zip(names, values, strict=True))
    return {name: value for name, value in attributes.items() if value is not None}


def _messages(span: Span) -> tuple[str | None, str | None]:
    messages = conversation(span.input), conversation(span.output, "assistant")
    sent, received = [json_text(genai_messages(one)) if one else None for one in messages]
    return sent, received


def _values(span: Span) -> tuple[str | None, str | None]:
    if span.kind == "retriever":
        return query_of(span.input), _documents(span.output)
    sent, received = [_shown(span, value) for value in (span.input, span.output)]
    return sent, received


def _shown(span: Span, value: Any) -> str | None:
    if value is None:
        return None
    if span.kind in _CONVERSATIONS and isinstance(value, list):
        return json_text({"messages": chat_messages(conversation(value))})
    return text(value)


def _documents(value: Any) -> str | None:
    if value is None:
        return None
    documents = [
        {
            "type": "Document",
            "page_content": document.content or "",
            "metadata": {"id": document.id, "score": document.score, "meta": document.meta},
        }
        for document in documents_of(value)
    ]
    return json_text({"documents": documents}) if documents else text(value)


LANGSMITH: Final = TableDialect(
    name="LangSmith",
    kind="langsmith.span.kind",
    kinds=_KINDS,
    names={
        **COMMON,
        a.SESSION: (*COMMON[a.SESSION], f"{_META}session_id", f"{_META}thread_id"),
        a.RUN_ID: (a.RUN_ID, f"{_META}run_id"),
        a.SPAN_KIND: (a.SPAN_KIND, f"{_META}span_kind"),
        a.TENANT: (a.TENANT, f"{_META}tenant"),
        a.USER: (a.USER, f"{_META}user_id"),
        a.ENVIRONMENT: (a.ENVIRONMENT, f"{_META}environment"),
        a.TRACE_NAME: (f"{_META}trace_name",),  # langsmith.trace.name would rename the run
        a.TAGS: (),
        a.PROVIDER: (a.PROVIDER, f"{_META}ls_provider"),
        a.REQUEST_MODEL: (a.REQUEST_MODEL, f"{_META}ls_model_name"),
        a.ERROR_TYPE: (a.ERROR_TYPE, f"{_META}error_type"),
    },
    facts=[_run, _usage, _content],
    rest=_META,  # of other names, LangSmith keeps none
)
