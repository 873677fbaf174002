"""httpx clients of the caller: they stay open, and their failures become remote errors."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from traceback import format_exception
from typing import Any, cast

import httpx
import httpx2
import pytest

from lib.errors import LLMError
from lib.http.client import HTTPClient
from lib.testing.aio import run

from .http_kit import Server, embed, make_client

# Each is made before the event loop: the first of all loads modules, which blocks.


async def test_a_callers_client_stays_open(server: Server) -> None:
    http = httpx2.AsyncClient()

    async with http:
        shared = make_client(http=http)
        assert await embed(shared, server.url) == 1
        await shared.aclose()
        assert not http.is_closed


REQUESTS: list[tuple[str, dict[str, str]]] = [
    ("http://user:secret@xn--☃.com/", {}),
    ("http://user:secret@a\x00b/", {}),
    ("http://user:secret@[::1]]/", {}),
    ("http://user:secret@h/\ud800", {}),
    ("http://h/", {"x-own": "secret ☃"}),
]


@pytest.mark.parametrize("library", [httpx2, httpx], ids=["httpx2", "httpx"])
@pytest.mark.parametrize(("url", "headers"), REQUESTS, ids=ascii)
async def test_an_invalid_address_or_header_is_an_error_that_does_not_repeat_it(
    library: Any, url: str, headers: dict[str, str]
) -> None:
    http = library.AsyncClient()

    async with http:
        with pytest.raises(LLMError, match="address or a header is not valid") as failed:
            async with make_client(http=http).post(url, b"", headers):
                pass

    assert not failed.value.retryable
    assert "secret" not in "".join(format_exception(failed.value))


def fail(client: HTTPClient, url: str) -> LLMError:
    with pytest.raises(LLMError) as raised:
        run(embed(client, url))
    return raised.value


@pytest.mark.parametrize("library", [httpx2, httpx], ids=["httpx2", "httpx"])
def test_a_closed_client_is_an_error_that_is_not_retried(library: Any, server: Server) -> None:
    http = library.AsyncClient()
    run(http.aclose())

    error = fail(make_client(http=http), server.url)

    assert str(error) == "the client passed as http is closed"
    assert not error.retryable


@pytest.mark.parametrize("raised", [KeyError("secret"), RuntimeError("secret"), OSError("secret")])
@pytest.mark.parametrize("library", [httpx2, httpx], ids=["httpx2", "httpx"])
async def test_an_error_of_a_clients_hook_is_a_remote_error(
    library: Any, raised: Exception, server: Server
) -> None:
    async def hook(_: object) -> None:
        raise raised

    http = library.AsyncClient(event_hooks={"response": [hook]})

    async with http:
        with pytest.raises(LLMError) as failed:
            await embed(make_client(http=http), server.url)
        error = failed.value

    assert str(error) == f"the HTTP client failed: {type(raised).__name__}"
    assert error.retryable == isinstance(raised, OSError)
    assert error.__cause__ is raised


@pytest.mark.parametrize("library", [httpx2, httpx], ids=["httpx2", "httpx"])
def test_a_client_of_another_event_loop_is_an_error(library: Any, server: Server) -> None:
    http = library.AsyncClient()

    async def main() -> LLMError:
        async with http:
            shared = make_client(http=http)
            await embed(shared, server.url)
            return await asyncio.to_thread(fail, shared, server.url)

    error = run(main())

    assert str(error).startswith("the HTTP client failed: ")
    assert not error.retryable


class AuthServer(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), AuthHandler)
        self.seen: list[str | None] = []


class AuthHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        cast(AuthServer, self.server).seen.append(self.headers["authorization"])
        self.send_response(204)
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Keep quiet."""


@pytest.mark.parametrize("library", [httpx2, httpx], ids=["httpx2", "httpx"])
async def test_a_header_of_authorization_wins_over_what_the_client_would_send(library: Any) -> None:
    http = library.AsyncClient(auth=("user", "password"))

    async def main(url: str) -> None:
        async with http:
            shared = make_client(http=http)
            for headers in ({"Authorization": "Bearer key"}, {"x-api-key": "key"}):
                async with shared.post(url, b"", headers):
                    pass

    with AuthServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        await main(f"http://127.0.0.1:{server.server_port}/")
        server.shutdown()
        thread.join()

    assert server.seen == ["Bearer key", "Basic dXNlcjpwYXNzd29yZA=="]


@pytest.mark.parametrize("other", [object(), "http://host", 7, httpx2.Client, httpx.Client()])
def test_another_object_than_a_client_is_refused_at_once(other: object) -> None:
    with pytest.raises(TypeError, match=r"expected an httpx2.AsyncClient as http, got \w+"):
        make_client(http=other)
