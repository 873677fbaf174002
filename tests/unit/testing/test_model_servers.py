"""The fakes of Cohere, Voyage and OpenAI refuse what the real ones do."""

import json
from typing import Any

import httpx2
import pytest

from fakes.model_servers import (
    API_KEY,
    CohereServer,
    OpenAIServer,
    VendorServer,
    VoyageServer,
    relevance,
    vector_of,
)

Body = dict[str, Any]
RERANK: Body = {"model": "m", "query": "a b", "documents": ["b", "c", "a b"]}
COHERE_EMBED: Body = {"model": "m", "texts": ["a"], "input_type": "search_query"}
EMBED: Body = {"model": "m", "input": ["a"]}
SERVERS: dict[str, VendorServer] = {
    "/v2/rerank": CohereServer(),
    "/v2/embed": CohereServer(),
    "/v1/rerank": VoyageServer(),
    "/v1/embeddings": VoyageServer(),
    "openai": OpenAIServer(),
}


def post(server: VendorServer, path: str, body: Body, key: str = API_KEY) -> httpx2.Response:
    headers = {"authorization": f"Bearer {key}"}
    request = httpx2.Request("POST", "http://x" + path, content=json.dumps(body), headers=headers)
    return server(request)


@pytest.mark.parametrize(
    ("path", "body", "change", "message"),
    [
        ("/v2/rerank", RERANK, {"query": " "}, "query must not be empty or be only whitespace"),
        ("/v2/rerank", RERANK, {"documents": []}, "list of documents must not be empty"),
        ("/v2/rerank", RERANK, {"documents": "text"}, "list of documents must not be empty"),
        ("/v2/rerank", RERANK, {"documents": ["a", " "]}, "documents must not contain empty"),
        ("/v2/rerank", RERANK, {"documents": ["a"] * 10_001}, "too many documents"),
        ("/v2/rerank", RERANK, {"documents": ["a", "\ud800"]}, "not valid JSON"),
        ("/v2/rerank", RERANK, {"return_documents": True}, "'return_documents' is not supported"),
        ("/v2/rerank", RERANK, {"top_n": 0}, "must be at least 1"),
        ("/v2/rerank", RERANK, {"model": None}, "model must be specified"),
        ("/v2/embed", COHERE_EMBED, {"texts": ["a"] * 97}, "too many texts"),
        ("/v2/embed", COHERE_EMBED, {"texts": ["a", ""]}, "texts must not contain empty"),
        ("/v2/embed", COHERE_EMBED, {"input_type": None}, "valid input_type"),
        ("/v2/embed", COHERE_EMBED, {"output_dimension": 256}, "output_dimension is not supported"),
        ("/v1/rerank", RERANK, {"query": ""}, "query cannot be empty"),
        ("/v1/rerank", RERANK, {"documents": ["a"] * 1_001}, "too many documents"),
        ("/v1/rerank", RERANK, {"top_n": 1}, "'top_n' is not supported"),
        ("/v1/embeddings", EMBED, {"dimensions": 256}, "'dimensions' is not supported"),
        ("/v1/embeddings", EMBED, {"input": [""]}, "input must not contain empty"),
        ("/v1/embeddings", EMBED, {"input": ["a"] * 1_001}, "too many input"),
        ("/v1/embeddings", EMBED, {"input": ["x" * 120_000]}, "max allowed tokens"),
        ("/v1/embeddings", EMBED, {"input_type": "search_query"}, "input_type is one of"),
        ("openai", EMBED, {"input": [""]}, "input must not contain empty"),
        ("openai", EMBED, {"input": ["x" * 300_000]}, "too many tokens"),
    ],
)
def test_a_request_that_breaks_a_rule_is_refused(
    path: str, body: Body, change: Body, message: str
) -> None:
    server, real_path = SERVERS[path], path if path != "openai" else "/v1/embeddings"

    good = post(server, real_path, body)
    bad = post(server, real_path, body | change)

    assert (good.status_code, bad.status_code) == (200, 400)
    assert message in bad.text


@pytest.mark.parametrize(
    ("server", "field"), [(CohereServer(), "message"), (VoyageServer(), "detail")]
)
def test_refusals_are_in_the_words_of_the_vendor(server: VendorServer, field: str) -> None:
    unknown_key = post(server, "/v2/rerank", RERANK, key="wrong")
    unknown_path = post(server, "/v9/rerank", RERANK)

    assert (unknown_key.status_code, unknown_path.status_code) == (401, 404)
    assert "wrong" in unknown_key.json()[field]


def test_results_come_best_first_and_as_many_as_requested() -> None:
    ranked = post(CohereServer(), "/v2/rerank", RERANK | {"top_n": 2}).json()["results"]
    whole = post(VoyageServer(), "/v1/rerank", RERANK).json()["data"]

    assert ranked == [
        {"index": 2, "relevance_score": 1.0},
        {"index": 0, "relevance_score": 0.5},
    ]
    assert [result["index"] for result in whole] == [2, 0, 1]


def test_embeddings_are_numbers_unless_base64_is_requested() -> None:
    numbers = post(OpenAIServer(), "/v1/embeddings", EMBED).json()["data"]
    text = post(OpenAIServer(), "/v1/embeddings", EMBED | {"encoding_format": "base64"}).json()

    assert numbers == [{"object": "embedding", "index": 0, "embedding": vector_of("a")}]
    assert isinstance(text["data"][0]["embedding"], str)


def test_a_text_is_as_relevant_as_it_has_words_of_the_query() -> None:
    assert [relevance("A b", text) for text in ("b, a!", "b b", "c", "")] == [1.0, 0.5, 0.0, 0.0]
    assert relevance("", "a") == 0.0
