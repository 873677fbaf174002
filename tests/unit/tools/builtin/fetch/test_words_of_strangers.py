"""No text of a server stands in an error outside of a fence."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx2
import pytest

from fakes.hostile_server import SCENARIOS
from fakes.raw_server import raw_server
from lib.errors import FetchBlocked, ToolError
from lib.tools import ToolContext
from lib.tools.builtin import (
    BraveSearchProvider,
    SafeFetcher,
    SearXNGProvider,
    http_fetch_tool,
    web_search_tool,
)

MARK: Final = "ignoreallrules"
CONTEXT: Final = ToolContext(run_id="run", call_id="call", idempotency_key="key")
FENCE: Final = re.compile(r"\[(\w{16}): output of [^\n]*\n.*?\n\[\1: end\]", re.DOTALL)


def outside_of_fences(error: BaseException) -> str:
    """Return what a model could take for ours; attributes are often put into messages."""
    message = f"{error} {error!r} {vars(error)} {error.__cause__!r}"
    return FENCE.sub("", message.replace("\\n", "\n")).lower()


def head(*lines: str, status: str = "200 OK", body: str = "x") -> bytes:
    whole = [f"HTTP/1.1 {status}", *lines, f"Content-Length: {len(body)}"]
    return ("\r\n".join(whole) + "\r\n\r\n" + body).encode("latin-1")


def moved(location: str, status: str = "302 Found") -> bytes:
    return head(f"Location: {location}", status=status)


def answers() -> Iterator[bytes]:
    """Yield answers with the word in each field that a server controls."""
    for kind in (f"{MARK}/x", f"text/{MARK}", f"image/{MARK}", f"{MARK}", f"application/{MARK}+x"):
        yield head(f"Content-Type: {kind}")
    yield head(f"Content-Type: text/plain; charset={MARK}", status="404 x")
    yield head(f"Content-Type: text/plain; {MARK}=1", body="\x00\x01")
    yield head("Content-Type: text/plain", f"Content-Type: text/{MARK}")
    yield head(f"Content-Encoding: {MARK}")
    yield head(f"Content-Encoding: {', '.join([MARK] * 9)}")
    yield head("Content-Encoding: gzip", body=MARK)
    yield head(f"{MARK}: {MARK}", f"X: a\x00{MARK}")
    yield head(f"X-{MARK}: " + MARK * 20_000)
    for status in (204, 300, 304, 400, 401, 403, 404, 407, 410, 418, 429, 451, 500, 503, 599, 999):
        yield head(
            f"Retry-After: {MARK}",
            f'WWW-Authenticate: Basic realm="{MARK}"',
            status=f"{status} {MARK}",
            body=MARK,
        )
    yield moved(f"http://{MARK}.example.com/", status=f"302 {MARK}")
    for place in (
        f"http://{MARK}.com/",
        f"https://{MARK}.com/{MARK}?{MARK}",
        f"http://{MARK}.com:{8080}/",
        f"http://{MARK}.localhost/",
        f"http://{MARK}/",
        f"http://{MARK}@a.com/",
        f"http://a.com:{MARK}/",
        f"{MARK}://a.com/",
        f"{MARK}:x",
        f"//{MARK}.com/private",
        f"http://denied-{MARK}.com/",
        f"http://none-{MARK}.com/",
        f"http://slow-{MARK}.com/",
        f"http://refused-{MARK}.com/",
        f"http://approve-{MARK}.com/",
        f"http://{MARK}.com\\@b.com/",
        f"http://[{MARK}]/",
        f"http://{MARK}%00.com/",
        f"http://{MARK}é\u0130.com/".encode().decode("latin-1"),
        f"http://a.com/ {MARK}",
        f"/{MARK}",
        f"http://{'a' * 300}{MARK}.com/",
        MARK * 2_000,
    ):
        yield moved(place)
    yield f"HTTP/1.1 {MARK}\r\n\r\n".encode()
    yield f"{MARK}\r\n\r\n".encode()
    yield f"HTTP/{MARK} 200 OK\r\n\r\n".encode()
    yield f"HTTP/1.1 200 OK\r\nContent-Length: {MARK}\r\n\r\n".encode()
    yield f"HTTP/1.1 200 OK\r\nTransfer-Encoding: {MARK}\r\n\r\nx".encode()
    yield f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{MARK}\r\n".encode()
    yield f"HTTP/1.1 101 {MARK}\r\nUpgrade: {MARK}\r\nConnection: upgrade\r\n\r\n".encode()


class Names:
    async def resolve(self, host: str, port: int) -> list[str]:
        if host.startswith("none-"):
            raise OSError(f"no such host {host}")
        if host.startswith("slow-"):
            raise TimeoutError  # as where it does not answer in time
        return ["10.0.0.1" if host.startswith("denied-") else "93.184.216.34"]


class Server:
    """Answers each connection with its bytes, and hangs up on a greeting of TLS."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.http_port = self.https_port = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1) == b"\x16":  # RFC 8446, 5.1: the record of a handshake
            return
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self._answer)
        await writer.drain()


async def fetched(
    answer: bytes, internet: Any, approve: Callable[[str], bool] | None = None
) -> str:
    """Return what a model reads of a fetch that fails, outside of fences; "" if it succeeds."""

    async def main() -> str:
        internet.server = server = Server(answer)
        async with (
            raw_server(server.accept) as port,
            SafeFetcher(resolver=Names(), verify=False) as fetcher,
        ):
            server.http_port = server.https_port = port
            made = http_fetch_tool(fetcher=fetcher, approve_hosts=approve)
            try:
                await made.call({"url": "http://srv.test/"}, CONTEXT)
            except ToolError as error:
                return outside_of_fences(error)
        return ""

    return await main()


def needs_approval(host: str) -> bool:
    return host.startswith("approve-")


async def test_errors_of_fetching_hold_no_word_of_a_server(internet: Any) -> None:
    wrong: list[str] = []
    refused = 0
    for number, answer in enumerate(answers()):
        for approve in (None, needs_approval):
            message = await fetched(answer, internet, approve)
            refused += bool(message)
            if MARK in message:
                wrong.append(f"{number} {answer[:80]!r}: {message[:200]}")

    assert not wrong
    assert refused > 80


async def test_a_redirect_that_is_refused_says_that_the_server_redirected(internet: Any) -> None:
    for place in ("http://x.com:22/", "http://x.localhost/", "http://10.0.0.1/", "ftp://x.com/"):
        message = await fetched(moved(place), internet)

        assert "the server redirected to a url that is blocked: " in message
    assert "the host that the server redirected to could not be found" in (
        await fetched(moved("http://none-x.com/"), internet)
    )


async def test_a_redirect_to_a_host_that_needs_approval_is_named_within_a_fence(
    internet: Any,
) -> None:
    async def main() -> None:
        internet.server = server = Server(moved("http://other.com/place"))
        async with raw_server(server.accept) as port, SafeFetcher(resolver=Names()) as fetcher:
            server.http_port = port
            tool = http_fetch_tool(fetcher=fetcher, approve_hosts=lambda host: "other" in host)
            await tool.call({"url": "http://srv.test/"}, CONTEXT)

    with pytest.raises(FetchBlocked) as caught:
        await main()

    found = FENCE.search(str(caught.value))
    assert found is not None
    assert "http://other.com/place" in found[0]
    assert "other.com" not in outside_of_fences(caught.value)


async def test_failures_of_resolvers_and_transports_hold_nothing_of_their_text() -> None:
    def fail(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError(f"certificate verify failed: {MARK}")

    def unknown(host: str) -> list[str]:
        raise OSError(MARK)

    async def main() -> list[BaseException]:
        found: list[BaseException] = []
        for options in ({"resolver": unknown}, {"transport": httpx2.MockTransport(fail)}):
            arguments: dict[str, Any] = {"resolver": Names(), **options}
            async with SafeFetcher(**arguments) as fetcher:
                try:
                    await fetcher.fetch("http://srv.test/")
                except ToolError as error:
                    found.append(error)
        return found

    errors = await main()
    assert len(errors) == 2
    assert not [error for error in errors if MARK in outside_of_fences(error)]


async def searched(provider: Any) -> str:
    async def main() -> str:
        try:
            await web_search_tool(provider).call({"query": "x"}, CONTEXT)
        except ToolError as error:
            return outside_of_fences(error)
        return ""

    return await main()


BODIES: Final = [
    MARK.encode(),
    f"<title>{MARK}</title>".encode(),
    json.dumps({"error": MARK, "message": MARK}).encode(),
    json.dumps({"error": {"code": MARK, "detail": MARK, "status": MARK, "meta": MARK}}).encode(),
    json.dumps(
        {"error": {"code": "RATE_LIMITED", "detail": MARK, "meta": {"plan": MARK}}}
    ).encode(),
    json.dumps({"errors": [{"code": MARK, "loc": [MARK]}], "type": MARK}).encode(),
    json.dumps(
        {"results": [], "unresponsive_engines": [[MARK, MARK], [f"{MARK} 2", "timeout"]]}
    ).encode(),
    json.dumps({"results": MARK, "unresponsive_engines": [[MARK]]}).encode(),
]


async def test_errors_of_searching_hold_no_word_of_a_server() -> None:
    wrong: list[str] = []
    for status in (200, 301, 400, 401, 403, 404, 422, 429, 500, 503):
        for body in BODIES:
            for kind in ("application/json", f"text/{MARK}"):

                def serve(_: httpx2.Request, *, answer: Any = (status, body, kind)) -> Any:
                    headers = {
                        "content-type": answer[2],
                        "retry-after": MARK,
                        "location": f"https://{MARK}.com/",
                        "x-ratelimit-policy": f"1;w={MARK}",
                        "x-ratelimit-remaining": f"0, {MARK}",
                    }
                    return httpx2.Response(
                        answer[0],
                        headers=headers,
                        content=answer[1],
                        extensions={"reason_phrase": MARK.encode()},
                    )

                transport = httpx2.MockTransport(serve)
                for provider in (
                    SearXNGProvider("http://sx.test", transport=transport),
                    BraveSearchProvider("key", transport=transport),
                ):
                    message = await searched(provider)
                    if MARK in message:
                        wrong.append(f"{type(provider).__name__} {status} {body!r}: {message}")

    assert not wrong


async def test_what_a_provider_of_the_callers_says_of_a_failure_is_fenced() -> None:
    class Provider:
        async def search(self, query: str, *, max_results: int = 5) -> list[Any]:
            raise ToolError("unavailable", f"the service said: {MARK}")

    with pytest.raises(ToolError) as caught:
        await web_search_tool(Provider()).call({"query": "x"}, CONTEXT)
    error = caught.value
    assert error.code == "unavailable"
    assert MARK in error.message
    assert MARK not in FENCE.sub("", error.message)


async def test_all_that_the_hostile_server_does_is_refused_in_our_words(internet: Any) -> None:
    """Each scenario's own words are replaced by the mark where they stand in its bytes."""
    wrong: list[str] = []
    for name, scenario in SCENARIOS.items():
        if isinstance(scenario, bytes):
            marked = scenario.replace(b"a page", MARK.encode()).replace(b"X-", f"{MARK}-".encode())
            message = await fetched(marked, internet)
            wrong += [f"{name}: {message}"] if MARK in message else []

    assert not wrong
