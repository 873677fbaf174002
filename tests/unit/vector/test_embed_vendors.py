"""The embedders of Cohere and Voyage: what goes out, what comes back, what is refused."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import pytest

from fakes.model_servers import (
    API_KEY,
    DIMENSION,
    CohereServer,
    OpenAIServer,
    VendorServer,
    VoyageServer,
    vector_of,
)
from lib.errors import InvalidReply, LLMError, VectorError
from lib.resilience import RetryPolicy
from lib.testing.clock import ManualClock
from lib.vector import CohereEmbedder, OpenAIEmbedder, VoyageEmbedder
from lib.vector.embed.remote import RemoteEmbedder

TEXTS = ["one", "two words", "three", "naïve 猫", "five"]

Connect = Callable[..., RemoteEmbedder]
Vendor = tuple[Callable[..., VendorServer], Connect]
VENDORS: dict[str, Vendor] = {
    "cohere": (CohereServer, CohereEmbedder),
    "voyage": (VoyageServer, VoyageEmbedder),
    "openai": (OpenAIServer, OpenAIEmbedder),
}


@pytest.fixture(params=VENDORS.values(), ids=list(VENDORS))
def vendor(request: pytest.FixtureRequest) -> Vendor:
    return request.param


def connected(connect: Connect, server: VendorServer, **options: Any) -> RemoteEmbedder:
    arguments: dict[str, Any] = {"api_key": API_KEY, "model": "own-model"}
    return connect(**arguments | options, transport=server.transport)


def vectors_of(texts: list[str], dimension: int = DIMENSION) -> list[list[float]]:
    return [vector_of(text, dimension) for text in texts]


async def test_cohere_gets_the_purpose_of_texts() -> None:
    server = CohereServer()
    embedder = CohereEmbedder(api_key=API_KEY, transport=server.transport, dimension=256)

    documents = await embedder.embed(TEXTS)
    query = await embedder.embed(TEXTS[:1], purpose="query")

    assert documents.tolist() == vectors_of(TEXTS, 256)
    assert query.tolist() == vectors_of(TEXTS[:1], 256)
    assert server.requests[0].url == "https://api.cohere.com/v2/embed"
    assert server.bodies[0] == {
        "model": "embed-v4.0",
        "texts": TEXTS,
        "input_type": "search_document",
        "embedding_types": ["float"],
        "truncate": "END",
        "output_dimension": 256,
    }
    assert server.bodies[1]["input_type"] == "search_query"


async def test_voyage_gets_the_purpose_of_texts() -> None:
    server = VoyageServer()
    embedder = VoyageEmbedder(api_key=API_KEY, transport=server.transport, dimension=256)

    documents = await embedder.embed(TEXTS)
    query = await embedder.embed(TEXTS[:1], purpose="query")

    assert documents.tolist() == vectors_of(TEXTS, 256)
    assert query.tolist() == vectors_of(TEXTS[:1], 256)
    assert server.requests[0].url == "https://api.voyageai.com/v1/embeddings"
    assert server.bodies[0] == {
        "model": "voyage-4",
        "input": TEXTS,
        "input_type": "document",
        "truncation": True,
        "encoding_format": "base64",
        "output_dimension": 256,
    }
    assert server.bodies[1]["input_type"] == "query"


async def test_an_embedder_sends_only_its_arguments(vendor: Vendor) -> None:
    serve, connect = vendor
    server = serve()

    await connected(connect, server).embed(TEXTS)

    assert {"output_dimension", "dimensions"}.isdisjoint(server.bodies[0])


async def test_a_blank_text_is_sent_as_something_else(vendor: Vendor) -> None:
    serve, connect = vendor
    server = serve()

    vectors = await connected(connect, server).embed(["", "a", " \n"])

    (body,) = server.bodies
    stand_in = " " if connect is OpenAIEmbedder else "."
    assert body.get("texts", body.get("input")) == [stand_in, "a", stand_in]
    assert vectors.tolist() == vectors_of(["", "a", ""])


async def test_more_texts_than_a_request_takes_are_sent_in_several(vendor: Vendor) -> None:
    serve, connect = vendor
    server = serve()
    texts = [f"text {number}" for number in range(300)]

    vectors = await connected(connect, server).embed(texts)

    sizes = [len(body.get("texts") or body["input"]) for body in server.bodies]
    limits: dict[object, int] = {CohereServer: 96, VoyageServer: 128, OpenAIServer: 256}
    most = limits[serve]
    assert sizes == [most] * (300 // most) + [300 % most]
    assert vectors.tolist() == vectors_of(texts)


@pytest.mark.parametrize(
    ("model", "max_bytes"),
    [
        ("voyage-4-lite", 990_000),
        ("voyage-3.5-lite", 990_000),
        ("voyage-4", 310_000),
        ("voyage-4-large", 110_000),
        ("a-model-of-the-future", 110_000),
    ],
)
async def test_voyages_requests_stay_below_the_tokens_of_the_model(
    model: str, max_bytes: int
) -> None:
    server = VoyageServer()
    embedder = connected(VoyageEmbedder, server, model=model, dimension=DIMENSION, batch_size=1000)
    texts = ["é" * 500] * (max_bytes // 1_000 + 1)

    await embedder.embed(texts)

    assert [len(body["input"]) for body in server.bodies] == [max_bytes // 1_000, 1]


async def test_coheres_requests_stay_below_120000_bytes() -> None:
    server = CohereServer()

    await connected(CohereEmbedder, server).embed(["x" * 2_000] * 61)

    assert [len(body["texts"]) for body in server.bodies] == [60, 1]


async def test_the_dimension_is_discovered_with_the_first_vector(vendor: Vendor) -> None:
    serve, connect = vendor

    server = serve()
    unknown = connected(connect, server)
    with pytest.raises(VectorError, match="not known before its first vector"):
        _ = unknown.dimension

    assert await unknown.discover() == await unknown.discover() == DIMENSION
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("connect", "model", "dimension"),
    [
        (CohereEmbedder, "embed-v4.0", 1536),
        (CohereEmbedder, "embed-english-v3.0", 1024),
        (CohereEmbedder, "embed-multilingual-light-v3.0", 384),
        (VoyageEmbedder, "voyage-4-large", 1024),
        (VoyageEmbedder, "voyage-law-2", 1024),
    ],
)
async def test_the_dimensions_of_common_models_need_no_call(
    connect: Connect, model: str, dimension: int
) -> None:
    server = CohereServer() if connect is CohereEmbedder else VoyageServer()
    own, same = [
        connected(connect, server, model=model, dimension=length) for length in (None, dimension)
    ]

    assert (own.dimension, same.dimension) == (dimension, dimension)
    for embedder in (own, same):
        with pytest.raises(InvalidReply, match=f"length {DIMENSION}, expected {dimension}"):
            await embedder.embed(["a"])
    assert all("output_dimension" not in body for body in server.bodies)


async def test_batches_that_come_back_with_different_lengths_are_refused(vendor: Vendor) -> None:
    serve, connect = vendor
    server, lengths = serve(), iter([4, 5])
    field = "dimensions" if connect is OpenAIEmbedder else "output_dimension"

    def fickle(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content) | {field: next(lengths)}
        key = {"authorization": request.headers["authorization"]}
        return server(httpx2.Request("POST", request.url, json=body, headers=key))

    embedder = connect(
        api_key=API_KEY, model="embed-v4-new", transport=httpx2.MockTransport(fickle), batch_size=1
    )
    with pytest.raises(InvalidReply, match=r"a vector of length [45], expected [45]"):
        await embedder.embed(["a", "b"])


NONSENSE: list[tuple[Any, str]] = [
    (None, "no list of embeddings"),
    ([[1.0], [2.0]], "no list of embeddings"),
    ({"int8": [[1], [2]]}, "no list of embeddings"),
    ({"float": None}, "no list of embeddings"),
    ({"float": {"0": [1.0]}}, "no list of embeddings"),
    ({"float": []}, "0 embeddings for 2 texts"),
    ({"float": [[1.0]]}, "1 embeddings for 2 texts"),
    ({"float": [[1.0]] * 3}, "3 embeddings for 2 texts"),
    ({"float": [[1.0], [1.0, 2.0]]}, "length 2, expected 1"),
    ({"float": [[], []]}, "length 0, expected 0"),
    ({"float": [[1.0], None]}, "no list of numbers"),
    ({"float": [[1.0], ["x"]]}, "no list of numbers"),
    ({"float": [[1.0], [1e39]]}, "not finite"),
]


@pytest.mark.parametrize(("embeddings", "message"), NONSENSE)
async def test_an_answer_of_cohere_that_makes_no_sense_is_refused(
    embeddings: Any, message: str
) -> None:
    server = CohereServer(embeddings=embeddings)

    with pytest.raises(InvalidReply, match=message):
        await connected(CohereEmbedder, server).embed(["a", "b"])


async def test_voyages_embeddings_are_put_in_order_by_their_index() -> None:
    data = [{"index": 1, "embedding": [1.0]}, {"index": 0, "embedding": [2.0]}]

    vectors = await connected(VoyageEmbedder, VoyageServer(data=data)).embed(["a", "b"])

    assert vectors.tolist() == [[2.0], [1.0]]


async def test_an_answer_of_voyage_that_makes_no_sense_is_refused() -> None:
    for data in (None, [], [{"index": 0, "embedding": [1.0]}]):
        with pytest.raises(InvalidReply):
            await connected(VoyageEmbedder, VoyageServer(data=data)).embed(["a", "b"])


async def test_a_refusal_tells_neither_the_key_nor_the_texts(vendor: Vendor) -> None:
    serve, connect = vendor
    body = {"message": f"{API_KEY} the text", "detail": f"{API_KEY} the text"}
    server = serve(failures=[httpx2.Response(400, json=body)])

    with pytest.raises(LLMError) as refused:
        await connected(connect, server).embed(["the text"])

    assert (refused.value.status, refused.value.retryable) == (400, False)
    assert API_KEY not in repr(refused.value)
    assert "the text" not in repr(refused.value)


async def test_what_may_pass_is_tried_again(vendor: Vendor) -> None:
    class Impatient(ManualClock):
        async def sleep(self, delay_s: float) -> None:
            self.advance(delay_s)

    serve, connect = vendor
    server = serve(failures=[httpx2.Response(503), httpx2.ReadTimeout("slow")])
    embedder = connected(
        connect, server, clock=Impatient(), retries=RetryPolicy(attempts=3), jitter=lambda: 0.5
    )

    vectors = await embedder.embed(["a"])

    assert vectors.tolist() == vectors_of(["a"])


class Slow:
    """A server that answers when the test lets it, and counts the requests that wait."""

    def __init__(self, server: VendorServer) -> None:
        self.server = server
        self.waiting: list[tuple[httpx2.Request, asyncio.Future[None]]] = []
        self.gone = 0

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        answered = asyncio.get_running_loop().create_future()
        self.waiting.append((request, answered))
        try:
            await answered
        except asyncio.CancelledError:
            self.gone += 1
            raise
        return self.server(request)

    async def has(self, count: int) -> None:
        while len(self.waiting) < count:  # noqa: ASYNC110 - so many at once, not so many in all
            await asyncio.sleep(0.001)  # noqa: TID251 - requests pass through a thread


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_so_many_requests_run_at_once_and_the_order_is_that_of_the_texts(
    vendor: Vendor, concurrency: int
) -> None:
    serve, connect = vendor

    slow = Slow(serve())
    embedder = connect(
        api_key=API_KEY,
        model="own-model",
        transport=httpx2.MockTransport(slow),
        batch_size=1,
        concurrency=concurrency,
    )
    embedding = asyncio.create_task(embedder.embed(TEXTS))
    for answered in range(len(TEXTS)):
        await slow.has(min(concurrency, len(TEXTS) - answered))
        assert len(slow.waiting) <= concurrency
        slow.waiting.pop()[1].set_result(None)  # the youngest first

    vectors = await embedding

    assert np.array_equal(vectors, np.array(vectors_of(TEXTS), np.float32))


async def test_four_requests_run_at_once_unless_said_otherwise_and_a_failure_ends_them(
    vendor: Vendor,
) -> None:
    serve, connect = vendor

    server = serve(failures=[httpx2.Response(400)])
    slow = Slow(server)
    embedder = connect(
        api_key=API_KEY, model="own-model", transport=httpx2.MockTransport(slow), batch_size=1
    )
    embedding = asyncio.create_task(embedder.embed([*TEXTS, *TEXTS]))
    await slow.has(4)
    slow.waiting[2][1].set_result(None)

    with pytest.raises(LLMError) as failed:
        await embedding

    assert failed.value.status == 400
    assert (len(slow.waiting), slow.gone) == (4, 3)


@pytest.mark.parametrize(
    "options", [{"batch_size": 0}, {"concurrency": 0}, {"dimension": 0}], ids=str
)
def test_sizes_below_one_are_refused(vendor: Vendor, options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        vendor[1](api_key=API_KEY, **options)


@pytest.mark.parametrize(
    ("connect", "limit"), [(CohereEmbedder, 96), (VoyageEmbedder, 1_000)], ids=["cohere", "voyage"]
)
def test_batch_sizes_that_the_server_refuses_are_an_error(connect: Connect, limit: int) -> None:
    connect(api_key=API_KEY, batch_size=limit)

    with pytest.raises(ValueError, match=f"takes {limit} texts at once"):
        connect(api_key=API_KEY, batch_size=limit + 1)
