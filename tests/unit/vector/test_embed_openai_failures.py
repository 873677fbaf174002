"""Tests answers that `OpenAIEmbedder` refuses, its messages, and its retries."""

from typing import Any

import httpx2
import pytest

from lib.errors import InvalidReply, LLMError
from lib.resilience import RetryPolicy
from lib.testing.clock import ManualClock

from .embed_openai_kit import KEY, Handler, Server, embedder, vector_of

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
async def test_an_answer_that_makes_no_sense_is_refused(data: Any, message: str) -> None:
    with pytest.raises(InvalidReply, match=message) as refused:
        await embedder(Server(data=data)).embed(["a", "b"])

    assert not refused.value.retryable


@pytest.mark.parametrize("error", [None, {}, ""])
async def test_an_empty_error_in_an_answer_is_none(error: Any) -> None:
    vectors = await embedder(Server(error=error)).embed(["a"])

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
async def test_an_answer_of_another_kind_is_refused(handler: Handler, retryable: bool) -> None:
    with pytest.raises(InvalidReply) as refused:
        await embedder(handler).embed(["a"])

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
async def test_a_refusal_has_its_status_and_whether_it_may_pass(
    handler: Handler, facts: tuple[int, bool, float | None]
) -> None:
    with pytest.raises(LLMError) as refused:
        await embedder(handler).embed(["the text"])

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


async def test_a_retryable_failure_is_tried_again_after_the_requested_wait() -> None:
    server, clock = Server(), Impatient()
    handler = failing_first(
        server,
        httpx2.Response(429, headers={"retry-after": "2"}),
        httpx2.ConnectError("refused"),
        httpx2.Response(500),
    )
    patient = embedder(handler, retries=RetryPolicy(attempts=4), clock=clock, jitter=lambda: 0.5)

    vectors = await patient.embed(["a"])

    assert vectors.tolist() == [vector_of("a")]
    assert clock.waits == [2.25, 0.5, 1.0]


async def test_what_will_not_pass_is_not_tried_again() -> None:
    server, clock = Server(), Impatient()
    handler = failing_first(server, httpx2.Response(400))

    with pytest.raises(LLMError):
        await embedder(handler, retries=RetryPolicy(), clock=clock).embed(["a"])

    assert (clock.waits, server.requests) == ([], [])
