"""The client against a real server: which loop owns connections, and how long they live."""

import asyncio
import gc
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from fakes.llm_server import API_KEY
from lib.llm import ChatClient, Delta, Message, Reply
from lib.testing.aio import run
from lib.vector import OpenAIEmbedder

from .http_kit import Server, embed, make_client


def test_one_client_serves_one_event_loop_after_another_and_leaves_no_connection_open(
    server: Server,
) -> None:
    shared = make_client()

    for _ in range(3):
        assert run(embed(shared, server.url)) == 1
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


def test_a_callers_transport_serves_one_event_loop_after_another(server: Server) -> None:
    shared = make_client(transport=httpx2.AsyncHTTPTransport())

    for _ in range(3):
        assert run(embed(shared, server.url)) == 1
        assert server.has_none_open()


def test_event_loops_in_two_threads_do_not_take_each_others_connections(server: Server) -> None:
    shared, together = make_client(), threading.Barrier(2)

    async def main() -> int:
        found = await embed(shared, server.url)
        await asyncio.to_thread(together.wait, 5)
        return found + await embed(shared, server.url)

    with ThreadPoolExecutor(2) as threads:
        done = [threads.submit(run, main()) for _ in range(2)]

    assert [future.result() for future in done] == [2, 2]
    assert server.connections == 2
    assert server.has_none_open()


def test_an_event_loop_that_ended_abruptly_is_forgotten() -> None:
    answered = httpx2.MockTransport(lambda _: httpx2.Response(200, json={"data": [1]}))
    shared = make_client(transport=answered)

    for _ in range(3):
        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(embed(shared, "http://h/")) == 1
        loop.close()  # asyncio.run would shut down generators before

    assert len(shared._own) == 1  # pyright: ignore[reportPrivateUsage] - what it keeps is tested


def test_an_event_loop_that_goes_on_after_shutting_down_generators_is_served() -> None:
    answered = httpx2.MockTransport(lambda _: httpx2.Response(200, json={"data": [1]}))
    shared = make_client(transport=answered)

    with asyncio.Runner() as runner:
        assert runner.run(embed(shared, "http://h/")) == 1
        runner.get_loop().run_until_complete(runner.get_loop().shutdown_asyncgens())
        with pytest.warns(ResourceWarning, match="after loop.shutdown_asyncgens"):
            assert runner.run(embed(shared, "http://h/")) == 1


def test_first_calls_at_once_share_one_client(
    server: Server, clients: list[httpx2.AsyncClient]
) -> None:
    async def main() -> None:
        shared = make_client()
        assert await asyncio.gather(*(embed(shared, server.url) for _ in range(20))) == [1] * 20
        assert len(clients) == 1

        await shared.aclose()
        await shared.aclose()

        assert clients[0].is_closed
        assert await embed(shared, server.url) == 1
        assert [client.is_closed for client in clients] == [True, False]

    run(main())
    assert all(client.is_closed for client in clients)
    assert server.has_none_open()


def test_a_first_call_that_is_cancelled_leaves_the_others_served(server: Server) -> None:
    async def main() -> None:
        shared = make_client()
        first, second = [asyncio.create_task(embed(shared, server.url)) for _ in range(2)]
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
        shared = make_client()
        first = asyncio.create_task(embed(shared, server.url))
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the event loop
        await shared.aclose()

        assert await first == 1
        assert await embed(shared, server.url) == 1
        assert len(clients) == 2

    run(main())
    assert all(client.is_closed for client in clients)
    assert server.has_none_open()


def test_a_client_without_references_closes_its_connections(server: Server) -> None:
    async def main() -> None:
        assert await embed(make_client(), server.url) == 1
        gc.collect()
        assert await asyncio.to_thread(server.has_none_open)

    run(main())


def test_a_client_dropped_with_its_event_loop_closes_all_its_connections(
    server: Server,
) -> None:
    async def main() -> None:
        shared = make_client()
        await asyncio.gather(*(embed(shared, server.url) for _ in range(5)))

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(5):
            run(main())
            gc.collect()

    assert [str(warning.message) for warning in warned] == []
    assert server.has_none_open()
