"""A real Arize Phoenix, named by the environment; `make test-live` starts one.

    LIB_TEST_PHOENIX_URL=http://127.0.0.1:6006 LIB_TEST_PHOENIX_KEY=... pytest tests/live

Without the address nothing runs. Traces of every test have ids of their own: Phoenix keeps the
first of two spans with one id in its whole database.
"""

from dataclasses import replace
from typing import Any

import pytest

from lib.errors import ExportError
from lib.evals import Score, score_event
from lib.events import kinds as k
from lib.llm import ScriptedClient
from lib.observe import Observer, spans_from_events, trace_id_of
from lib.observe.spans import interrupt
from lib.testing.agents import make_engine
from lib.testing.logs import at, make_log

from .phoenix_kit import (
    KEY,
    SECRET,
    START,
    URL,
    agent_spans,
    one_call,
    phoenix,
    shown,
    stored,
    unique,
    until,
)

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not URL, reason="LIB_TEST_PHOENIX_URL names no server"),
    pytest.mark.timeout(300),
]


async def test_a_run_arrives_whole_and_with_its_kinds_and_errors() -> None:
    async with phoenix() as server:
        spans = await agent_spans()
        await server.sink().export(spans)
        found = await server.spans(spans[0].trace_id, count=len(spans))

        assert stored(found) == shown(spans)
        kinds = sorted(span["span_kind"] for span in found.values())
        assert kinds == ["AGENT", "LLM", "LLM", "TOOL", "TOOL"]
        failed = [one["status_code"] for one in found.values() if one["span_kind"] == "TOOL"]
        assert sorted(failed) == ["ERROR", "OK"]
        assert SECRET not in str(found)


async def test_content_arrives_where_it_is_captured() -> None:
    async with phoenix() as server:
        spans = await agent_spans(capture_content=True)
        await server.sink().export(spans)
        found = await server.spans(spans[0].trace_id, count=len(spans))

        root = found[spans[0].span_id]["attributes"]
        assert SECRET in str(root["input.value"])
        assert SECRET in str(root["output.value"])


async def test_a_child_hangs_under_the_call_that_started_it_and_counts_with_its_trace() -> None:
    async with phoenix() as server:
        root_id, child_id = unique("root"), unique("child")
        call: dict[str, Any] = {
            "key": "tool/1/a",
            "call_id": "a",
            "name": "ask",
            "args": {},
            "effects": "none",
        }
        parent = make_log(
            (0, k.RUN_STARTED, START),
            (1, k.TOOL_REQUESTED, call),
            (9, k.TOOL_COMPLETED, {"key": "tool/1/a", "call_id": "a", "output": SECRET}),
            (10, k.RUN_COMPLETED, {"outcome": "COMPLETED"}),
            run_id=root_id,
        )
        above = {"run_id": root_id, "key": "tool/1/a"}
        child = one_call(child_id, seconds=2, root=root_id, parent=above)
        spans = [
            *spans_from_events(parent),
            *spans_from_events(child, parent_events=parent),
        ]
        await server.sink().export(spans)
        found = await server.spans(spans[0].trace_id, count=len(spans))
        trace = await server.trace(spans[0].trace_id)

        assert stored(found) == shown(spans)
        assert trace["numSpans"] == 4
        assert trace["rootSpan"]["cumulativeTokenCountTotal"] == 120


async def test_a_run_whose_process_died_is_closed_as_interrupted() -> None:
    async with phoenix() as server:
        log = one_call(unique("crashed"), seconds=0, end=False)
        sink, spans = server.sink(), spans_from_events(log)
        await sink.export(spans)  # the root is open, and not sent
        [call] = (await server.spans(spans[0].trace_id, count=1)).values()
        await sink.export(interrupt(spans, at(2)))
        found = await server.spans(spans[0].trace_id, count=2)
        trace = await server.trace(spans[0].trace_id)

        assert call["span_kind"] == "LLM"
        root = found[spans[0].span_id]
        assert root["status_code"] == "ERROR"
        assert root["attributes"]["error.type"] == "interrupted"
        assert root["end_time"] == "2026-01-01T12:00:02+00:00"
        assert trace["rootSpan"]["spanId"] == spans[0].span_id


async def test_a_session_over_two_turns_is_one_trace_and_one_session() -> None:
    async with phoenix() as server:
        session = unique("session")
        turns = [(f"t{n}", unique("turn")) for n in range(2)]
        log = make_log(
            (0, k.RUN_STARTED, START),
            (1, k.TURN_REQUESTED, {"signal_id": "t0", "input": START["input"]}),
            (9, k.TURN_COMPLETED, completed(*turns[0])),
            (20, k.TURN_REQUESTED, {"signal_id": "t1", "input": START["input"]}),
            (29, k.TURN_COMPLETED, completed(*turns[1])),
            (30, k.RUN_COMPLETED, {"outcome": "COMPLETED"}),
            run_id=session,
        )
        sink = server.sink()
        first, second = [
            spans_from_events(
                one_call(
                    child,
                    seconds=2 + 20 * n,
                    root=session,
                    parent={"run_id": session, "key": key},
                ),
                parent_events=log,
            )
            for n, (key, child) in enumerate(turns)
        ]
        # As it grows: first the first turn, then the whole; the session's end comes last.
        await sink.export([*spans_from_events(log[:3]), *first])
        await server.spans(trace_id_of(session), count=3)
        whole = [*spans_from_events(log), *first, *second]
        await sink.export(whole)
        found = await server.spans(trace_id_of(session), count=7)
        trace = await server.trace(trace_id_of(session))

        assert stored(found) == shown(whole)
        assert trace["numSpans"] == 7
        assert trace["rootSpan"]["cumulativeTokenCountTotal"] == 240
        assert trace["session"]["sessionId"] == session


def completed(key: str, run_id: str) -> dict[str, Any]:
    return {"signal_id": key, "run_id": run_id, "outcome": "COMPLETED"}


async def test_a_repeat_changes_nothing() -> None:
    async with phoenix() as server:
        spans = await agent_spans()
        root = spans[0]
        score = Score(name="quality", value=0.9, source="llm", at=at(5))
        seen: list[Any] = []
        for sink in (server.sink(), server.sink()):  # as after a restart
            await sink.export(spans)
            await server.spans(root.trace_id, count=len(spans))
            await sink.score(root.trace_id, [score], span_id=root.span_id)
            await sink.export([replace(root, name="another one")])
            await sink.export(spans)
            marker = await agent_spans()  # what is queued before it has been written by then
            await sink.export(marker)
            await server.spans(marker[0].trace_id, count=len(marker))
            found = await server.spans(root.trace_id, count=len(spans))
            notes = await server.annotations(root.span_id)
            for note in notes:
                del note["updated_at"]
            seen.append((found, notes, await server.trace(root.trace_id)))

        assert seen[0] == seen[1]
        assert stored(seen[1][0]) == shown(spans)
        assert len(seen[1][1]) == 1


async def test_scores_arrive_on_spans_and_traces_and_change_in_place() -> None:
    async with phoenix() as server:
        spans = await agent_spans()
        root, sink = spans[0], server.sink()
        await sink.export(spans)
        scores = [
            Score(name="quality", value=0.25, comment="why", source="llm", at=at(5)),
            Score(name="safe", value=True, at=at(5), meta={"version": 1}),
            Score(name="tone", value="friendly", source="human", at=at(5)),
        ]
        await sink.score(root.trace_id, scores, span_id=root.span_id)  # it waits for the span
        again = scores[0].model_copy(update={"value": 0.75})
        await sink.score(root.trace_id, [again], span_id=root.span_id)
        await sink.score(root.trace_id, scores)
        listed = await server.get("trace_annotations", trace_ids=[root.trace_id], limit=100)
        notes = {note["name"]: note for note in await server.annotations(root.span_id)}

        assert {name: (note["annotator_kind"], note["result"]) for name, note in notes.items()} == {
            "quality": ("LLM", {"label": None, "score": 0.75, "explanation": "why"}),
            "safe": ("CODE", {"label": "true", "score": 1.0, "explanation": None}),
            "tone": ("HUMAN", {"label": "friendly", "score": None, "explanation": None}),
        }
        assert notes["safe"]["metadata"] == {"version": 1}
        assert sorted(note["name"] for note in listed) == ["quality", "safe", "tone"]
        with pytest.raises(ExportError) as raised:
            await sink.score(root.trace_id, [Score(name="note", value=1)])
        assert raised.value.permanent


async def test_an_observer_exports_a_run_and_its_scores_once() -> None:
    async with phoenix() as server:
        sink, model = server.sink(), ScriptedClient([SECRET])
        async with make_engine(model) as engine:
            async with Observer(engine, sink, settle_s=0) as observer:
                started = await engine.start(SECRET)
                await started.result()
                assert await observer.drain()
            score = Score(name="helpful", value=0.8, source="human", comment=SECRET)
            event = score_event(score, signal_id="feedback-7", now=engine.clock.now())
            await engine.store.append(started.id, [event], expected=None)
            async with Observer(engine, sink) as observer:
                sent = [await observer.export_trace(started.id) for _again in range(2)]
        found = await server.spans(trace_id_of(started.id), count=2)
        root = next(key for key, span in found.items() if not span["parent_id"])
        [note] = await server.annotations(root)

        assert sent == [0, 0]  # the score goes alone, no span of it
        kinds = sorted(span["span_kind"] for span in found.values())
        assert kinds == ["AGENT", "LLM"]
        assert (note["name"], note["result"]["score"]) == ("helpful", 0.8)
        assert note["annotator_kind"] == "HUMAN"
        assert SECRET not in f"{found}{note}"


async def test_a_score_before_its_span_waits_at_the_server() -> None:
    async with phoenix() as server:
        spans = await agent_spans()
        root, sink = spans[0], server.sink()
        await sink.score(root.trace_id, [Score(name="early", value=1)], span_id=root.span_id)
        await sink.export(spans)
        [note] = await until(lambda: server.annotations(root.span_id), bool)

        assert (note["name"], note["result"]["score"]) == ("early", 1.0)


async def test_a_wrong_key_is_refused_for_good() -> None:
    if not KEY:
        pytest.skip("this server asks for no key")

    async with phoenix() as server:
        sink = server.sink(api_key="wrong")
        for call in (
            sink.export(await agent_spans()),
            sink.score("0" * 31 + "1", [Score(name="quality", value=1)]),
        ):
            with pytest.raises(ExportError) as raised:
                await call
            assert raised.value.permanent
            assert "wrong" not in str(raised.value)
