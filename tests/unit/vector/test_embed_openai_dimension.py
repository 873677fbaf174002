"""Tests how `OpenAIEmbedder` learns its dimension, holds it, and gives it up."""

import asyncio
import json

import httpx2
import pytest

from lib.errors import InvalidReply, VectorError
from lib.vector import OpenAIEmbedder

from .embed_openai_kit import DIMENSION, Server, embedder


async def test_the_dimension_is_discovered_and_then_held() -> None:
    server = Server()
    unknown = embedder(server)
    with pytest.raises(VectorError, match="not known before its first vector"):
        _ = unknown.dimension
    nothing = await unknown.embed([])

    found = await unknown.discover()
    again = await unknown.discover()
    unknown_now = await unknown.embed([])

    assert (found, again, unknown.dimension) == (DIMENSION,) * 3
    assert (nothing.shape, unknown_now.shape) == ((0, 0), (0, DIMENSION))
    assert len(server.requests) == 1


class Lengths:
    """A server whose vectors have these lengths, a request each."""

    def __init__(self, *lengths: int) -> None:
        self.left = list(lengths)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        length = self.left.pop(0)
        texts = json.loads(request.content)["input"]
        data = [{"index": place, "embedding": [1.0] * length} for place in range(len(texts))]
        return httpx2.Response(200, json={"data": data})


async def lengths_of(client: OpenAIEmbedder, calls: int) -> list[int | None]:
    """Return the length of each call's vectors, None where it was refused."""
    found: list[int | None] = []
    for _ in range(calls):
        try:
            found.append((await client.embed(["a"])).shape[1])
        except InvalidReply:
            found.append(None)
    return found


@pytest.mark.parametrize(
    ("lengths", "found", "dimension"),
    [
        ([1, 3, 3, 3], [1, None, 3, 3], 3),  # the first was wrong
        ([3, 1, 3, 3], [3, None, 3, 3], 3),  # the second was
        ([3, 1, 3, 1, 3], [3, None, 3, None, 3], 3),
        ([3, 1, 2, 3], [3, None, None, 3], 3),
        ([3, 1, 2, 2], [3, None, None, 2], 2),
    ],
)
async def test_a_learned_dimension_is_dropped_when_the_server_contradicts_it_twice(
    lengths: list[int], found: list[int | None], dimension: int
) -> None:
    client = embedder(Lengths(*lengths))

    assert (await lengths_of(client, len(lengths))) == found
    assert client.dimension == dimension


async def test_a_configured_dimension_is_never_dropped() -> None:
    client = embedder(Lengths(1, 1, 1, 3), dimension=3)

    assert (await lengths_of(client, 4)) == [None, None, None, 3]
    assert client.dimension == 3


async def test_a_first_call_whose_batches_differ_does_not_fix_the_dimension() -> None:
    client = embedder(Lengths(1, 3, 3), batch_size=1, concurrency=1)

    with pytest.raises(InvalidReply, match="length 3, expected 1"):
        await client.embed(["a", "b"])

    assert (await lengths_of(client, 1)) == [3]


async def test_a_call_has_vectors_of_one_length_while_another_changes_what_is_known() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    lengths = Lengths(1, 3, 3)

    async def slow(request: httpx2.Request) -> httpx2.Response:
        if json.loads(request.content)["input"] == ["second"]:
            begun.set()
            await go_on.wait()
        return lengths(request)

    client = OpenAIEmbedder(
        "own-model",
        base_url="http://127.0.0.1:1/v1/",
        transport=httpx2.MockTransport(slow),
        batch_size=1,
        concurrency=1,
    )
    call = asyncio.create_task(client.embed(["first", "second"]))
    await begun.wait()
    assert await lengths_of(client, 1) == [None]
    go_on.set()

    with pytest.raises(InvalidReply, match="length 3, expected 1"):
        await call
    assert client.dimension == 3


async def test_the_dimensions_of_openais_models_are_known_and_others_requested() -> None:
    server = Server()
    small = embedder(server, model="text-embedding-3-small")
    same = embedder(server, model="text-embedding-3-small", dimension=1536)
    short = embedder(server, model="text-embedding-3-small", dimension=8)

    vectors = await short.embed(["x"])
    for wrong in (small, same):
        with pytest.raises(InvalidReply, match="length 4, expected 1536"):
            await wrong.embed(["x"])

    assert (small.dimension, same.dimension, short.dimension) == (1536, 1536, 8)
    assert vectors.shape == (1, 8)
    assert [request.get("dimensions") for request in server.requests] == [8, None, None]
