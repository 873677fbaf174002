"""Tests what the OTLP sender makes of refusals and of answers of success."""

from dataclasses import replace

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from fakes.otlp_receiver import OTLPReceiver, Response, partial_success, redirect
from lib.errors import ExportError
from lib.observe.otlp.sender import rejected_spans
from lib.testing.clock import ManualClock

from .sender_kit import PROTOBUF, failure, make_spans, names, send, sender_to, sent, sizes

# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 304, 307, 308])
async def test_a_redirect_is_not_followed_and_not_taken_for_success(status: int) -> None:
    error, receiver = await failure(make_spans(1), redirect("https://moved.test/here", status))

    assert error.permanent
    assert error.setup
    assert f"the address redirects ({status})" in str(error)
    assert "moved.test" not in str(error)
    assert len(receiver.requests) == 1
    assert receiver.spans == []


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 413, 415, 422])
async def test_what_is_wrong_with_the_request_stays_wrong(status: int) -> None:
    error, _ = await failure(make_spans(1), status)

    assert error.permanent
    assert error.setup is (status not in {400, 413, 422})
    assert f"the server answered {status}" in str(error)
    assert len(error.taken) == 0


@pytest.mark.parametrize("status", [408, 425, 429, 500, 501, 502, 503, 504, 507])
async def test_what_is_wrong_with_the_server_may_pass(status: int) -> None:
    error, receiver = await failure(make_spans(1), status)

    assert not error.permanent
    assert error.retry_after_s is None
    assert f"the server answered {status}" in str(error)
    assert len(receiver.requests) == 1  # retrying is up to the caller


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0", 0.0), ("Thu, 01 Jan 2026 00:01:30 GMT", 90.0), ("soon", None)],
)
async def test_an_error_carries_retry_after(
    status: int, header: str, seconds: float | None
) -> None:
    answer = Response(status=status, headers={"retry-after": header})

    error, _ = await failure(make_spans(1), answer, clock=ManualClock())

    assert (error.permanent, error.retry_after_s) == (False, seconds)


async def test_too_large_a_request_is_halved_until_it_fits() -> None:
    spans = make_spans(7, text="x" * 500)

    async with OTLPReceiver(max_bytes=1_500) as receiver:
        sender = sender_to(receiver.url)
        await send(sender, spans)
        await sender.aclose()

    assert names(receiver) == [span.name for span in spans]
    assert sizes(receiver) == [1, 2, 2, 2]


async def test_a_span_too_large_for_the_backend_is_reported_and_holds_up_no_other() -> None:
    small = make_spans(8)
    spans = [*small[:3], replace(small[3], attributes={"text": "x" * 30_000}), *small[4:]]

    async with OTLPReceiver(max_bytes=10_000) as receiver:
        sender = sender_to(receiver.url)
        with pytest.raises(ExportError) as raised:
            await send(sender, spans)
        await sender.aclose()
        error, held = raised.value, names(receiver)

    assert held == [span.name for span in spans if span.name != "span-3"]
    assert (error.permanent, len(error.taken)) == (True, 7)
    assert str(error).startswith("1 of 8 spans were refused: the server answered 413")


@pytest.mark.parametrize("status", [400, 422])
async def test_a_refused_request_does_not_keep_the_next_one_back(status: int) -> None:
    error, receiver = await failure(make_spans(6), 200, status, 200, batch_size=2)

    assert names(receiver) == ["span-0", "span-1", "span-4", "span-5"]
    taken = {span.span_id.hex() for span in receiver.spans}
    assert (error.permanent, error.taken) == (True, taken)
    assert str(error).startswith("2 of 6 spans were refused")


@pytest.mark.parametrize("status", [401, 403, 404, 307, 503])
async def test_any_other_failure_ends_it_and_says_how_many_were_sent_before(status: int) -> None:
    error, receiver = await failure(make_spans(6), 200, status, 200, batch_size=2)

    assert names(receiver) == ["span-0", "span-1"]
    assert len(receiver.requests) == 2
    assert len(error.taken) == 2
    assert str(error).endswith("; 2 of 6 spans were sent before")


async def test_a_failure_after_a_refusal_reports_both() -> None:
    error, receiver = await failure(make_spans(6), 200, 400, 503, batch_size=2)

    assert names(receiver) == ["span-0", "span-1"]
    assert (error.permanent, len(error.taken), error.lost) == (False, 2, 0)
    assert str(error).endswith("; 4 of 6 spans were sent before, of which 2 were refused")


async def test_a_failure_after_a_partial_success_reports_lost_spans() -> None:
    error, _ = await failure(make_spans(6), partial_success(1), 503, batch_size=2)

    assert (error.permanent, len(error.taken), error.lost) == (False, 2, 1)
    assert str(error).endswith("; 2 of 6 spans were sent before, of which 1 were refused")


# -- answers of success ------------------------------------------------------------------------


def result(rejected: int) -> bytes:
    return partial_success(rejected, "too old: secret").body


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/x-protobuf", result(3)),
        ("application/protobuf", result(3)),
        ("application/json; charset=utf-8", b'{"partialSuccess":{"rejectedSpans":"3"}}'),
        ("application/json", b'{"partial_success":{"rejected_spans":3}}'),
    ],
)
async def test_spans_dropped_by_a_partial_success_are_an_error(
    content_type: str, body: bytes
) -> None:
    answer = Response(headers={"content-type": content_type}, body=body)

    error, _ = await failure(make_spans(5), answer)

    # OTLP forbids to send them again.
    assert (error.permanent, len(error.taken), error.lost) == (True, 5, 3)
    assert str(error) == "3 of 5 spans were refused: the server answered 200 with a partial success"


async def test_a_partial_success_of_more_spans_than_were_sent_counts_those() -> None:
    error, _ = await failure(make_spans(2), partial_success(9))

    assert str(error).startswith("2 of 2 spans were refused")


@pytest.mark.parametrize(
    ("status", "content_type", "body"),
    [
        (200, "application/x-protobuf", b""),
        (200, "application/x-protobuf", result(0)),
        (200, "application/x-protobuf", result(-1)),
        (200, "application/json", b"{}"),
        (200, "application/json", b'{"partialSuccess":{}}'),
        (200, "application/json", b'{"partialSuccess":null}'),
        (200, "application/json", b'{"partialSuccess":{"rejectedSpans":null,"errorMessage":""}}'),
        (200, "application/json", b""),
        (200, "application/json", b"null"),
        (200, "application/json", b"[]"),
        (200, "application/json", b'"ok"'),
        (200, "text/plain", b"OK"),
        (202, "application/json", b'{"accepted":true}'),
        (200, "application/octet-stream", b"\xff"),
        (204, "application/x-protobuf", b""),
    ],
)
async def test_other_successful_answers_are_a_success(
    status: int, content_type: str, body: bytes
) -> None:
    answer = Response(status=status, headers={"content-type": content_type}, body=body, keep=True)

    assert names(await sent(make_spans(1), answer)) == ["span-0"]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/html; charset=utf-8", b"<!doctype html>"),
        ("text/html", b""),
        ("application/x-protobuf", b"not protobuf"),
        ("application/x-protobuf", result(3)[:-1]),
        ("application/x-protobuf", b"\x80"),
        ("application/json", b"<html>"),
        ("application/json", b"[" * 200_000),
        ("application/json", b'{"a":' * 200_000),
        ("application/json", b'{"partialSuccess":3}'),
        ("application/json", b'{"partialSuccess":{"rejectedSpans":"many"}}'),
        ("application/json", b'{"partialSuccess":{"rejectedSpans":[3]}}'),
    ],
)
async def test_a_success_that_is_not_of_a_backend_is_none(content_type: str, body: bytes) -> None:
    answer = Response(headers={"content-type": content_type}, body=body)

    error, _ = await failure(make_spans(1), answer)

    assert error.permanent
    assert str(error) == (
        "the server answered 200, but not as an OTLP backend does: check the address"
    )


def test_fields_of_a_later_version_are_skipped() -> None:
    partial = partial_success(4).body
    later = b"\x50\x01" + b"\x59" + bytes(8) + b"\x65" + bytes(4) + b"\x0a\x00"  # fields 10 to 12

    assert rejected_spans("application/x-protobuf", later + partial) == 4
    assert rejected_spans("application/x-protobuf", partial + later) == 4
    ExportTraceServiceResponse.FromString(later + partial)


async def test_an_answer_without_an_end_is_not_read_to_the_end() -> None:
    answer = Response(headers=PROTOBUF, body=bytes(5 << 20))

    error, _ = await failure(make_spans(1), answer)

    assert "larger than" in str(error)
