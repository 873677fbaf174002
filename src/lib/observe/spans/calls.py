"""Spans of calls: of models, tools, agents and memories, and the waits for approvals. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lib._util.operations import MOST, OperationKind
from lib.engine.core.settle import call_result
from lib.events import Event
from lib.observe import attributes as a
from lib.observe.span import ATTEMPT, span_id_of
from lib.observe.spans.lifecycle import OUTCOME_STATUS, UNKNOWN, error_type
from lib.observe.spans.run import RunSpans
from lib.observe.spans.values import identifier, items, mapping, moment, name, number, text, word

_CALLED_OFF: Final = frozenset({"cancelled", "denied"})
_MEMORY_INPUTS: Final = ("query", "filter", "records")
"""Fields of a memory request that are content."""

_OPERATIONS: Final[Mapping[OperationKind, str]] = {
    "retriever": "retrieval",
    "reranker": "rerank",
    "embedding": "embeddings",
}


def _fail(
    run: RunSpans,
    event: Event,
    family: str,
    key: str,
    *,
    error: Mapping[str, Any],
    attributes: Mapping[str, Any],
    moments: Sequence[tuple[float, str, Mapping[str, Any]]] = (),
) -> None:
    """Finish a call that has failed or was called off."""
    reason = word(event.data.get("reason")) or "error"
    called_off = reason in _CALLED_OFF
    kind = word(error.get("type")) if reason == "error" else None
    failure = {
        a.REASON: reason,
        a.ERROR_TYPE: None if called_off else kind or reason,
        a.HTTP_STATUS: number(error.get("status")),
    }
    run.finish(
        event.at,
        family,
        key,
        {**attributes, **failure},
        status="ok" if called_off else "error",
        message=run.content.show(text(error.get("message"))),
        moments=moments,
    )


# -- models ----------------------------------------------------------------------------------------


def llm_requested(run: RunSpans, event: Event, key: str) -> None:
    """Begin a model call; its input is the conversation so far."""
    data = event.data
    run.use("llm_calls", 1)
    run.conversation.add_answers()
    shown, omitted = run.content.newest(run.conversation)
    model = name(data.get("model"))
    attributes = _settings(mapping(data.get("settings")))
    attributes |= {
        a.OPERATION: "chat",
        a.AGENT_NAME: name(data.get("agent")),
        a.PROVIDER: word(data.get("provider")),
        a.REQUEST_MODEL: model,
        a.SERVER_ADDRESS: identifier(mapping(data.get("server")).get("address")),
        a.SERVER_PORT: number(mapping(data.get("server")).get("port")),
        a.OUTPUT_TYPE: word(data.get("output")),
        a.TOOL_DEFINITIONS: run.content.tools(
            [called for called in map(name, items(data.get("tools"))) if called],
            text(data.get("tools_digest")) or "",
        ),
        a.OMITTED: omitted or None,
        a.KEY: identifier(key),
    }
    run.begin(
        event,
        "llm",
        key,
        name=f"chat {model}" if model else "chat",
        kind="llm",
        attributes=attributes,
        shown=shown,
    )


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    if not settings:
        return {}
    attributes: dict[str, Any] = {
        attribute: value
        for setting, attribute in a.SETTINGS.items()
        if (value := number(settings.get(setting))) is not None
    }
    attributes[a.REASONING_LEVEL] = word(settings.get("reasoning_effort"))
    return attributes


_REFUSALS: Final = frozenset({"CircuitOpen", "RateLimited"})


def llm_completed(run: RunSpans, event: Event, key: str) -> None:
    """Finish a model call with its reply."""
    data = event.data
    reply = mapping(data.get("reply"))
    model = identifier(reply.get("model"))
    message = {"role": "assistant", "parts": reply.get("parts", [])}
    empty = data.get("empty") is True
    if not empty:  # no model is shown it again
        run.conversation.add(message)
    attributes = {
        a.RESPONSE_ID: identifier(reply.get("id")),
        a.RESPONSE_MODEL: model,
        a.FINISH_REASONS: [word(reply.get("stop", "stop")) or "other"],
        a.REASON: "empty" if empty else None,
        a.FIRST_CHUNK_S: number(data.get("first_chunk_s")),
        a.STREAM: True if "first_chunk_s" in data else None,
        **_attempts(data),
        **run.usage(reply.get("usage")),
    }
    shown = run.content.show(message)
    moments = _moments(data)
    run.finish(event.at, "llm", key, attributes, model=model, shown=shown, moments=moments)


def _attempts(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return how often and at which models a call was tried, and who replied instead."""
    failed = [name(mapping(each).get("model")) for each in items(data.get("failed_models"))]
    tries = [mapping(each) for each in items(data.get("tries"))]
    waited = [number(each.get("waited_s")) or 0 for each in tries]
    refused = [mapping(each.get("error")).get("type") in _REFUSALS for each in tries]
    shown: dict[str, Any] = {
        a.ATTEMPTS: number(data.get("attempts")),
        a.FAILED_MODELS: [each or "unknown" for each in failed] or None,
        a.HEDGES: sum(each.get("hedge") is True for each in tries) or None,
        a.REFUSED: sum(refused) or None,
        a.WAITED_S: round(sum(waited), 3) or None,
    }
    provider = word(data.get("provider"))
    return {**shown, a.PROVIDER: provider} if provider else shown


def _moments(data: Mapping[str, Any]) -> list[tuple[float, str, Mapping[str, Any]]]:
    """Return when each attempt began, and what became of it."""
    moments: list[tuple[float, str, Mapping[str, Any]]] = []
    for count, attempt in enumerate(map(mapping, items(data.get("tries"))), 1):
        error = mapping(attempt.get("error"))
        attributes = {
            a.ATTEMPT: count,
            a.REQUEST_MODEL: name(attempt.get("model")),
            a.TOOK_S: number(attempt.get("took_s")),
            a.WAITED_S: number(attempt.get("waited_s")),
            a.HEDGE: attempt.get("hedge") is True or None,
            a.ERROR_TYPE: word(error.get("type")),
            a.HTTP_STATUS: number(error.get("status")),
        }
        moments.append((number(attempt.get("after_s")) or 0, ATTEMPT, attributes))
    return moments


def llm_failed(run: RunSpans, event: Event, key: str) -> None:
    """Finish a model call that has failed."""
    data = event.data
    attributes = {
        a.RESPONSE_MODEL: identifier(data.get("model")),
        **_attempts(data),
        **run.usage(data.get("usage")),
    }
    error, moments = mapping(data.get("error")), _moments(data)
    _fail(run, event, "llm", key, error=error, attributes=attributes, moments=moments)


# -- tools and approvals ---------------------------------------------------------------------------


def tool_requested(run: RunSpans, event: Event, key: str) -> None:
    """Begin a tool call, and end the wait for its approval."""
    data = event.data
    unstarted = data.get("unstarted") is True or None
    if not unstarted:
        run.use("tool_calls", 1)
    run.conversation.call(key)
    run.finish(event.at, "approval", key, {})
    run.finish(event.at, "client", key, {})
    attributes = {
        a.OPERATION: "execute_tool",
        a.TOOL_TYPE: "function",
        a.TOOL_EFFECTS: word(data.get("effects")),
        a.TOOL_UNSTARTED: unstarted,
    }
    _begin_call(run, event, "tool", key, attributes | _mcp(data))


def tool_checked(run: RunSpans, event: Event, key: str) -> None:
    """Note the answer of the tool's check of an interrupted call; the last answer counts."""
    run.note("tool", key, {a.TOOL_CHECK: word(event.data.get("answer"))})


def tool_completed(run: RunSpans, event: Event, key: str) -> None:
    """Finish a tool call with its output."""
    data = event.data
    output = data.get("output")
    _answer(run, event, key, {"content": output})
    _add_operations(run, event, key)
    attributes = {a.TOOL_TRUNCATED: number(data.get("truncated")), **_mcp(data), **_counts(data)}
    run.finish(event.at, "tool", key, attributes, shown=run.content.show(output))


def tool_failed(run: RunSpans, event: Event, key: str) -> None:
    """Finish a tool call that has failed or was never made."""
    data = event.data
    _answer(run, event, key, {"content": data.get("message"), "is_error": True})
    _add_operations(run, event, key)
    error = {"type": data.get("code"), "message": data.get("message")}
    _fail(run, event, "tool", key, error=error, attributes=_mcp(data) | _counts(data))


def tool_awaited(run: RunSpans, event: Event, key: str) -> None:
    """Begin the wait for the client of the run, which makes the call."""
    _begin_call(run, event, "client", key, {})


def tool_answered(run: RunSpans, event: Event, key: str) -> None:
    """End the wait; the first answer counts."""
    shown = run.content.show(text(event.data.get("output")))
    run.finish(event.at, "client", key, {}, shown=shown)


def approval_requested(run: RunSpans, event: Event, key: str) -> None:
    """Begin the wait for an approval."""
    _begin_call(
        run, event, "approval", key, {a.APPROVAL_REPEATS: identifier(event.data.get("repeats"))}
    )


def approval_decided(run: RunSpans, event: Event, key: str) -> None:
    """End the wait; the first decision counts."""
    data = event.data
    attributes = {a.APPROVED: data.get("approved") is True, a.APPROVED_BY: event.user}
    shown = run.content.show(text(data.get("comment")))
    run.finish(event.at, "approval", key, attributes, shown=shown)


def _begin_call(
    run: RunSpans, event: Event, family: str, key: str, attributes: dict[str, Any]
) -> None:
    """Begin a call by a model, or the wait for its approval."""
    data = event.data
    # A model can invent the name of a tool; text that cannot be a name is content.
    called = word(data.get("name"))
    attributes[a.TOOL_NAME] = called or run.content.show(text(data.get("name")))
    attributes[a.TOOL_CALL_ID] = identifier(data.get("call_id"))
    attributes[a.KEY] = identifier(key)
    operation = {"tool": "execute_tool", "client": "client_call"}.get(family, "approval")
    run.begin(
        event,
        family,
        key,
        name=f"{operation} {called}" if called else operation,
        kind="tool" if family == "tool" else "internal",
        attributes=attributes,
        shown=run.content.show(data.get("args", data.get("input"))),
    )


def _answer(run: RunSpans, event: Event, key: str, result: Mapping[str, Any]) -> None:
    """Add the result of a call to the conversation."""
    part = {"type": "tool_result", "call_id": event.data.get("call_id"), **result}
    run.conversation.answer(key, {"role": "tool", "parts": [part]})


def _counts(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return how often a call was tried again, and how long it has waited."""
    return {attribute: number(data.get(field)) for field, attribute in a.COUNTS.items()}


def _mcp(data: Mapping[str, Any]) -> dict[str, Any]:
    facts = mapping(data.get("mcp"))
    return {a.MCP[field]: identifier(facts.get(field)) for field in a.MCP if field in facts}


# -- operations within a tool call -----------------------------------------------------------------


def _add_operations(run: RunSpans, event: Event, key: str) -> None:
    """Add a span for each operation listed in the result of a call."""
    if not run.is_open("tool", key):
        return
    above = span_id_of(event.run_id, "tool", key)
    ids: list[str | None] = []
    for index, operation in enumerate(items(event.data.get("operations"))[:MOST]):
        facts = mapping(operation)
        ids.append(
            _add_operation(run, event, f"{key}/{index}", facts, _enclosing(facts, ids) or above)
        )


def _enclosing(facts: Mapping[str, Any], ids: Sequence[str | None]) -> str | None:
    """Return the id of the operation that contains this one, None without one."""
    under = facts.get("under")
    return ids[under] if isinstance(under, int) and 0 <= under < len(ids) else None


def _add_operation(
    run: RunSpans, event: Event, key: str, facts: Mapping[str, Any], parent: str
) -> str | None:
    """Add the span of one operation; return its id, None if it cannot be read."""
    kind, start = facts.get("kind"), moment(facts.get("start"))
    if kind not in _OPERATIONS or start is None:
        return None
    model, source = name(facts.get("model")), name(facts.get("source"))
    error = word(facts.get("error"))
    attributes = {
        a.OPERATION: _OPERATIONS[kind],
        a.REQUEST_MODEL: model,
        a.DATA_SOURCE: source,
        a.TOP_K: number(facts.get("k")),
        a.DIMENSIONS: number(facts.get("dimensions")),
        a.DOCUMENT_COUNT: number(facts.get("count")),
        a.ERROR_TYPE: error,
        **_counts(facts),
    }
    what = source if kind == "retriever" else model
    query, found = (
        text(facts.get("query")),
        [_document(one) for one in items(facts.get("documents"))],
    )
    return run.add(
        event,
        "operation",
        key,
        (start, moment(facts.get("end")) or event.at),
        name=f"{_OPERATIONS[kind]} {what}" if what else _OPERATIONS[kind],
        kind=kind,
        attributes=attributes,
        under=parent,
        status="ok" if error is None else "error",
        shown=(
            run.content.show({"query": query} if query else None),
            run.content.show({"documents": found} if found else None),
        ),
    )


def _document(value: Any) -> dict[str, Any]:
    facts = mapping(value)
    fields = {"id": identifier(facts.get("id")), "score": number(facts.get("score"))}
    return {field: value for field, value in fields.items() if value is not None}


# -- agents as tools -------------------------------------------------------------------------------


def child_requested(run: RunSpans, event: Event, key: str) -> None:
    """Begin the call of an agent and end its approval's wait; to the model it is a tool call.

    What the agent does has spans of its own below this one.
    """
    run.use("tool_calls", 1)
    run.conversation.call(key)
    run.finish(event.at, "approval", key, {})
    _begin_call(run, event, "tool", key, {a.OPERATION: "execute_tool", a.TOOL_TYPE: "function"})


def child_completed(run: RunSpans, event: Event, key: str) -> None:
    """Finish the call as the agent's run has ended."""
    data = event.data
    outcome = word(data.get("outcome")) or UNKNOWN
    status = OUTCOME_STATUS.get(outcome, "error")
    message, output = text(mapping(data.get("error")).get("message")), text(data.get("output"))
    completed = {
        "call_id": data.get("call_id"),
        "outcome": outcome,
        "output": output or "",
        "reason": text(data.get("reason")),
        "error": {"message": message},
    }
    result = call_result(replace(event, data=completed))  # the words that the model gets
    _answer(run, event, key, {"content": result.content, "is_error": result.is_error})
    attributes = {
        a.RUN_OUTCOME: outcome,
        a.ERROR_TYPE: None if status == "ok" else error_type(data, outcome),
    }
    shown, error = run.content.show(output), run.content.show(message)
    run.finish(event.at, "tool", key, attributes, status=status, message=error, shown=shown)


# -- summaries -------------------------------------------------------------------------------------


def context_requested(run: RunSpans, event: Event, key: str) -> None:
    """Begin a summary of a part of the conversation."""
    data = event.data
    attributes = {
        a.AGENT_NAME: name(data.get("agent")),
        a.PROVIDER: word(data.get("provider")),
        a.REQUEST_MODEL: name(data.get("model")),
        a.SUMMARY_COVERS: word(data.get("covers")),
        a.KEY: identifier(key),
    }
    run.begin(event, "context", key, name="context summary", kind="internal", attributes=attributes)


def context_failed(run: RunSpans, event: Event, key: str) -> None:
    """Finish a summary that has failed; the run goes on without it."""
    data = event.data
    attributes = {
        a.RESPONSE_MODEL: identifier(data.get("model")),
        a.ATTEMPTS: number(data.get("attempts")),
        **run.usage(data.get("usage")),
    }
    _fail(run, event, "context", key, error=mapping(data.get("error")), attributes=attributes)


# -- memories --------------------------------------------------------------------------------------


def memory_requested(run: RunSpans, event: Event, key: str) -> None:
    """Begin a search or a change of a memory."""
    data = event.data
    operation = word(data.get("operation"))
    inputs = {field: data[field] for field in _MEMORY_INPUTS if field in data}
    attributes = {
        a.OPERATION: operation,
        a.MEMORY_STORE: identifier(data.get("store")),
        a.MEMORY_RECORD: identifier(data.get("record_id")),
        a.MEMORY_COUNT: _count(data),
        a.KEY: identifier(key),
    }
    run.begin(
        event,
        "memory",
        key,
        name=operation or "memory",
        kind="memory",
        attributes=attributes,
        shown=run.content.show(inputs or None),
    )


def memory_completed(run: RunSpans, event: Event, key: str) -> None:
    """Finish with the records found, or the number of records changed."""
    data = event.data
    attributes = {**_attempts(data), **run.usage(data.get("usage"))}
    if (count := _count(data)) is not None:
        attributes[a.MEMORY_COUNT] = count
    found = {"records": data["records"]} if "records" in data else None
    shown = run.content.show(found)
    run.finish(event.at, "memory", key, attributes, shown=shown, moments=_moments(data))


def memory_failed(run: RunSpans, event: Event, key: str) -> None:
    """Finish with an error, and what a model has used all the same."""
    data = event.data
    error, attributes = (
        mapping(data.get("error")),
        {**_attempts(data), **run.usage(data.get("usage"))},
    )
    _fail(run, event, "memory", key, error=error, attributes=attributes, moments=_moments(data))


def _count(data: Mapping[str, Any]) -> int | float | None:
    return len(items(data["records"])) if "records" in data else number(data.get("count"))
