"""Tests the parts of LangfuseSink alone: its ids, its types of scores, stored spans."""

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from fakes.otlp_receiver import Drop, Hang, Response, attributes_of
from fakes.pinecone_server.clock import HurryingClock
from fakes.trace_servers import LangfuseServer
from fakes.trace_servers.base import too_many
from fakes.trace_servers.langfuse import PUBLIC_KEY, SECRET_KEY
from lib.errors import ExportError
from lib.evals import Score
from lib.llm import ScriptedClient
from lib.observe import Observer
from lib.observe.sinks.langfuse import LangfuseSink, normalized, score_id
from lib.testing.agents import make_engine
from lib.testing.clock import ManualClock
from lib.testing.sink import make_trace

from .vendor_kit import LANGFUSE, ROOT, SECRET, TRACE

AT = datetime(2026, 1, 1, 23, 59, 59, 999_000, tzinfo=UTC)
served, failure = LANGFUSE.served, LANGFUSE.failure


# -- spans -------------------------------------------------------------------------------------


def test_spans_come_with_the_keys_and_the_version_of_their_ingestion():
    server = served(lambda sink, _: sink.export(TRACE))

    [request] = server.requests
    pair = base64.b64encode(f"{PUBLIC_KEY}:{SECRET_KEY}".encode()).decode()
    assert request.path == "/api/public/otel/v1/traces"
    assert request.headers["authorization"] == f"Basic {pair}"
    assert request.headers["x-langfuse-ingestion-version"] == "4"
    assert [span.span_id.hex() for span in server.spans] == [span.span_id for span in TRACE]


def test_environment_and_tags_are_on_every_span():
    server = served(lambda sink, _: sink.export(TRACE), environment="Prod", tags=["a", "b"])

    output = [attributes_of(span) for span in server.spans]
    assert [one["langfuse.environment"] for one in output] == ["prod"] * 3
    assert [one["langfuse.trace.tags"] for one in output] == [["a", "b"]] * 3


def test_without_environment_and_tags_there_are_none():
    server = served(lambda sink, _: sink.export(TRACE))

    assert not any("langfuse.environment" in attributes_of(span) for span in server.spans)
    assert not any("langfuse.trace.tags" in attributes_of(span) for span in server.spans)


@pytest.mark.parametrize(
    ("environment", "taken"),
    [
        ("production", "production"),
        ("Staging_2-b", "staging_2-b"),
        ("langfuse-prod", "prod"),
        ("LangfuseLangfuse", "default"),
        ("EU West/1", "eu-west-1"),
        ("x" * 50, "x" * 40),
        ("", "default"),
        ("Zürich", "z-rich"),
    ],
)
def test_an_environment_is_made_to_fit(environment: str, taken: str):
    assert normalized(environment) == taken


def test_an_open_root_is_held_back_until_it_is_closed():
    async def work(sink: LangfuseSink, server: LangfuseServer) -> None:
        await sink.export([replace(ROOT, end=None), *TRACE[1:]])
        assert len(server.spans) == 2
        await sink.export([ROOT])

    assert len(served(work).spans) == 3


def test_a_span_that_comes_again_is_counted_twice_there_so_the_sink_says_that_the_first_counts():
    async def work(sink: LangfuseSink, server: LangfuseServer) -> None:
        await sink.export(TRACE)
        await sink.export(TRACE)
        assert sink.traits.updates == "first"
        assert sink.traits.scores_as_spans is False

    assert len(served(work).spans) == 6


def test_one_bad_id_costs_the_whole_batch_and_is_permanent():
    error = failure(lambda sink, _: sink.export([*TRACE, replace(ROOT, trace_id="0" * 32)]))

    assert error.permanent


def test_batches_have_the_configured_size():
    server = served(lambda sink, _: sink.export(TRACE), batch_size=2)

    assert len(server.exports) == 2


def test_a_dialect_and_resource_can_be_chosen():
    class Plain:
        name = "plain"

        def attributes(self, span: Any) -> dict[str, Any]:
            return {"x": span.name}

    server = served(lambda sink, _: sink.export(TRACE), dialect=Plain(), service_name="shop")

    assert attributes_of(server.spans[0]) == {"x": ROOT.name}
    [resource] = [one.resource for one in server.exports[0].resource_spans]
    assert attributes_of(resource)["service.name"] == "shop"


# -- what it has -------------------------------------------------------------------------------


def test_stored_span_ids_are_read_page_by_page():
    async def work(sink: LangfuseSink, server: LangfuseServer) -> None:
        await sink.export([*TRACE, *make_trace(2)])
        assert await sink.stored_span_ids(ROOT.trace_id) == {span.span_id for span in TRACE}
        assert await sink.stored_span_ids("f" * 32) == frozenset()

    server = served(work, server=LangfuseServer(page=2))

    pages = [one.query for one in server.calls]
    assert [page.get("cursor") for page in pages] == [None, ["2"], None]
    assert {page["fields"][0] for page in pages} == {"core"}


def test_spans_that_are_not_ingested_yet_are_missing_in_stored_span_ids():
    async def work(sink: LangfuseSink, server: LangfuseServer) -> None:
        await sink.export(TRACE)
        assert await sink.stored_span_ids(ROOT.trace_id) == frozenset()
        assert len(await sink.stored_span_ids(ROOT.trace_id)) == 3

    served(work, server=LangfuseServer(lag=1))


def test_an_older_server_has_no_stored_span_ids():
    async def work(sink: LangfuseSink, server: LangfuseServer) -> None:
        server.planned.append(Response(status=404))
        assert await sink.stored_span_ids(ROOT.trace_id) == frozenset()

    served(work)


@pytest.mark.parametrize("answer", ["[]", "{}", '{"data": {}}', '{"data": [{}]}', "html", ""])
def test_an_answer_that_cannot_be_read_is_no_answer(answer: str):
    server = LangfuseServer()
    server.planned = [Response(body=answer.encode())]

    assert not failure(lambda sink, _: sink.stored_span_ids(ROOT.trace_id), server=server).permanent


def test_a_server_that_never_comes_to_an_end_is_left():
    page = Response.of({"data": [{"id": "a"}], "meta": {"cursor": "again"}})
    server = LangfuseServer()
    server.planned = [page] * 200

    failure(lambda sink, _: sink.stored_span_ids(ROOT.trace_id), server=server)

    assert len(server.calls) == 200


def test_it_waits_until_what_may_have_been_sent_last_can_be_seen():
    clock = HurryingClock()
    waited: list[float] = []

    async def work(sink: LangfuseSink, server: LangfuseServer) -> None:
        async def has_arrived() -> None:
            before = clock.monotonic()
            await sink.stored_span_ids(ROOT.trace_id)
            waited.append(clock.monotonic() - before)

        await has_arrived()  # a process before this one may have died while it sent
        await has_arrived()
        server.script = [503, 200]
        with pytest.raises(ExportError):
            await sink.export(TRACE)
        await has_arrived()
        await sink.export(TRACE)
        await has_arrived()

    served(work, clock=clock)

    assert waited == [5, 0, 5, 0]


@pytest.mark.parametrize("answer", [Drop(keep=True), Hang(keep=True)])
def test_an_export_that_may_have_arrived_is_looked_for_before_it_is_sent_again(
    answer: Drop | Hang,
):
    server = LangfuseServer()
    server.script = [answer]
    wait_s = 0.3 if isinstance(answer, Hang) else 200

    async def work(sink: LangfuseSink, _: LangfuseServer) -> None:
        async with (
            make_engine(ScriptedClient(["Sunny."])) as engine,
            Observer(engine, sink, settle_s=0, sink_timeout_s=wait_s) as observer,
        ):
            await (await engine.start("How is the weather?")).result()
            assert not await observer.drain(timeout_s=200)
            while not await observer.drain(timeout_s=200):
                assert isinstance(answer, Hang)  # this process was too slow

    served(work, server=server)

    assert len(server.spans) == 2
    assert {one.path for one in server.calls} == {"/api/public/v2/observations"}


# -- scores ------------------------------------------------------------------------------------


def test_a_score_is_sent_as_its_type_with_its_id_and_its_time():
    scores = [
        Score(name="quality", value=0.9, comment="why", source="llm", at=AT, meta={"version": 1}),
        Score(name="safe", value=True, at=AT),
        Score(name="tone", value="friendly", source="human", at=AT),
    ]

    async def work(sink: LangfuseSink, _: LangfuseServer) -> None:
        await sink.score(ROOT.trace_id, scores, span_id=ROOT.span_id)
        await sink.score(ROOT.trace_id, scores[1:2])

    server = served(work, environment="prod")

    whole = {"traceId": ROOT.trace_id, "environment": "prod"}
    whole |= {"timestamp": "2026-01-01T23:59:59.999Z"}
    span = {**whole, "observationId": ROOT.span_id}

    def same(name: str, span_id: str | None = ROOT.span_id) -> dict[str, str]:
        return {"id": score_id(ROOT.trace_id, span_id, name), "name": name}

    assert [one.json() for one in server.calls] == [
        {**span, **same("quality"), "value": 0.9, "dataType": "NUMERIC", "comment": "why"}
        | {"metadata": {"version": 1, "lib.source": "llm"}},
        {**span, **same("safe"), "value": 1, "dataType": "BOOLEAN"}
        | {"metadata": {"lib.source": "code"}},
        {**span, **same("tone"), "value": "friendly", "dataType": "CATEGORICAL"}
        | {"metadata": {"lib.source": "human"}},
        {**whole, **same("safe", None), "value": 1, "dataType": "BOOLEAN"}
        | {"metadata": {"lib.source": "code"}},
    ]


def test_the_id_of_a_score_can_be_computed_by_others():
    # printf 't|s|quality' | sha256sum
    assert score_id("t", "s", "quality") == (
        "008dc5e27509305056ced4a3f266436e838ccee13cd93c2388edb35fce1768c6"
    )


def test_a_score_that_comes_again_changes_in_place_even_at_another_hour_and_zone():
    async def work(sink: LangfuseSink, _: LangfuseServer) -> None:
        await sink.score(ROOT.trace_id, [Score(name="quality", value=0.1, at=AT)])
        zoned = AT.astimezone(timezone(timedelta(hours=5))) - timedelta(hours=1)
        await sink.score(ROOT.trace_id, [Score(name="quality", value=0.7, at=zoned)])

    [score] = served(work).scores.values()

    assert score["value"] == 0.7


def test_a_score_without_a_time_has_the_present():
    server = served(
        lambda sink, _: sink.score(ROOT.trace_id, [Score(name="safe", value=True)]),
        clock=ManualClock(AT),
    )

    assert [one["timestamp"] for one in server.scores.values()] == ["2026-01-01T23:59:59.999Z"]


def test_no_scores_are_no_request():
    assert served(lambda sink, _: sink.score(ROOT.trace_id, [])).calls == []


def test_a_score_may_come_before_its_trace():
    server = served(lambda sink, _: sink.score(ROOT.trace_id, [Score(name="a", value=1, at=AT)]))

    assert len(server.scores) == 1


@pytest.mark.parametrize(
    ("answer", "permanent"),
    [(Response(status=400), True), (Response.of({"rejected": 1}, 207), True), (503, False)],
)
def test_a_score_that_is_refused_is_an_export_error_and_sent_once(
    answer: Response | int, permanent: bool
):
    server = LangfuseServer()
    server.planned = [Response(status=answer) if isinstance(answer, int) else answer]
    scores = [Score(name="quality", value=1, comment=SECRET, at=AT)]

    error = failure(lambda sink, _: sink.score(ROOT.trace_id, scores), server=server)

    assert error.permanent is permanent
    assert len(server.calls) == 1


def test_a_rate_limit_on_scores_carries_retry_after():
    server = LangfuseServer()
    server.planned = [too_many("30")]
    scores = [Score(name="a", value=1, at=AT), Score(name="b", value=1, at=AT)]

    error = failure(lambda sink, _: sink.score(ROOT.trace_id, scores), server=server)

    assert (error.retry_after_s, error.permanent) == (30, False)
    assert len(server.calls) == 1


def test_meta_that_is_no_json_costs_only_its_own_score():
    odd = Score(name="odd", value=1, at=AT, meta={"x": {SECRET}})
    scores = [odd, Score(name="fine", value=1, at=AT)]
    server = LangfuseServer()

    error = failure(lambda sink, _: sink.score(ROOT.trace_id, scores), server=server)

    assert error.permanent
    assert [score["name"] for score in server.scores.values()] == ["fine"]


# -- what it is given --------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [("", "sk"), ("pk", ""), ("pk:x", "sk"), ("pk", "s k")])
def test_keys_that_cannot_be_are_refused_at_once(keys: tuple[str, str]):
    with pytest.raises(ValueError, match="_key"):
        LangfuseSink(*keys)


@pytest.mark.parametrize("options", [{"tags": "abc"}, {"tags": [""]}, {"host": "langfuse.com"}])
def test_what_cannot_be_is_refused_at_once(options: dict[str, Any]):
    with pytest.raises(ValueError, match=r"tags|host"):
        LangfuseSink("pk", "sk", **options)


def test_its_destination_names_host_and_project_and_no_key():
    def destination(public: str, secret: str, host: str = "https://cloud.langfuse.com") -> str:
        return LangfuseSink(public, secret, host).traits.destination or ""

    one = destination(PUBLIC_KEY, SECRET_KEY)

    assert one.startswith("langfuse cloud.langfuse.com ")
    assert PUBLIC_KEY not in one
    assert SECRET_KEY not in one
    assert one == destination(PUBLIC_KEY, "another")
    assert one != destination("pk-another", SECRET_KEY)
    assert one != destination(PUBLIC_KEY, SECRET_KEY, host="https://us.cloud.langfuse.com")


def test_a_wrong_key_is_permanent():
    async def work(sink: LangfuseSink, server: LangfuseServer) -> None:
        wrong = LangfuseSink(PUBLIC_KEY, "sk-wrong", server.host)
        try:
            await wrong.export(TRACE)
        finally:
            await wrong.aclose()

    assert failure(work).permanent
