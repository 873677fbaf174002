"""Connections that fail, exports that are cancelled, and what closing waits for."""

import asyncio
import socket
import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from fakes.otlp_receiver import (
    Answer,
    Drop,
    Hang,
    HTTPServer,
    OTLPReceiver,
    Request,
    Response,
    partial_success,
)
from lib._util.clock import SYSTEM_CLOCK
from lib.errors import ExportError
from lib.observe.otlp import OTLPSender
from lib.testing.aio import run

from .sender_kit import KEY, PROTOBUF, Plain, failure, make_spans, names, send, sender_to


@pytest.mark.parametrize(
    "answer", [Drop(), Drop(keep=True), Hang(), Response(headers=PROTOBUF, body=b"\x0a", cut=True)]
)
async def test_a_connection_that_fails_may_hold_next_time(answer: Answer) -> None:
    hangs = isinstance(answer, Hang)
    error, _ = await failure(
        make_spans(4), 200, answer, batch_size=2, timeout_s=0.3 if hangs else 200
    )
    while hangs and not error.taken:  # this process was too slow for the first batch
        error, _ = await failure(make_spans(4), 200, answer, batch_size=2, timeout_s=0.3)

    assert not error.permanent
    assert len(error.taken) == 2


async def test_a_server_that_is_away_may_come_back_and_is_named_without_its_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    sender = sender_to(f"http://{KEY}@127.0.0.1:{port}/{KEY}/traces")

    with pytest.raises(ExportError) as raised:
        await send(sender, make_spans(1))

    assert not raised.value.permanent
    assert f"127.0.0.1:{port}: the connection to the server failed" in str(raised.value)
    assert KEY not in str(raised.value)


async def test_no_secret_is_in_an_error_nor_in_what_it_came_from() -> None:
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
        error = await main({"x-api-key": value})
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


async def test_many_exports_at_once_do_not_mix() -> None:
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

    assert sorted(map(sorted, await main())) == [["0"], ["1"], ["2"], ["3"], ["4"]]


async def test_a_cancelled_export_leaves_the_sender_usable() -> None:
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

    assert (await main()) == ["span-0", "span-1"]


async def test_a_cancelled_export_reports_taken_spans_and_logs_lost_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spans, taken = make_spans(8), list[str]()
    script = [200, 400, partial_success(1), Hang(keep=True)]

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

    assert taken == [span.span_id for span in [*spans[:2], *spans[4:6]]]
    assert [record.getMessage() for record in caplog.records] == [
        "a backend has taken requests, but dropped 1 spans of them"
    ]


async def test_closing_waits_for_an_export_under_way() -> None:
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

    assert (await main()) == ["exported", "closed"]


async def test_closing_waits_no_longer_than_a_request_may_take() -> None:
    async def main() -> ExportError:
        while True:
            async with OTLPReceiver(script=[200, Hang(), Hang()]) as receiver:
                sender = sender_to(receiver.url, batch_size=1, timeout_s=0.2)
                sending = asyncio.create_task(send(sender, make_spans(40)))
                while len(receiver.exports) < 2 and not sending.done():
                    await SYSTEM_CLOCK.sleep(0.001)
                # The receiver answers never: without a limit, this waits for ever.
                await sender.aclose()
                with pytest.raises(ExportError) as raised:
                    await sending
            if raised.value.taken:  # else this process was too slow for the first batch
                return raised.value

    error = await main()

    assert (error.permanent, len(error.taken)) == (False, 1)


async def test_an_http_client_of_the_caller_is_used_and_stays_open() -> None:
    client = httpx2.AsyncClient(headers={"x-from": "client"})

    async def main() -> tuple[str, bool]:
        async with OTLPReceiver() as receiver, client:
            sender = sender_to(receiver.url, http=client)
            await send(sender, make_spans(1))
            await sender.aclose()
            return receiver.requests[0].headers["x-from"], client.is_closed

    assert (await main()) == ("client", False)


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
