"""The embedder against a server at the wire, and that server against OpenAI's own client."""

import base64
from typing import Any

import httpx2
import numpy as np
import pytest
from openai import AsyncOpenAI

from lib.vector import OpenAIEmbedder

from .embed_openai_kit import KEY, Server, embedder, vector_of

TEXTS = ["one", "two words", "three", "naïve 猫", "five"]


@pytest.mark.parametrize("style", ["base64", "float"])
async def test_vectors_come_back_in_the_order_of_the_texts(style: str) -> None:
    server = Server(style=style)

    vectors = await embedder(server).embed(TEXTS)

    assert vectors.dtype == np.float32
    assert vectors.tolist() == [vector_of(text) for text in TEXTS]
    assert server.requests == [{"model": "own-model", "input": TEXTS, "encoding_format": "base64"}]
    assert server.urls == ["http://127.0.0.1:1/v1/embeddings"]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("style", ["base64", "float"])
async def test_the_official_client_reads_the_same_from_this_server(style: str) -> None:
    server = Server(style=style)
    transport = httpx2.MockTransport(server)
    async with (
        httpx2.AsyncClient(transport=transport) as http,
        AsyncOpenAI(base_url="http://127.0.0.1:1/v1", api_key=KEY, http_client=http) as official,
    ):
        reply = await official.embeddings.create(
            model="own-model", input=TEXTS, encoding_format="base64"
        )
        ours = await embedder(server).embed(TEXTS)

    theirs = [item.embedding for item in sorted(reply.data, key=lambda item: item.index)]
    decoded = [
        np.frombuffer(base64.b64decode(row), "<f4") if isinstance(row, str) else row
        for row in theirs
    ]
    assert np.array_equal(np.array(decoded, np.float32), ours)
    assert server.requests[0] == server.requests[1]


async def test_texts_are_sent_in_batches_of_bounded_number_and_size() -> None:
    server = Server()
    texts = ["a", "b", "c", "x" * 200_000, "é" * 30_000, "y" * 300_000, "z"]

    vectors = await embedder(server, batch_size=3).embed(texts)

    assert server.sizes == [3, 1, 1, 1, 1]
    assert vectors.tolist() == [vector_of(text) for text in texts]


async def test_documents_and_queries_can_have_prefixes_and_empty_texts_are_a_space() -> None:
    server = Server()
    prefixed = embedder(server, document_prefix="passage: ", query_prefix="query: ")

    await prefixed.embed(["x", ""])
    await prefixed.embed(["x"], purpose="query")
    await embedder(server).embed([""])

    assert [request["input"] for request in server.requests] == [
        ["passage: x", "passage: "],
        ["query: x"],
        [" "],
    ]


async def test_a_server_without_indexes_is_taken_at_its_order() -> None:
    items = [{"embedding": [1.0, 2.0]}, {"embedding": [3.0, 4.0], "index": None}]

    vectors = await embedder(Server(data=items)).embed(["a", "b"])

    assert vectors.tolist() == [[1.0, 2.0], [3.0, 4.0]]


async def test_keys_and_addresses_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server()
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:2/v1")

    await OpenAIEmbedder("m", transport=httpx2.MockTransport(server)).embed(["a"])

    assert server.urls == ["http://127.0.0.1:2/v1/embeddings"]
    assert server.headers[0]["authorization"] == "Bearer sk-env"


async def test_other_servers_need_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    await embedder(server, api_key=None).embed(["a"])

    assert "authorization" not in server.headers[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "OpenAI needs a key"),
        ({"api_key": "two words"}, "no key has"),
        ({"base_url": "localhost:8000"}, "http or https address"),
        ({"api_key": "k", "batch_size": 0}, "at least 1"),
        ({"api_key": "k", "dimension": 0}, "at least 1"),
    ],
)
def test_impossible_settings_are_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    with pytest.raises(ValueError, match=message):
        OpenAIEmbedder(**options)


async def test_closing_it_closes_its_connections() -> None:
    used = embedder(Server())
    await used.embed(["a"])

    await used.aclose()
    vectors = await used.embed(["a"])
    await used.aclose()

    assert vectors.tolist() == [vector_of("a")]
