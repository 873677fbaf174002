"""Tests the parts of PhoenixSink alone: projects, annotations, waiting for spans."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from fakes.otlp_receiver import Response, attributes_of
from fakes.pinecone_server.clock import HurryingClock
from fakes.trace_servers import PhoenixServer
from lib.evals import Score
from lib.observe.sinks.phoenix import PhoenixSink

from .vendor_kit import AT, PHOENIX, PHOENIX_KEY, ROOT, SCORE, SECRET, TRACE, judged

served, failure = PHOENIX.served, PHOENIX.failure


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch):
    for name in ("PHOENIX_API_KEY", "PHOENIX_PROJECT_NAME"):
        monkeypatch.delenv(name, raising=False)


def queries(server: PhoenixServer) -> list[str]:
    return [one.query["sync"][0] for one in server.calls]


# -- spans -------------------------------------------------------------------------------------


def test_spans_come_with_the_key_as_protobuf_and_into_the_project():
    server = served(
        lambda sink, _: sink.export(TRACE),
        server=PhoenixServer(api_key=PHOENIX_KEY),
        project="shop",
        api_key=PHOENIX_KEY,
        resource_attributes={"region": "eu", "openinference.project.name": "not this"},
        service_name="bot",
    )

    [request] = server.requests
    assert request.path == "/v1/traces"
    assert request.headers["authorization"] == f"Bearer {PHOENIX_KEY}"
    assert request.headers["content-type"] == "application/x-protobuf"
    assert server.projects == {ROOT.trace_id: "shop"}
    [resource] = [one.resource for one in server.exports[0].resource_spans]
    assert attributes_of(resource) == {
        "openinference.project.name": "shop",
        "region": "eu",
        "service.name": "bot",
    }


def test_without_a_key_none_is_sent():
    [request] = served(lambda sink, _: sink.export(TRACE)).requests

    assert "authorization" not in request.headers


def test_key_and_project_are_those_of_the_environment_if_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("PHOENIX_API_KEY", PHOENIX_KEY)
    monkeypatch.setenv("PHOENIX_PROJECT_NAME", "elsewhere")

    server = served(judged, server=PhoenixServer(api_key=PHOENIX_KEY))

    assert server.projects == {ROOT.trace_id: "elsewhere"}
    assert len(server.annotations) == 1


def test_without_a_project_it_is_the_default_one():
    assert served(lambda sink, _: sink.export(TRACE)).projects == {ROOT.trace_id: "default"}


def test_the_words_are_those_of_openinference():
    server = served(lambda sink, _: sink.export(TRACE))

    kinds = [attributes_of(span)["openinference.span.kind"] for span in server.spans]
    assert kinds[:2] == ["AGENT", "LLM"]


def test_an_open_root_is_held_back_since_the_first_write_would_stay():
    async def work(sink: PhoenixSink, server: PhoenixServer) -> None:
        await sink.export([replace(ROOT, end=None), *TRACE[1:]])
        assert len(server.spans) == 2
        await sink.export([replace(ROOT, status="error")])

    server = served(work)

    assert [span.status.code for span in server.spans if not span.parent_span_id] == [2]


def test_a_span_that_comes_again_changes_nothing_in_the_whole_database():
    async def work(sink: PhoenixSink, _: PhoenixServer) -> None:
        await sink.export(TRACE)
        await sink.export([replace(ROOT, name="another"), *TRACE[1:]])
        await sink.export([replace(ROOT, name="another", trace_id="f" * 32)])
        assert sink.traits.updates == "first"
        assert sink.traits.scores_as_spans is False

    server = served(work)

    assert [span.name for span in server.spans] == [span.name for span in TRACE]


def test_a_full_queue_may_pass():
    server = PhoenixServer()
    server.script = [503]

    assert not failure(lambda sink, _: sink.export(TRACE), server=server).permanent


@pytest.mark.parametrize("call", ["export", "score"])
def test_a_wrong_key_is_permanent(call: str):
    async def work(sink: PhoenixSink, _: PhoenixServer) -> None:
        if call == "export":
            await sink.export(TRACE)
        await sink.score(ROOT.trace_id, [SCORE])

    server = PhoenixServer(api_key="another")

    assert failure(work, server=server, api_key=PHOENIX_KEY).permanent


# -- scores ------------------------------------------------------------------------------------


def test_scores_are_annotations_of_a_span_in_one_request():
    scores = [
        Score(name="quality", value=0.9, comment="why", source="llm", at=AT),
        Score(name="safe", value=True, meta={"version": 1}),
        Score(name="tone", value="friendly", source="human"),
        Score(name="wrong", value=False),
    ]

    async def work(sink: PhoenixSink, _: PhoenixServer) -> None:
        await sink.export(TRACE)
        await sink.score(ROOT.trace_id, scores, span_id=ROOT.span_id)

    [call] = served(work, server=PhoenixServer(api_key=PHOENIX_KEY), api_key=PHOENIX_KEY).calls

    def output(name: str, kind: str, result: dict[str, Any], **meta: Any) -> dict[str, Any]:
        return {
            "span_id": ROOT.span_id,
            "name": name,
            "annotator_kind": kind,
            "result": result,
            "metadata": meta,
            "identifier": f"lib:{name}",
        }

    assert (call.path, call.query) == ("/v1/span_annotations", {"sync": ["true"]})
    assert call.headers["authorization"] == f"Bearer {PHOENIX_KEY}"
    assert call.json() == {
        "data": [
            output("quality", "LLM", {"score": 0.9, "explanation": "why"}),
            output("safe", "CODE", {"score": 1.0, "label": "true"}, version=1),
            output("tone", "HUMAN", {"label": "friendly"}),
            output("wrong", "CODE", {"score": 0.0, "label": "false"}),
        ]
    }


def test_without_a_span_the_trace_is_judged():
    async def work(sink: PhoenixSink, _: PhoenixServer) -> None:
        await sink.export(TRACE)
        await sink.score(ROOT.trace_id, [SCORE])

    server = served(work)

    assert server.calls[0].path == "/v1/trace_annotations"
    assert list(server.annotations) == [(ROOT.trace_id, "quality", "lib:quality")]


def test_a_score_that_comes_again_changes_in_place():
    async def work(sink: PhoenixSink, server: PhoenixServer) -> None:
        await judged(sink, server)
        again = SCORE.model_copy(update={"value": 0.9})
        await sink.score(ROOT.trace_id, [again], span_id=ROOT.span_id)

    [held] = served(work).annotations.values()

    assert held["result"] == {"score": 0.9}


def test_no_scores_are_no_request():
    assert served(lambda sink, _: sink.score(ROOT.trace_id, [])).calls == []


@pytest.mark.parametrize(("lag", "waited_s"), [(3, 0.7), (5, 3.1)])
def test_a_span_that_is_not_ingested_yet_is_waited_for(lag: int, waited_s: float):
    clock = HurryingClock()

    server = served(judged, server=PhoenixServer(lag=lag), clock=clock)

    assert queries(server) == ["true"] * (lag + 1)
    assert clock.monotonic() == pytest.approx(waited_s)
    assert len(server.annotations) == 1
    assert server.queued == []


def test_a_span_that_does_not_come_leaves_its_scores_queued_and_that_is_logged(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.INFO, "lib")
    clock = HurryingClock()

    async def work(sink: PhoenixSink, server: PhoenixServer) -> None:
        output = SCORE.model_copy(update={"comment": SECRET})
        await sink.score(ROOT.trace_id, [output], span_id=ROOT.span_id)
        server.settle()
        assert len(server.queued) == 1
        await sink.export(TRACE)
        server.settle()

    server = served(work, clock=clock)

    assert queries(server) == ["true"] * 6 + ["false"]
    assert clock.monotonic() == pytest.approx(3.1)
    assert len(server.annotations) == 1
    assert server.queued == []
    [record] = caplog.records
    assert (record.levelname, "queued" in record.message) == ("INFO", True)
    assert SECRET not in caplog.text


def test_a_server_without_annotations_is_an_error():
    server = PhoenixServer()
    server.planned = [Response(status=404)] * 7

    error = failure(judged, server=server)

    assert error.permanent
    assert server.planned == []


@pytest.mark.parametrize(("status", "permanent"), [(422, True), (500, False), (507, False)])
def test_a_refusal_is_an_export_error_and_not_tried_again(status: int, permanent: bool):
    server = PhoenixServer()
    server.planned = [Response(status=status, body=SECRET.encode())]

    assert failure(judged, server=server).permanent is permanent
    assert len(server.calls) == 1


def test_a_score_called_note_is_refused_and_costs_no_other():
    async def work(sink: PhoenixSink, _: PhoenixServer) -> None:
        await sink.export(TRACE)
        note = SCORE.model_copy(update={"name": "note"})
        await sink.score(ROOT.trace_id, [note, SCORE], span_id=ROOT.span_id)

    server = PhoenixServer()

    error = failure(work, server=server)

    assert error.permanent
    assert "'note'" in str(error)
    assert [key[1] for key in server.annotations] == ["quality"]


def test_only_a_note_is_no_request():
    server = PhoenixServer()

    async def work(sink: PhoenixSink, _: PhoenixServer) -> None:
        await sink.score(ROOT.trace_id, [Score(name="note", value=1)])

    failure(work, server=server)

    assert server.calls == []


# -- what it is given --------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["", "a b", "a\n"])
def test_a_key_that_cannot_be_is_refused_at_once(key: str):
    with pytest.raises(ValueError, match=r"^api_key "):
        PhoenixSink(api_key=key)


@pytest.mark.parametrize(
    "endpoint", ["localhost:6006", "http://localhost:6006", "ftp://x/v1/traces"]
)
def test_an_endpoint_that_cannot_be_is_refused_at_once(endpoint: str):
    with pytest.raises(ValueError, match=r"^endpoint "):
        PhoenixSink(endpoint)


def test_its_destination_names_host_and_project_and_no_key():
    assert PhoenixSink(api_key=PHOENIX_KEY).traits.destination == "phoenix localhost:6006 default"
    assert PhoenixSink("https://px.example/a/v1/traces", "shop").traits.destination == (
        "phoenix px.example/a shop"
    )
