"""Tests what the environment says of a destination, and how spans get there over a real socket."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fakes.otlp_receiver import OTLPReceiver, attributes_of
from lib.observe import OTelSink
from lib.observe.sinks.otel import (
    check_protocol,
    resource_of,
    traces_headers,
    traces_timeout_s,
    traces_url,
)
from lib.testing.sink import make_trace

from .otel_kit import Sending

# -- the environment ---------------------------------------------------------------------------


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
def test_a_timeout_is_in_milliseconds(environment: dict[str, str], seconds: float):
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


async def test_the_resource_is_read_from_the_environment_unless_arguments_set_it(
    monkeypatch: pytest.MonkeyPatch,
):
    assert resource_of({}) == {}
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=one,Region=eu%2C1, a = 1=2 ,")

    common = {"Region": "eu,1"}
    async with OTLPReceiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.base_url)
        sinks = [OTelSink()]
        monkeypatch.setenv("OTEL_SERVICE_NAME", "two")
        sinks += [OTelSink(), OTelSink(service_name="three", resource_attributes={"a": 3})]
        for sink in sinks:
            await sink.export(make_trace())
            await sink.aclose()
    assert [(sink.traits.destination or "").split()[1] for sink in sinks] == ["one", "two", "three"]
    assert [attributes_of(export.resource_spans[0].resource) for export in receiver.exports] == [
        {**common, "a": "1=2", "service.name": "one"},
        {**common, "a": "1=2", "service.name": "two"},
        {**common, "a": 3, "service.name": "three"},
    ]


async def test_the_environment_says_nothing_of_a_sender_that_is_given(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "two")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "malformed")
    sending = Sending()

    await OTelSink(sending).export(make_trace())

    assert sending.resource == {"service.name": "lib"}


def test_malformed_attributes_of_the_resource_are_refused():
    with pytest.raises(ValueError, match="OTEL_RESOURCE_ATTRIBUTES is not of the form"):
        resource_of({"OTEL_RESOURCE_ATTRIBUTES": "a"})


# -- over the wire -----------------------------------------------------------------------------


async def test_without_an_exporter_spans_go_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
):
    seen: list[str] = []

    def check(request: Any) -> None:
        seen.append(request.headers.get("api-key", ""))

    async with OTLPReceiver(check=check) as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.base_url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=k1")
        sink = OTelSink(service_name="shop")
        await sink.export(make_trace())
        await sink.aclose()
        assert sink.traits.destination == f"OTelSink shop {receiver.url}"
    assert seen == ["k1"]
    first, *_ = [attributes_of(span) for span in receiver.spans]

    assert first["lib.run_id"] == "run-1"


def test_without_an_exporter_no_package_of_opentelemetry_is_loaded(unmeasured: dict[str, str]):
    program = (
        "import sys; from lib.observe import OTelSink; OTelSink();"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    command = [sys.executable, "-c", program]

    done = subprocess.run(command, env=unmeasured, capture_output=True, check=True)

    assert done.stdout.strip() == b"[]"


async def test_the_stock_exporter_delivers_the_same_as_the_sender_of_our_own(
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

    one, other = await received(ours), await received(stock)

    assert [plain(span) for span in one] == [plain(span) for span in other]


async def test_the_memory_exporter_of_the_sdk_gets_spans_it_can_show():
    exporter = InMemorySpanExporter()

    await OTelSink(exporter).export(make_trace())

    assert [span.name for span in exporter.get_finished_spans()] == [s.name for s in make_trace()]
    assert '"trace_id"' in (exporter.get_finished_spans()[0].to_json())
