"""Rerankers behind a server: what goes out, what is believed, what fails and how."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import httpx2
import pytest

from fakes.model_servers import API_KEY, CohereServer, VendorServer, VoyageServer
from lib.errors import LLMError
from lib.resilience import RetryPolicy
from lib.testing.clock import ManualClock
from lib.vector import CohereReranker, RerankerA, RerankerB, VoyageReranker
from lib.vector.rerank.http import HTTPReranker

QUERY = "when do refunds arrive"
TEXTS = ["a secret passage", "refunds", "refunds arrive", "when do refunds arrive"]

Connect = Callable[..., HTTPReranker]
Vendor = tuple[Callable[..., VendorServer], Connect, str]
VENDORS: dict[str, Vendor] = {
    "cohere": (CohereServer, CohereReranker, "results"),
    "voyage": (VoyageServer, VoyageReranker, "data"),
}


@pytest.fixture(params=VENDORS.values(), ids=list(VENDORS))
def vendor(request: pytest.FixtureRequest) -> Vendor:
    return request.param


class Impatient(ManualClock):
    """A clock that jumps over every wait and remembers it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    async def sleep(self, delay_s: float) -> None:
        self.waits.append(delay_s)
        self.advance(delay_s)


async def order(vendor: Vendor, server: VendorServer, k: int = 4, **options: Any) -> list[int]:
    _, connect, _ = vendor
    arguments: dict[str, Any] = {"api_key": API_KEY, "transport": server.transport} | options
    return await connect(**arguments).rerank(QUERY, TEXTS, k)


def test_the_names_of_the_specification_are_the_same_classes() -> None:
    assert (RerankerA, RerankerB) == (CohereReranker, VoyageReranker)


async def test_cohere_ranks_the_texts_that_are_not_blank() -> None:
    server = CohereServer()
    reranker = CohereReranker(API_KEY, transport=server.transport)

    places = await reranker.rerank(QUERY, ["", *TEXTS], 2)

    (received,) = server.requests
    assert places == [4, 3]
    assert received.url == "https://api.cohere.com/v2/rerank"
    assert received.headers["authorization"] == f"Bearer {API_KEY}"
    assert received.body == {
        "model": "rerank-v4.0-pro",
        "query": QUERY,
        "documents": TEXTS,
        "top_n": 2,
        "max_tokens_per_doc": 4096,
    }


async def test_voyage_ranks_the_texts_that_are_not_blank() -> None:
    server = VoyageServer()
    reranker = VoyageReranker(API_KEY, transport=server.transport)

    places = await reranker.rerank(QUERY, [*TEXTS, " "], 9)

    (received,) = server.requests
    assert places == [3, 2, 1, 0, 4]
    assert received.url == "https://api.voyageai.com/v1/rerank"
    assert received.headers["authorization"] == f"Bearer {API_KEY}"
    assert received.body == {
        "model": "rerank-2.5",
        "query": QUERY,
        "documents": TEXTS,
        "top_k": 4,
        "return_documents": False,
        "truncation": True,
    }


async def test_cohere_reads_as_much_of_a_passage_as_the_request_says() -> None:
    server = CohereServer()
    reranker = CohereReranker(API_KEY, transport=server.transport, max_tokens_per_doc=100)

    await reranker.rerank(QUERY, TEXTS, 1)

    assert server.bodies[0]["max_tokens_per_doc"] == 100


async def test_the_order_is_that_of_the_scores_not_that_of_the_answer(vendor: Vendor) -> None:
    serve, _, results = vendor
    scores = [0.5, 0.75, 1, 0.5]
    answer = [{"index": n, "relevance_score": score} for n, score in enumerate(scores)]

    assert (await order(vendor, serve(**{results: answer}))) == [2, 1, 0, 3]
    assert (await order(vendor, serve(**{results: answer[::-1]}))) == [2, 1, 0, 3]


GOOD = [{"index": 2, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.5}]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "0 results are not the 2 best of 4 texts"),
        ({"index": 0}, "0 results are not the 2 best"),
        ([], "0 results are not the 2 best"),
        (GOOD[:1], "1 results are not the 2 best"),
        ([*GOOD, {"index": 1, "relevance_score": 0.1}], "3 results are not the 2 best"),
        ([GOOD[0], GOOD[0]], "2 results are not the 2 best"),
        ([*GOOD, GOOD[0]], "3 results are not the 2 best"),
        ([GOOD[0], {"index": 4, "relevance_score": 1}], "none of the 4 texts"),
        ([GOOD[0], {"index": -1, "relevance_score": 1}], "none of the 4 texts"),
        ([GOOD[0], {"index": True, "relevance_score": 1}], "none of the 4 texts"),
        ([GOOD[0], {"index": 1.0, "relevance_score": 1}], "none of the 4 texts"),
        ([GOOD[0], {"index": "1", "relevance_score": 1}], "none of the 4 texts"),
        ([GOOD[0], {"relevance_score": 1}], "none of the 4 texts"),
        ([GOOD[0], [1, 1]], "none of the 4 texts"),
        ([GOOD[0], {"index": 1}], "score is no number"),
        ([GOOD[0], {"index": 1, "relevance_score": None}], "score is no number"),
        ([GOOD[0], {"index": 1, "relevance_score": "0.9"}], "score is no number"),
        ([GOOD[0], {"index": 1, "relevance_score": True}], "score is no number"),
        ([GOOD[0], {"index": 1, "relevance_score": 10**400}], "score is no number"),
    ],
)
async def test_an_answer_that_is_no_order_of_the_texts_keeps_the_order(
    vendor: Vendor, answer: Any, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    serve, _, results = vendor

    assert (await order(vendor, serve(**{results: answer}), k=2)) == [0, 1]
    assert message in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        b"{not json",
        b"[]",
        b'{"results": [{"index": 0, "relevance_score": 1e999}]}',
        b'{"results": [{"index": 0, "relevance_score": NaN}]}',
        b"[" * 100_000,
    ],
    ids=["no JSON", "a list", "infinity", "NaN", "depth"],
)
async def test_an_answer_of_another_kind_keeps_the_order(
    vendor: Vendor, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    serve, _, _ = vendor
    server = serve(failures=[httpx2.Response(200, content=content)])

    assert (await order(vendor, server, k=1, retries=RetryPolicy(attempts=1))) == [0]
    assert "keeps the order of the texts" in caplog.text


async def test_an_empty_error_in_an_answer_is_none(vendor: Vendor) -> None:
    serve, _, _ = vendor

    assert (await order(vendor, serve(error=None))) == [3, 2, 1, 0]


async def test_a_web_page_is_no_answer_and_its_warning_says_where_to_look(
    vendor: Vendor, caplog: pytest.LogCaptureFixture
) -> None:
    page = httpx2.Response(200, html="<html>log in</html>")
    serve, _, _ = vendor

    assert (await order(vendor, serve(failures=[page]))) == [0, 1, 2, 3]
    assert "check base_url" in caplog.text


@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        (400, False),
        (401, False),
        (402, False),
        (403, False),
        (404, False),
        (422, False),
        (429, True),
        (498, False),
        (499, False),
        (500, True),
        (501, False),
        (502, True),
        (503, True),
        (504, True),
    ],
)
async def test_a_refusal_has_its_status_and_tells_no_secrets(
    vendor: Vendor, status: int, retryable: bool
) -> None:
    serve, _, _ = vendor
    message = f"invalid token {API_KEY}, your documents were {TEXTS}"
    body = json.dumps({"message": message, "detail": message})
    server = serve(failures=[httpx2.Response(status, content=body)])

    with pytest.raises(LLMError) as refused:
        await order(vendor, server, retries=RetryPolicy(attempts=1))

    error = refused.value
    assert (error.status, error.retryable) == (status, retryable)
    assert API_KEY not in f"{error!r} {error.__cause__!r} {error.__context__!r}"
    assert "secret" not in f"{error!r} {error.__cause__!r} {error.__context__!r}"


async def test_a_wrong_key_is_refused_by_the_server(vendor: Vendor) -> None:
    serve, _, _ = vendor

    with pytest.raises(LLMError, match="check the API key") as refused:
        await order(vendor, serve(), api_key="another-key")

    assert "another-key" not in str(refused.value)


async def test_a_retryable_failure_is_tried_twice_more_after_the_requested_wait(
    vendor: Vendor,
) -> None:
    serve, _, _ = vendor
    clock = Impatient()
    failures = [httpx2.Response(429, headers={"retry-after": "3"}), httpx2.ConnectError("refused")]
    server = serve(failures=failures)

    places = await order(vendor, server, clock=clock, jitter=lambda: 0.5)

    assert places == [3, 2, 1, 0]
    assert clock.waits == [3.25, 0.5]


async def test_two_retries_are_enough(vendor: Vendor) -> None:
    serve, _, _ = vendor
    clock = Impatient()
    server = serve(failures=[httpx2.Response(503)] * 3)

    with pytest.raises(LLMError):
        await order(vendor, server, clock=clock)

    assert (len(server.requests), len(clock.waits)) == (3, 2)


async def test_a_wait_beyond_the_deadline_is_not_waited_for(vendor: Vendor) -> None:
    serve, _, _ = vendor
    clock = Impatient()
    server = serve(failures=[httpx2.Response(429, headers={"retry-after": "60"})])

    with pytest.raises(LLMError) as refused:
        await order(vendor, server, clock=clock)

    assert (refused.value.status, refused.value.retry_after_s) == (429, 60.0)
    assert (len(server.requests), clock.waits) == (1, [])


async def test_one_deadline_holds_for_all_attempts(vendor: Vendor) -> None:
    _, connect, _ = vendor
    attempts: list[object] = []

    async def handle(request: httpx2.Request) -> httpx2.Response:
        attempts.append(request)
        await asyncio.sleep(0.06)  # noqa: TID251 - a server that is slow in real time
        return httpx2.Response(503, headers={"retry-after": "0"})

    reranker = connect(
        API_KEY,
        transport=httpx2.MockTransport(handle),
        timeout_s=0.1,
        clock=Impatient(),
        retries=RetryPolicy(attempts=50),
        jitter=lambda: 0.0,
    )
    with pytest.raises(LLMError, match=r"no complete answer within 0\.1 s") as late:
        await reranker.rerank(QUERY, TEXTS, 1)

    assert late.value.retryable
    assert len(attempts) <= 2


@pytest.mark.parametrize(
    ("connect", "serve", "limit"),
    [(VoyageReranker, VoyageServer, 1_000), (CohereReranker, CohereServer, 10_000)],
)
async def test_more_texts_than_the_server_takes_are_not_sent(
    connect: Connect, serve: Callable[[], VendorServer], limit: int
) -> None:
    server = serve()
    reranker = connect(API_KEY, transport=server.transport)

    with pytest.raises(ValueError, match=f"up to {limit} texts, got {limit + 1}: lower fetch_k"):
        await reranker.rerank(QUERY, ["x"] * (limit + 1), 1)

    assert server.requests == []
    assert (await reranker.rerank(QUERY, ["x"] * limit, 1)) == [limit - 1]


async def test_a_transport_of_the_older_httpx_serves_as_well(vendor: Vendor) -> None:
    serve, connect, _ = vendor
    server = serve()

    def handle(request: httpx.Request) -> httpx.Response:
        body, headers = request.content, dict(request.headers)
        answer = server(httpx2.Request("POST", str(request.url), content=body, headers=headers))
        return httpx.Response(answer.status_code, content=answer.content)

    reranker = connect(API_KEY, transport=httpx.MockTransport(handle))

    assert (await reranker.rerank(QUERY, TEXTS, 2)) == [3, 2]


async def test_a_client_may_be_given_and_stays_open(vendor: Vendor) -> None:
    serve, connect, _ = vendor

    async with httpx2.AsyncClient(transport=serve().transport) as http:
        reranker = connect(API_KEY, http=http)

        assert await reranker.rerank(QUERY, TEXTS, 1) == [3]

        await reranker.aclose()
        assert await reranker.rerank(QUERY, TEXTS, 1) == [3]


async def test_a_lone_surrogate_does_not_spoil_the_other_texts(vendor: Vendor) -> None:
    serve, connect, _ = vendor
    server = serve()
    reranker = connect(API_KEY, transport=server.transport)

    assert (await reranker.rerank(QUERY + "\udc80", ["a \ud800", TEXTS[3]], 2)) == [1, 0]
    assert server.bodies[0]["documents"] == ["a ?", TEXTS[3]]


def test_a_client_and_a_transport_contradict_each_other(vendor: Vendor) -> None:
    serve, connect, _ = vendor

    with pytest.raises(ValueError, match="not both"):
        connect(API_KEY, http=object(), transport=serve().transport)
