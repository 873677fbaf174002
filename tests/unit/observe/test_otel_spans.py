"""Tests what an exporter gets of a span, and where it goes."""

import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import lib
from lib.errors import MissingDriver
from lib.observe import LANGFUSE, OTelSink, Score, Span, SpanEvent
from lib.testing.sink import make_trace

from .otel_kit import AT, Exporter, Sending, exported

# -- what an exporter gets ---------------------------------------------------------------------


async def test_a_span_keeps_its_ids_its_times_to_the_microsecond_and_its_status():
    root, call, tool = make_trace()
    moment = SpanEvent("run.resumed", AT, {"worker": "w\ud800", "none": None})
    root = replace(root, start=AT, end=AT + timedelta(microseconds=1), events=[moment])
    tool = replace(tool, status_message="no \ud800")

    first, second, third = await exported([root, call, tool])

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


async def test_all_spans_have_one_resource_and_one_scope_so_that_an_exporter_groups_them():
    spans = await exported(make_trace(), service_name="shop", resource_attributes={"region": "eu"})

    assert dict(spans[0].resource.attributes) == {"region": "eu", "service.name": "shop"}
    assert {id(span.resource) for span in spans} == {id(spans[0].resource)}
    assert {id(span.instrumentation_scope) for span in spans} == {
        id(spans[0].instrumentation_scope)
    }
    assert spans[0].instrumentation_scope is not None
    assert spans[0].instrumentation_scope.name == "lib.observe"
    assert spans[0].instrumentation_scope.version == lib.__version__


async def test_a_span_may_have_more_attributes_than_a_tracer_keeps():
    root = make_trace()[0]
    many = {f"lib.x{number:03}": number for number in range(200)}

    (span,) = await exported([replace(root, attributes=many)])

    assert many.items() <= dict(span.attributes or {}).items()


async def test_the_dialect_names_the_attributes():
    (span, *_) = await exported(make_trace(), dialect=LANGFUSE)

    assert dict(span.attributes or {})["langfuse.observation.type"] == "agent"


async def test_spans_go_in_batches_one_after_the_other_in_a_thread_that_may_block():
    exporter = Exporter()

    await OTelSink(exporter, batch_size=2).export([*make_trace(1), *make_trace(2)[:2]])

    assert [len(batch) for batch in exporter.batches] == [2, 2, 1]
    assert threading.main_thread() not in exporter.threads
    assert all(thread.daemon for thread in exporter.threads)


async def test_open_spans_are_not_sent():
    assert (await exported(make_trace(end=False)[:1])) == []
    assert len(await exported(make_trace(end=False))) == 2


async def test_a_sink_whose_backend_replaces_spans_sends_open_ones_as_ending_where_they_start():
    exporter = Exporter()

    sink = OTelSink(exporter)
    sink.traits = replace(sink.traits, updates="replace")

    await sink.export(make_trace(end=False)[:1])

    ((span,),) = exporter.batches
    assert span.end_time == span.start_time
    assert span.status.status_code is StatusCode.UNSET


async def test_spans_carry_the_attributes_of_their_trace_and_may_override_them():
    facts = {"session.id": "s1", "lib.trace.name": "agent"}
    root, call, tool = [replace(span, trace=facts) for span in make_trace(end=False)]
    tool = replace(tool, attributes={"session.id": "s2"})
    sending = Sending()

    await OTelSink(sending).export([root, call, tool])

    assert [span.name for span, _ in sending.sent] == [call.name, tool.name]
    assert [attributes["lib.trace.name"] for _, attributes in sending.sent] == ["agent", "agent"]
    assert [attributes["session.id"] for _, attributes in sending.sent] == ["s1", "s2"]


async def test_children_are_sent_without_their_root():
    _, call, tool = make_trace()

    assert [span.name for span in (await exported([call, tool]))] == [call.name, tool.name]


# -- where spans go ----------------------------------------------------------------------------


async def test_the_destination_is_stable_and_contains_no_secret():
    exporter = OTLPSpanExporter("https://me:pass@backend.example/v1/traces?key=secret")
    await OTelSink(exporter).aclose()

    assert (
        OTelSink(exporter, service_name="shop").traits.destination
        == "OTelSink shop OTLPSpanExporter https://backend.example/v1/traces"
    )
    assert OTelSink(Exporter()).traits.destination == "OTelSink lib Exporter"
    assert (
        OTelSink(Sending()).traits.destination
        == "OTelSink lib https://backend.example:8443/v1/traces"
    )


@pytest.mark.parametrize("url", [None, 7, "http://[broken"])
def test_an_endpoint_that_is_no_url_is_not_shown(url: Any):
    sending = Sending()
    sending.url = url

    assert OTelSink(sending).traits.destination == "OTelSink lib Sending"


async def test_spans_are_changed_when_their_turn_comes():
    changed, seen = list[str](), list[int]()

    class Counting(OTelSink):
        def _outgoing(self, span: Span) -> Span:
            changed.append(span.span_id)
            return replace(span, name="changed")

    class Looking(Sending):
        async def send(self, spans: Sequence[Span], **result: Any) -> None:
            seen.extend([len(changed), len(spans)])
            assert [spans[0].name, *[span.name for span in spans[1:]]] == ["changed"] * 3
            await super().send(spans, **result)

    await Counting(Looking()).export(make_trace())

    assert seen == [0, 3]


async def test_subclasses_change_spans_on_their_way():
    class Renaming(OTelSink):
        def _outgoing(self, span: Span) -> Span:
            return replace(span, name=span.name.upper())

    sending = Sending()
    sink = Renaming(sending)

    await sink.export(make_trace()[:1])
    await sink.score("a" * 32, [Score(name="x", value=1, at=AT)])

    assert [span.name for span, _ in sending.sent] == ["INVOKE_AGENT AGENT-1", "EVALUATE X"]
    assert (sink.traits.destination or "").startswith("Renaming lib ")


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_size_that_is_not_positive_is_refused(batch_size: int):
    with pytest.raises(ValueError, match=r"batch_size=.* must be positive"):
        OTelSink(Exporter(), batch_size=batch_size)


@pytest.mark.parametrize("exporter", [7, "http://localhost:4318", object(), Exporter])
def test_an_object_that_is_no_exporter_is_refused_at_construction(exporter: Any):
    if exporter is Exporter:
        exporter = type("Half", (), {"export": Exporter.export})()

    with pytest.raises(TypeError, match=r"exporter is of \w+: give a SpanExporter"):
        OTelSink(exporter)


def test_an_exporter_without_the_sdk_raises_missing_driver(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)

    with pytest.raises(MissingDriver, match=r"needs opentelemetry-sdk: pip install") as raised:
        OTelSink(Exporter())

    assert raised.value.extra == "otel"
    OTelSink(Sending())
