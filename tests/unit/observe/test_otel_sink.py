import asyncio
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import lib
from lib.errors import ExportError, MissingDriver
from lib.observe import LANGFUSE, Dialect, OTelSink, Score, Span, SpanEvent
from lib.observe import attributes as a
from lib.observe.dialect import AttributeValue
from lib.observe.sinks.environment import (
    check_protocol,
    resource_of,
    traces_headers,
    traces_timeout_s,
    traces_url,
)
from lib.observe.span import ScoringSink
from lib.testing.aio import run
from lib.testing.otlp_receiver import OTLPReceiver, attributes_of
from lib.testing.sink import make_trace

AT = datetime(2026, 11, 21, 3, 0, 0, 123456, tzinfo=UTC)


class Exporter(SpanExporter):
    """Keeps batches and answers as told, as exporters do: one call at a time, blocking."""

    def __init__(self, *answers: SpanExportResult | Exception, flushes: bool = True) -> None:
        self.answers = list(answers)
        self.flushes = flushes
        self.batches: list[Sequence[ReadableSpan]] = []
        self.calls: list[str] = []
        self.threads: set[threading.Thread] = set()
        self.go_on = threading.Event()
        self.go_on.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.threads.add(threading.current_thread())
        self.go_on.wait(10)
        answer = self.answers.pop(0) if self.answers else SpanExportResult.SUCCESS
        if isinstance(answer, Exception):
            raise answer
        self.batches.append(spans)
        return answer

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        self.calls.append("flush")
        return self.flushes

    def shutdown(self) -> None:
        self.calls.append("shutdown")


class Sending:
    """A sender that keeps what it is given, or fails."""

    url = "https://user:password@backend.example:8443/v1/traces?key=secret#part"

    def __init__(self, error: ExportError | None = None) -> None:
        self.error = error
        self.sent: list[tuple[Span, dict[str, Any]]] = []
        self.resource: Mapping[str, AttributeValue] = {}
        self.closed = 0

    async def send(
        self, spans: Sequence[Span], *, dialect: Dialect, resource: Mapping[str, AttributeValue]
    ) -> None:
        self.resource = resource
        self.sent += [(span, dict(dialect.attributes(span))) for span in spans]
        if self.error is not None:
            raise self.error

    async def aclose(self) -> None:
        self.closed += 1


def exported(spans: Sequence[Span], **options: Any) -> list[ReadableSpan]:
    exporter = Exporter()
    run(OTelSink(exporter, **options).export(spans))
    return [span for batch in exporter.batches for span in batch]


# -- what an exporter gets -------------------------------------------------------------------------


def test_a_span_keeps_its_ids_its_times_to_the_microsecond_and_its_status():
    root, call, tool = make_trace()
    moment = SpanEvent("run.resumed", AT, {"worker": "w\ud800", "none": None})
    root = replace(root, start=AT, end=AT + timedelta(microseconds=1), events=[moment])
    tool = replace(tool, status_message="no \ud800")

    first, second, third = exported([root, call, tool])

    assert first.parent is None
    assert first.context is not None
    assert f"{first.context.trace_id:032x}" == root.trace_id
    assert f"{first.context.span_id:016x}" == root.span_id
    assert first.context.trace_flags.sampled
    assert second.parent is not None
    assert f"{second.parent.span_id:016x}" == root.span_id
    assert first.start_time == 1_795_230_000_123_456_000
    assert first.end_time == first.start_time + 1000
    assert [span.kind for span in (first, second, third)] == [
        SpanKind.INTERNAL,
        SpanKind.CLIENT,
        SpanKind.INTERNAL,
    ]
    assert (first.status.status_code, first.status.description) == (StatusCode.OK, None)
    assert (third.status.status_code, third.status.description) == (StatusCode.ERROR, "no \ufffd")
    assert [
        (event.name, dict(event.attributes or {}), event.timestamp) for event in first.events
    ] == [("run.resumed", {"worker": "w\ufffd"}, first.start_time)]


def test_all_spans_have_one_resource_and_one_scope_so_that_an_exporter_groups_them():
    spans = exported(make_trace(), service_name="shop", resource_attributes={"region": "eu"})

    assert dict(spans[0].resource.attributes) == {"region": "eu", "service.name": "shop"}
    assert {id(span.resource) for span in spans} == {id(spans[0].resource)}
    assert {id(span.instrumentation_scope) for span in spans} == {
        id(spans[0].instrumentation_scope)
    }
    assert spans[0].instrumentation_scope is not None
    assert spans[0].instrumentation_scope.name == "lib.observe"
    assert spans[0].instrumentation_scope.version == lib.__version__


def test_a_span_may_have_more_attributes_than_a_tracer_keeps():
    root = make_trace()[0]
    many = {f"lib.x{number:03}": number for number in range(200)}

    (span,) = exported([replace(root, attributes=many)])

    assert many.items() <= dict(span.attributes or {}).items()


def test_the_dialect_names_the_attributes():
    (span, *_) = exported(make_trace(), dialect=LANGFUSE)

    assert dict(span.attributes or {})["langfuse.observation.type"] == "agent"


def test_spans_go_in_batches_one_after_the_other_in_a_thread_that_may_block():
    exporter = Exporter()

    run(OTelSink(exporter, batch_size=2).export([*make_trace(1), *make_trace(2)[:2]]))

    assert [len(batch) for batch in exporter.batches] == [2, 2, 1]
    assert threading.main_thread() not in exporter.threads
    assert all(thread.daemon for thread in exporter.threads)


def test_open_spans_are_not_sent():
    assert exported(make_trace(end=False)[:1]) == []
    assert len(exported(make_trace(end=False))) == 2


def test_a_sink_whose_backend_replaces_spans_sends_open_ones_as_ending_where_they_start():
    class Replacing(OTelSink):
        updates = "replace"

    exporter = Exporter()

    run(Replacing(exporter).export(make_trace(end=False)[:1]))

    ((span,),) = exporter.batches
    assert span.end_time == span.start_time
    assert span.status.status_code is StatusCode.UNSET


def test_every_span_says_what_holds_for_its_trace_unless_it_says_otherwise_itself():
    facts = {"session.id": "s1", "lib.trace.name": "agent"}
    root, call, tool = [replace(span, trace=facts) for span in make_trace(end=False)]
    tool = replace(tool, attributes={"session.id": "s2"})
    sending = Sending()

    run(OTelSink(sending).export([root, call, tool]))

    assert [span.name for span, _ in sending.sent] == [call.name, tool.name]
    assert [attributes["lib.trace.name"] for _, attributes in sending.sent] == ["agent", "agent"]
    assert [attributes["session.id"] for _, attributes in sending.sent] == ["s1", "s2"]


def test_children_are_sent_though_nothing_is_known_of_their_root():
    _, call, tool = make_trace()

    assert [span.name for span in exported([call, tool])] == [call.name, tool.name]


# -- failures --------------------------------------------------------------------------------------


def test_a_failure_of_the_exporter_tells_what_was_taken_before():
    exporter = Exporter(SpanExportResult.SUCCESS, SpanExportResult.FAILURE)

    with pytest.raises(ExportError, match="Exporter did not deliver 1 spans") as raised:
        run(OTelSink(exporter, batch_size=1).export(make_trace()))

    assert raised.value.taken == {make_trace()[0].span_id}
    assert not raised.value.permanent


def test_who_cancels_an_export_knows_which_batches_were_taken():
    exporter, taken = Exporter(), list[str]()
    sink, spans = OTelSink(exporter, batch_size=2), [*make_trace(1), *make_trace(2)]

    def hang_then(span_ids: Sequence[str]) -> None:
        taken.extend(span_ids)
        exporter.go_on.clear()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await sink.export(spans, on_taken=hang_then)
        exporter.go_on.set()

    run(main())

    assert taken == [span.span_id for span in spans[:2]]


def test_a_sender_that_does_not_tell_is_not_asked_to():
    taken, spans = list[str](), make_trace(end=False)

    run(OTelSink(Sending()).export(spans, on_taken=taken.extend))
    with pytest.raises(ExportError):
        run(OTelSink(Sending(ExportError("no"))).export(spans, on_taken=taken.extend))

    assert taken == [span.span_id for span in spans[1:]]  # the root has not ended


def test_whatever_an_exporter_raises_is_the_cause_of_an_export_error():
    exporter = Exporter(RuntimeError("token=secret"))

    with pytest.raises(ExportError, match=r"^Exporter raised RuntimeError$") as raised:
        run(OTelSink(exporter).export(make_trace()))

    assert isinstance(raised.value.__cause__, RuntimeError)


def test_a_span_that_has_no_id_fails_as_an_export_error():
    with pytest.raises(ExportError, match="raised ValueError"):
        exported([replace(make_trace()[0], trace_id="no hex")])


def test_a_hanging_exporter_whose_caller_gave_up_refuses_the_next_call_and_then_recovers():
    exporter = Exporter()
    exporter.go_on.clear()
    sink = OTelSink(exporter)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await sink.export(make_trace(1))
        with pytest.raises(ExportError, match="has not returned"):
            await sink.export(make_trace(2))
        exporter.go_on.set()
        await asyncio.to_thread(exporter.threads.pop().join, 10)
        await sink.export(make_trace(3))

    run(main())

    assert len(exporter.batches) == 2


def test_an_exporter_may_be_used_from_several_event_loops_and_is_called_by_one_at_a_time():
    exporter = Exporter()
    exporter.go_on.clear()
    sink = OTelSink(exporter)
    most = 0

    async def exports(first: int) -> None:
        await asyncio.gather(*[sink.export(make_trace(first + n)) for n in range(3)])

    async def main() -> None:
        others = [asyncio.to_thread(asyncio.run, exports(10 * n)) for n in (1, 2)]
        working = asyncio.gather(exports(0), *others)
        await asyncio.to_thread(exporter.go_on.wait, 0.1)
        nonlocal most
        most = sum(thread.name == "Exporter" for thread in threading.enumerate())
        exporter.go_on.set()
        await working

    run(main())

    assert most == 1
    assert len(exporter.batches) == 9


def test_who_gives_up_waiting_for_a_turn_leaves_it_to_the_next_but_no_earlier():
    exporter = Exporter()
    exporter.go_on.clear()
    sink = OTelSink(exporter)

    async def main() -> None:
        first = asyncio.create_task(sink.export(make_trace(1)))
        await asyncio.to_thread(exporter.go_on.wait, 0.05)
        second = asyncio.create_task(sink.export(make_trace(2)))
        third = asyncio.create_task(sink.export(make_trace(3)))
        await asyncio.to_thread(exporter.go_on.wait, 0.05)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        assert not third.done()
        exporter.go_on.set()
        await asyncio.gather(first, third)

    run(main())

    assert [batch[0].name for batch in exporter.batches] == [
        f"invoke_agent agent-{n}" for n in (1, 3)
    ]


# -- closing ---------------------------------------------------------------------------------------


def test_closing_flushes_and_shuts_down_once_and_then_nothing_is_taken():
    exporter = Exporter()
    sink = OTelSink(exporter)

    async def main() -> None:
        await sink.aclose()
        await sink.aclose()
        with pytest.raises(ExportError, match="Exporter is closed") as raised:
            await sink.export(make_trace())
        assert raised.value.permanent

    run(main())

    assert exporter.calls == ["flush", "shutdown"]


def test_an_exporter_that_cannot_flush_is_shut_down_all_the_same_and_says_so():
    exporter = Exporter(flushes=False)
    sink = OTelSink(exporter)

    async def main() -> None:
        with pytest.raises(ExportError, match="could not deliver all spans before it closed"):
            await sink.aclose()
        await sink.aclose()

    run(main())

    assert exporter.calls == ["flush", "shutdown"]


def test_closing_closes_the_sender():
    sending = Sending()

    run(OTelSink(sending).aclose())

    assert sending.closed == 1


# -- scores ----------------------------------------------------------------------------------------


def test_a_score_becomes_a_span_without_length_below_what_was_judged():
    sending, root = Sending(), make_trace()[0]
    score = Score(name="quality", value=0.9, comment="why", source="llm", at=AT, meta={"v": 1})
    sink = OTelSink(sending)

    run(sink.score(root.trace_id, [score], span_id="86e2ff7d92d1f6d9"))

    ((span, attributes),) = sending.sent
    assert isinstance(sink, ScoringSink)
    assert sink.scores_as_spans
    assert (span.name, span.kind, span.trace_id) == ("evaluate quality", "evaluator", root.trace_id)
    assert (span.start, span.end, span.parent_id) == (AT, AT, "86e2ff7d92d1f6d9")
    assert attributes == {
        "gen_ai.evaluation.explanation": "why",
        "gen_ai.evaluation.name": "quality",
        "gen_ai.evaluation.score.value": 0.9,
        "lib.evaluation.meta": '{"v":1}',
        "lib.evaluation.source": "llm",
        "lib.span.kind": "evaluator",
    }


@pytest.mark.parametrize(
    ("value", "number", "label"),
    [(True, 1.0, "pass"), (False, 0.0, "fail"), ("friendly", None, "friendly"), (2, 2.0, None)],
)
def test_verdicts_and_labels_are_told_as_both_can_be(
    value: Any, number: float | None, label: str | None
):
    sending = Sending()

    run(OTelSink(sending).score("a" * 32, [Score(name="x", value=value, at=AT)]))

    ((_, attributes),) = sending.sent
    assert attributes.get(a.EVALUATION_VALUE) == number
    assert attributes.get(a.EVALUATION_LABEL) == label


def test_the_score_of_a_trace_hangs_under_its_root_and_belongs_to_whom_the_root_does():
    sending = Sending()
    sink, spans = OTelSink(sending), make_trace()

    async def main() -> None:
        await sink.export(spans)
        await sink.score(spans[0].trace_id, [Score(name="x", value=1, at=AT)])
        await sink.score("b" * 32, [Score(name="x", value=1, at=AT)])

    run(main())

    (under, attributes), (alone, others) = sending.sent[3:]
    assert under.parent_id == spans[0].span_id
    assert attributes["lib.run_id"] == spans[0].run_id
    assert attributes["lib.tenant"] == spans[0].tenant
    assert attributes["lib.trace.name"] == spans[0].name
    assert alone.parent_id is None
    assert "lib.trace.name" not in others


def test_the_score_of_an_unknown_trace_does_not_name_it():
    sending = Sending()

    run(OTelSink(sending, dialect=LANGFUSE).score("a" * 32, [Score(name="x", value=1, at=AT)]))

    assert "langfuse.trace.name" not in sending.sent[0][1]


def test_ids_of_scores_are_fixed_by_trace_span_and_name():
    def ids(trace_id: str, name: str, span_id: str | None, value: float) -> str:
        sending = Sending()
        score = Score(name=name, value=value, at=AT + timedelta(seconds=value))
        run(OTelSink(sending).score(trace_id, [score], span_id=span_id))
        return sending.sent[0][0].span_id

    one = ids("a" * 32, "x", None, 1)

    assert one == ids("a" * 32, "x", None, 2)
    others = [
        ids("b" * 32, "x", None, 1),
        ids("a" * 32, "y", None, 1),
        ids("a" * 32, "x", "c" * 16, 1),
    ]
    assert len({one, *others}) == 4


def test_a_score_without_a_time_is_refused_before_any_is_sent():
    sending = Sending()
    scores = [Score(name="x", value=1, at=AT), Score(name="y", value=1)]

    with pytest.raises(ValueError, match=r"score 'y' has no time.*model_copy"):
        run(OTelSink(sending).score("a" * 32, scores))

    assert sending.sent == []


def test_a_failure_tells_how_many_of_the_first_scores_were_taken():
    exporter = Exporter(*[SpanExportResult.SUCCESS] * 2, SpanExportResult.FAILURE)
    scores = [Score(name=name, value=1, at=AT) for name in "abcd"]

    with pytest.raises(ExportError) as raised:
        run(OTelSink(exporter, batch_size=1).score("a" * 32, scores))

    assert raised.value.taken_scores == 2


def test_no_scores_send_nothing():
    sending = Sending()

    run(OTelSink(sending).score("a" * 32, []))

    assert sending.sent == []


def test_only_so_many_roots_are_remembered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lib.observe.sinks.otel._MAX_ROOTS", 2)
    sending = Sending()
    sink = OTelSink(sending)

    async def main() -> None:
        for number in (1, 2, 1, 3):
            await sink.export(make_trace(number))
        sending.sent.clear()
        for number in (1, 2, 3):
            trace_id = make_trace(number)[0].trace_id
            await sink.score(trace_id, [Score(name="x", value=1, at=AT)])

    run(main())

    assert [span.parent_id is None for span, _ in sending.sent] == [False, True, False]


# -- where spans go --------------------------------------------------------------------------------


def test_the_destination_is_stable_and_tells_no_secret():
    exporter = OTLPSpanExporter("https://me:pass@backend.example/v1/traces?key=secret")
    run(OTelSink(exporter).aclose())

    assert (
        OTelSink(exporter, service_name="shop").destination
        == "OTelSink shop OTLPSpanExporter https://backend.example/v1/traces"
    )
    assert OTelSink(Exporter()).destination == "OTelSink lib Exporter"
    assert OTelSink(Sending()).destination == "OTelSink lib https://backend.example:8443/v1/traces"


@pytest.mark.parametrize("url", [None, 7, "http://[broken"])
def test_an_endpoint_that_is_no_url_is_not_shown(url: Any):
    sending = Sending()
    sending.url = url

    assert OTelSink(sending).destination == "OTelSink lib Sending"


def test_spans_are_changed_when_their_turn_comes():
    changed, seen = list[str](), list[int]()

    class Counting(OTelSink):
        def _outgoing(self, span: Span) -> Span:
            changed.append(span.span_id)
            return replace(span, name="changed")

    class Looking(Sending):
        async def send(self, spans: Sequence[Span], **told: Any) -> None:
            seen.extend([len(changed), len(spans)])
            assert [spans[0].name, *[span.name for span in spans[1:]]] == ["changed"] * 3
            await super().send(spans, **told)

    run(Counting(Looking()).export(make_trace()))

    assert seen == [0, 3]


def test_subclasses_change_spans_on_their_way():
    class Renaming(OTelSink):
        def _outgoing(self, span: Span) -> Span:
            return replace(span, name=span.name.upper())

    sending = Sending()
    sink = Renaming(sending)

    async def main() -> None:
        await sink.export(make_trace()[:1])
        await sink.score("a" * 32, [Score(name="x", value=1, at=AT)])

    run(main())

    assert [span.name for span, _ in sending.sent] == ["INVOKE_AGENT AGENT-1", "EVALUATE X"]
    assert sink.destination.startswith("Renaming lib ")


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_size_that_is_not_positive_is_refused(batch_size: int):
    with pytest.raises(ValueError, match=r"batch_size=.* must be positive"):
        OTelSink(Exporter(), batch_size=batch_size)


@pytest.mark.parametrize("exporter", [7, "http://localhost:4318", object(), Exporter])
def test_what_is_no_exporter_is_refused_at_once(exporter: Any):
    if exporter is Exporter:
        exporter = type("Half", (), {"export": Exporter.export})()

    with pytest.raises(TypeError, match=r"exporter is of \w+: give a SpanExporter"):
        OTelSink(exporter)


def test_a_missing_sdk_is_told_where_an_exporter_is_given(monkeypatch: pytest.MonkeyPatch):
    def nothing_found(name: str) -> None:
        return None

    monkeypatch.setattr("lib.observe.sinks.otel.find_spec", nothing_found)

    with pytest.raises(MissingDriver, match=r"needs opentelemetry-sdk: .*\[otel\]") as raised:
        OTelSink(Exporter())

    assert raised.value.extra == "otel"
    OTelSink(Sending())


# -- the environment -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({}, "http://localhost:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1/"}, "http://h:1/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1/otlp"}, "http://h:1/otlp/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, "http://localhost:4318/v1/traces"),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1",
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t:2/x",
            },
            "http://t:2/x",
        ),
    ],
)
def test_the_endpoint_of_traces_counts_as_it_is_and_the_general_one_gets_their_path(
    environment: dict[str, str], url: str
):
    assert traces_url(environment) == url


@pytest.mark.parametrize(
    ("environment", "headers"),
    [
        ({}, {}),
        (
            {"OTEL_EXPORTER_OTLP_HEADERS": "API-Key=a%20b, x = 1=2 ,"},
            {"api-key": "a b", "x": "1=2"},
        ),
        (
            {"OTEL_EXPORTER_OTLP_HEADERS": "a=1", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "b=2"},
            {"b": "2"},
        ),
    ],
)
def test_headers_are_read_as_the_specification_says(
    environment: dict[str, str], headers: dict[str, str]
):
    assert traces_headers(environment) == headers


@pytest.mark.parametrize("value", ["secret", "=secret", "a=1,secret"])
def test_malformed_headers_are_refused_without_being_repeated(value: str):
    with pytest.raises(ValueError, match="OTEL_EXPORTER_OTLP_HEADERS is not of the form") as raised:
        traces_headers({"OTEL_EXPORTER_OTLP_HEADERS": value})

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, 10.0),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": ""}, 10.0),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "2500"}, 2.5),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "1", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "3000"}, 3.0),
    ],
)
def test_a_timeout_is_told_in_milliseconds(environment: dict[str, str], seconds: float):
    assert traces_timeout_s(environment) == seconds


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "soon", "²"])
def test_a_timeout_that_is_none_is_refused(value: str):
    with pytest.raises(ValueError, match=r"TRACES_TIMEOUT=.* is not a number of milliseconds"):
        traces_timeout_s({"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": value})


@pytest.mark.parametrize("value", ["grpc", "http/json"])
def test_a_protocol_that_is_not_spoken_is_refused(value: str, monkeypatch: pytest.MonkeyPatch):
    check_protocol({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"})
    check_protocol({"OTEL_EXPORTER_OTLP_PROTOCOL": ""})
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", value)

    with pytest.raises(ValueError, match=r"OTEL_EXPORTER_OTLP_PROTOCOL=.* set 'http/protobuf'"):
        OTelSink()
    OTelSink(Sending())


def test_the_resource_is_what_the_environment_says_where_nobody_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
):
    assert resource_of({}) == {}
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=one,Region=eu%2C1, a = 1=2 ,")

    async def main() -> list[dict[str, Any]]:
        async with OTLPReceiver() as receiver:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.base_url)
            sinks = [OTelSink()]
            monkeypatch.setenv("OTEL_SERVICE_NAME", "two")
            sinks += [OTelSink(), OTelSink(service_name="three", resource_attributes={"a": 3})]
            for sink in sinks:
                await sink.export(make_trace())
                await sink.aclose()
        assert [sink.destination.split()[1] for sink in sinks] == ["one", "two", "three"]
        return [attributes_of(export.resource_spans[0].resource) for export in receiver.exports]

    common = {"Region": "eu,1"}
    assert run(main()) == [
        {**common, "a": "1=2", "service.name": "one"},
        {**common, "a": "1=2", "service.name": "two"},
        {**common, "a": 3, "service.name": "three"},
    ]


def test_the_environment_says_nothing_of_a_sender_that_is_given(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "two")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "malformed")
    sending = Sending()

    run(OTelSink(sending).export(make_trace()))

    assert sending.resource == {"service.name": "lib"}


def test_malformed_attributes_of_the_resource_are_refused():
    with pytest.raises(ValueError, match="OTEL_RESOURCE_ATTRIBUTES is not of the form"):
        resource_of({"OTEL_RESOURCE_ATTRIBUTES": "a"})


# -- over the wire ---------------------------------------------------------------------------------


def test_without_an_exporter_spans_go_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
):
    async def main() -> list[dict[str, Any]]:
        seen: list[str] = []

        def check(request: Any) -> None:
            seen.append(request.headers.get("api-key", ""))

        async with OTLPReceiver(check=check) as receiver:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.base_url)
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=k1")
            sink = OTelSink(service_name="shop")
            await sink.export(make_trace())
            await sink.aclose()
            assert sink.destination == f"OTelSink shop {receiver.url}"
        assert seen == ["k1"]
        return [attributes_of(span) for span in receiver.spans]

    first, *_ = run(main())

    assert first["lib.run_id"] == "run-1"


def test_without_an_exporter_no_package_of_opentelemetry_is_loaded(unmeasured: dict[str, str]):
    program = (
        "import sys; from lib.observe import OTelSink; OTelSink();"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    command = [sys.executable, "-c", program]

    done = subprocess.run(command, env=unmeasured, capture_output=True, check=True)

    assert done.stdout.strip() == b"[]"


def test_the_stock_exporter_delivers_the_same_as_the_sender_of_our_own(
    monkeypatch: pytest.MonkeyPatch,
):
    spans = [*make_trace(1), replace(make_trace(2)[0], status_message="x", events=[])]

    async def received(sink_of: Any) -> list[Any]:
        async with OTLPReceiver() as receiver:
            sink = sink_of(receiver)
            await sink.export(spans)
            await sink.aclose()
        return receiver.spans

    def ours(receiver: OTLPReceiver) -> OTelSink:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", receiver.url)
        return OTelSink()

    def stock(receiver: OTLPReceiver) -> OTelSink:
        return OTelSink(OTLPSpanExporter(receiver.url))

    def plain(span: Any) -> dict[str, Any]:
        fields = {field.name: value for field, value in span.ListFields()}
        return {**fields, "attributes": attributes_of(span), "flags": None}

    one, other = run(received(ours)), run(received(stock))

    assert [plain(span) for span in one] == [plain(span) for span in other]


def test_the_memory_exporter_of_the_sdk_gets_spans_it_can_show():
    exporter = InMemorySpanExporter()

    run(OTelSink(exporter).export(make_trace()))

    assert [span.name for span in exporter.get_finished_spans()] == [s.name for s in make_trace()]
    assert '"trace_id"' in (exporter.get_finished_spans()[0].to_json())
