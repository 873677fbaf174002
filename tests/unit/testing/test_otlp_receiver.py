"""The receiver of spans that sinks are tested against."""

import asyncio
import contextlib
import gzip
import zlib
from typing import Any

import httpx2
import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

from fakes.otlp_receiver import (
    Answer,
    Drop,
    Handler,
    Hang,
    OnRepeat,
    OTLPReceiver,
    Request,
    Response,
    attributes_of,
    partial_success,
    redirect,
)

TRACE, SPAN = b"t" * 16, b"s" * 8
PROTOBUF = {"content-type": "application/x-protobuf"}

httpx2.AsyncClient()  # reads its parts and the certificates from files, which no event loop may


def export(*names: str, **changes: Any) -> bytes:
    """Return a request with a span for each name, all of the same id."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for name in names:
        fields: dict[str, Any] = {"trace_id": TRACE, "span_id": SPAN, "name": name, **changes}
        scope.spans.append(Span(**fields))
    return request.SerializeToString()


def names(receiver: OTLPReceiver) -> list[str]:
    return [span.name for span in receiver.spans]


def client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(verify=False, timeout=200)


async def post(
    receiver: OTLPReceiver, content: bytes, headers: dict[str, str] | None = None
) -> httpx2.Response:
    async with client() as http:
        return await http.post(receiver.url, content=content, headers=headers or PROTOBUF)


@pytest.mark.parametrize("compression", list(Compression))
async def test_the_stock_exporter_delivers_to_it_compressed_or_not(
    compression: Compression,
) -> None:
    context = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1))
    values = {"text": "a", "number": 3, "list": (True, False), "ratio": 0.5}
    span = ReadableSpan(
        "call", context, resource=Resource({"service.name": "x"}), attributes=values
    )

    async with OTLPReceiver(path="/api/public/otel/v1/traces") as receiver:
        exporter = OTLPSpanExporter(receiver.url, compression=compression)
        result = await asyncio.to_thread(exporter.export, [span])

    assert result is SpanExportResult.SUCCESS
    assert names(receiver) == ["call"]
    assert attributes_of(receiver.spans[0]) == {**values, "list": [True, False]}
    resource = receiver.exports[0].resource_spans[0].resource
    assert attributes_of(resource) == {"service.name": "x"}
    assert receiver.requests[0].path == "/api/public/otel/v1/traces"
    assert receiver.requests[0].headers["content-type"] == "application/x-protobuf"


@pytest.mark.parametrize(
    ("on_repeat", "held"),
    [("first", ["one"]), ("append", ["one", "two"]), ("replace", ["two"])],
)
async def test_a_span_that_comes_again_is_kept_as_the_backend_does(
    on_repeat: OnRepeat, held: list[str]
) -> None:
    async def main() -> list[str]:
        async with OTLPReceiver(on_repeat=on_repeat) as receiver:
            await post(receiver, export("one"))
            await post(receiver, export("two"))
            return names(receiver)

    assert (await main()) == held


async def test_a_span_that_was_forgotten_is_new_again() -> None:
    async def main() -> list[str]:
        async with OTLPReceiver(on_repeat="first") as receiver:
            await post(receiver, export("one"))
            receiver.forget()
            await post(receiver, export("two"))
            return names(receiver)

    assert (await main()) == ["two"]


@pytest.mark.parametrize(
    ("answer", "status", "held"),
    [
        (200, 200, ["x"]),
        (503, 503, []),
        (redirect("https://elsewhere.test/v1/traces", 302), 302, []),
        (Response(status=429, headers={"retry-after": "3"}), 429, []),
        (Response(status=500, keep=True), 500, ["x"]),
        (Response(body=b"<html>", headers={"content-type": "text/html"}), 200, []),
        (partial_success(1, "too old"), 200, ["x"]),
    ],
)
async def test_the_script_comes_first_and_then_all_is_well(
    answer: Answer, status: int, held: list[str]
) -> None:
    async with OTLPReceiver(script=[answer]) as receiver:
        scripted, kept = await post(receiver, export("x")), names(receiver)
        after = (await post(receiver, export("x"))).status_code

    assert (scripted.status_code, kept, after) == (status, held, 200)
    if isinstance(answer, Response):
        assert scripted.content == answer.body
        assert answer.headers.items() <= dict(scripted.headers).items()


async def test_a_usual_answer_is_an_empty_message() -> None:
    async with OTLPReceiver() as receiver:
        answer = await post(receiver, export("x"))

    assert answer.headers["content-type"] == "application/x-protobuf"
    assert ExportTraceServiceResponse.FromString(answer.content) == ExportTraceServiceResponse()


@pytest.mark.parametrize("keep", [True, False])
async def test_a_connection_can_break_after_the_spans_were_taken_or_before(keep: bool) -> None:
    async def main() -> list[str]:
        async with OTLPReceiver(script=[Drop(keep=keep)]) as receiver:
            with pytest.raises(httpx2.RemoteProtocolError):
                await post(receiver, export("x"))
            return names(receiver)

    assert (await main()) == (["x"] if keep else [])


async def test_an_answer_can_break_off() -> None:
    async with OTLPReceiver(script=[Response(body=b"ab", cut=True)]) as receiver:
        with pytest.raises(httpx2.RemoteProtocolError):
            await post(receiver, export("x"))


async def test_an_answer_can_stay_away_and_does_not_hold_up_the_end() -> None:
    came = asyncio.Event()

    def check(request: Request) -> None:
        if request.body == export("y"):
            came.set()

    async with OTLPReceiver(script=[Hang(keep=True), Hang()], check=check) as receiver:
        hasty = httpx2.Timeout(200, read=0.1)
        async with client() as http:
            with pytest.raises(httpx2.ReadTimeout):
                await http.post(receiver.url, content=export("x"), headers=PROTOBUF, timeout=hasty)
        waiting = asyncio.create_task(post(receiver, export("y")))
        await came.wait()
    with contextlib.suppress(httpx2.HTTPError):
        await waiting
    assert names(receiver) == ["x"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"trace_id": b""},
        {"trace_id": b"t" * 15},
        {"trace_id": bytes(16)},
        {"span_id": b"s" * 9},
        {"span_id": bytes(8)},
        {"parent_span_id": bytes(8)},
        {"parent_span_id": b"p"},
    ],
)
async def test_an_id_that_is_none_refuses_the_whole_request(wrong: dict[str, bytes]) -> None:
    request = export("good") + export("bad", **wrong)  # one message after the other is both

    async def main() -> tuple[int, list[str]]:
        async with OTLPReceiver() as receiver:
            return (await post(receiver, request)).status_code, names(receiver)

    assert (await main()) == (400, [])


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (export("x"), {"content-type": "application/json"}, 415),
        (b"\xff\xff", PROTOBUF, 400),
        (export("x"), {**PROTOBUF, "content-encoding": "gzip"}, 400),
        (gzip.compress(export("x"))[:-9], {**PROTOBUF, "content-encoding": "gzip"}, 400),
        (export("x"), {**PROTOBUF, "content-encoding": "br"}, 400),
        (export("x" * 200), PROTOBUF, 413),
        (gzip.compress(export("x" * 200)), {**PROTOBUF, "content-encoding": "gzip"}, 413),
        (zlib.compress(export("x")), {**PROTOBUF, "content-encoding": "deflate"}, 200),
        (export("x"), {**PROTOBUF, "content-encoding": "identity"}, 200),
        (b"", PROTOBUF, 200),
    ],
    ids=range(10),
)
async def test_what_cannot_be_read_is_refused(
    content: bytes, headers: dict[str, str], status: int
) -> None:
    async def main() -> int:
        async with OTLPReceiver(max_bytes=100) as receiver:
            return (await post(receiver, content, headers)).status_code

    assert (await main()) == status


async def test_a_request_can_be_refused_by_its_headers() -> None:
    def check(request: Request) -> Response | None:
        return None if request.headers.get("x-api-key") == "k" else Response(status=401)

    async def main() -> list[int]:
        async with OTLPReceiver(check=check) as receiver:
            with_key = {**PROTOBUF, "x-api-key": "k"}
            answers = [await post(receiver, b""), await post(receiver, b"", with_key)]
            return [answer.status_code for answer in answers]

    assert (await main()) == [401, 200]


async def test_further_routes_answer_with_or_without_waiting_and_the_longest_wins() -> None:
    async def score(request: Request) -> Response:
        return Response.of({"got": request.json(), "limit": request.query["limit"]}, 202)

    routes: dict[tuple[str, str], Handler] = {
        ("GET", "/api"): lambda _: Response.of("short"),
        ("GET", "/api/scores/"): lambda request: Response.of(request.path),
        ("POST", "/api/scores"): score,
    }

    async def main() -> list[tuple[int, Any]]:
        async with OTLPReceiver(routes=routes) as receiver, client() as http:
            base = receiver.base_url
            answers = [
                await http.get(f"{base}/api"),
                await http.get(f"{base}/api/scores/a%20b"),
                await http.post(f"{base}/api/scores?limit=", json={"a": 1}),
                await http.delete(f"{base}/api/scores"),
                await http.get(f"{base}/other"),
                await http.get(receiver.url),
                await http.post(f"{receiver.url}/more"),
            ]
            assert receiver.connections == 1
            return [(answer.status_code, answer.content) for answer in answers]

    assert (await main()) == [
        (200, b'"short"'),
        (200, b'"/api/scores/a b"'),
        (202, b'{"got": {"a": 1}, "limit": [""]}'),
        (405, b'{"detail": "Method Not Allowed"}'),
        (404, b'{"detail": "Not Found"}'),
        (405, b'{"detail": "Method Not Allowed"}'),
        (404, b"Not Found"),
    ]


async def test_a_body_may_come_in_chunks_and_a_connection_may_close() -> None:
    content = export("x")
    request = b"\r\n".join(
        [
            b"POST /v1/traces HTTP/1.1",
            b"Content-Type: application/x-protobuf",
            b"Connection: close",
            b"Transfer-Encoding: chunked",
            b"",
            b"5;note=1",
            content[:5],
            b"%x" % len(content[5:]),
            content[5:],
            b"0",
            b"Trailer: 1",
            b"",
            b"",
        ]
    )

    async with OTLPReceiver() as receiver:
        reader, writer = await asyncio.open_connection("127.0.0.1", receiver.port)
        writer.write(request)
        answer = await reader.read()  # to the end, which comes
        writer.close()
        held = names(receiver)

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert held == ["x"]


async def test_an_error_of_a_handler_is_raised_in_the_end_unless_the_test_has_failed_itself() -> (
    None
):
    def broken(_: Request) -> Response:
        raise LookupError("of the handler")

    async def main(mine: Exception | None) -> None:
        async with OTLPReceiver(routes={("GET", "/"): broken}) as receiver:
            async with client() as http:
                with pytest.raises(httpx2.RemoteProtocolError):
                    await http.get(receiver.base_url)
            if mine:
                raise mine

    with pytest.raises(LookupError, match="of the handler"):
        await main(None)
    with pytest.raises(ZeroDivisionError):
        await main(ZeroDivisionError())


def test_attributes_of_every_kind_are_read() -> None:
    span = Span()
    for key, value in {
        "bytes": {"bytes_value": b"b"},
        "map": {"kvlist_value": {"values": [{"key": "k", "value": {"int_value": 1}}]}},
        "none": {},
    }.items():
        span.attributes.add(key=key, value=value)

    assert attributes_of(span) == {"bytes": b"b", "map": {"k": 1}, "none": None}
