"""The stand-ins for tracing backends refuse what the real ones refuse."""

import asyncio
import base64
import uuid
from typing import Any

import httpx2
import pytest

from fakes.otlp_receiver import Request
from fakes.trace_servers import (
    LangfuseServer,
    LangSmithServer,
    PhoenixServer,
    TraceServer,
    langfuse,
    langsmith,
)
from lib.observe.otlp.encode import encode_request, encode_span
from lib.testing.clock import ManualClock
from lib.testing.sink import make_trace

PAIR = base64.b64encode(f"{langfuse.PUBLIC_KEY}:{langfuse.SECRET_KEY}".encode()).decode()
LANGFUSE = {"authorization": f"Basic {PAIR}"}
LANGSMITH = {"x-api-key": langsmith.API_KEY}
CURRENT = {**LANGFUSE, "x-langfuse-ingestion-version": "4"}
TRACE = make_trace()
SPANS = encode_request([encode_span(span, {}) for span in TRACE], resource={})


async def answers_of(
    server: TraceServer, *calls: tuple[str, str, dict[str, Any]]
) -> list[httpx2.Response]:
    """Return the answers to some calls, each a method, a path, and arguments of a request."""

    async def main() -> list[httpx2.Response]:
        http = await asyncio.to_thread(httpx2.AsyncClient, timeout=200)
        async with server, http:
            return [
                await http.request(method, server.base_url + path, **arguments)
                for method, path, arguments in calls
            ]

    return await main()


def export(path: str, headers: dict[str, str]) -> tuple[str, str, dict[str, Any]]:
    kind = {"content-type": "application/x-protobuf"}
    return ("POST", path, {"content": SPANS, "headers": {**headers, **kind}})


def test_a_stand_in_says_itself_what_it_refuses():
    server = TraceServer(path="/v1/traces", on_repeat="first", routes={})

    with pytest.raises(NotImplementedError):
        server.refuse(Request(method="POST", path="/v1/traces"))


# -- Langfuse ----------------------------------------------------------------------------------

SCORES = "/api/public/scores"
OBSERVATIONS = f"/api/public/v2/observations?traceId={TRACE[0].trace_id}"
SCORE = {
    "id": "1",
    "traceId": TRACE[0].trace_id,
    "name": "a",
    "value": 1,
    "dataType": "NUMERIC",
    "timestamp": "2026-01-01T00:00:00.000Z",
}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (SCORE, 200),
        ([SCORE], 400),
        ({**SCORE, "value": True}, 400),
        ({**SCORE, "value": "1"}, 400),
        ({**SCORE, "dataType": "BOOLEAN"}, 200),
        ({**SCORE, "dataType": "BOOLEAN", "value": True}, 400),
        ({**SCORE, "dataType": "BOOLEAN", "value": 2}, 400),
        ({**SCORE, "dataType": "CATEGORICAL"}, 400),
        ({**SCORE, "dataType": None}, 400),
        ({**SCORE, "name": ""}, 400),
        ({**SCORE, "traceId": None}, 400),
        ({**SCORE, "environment": "langfuse-a"}, 400),
        ({**SCORE, "environment": "Prod"}, 400),
    ],
)
async def test_langfuse_takes_one_score_of_its_schema_at_a_time(body: Any, status: int):
    [answer] = await answers_of(
        LangfuseServer(), ("POST", SCORES, {"json": body, "headers": LANGFUSE})
    )

    assert answer.status_code == status


async def test_langfuse_keeps_a_score_for_each_day():
    days = [{**SCORE, "timestamp": f"2026-01-0{day}T00:00:00.000Z"} for day in (1, 1, 2)]
    server = LangfuseServer()

    await answers_of(
        server, *[("POST", SCORES, {"json": day, "headers": LANGFUSE}) for day in days]
    )

    assert len(server.scores) == 2


async def test_langfuse_takes_so_many_scores_a_minute_and_says_how_long_to_wait():
    clock = ManualClock()
    server = LangfuseServer(scores_a_minute=2, clock=clock)

    http = await asyncio.to_thread(httpx2.AsyncClient, timeout=200)
    answers: list[httpx2.Response] = []
    async with server, http:
        for wait_s in (0, 20.5, 0, 39, 0.5):
            clock.advance(wait_s)
            url = server.base_url + SCORES
            answers.append(await http.post(url, json=SCORE, headers=LANGFUSE))

    assert [one.status_code for one in answers] == [200, 200, 429, 429, 200]
    assert [one.headers.get("retry-after") for one in answers[2:4]] == ["40", "1"]


async def test_langfuse_shows_spans_of_the_current_ingestion_only():
    path = "/api/public/otel/v1/traces"
    read = ("GET", OBSERVATIONS, {"headers": LANGFUSE})

    *_, current = await answers_of(LangfuseServer(), export(path, CURRENT), read)
    *_, older = await answers_of(LangfuseServer(), export(path, LANGFUSE), read)
    newer, *_ = await answers_of(
        LangfuseServer(), export(path, {**LANGFUSE, "x-langfuse-ingestion-version": "5"})
    )

    assert len(current.json()["data"]) == 3
    assert older.json() == {"data": [], "meta": {}}
    assert newer.status_code == 400


@pytest.mark.parametrize("query", ["limit=1001", "limit=0", "fields=core,all"])
async def test_langfuse_refuses_what_it_cannot_show(query: str):
    read = ("GET", f"{OBSERVATIONS}&{query}", {"headers": LANGFUSE})

    [answer] = await answers_of(LangfuseServer(), read)

    assert answer.status_code == 400


@pytest.mark.parametrize("path", [SCORES, "/api/public/otel/v1/traces"])
async def test_langfuse_wants_its_keys(path: str):
    [answer] = await answers_of(LangfuseServer(), ("POST", path, {"json": SCORE}))

    assert answer.status_code == 401


# -- LangSmith ---------------------------------------------------------------------------------


def feedback(**changes: Any) -> dict[str, Any]:
    project = uuid.uuid5(uuid.NAMESPACE_DNS, "default")
    body = {
        "id": str(uuid.UUID(int=1)),
        "run_id": langsmith.run_id(bytes.fromhex(TRACE[0].span_id)),
        "session_id": str(project),
        "feedback_source": {"type": "api"},
        **changes,
    }
    return {"json": body, "headers": LANGSMITH}


async def test_langsmith_takes_feedback_on_a_run_that_it_has_once():
    create = ("POST", "/feedback", feedback())
    unknown = ("POST", "/feedback", feedback(run_id=str(uuid.UUID(int=7))))

    answers = await answers_of(
        LangSmithServer(), create, export("/otel/v1/traces", LANGSMITH), create, create, unknown
    )

    assert [answer.status_code for answer in answers] == [422, 200, 200, 409, 404]


@pytest.mark.parametrize("changes", [{"session_id": None}, {"feedback_source": {"type": "x"}}])
async def test_langsmith_refuses_feedback_without_a_project_or_a_source(changes: dict[str, Any]):
    create = ("POST", "/feedback", feedback(**changes))

    *_, answer = await answers_of(LangSmithServer(), export("/otel/v1/traces", LANGSMITH), create)

    assert answer.status_code == 422


@pytest.mark.parametrize(("changes", "status"), [({"score": 1}, 404), ({"key": "b"}, 404)])
async def test_langsmith_updates_only_feedback_that_it_has(changes: dict[str, Any], status: int):
    [answer] = await answers_of(
        LangSmithServer(), ("PATCH", "/feedback/x", {"json": changes, "headers": LANGSMITH})
    )

    assert answer.status_code == status


async def test_langsmith_updates_only_what_can_change():
    arguments = {"json": {"key": "b"}, "headers": LANGSMITH}
    calls = [
        ("POST", "/feedback", feedback()),
        ("PATCH", f"/feedback/{uuid.UUID(int=1)}", arguments),
    ]

    *_, answer = await answers_of(LangSmithServer(), export("/otel/v1/traces", LANGSMITH), *calls)

    assert answer.status_code == 422


@pytest.mark.parametrize("path", ["/feedback", "/otel/v1/traces"])
async def test_langsmith_wants_its_key(path: str):
    [answer] = await answers_of(LangSmithServer(), ("POST", path, {"json": {}}))

    assert answer.status_code == 401


# -- Phoenix -----------------------------------------------------------------------------------

ANNOTATION = {"span_id": "1" * 16, "name": "quality", "annotator_kind": "LLM"}


@pytest.mark.parametrize(
    ("media_type", "content", "status"),
    [
        ("application/json", b"{}", 415),
        ("application/x-protobuf", b"\xff\xff", 422),
        ("application/x-protobuf", b"", 200),
    ],
)
async def test_phoenix_takes_protobuf_only(media_type: str, content: bytes, status: int):
    arguments = {"content": content, "headers": {"content-type": media_type}}

    [answer] = await answers_of(PhoenixServer(), ("POST", "/v1/traces", arguments))

    assert answer.status_code == status


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, 404),
        ({"annotator_kind": "ROBOT"}, 422),
        ({"result": {"score": "high"}}, 422),
        ({"result": {"label": 1}}, 422),
        ({"name": None}, 422),
        ({"span_id": None}, 422),
        ({"name": "note"}, 400),
    ],
)
async def test_phoenix_refuses_annotations(changes: dict[str, Any], status: int):
    arguments = {"json": {"data": [{**ANNOTATION, **changes}]}}

    [answer] = await answers_of(
        PhoenixServer(), ("POST", "/v1/span_annotations?sync=true", arguments)
    )

    assert answer.status_code == status


async def test_phoenix_says_in_words_which_span_is_missing():
    arguments = {"json": {"data": [ANNOTATION]}}

    [answer] = await answers_of(
        PhoenixServer(), ("POST", "/v1/span_annotations?sync=true", arguments)
    )

    assert answer.text == "Spans with IDs 1111111111111111 do not exist."
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


async def test_phoenix_keeps_what_is_queued_for_ten_minutes():
    annotation = {"name": "a", "annotator_kind": "CODE", "span_id": TRACE[0].span_id}
    foreign = {**annotation, "span_id": "f" * 16}
    server = PhoenixServer()

    await answers_of(
        server,
        ("POST", "/v1/span_annotations?sync=false", {"json": {"data": [annotation, foreign]}}),
        export("/v1/traces", {}),
    )
    server.expire()

    assert server.queued == []
    assert [key[0] for key in server.annotations] == [TRACE[0].span_id]


@pytest.mark.parametrize("start_time", [None, 7, "2026-01-01T12:00:01Z", "2026-01-01T12:00:00Z"])
async def test_langsmith_may_ask_when_the_run_began(start_time: Any):
    server = LangSmithServer(asks_for_start=True)
    create = ("POST", "/feedback", feedback(start_time=start_time))

    _, answer = await answers_of(server, export("/otel/v1/traces", LANGSMITH), create)

    assert answer.status_code == (200 if start_time == "2026-01-01T12:00:00Z" else 422)
