"""The span of a model call: models, settings, tokens, attempts, and what was said."""

from typing import Any

import pytest

from lib.events import kinds as k
from lib.observe import Span, span_id_of, spans_from_events, trace_id_of
from lib.testing.logs import at, make_log

from .span_kit import FAILURE, ROOT, START, call_payload

# -- model calls -------------------------------------------------------------------------------


def test_a_model_call_has_its_models_settings_tokens_and_attempts():
    settings = {"temperature": 0.5, "max_tokens": 100, "stop": ["secret"], "top_p": "secret"}
    usage = {
        "input_tokens": 100,
        "output_tokens": 20,
        "cache_read_tokens": 30,
        "cache_write_tokens": 7,
        "reasoning_tokens": 5,
        "cost": 0.01,
    }
    reply: dict[str, Any] = {
        "parts": [],
        "usage": usage,
        "stop": "length",
        "model": "model-1-0101",
        "id": "resp-1",
    }
    request = {"key": "llm/1", "upto": 1, "digest": "d", "model": "model-1", "settings": settings}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.LLM_REQUESTED, request),
        (3, k.LLM_COMPLETED, {"key": "llm/1", "reply": reply, "attempts": 2}),
    )

    assert spans_from_events(events)[1] == Span(
        trace_id=trace_id_of("run"),
        span_id=span_id_of("run", "llm", "llm/1"),
        parent_id=ROOT,
        name="chat model-1",
        kind="llm",
        start=at(1),
        end=at(3),
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.request.max_tokens": 100,
            "gen_ai.request.model": "model-1",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.response.finish_reasons": ["length"],
            "gen_ai.response.id": "resp-1",
            "gen_ai.response.model": "model-1-0101",
            "gen_ai.usage.cache_creation.input_tokens": 7,
            "gen_ai.usage.cache_read.input_tokens": 30,
            "gen_ai.usage.cache_write.input_tokens": 7,
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": 20,
            "gen_ai.usage.reasoning.output_tokens": 5,
            "lib.attempts": 2,
            "lib.cost.usd": 0.01,
            "lib.key": "llm/1",
        },
        run_id="run",
        tenant="acme",
        user="ann",
    )


def test_a_call_that_names_no_model_gets_its_name_from_the_reply():
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
        (3, k.LLM_COMPLETED, {"key": "llm/1", "reply": {"parts": [], "model": "qwen3:8b"}}),
    )

    assert [span.name for span in spans_from_events(events[:2])] == ["invoke_agent support", "chat"]
    assert spans_from_events(events)[1].name == "chat qwen3:8b"


def test_a_failed_model_call_shows_its_type_and_its_text_only_if_captured():
    error = {"type": "LLMError", "message": "the prompt was: secret", "status": 500}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
        (3, k.LLM_FAILED, {"key": "llm/1", "reason": "error", "error": error, "attempts": 4}),
    )

    silent, result = (
        spans_from_events(events)[1],
        spans_from_events(events, capture_content=True)[1],
    )

    assert (silent.status, silent.status_message) == ("error", None)
    assert (result.status, result.status_message) == ("error", "the prompt was: secret")
    assert silent.attributes == {
        "error.type": "LLMError",
        "gen_ai.operation.name": "chat",
        "http.response.status_code": 500,
        "lib.attempts": 4,
        "lib.key": "llm/1",
        "lib.reason": "error",
    }


@pytest.mark.parametrize(
    ("reason", "status", "error_type"),
    [
        ("error", "error", "LLMError"),
        ("blocked", "error", "blocked"),
        ("unknown", "error", "unknown"),
        ("denied", "ok", None),
        ("cancelled", "ok", None),
        ("no word, but a text", "error", "LLMError"),
        (["cancelled"], "error", "LLMError"),
    ],
)
def test_a_cancelled_call_is_no_error(reason: Any, status: str, error_type: str | None):
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
        (3, k.LLM_FAILED, {"key": "llm/1", "reason": reason, "error": {"type": "LLMError"}}),
    )

    span = spans_from_events(events)[1]

    assert (span.status, span.attributes.get("error.type")) == (status, error_type)
    assert span.attributes["lib.reason"] == (reason if error_type != "LLMError" else "error")


def test_what_a_provider_leaves_empty_or_fills_with_something_else_is_left_out():
    reply: dict[str, Any] = {"parts": [], "model": "", "id": 7, "usage": {"input_tokens": "many"}}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d", "settings": None}),
        (3, k.LLM_COMPLETED, {"key": "llm/1", "reply": reply}),
    )

    assert spans_from_events(events)[1].attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.finish_reasons": ["stop"],
        "lib.key": "llm/1",
    }


def test_a_model_call_shows_the_conversation_that_it_was_sent():
    call = {"type": "tool_call", "id": "a", "name": "search"}
    slow = {"type": "tool_call", "id": "b", "name": "search"}
    reply = {"parts": [call, slow], "stop": "tool_calls"}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
        (2, k.LLM_COMPLETED, {"key": "llm/1", "reply": reply}),
        (3, k.TOOL_REQUESTED, call_payload("a", "search", effects="none")),
        (3, k.TOOL_REQUESTED, call_payload("b", "search", effects="none")),
        (4, k.TOOL_FAILED, {"key": "tool/1/b", "call_id": "b", "reason": "error"} | FAILURE),
        (5, k.TOOL_COMPLETED, {"key": "tool/1/a", "call_id": "a", "output": "found"}),
        (6, k.LLM_REQUESTED, {"key": "llm/2", "upto": 7, "digest": "d"}),
    )

    _, first, *_, second = spans_from_events(events, capture_content=True)

    messages = [{"role": "system", "content": "be nice"}, *START["input"]]
    answered = {"type": "tool_result", "call_id": "a", "content": "found"}
    failed = {"type": "tool_result", "call_id": "b", "content": "too slow", "is_error": True}
    assert first.input == messages
    assert first.output == {"role": "assistant", "parts": [call, slow]}
    assert second.input == [
        *messages,
        {"role": "assistant", "parts": [call, slow]},
        {"role": "tool", "parts": [answered]},
        {"role": "tool", "parts": [failed]},
    ]


def test_of_a_long_conversation_the_newest_messages_are_shown_and_the_others_counted():
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
    )

    root, call = spans_from_events(events, capture_content=True, content_limit=60)

    assert root.input == call.input == START["input"]
    assert root.attributes["lib.input.omitted"] == call.attributes["lib.input.omitted"] == 1


# -- the rest ----------------------------------------------------------------------------------


def test_a_model_call_names_its_provider_if_the_log_does():
    request = {"key": "llm/1", "upto": 1, "digest": "d", "provider": "openai"}
    settings = {"reasoning_effort": "high", "n": 2, "max_completion_tokens": 9, "seed": True}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.LLM_REQUESTED, {**request, "settings": settings}),
        (2, k.LLM_REQUESTED, {**request, "key": "llm/2", "provider": "who pays, you ask?"}),
    )

    _, result, silent = spans_from_events(events)

    assert result.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.choice.count": 2,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.reasoning.level": "high",
        "lib.key": "llm/1",
    }
    assert "gen_ai.provider.name" not in silent.attributes


def test_a_model_that_answered_for_another_one_is_shown_with_those_that_failed():
    request = {"key": "llm/1", "upto": 1, "digest": "d", "model": "first", "provider": "openai"}
    failed = [{"model": "first", "provider": "openai", "error": {"type": "LLMError"}}, {"model": 7}]
    reply: dict[str, Any] = {"parts": [], "model": "second"}
    ended = {"key": "llm/1", "reply": reply, "failed_models": failed, "provider": "anthropic"}
    events = make_log(
        (0, k.RUN_STARTED, START), (1, k.LLM_REQUESTED, request), (3, k.LLM_COMPLETED, ended)
    )

    attributes = spans_from_events(events)[1].attributes
    assert attributes["lib.failed_models"] == ["first", "unknown"]
    assert "lib.waited_s" not in attributes
    assert attributes["gen_ai.provider.name"] == "anthropic"
    assert attributes["gen_ai.response.model"] == "second"


def test_each_attempt_is_shown_with_its_wait_its_error_and_whether_it_was_a_hedge():
    def of(model: str, took_s: float) -> dict[str, Any]:
        return {"gen_ai.request.model": model, "lib.took_s": took_s}

    request = {"key": "llm/1", "upto": 1, "digest": "d", "model": "first"}
    tries: list[Any] = [
        {"model": "first", "took_s": 0, "error": {"type": "CircuitOpen"}},
        {"model": "second", "took_s": 9.5, "waited_s": 4.25, "error": {"type": "CancelledError"}},
        {"model": "third", "after_s": 1.5, "took_s": 1, "waited_s": "long", "hedge": True},
        *(None, 7, {"error": "text"}),  # of a foreign writer
        {"after_s": 1e300, "error": {"type": "LLMError", "status": 429}},
        {"after_s": -1},
    ]
    reply: dict[str, Any] = {"parts": []}
    ended = {"key": "llm/1", "reply": reply, "attempts": 2, "tries": tries}
    events = make_log(
        (0, k.RUN_STARTED, START), (1, k.LLM_REQUESTED, request), (3, k.LLM_COMPLETED, ended)
    )

    span = spans_from_events(events)[1]
    assert (
        span.attributes.items()
        >= {
            "lib.attempts": 2,
            "lib.waited_s": 4.25,
            "lib.hedges": 1,
            "lib.refused": 1,
        }.items()
    )
    assert {event.name for event in span.events} == {"llm.attempt"}
    assert [(event.at, event.attributes) for event in span.events] == [
        (at(1), {"lib.attempt": 1, "error.type": "CircuitOpen", **of("first", 0)}),
        (
            at(1),
            {"lib.attempt": 2, "error.type": "CancelledError", "lib.waited_s": 4.25}
            | of("second", 9.5),
        ),
        (at(2.5), {"lib.attempt": 3, "lib.hedge": True, **of("third", 1)}),
        *((at(1), {"lib.attempt": count}) for count in (4, 5, 6)),
        (at(3), {"lib.attempt": 7, "error.type": "LLMError", "http.response.status_code": 429}),
        (at(1), {"lib.attempt": 8}),
    ]
