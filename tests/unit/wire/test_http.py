"""The wire against a real server: whose connections they are, how long they live, what fails."""

import asyncio
import gc
import json
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from traceback import format_exception
from typing import Any, cast

import httpx
import httpx2
import pytest

from lib.errors import InvalidReply, LLMError
from lib.llm import ChatClient, Delta, Message, Reply
from lib.testing.aio import run
from lib.testing.llm_server import API_KEY
from lib.vector import OpenAIEmbedder
from lib.wire.http import Wire


class Server(ThreadingHTTPServer):
    """Answers one embedding a text, keeps connections open and knows how many are."""

    daemon_threads = True
    request_queue_size = 100

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.changed = threading.Condition()
        self.connections = self.open = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def count(self, change: int) -> None:
        with self.changed:
            self.open += change
            self.connections += max(change, 0)
            self.changed.notify_all()

    def has_none_open(self) -> bool:
        """Wait until each connection is closed; a few seconds at most."""
        with self.changed:
            return self.changed.wait_for(lambda: not self.open, 5)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        cast(Server, self.server).count(1)
        super().setup()

    def finish(self) -> None:
        super().finish()
        cast(Server, self.server).count(-1)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked.get("stream"):
            chunk = {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}
            self.answer("text/event-stream", f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")
        elif "messages" in asked:
            choice = {"message": {"content": "hi"}, "finish_reason": "stop"}
            self.answer("application/json", json.dumps({"choices": [choice]}))
        else:
            texts = range(len(asked["input"]))
            data = [{"index": place, "embedding": [1.0, 2.0]} for place in texts]
            self.answer("application/json", json.dumps({"data": data}))

    def answer(self, media_type: str, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[httpx2.AsyncClient]:
    """The clients that have been made."""
    made: list[httpx2.AsyncClient] = []

    class Client(httpx2.AsyncClient):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            made.append(self)

    monkeypatch.setattr(httpx2, "AsyncClient", Client)
    return made


def wire(**options: Any) -> Wire:
    given: dict[str, Any] = {"timeout_s": 5.0, "max_bytes": 10_000}
    return Wire(**given | options, failure=LLMError, unreadable=InvalidReply)


async def ask(wire: Wire, url: str, texts: int = 1) -> int:
    """Return how many embeddings came back."""
    content = json.dumps({"input": ["a"] * texts}).encode()
    async with wire.post(url, content, {}) as answer:
        return len(json.loads(await answer.read())["data"])


def test_one_wire_serves_one_event_loop_after_another_and_leaves_no_connection_open(
    server: Server,
) -> None:
    shared = wire()

    for _ in range(3):
        assert run(ask(shared, server.url)) == 1
        assert server.has_none_open()

    assert server.connections == 3


def test_an_embedder_serves_one_event_loop_after_another(server: Server) -> None:
    embedder = OpenAIEmbedder("m", base_url=server.url, api_key=API_KEY)

    for _ in range(3):
        assert run(embedder.embed(["a"])).tolist() == [[1.0, 2.0]]


def test_a_chat_client_serves_one_event_loop_after_another(server: Server) -> None:
    client = ChatClient("m", base_url=server.url, api_key=API_KEY)
    hello = [Message.user("hello")]

    async def streamed() -> list[Delta | Reply]:
        return [piece async for piece in client.stream(hello)]

    for _ in range(3):
        assert run(client.complete(hello)).text == "hi"
        assert isinstance(run(streamed())[-1], Reply)

    assert server.has_none_open()


def test_an_answer_that_is_left_in_the_middle_does_not_outlive_its_event_loop(
    server: Server,
) -> None:
    client = ChatClient("m", base_url=server.url, api_key=API_KEY)
    left: list[object] = []  # so that the streams are not finished before the loop is

    async def begun() -> Delta | Reply:
        stream = client.stream([Message.user("hello")])
        left.append(stream)
        return await anext(stream)

    for _ in range(3):
        assert isinstance(run(begun()), Delta)
        assert server.has_none_open()


def test_a_transport_that_is_handed_in_serves_one_event_loop_after_another(server: Server) -> None:
    shared = wire(transport=httpx2.AsyncHTTPTransport())

    for _ in range(3):
        assert run(ask(shared, server.url)) == 1
        assert server.has_none_open()


def test_event_loops_in_two_threads_do_not_take_each_others_connections(server: Server) -> None:
    shared, together = wire(), threading.Barrier(2)

    async def main() -> int:
        found = await ask(shared, server.url)
        await asyncio.to_thread(together.wait, 5)
        return found + await ask(shared, server.url)

    with ThreadPoolExecutor(2) as threads:
        done = [threads.submit(run, main()) for _ in range(2)]

    assert [future.result() for future in done] == [2, 2]
    assert server.connections == 2
    assert server.has_none_open()


def test_an_event_loop_that_ended_without_a_word_is_forgotten() -> None:
    answered = httpx2.MockTransport(lambda _: httpx2.Response(200, json={"data": [1]}))
    shared = wire(transport=answered)

    for _ in range(3):
        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(ask(shared, "http://h/")) == 1
        loop.close()  # asyncio.run would shut down generators before

    assert len(shared._own) == 1  # pyright: ignore[reportPrivateUsage] - what it keeps is tested


def test_an_event_loop_that_goes_on_after_shutting_down_generators_is_served() -> None:
    answered = httpx2.MockTransport(lambda _: httpx2.Response(200, json={"data": [1]}))
    shared = wire(transport=answered)

    with asyncio.Runner() as runner:
        assert runner.run(ask(shared, "http://h/")) == 1
        runner.get_loop().run_until_complete(runner.get_loop().shutdown_asyncgens())
        with pytest.warns(ResourceWarning, match="after loop.shutdown_asyncgens"):
            assert runner.run(ask(shared, "http://h/")) == 1


def test_first_calls_at_once_share_one_client(
    server: Server, clients: list[httpx2.AsyncClient]
) -> None:
    async def main() -> None:
        shared = wire()
        assert await asyncio.gather(*(ask(shared, server.url) for _ in range(20))) == [1] * 20
        assert len(clients) == 1

        await shared.aclose()
        await shared.aclose()

        assert clients[0].is_closed
        assert await ask(shared, server.url) == 1
        assert [client.is_closed for client in clients] == [True, False]

    run(main())
    assert all(client.is_closed for client in clients)
    assert server.has_none_open()


def test_a_first_call_that_is_cancelled_leaves_the_others_served(server: Server) -> None:
    async def main() -> None:
        shared = wire()
        first, second = [asyncio.create_task(ask(shared, server.url)) for _ in range(2)]
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the event loop
        first.cancel()

        assert await second == 1
        assert first.cancelled()

    run(main())
    assert server.has_none_open()


def test_closing_while_a_first_call_is_on_its_way_does_not_break_it(
    server: Server, clients: list[httpx2.AsyncClient]
) -> None:
    async def main() -> None:
        shared = wire()
        first = asyncio.create_task(ask(shared, server.url))
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the event loop
        await shared.aclose()

        assert await first == 1
        assert await ask(shared, server.url) == 1
        assert len(clients) == 2

    run(main())
    assert all(client.is_closed for client in clients)
    assert server.has_none_open()


def test_a_wire_that_nobody_holds_any_more_closes_its_connections(server: Server) -> None:
    async def main() -> None:
        assert await ask(wire(), server.url) == 1
        gc.collect()
        assert await asyncio.to_thread(server.has_none_open)

    run(main())


def test_a_wire_that_is_let_go_with_its_event_loop_closes_all_its_connections(
    server: Server,
) -> None:
    async def main() -> None:
        shared = wire()
        await asyncio.gather(*(ask(shared, server.url) for _ in range(5)))

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(5):
            run(main())
            gc.collect()

    assert [str(warning.message) for warning in warned] == []
    assert server.has_none_open()


def test_a_client_that_is_handed_in_stays_open(server: Server) -> None:
    async def main() -> None:
        async with httpx2.AsyncClient() as http:
            shared = wire(http=http)
            assert await ask(shared, server.url) == 1
            await shared.aclose()
            assert not http.is_closed

    run(main())


ASKED: list[tuple[str, dict[str, str]]] = [
    ("http://user:secret@xn--☃.com/", {}),
    ("http://user:secret@a\x00b/", {}),
    ("http://user:secret@[::1]]/", {}),
    ("http://user:secret@h/\ud800", {}),
    ("http://h/", {"x-own": "secret ☃"}),
]


@pytest.mark.parametrize("library", [httpx2, httpx], ids=["httpx2", "httpx"])
@pytest.mark.parametrize(("url", "headers"), ASKED, ids=ascii)
def test_what_cannot_be_asked_is_a_failure_that_does_not_repeat_it(
    library: Any, url: str, headers: dict[str, str]
) -> None:
    async def main() -> None:
        async with library.AsyncClient() as http:
            with pytest.raises(LLMError, match="address or a header is not valid") as failed:
                async with wire(http=http).post(url, b"", headers):
                    pass

        assert not failed.value.retryable
        assert "secret" not in "".join(format_exception(failed.value))

    run(main())


def fail(wire: Wire, url: str) -> LLMError:
    with pytest.raises(LLMError) as raised:
        run(ask(wire, url))
    return raised.value


@pytest.mark.parametrize("library", [httpx2, httpx], ids=["httpx2", "httpx"])
def test_a_client_that_is_closed_is_a_failure_that_stays(library: Any, server: Server) -> None:
    http = library.AsyncClient()
    run(http.aclose())

    error = fail(wire(http=http), server.url)

    assert str(error) == "the client that was given as http is closed"
    assert not error.retryable


@pytest.mark.parametrize("raised", [KeyError("secret"), RuntimeError("secret"), OSError("secret")])
@pytest.mark.parametrize("library", [httpx2, httpx], ids=["httpx2", "httpx"])
def test_whatever_the_hook_of_a_client_raises_is_a_failure(
    library: Any, raised: Exception, server: Server
) -> None:
    async def hook(_: object) -> None:
        raise raised

    async def main() -> LLMError:
        async with library.AsyncClient(event_hooks={"response": [hook]}) as http:
            with pytest.raises(LLMError) as failed:
                await ask(wire(http=http), server.url)
            return failed.value

    error = run(main())

    assert str(error) == f"the HTTP client failed: {type(raised).__name__}"
    assert error.retryable == isinstance(raised, OSError)
    assert error.__cause__ is raised


@pytest.mark.parametrize("library", [httpx2, httpx], ids=["httpx2", "httpx"])
def test_a_client_of_another_event_loop_is_a_failure(library: Any, server: Server) -> None:
    async def main() -> LLMError:
        async with library.AsyncClient() as http:
            shared = wire(http=http)
            await ask(shared, server.url)
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
def test_a_header_of_authorization_wins_over_what_the_client_would_send(library: Any) -> None:
    async def main(url: str) -> None:
        async with library.AsyncClient(auth=("user", "password")) as http:
            shared = wire(http=http)
            for headers in ({"Authorization": "Bearer key"}, {"x-api-key": "key"}):
                async with shared.post(url, b"", headers):
                    pass

    with AuthServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        run(main(f"http://127.0.0.1:{server.server_port}/"))
        server.shutdown()
        thread.join()

    assert server.seen == ["Bearer key", "Basic dXNlcjpwYXNzd29yZA=="]


@pytest.mark.parametrize("given", [object(), "http://host", 7, httpx2.Client, httpx.Client()])
def test_what_is_no_client_is_refused_at_once(given: object) -> None:
    with pytest.raises(TypeError, match=r"http is of \w+, not an httpx2.AsyncClient"):
        wire(http=given)
