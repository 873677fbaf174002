"""The sender against a receiver on a real socket."""

import asyncio
import gzip
import itertools
import socket
import threading
import traceback
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from lib import __version__
from lib._util.clock import SYSTEM_CLOCK
from lib.errors import ExportError
from lib.observe import Span, SpanEvent, span_id_of, trace_id_of
from lib.observe.dialect import AttributeValue
from lib.observe.otlp import OTLPSender
from lib.observe.otlp.answer import rejected_spans
from lib.observe.otlp.sender import gzipped
from lib.testing.aio import run
from lib.testing.clock import ManualClock
from lib.testing.otlp_receiver import (
    Answer,
    Drop,
    Hang,
    HTTPServer,
    OTLPReceiver,
    Request,
    Response,
    attributes_of,
    partial_success,
    redirect,
)

KEY = "pk-secret-0123456789"
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
PROTOBUF = {"content-type": "application/x-protobuf"}


class Plain:
    """Gives a span's attributes as they are, and counts."""

    name = "plain"

    def __init__(self) -> None:
        self.calls = 0

    def attributes(self, span: Span) -> Mapping[str, AttributeValue]:
        self.calls += 1
        return span.attributes


def make_spans(count: int, *, text: str = "") -> list[Span]:
    root = trace_id_of("run")
    attributes = {"text": text} if text else {}
    return [
        Span(
            root,
            span_id_of("run", "tool", str(n)),
            None,
            f"span-{n}",
            "tool",
            START,
            START,
            attributes=attributes,
        )
        for n in range(count)
    ]


def sender_to(url: str, **options: Any) -> OTLPSender:
    headers = options.pop("headers", {"Authorization": KEY})
    return OTLPSender(url, headers=headers, **options)


async def send(sender: OTLPSender, spans: list[Span]) -> None:
    await sender.send(spans, dialect=Plain(), resource={"service.name": "shop"})


def sent(spans: list[Span], *script: Answer, **options: Any) -> OTLPReceiver:
    """Send the spans to a receiver that answers so, and return it."""

    async def main() -> OTLPReceiver:
        async with OTLPReceiver(script=script) as receiver:
            sender = sender_to(receiver.url, **options)
            await send(sender, spans)
            await sender.aclose()
            return receiver

    return run(main())


def failure(spans: list[Span], *script: Answer, **options: Any) -> tuple[ExportError, OTLPReceiver]:
    """Send the spans to a receiver that answers so, and return the error as well."""

    async def main() -> tuple[ExportError, OTLPReceiver]:
        async with OTLPReceiver(script=script, on_repeat="append") as receiver:
            sender = sender_to(receiver.url, **options)
            with pytest.raises(ExportError) as raised:
                await send(sender, spans)
            await sender.aclose()
            return raised.value, receiver

    return run(main())


def names(receiver: OTLPReceiver) -> list[str]:
    return [span.name for span in receiver.spans]


def sizes(receiver: OTLPReceiver) -> list[int]:
    """Return how many spans each request had."""
    return [len(export.resource_spans[0].scope_spans[0].spans) for export in receiver.exports]


# -- what is sent ------------------------------------------------------------------------------


def test_spans_arrive_in_order_in_one_compressed_request() -> None:
    receiver = sent(make_spans(3, text="hello"))

    [request], [export] = receiver.requests, receiver.exports
    assert names(receiver) == ["span-0", "span-1", "span-2"]
    assert [attributes_of(span) for span in receiver.spans] == [{"text": "hello"}] * 3
    assert attributes_of(export.resource_spans[0].resource) == {"service.name": "shop"}
    assert request.encoding == "gzip"
    assert request.headers["authorization"] == KEY
    assert request.headers["user-agent"] == f"lib-agents/{__version__}"


def test_nothing_to_send_sends_nothing() -> None:
    assert sent([]).requests == []


def test_the_same_spans_are_the_same_bytes_again() -> None:
    bodies = [sent(make_spans(100)).requests[0].content for _ in range(2)]

    assert bodies[0] == bodies[1]


def test_headers_given_win_whatever_their_case() -> None:
    receiver = sent(make_spans(1), headers={"User-Agent": "shop/1", "X-Scope-OrgID": "a"})

    assert receiver.requests[0].headers["user-agent"] == "shop/1"
    assert receiver.requests[0].headers["x-scope-orgid"] == "a"


def test_a_request_has_at_most_so_many_spans_and_one_connection_takes_all() -> None:
    receiver = sent(make_spans(1_100), batch_size=512)

    assert sizes(receiver) == [512, 512, 76]
    assert names(receiver) == [f"span-{n}" for n in range(1_100)]
    assert receiver.connections == 1


@pytest.mark.parametrize("max_bytes", [1, 1_000, 5_000, 5_321, 20_000])
def test_a_request_is_no_larger_than_allowed_unless_one_span_is(max_bytes: int) -> None:
    spans = make_spans(40, text="x" * 500)

    receiver = sent(spans, max_bytes=max_bytes)

    assert names(receiver) == [span.name for span in spans]
    for request, count in zip(receiver.requests, sizes(receiver), strict=True):
        assert count == 1 or len(request.body) <= max_bytes
    lengths = [len(request.body) for request in receiver.requests]
    fits = [a + b > max_bytes for a, b in itertools.pairwise(lengths)]
    assert all(fits)  # none could have taken the next one as well


def test_a_span_larger_than_a_request_travels_alone_between_the_others() -> None:
    small = make_spans(5)
    spans = [*small[:2], replace(small[2], attributes={"text": "x" * 30_000}), *small[3:]]

    receiver = sent(spans, max_bytes=10_000)

    assert sizes(receiver) == [2, 1, 2]
    assert names(receiver) == [span.name for span in spans]


def test_text_that_is_no_unicode_and_numbers_beyond_json_arrive() -> None:
    odd: dict[str, Any] = {"lone": "a \ud800", "big": 2**70, "nan": float("nan")}
    [span] = make_spans(1)

    receiver = sent([replace(span, name="\ud800", attributes=odd)])

    expected = {"lone": "a \ufffd", "big": str(2**70), "nan": "NaN"}
    assert attributes_of(receiver.spans[0]) == expected


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 304, 307, 308])
def test_a_redirect_is_not_followed_and_not_taken_for_success(status: int) -> None:
    error, receiver = failure(make_spans(1), redirect("https://moved.test/here", status))

    assert error.permanent
    assert error.setup
    assert f"the address redirects ({status})" in str(error)
    assert "moved.test" not in str(error)
    assert len(receiver.requests) == 1
    assert receiver.spans == []


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 413, 415, 422])
def test_what_is_wrong_with_the_request_stays_wrong(status: int) -> None:
    error, _ = failure(make_spans(1), status)

    assert error.permanent
    assert error.setup is (status not in {400, 413, 422})
    assert f"the server answered {status}" in str(error)
    assert len(error.taken) == 0


@pytest.mark.parametrize("status", [408, 425, 429, 500, 501, 502, 503, 504, 507])
def test_what_is_wrong_with_the_server_may_pass(status: int) -> None:
    error, receiver = failure(make_spans(1), status)

    assert not error.permanent
    assert error.retry_after_s is None
    assert f"the server answered {status}" in str(error)
    assert len(receiver.requests) == 1  # retrying is up to the caller


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("asked", "seconds"),
    [("7", 7.0), ("0", 0.0), ("Thu, 01 Jan 2026 00:01:30 GMT", 90.0), ("soon", None)],
)
def test_the_wait_that_a_server_asks_for_is_told(
    status: int, asked: str, seconds: float | None
) -> None:
    answer = Response(status=status, headers={"retry-after": asked})

    error, _ = failure(make_spans(1), answer, clock=ManualClock())

    assert (error.permanent, error.retry_after_s) == (False, seconds)


def test_too_large_a_request_is_halved_until_it_fits() -> None:
    spans = make_spans(7, text="x" * 500)

    async def main() -> OTLPReceiver:
        async with OTLPReceiver(max_bytes=1_500) as receiver:
            sender = sender_to(receiver.url)
            await send(sender, spans)
            await sender.aclose()
            return receiver

    receiver = run(main())

    assert names(receiver) == [span.name for span in spans]
    assert sizes(receiver) == [1, 2, 2, 2]


def test_a_span_that_is_too_large_for_the_backend_is_told_and_does_not_hold_up_the_others() -> None:
    small = make_spans(8)
    spans = [*small[:3], replace(small[3], attributes={"text": "x" * 30_000}), *small[4:]]

    async def main() -> tuple[ExportError, list[str]]:
        async with OTLPReceiver(max_bytes=10_000) as receiver:
            sender = sender_to(receiver.url)
            with pytest.raises(ExportError) as raised:
                await send(sender, spans)
            await sender.aclose()
            return raised.value, names(receiver)

    error, held = run(main())

    assert held == [span.name for span in spans if span.name != "span-3"]
    assert (error.permanent, len(error.taken)) == (True, 7)
    assert str(error).startswith("1 of 8 spans were refused: the server answered 413")


@pytest.mark.parametrize("status", [400, 422])
def test_a_refused_request_does_not_keep_the_next_one_back(status: int) -> None:
    error, receiver = failure(make_spans(6), 200, status, 200, batch_size=2)

    assert names(receiver) == ["span-0", "span-1", "span-4", "span-5"]
    taken = {span.span_id.hex() for span in receiver.spans}
    assert (error.permanent, error.taken) == (True, taken)
    assert str(error).startswith("2 of 6 spans were refused")


@pytest.mark.parametrize("status", [401, 403, 404, 307, 503])
def test_any_other_failure_ends_it_and_says_how_many_were_sent_before(status: int) -> None:
    error, receiver = failure(make_spans(6), 200, status, 200, batch_size=2)

    assert names(receiver) == ["span-0", "span-1"]
    assert len(receiver.requests) == 2
    assert len(error.taken) == 2
    assert str(error).endswith("; 2 of 6 spans were sent before")


def test_a_failure_after_a_refusal_tells_of_both() -> None:
    error, receiver = failure(make_spans(6), 200, 400, 503, batch_size=2)

    assert names(receiver) == ["span-0", "span-1"]
    assert (error.permanent, len(error.taken), error.lost) == (False, 2, 0)
    assert str(error).endswith("; 4 of 6 spans were sent before, of which 2 were refused")


def test_a_failure_after_a_partial_success_tells_what_is_lost() -> None:
    error, _ = failure(make_spans(6), partial_success(1), 503, batch_size=2)

    assert (error.permanent, len(error.taken), error.lost) == (False, 2, 1)
    assert str(error).endswith("; 2 of 6 spans were sent before, of which 1 were refused")


# -- answers of success ------------------------------------------------------------------------


def told(rejected: int) -> bytes:
    return partial_success(rejected, "too old: secret").body


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/x-protobuf", told(3)),
        ("application/protobuf", told(3)),
        ("application/json; charset=utf-8", b'{"partialSuccess":{"rejectedSpans":"3"}}'),
        ("application/json", b'{"partial_success":{"rejected_spans":3}}'),
    ],
)
def test_spans_dropped_by_a_partial_success_are_an_error(content_type: str, body: bytes) -> None:
    answer = Response(headers={"content-type": content_type}, body=body)

    error, _ = failure(make_spans(5), answer)

    # OTLP forbids to send them again.
    assert (error.permanent, len(error.taken), error.lost) == (True, 5, 3)
    assert str(error) == "3 of 5 spans were refused: the server answered 200 with a partial success"


def test_a_partial_success_of_more_spans_than_were_sent_counts_those() -> None:
    error, _ = failure(make_spans(2), partial_success(9))

    assert str(error).startswith("2 of 2 spans were refused")


@pytest.mark.parametrize(
    ("status", "content_type", "body"),
    [
        (200, "application/x-protobuf", b""),
        (200, "application/x-protobuf", told(0)),
        (200, "application/x-protobuf", told(-1)),
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
def test_whatever_else_succeeds_is_a_success(status: int, content_type: str, body: bytes) -> None:
    answer = Response(status=status, headers={"content-type": content_type}, body=body, keep=True)

    assert names(sent(make_spans(1), answer)) == ["span-0"]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/html; charset=utf-8", b"<!doctype html>"),
        ("text/html", b""),
        ("application/x-protobuf", b"not protobuf"),
        ("application/x-protobuf", told(3)[:-1]),
        ("application/x-protobuf", b"\x80"),
        ("application/json", b"<html>"),
        ("application/json", b"[" * 200_000),
        ("application/json", b'{"a":' * 200_000),
        ("application/json", b'{"partialSuccess":3}'),
        ("application/json", b'{"partialSuccess":{"rejectedSpans":"many"}}'),
        ("application/json", b'{"partialSuccess":{"rejectedSpans":[3]}}'),
    ],
)
def test_a_success_that_is_not_of_a_backend_is_none(content_type: str, body: bytes) -> None:
    answer = Response(headers={"content-type": content_type}, body=body)

    error, _ = failure(make_spans(1), answer)

    assert error.permanent
    assert str(error) == (
        "the server answered 200, but not as an OTLP backend does: check the address"
    )


def test_fields_of_a_later_version_are_skipped() -> None:
    known = partial_success(4).body
    later = b"\x50\x01" + b"\x59" + bytes(8) + b"\x65" + bytes(4) + b"\x0a\x00"  # fields 10 to 12

    assert rejected_spans("application/x-protobuf", later + known) == 4
    assert rejected_spans("application/x-protobuf", known + later) == 4
    ExportTraceServiceResponse.FromString(later + known)


def test_an_answer_without_an_end_is_not_read_to_the_end() -> None:
    answer = Response(headers=PROTOBUF, body=bytes(5 << 20))

    error, _ = failure(make_spans(1), answer)

    assert "larger than" in str(error)


# -- the connection ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", [Drop(), Drop(keep=True), Hang(), Response(headers=PROTOBUF, body=b"\x0a", cut=True)]
)
def test_a_connection_that_fails_may_hold_next_time(answer: Answer) -> None:
    error, _ = failure(make_spans(4), 200, answer, batch_size=2, timeout_s=0.3)

    assert not error.permanent
    assert len(error.taken) == 2


def test_a_server_that_is_away_may_come_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    sender = sender_to(f"http://127.0.0.1:{port}/v1/traces")

    with pytest.raises(ExportError) as raised:
        run(send(sender, make_spans(1)))

    assert not raised.value.permanent


def test_no_secret_is_in_an_error_nor_in_what_it_came_from() -> None:
    def echo(request: Request) -> Response:
        return Response(status=403, body=f"{request.headers} {request.path}".encode())

    async def main(headers: Mapping[str, str]) -> ExportError:
        async with OTLPReceiver(check=echo, path=f"/{KEY}") as receiver:
            sender = sender_to(receiver.url, headers=headers)
            with pytest.raises(ExportError) as raised:
                await send(sender, make_spans(1))
            await sender.aclose()
            return raised.value

    for value in (KEY, f"{KEY}\n", f"{KEY} é\ud800"):
        error = run(main({"x-api-key": value}))
        assert error.permanent
        assert KEY not in "".join(traceback.format_exception(error))


def test_one_sender_serves_one_event_loop_after_the_other_and_may_be_closed_twice() -> None:
    senders: list[OTLPSender] = []
    ports = [0]

    async def main() -> tuple[list[str], int]:
        async with OTLPReceiver(port=ports.pop()) as receiver:
            ports.append(receiver.port)
            senders.append(senders[0] if senders else sender_to(receiver.url))
            await send(senders[0], make_spans(1))
            await senders[0].aclose()
            await senders[0].aclose()
            await send(senders[0], make_spans(2))
            await senders[0].aclose()
            return names(receiver), receiver.connections

    assert [run(main()) for _ in range(2)] == [(["span-0", "span-1"], 2)] * 2


def test_many_exports_at_once_do_not_mix() -> None:
    async def main() -> list[set[str]]:
        async with OTLPReceiver() as receiver:
            sender = sender_to(receiver.url)
            wholes = [
                [replace(span, name=f"{n}-{span.name}") for span in make_spans(130)]
                for n in range(5)
            ]
            await asyncio.gather(*[send(sender, spans) for spans in wholes])
            await sender.aclose()
            return [
                {span.name[0] for span in export.resource_spans[0].scope_spans[0].spans}
                for export in receiver.exports
            ]

    assert sorted(map(sorted, run(main()))) == [["0"], ["1"], ["2"], ["3"], ["4"]]


def test_a_cancelled_export_leaves_the_sender_usable() -> None:
    came = asyncio.Event()

    async def main() -> list[str]:
        async with OTLPReceiver(script=[Hang()], check=lambda _: came.set()) as receiver:
            sender = sender_to(receiver.url)
            sending = asyncio.create_task(send(sender, make_spans(1)))
            await came.wait()
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await send(sender, make_spans(2))
            await sender.aclose()
            return names(receiver)

    assert run(main()) == ["span-0", "span-1"]


def test_who_cancels_an_export_knows_what_was_taken_and_what_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spans, taken = make_spans(8), list[str]()
    script = [200, 400, partial_success(1), Hang(keep=True)]

    async def main() -> None:
        async with OTLPReceiver(script=script) as receiver:
            sender = sender_to(receiver.url, batch_size=2)
            sending = asyncio.create_task(
                sender.send(spans, dialect=Plain(), resource={}, on_taken=taken.extend)
            )
            while len(receiver.exports) < 4:
                await SYSTEM_CLOCK.sleep(0.001)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await sender.aclose()

    run(main())

    assert taken == [span.span_id for span in [*spans[:2], *spans[4:6]]]
    assert [record.getMessage() for record in caplog.records] == [
        "a backend has taken requests, but dropped 1 spans of them"
    ]


def test_closing_waits_for_an_export_under_way() -> None:
    came, answer = asyncio.Event(), asyncio.Event()

    async def main() -> list[str]:
        async def slow(request: Request) -> Response:
            came.set()
            await answer.wait()
            return Response(headers=PROTOBUF)

        async with HTTPServer({("POST", "/v1/traces"): slow}) as server:
            sender = sender_to(f"{server.base_url}/v1/traces", batch_size=1)
            order: list[str] = []

            async def export() -> None:
                await send(sender, make_spans(2))
                order.append("exported")

            async def close() -> None:
                await sender.aclose()
                order.append("closed")

            sending = asyncio.create_task(export())
            await came.wait()
            closing = asyncio.create_task(close())
            await SYSTEM_CLOCK.sleep(0.01)
            answer.set()
            await asyncio.gather(sending, closing)
            return order

    assert run(main()) == ["exported", "closed"]


def test_closing_waits_no_longer_than_a_request_may_take() -> None:
    async def main() -> tuple[float, ExportError]:
        async with OTLPReceiver(script=[200, Hang(), Hang()]) as receiver:
            sender = sender_to(receiver.url, batch_size=1, timeout_s=0.2)
            sending = asyncio.create_task(send(sender, make_spans(40)))
            while len(receiver.exports) < 2:
                await SYSTEM_CLOCK.sleep(0.001)
            began = SYSTEM_CLOCK.monotonic()
            await sender.aclose()
            took = SYSTEM_CLOCK.monotonic() - began
            with pytest.raises(ExportError) as raised:
                await sending
            return took, raised.value

    took, error = run(main())

    assert took < 1
    assert (error.permanent, len(error.taken)) == (False, 1)


def test_a_given_client_is_used_and_stays_open() -> None:
    client = httpx2.AsyncClient(headers={"x-from": "client"})

    async def main() -> tuple[str, bool]:
        async with OTLPReceiver() as receiver, client:
            sender = sender_to(receiver.url, http=client)
            await send(sender, make_spans(1))
            await sender.aclose()
            return receiver.requests[0].headers["x-from"], client.is_closed

    assert run(main()) == ("client", False)


@pytest.mark.parametrize(
    "url", ["", "localhost:4318/v1/traces", "ftp://host/v1/traces", "http:///v1/traces", f"//{KEY}"]
)
def test_an_address_that_is_none_is_refused_at_once_and_not_quoted(url: str) -> None:
    with pytest.raises(ValueError, match="begins with http:// or https://") as raised:
        OTLPSender(url, headers={})

    assert KEY not in str(raised.value)


@pytest.mark.parametrize("limit", [{"batch_size": 0}, {"max_bytes": -1}, {"timeout_s": 0}])
def test_limits_are_above_zero(limit: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        sender_to("http://localhost:4318/v1/traces", **limit)


# -- the event loop ----------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "most"), [("", 64), ("x" * 50_000, 3), ("é" * 100_000, 1)])
def test_others_get_their_turn_while_spans_are_encoded(text: str, most: int) -> None:
    spans, dialect = make_spans(200, text=text), Plain()
    seen: list[int] = []

    async def watch() -> None:
        while True:
            seen.append(dialect.calls)
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop

    async def main() -> None:
        async with OTLPReceiver() as receiver:
            sender = sender_to(receiver.url)
            watching = asyncio.create_task(watch())
            await sender.send(spans, dialect=dialect, resource={})
            watching.cancel()
            await sender.aclose()

    run(main())

    assert dialect.calls == 200
    steps = [after - before for before, after in itertools.pairwise(seen)]
    assert max(steps) <= most


def test_others_get_their_turn_while_a_request_is_compressed() -> None:
    turns = 0

    async def watch() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop

    async def main() -> int:
        watching = asyncio.create_task(watch())
        packed = await gzipped(bytes(4 << 20), SYSTEM_CLOCK)
        assert gzip.decompress(packed) == bytes(4 << 20)
        watching.cancel()
        return turns

    assert run(main()) >= 32


def huge_values() -> list[Any]:
    """Return what is too large to be encoded at once: one text, many texts, many numbers."""
    return ["x" * 300_000, {"a": [["x" * 3_000] * 100]}, [list(range(10_000))]]


@pytest.mark.parametrize("value", huge_values(), ids=["text", "texts", "numbers"])
@pytest.mark.parametrize("place", ["attributes", "input", "output", "events", "status_message"])
def test_a_huge_span_is_encoded_in_a_thread(value: Any, place: str) -> None:
    threads = list[threading.Thread]()

    class Watching(Plain):
        def attributes(self, span: Span) -> Mapping[str, AttributeValue]:
            threads.append(threading.current_thread())
            return {}

    holding: Any = {
        "attributes": {"a": value},
        "events": [SpanEvent("moment", START, {"a": value})],
        "status_message": value if isinstance(value, str) else "x" * 300_000,
    }
    small, other = make_spans(2, text="x" * 50_000)
    spans = [small, replace(other, **{place: holding.get(place, value)})]

    async def main() -> None:
        async with OTLPReceiver() as receiver:
            sender = sender_to(receiver.url)
            await sender.send(spans, dialect=Watching(), resource={})
            await sender.aclose()
            assert names(receiver) == ["span-0", "span-1"]

    run(main())

    assert [thread is threading.main_thread() for thread in threads] == [True, False]


def test_spans_are_left_as_they_are() -> None:
    spans = [replace(span, end=START + timedelta(seconds=1)) for span in make_spans(2, text="x")]
    before = [replace(span) for span in spans]

    sent(spans)

    assert spans == before
