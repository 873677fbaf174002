"""The embedder against a server at the wire, and that server against OpenAI's own client."""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import pytest
from openai import AsyncOpenAI

from lib.errors import InvalidReply, LLMError, VectorError
from lib.resilience import RetryPolicy
from lib.testing.aio import run
from lib.testing.clock import ManualClock
from lib.vector import OpenAIEmbedder

KEY = "sk-test-key"
DIMENSION = 4
Handler = Callable[[httpx2.Request], httpx2.Response]


def vector_of(text: str, dimension: int = DIMENSION) -> list[float]:
    """Return a vector that tells which text it was made of, in numbers that 32 bits hold."""
    return [float(len(text)), float(sum(map(ord, text)) % 97), *[0.5] * (dimension - 2)]


class Server:
    """An embeddings server; `quirks` replace fields of its answers or of an embedding."""

    def __init__(self, *, style: str = "base64", **quirks: Any) -> None:
        self.style = style
        self.quirks = quirks
        self.requests: list[dict[str, Any]] = []
        self.headers: list[httpx2.Headers] = []
        self.urls: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        self.requests.append(body)
        self.headers.append(request.headers)
        self.urls.append(str(request.url))
        items = [
            {
                "object": "embedding",
                "index": place,
                "embedding": self._encoded(vector_of(text, body.get("dimensions", DIMENSION))),
            }
            for place, text in enumerate(body["input"])
        ]
        answer = {
            "object": "list",
            "data": items[::-1],
            "model": body["model"],
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }
        return httpx2.Response(200, json=answer | self.quirks)

    def _encoded(self, vector: list[float]) -> Any:
        if self.style == "float":
            return vector
        return base64.b64encode(np.array(vector, "<f4").tobytes()).decode()

    @property
    def sizes(self) -> list[int]:
        return [len(request["input"]) for request in self.requests]


def embedder(handler: Handler, **options: Any) -> OpenAIEmbedder:
    given: dict[str, Any] = {
        "model": "own-model",
        "api_key": KEY,
        "base_url": "http://127.0.0.1:1/v1/",
        "retries": RetryPolicy(attempts=1),
    }
    return OpenAIEmbedder(**given | options, transport=httpx2.MockTransport(handler))


TEXTS = ["one", "two words", "three", "naïve 猫", "five"]


@pytest.mark.parametrize("style", ["base64", "float"])
def test_vectors_come_back_in_the_order_of_the_texts(style: str) -> None:
    server = Server(style=style)

    vectors = run(embedder(server).embed(TEXTS))

    assert vectors.dtype == np.float32
    assert vectors.tolist() == [vector_of(text) for text in TEXTS]
    assert server.requests == [{"model": "own-model", "input": TEXTS, "encoding_format": "base64"}]
    assert server.urls == ["http://127.0.0.1:1/v1/embeddings"]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("style", ["base64", "float"])
def test_the_official_client_reads_the_same_from_this_server(style: str) -> None:
    async def main() -> None:
        server = Server(style=style)
        transport = httpx2.MockTransport(server)
        async with (
            httpx2.AsyncClient(transport=transport) as http,
            AsyncOpenAI(
                base_url="http://127.0.0.1:1/v1", api_key=KEY, http_client=http
            ) as official,
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

    run(main())


def test_texts_are_sent_in_batches_of_bounded_number_and_size() -> None:
    server = Server()
    texts = ["a", "b", "c", "x" * 200_000, "é" * 30_000, "y" * 300_000, "z"]

    vectors = run(embedder(server, batch_size=3).embed(texts))

    assert server.sizes == [3, 1, 1, 1, 1]
    assert vectors.tolist() == [vector_of(text) for text in texts]


def test_documents_and_queries_can_have_prefixes_and_empty_texts_are_a_space() -> None:
    server = Server()
    prefixed = embedder(server, document_prefix="passage: ", query_prefix="query: ")

    run(prefixed.embed(["x", ""]))
    run(prefixed.embed(["x"], purpose="query"))
    run(embedder(server).embed([""]))

    assert [request["input"] for request in server.requests] == [
        ["passage: x", "passage: "],
        ["query: x"],
        [" "],
    ]


def test_the_dimension_is_discovered_and_then_held() -> None:
    async def main() -> None:
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

    run(main())


class Lengths:
    """A server whose vectors have these lengths, a request each."""

    def __init__(self, *lengths: int) -> None:
        self.left = list(lengths)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        length = self.left.pop(0)
        texts = json.loads(request.content)["input"]
        data = [{"index": place, "embedding": [1.0] * length} for place in range(len(texts))]
        return httpx2.Response(200, json={"data": data})


async def lengths_of(asked: OpenAIEmbedder, calls: int) -> list[int | None]:
    """Return the length of each call's vectors, None where it was refused."""
    found: list[int | None] = []
    for _ in range(calls):
        try:
            found.append((await asked.embed(["a"])).shape[1])
        except InvalidReply:
            found.append(None)
    return found


@pytest.mark.parametrize(
    ("given", "found", "dimension"),
    [
        ([1, 3, 3, 3], [1, None, 3, 3], 3),  # the first was wrong
        ([3, 1, 3, 3], [3, None, 3, 3], 3),  # the second was
        ([3, 1, 3, 1, 3], [3, None, 3, None, 3], 3),
        ([3, 1, 2, 3], [3, None, None, 3], 3),
        ([3, 1, 2, 2], [3, None, None, 2], 2),
    ],
)
def test_a_dimension_that_was_learned_is_given_up_when_the_server_contradicts_it_twice_running(
    given: list[int], found: list[int | None], dimension: int
) -> None:
    asked = embedder(Lengths(*given))

    assert run(lengths_of(asked, len(given))) == found
    assert asked.dimension == dimension


def test_a_dimension_that_was_asked_for_is_never_given_up() -> None:
    asked = embedder(Lengths(1, 1, 1, 3), dimension=3)

    assert run(lengths_of(asked, 4)) == [None, None, None, 3]
    assert asked.dimension == 3


def test_a_first_call_whose_batches_differ_does_not_fix_the_dimension() -> None:
    asked = embedder(Lengths(1, 3, 3), batch_size=1, concurrency=1)

    with pytest.raises(InvalidReply, match="length 3, expected 1"):
        run(asked.embed(["a", "b"]))

    assert run(lengths_of(asked, 1)) == [3]


def test_a_call_has_vectors_of_one_length_while_another_changes_what_is_known() -> None:
    async def main() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()
        lengths = Lengths(1, 3, 3)

        async def slow(request: httpx2.Request) -> httpx2.Response:
            if json.loads(request.content)["input"] == ["second"]:
                begun.set()
                await go_on.wait()
            return lengths(request)

        asked = OpenAIEmbedder(
            "own-model",
            base_url="http://127.0.0.1:1/v1/",
            transport=httpx2.MockTransport(slow),
            batch_size=1,
            concurrency=1,
        )
        call = asyncio.create_task(asked.embed(["first", "second"]))
        await begun.wait()
        assert await lengths_of(asked, 1) == [None]
        go_on.set()

        with pytest.raises(InvalidReply, match="length 3, expected 1"):
            await call
        assert asked.dimension == 3

    run(main())


def test_openais_models_are_known_and_other_lengths_asked_for() -> None:
    async def main() -> None:
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

    run(main())


def test_a_server_without_indexes_is_taken_at_its_order() -> None:
    items = [{"embedding": [1.0, 2.0]}, {"embedding": [3.0, 4.0], "index": None}]

    vectors = run(embedder(Server(data=items)).embed(["a", "b"]))

    assert vectors.tolist() == [[1.0, 2.0], [3.0, 4.0]]


ROW = {"index": 0, "embedding": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "no list of embeddings"),
        ([], "no list of embeddings"),
        ([[1.0]], "no list of embeddings"),
        ([ROW], "1 embeddings are not those of 2 texts"),
        ([ROW, ROW], "2 embeddings are not those of 2 texts"),
        ([ROW, ROW | {"index": [1]}], "2 embeddings are not those of 2 texts"),
        ([ROW, {"embedding": [1.0, 2.0]}], "2 embeddings are not those of 2 texts"),
        ([ROW, ROW | {"index": "1"}], "2 embeddings are not those of 2 texts"),
        ([ROW | {"index": "0"}, ROW | {"index": "1"}], "2 embeddings are not those of 2 texts"),
        ([ROW, ROW | {"index": True}], "2 embeddings are not those of 2 texts"),
        ([ROW, ROW | {"index": 1, "embedding": [1.0]}], "length 1, expected 2"),
        ([ROW | {"embedding": []}, ROW | {"index": 1, "embedding": []}], "length 0, expected 0"),
        ([ROW, ROW | {"index": 1, "embedding": None}], "no list of numbers"),
        ([ROW, ROW | {"index": 1, "embedding": 7}], "no list of numbers"),
        ([ROW, ROW | {"index": 1, "embedding": "????"}], "no list of numbers"),
        ([ROW, ROW | {"index": 1, "embedding": "AAAA"}], "no list of numbers"),
        ([ROW, ROW | {"index": 1, "embedding": ["x", "y"]}], "no list of numbers"),
        ([ROW, ROW | {"index": 1, "embedding": [[1.0], [2.0]]}], "no list of numbers"),
        ([ROW, ROW | {"index": 1, "embedding": [10**400, 1]}], "no list of numbers"),
        ([ROW, ROW | {"index": 1, "embedding": [1e300, 1]}], "not finite"),
        ([ROW, ROW | {"index": 1, "embedding": "AADAfwAAgD8="}], "not finite"),
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(data: Any, message: str) -> None:
    with pytest.raises(InvalidReply, match=message) as refused:
        run(embedder(Server(data=data)).embed(["a", "b"]))

    assert not refused.value.retryable


@pytest.mark.parametrize("error", [None, {}, ""])
def test_an_empty_error_in_an_answer_is_none(error: Any) -> None:
    vectors = run(embedder(Server(error=error)).embed(["a"]))

    assert vectors.tolist() == [vector_of("a")]


def answering(status: int, content: bytes, **headers: str) -> Handler:
    return lambda _: httpx2.Response(status, content=content, headers=headers)


@pytest.mark.parametrize(
    ("handler", "retryable"),
    [
        (answering(200, b"{not json"), True),
        (answering(200, b"[]"), False),
        (answering(200, b"<html>", **{"content-type": "text/html; charset=utf-8"}), False),
    ],
    ids=["broken", "list", "page"],
)
def test_an_answer_of_another_kind_is_refused(handler: Handler, retryable: bool) -> None:
    with pytest.raises(InvalidReply) as refused:
        run(embedder(handler).embed(["a"]))

    assert refused.value.retryable == retryable


@pytest.mark.parametrize(
    ("handler", "facts"),
    [
        (answering(401, b'{"error": {"code": "invalid_api_key"}}'), (401, False, None)),
        (answering(429, b"{}", **{"retry-after": "7"}), (429, True, 7.0)),
        (answering(429, b'{"error": {"code": "insufficient_quota"}}'), (429, False, None)),
        (answering(503, b"down"), (503, True, None)),
        (answering(200, b'{"error": {"message": "secret text", "code": 503}}'), (503, True, None)),
    ],
    ids=["key", "rate", "quota", "down", "inside"],
)
def test_a_refusal_has_its_status_and_whether_it_may_pass(
    handler: Handler, facts: tuple[int, bool, float | None]
) -> None:
    with pytest.raises(LLMError) as refused:
        run(embedder(handler).embed(["the text"]))

    error = refused.value
    assert (error.status, error.retryable, error.retry_after_s) == facts
    assert "text" not in str(error)
    assert KEY not in str(error)


class Impatient(ManualClock):
    """A clock that jumps over every wait and remembers it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    async def sleep(self, delay_s: float) -> None:
        self.waits.append(delay_s)
        self.advance(delay_s)


def failing_first(server: Server, *answers: httpx2.Response | Exception) -> Handler:
    left = list(answers)

    def handle(request: httpx2.Request) -> httpx2.Response:
        if not left:
            return server(request)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return handle


def test_what_may_pass_is_tried_again_after_the_wait_that_is_asked() -> None:
    server, clock = Server(), Impatient()
    handler = failing_first(
        server,
        httpx2.Response(429, headers={"retry-after": "2"}),
        httpx2.ConnectError("refused"),
        httpx2.Response(500),
    )
    patient = embedder(handler, retries=RetryPolicy(attempts=4), clock=clock, jitter=lambda: 0.5)

    vectors = run(patient.embed(["a"]))

    assert vectors.tolist() == [vector_of("a")]
    assert clock.waits == [2.25, 0.5, 1.0]


def test_what_will_not_pass_is_not_tried_again() -> None:
    server, clock = Server(), Impatient()
    handler = failing_first(server, httpx2.Response(400))

    with pytest.raises(LLMError):
        run(embedder(handler, retries=RetryPolicy(), clock=clock).embed(["a"]))

    assert (clock.waits, server.requests) == ([], [])


def test_keys_and_addresses_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:2/v1")

    run(OpenAIEmbedder("m", transport=httpx2.MockTransport(server)).embed(["a"]))

    assert server.urls == ["http://127.0.0.1:2/v1/embeddings"]
    assert server.headers[0]["authorization"] == "Bearer sk-env"


def test_other_servers_need_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    run(embedder(server, api_key=None).embed(["a"]))

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


def test_closing_it_closes_its_connections() -> None:
    async def main() -> None:
        used = embedder(Server())
        await used.embed(["a"])

        await used.aclose()
        vectors = await used.embed(["a"])
        await used.aclose()

        assert vectors.tolist() == [vector_of("a")]

    run(main())
