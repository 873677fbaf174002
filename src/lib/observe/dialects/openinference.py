"""OpenInference, which Phoenix reads.

Lists become names with numbers in them. So that a span stays of a size that a backend takes, each
list is limited to 128 items: the newest messages, the first of everything else. How many messages
are left out is in `lib.input.omitted`.

Source: OpenInference semantic conventions 0.1.42, November 2026.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from lib.observe import attributes as a
from lib.observe.dialects.messages import (
    LoggedMessage,
    arguments_text,
    chat_messages,
    conversation,
    documents_of,
    media_url,
    query_of,
)
from lib.observe.dialects.table import COMMON, TableDialect, settings_of, usage_of
from lib.observe.dialects.values import json_text, text
from lib.observe.span import Span, SpanKind

MAX_ITEMS: Final = 128
"""The most items of each list."""

_KINDS: Final[Mapping[SpanKind, str]] = {
    "agent": "AGENT",
    "session": "CHAIN",
    "workflow": "CHAIN",
    "llm": "LLM",
    "tool": "TOOL",
    "retriever": "RETRIEVER",
    "reranker": "RERANKER",
    "embedding": "EMBEDDING",
    "guardrail": "GUARDRAIL",
    "evaluator": "EVALUATOR",
    "memory": "CHAIN",
    "internal": "CHAIN",
}

_MODELS: Final[Mapping[SpanKind, str]] = {
    "embedding": "embedding.model_name",
    "reranker": "reranker.model_name",
}
_MESSAGES: Final[frozenset[SpanKind]] = frozenset({"agent", "session", "workflow", "llm"})


def _common(span: Span) -> dict[str, Any]:
    attributes = span.attributes
    metadata = {"run_id": span.run_id or None, "tenant": span.tenant}
    shown = {name: value for name, value in metadata.items() if value is not None}
    settings = settings_of(span)
    model = attributes.get(a.RESPONSE_MODEL) or attributes.get(a.REQUEST_MODEL)
    reasons = attributes.get(a.FINISH_REASONS)
    fields = {"openinference.span.kind": "RETRIEVER"} if _is_search(span) else {}
    return fields | {
        "metadata": json_text(shown) if shown else None,
        _MODELS.get(span.kind, "llm.model_name"): model,
        "llm.invocation_parameters": json_text(settings) if settings else None,
        "llm.finish_reason": reasons[0] if isinstance(reasons, list) and reasons else None,
    }


def _is_search(span: Span) -> bool:
    return span.kind == "memory" and span.attributes.get(a.OPERATION) == "search_memory"


def _total(span: Span) -> dict[str, Any]:
    usage = usage_of(span)
    tokens = [usage[name] for name in ("input_tokens", "output_tokens") if name in usage]
    return {"llm.token_count.total": sum(tokens) if tokens else None}


def _content(span: Span) -> dict[str, Any]:
    fields = {
        **_value("input", span, span.input, "user"),
        **_value("output", span, span.output, "assistant"),
    }
    match span.kind:
        case "llm":
            fields |= _conversation(span)
        case "tool":
            fields["tool.parameters"] = fields.get("input.value")
        case "retriever" | "memory":
            fields |= dict(_documents("retrieval.documents", span.output))
        case "reranker":
            fields["reranker.query"] = query_of(span.input)
            fields |= dict(_documents("reranker.input_documents", span.input))
            fields |= dict(_documents("reranker.output_documents", span.output))
        case "embedding":
            fields |= dict(_embedded(span.input))
        case _:
            pass
    return fields


def _value(side: str, span: Span, value: Any, role: str) -> dict[str, Any]:
    if value is None:
        return {}
    shown = value
    if span.kind in _MESSAGES and not isinstance(value, str):
        messages = conversation(value, role)
        alone = messages[0].text if len(messages) == 1 else None
        shown = chat_messages(messages) if alone is None else alone
    elif span.kind == "retriever" and side == "input":
        shown = query_of(value)
    mime_type = "text/plain" if isinstance(shown, str) else "application/json"
    return {f"{side}.value": text(shown), f"{side}.mime_type": mime_type}


# -- lists -----------------------------------------------------------------------------------------


def _conversation(span: Span) -> dict[str, Any]:
    sent = _one_result_each(conversation(span.input))
    received = _one_result_each(conversation(span.output, "assistant"))
    left_out = max(len(sent) - MAX_ITEMS, 0)
    fields = {
        **dict(_flat_messages("llm.input_messages", sent[left_out:])),
        **dict(_flat_messages("llm.output_messages", received[-MAX_ITEMS:])),
        **dict(_tools(span.attributes.get(a.TOOL_DEFINITIONS))),
    }
    if left_out:
        fields[a.OMITTED] = left_out + _count(span.attributes.get(a.OMITTED))
    return fields


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _one_result_each(messages: Sequence[LoggedMessage]) -> list[LoggedMessage]:
    """Return the messages, split so that a tool result is a message of its own."""
    single: list[LoggedMessage] = []
    for one in messages:
        results = [part for part in one.parts if part["type"] == "tool_result"]
        rest = [part for part in one.parts if part["type"] != "tool_result"]
        if rest or not results:
            single.append(LoggedMessage(one.role, rest))
        single.extend(LoggedMessage("tool", [part]) for part in results)
    return single


def _flat_messages(prefix: str, messages: Sequence[LoggedMessage]) -> Iterator[tuple[str, Any]]:
    for index, one in enumerate(messages):
        yield from _flat_message(f"{prefix}.{index}.message", one)


def _flat_message(prefix: str, message: LoggedMessage) -> Iterator[tuple[str, Any]]:
    yield f"{prefix}.role", message.role
    for result in message.parts:
        if result["type"] == "tool_result":
            yield f"{prefix}.tool_call_id", result.get("call_id")
            yield f"{prefix}.content", text(result.get("content", ""))
            return
    calls = [part for part in message.parts if part["type"] == "tool_call"]
    rest = [part for part in message.parts if part["type"] != "tool_call"]
    alone = LoggedMessage(message.role, rest).text
    if alone is not None:
        yield f"{prefix}.content", alone
    else:
        for index, part in enumerate(rest[:MAX_ITEMS]):
            yield from _flat_part(f"{prefix}.contents.{index}.message_content", part)
    for index, call in enumerate(calls[:MAX_ITEMS]):
        yield from _flat_call(f"{prefix}.tool_calls.{index}.tool_call", call)


def _flat_part(prefix: str, part: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    match part["type"]:
        case "image":
            yield f"{prefix}.type", "image"
            yield f"{prefix}.image.image.url", media_url(part)
        case "text":
            yield f"{prefix}.type", "text"
            yield f"{prefix}.text", text(part.get("text", ""))
        case "thinking":
            yield f"{prefix}.type", "reasoning"
            yield f"{prefix}.text", text(part.get("text", ""))
        case _:
            yield f"{prefix}.type", "text"
            yield f"{prefix}.text", json_text(part)


def _flat_call(prefix: str, call: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield f"{prefix}.id", call.get("id")
    yield f"{prefix}.function.name", call.get("name")
    yield f"{prefix}.function.arguments", arguments_text(call)


def _tools(definitions: Any) -> Iterator[tuple[str, Any]]:
    for index, definition in enumerate(_items(definitions)):
        yield f"llm.tools.{index}.tool.json_schema", json_text(definition)


def _documents(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    for index, document in enumerate(documents_of(value)[:MAX_ITEMS]):
        name = f"{prefix}.{index}.document"
        yield f"{name}.id", None if document.id is None else text(document.id)
        yield f"{name}.score", document.score
        yield f"{name}.content", None if document.content is None else text(document.content)
        yield f"{name}.metadata", None if document.meta is None else json_text(document.meta)


def _embedded(value: Any) -> Iterator[tuple[str, Any]]:
    texts = [value] if isinstance(value, str) else _items(value)
    for index, one in enumerate(texts):
        yield f"embedding.embeddings.{index}.embedding.text", text(one)


def _items(value: Any) -> list[Any]:
    return cast(list[Any], value)[:MAX_ITEMS] if isinstance(value, list) else []


OPENINFERENCE: Final = TableDialect(
    name="OpenInference",
    kind="openinference.span.kind",
    kinds=_KINDS,
    names={
        **COMMON,
        **dict.fromkeys([*a.SETTINGS.values(), a.FINISH_REASONS, a.TOOL_DEFINITIONS], ()),
        a.TAGS: ("tag.tags",),
        a.AGENT_NAME: (a.AGENT_NAME, "agent.name"),
        a.PROVIDER: ("llm.provider", "llm.system"),
        a.REQUEST_MODEL: ("llm.request.model_name",),
        a.RESPONSE_MODEL: ("llm.response.model_name",),
        a.TOOL_NAME: ("tool.name",),
        a.TOOL_CALL_ID: ("tool.id",),
        a.INPUT_TOKENS: ("llm.token_count.prompt",),
        a.OUTPUT_TOKENS: ("llm.token_count.completion",),
        "gen_ai.usage.cache_read.input_tokens": ("llm.token_count.prompt_details.cache_read",),
        "gen_ai.usage.cache_write.input_tokens": ("llm.token_count.prompt_details.cache_write",),
        "gen_ai.usage.cache_creation.input_tokens": (),
        "gen_ai.usage.reasoning.output_tokens": ("llm.token_count.completion_details.reasoning",),
        a.COST: (a.COST, "llm.cost.total"),
    },
    facts=[_common, _total, _content],
)
