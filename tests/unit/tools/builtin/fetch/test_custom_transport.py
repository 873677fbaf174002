"""Transports of the caller's: the URL has the address, everything else the name."""

import ssl
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest

from fakes.hostile_server import HostileServer
from lib.errors import FetchBlocked, ToolError
from lib.tools.builtin import FetchPolicy, SafeFetcher

TLS = Path(__file__).parents[4] / "data" / "builtin" / "tls"
TWO = ["93.184.216.34", "2606:4700::1111"]


async def resolve(host: str, port: int) -> list[str]:
    return TWO


@pytest.mark.parametrize("package", [httpx2, httpx])
async def test_a_transport_gets_the_address_and_the_name(package: Any) -> None:
    seen: list[Any] = []

    def serve(request: Any) -> Any:
        seen.append(request)
        return package.Response(200, text="a page")

    fetcher = SafeFetcher(
        FetchPolicy(allowed_ports=(443, 444)),
        resolver=resolve,
        transport=package.MockTransport(serve),
    )
    page = await fetcher.fetch("https://example.com:444/a?b=%20")

    (request,) = seen
    assert page.body == b"a page"
    assert page.url == "https://example.com:444/a?b=%20"
    assert (request.method, str(request.url)) == ("GET", "https://93.184.216.34:444/a?b=%20")
    assert request.extensions["sni_hostname"] == "example.com"
    assert request.extensions["timeout"]["connect"] == 5.0
    assert request.headers["host"] == "example.com:444"
    assert request.headers["connection"] == "close"
    assert request.headers["accept-encoding"] == "gzip, deflate"
    assert "cookie" not in request.headers


async def test_an_address_in_the_url_stays_and_needs_no_name() -> None:
    seen: list[httpx2.Request] = []

    def serve(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, text="a page")

    fetcher = SafeFetcher(transport=httpx2.MockTransport(serve))
    await fetcher.fetch("https://[2606:4700:0::1111]/")

    assert str(seen[0].url) == "https://[2606:4700::1111]/"
    assert seen[0].headers["host"] == "[2606:4700::1111]"
    assert "sni_hostname" not in seen[0].extensions


async def test_the_next_address_is_tried_where_one_takes_no_connection() -> None:
    seen: list[str] = []

    def serve(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.url.host)
        raise httpx2.ConnectError(f"refused by {request.url.host}")

    fetcher = SafeFetcher(resolver=resolve, transport=httpx2.MockTransport(serve))
    with pytest.raises(ToolError) as caught:
        await fetcher.fetch("https://example.com/")

    assert seen == TWO
    assert str(caught.value) == "the connection to 'example.com' failed"
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "error",
    [RuntimeError("key at 10.0.0.1"), httpx2.InvalidURL("10.0.0.1"), KeyError("10.0.0.1")],
    ids=repr,
)
async def test_the_error_of_a_transport_is_not_shown(error: Exception) -> None:
    def serve(request: httpx2.Request) -> httpx2.Response:
        raise error

    fetcher = SafeFetcher(resolver=resolve, transport=httpx2.MockTransport(serve))
    with pytest.raises(ToolError) as caught:
        await fetcher.fetch("https://example.com/")

    assert (caught.value.code, str(caught.value)) == (
        "unavailable",
        "the connection to 'example.com' failed",
    )
    assert caught.value.__context__ is None


async def test_an_address_that_may_not_be_reached_never_gets_to_the_transport() -> None:
    async def inside(host: str, port: int) -> list[str]:
        return ["10.0.0.1"]

    def serve(request: Any) -> Any:
        raise AssertionError

    fetcher = SafeFetcher(resolver=inside, transport=httpx2.MockTransport(serve))
    with pytest.raises(FetchBlocked, match="address not public"):
        await fetcher.fetch("https://example.com/")


class Rerouted(httpx2.AsyncHTTPTransport):
    """A real transport whose connections end at the hostile server, whatever the address."""

    def __init__(self, port: int) -> None:
        context = ssl.create_default_context(cafile=TLS / "authority.pem")
        super().__init__(verify=context)
        self._port = port
        self.closed = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(host="127.0.0.1", port=self._port)
        return await super().handle_async_request(request)

    async def aclose(self) -> None:
        self.closed = True
        await super().aclose()


async def test_a_second_name_on_an_address_does_not_get_the_connection_of_the_first() -> None:
    async with HostileServer(certificate=TLS / "good.pem") as server:
        transport = Rerouted(server.https_port)
        async with SafeFetcher(resolver=resolve, transport=transport) as fetcher:
            for _ in range(2):
                assert (await fetcher.fetch("https://a.example.com/")).body == b"a page"
            with pytest.raises(ToolError, match=r"certificate of 'wrong\.example\.com'"):
                await fetcher.fetch("https://wrong.example.com/")
            with pytest.raises(ToolError, match="valid HTTP"):
                await fetcher.fetch("https://a.example.com/http_0_9")
            cut = await fetcher.fetch("https://a.example.com/content_length_large")
            assert (cut.body, cut.truncated) == (b"a page", True)
        assert transport.closed
        assert [request.connection for request in server.requests] == [0, 1, 2, 3]
        assert {request.server_name for request in server.requests} == {"a.example.com"}


async def test_a_transport_of_no_known_package_is_spoken_to_in_terms_of_httpx2() -> None:
    class Transport:
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(200, text=request.url.host)

    transport: Any = Transport()

    page = await SafeFetcher(resolver=resolve, transport=transport).fetch("https://example.com/")

    assert page.body == b"93.184.216.34"


async def test_a_body_whose_iterator_cannot_be_closed_is_read() -> None:
    class Once:
        def __init__(self) -> None:
            self._left = [b"a ", b"page"]

        def __aiter__(self) -> "Once":
            return self

        async def __anext__(self) -> bytes:
            if not self._left:
                raise StopAsyncIteration
            return self._left.pop(0)

    class Stream(httpx2.AsyncByteStream):
        def __aiter__(self) -> Any:
            return Once()

    def serve(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, stream=Stream(), headers={"Content-Type": "text/plain"})

    fetcher = SafeFetcher(resolver=resolve, transport=httpx2.MockTransport(serve))

    assert (await fetcher.fetch("https://example.com/")).body == b"a page"
