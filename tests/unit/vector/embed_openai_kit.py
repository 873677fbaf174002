"""Shared by tests of `OpenAIEmbedder`: an embeddings server at the wire, and one who asks it."""

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np

from lib.resilience import RetryPolicy
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
    arguments: dict[str, Any] = {
        "model": "own-model",
        "api_key": KEY,
        "base_url": "http://127.0.0.1:1/v1/",
        "retries": RetryPolicy(attempts=1),
    }
    return OpenAIEmbedder(**arguments | options, transport=httpx2.MockTransport(handler))
