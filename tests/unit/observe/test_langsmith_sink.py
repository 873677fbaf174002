"""Tests the parts of LangSmithSink alone: projects, parents first, delayed feedback."""

import uuid
from dataclasses import replace
from typing import Any

import pytest

from fakes.otlp_receiver import Response, attributes_of
from fakes.pinecone_server.clock import HurryingClock
from fakes.trace_servers import LangSmithServer
from fakes.trace_servers.langsmith import API_KEY
from lib.errors import ExportError
from lib.evals import Score
from lib.observe import OTelSink
from lib.observe.sinks.langsmith import LangSmithSink, feedback_id, run_id_of

from .vendor_kit import AT, LANGSMITH, ROOT, SCORE, SECRET, TRACE, judged

served, failure = LANGSMITH.served, LANGSMITH.failure


# -- spans -------------------------------------------------------------------------------------


def test_spans_come_with_the_key_and_the_project():
    server = served(lambda sink, _: sink.export(TRACE), project="shop")

    [request] = server.requests
    assert request.path == "/otel/v1/traces"
    assert request.headers["x-api-key"] == API_KEY
    assert request.headers["langsmith-project"] == "shop"
    assert list(server.runs) == [run_id_of(span.span_id) for span in TRACE]


def test_the_default_project_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LANGSMITH_PROJECT", raising=False)
    assert list(served(lambda sink, _: sink.export(TRACE)).projects) == ["default"]
    monkeypatch.setenv("LANGSMITH_PROJECT", "elsewhere")
    assert list(served(lambda sink, _: sink.export(TRACE)).projects) == ["elsewhere"]
    assert list(served(lambda sink, _: sink.export(TRACE), project="a").projects) == ["a"]


async def test_an_endpoint_may_name_the_path_for_traces():
    async def main() -> int:
        async with LangSmithServer() as server:
            sink = LangSmithSink(API_KEY, endpoint=f"{server.endpoint}/v1/traces/")
            await sink.export(TRACE)
            await sink.score(ROOT.trace_id, [SCORE], span_id=ROOT.span_id)
            await sink.aclose()
            return len(server.feedback)

    assert (await main()) == 1


def test_model_calls_without_a_provider_get_the_configured_one():
    model_call = replace(
        TRACE[1], attributes={"gen_ai.provider.name": "anthropic"}, span_id="1" * 16
    )

    server = served(lambda sink, _: sink.export([*TRACE, model_call]), provider="openai")

    expected = [attributes_of(span).get("langsmith.metadata.ls_provider") for span in server.spans]
    assert expected == [None, "openai", None, "anthropic"]


def test_what_is_an_error_has_the_event_that_makes_it_one_at_langsmith():
    server = served(lambda sink, _: sink.export(TRACE))

    expected = {span.name: [event.name for event in span.events] for span in server.spans}
    assert expected == {span.name: ["exception"] * (span.status == "error") for span in TRACE}


def test_a_child_is_seen_once_its_parent_has_come():
    async def work(sink: LangSmithSink, server: LangSmithServer) -> None:
        await sink.export([replace(ROOT, end=None), *TRACE[1:]])
        assert server.runs == {}
        await sink.export([ROOT])

    assert len(served(work).runs) == 3


def test_a_child_without_its_parent_is_dropped_silently():
    async def work(sink: LangSmithSink, server: LangSmithServer) -> None:
        await sink.export(TRACE[1:])
        server.expire()
        await sink.export(TRACE[:1])

    assert len(served(work).runs) == 1


def test_it_says_that_the_first_of_two_spans_counts():
    async def work(sink: LangSmithSink, _: LangSmithServer) -> None:
        assert sink.traits.updates == "first"
        assert sink.traits.scores_as_spans is False

    served(work)


# -- scores ------------------------------------------------------------------------------------


def test_the_id_of_a_run_is_that_of_its_span_aligned_to_the_right():
    # The example of LangSmith's own code.
    assert run_id_of("86e2ff7d92d1f6d9") == "00000000-0000-0000-86e2-ff7d92d1f6d9"
    assert run_id_of("0000000000000001") == "00000000-0000-0000-0000-000000000001"


def test_a_score_is_feedback_of_a_fixed_id_on_a_run_of_a_project():
    score = Score(name="quality", value=0.123456, comment="why", source="llm", at=AT)

    async def work(sink: LangSmithSink, _: LangSmithServer) -> None:
        await sink.export(TRACE)
        scores = [score.model_copy(update={"meta": {"version": 1}})]
        await sink.score(ROOT.trace_id, scores, span_id=ROOT.span_id)

    server = served(work, project="shop")

    sessions, feedback = server.calls
    assert sessions.query == {"limit": ["1"], "name": ["shop"]}
    assert feedback.headers["x-api-key"] == API_KEY
    assert feedback.json() == {
        "id": feedback_id(ROOT.trace_id, ROOT.span_id, "quality"),
        "run_id": run_id_of(ROOT.span_id),
        "start_time": "2026-01-01T12:00:00Z",
        "key": "quality",
        "score": 0.1235,
        "comment": "why",
        "session_id": server.projects["shop"],
        "created_at": "2026-01-01T12:00:00Z",
        "modified_at": "2026-01-01T12:00:00Z",
        "feedback_source": {"type": "model", "metadata": {"lib.source": "llm"}},
        "extra": {"version": 1},
        "extend_trace_retention": False,
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, {"score": True}),
        (False, {"score": False}),
        ("kind", {"value": "kind"}),
        (0, {"score": 0}),
        (-2.5, {"score": -2.5}),
    ],
)
def test_verdicts_and_labels_are_sent_with_their_type(
    value: bool | float | str, expected: dict[str, Any]
):
    async def work(sink: LangSmithSink, _: LangSmithServer) -> None:
        await sink.export(TRACE)
        score = Score(name="a", value=value, source="human")
        await sink.score(ROOT.trace_id, [score], span_id=ROOT.span_id)

    [held] = served(work).feedback.values()

    assert {name: held[name] for name in ("score", "value") if name in held} == expected
    assert isinstance(value, str) or type(held["score"]) is type(Score(name="a", value=value).value)
    assert held["feedback_source"] == {"type": "api", "metadata": {"lib.source": "human"}}
    assert "created_at" not in held


def test_feedback_ids_differ_by_trace_span_and_name_only():
    ids = [feedback_id(*parts) for parts in (("t", "s", "n"), ("t", "s", "m"), ("t", "r", "n"))]

    assert len({*ids, feedback_id("u", "s", "n")}) == 4
    assert feedback_id("t", "s", "n") == ids[0]
    assert uuid.UUID(ids[0]).version == 5


def test_a_score_of_a_whole_trace_is_refused_since_there_is_no_run_to_put_it_on():
    async def work(sink: LangSmithSink, _: LangSmithServer) -> None:
        with pytest.raises(ValueError, match="give span_id"):
            await sink.score(ROOT.trace_id, [SCORE])

    assert served(work).calls == []


@pytest.mark.parametrize("lag", [3, 5])
def test_a_run_that_is_not_ingested_yet_is_waited_for(lag: int):
    server = served(judged, server=LangSmithServer(lag=lag))

    queries = [(one.method, one.path) for one in server.calls]
    assert queries == [("GET", "/sessions")] * (lag + 1) + [("POST", "/feedback")]
    assert len(server.feedback) == 1


def test_feedback_before_its_run_is_tried_again():
    server = LangSmithServer()

    async def work(sink: LangSmithSink, backend: LangSmithServer) -> None:
        await sink.export(TRACE)
        await sink.score(ROOT.trace_id, [SCORE], span_id=ROOT.span_id)  # the project is known now
        backend.planned = [Response.of({"detail": "Run not found"}, 404)] * 2
        again = SCORE.model_copy(update={"name": "b"})
        await sink.score(ROOT.trace_id, [again], span_id=ROOT.span_id)

    served(work, server=server)

    assert [one.path for one in server.calls] == ["/sessions"] + ["/feedback"] * 4
    assert len(server.feedback) == 2


def test_a_run_that_does_not_come_is_an_error_that_may_pass():
    async def work(sink: LangSmithSink, _: LangSmithServer) -> None:
        await sink.export(TRACE)
        await sink.score(ROOT.trace_id, [SCORE, SCORE], span_id="f" * 16)

    server, clock = LangSmithServer(), HurryingClock()

    error = failure(work, server=server, clock=clock)

    assert not error.permanent
    assert clock.monotonic() == 7.75
    assert [one.path for one in server.calls] == ["/sessions"] + ["/feedback"] * 6


def test_the_project_is_looked_up_anew_after_a_run_did_not_come():
    async def work(sink: LangSmithSink, backend: LangSmithServer) -> None:
        await judged(sink, backend)
        backend.planned = [Response(status=404)] * 6
        with pytest.raises(ExportError):
            await judged(sink, backend)
        await judged(sink, backend)

    server = served(work)

    assert [one.path for one in server.calls].count("/sessions") == 2


def test_a_score_that_comes_again_is_updated():
    async def work(sink: LangSmithSink, backend: LangSmithServer) -> None:
        await judged(sink, backend)
        again = SCORE.model_copy(update={"value": 0.9, "comment": "better"})
        await sink.score(ROOT.trace_id, [again], span_id=ROOT.span_id)

    server = served(work)

    [held] = server.feedback.values()
    assert (held["score"], held["comment"]) == (0.9, "better")
    assert [one.method for one in server.calls] == ["GET", "POST", "POST", "PATCH"]
    assert server.calls[-1].json() == {"score": 0.9, "comment": "better"}


@pytest.mark.parametrize("answer", ['{"detail": "x"}', "html", "", "[{}]", '["x"]'])
def test_an_answer_that_is_no_list_of_projects_is_no_answer(answer: str):
    server = LangSmithServer()
    server.planned = [Response(body=answer.encode())]

    assert not failure(judged, server=server).permanent


@pytest.mark.parametrize(("status", "permanent"), [(422, True), (401, True), (500, False)])
def test_feedback_that_is_refused_is_an_export_error(status: int, permanent: bool):
    async def work(sink: LangSmithSink, backend: LangSmithServer) -> None:
        await judged(sink, backend)
        backend.planned = [Response(status=status, body=SECRET.encode())]
        expected = SCORE.model_copy(update={"comment": SECRET})
        await sink.score(ROOT.trace_id, [expected], span_id=ROOT.span_id)

    assert failure(work).permanent is permanent


# -- what it is given --------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["", "a b", "a\n"])
def test_a_key_that_cannot_be_is_refused_at_once(key: str):
    with pytest.raises(ValueError, match=r"^api_key "):
        LangSmithSink(key)


@pytest.mark.parametrize("project", ["Zürich", "a\nb", " a"])
def test_a_project_that_cannot_stand_in_a_header_is_refused_at_once(project: str):
    with pytest.raises(ValueError, match=r"^project="):
        LangSmithSink(API_KEY, project)


@pytest.mark.parametrize("options", [{"endpoint": "localhost"}, {"api_url": "smith"}])
def test_an_address_that_cannot_be_is_refused_at_once(options: dict[str, Any]):
    with pytest.raises(ValueError, match=r"is not like https://"):
        LangSmithSink(API_KEY, **options)


async def test_scores_go_to_the_server_of_the_spans_by_default():
    async def main() -> tuple[int, int]:
        async with LangSmithServer() as one, LangSmithServer() as other:
            other.planned = [Response.of([{"id": "p"}]), Response.of({})]
            for sink in (
                LangSmithSink(API_KEY, endpoint=one.endpoint),
                LangSmithSink(API_KEY, endpoint=one.endpoint, api_url=other.base_url),
            ):
                await judged(sink, one)
                await sink.aclose()
            return len(one.calls), len(other.calls)

    assert (await main()) == (2, 2)


def test_its_destination_names_host_and_project_and_no_key():
    expected = LangSmithSink(API_KEY, "shop").traits.destination

    assert expected == "langsmith api.smith.langchain.com/otel shop"


# -- what a run is found by ------------------------------------------------------------------------


class Forgetful(LangSmithSink):
    _max_starts = 2


def test_feedback_has_the_start_of_a_run_that_the_sink_has_sent():
    def sink(server: LangSmithServer, **options: Any) -> LangSmithSink:
        return Forgetful(API_KEY, endpoint=server.endpoint, **options)

    vendor = replace(LANGSMITH, sink=sink)

    async def work(sink: LangSmithSink, _: LangSmithServer) -> None:
        await sink.export(TRACE)
        for span in TRACE[1:]:
            await sink.score(span.trace_id, [SCORE], span_id=span.span_id)

    vendor.served(work, server=LangSmithServer(asks_for_start=True))

    async def late(sink: LangSmithSink, _: LangSmithServer) -> None:
        await sink.export(TRACE)
        await sink.score(ROOT.trace_id, [SCORE], span_id=ROOT.span_id)  # which is forgotten

    assert vendor.failure(late, server=LangSmithServer(asks_for_start=True)).permanent
    [feedback] = vendor.served(late).feedback.values()
    assert "start_time" not in feedback


# -- the environment -------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", ["{}", "{}/", "{}/otel", "{}/otel/v1/traces"])
async def test_spans_and_scores_go_to_the_server_of_the_environment_by_default(
    expected: str, monkeypatch: pytest.MonkeyPatch
):
    async def main() -> list[str]:
        async with LangSmithServer() as server, LangSmithServer() as other:
            monkeypatch.setenv("LANGSMITH_ENDPOINT", expected.format(server.base_url))
            for sink in (LangSmithSink(API_KEY), LangSmithSink(API_KEY, endpoint=other.endpoint)):
                await sink.export(TRACE)
                await sink.score(ROOT.trace_id, [SCORE], span_id=ROOT.span_id)
                await sink.aclose()
            assert len(server.requests) == len(other.requests)
            return [request.path for request in server.requests]

    assert (await main()) == ["/otel/v1/traces", "/sessions", "/feedback"]


def test_an_address_of_the_environment_is_checked_like_an_argument(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("LANGSMITH_ENDPOINT", "smith.example")

    with pytest.raises(ValueError, match="LANGSMITH_ENDPOINT is not like https://"):
        LangSmithSink(API_KEY)


def test_a_root_has_to_come_for_its_children_to_be_kept():
    assert LangSmithSink(API_KEY).traits.needs_root
    assert not OTelSink().traits.needs_root
