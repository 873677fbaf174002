"""Cohere's, Voyage's and OpenAI's endpoints for embedding and reranking, at the wire.

Each is a handler for `httpx2.MockTransport`; it refuses what its model refuses, and says so in its
words. Models are bags of words: a text is as relevant as it has words of the query, and near to
texts that share its words. Results with the same score come in an order of the server's own, and
OpenAI's embeddings in another order than the texts, since only their indexes are promised.

Source: https://docs.cohere.com/reference/rerank, /embed and /docs/errors,
https://docs.voyageai.com/reference (2026-11). The SDKs of both, cohere 7.3.1 and voyageai 0.5.0,
read these answers.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import httpx2

Fields: TypeAlias = dict[str, Any]
Endpoint: TypeAlias = Callable[[Mapping[str, Any]], Fields]
Failure: TypeAlias = "httpx2.Response | Exception"

API_KEY: Final = "test-key-0123456789"
DIMENSION: Final = 64
_WORD: Final = re.compile(r"\w+")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_PROMPT_TOKENS: Final = 10


class Refused(Exception):
    """A server's answer to a request that it refuses."""

    def __init__(self, message: str, status: int = 400) -> None:
        self.message, self.status = message, status
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Received:
    """A request that came; names of headers are in lower case."""

    url: str
    headers: Mapping[str, str]
    body: Fields


class VendorServer(ABC):
    """A vendor's server.

    Attributes:
        requests: what came, oldest first.
        failures: answers to give, or errors of the connection to raise, before anything else.
        quirks: fields that replace those of an answer.
    """

    def __init__(
        self, *, api_key: str = API_KEY, failures: Sequence[Failure] = (), **quirks: Any
    ) -> None:
        """Take the key that a request must bring, and what goes wrong."""
        self.requests: list[Received] = []
        self.failures = list(failures)
        self.quirks = quirks
        self._api_key = api_key

    @property
    def transport(self) -> httpx2.MockTransport:
        """The transport of a client in place of the network."""
        return httpx2.MockTransport(self)

    @property
    def bodies(self) -> list[Fields]:
        """The bodies of the requests, oldest first."""
        return [received.body for received in self.requests]

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        self.requests.append(Received(str(request.url), dict(request.headers), body))
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return failure
        try:
            answer = self._answer(request, body)
        except Refused as refused:
            return httpx2.Response(refused.status, json=self._error(refused.message))
        return httpx2.Response(200, json=answer | self.quirks)

    def _answer(self, request: httpx2.Request, body: Fields) -> Fields:
        authorization = request.headers.get("authorization", "")
        if authorization != f"Bearer {self._api_key}":
            raise Refused(f"invalid api token: {authorization}", 401)
        if _SURROGATE.search(json.dumps(body, ensure_ascii=False)):
            raise Refused("the request is not valid JSON")
        endpoints = self._endpoints()
        if request.url.path not in endpoints:
            raise Refused("not found", 404)
        fields, endpoint = endpoints[request.url.path]
        for name in body.keys() - fields:
            raise Refused(f"argument {name!r} is not supported")
        if not isinstance(body.get("model"), str):
            raise Refused("model must be specified")
        return endpoint(body)

    @abstractmethod
    def _endpoints(self) -> Mapping[str, tuple[frozenset[str], Endpoint]]:
        """Return by path the fields that a request may have, and what answers it."""

    @abstractmethod
    def _error(self, message: str) -> Fields:
        """Return the body of a refusal."""


class CohereServer(VendorServer):
    """`/v2/rerank` and `/v2/embed` of Cohere."""

    def _endpoints(self) -> Mapping[str, tuple[frozenset[str], Endpoint]]:
        return {
            "/v2/rerank": (_COHERE_RERANK, self._rerank),
            "/v2/embed": (_COHERE_EMBED, self._embed),
        }

    def _error(self, message: str) -> Fields:
        return {"id": "1", "message": message}

    def _rerank(self, body: Mapping[str, Any]) -> Fields:
        documents = _texts(body.get("documents"), 10_000, "documents")
        if not str(body.get("query", "")).strip():
            raise Refused("query must not be empty or be only whitespace")
        results = _ranked(body["query"], documents, body.get("top_n"))
        return {"id": "1", "results": results, "meta": {"billed_units": {"search_units": 1}}}

    def _embed(self, body: Mapping[str, Any]) -> Fields:
        texts = _texts(body.get("texts"), 96, "texts")
        if body.get("input_type") not in {"search_document", "search_query"}:
            raise Refused("valid input_type must be provided with the provided model")
        dimension = body.get("output_dimension", DIMENSION)
        if dimension != DIMENSION and not body["model"].startswith("embed-v4"):
            raise Refused("output_dimension is not supported by this model")
        return {
            "id": "1",
            "embeddings": {"float": [vector_of(text, dimension) for text in texts]},
            "texts": texts,
            "meta": {"billed_units": {"input_tokens": len(texts)}},
            "response_type": "embeddings_by_type",
        }


class VoyageServer(VendorServer):
    """`/v1/rerank` and `/v1/embeddings` of Voyage AI."""

    def _endpoints(self) -> Mapping[str, tuple[frozenset[str], Endpoint]]:
        return {
            "/v1/rerank": (_VOYAGE_RERANK, self._rerank),
            "/v1/embeddings": (_VOYAGE_EMBED, self._embed),
        }

    def _error(self, message: str) -> Fields:
        return {"detail": message}

    def _rerank(self, body: Mapping[str, Any]) -> Fields:
        documents = _texts(body.get("documents"), 1_000, "documents")
        if not str(body.get("query", "")).strip():
            raise Refused("query cannot be empty")
        results = _ranked(body["query"], documents, body.get("top_k"))
        return _listing(body, results)

    def _embed(self, body: Mapping[str, Any]) -> Fields:
        texts = _texts(body.get("input"), 1_000, "input")
        if sum(map(_most_tokens, texts)) > _VOYAGE_TOKENS.get(body["model"], 120_000):
            raise Refused("the max allowed tokens per submitted batch is exceeded")
        if body.get("input_type") not in {"document", "query", None}:
            raise Refused("input_type is one of 'document', 'query'")
        return _listing(body, _indexed(body, texts, body.get("output_dimension")))


class OpenAIServer(VendorServer):
    """`/v1/embeddings` of OpenAI."""

    def _endpoints(self) -> Mapping[str, tuple[frozenset[str], Endpoint]]:
        return {"/v1/embeddings": (_OPENAI_EMBED, self._embed)}

    def _error(self, message: str) -> Fields:
        return {"error": {"message": message, "type": "invalid_request_error"}}

    def _embed(self, body: Mapping[str, Any]) -> Fields:
        texts = _texts(body.get("input"), 2_048, "input", blank_too=True)
        if sum(map(_most_tokens, texts)) > _OPENAI_TOKENS:
            raise Refused("requested too many tokens")
        return _listing(body, _indexed(body, texts, body.get("dimensions"))[::-1])


_COHERE_RERANK: Final = frozenset(
    {"model", "query", "documents", "top_n", "max_tokens_per_doc", "priority", "relevant_spans"}
)
_COHERE_EMBED: Final = frozenset(
    {
        "model",
        "texts",
        "images",
        "inputs",
        "input_type",
        "embedding_types",
        "truncate",
        "max_tokens",
        "output_dimension",
        "priority",
    }
)
_VOYAGE_RERANK: Final = frozenset(
    {"model", "query", "documents", "top_k", "return_documents", "truncation"}
)
_VOYAGE_EMBED: Final = frozenset(
    {
        "model",
        "input",
        "input_type",
        "truncation",
        "output_dimension",
        "output_dtype",
        "encoding_format",
    }
)
_OPENAI_EMBED: Final = frozenset({"model", "input", "dimensions", "encoding_format", "user"})
_OPENAI_TOKENS: Final = 300_000
_VOYAGE_TOKENS: Final = {
    "voyage-4-lite": 1_000_000,
    "voyage-3.5-lite": 1_000_000,
    "voyage-4": 320_000,
    "voyage-3.5": 320_000,
    "voyage-2": 320_000,
}


def vector_of(text: str, dimension: int = DIMENSION) -> list[float]:
    """Return the fakes' vector of a text: how often each word is in it, by the word's hash.

    The first number is 0.25 more, so that a text without words has a direction, too.
    """
    vector = [0.0] * dimension
    vector[0] = 0.25
    for word in _words(text):
        vector[zlib.crc32(word.encode("utf-8", "replace")) % dimension] += 1
    return vector


def relevance(query: str, text: str) -> float:
    """Return the share of the query's words that the text has, from 0 to 1."""
    wanted = set(_words(query))
    return len(wanted.intersection(_words(text))) / max(1, len(wanted))


def _words(text: str) -> Iterator[str]:
    return (found[0] for found in _WORD.finditer(text.lower()))


def _texts(value: Any, limit: int, name: str, *, blank_too: bool = False) -> list[str]:
    texts = cast(list[Any], value) if isinstance(value, list) else []
    if not texts:
        raise Refused(f"list of {name} must not be empty")
    if len(texts) > limit:
        raise Refused(f"too many {name}: at most {limit} at once")
    if not all(isinstance(text, str) and (text.strip() or (text and blank_too)) for text in texts):
        raise Refused(f"{name} must not contain empty strings or only whitespace")
    return texts


def _ranked(query: str, documents: Sequence[str], limit: int | None) -> list[Fields]:
    """Return the results best first; of equal ones the last comes first, as any may."""
    if limit is not None and limit < 1:
        raise Refused("the number of results must be at least 1")
    scores = [relevance(query, document) for document in documents]
    places = sorted(range(len(scores)), key=lambda place: (-scores[place], -place))
    return [{"index": place, "relevance_score": scores[place]} for place in places[:limit]]


def _listing(body: Mapping[str, Any], items: list[Fields]) -> Fields:
    usage = {"prompt_tokens": len(items), "total_tokens": len(items)}
    return {"object": "list", "data": items, "model": body["model"], "usage": usage}


def _indexed(body: Mapping[str, Any], texts: Sequence[str], dimension: int | None) -> list[Fields]:
    """Return the embeddings with their index."""
    write = _base64 if body.get("encoding_format") == "base64" else list[float]
    return [
        {
            "object": "embedding",
            "embedding": write(vector_of(text, dimension or DIMENSION)),
            "index": place,
        }
        for place, text in enumerate(texts)
    ]


def _most_tokens(text: str) -> int:
    """Return how many tokens a text can have at most: a byte each, and the server's prompt."""
    return len(text.encode("utf-8", "replace")) + _PROMPT_TOKENS


def _base64(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
