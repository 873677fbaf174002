"""Tests embedders and rerankers behind breakers and limiters."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx2
import numpy as np
import pytest
from numpy.typing import NDArray

from lib._util.operations import Notebook
from lib.errors import CircuitOpen, DimensionMismatch, LLMError, RateLimited
from lib.resilience import CircuitBreaker, RateLimiter, RetryPolicy
from lib.testing.clock import ManualClock
from lib.vector import (
    CohereReranker,
    Doc,
    EmbeddingIndex,
    InMemoryVectorStore,
    OpenAIEmbedder,
    RerankingIndex,
    ResilientEmbedder,
    ResilientReranker,
)

from .embed_openai_kit import KEY, Server

DOWN = LLMError("down", status=503, retryable=True)
ONCE = RetryPolicy(attempts=1)


class Embedding:
    """An embedder of another package, whose errors come first."""

    model = "own"

    def __init__(self, *errors: Exception, dimension: int = 2) -> None:
        self.errors, self.dimension = list(errors), dimension
        self.calls = 0

    async def embed(
        self, texts: Sequence[str], *, purpose: str = "document"
    ) -> NDArray[np.float32]:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return np.ones((len(texts), self.dimension), np.float32)


class Ranking:
    """A reranker of another package, whose errors come first."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def rerank(self, query: str, texts: Sequence[str], k: int) -> list[int]:
        if self.errors:
            raise self.errors.pop(0)
        return list(range(len(texts)))[::-1][:k]


def openai(
    handler: Any, clock: ManualClock, *, retries: RetryPolicy = ONCE, **options: Any
) -> OpenAIEmbedder:
    return OpenAIEmbedder(
        api_key=KEY,
        transport=httpx2.MockTransport(handler),
        retries=retries,
        clock=clock,
        jitter=lambda: 0.0,
        **options,
    )


async def test_each_request_of_an_embedder_is_one_attempt_retries_included() -> None:
    clock, server = ManualClock(), Server()
    answers = [httpx2.Response(500), httpx2.Response(500)]

    def failing_first(request: httpx2.Request) -> httpx2.Response:
        return answers.pop() if answers else server(request)

    limiter = RateLimiter("OpenAI", requests_per_minute=4, max_wait_s=0.0, clock=clock)
    embedder = openai(
        failing_first,
        clock,
        retries=RetryPolicy(attempts=3, base_s=0.0),
        dimension=4,
        batch_size=1,
        concurrency=1,
    )
    async with ResilientEmbedder(embedder, limiter=limiter, clock=clock) as resilient:
        rows = await resilient.embed(["a", "b"])  # two requests, the first of them three times
        assert rows.shape == (2, 4)
        with pytest.raises(RateLimited):
            await resilient.embed(["c"])
    assert (resilient.model, resilient.dimension) == ("text-embedding-3-small", 4)


async def test_tokens_of_embeddings_are_those_that_the_server_counts() -> None:
    clock = ManualClock()
    limiter = RateLimiter(tokens_per_minute=100, max_wait_s=0.0, clock=clock)
    server = Server(usage={"prompt_tokens": 95, "total_tokens": 95})
    resilient = ResilientEmbedder(openai(server, clock, dimension=4), limiter=limiter, clock=clock)
    await resilient.embed(["a"])

    with pytest.raises(RateLimited):
        await resilient.embed(["a"])


async def test_an_embedder_that_is_down_is_left_alone_and_another_host_answers() -> None:
    clock = ManualClock()
    first, second = Embedding(DOWN, DOWN), Embedding()
    breaker = CircuitBreaker(failures=1, clock=clock)
    hosts = [ResilientEmbedder(first, breaker=breaker, clock=clock), second]
    resilient = ResilientEmbedder(hosts, clock=clock)

    assert [(await resilient.embed(["a"])).shape for _ in range(3)] == [(1, 2)] * 3
    assert (first.calls, second.calls, resilient.model) == (1, 3, "own")
    with pytest.raises(CircuitOpen):
        await hosts[0].embed(["a"])


async def test_vectors_of_another_model_are_refused() -> None:
    resilient = ResilientEmbedder([Embedding(DOWN), Embedding(dimension=3)], clock=ManualClock())

    with pytest.raises(DimensionMismatch):
        await resilient.embed(["a"])


async def test_a_request_that_is_wrong_is_not_sent_elsewhere() -> None:
    second = Embedding()
    wrong = LLMError("too long", status=400)
    with pytest.raises(LLMError, match="too long"):
        await ResilientEmbedder([Embedding(wrong), second], clock=ManualClock()).embed(["a"])
    assert second.calls == 0


async def test_a_reranker_has_others_stand_in_for_it() -> None:
    clock = ManualClock()
    breaker = CircuitBreaker(failures=1, clock=clock)
    server = CohereReranker(
        "key",
        transport=httpx2.MockTransport(lambda _: httpx2.Response(503)),
        retries=ONCE,
        clock=clock,
    )
    first = ResilientReranker(server, breaker=breaker, clock=clock)
    async with ResilientReranker([first, Ranking()], clock=clock) as resilient:
        assert await resilient.rerank("q", ["a", "b", "c"], 2) == [2, 1]
        assert breaker.state == "open"
        assert await resilient.rerank("q", ["a", "b", "c"], 1) == [2]
        assert resilient.model == "rerank-v4.0-pro"


async def test_what_a_search_took_stands_in_its_trace() -> None:
    clock = ManualClock()
    twice = RetryPolicy(attempts=2, base_s=0.0)
    embedder = ResilientEmbedder(Embedding(), retries=twice, clock=clock)
    reranker = ResilientReranker([Ranking(DOWN), Ranking()], clock=clock)
    index = EmbeddingIndex(InMemoryVectorStore(), embedder)
    await index.add([Doc("1", "a"), Doc("2", "b")])
    embedder.embedders = (Embedding(DOWN),)
    notebook = Notebook(clock)

    with notebook.open():
        await RerankingIndex(index, reranker).search("a", 1)

    noted = notebook.to_json()
    counted = {each["kind"]: (each.get("retries"), each.get("fallbacks")) for each in noted}
    assert counted == {"retriever": (None, None), "embedding": (1, None), "reranker": (None, 1)}


async def test_a_slow_embedder_is_hedged() -> None:
    clock = ManualClock()

    class Slow(Embedding):
        async def embed(self, texts: Sequence[str], *, purpose: str = "document") -> Any:
            await asyncio.Event().wait()

    resilient = ResilientEmbedder([Slow(), Embedding()], hedge_after_s=1.0, clock=clock)
    call = asyncio.ensure_future(resilient.embed(["a"]))
    while not call.done():
        for _ in range(10):
            await asyncio.sleep(0)  # noqa: TID251 - lets the call go on
        clock.advance(0.5)
    assert (await call).shape == (1, 2)
    assert clock.monotonic() >= 1.0


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(TypeError, match="'embed', got Ranking"):
        ResilientEmbedder(Ranking())  # pyright: ignore[reportArgumentType] - wrong on purpose
    with pytest.raises(ValueError, match="before one service, got 2"):
        ResilientReranker([Ranking(), Ranking()], limiter=RateLimiter(requests_per_minute=1))
