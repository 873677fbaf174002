"""OpenTelemetry's conventions for generative AI.

Source: OpenTelemetry semantic conventions for generative AI, repository
open-telemetry/semantic-conventions-genai, as of November 2026 (in development).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Any, Final

from lib.observe import attributes as a
from lib.observe.dialects.messages import (
    conversation,
    documents_of,
    field_of,
    genai_messages,
    genai_part,
    query_of,
)
from lib.observe.dialects.table import COMMON, TableDialect
from lib.observe.dialects.values import json_text, text
from lib.observe.span import Span, SpanKind

OPERATIONS: Final[Mapping[SpanKind, str | None]] = {
    "agent": "invoke_agent",
    "session": "invoke_workflow",
    "workflow": "invoke_workflow",
    "llm": "chat",
    "tool": "execute_tool",
    "retriever": "retrieval",
    "reranker": "rerank",  # the conventions have none, and let one be made up
    "embedding": "embeddings",
    "guardrail": None,
    "evaluator": None,
    "memory": None,  # one of several, which the span says itself
    "internal": None,
}


def content(span: Span) -> dict[str, Any]:
    """Return what went in and came out."""
    if span.input is None and span.output is None:
        return {}
    match span.kind:
        case "llm" | "agent" | "session" | "workflow":
            return _messages(span)
        case "tool":
            names = ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result")
        case "retriever":
            return _retrieval(span)
        case "memory":
            return _memory(span)
        case _:
            names = (a.INPUT, a.OUTPUT)
    return {
        name: None if value is None else text(value)
        for name, value in zip(names, (span.input, span.output), strict=True)
    }


def _messages(span: Span) -> dict[str, Any]:
    messages = conversation(span.input)
    leading = list(takewhile(lambda message: message.role == "system", messages))
    attributes = {
        "gen_ai.system_instructions": [
            genai_part(part) for message in leading for part in message.parts
        ],
        "gen_ai.input.messages": genai_messages(messages[len(leading) :]),
        "gen_ai.output.messages": genai_messages(conversation(span.output, "assistant")),
    }
    return {name: json_text(value) for name, value in attributes.items() if value}


def _retrieval(span: Span) -> dict[str, Any]:
    found = documents_of(span.output)
    ranked = [{"id": document.id, "score": document.score} for document in found]
    attributes = {"gen_ai.retrieval.query.text": query_of(span.input)}
    if ranked:
        return {**attributes, "gen_ai.retrieval.documents": json_text(ranked)}
    return {**attributes, a.OUTPUT: None if span.output is None else text(span.output)}


def _memory(span: Span) -> dict[str, Any]:
    query, records = field_of(span.input, "query"), field_of(span.output, "records")
    return {
        **_either("gen_ai.memory.query.text", query, a.INPUT, span.input),
        **_either("gen_ai.memory.records", records, a.OUTPUT, span.output),
    }


def _either(name: str, value: Any, other_name: str, whole: Any) -> dict[str, Any]:
    if value is not None:
        return {name: text(value)}
    return {} if whole is None else {other_name: text(whole)}


GENAI: Final = TableDialect(
    name="OpenTelemetry GenAI",
    kind=a.OPERATION,
    kinds=OPERATIONS,
    names={
        **COMMON,
        # What the conventions have no name for is called as others call it.
        a.COST: (a.COST, "gen_ai.usage.cost", "operation.cost"),
    },
    facts=[content],
)
