"""Embeddings from OpenAI, or from any server that speaks its `/v1/embeddings`."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.json import parse
from lib.errors import InvalidReply, LLMError, VectorError
from lib.llm.wire.openai import server_address, server_headers
from lib.resilience import RetryPolicy, retry
from lib.vector.protocol import Purpose
from lib.wire.failures import status_error, told_error
from lib.wire.http import Wire

_OWN_DIMENSIONS: Final[Mapping[str, int]] = {
    "text-embedding-3-large": 3072,
    "text-embedding-3-small": 1536,
    "text-embedding-ada-002": 1536,
}
_MAX_BATCH_BYTES: Final = 250_000
"""OpenAI takes 300,000 tokens a request, and no token is shorter than a byte."""
_MAX_REPLY_BYTES: Final = 256 * 1024 * 1024
_OK: Final = 200
_DEFAULT_RETRIES: Final = RetryPolicy()

Floats = NDArray[np.float32]


class OpenAIEmbedder:
    """Asks a server for embeddings: OpenAI, Ollama, vLLM, llama.cpp, TEI and their like.

    Texts are sent in batches, one after the other; what may pass is tried again. Vectors come back
    in the order of the texts, as the server made them.

    Source: https://platform.openai.com/docs/api-reference/embeddings (2026-11).
    """

    def __init__(
        self,
        model: str = "text-embedding-3-small",
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        dimension: int | None = None,
        document_prefix: str = "",
        query_prefix: str = "",
        batch_size: int = 256,
        timeout_s: float = 60.0,
        http: Any = None,
        transport: Any = None,
        retries: RetryPolicy = _DEFAULT_RETRIES,
        clock: Clock = SYSTEM_CLOCK,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Prepare an embedder; nothing is opened before the first call.

        Args:
            model: what the server calls it.
            api_key: defaults to OPENAI_API_KEY; a server other than OpenAI's may need none.
            base_url: up to and with `/v1`; defaults to OPENAI_BASE_URL, else OpenAI.
            dimension: asks for vectors of this length, where it is not the model's own. None
                takes what comes: known of OpenAI's models, else with the first vector.
            document_prefix: put before each document, as "search_document: " for Nomic's models.
            query_prefix: put before each query.
            batch_size: texts in one request, at most; OpenAI takes 2,048.
            timeout_s: seconds for each whole answer.
            http: an `httpx2.AsyncClient` to use; it is not closed.
            transport: an httpx2 transport instead of the network, for tests and gateways.
            retries: how often and how long to try.
            clock: measures and waits between attempts.
            jitter: returns numbers from 0 up to 1, to spread the waits.

        Raises:
            ValueError: no key for OpenAI, a key or address that cannot be one, a size below 1, or
                both `http` and `transport`.
        """
        if batch_size < 1 or (dimension is not None and dimension < 1):
            raise ValueError("batch_size and dimension are at least 1")
        address, host = server_address(base_url)
        own = _OWN_DIMENSIONS.get(model)
        self.model = model
        self._dimension = dimension or own
        self._asked = dimension if dimension != own else None
        self._prefixes = {"document": document_prefix, "query": query_prefix}
        self._batch_size = batch_size
        self._url = f"{address}/embeddings"
        self._headers = server_headers(api_key, host) | {"accept": "application/json"}
        self._wire = Wire(
            http=http,
            transport=transport,
            timeout_s=timeout_s,
            max_bytes=_MAX_REPLY_BYTES,
            failure=LLMError,
            unreadable=InvalidReply,
        )
        self._retries, self._clock, self._jitter = retries, clock, jitter

    @property
    def dimension(self) -> int:
        """The length of every vector.

        Raises:
            VectorError: it is not known yet: nothing was embedded, and the model is not OpenAI's.
        """
        if self._dimension is None:
            raise VectorError(
                f"the dimension of {self.model!r} is not known before its first vector: "
                "await discover() or pass dimension="
            )
        return self._dimension

    async def discover(self) -> int:
        """Return the dimension, asking the server for a vector if it is not known yet.

        Raises:
            LLMError: the server cannot be asked.
        """
        if self._dimension is None:
            await self.embed(["dimension"])
        return self.dimension

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Floats:
        """Return one row per text, in the order given.

        An empty text is embedded as a space, since servers refuse empty ones.

        Raises:
            LLMError: the server refuses, or cannot be reached; `retryable` if it may pass.
            InvalidReply: its answer cannot be read, or has vectors of another length.
        """
        prefix = self._prefixes[purpose]
        batches = _batches([(prefix + text) or " " for text in texts], self._batch_size)
        rows = [await self._embed(batch) for batch in batches]
        return np.concatenate(rows) if rows else np.zeros((0, self._dimension or 0), np.float32)

    async def aclose(self) -> None:
        """Close the connections that it has opened."""
        await self._wire.aclose()

    async def _embed(self, batch: list[str]) -> Floats:
        body = {"model": self.model, "input": batch, "encoding_format": "base64"}
        asked = {} if self._asked is None else {"dimensions": self._asked}
        content = json.dumps(body | asked).encode()

        async def attempt() -> Floats:
            answer = await self._post(content)
            return await asyncio.to_thread(_vectors, answer, len(batch), self._dimension)

        vectors = await retry(attempt, policy=self._retries, clock=self._clock, random=self._jitter)
        self._dimension = vectors.shape[1]
        return vectors

    async def _post(self, content: bytes) -> bytes:
        async with self._wire.post(self._url, content, self._headers) as answer:
            if answer.status != _OK:
                start = await answer.read_start()
                raise status_error(
                    answer.status, start, answer.headers, self._clock.now(), LLMError
                )
            if answer.media_type == "text/html":
                raise InvalidReply("the server answered with a web page: check base_url")
            return await answer.read()


def _batches(texts: list[str], batch_size: int) -> Iterator[list[str]]:
    """Yield the texts in lists of bounded length and size; a text above the size goes alone."""
    batch: list[str] = []
    size = 0
    for text in texts:
        more = len(text.encode("utf-8", "replace"))
        if batch and (len(batch) == batch_size or size + more > _MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += more
    if batch:
        yield batch


def _vectors(content: bytes, count: int, dimension: int | None) -> Floats:
    """Return the rows of an answer in the order of the texts."""
    rows = [_vector(item) for item in _ordered(_items(content), count)]
    expected = dimension or len(rows[0])
    for row in rows:
        if len(row) != expected or not expected:
            raise InvalidReply(
                f"the server gave a vector of length {len(row)}, expected {expected}"
            )
    matrix = np.stack(rows)
    if not np.isfinite(matrix).all():
        raise InvalidReply("the server gave a vector with a number that is not finite")
    return matrix


def _items(content: bytes) -> list[dict[str, Any]]:
    try:
        body = parse(content)
    except (ValueError, RecursionError):
        raise InvalidReply("the server's answer is not JSON", retryable=True) from None
    if isinstance(body, dict) and "error" in body:
        raise told_error(cast(Any, body), LLMError)
    data = cast(dict[str, Any], body).get("data") if isinstance(body, dict) else None
    items = cast(list[Any], data) if isinstance(data, list) else []
    if not items or not all(isinstance(item, dict) for item in items):
        raise InvalidReply("the server's answer has no list of embeddings")
    return items


def _ordered(items: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Return the items by their index, or as they came where a server gives none."""
    indexes = [item.get("index") for item in items]
    if indexes == [None] * count:
        return items
    if sorted(map(str, indexes)) != sorted(map(str, range(count))):
        raise InvalidReply(f"the server's {len(items)} embeddings are not those of {count} texts")
    return sorted(items, key=lambda item: item["index"])


def _vector(item: dict[str, Any]) -> Floats:
    embedding = item.get("embedding")
    try:
        if isinstance(embedding, str):
            row = np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
        else:
            with np.errstate(over="ignore"):  # what overflows is not finite, and refused as such
                row = np.array(embedding, np.float32)
    except (TypeError, ValueError, OverflowError):
        row = None
    if row is None or row.ndim != 1:
        raise InvalidReply("the server gave an embedding that is no list of numbers")
    return row
