"""The spans of memory, of summaries and of the verdicts of guards."""

from lib.events import kinds as k
from lib.observe import spans_from_events
from lib.testing.logs import at, make_log

from .span_kit import START


def test_a_summary_is_a_moment_with_the_tokens_that_it_took():
    summary = {
        "covers": "ab12",
        "text": "shoes, red",
        "usage": {"input_tokens": 7, "cost": 0.5},
        "provider": "openai",
        "model": "small-1",
    }
    events = make_log((0, k.RUN_STARTED, START), (1, k.CONTEXT_SUMMARY, summary))

    root, span = spans_from_events(events)
    result = spans_from_events(events, capture_content=True)[1]

    assert (span.name, span.kind, span.start, span.end) == (
        "context summary",
        "internal",
        at(1),
        at(1),
    )
    assert span.attributes == {
        "gen_ai.provider.name": "openai",
        "gen_ai.response.model": "small-1",
        "gen_ai.usage.input_tokens": 7,
        "lib.context.covers": "ab12",
        "lib.cost.usd": 0.5,
    }
    assert (span.output, result.output) == (None, "shoes, red")
    assert root.attributes["lib.usage.cost_usd"] == 0.5


def test_a_summary_lasts_from_its_request_to_its_end() -> None:
    request = {"upto": 1, "digest": "ef56", "covers": "ab12", "messages": 8, "model": "small"}
    error = {"type": "NoSummary", "message": "expected a summary, got no text"}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.CONTEXT_REQUESTED, {"key": "summary/1", **request}),
        (3, k.CONTEXT_SUMMARY, {"key": "summary/1", "covers": "ab12", "text": "red shoes"}),
        (4, k.CONTEXT_REQUESTED, {"key": "summary/2", **request}),
        (6, k.CONTEXT_FAILED, {"key": "summary/2", "reason": "error", "error": error}),
        (7, k.CONTEXT_REQUESTED, {"key": "summary/3", **request}),
    )

    _, made, failed, still_open = spans_from_events(events, capture_content=True)

    assert {span.name for span in (made, failed, still_open)} == {"context summary"}
    assert (made.start, made.end, made.status, made.output) == (at(1), at(3), "ok", "red shoes")
    assert made.attributes["gen_ai.request.model"] == "small"
    assert (failed.start, failed.end, failed.status) == (at(4), at(6), "error")
    assert failed.attributes["error.type"] == "NoSummary"
    assert still_open.end is None


def test_a_memory_change_shows_store_record_and_count():
    request = {
        "key": "m/1",
        "operation": "upsert_memory",
        "store": "facts",
        "record_id": "r-7",
        "records": ["my pin is 1234"],
    }
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.MEMORY_REQUESTED, request),
        (2, k.MEMORY_COMPLETED, {"key": "m/1", "count": 3, "usage": {"input_tokens": 4}}),
    )

    root, span = spans_from_events(events)
    waiting = spans_from_events(events[:2], capture_content=True)[1]

    assert span.attributes == {
        "gen_ai.memory.record.count": 3,
        "gen_ai.memory.record.id": "r-7",
        "gen_ai.memory.store.id": "facts",
        "gen_ai.operation.name": "upsert_memory",
        "gen_ai.usage.input_tokens": 4,
        "lib.key": "m/1",
    }
    assert (waiting.attributes["gen_ai.memory.record.count"], waiting.input) == (
        1,
        {"records": ["my pin is 1234"]},
    )
    assert root.attributes["lib.usage.input_tokens"] == 4


def test_memory_is_searched_and_written_in_spans_of_its_own():
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.MEMORY_REQUESTED, {"key": "m/1", "operation": "search_memory", "query": "shoes"}),
        (2, k.MEMORY_COMPLETED, {"key": "m/1", "records": ["red"]}),
        (3, k.MEMORY_REQUESTED, {"key": "m/2", "operation": "a text, no word"}),
        (4, k.MEMORY_FAILED, {"key": "m/2", "error": {"type": "StoreError", "message": "gone"}}),
    )

    _, found, failed = spans_from_events(events, capture_content=True)

    assert (found.name, found.kind, found.end) == ("search_memory", "memory", at(2))
    assert (found.input, found.output) == ({"query": "shoes"}, {"records": ["red"]})
    assert found.attributes == {
        "gen_ai.memory.record.count": 1,
        "gen_ai.operation.name": "search_memory",
        "lib.key": "m/1",
    }
    assert (failed.name, failed.status, failed.status_message) == ("memory", "error", "gone")
    assert failed.attributes == {
        "error.type": "StoreError",
        "lib.key": "m/2",
        "lib.reason": "error",
    }


def test_a_verdict_is_a_moment_with_the_tokens_that_it_took():
    verdict = {"guard": "pii", "stage": "input", "verdict": "block", "content_hash": "ab12"}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.GUARD_VERDICT, {**verdict, "usage": {"input_tokens": 7}}),
        (1, k.GUARD_VERDICT, verdict),
    )

    root, judged, plain = spans_from_events(events)

    assert (judged.name, judged.kind, judged.status) == ("guard pii", "guardrail", "ok")
    assert (judged.start, judged.end) == (at(1), at(1))
    assert judged.attributes == {
        "gen_ai.usage.input_tokens": 7,
        "lib.guard.content_hash": "ab12",
        "lib.guard.name": "pii",
        "lib.guard.stage": "input",
        "lib.guard.verdict": "block",
    }
    assert judged.span_id != plain.span_id
    assert root.attributes["lib.usage.input_tokens"] == 7
