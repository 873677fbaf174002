"""Tests the attributes of each dialect for one span of each sort, to the letter.

A difference is either a mistake or a change that backends will see: then the file is written anew,
by hand or with the value that the failing test shows, and says so in its commit.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lib.observe import GENAI, LANGFUSE, LANGSMITH, OPENINFERENCE, Dialect, Span, SpanKind
from lib.observe import attributes as a

GOLDEN = Path(__file__).parent / "golden"
START = datetime(2026, 11, 21, 3, 0, 0, 123456, tzinfo=UTC)

DIALECTS = {
    "genai": GENAI,
    "langfuse": LANGFUSE,
    "langsmith": LANGSMITH,
    "openinference": OPENINFERENCE,
}

PICTURE = {"type": "image", "media_type": "image/png", "data": "aGk="}
CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "parts": [{"type": "text", "text": "What is 1 + 1?"}, PICTURE]},
    {
        "role": "assistant",
        "parts": [
            {"type": "thinking", "text": "Use the tool.", "signature": "s"},
            {"type": "tool_call", "id": "c1", "name": "add", "arguments": {"a": 1, "b": 1}},
        ],
    },
    {"role": "tool", "parts": [{"type": "tool_result", "call_id": "c1", "content": "2"}]},
]
USAGE = {
    "gen_ai.usage.input_tokens": 1200,
    "gen_ai.usage.output_tokens": 30,
    "gen_ai.usage.cache_read.input_tokens": 1000,
    "gen_ai.usage.cache_write.input_tokens": 100,
    "gen_ai.usage.cache_creation.input_tokens": 100,
    "gen_ai.usage.reasoning.output_tokens": 20,
    "lib.cost.usd": 0.00125,
}


def make(kind: SpanKind, name: str, attributes: dict[str, Any], **fields: Any) -> Span:
    span = Span(
        trace_id="8429a9e1a56104bf42ae12e10453c3c2",
        span_id="86e2ff7d92d1f6d9",
        parent_id="1111111111111111",
        name=name,
        kind=kind,
        start=START,
        end=START + timedelta(seconds=2),
        attributes={"session.id": "s1", a.TRACE_NAME: "invoke_agent helper", **attributes},
        run_id="r1",
        tenant="acme",
        user="ann",
    )
    return replace(span, **fields)


SPANS = {
    "llm": make(
        "llm",
        "chat gpt-5",
        {
            a.OPERATION: "chat",
            a.PROVIDER: "openai",
            a.REQUEST_MODEL: "gpt-5",
            a.RESPONSE_MODEL: "gpt-5-2026-08-07",
            a.RESPONSE_ID: "resp_1",
            a.FINISH_REASONS: ["stop"],
            a.FIRST_CHUNK_S: 0.25,
            a.KEY: "llm:1",
            a.TOOL_DEFINITIONS: [{"type": "function", "name": "add"}],
            "gen_ai.request.temperature": 0.5,
            "gen_ai.request.max_tokens": 100,
            **USAGE,
        },
        input=CONVERSATION,
        output={"role": "assistant", "parts": [{"type": "text", "text": "Two."}]},
    ),
    "llm without content": make("llm", "chat gpt-5", {a.REQUEST_MODEL: "gpt-5", **USAGE}),
    "tool": make(
        "tool",
        "execute_tool add",
        {
            a.OPERATION: "execute_tool",
            a.TOOL_NAME: "add",
            a.TOOL_CALL_ID: "c1",
            a.TOOL_TYPE: "function",
            a.ERROR_TYPE: "timeout",
        },
        status="error",
        status_message="add took longer than 5 s",
        input={"a": 1, "b": 1},
    ),
    "retriever": make(
        "retriever",
        "retrieval docs",
        {a.OPERATION: "retrieval", "gen_ai.data_source.id": "docs"},
        input={"query": "refunds", "k": 2},
        output=[
            {"id": "d1", "score": 0.9, "text": "Within three days.", "meta": {"lang": "en"}},
            {"id": "d2", "score": 0.5},
        ],
    ),
    "guardrail": make(
        "guardrail",
        "guard pii",
        {a.GUARD_NAME: "pii", a.GUARD_STAGE: "input", a.GUARD_VERDICT: "block"},
    ),
    "evaluator": make(
        "evaluator",
        "evaluate helpful",
        {
            a.EVALUATION_NAME: "helpful",
            a.EVALUATION_VALUE: 0.5,
            a.EVALUATION_LABEL: "so so",
            a.EVALUATION_WHY: "It is short.",
            a.EVALUATION_SOURCE: "llm",
        },
    ),
    "agent": make(
        "agent",
        "invoke_agent helper",
        {
            a.OPERATION: "invoke_agent",
            a.AGENT_NAME: "helper",
            a.RUN_OUTCOME: "COMPLETED",
            "lib.usage.input_tokens": 1200,
        },
        parent_id=None,
        input=[{"role": "user", "content": "What is 1 + 1?"}],
        output="Two.",
    ),
    "session": make(
        "session",
        "invoke_workflow chat",
        {a.OPERATION: "invoke_workflow", a.AGENT_NAME: "chat", a.TAGS: ["eu", "beta"]},
        parent_id=None,
    ),
    "approval": make(
        "internal",
        "approval refund",
        {a.TOOL_NAME: "refund", a.ENVIRONMENT: "production"},
        input={"amount": 5},
        output="fine",
    ),
    "reranker": make(
        "reranker",
        "rerank m",
        {a.REQUEST_MODEL: "m", "gen_ai.usage.input_tokens": 9},
        input={"query": "refunds", "documents": [{"id": "d1", "text": "a"}]},
        output=[{"id": "d1", "score": 0.9}],
    ),
    "embedding": make(
        "embedding", "embeddings m", {a.REQUEST_MODEL: "m"}, input=["a", "b"], output=None
    ),
    "memory": make(
        "memory",
        "search_memory",
        {a.OPERATION: "search_memory"},
        input={"query": "x"},
        output={"records": [{"id": "m1", "text": "likes tea"}]},
    ),
}


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
def test_dialects_match_their_golden_files(dialect: Dialect) -> None:
    name = next(name for name in DIALECTS if DIALECTS[name] is dialect)
    result = {sort: dict(dialect.attributes(span)) for sort, span in SPANS.items()}

    golden = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    assert result == golden


def test_a_golden_file_has_every_span_in_every_dialect() -> None:
    files = {path.stem: path.read_text(encoding="utf-8") for path in GOLDEN.glob("*.json")}

    assert files.keys() == DIALECTS.keys()
    for text in files.values():
        assert json.loads(text).keys() == SPANS.keys()
