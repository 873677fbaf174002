"""Streams that are left, calls that are cancelled, clients that are shared or closed."""

import asyncio
from types import ModuleType
from typing import Any, cast

import httpx2
import pytest

from fakes.llm_server import API_KEY, ChatServer, Hang
from lib.llm import ChatClient, Delta, Message, Reply

from .chat_kit import HI, connected, failure, reply


async def test_a_stream_that_is_left_in_the_middle_closes_its_connection():
    async with connected(["a long answer", "another"]) as (client, server):
        pieces = client.stream(HI)
        assert await anext(pieces) == Delta(text="a lon")
        await cast(Any, pieces).aclose()
        assert await client.complete(HI) == reply("another")
        assert server.connections == 2


async def test_a_cancelled_call_leaves_the_client_usable():
    async with connected([Hang(), "hello"]) as (client, server):
        task = asyncio.create_task(client.complete(HI))
        while not server.requests:
            await asyncio.wait([task], timeout=0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await client.complete(HI) == reply("hello")


async def test_many_calls_at_once_each_get_their_own_answer():
    def answer(body: dict[str, Any]) -> Reply:
        return reply(body["messages"][0]["content"])

    async with ChatServer(answer) as server:
        client = ChatClient("m", base_url=server.base_url, api_key=API_KEY)
        texts = [f"call {number}" for number in range(20)]
        replies = await asyncio.gather(*(client.complete([Message.user(text)]) for text in texts))
        assert [one.text for one in replies] == texts
        await client.aclose()


async def test_a_client_that_was_given_is_used_and_left_open():
    def handle(request: httpx2.Request) -> httpx2.Response:
        assert request.headers["x-gateway"] == "yes"
        return httpx2.Response(200, json={"choices": [{"message": {"content": "hello"}}]})

    http = httpx2.AsyncClient(
        transport=httpx2.MockTransport(handle), headers={"x-gateway": "yes"}, follow_redirects=True
    )

    client = ChatClient("m", api_key="k", http=http)
    assert (await client.complete(HI)).text == "hello"
    await client.aclose()
    assert not http.is_closed
    await http.aclose()


async def test_a_closed_client_opens_anew():
    async with connected(["one", "two"]) as (client, server):
        assert await client.complete(HI) == reply("one")
        await client.aclose()
        await client.aclose()
        assert await client.complete(HI) == reply("two")
        assert server.connections == 2


async def test_objects_of_the_older_package_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch):
    """`httpx` is the same library under its older name; its errors are classes of its own."""
    older: Any = ModuleType("httpx")

    class OlderError(Exception):
        pass

    class ConnectError(OlderError):
        pass

    class OlderTransport(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            raise ConnectError

    class OlderClient(httpx2.AsyncClient):
        pass

    for kind in (OlderTransport, OlderClient):
        kind.__module__ = "httpx._somewhere"
    older.HTTPError, older.AsyncClient = OlderError, OlderClient
    older.Timeout, older.Limits = httpx2.Timeout, httpx2.Limits
    monkeypatch.setitem(__import__("sys").modules, "httpx", older)

    client = ChatClient("m", api_key="k", transport=OlderTransport())
    error = await failure(client, stream=False)
    assert str(error) == "the connection to the server failed: ConnectError"
    await client.aclose()
