"""The encoder against protobuf's own messages, and against OpenTelemetry's encoder."""

import enum
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message
from opentelemetry.proto.trace.v1.trace_pb2 import Status as MessageStatus
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from fakes.otlp_receiver import attributes_of
from lib import __version__
from lib.observe import Span, SpanEvent, span_id_of, trace_id_of
from lib.observe.attributes import SCHEMA_URL
from lib.observe.otlp import encode_request, encode_span
from lib.observe.span import SPAN_KINDS

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST = 2**64 - 1

scalars = st.one_of(
    st.text(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)
values = scalars | st.lists(scalars, max_size=4)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
attributes = st.dictionaries(names, values, max_size=6)
moments = st.datetimes(
    EPOCH.replace(tzinfo=None),
    datetime(2200, 1, 1, tzinfo=UTC).replace(tzinfo=None),
    timezones=st.just(UTC),
)
trace_ids = st.binary(min_size=16, max_size=16).filter(any).map(bytes.hex)
span_ids = st.binary(min_size=8, max_size=8).filter(any).map(bytes.hex)
spans = st.builds(
    Span,
    trace_ids,
    span_ids,
    st.none() | span_ids,
    names,
    st.sampled_from(SPAN_KINDS),
    moments,
    st.none() | moments,
    st.sampled_from(["ok", "error"]),
    st.none() | names,
    events=st.lists(st.builds(SpanEvent, names, moments, attributes), max_size=3),
)


def plain_span(**changes: Any) -> Span:
    facts: dict[str, Any] = {
        "trace_id": trace_id_of("run-1"),
        "span_id": span_id_of("run-1", "llm", "0"),
        "parent_id": None,
        "name": "chat",
        "kind": "llm",
        "start": START,
        "end": START + timedelta(seconds=2),
    }
    return Span(**{**facts, **changes})


def decoded(span: Span, attributes: Mapping[str, Any] | None = None) -> Message:
    return Message.FromString(encode_span(span, attributes or {}))


def nanoseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1) * 1000


def any_value(value: Any) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=value)
        case _:
            whole = AnyValue()
            whole.array_value.values.extend(map(any_value, value))
            whole.array_value.SetInParent()
            return whole


def pairs(attributes: Mapping[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def message(span: Span, attributes: Mapping[str, Any]) -> Message:
    """Return what protobuf's own classes make of the span."""
    calls = ("llm", "embedding", "retriever", "reranker")
    whole = Message(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_id or ""),
        name=span.name,
        kind=Message.SPAN_KIND_CLIENT if span.kind in calls else Message.SPAN_KIND_INTERNAL,
        start_time_unix_nano=nanoseconds(span.start),
        end_time_unix_nano=nanoseconds(span.end or span.start),
        attributes=pairs(attributes),
        flags=1,
    )
    for event in span.events:
        moment = nanoseconds(event.at)
        pairs_of_it = pairs(event.attributes)
        whole.events.add(time_unix_nano=moment, name=event.name, attributes=pairs_of_it)
    if span.status == "error":
        result = span.status_message or ""
        whole.status.CopyFrom(MessageStatus(code=MessageStatus.STATUS_CODE_ERROR, message=result))
    elif span.end is not None:
        whole.status.code = MessageStatus.STATUS_CODE_OK
    return whole


@given(spans, attributes)
def test_a_span_is_what_protobuf_makes_of_it(span: Span, attributes: dict[str, Any]) -> None:
    written = encode_span(span, attributes)
    found, expected = Message.FromString(written), message(span, attributes)

    assert found == expected
    assert found.ByteSize() == expected.ByteSize()  # nothing was written that it does not know
    assert written == encode_span(span, dict(attributes))


@settings(max_examples=20)
@given(st.lists(spans, max_size=3), attributes)
def test_a_request_holds_the_spans_in_order_under_one_resource_and_scope(
    spans: list[Span], attributes: dict[str, Any]
) -> None:
    written = encode_request([encode_span(span, {}) for span in spans], resource=attributes)

    expected = ExportTraceServiceRequest()
    resource = expected.resource_spans.add()
    resource.resource.SetInParent()
    resource.resource.attributes.extend(pairs(attributes))
    scope = resource.scope_spans.add()
    scope.scope.name, scope.scope.version = "lib.observe", __version__
    scope.schema_url = SCHEMA_URL
    scope.spans.extend(message(span, {}) for span in spans)
    assert ExportTraceServiceRequest.FromString(written) == expected


@settings(max_examples=40)
@given(spans, st.dictionaries(names.filter(bool), scalars, max_size=6))
def test_the_encoder_of_opentelemetry_writes_the_same(
    span: Span, attributes: dict[str, Any]
) -> None:
    span.events.clear()  # whose attributes it bounds
    encoded = encode_request([encode_span(span, attributes)], resource={"service.name": "x"})
    ours = ExportTraceServiceRequest.FromString(encoded)

    theirs = encode_spans([_readable(span, attributes)])

    mine, other = [request.resource_spans[0].scope_spans[0] for request in (ours, theirs)]
    assert (mine.spans[0].flags, other.spans[0].flags) == (1, 0x100)  # it drops "sampled"
    other.spans[0].flags = 1
    mine.spans[0].status.SetInParent()  # which it writes for an open span, too
    assert ours == theirs


def _readable(span: Span, attributes: dict[str, Any]) -> ReadableSpan:
    def context(span_id: str) -> SpanContext:
        flags = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(
            int(span.trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=flags
        )

    calls = ("llm", "embedding", "retriever", "reranker")
    status = Status(StatusCode.OK) if span.end else Status()
    if span.status == "error":
        status = Status(StatusCode.ERROR, span.status_message)
    return ReadableSpan(
        span.name,
        context(span.span_id),
        context(span.parent_id) if span.parent_id else None,
        Resource({"service.name": "x"}),
        attributes,
        [Event(event.name, event.attributes, nanoseconds(event.at)) for event in span.events],
        kind=SpanKind.CLIENT if span.kind in calls else SpanKind.INTERNAL,
        status=status,
        start_time=nanoseconds(span.start),
        end_time=nanoseconds(span.end or span.start),
        instrumentation_scope=InstrumentationScope("lib.observe", __version__, SCHEMA_URL),
    )


# -- values ------------------------------------------------------------------------------------


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 300


@pytest.mark.parametrize(
    ("value", "written"),
    [
        *((number, number) for number in (0, -1, 127, 128, 16_383, 16_384, 2**63 - 1)),
        (-(2**63), -(2**63)),
        (2**63, str(2**63)),
        (-(2**63) - 1, str(-(2**63) - 1)),
        (2**70, str(2**70)),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (-0.0, -0.0),
        (5e-324, 5e-324),
        (True, True),
        (1, 1),
        (1.0, 1.0),
        ("", ""),
        ("\x00", "\x00"),
        ([], []),
        ((1, "a"), [1, "a"]),
        ([2**64, math.nan, "\udc80"], [str(2**64), "NaN", "\ufffd"]),
        ("a \ud83d b", "a \ufffd b"),
        ("end \ud83d", "end \ufffd"),
        ("\udc80 \ud83d\ude00 é", "\ufffd \U0001f600 é"),
        (Colour.RED, "red"),
        (Level.HIGH, 300),
    ],
)
def test_a_value_keeps_its_type_and_what_otlp_cannot_hold_becomes_text(
    value: Any, written: Any
) -> None:
    found = attributes_of(decoded(plain_span(), {"key": value}))["key"]

    assert (type(found), repr(found)) == (type(written), repr(written))


def test_what_only_an_event_can_hold_becomes_json_and_none_is_left_out() -> None:
    nested = {"b": [None, {"x": "\ud800"}], "a": 2**70}
    event = SpanEvent("moment", START, {"nested": nested, "mixed": [[1], None], "nothing": None})

    [found] = decoded(plain_span(events=[event])).events

    assert attributes_of(found) == {
        "nested": f'{{"a":{2**70},"b":[null,{{"x":"\ufffd"}}]}}',
        "mixed": ["[1]", None],
    }


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, object(), [START]])
def test_what_is_not_plain_data_is_refused_without_being_quoted(value: Any) -> None:
    with pytest.raises(TypeError, match="which is not plain data"):
        encode_span(plain_span(), {"key": value})


def test_text_is_made_valid_wherever_it_stands() -> None:
    span = plain_span(
        name="lone \ud800",
        status="error",
        status_message="\ud800",
        events=[SpanEvent("\ud800", START, {"\ud800": "\ud800"})],
    )

    found = decoded(span, {"\ud800": 1})

    assert found.name == "lone \ufffd"
    assert found.status.message == "\ufffd"
    assert found.events[0].name == "\ufffd"
    assert attributes_of(found.events[0]) == {"\ufffd": "\ufffd"}
    assert attributes_of(found) == {"\ufffd": 1}


@pytest.mark.parametrize(
    "size",
    [0, 1, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 1015, 1023, 1024, 16_383, 16_384],
)
def test_lengths_around_every_boundary_are_right(size: int) -> None:
    attributes = {"k": "x" * size, "n" * max(1, size): [True] * size, "last": 1}

    assert attributes_of(decoded(plain_span(), attributes)) == attributes


def test_a_text_of_megabytes_and_thousands_of_attributes_are_kept() -> None:
    attributes: dict[str, Any] = {f"key.{n}": n for n in range(10_000)}
    attributes["text"] = "é" * 2_500_000

    assert attributes_of(decoded(plain_span(), attributes)) == attributes


# -- times, ids and status ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (EPOCH, 0),
        (EPOCH + timedelta(microseconds=1), 1_000),
        (datetime(2026, 11, 21, 3, 4, 5, 678_901, UTC), 1_795_230_245_678_901_000),
        (
            datetime(2026, 11, 21, 5, 4, 5, 678_901, timezone(timedelta(hours=2))),
            1_795_230_245_678_901_000,
        ),
        (datetime(2116, 2, 20, 23, 53, 38, 427_387, UTC), 4_611_686_018_427_387_000),  # no float
        (datetime(1969, 12, 31, tzinfo=UTC), 0),
        (datetime(9999, 1, 1, tzinfo=UTC), LAST),
    ],
)
def test_a_moment_is_exact_in_nanoseconds(moment: datetime, expected: int) -> None:
    span = plain_span(start=moment, end=moment, events=[SpanEvent("e", moment)])

    found = decoded(span)

    assert found.start_time_unix_nano == expected
    assert found.end_time_unix_nano == expected
    assert found.events[0].time_unix_nano == expected


def test_an_open_span_ends_when_it_starts_and_has_no_status() -> None:
    found = decoded(plain_span(end=None))

    assert found.start_time_unix_nano == found.end_time_unix_nano == nanoseconds(START)
    assert not found.HasField("status")


def test_a_description_goes_with_an_error_only() -> None:
    fine = decoded(plain_span(status="ok", status_message="not of an error"))
    failed = decoded(plain_span(status="error", status_message="why", end=None))
    silent = decoded(plain_span(status="error"))

    assert (fine.status.code, fine.status.message) == (1, "")
    assert (failed.status.code, failed.status.message) == (2, "why")
    assert (silent.status.code, silent.status.message) == (2, "")


@pytest.mark.parametrize("name", ["trace_id", "span_id", "parent_id"])
def test_an_id_that_is_not_hexadecimal_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        encode_span(plain_span(**{name: "xyz"}), {})


def test_more_keys_than_are_remembered_are_written_all_the_same() -> None:
    for n in range(5_000):
        encode_span(plain_span(), {f"many.{n}": n})

    assert attributes_of(decoded(plain_span(), {"many.1": "x", "new": "y"})) == {
        "many.1": "x",
        "new": "y",
    }


def test_json_of_nested_content_is_read_back() -> None:
    nested = {"text": 'é " \n', "list": [1.5, None, True]}

    [found] = decoded(plain_span(events=[SpanEvent("e", START, {"n": nested})])).events

    assert json.loads(attributes_of(found)["n"]) == nested
