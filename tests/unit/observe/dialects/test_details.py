"""Tests attributes that backends read in surprising ways, one test each."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lib.observe import GENAI, LANGFUSE, LANGSMITH, OPENINFERENCE, Dialect, Span, spans_from_events
from lib.observe import attributes as a
from lib.observe.dialects import Enriched
from lib.observe.dialects.langsmith import with_exception_event
from lib.testing.dialect import check_attributes, make_span
from lib.testing.logs import talkative_log


def parsed(span: Span, dialect: Any, name: str) -> Any:
    return json.loads(dialect.attributes(span)[name])


# -- usage -----------------------------------------------------------------------------------------


def test_tokens_written_to_a_cache_have_the_old_and_the_new_name():
    written = dict.fromkeys(a.USAGE["cache_write_tokens"], 7)
    expected = GENAI.attributes(make_span("llm", attributes=written))

    assert expected["gen_ai.usage.cache_write.input_tokens"] == 7
    assert expected["gen_ai.usage.cache_creation.input_tokens"] == 7


def test_langfuse_gets_tokens_in_kinds_that_add_up_and_none_that_it_would_count_again():
    usage: dict[str, Any] = {
        "gen_ai.usage.input_tokens": 1200,
        "gen_ai.usage.output_tokens": 30,
        **dict.fromkeys(a.USAGE["cache_read_tokens"], 1000),
        **dict.fromkeys(a.USAGE["cache_write_tokens"], 100),
        **dict.fromkeys(a.USAGE["reasoning_tokens"], 20),
    }
    expected = LANGFUSE.attributes(make_span("llm", attributes=usage))
    details = json.loads(str(expected["langfuse.observation.usage_details"]))

    assert details.pop("total") == sum(details.values()) == 1230
    assert [name for name in expected if name.startswith("gen_ai.usage.")] == []


def test_more_from_the_cache_than_there_was_is_no_negative_input_at_langfuse():
    usage = {"gen_ai.usage.input_tokens": 1, **dict.fromkeys(a.USAGE["cache_read_tokens"], 2)}
    span = make_span("llm", attributes=usage)

    assert parsed(span, LANGFUSE, "langfuse.observation.usage_details")["input"] == 0


def test_a_span_without_usage_has_no_usage_attributes():
    span = make_span("llm", attributes={})
    names = [name for d in (LANGFUSE, LANGSMITH, OPENINFERENCE) for name in d.attributes(span)]

    assert [name for name in names if "usage" in name or "cost" in name or "token" in name] == []
    assert "output.value" not in names


def test_langsmith_loses_usage_without_outputs_so_it_gets_empty_ones():
    span = make_span("llm")

    assert LANGSMITH.attributes(span)["output.value"] == "{}"
    assert "output.value" not in LANGSMITH.attributes(replace(span, output="x"))


# -- names that mean more than they say ------------------------------------------------------------


def test_at_langsmith_the_name_of_a_tool_makes_a_tool_of_anything_so_only_tools_have_one():
    tool, approval = [
        LANGSMITH.attributes(make_span(kind, attributes={a.TOOL_NAME: "refund"}))
        for kind in ("tool", "internal")
    ]

    assert tool[a.TOOL_NAME] == "refund"
    assert a.TOOL_NAME not in approval
    assert approval["langsmith.metadata.tool_name"] == "refund"


def test_the_trace_name_is_metadata_in_langsmith_since_it_would_rename_runs():
    expected = LANGSMITH.attributes(make_span("llm", attributes={a.TRACE_NAME: "x"}))

    assert "langsmith.trace.name" not in expected
    assert expected["langsmith.metadata.trace_name"] == "x"


def test_langfuse_reads_the_moment_of_the_first_chunk_as_json_and_no_nonsense():
    def expected(seconds: Any) -> Any:
        span = make_span("llm", attributes={a.FIRST_CHUNK_S: seconds})
        return LANGFUSE.attributes(span).get("langfuse.observation.completion_start_time")

    assert expected(0.5) == '"2026-01-01T12:00:00.500000+00:00"'
    assert [expected(nonsense) for nonsense in (-1, 1e300, "1", float("nan"), 10**9)] == [None] * 5


def test_langfuse_names_every_span_after_its_trace_and_a_root_after_itself():
    def expected(**fields: Any) -> Any:
        return LANGFUSE.attributes(make_span("agent", **fields)).get("langfuse.trace.name")

    assert expected(attributes={a.TRACE_NAME: "x"}) == "x"
    assert expected(parent_id=None, name="root") == "root"
    assert expected() is None


def test_an_error_without_captured_text_shows_its_type_in_langfuse():
    span = make_span("tool", status="error", attributes={a.ERROR_TYPE: "timeout"})

    assert LANGFUSE.attributes(span)["langfuse.observation.status_message"] == "timeout"
    assert LANGFUSE.attributes(span)["langfuse.observation.level"] == "ERROR"


@pytest.mark.parametrize(
    ("message", "attributes", "expected"),
    [
        (
            "why",
            {a.ERROR_TYPE: "timeout"},
            {"exception.type": "timeout", "exception.message": "why"},
        ),
        (None, {a.ERROR_TYPE: "t"}, {"exception.type": "t", "exception.message": "t"}),
        (None, {}, {"exception.message": "error"}),
    ],
)
def test_only_an_exception_event_makes_an_error_at_langsmith(
    message: str | None, attributes: dict[str, Any], expected: dict[str, Any]
):
    span = make_span("tool", status="error", status_message=message, attributes=attributes)

    (event,) = with_exception_event(span).events

    assert (event.name, event.at, event.attributes) == ("exception", span.end, expected)


def test_what_is_no_error_or_still_open_has_no_exception():
    fine, waiting = make_span("tool"), make_span("tool", status="error", end=None)

    assert with_exception_event(fine) is fine
    assert with_exception_event(waiting) is waiting


def test_a_search_of_memory_retrieves_at_phoenix():
    def kind(operation: str) -> Any:
        span = make_span("memory", attributes={a.OPERATION: operation})
        return OPENINFERENCE.attributes(span)["openinference.span.kind"]

    assert [kind("search_memory"), kind("create_memory")] == ["RETRIEVER", "CHAIN"]


# -- conversations ---------------------------------------------------------------------------------


def messages_of(count: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"message {number}"} for number in range(count)]


def test_openinference_keeps_the_newest_messages_and_says_how_many_it_leaves_out():
    span = make_span("llm", input=messages_of(130), attributes={a.OMITTED: 3})
    expected = OPENINFERENCE.attributes(span)

    assert expected["llm.input_messages.0.message.content"] == "message 2"
    assert expected["llm.input_messages.127.message.content"] == "message 129"
    assert "llm.input_messages.128.message.content" not in expected
    assert expected[a.OMITTED] == 5
    assert a.OMITTED not in OPENINFERENCE.attributes(make_span("llm", input=messages_of(128)))
    assert OPENINFERENCE.attributes(make_span("llm", input=messages_of(129)))[a.OMITTED] == 1


def test_several_results_of_tools_in_one_message_become_one_message_each():
    results: list[dict[str, Any]] = [
        {"type": "tool_result", "call_id": "c1", "content": "1"},
        {"type": "tool_result", "call_id": "c2", "content": "2", "is_error": True},
        {"type": "text", "text": "and a note"},
    ]
    span = make_span("llm", input=[{"role": "tool", "parts": results}])
    expected = OPENINFERENCE.attributes(span)

    assert [expected[f"llm.input_messages.{place}.message.content"] for place in range(3)] == [
        "and a note",
        "1",
        "2",
    ]
    assert expected["llm.input_messages.2.message.tool_call_id"] == "c2"
    assert parsed(span, LANGFUSE, "langfuse.observation.input") == [
        {"role": "tool", "content": "and a note"},
        {"role": "tool", "content": "1", "tool_call_id": "c1"},
        {"role": "tool", "content": "2", "tool_call_id": "c2"},
    ]
    assert parsed(span, GENAI, "gen_ai.input.messages")[0]["parts"][1] == {
        "type": "tool_call_response",
        "id": "c2",
        "response": "2",
        "is_error": True,
    }


def test_attachments_show_their_type_and_their_address():
    parts: list[dict[str, Any]] = [
        {"type": "image", "url": "https://x/y.png"},
        {"type": "audio", "data": "aGk=", "media_type": "audio/wav"},
        {"type": "file", "blob": {"$blob": "ab", "size": 1, "type": "application/pdf"}},
        {"type": "image", "data": "aG…", "media_type": "image/png"},
    ]
    span = make_span("llm", input=[{"role": "user", "parts": parts}])

    assert parsed(span, GENAI, "gen_ai.input.messages")[0]["parts"] == [
        {"type": "uri", "modality": "image", "mime_type": None, "uri": "https://x/y.png"},
        {"type": "blob", "modality": "audio", "mime_type": "audio/wav", "content": "aGk="},
        {
            "type": "uri",
            "modality": "file",
            "mime_type": "application/pdf",
            "uri": "blob://sha256-ab",
        },
        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": ""},
    ]
    chat = parsed(span, LANGFUSE, "langfuse.observation.input")[0]["content"]
    assert [chat[0], chat[3]] == [
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        {"type": "image_url", "image_url": {"url": ""}},
    ]


def test_unreadable_arguments_are_sent_as_the_model_wrote_them():
    call = {"type": "tool_call", "id": "c", "name": "add", "invalid": '{"a": '}
    span = make_span("llm", output={"role": "assistant", "parts": [call]})

    assert parsed(span, GENAI, "gen_ai.output.messages")[0]["parts"][0]["arguments"] == '{"a": '
    name = "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments"
    assert OPENINFERENCE.attributes(span)[name] == '{"a": '


def test_a_part_of_unknown_type_is_sent_unchanged():
    part = {"type": "video", "frames": 3}
    span = make_span("llm", input=[{"role": "user", "parts": [part, part]}])

    assert parsed(span, GENAI, "gen_ai.input.messages")[0]["parts"] == [part, part]
    name = "llm.input_messages.0.message.contents.0.message_content.text"
    assert parsed(span, OPENINFERENCE, name) == part


def test_only_leading_instructions_are_those_of_the_system():
    messages = [
        {"role": "system", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "system", "content": "c"},
    ]
    span = make_span("llm", input=messages)

    assert parsed(span, GENAI, "gen_ai.system_instructions") == [{"type": "text", "content": "a"}]
    roles = [one["role"] for one in parsed(span, GENAI, "gen_ai.input.messages")]
    assert roles == ["user", "system"]


def test_an_output_that_only_looks_like_a_message_keeps_its_fields():
    output = {"role": "boss", "content": "hi", "salary": 1}
    span = make_span("agent", output=output)

    (message,) = parsed(span, GENAI, "gen_ai.output.messages")
    assert json.loads(message["parts"][0]["content"]) == output


# -- what a sink adds ------------------------------------------------------------------------------


def test_what_is_added_to_each_span_is_put_into_the_words_of_the_dialect():
    dialect = Enriched(LANGFUSE, {a.TAGS: ["eu"], a.ENVIRONMENT: "production"})
    span = make_span("llm", attributes={a.ENVIRONMENT: "staging"})

    expected = dialect.attributes(span)

    assert dialect.name == "Langfuse"
    assert expected["langfuse.trace.tags"] == ["eu"]
    assert expected["langfuse.environment"] == "staging"


def test_tags_are_one_text_at_langsmith_and_a_list_elsewhere():
    span = make_span("llm", attributes={a.TAGS: ["eu", "beta"]})

    assert LANGSMITH.attributes(span)["langsmith.span.tags"] == "eu,beta"
    assert OPENINFERENCE.attributes(span)["tag.tags"] == ["eu", "beta"]


# -- from the log on -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dialect", [GENAI, LANGFUSE, LANGSMITH, OPENINFERENCE], ids=lambda d: d.name
)
def test_messages_are_sent_only_if_content_is_captured(dialect: Dialect):
    log = talkative_log("swordfish")

    expected, hidden = [
        [str(dict(dialect.attributes(span))) for span in spans_from_events(log, capture_content=on)]
        for on in (True, False)
    ]

    assert sum("swordfish" in attributes for attributes in expected) > 8
    assert [attributes for attributes in hidden if "swordfish" in attributes] == []
    assert len(expected) == len(hidden)


@pytest.mark.parametrize(
    "dialect", [GENAI, LANGFUSE, LANGSMITH, OPENINFERENCE], ids=lambda d: d.name
)
def test_cut_content_is_sent_validly(dialect: Dialect):
    log = talkative_log("swordfish \ud800" * 3)

    for limit in (0, 1, 5, 20, 40, 60, 80, 120, 200, 400):
        for span in spans_from_events(log, capture_content=True, content_limit=limit):
            check_attributes(dialect.attributes(span))


@pytest.mark.parametrize(
    ("sent", "cached", "written", "came", "reasoning"),
    [(100, 80, 40, 10, 20), (0, 50, 0, 0, 30), (-5, 3, 3, -1, 2), (10, 0, 20, 5, 5)],
)
def test_parts_of_a_usage_never_add_up_to_more_than_their_whole_in_langfuse(
    sent: int, cached: int, written: int, came: int, reasoning: int
):
    usage = {
        a.USAGE["input_tokens"][0]: sent,
        a.USAGE["output_tokens"][0]: came,
        a.USAGE["cache_read_tokens"][0]: cached,
        a.USAGE["cache_write_tokens"][0]: written,
        a.USAGE["reasoning_tokens"][0]: reasoning,
    }

    expected = LANGFUSE.attributes(make_span("llm", attributes=usage))
    details = json.loads(str(expected["langfuse.observation.usage_details"]))

    assert details.pop("total") == sum(details.values()) == max(sent, 0) + max(came, 0)
    assert min(details.values()) >= 0


def test_unknown_usage_is_not_sent_to_langfuse():
    more = {"gen_ai.usage.audio.input_tokens": 4, "gen_ai.usage.input_tokens": 10}

    expected = LANGFUSE.attributes(make_span("llm", attributes=more))

    assert [name for name in expected if name.startswith("gen_ai.usage.")] == []
    assert "gen_ai.usage.audio.input_tokens" in GENAI.attributes(make_span("llm", attributes=more))
