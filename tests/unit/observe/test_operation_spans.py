"""Spans of operations within a tool call, times of guards, and settings of model calls."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from lib.algorithms import React
from lib.engine import Engine, LLMHandler, Run
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.guards import GuardContent, Stage, Verdict
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.observe import OPENINFERENCE, Span, spans_from_events
from lib.observe import attributes as a
from lib.testing.agents import make_engine
from lib.testing.aio import run
from lib.testing.clock import ManualClock
from lib.testing.logs import at, make_log
from lib.tools import tool
from lib.vector import Doc, EmbeddingIndex, InMemoryVectorStore, RerankingIndex
from lib.vector.contract import Purpose

CLOCK = ManualClock()


class Embedder:
    """Makes vectors of the lengths of texts; each call takes a second."""

    model = "lengths-1"
    dimension = 2

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Any:
        CLOCK.advance(1)
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


class Backwards:
    """Puts the last first."""

    model = "backwards-1"

    async def rerank(self, query: str, texts: Sequence[str], k: int) -> list[int]:
        CLOCK.advance(0.5)
        return list(range(len(texts)))[::-1][:k]


async def log_of(reply: str = "done") -> list[Event]:
    store = InMemoryVectorStore(2)
    index = EmbeddingIndex(store, Embedder(), namespace="faq")
    await index.add([Doc("one", "a secret text"), Doc("two", "another secret text")])
    searched = RerankingIndex(index, Backwards())

    @tool(effects="none")
    async def look_up(query: str) -> str:
        """Look it up."""
        if query == "break":
            await index.search(query, filter={"$bad": 1})
        hits = await searched.search(query, 2)
        return ", ".join(hit.doc.id for hit in hits)

    calls = [ToolCall("c1", "look_up", {"query": "where?"})]
    model = ScriptedClient([Reply(tuple(calls)), reply])
    async with make_engine(model, look_up, clock=CLOCK) as engine:
        started = await engine.start("help")
        await started.result()
        return await engine.store.read(started.id)


def below(spans: Sequence[Span], above: Span) -> list[Span]:
    return [span for span in spans if span.parent_id == above.span_id]


async def test_searches_inside_a_tool_are_spans_below_its_call():
    log = await log_of()

    for captured in (False, True):
        spans = spans_from_events(log, capture_content=captured)
        call = next(span for span in spans if span.kind == "tool")
        retriever, reranker = below(spans, call)
        (embedding,) = below(spans, retriever)
        assert (retriever.kind, retriever.name) == ("retriever", "retrieval faq")
        assert (reranker.kind, reranker.name) == ("reranker", "rerank backwards-1")
        assert (embedding.kind, embedding.name) == ("embedding", "embeddings lengths-1")
        assert [took(span) for span in (call, retriever, embedding, reranker)] == [1.5, 1, 1, 0.5]
        assert retriever.attributes == {
            "gen_ai.data_source.id": "faq",
            "gen_ai.operation.name": "retrieval",
            "gen_ai.retrieval.top_k": 30,
            "lib.documents.count": 2,
        }
        assert embedding.attributes == {
            "gen_ai.embeddings.dimension.count": 2,
            "gen_ai.operation.name": "embeddings",
            "gen_ai.request.model": "lengths-1",
            "lib.documents.count": 1,
        }
        assert reranker.attributes[a.REQUEST_MODEL] == "backwards-1"
        assert "secret text" not in repr(log)
        if captured:
            assert retriever.input == {"query": "where?"}
            shown = OPENINFERENCE.attributes(retriever)
            assert shown["retrieval.documents.0.document.id"] == "one"
            assert shown["input.value"] == "where?"
        else:
            assert "where?" not in repr(spans)
            assert (retriever.input, retriever.output, reranker.output) == (None, None, None)


def took(span: Span) -> float:
    assert span.end is not None
    return (span.end - span.start).total_seconds()


def called(operations: Any) -> list[Span]:
    requests: dict[str, Any] = {
        "key": "t",
        "call_id": "c",
        "name": "n",
        "args": {},
        "effects": "none",
    }
    answer = {"key": "t", "call_id": "c", "output": "x", "operations": operations}
    log = make_log(
        (0, k.RUN_STARTED, {"algorithm": "a", "input": []}),
        (1, k.TOOL_REQUESTED, requests),
        (9, k.TOOL_COMPLETED, answer),
        (10, k.TOOL_COMPLETED, answer),
    )
    return spans_from_events(log, capture_content=True)


def test_a_malformed_operation_is_left_out():
    start = at(2).isoformat()
    fine = {"kind": "retriever", "start": start, "error": "VectorError"}
    odd: list[Any] = [None, 7, {}, {"kind": "agent", "start": start}, {"kind": "retriever"}]
    odd += [{"kind": "retriever", "start": text} for text in (7, "soon", "2026-01-01T00:00:00")]

    _, call, found = called([*odd, {**fine, "under": 99, "documents": [3], "k": "many"}])

    assert (found.parent_id, found.name, found.status) == (call.span_id, "retrieval", "error")
    assert (found.start, found.end) == (at(2), at(9))
    assert found.attributes[a.ERROR_TYPE] == "VectorError"
    others: list[Any] = [None, 7, "text", [], {}]
    assert [len(called(value)) for value in others] == [2] * 5
    assert len(called([fine] * 1000)) == 2 + 32


class Slow:
    """A guard that takes two seconds."""

    name = "slow"
    stages = frozenset[Stage]({"input"})

    async def check(self, content: GuardContent) -> Verdict:
        CLOCK.advance(2)
        return Verdict(allowed=True)


def test_a_check_of_a_guard_is_as_long_as_it_took():
    async def main() -> list[Span]:
        handler = LLMHandler(ScriptedClient(["ok"]), guards=[Slow()])
        store = MemoryEventStore(clock=CLOCK)
        async with Engine(store, [handler], algorithms=[React()], clock=CLOCK) as engine:
            started = await engine.start("help")
            await started.result()
            return spans_from_events(await engine.store.read(started.id))

    guard = next(span for span in run(main()) if span.kind == "guardrail")

    assert took(guard) == 2


def test_a_check_of_an_old_log_is_a_moment():
    verdict = {"key": "k", "guard": "g", "stage": "input", "verdict": "allowed"}
    log = make_log(
        (0, k.RUN_STARTED, {"algorithm": "a", "input": []}), (1, k.GUARD_VERDICT, verdict)
    )

    guard = spans_from_events(log)[1]

    assert (guard.start, guard.end) == (at(1), at(1))


def test_a_model_call_has_server_tools_output_type_and_first_chunk():
    requests = {
        "key": "m",
        "model": "m-1",
        "server": {"address": "models.example", "port": 443},
        "output": "json",
        "tools": ["look_up", "refund"],
    }
    log = make_log(
        (0, k.RUN_STARTED, {"algorithm": "a", "input": [], "config": {"version": "7"}}),
        (1, k.LLM_REQUESTED, requests),
        (2, k.LLM_COMPLETED, {"key": "m", "reply": {"parts": []}, "first_chunk_s": 0.25}),
    )

    agent, call = spans_from_events(log, capture_content=True)

    assert (agent.attributes[a.AGENT_ID], agent.attributes[a.AGENT_VERSION]) == ("a", "7")
    values = {name: call.attributes[name] for name in call.attributes if name != "lib.key"}
    assert values == {
        "gen_ai.operation.name": "chat",
        "gen_ai.output.type": "json",
        "gen_ai.request.model": "m-1",
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.response.time_to_first_chunk": 0.25,
        "gen_ai.tool.definitions": [
            {"name": "look_up", "type": "function"},
            {"name": "refund", "type": "function"},
        ],
        "server.address": "models.example",
        "server.port": 443,
    }
    assert a.TOOL_DEFINITIONS not in spans_from_events(log)[1].attributes


async def watch(started: Run) -> None:
    async for _ in started.deltas():
        pass


async def test_a_streamed_reply_has_the_time_to_its_first_chunk():
    async def main() -> dict[str, Any]:
        async with make_engine(ScriptedClient(["a long reply"]), clock=CLOCK) as engine:
            started = await engine.start("help")
            watching = asyncio.create_task(watch(started))
            await started.result()
            await watching
            log = await engine.store.read(started.id)
            return next(dict(event.data) for event in log if event.kind == k.LLM_COMPLETED)

    assert (await main())["first_chunk_s"] >= 0
