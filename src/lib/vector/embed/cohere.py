"""Embeddings from Cohere."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.errors import InvalidReply
from lib.resilience import RetryPolicy
from lib.vector.contract import Purpose
from lib.vector.embed.remote import MAX_REPLY_BYTES, Floats, RemoteEmbedder, row_of
from lib.vector.remote import COHERE_URL, ModelServer, cohere_account

_OWN_DIMENSIONS: Final[Mapping[str, int]] = {
    "embed-v4.0": 1536,
    "embed-english-v3.0": 1024,
    "embed-multilingual-v3.0": 1024,
    "embed-english-light-v3.0": 384,
    "embed-multilingual-light-v3.0": 384,
}
_INPUT_TYPES: Final[Mapping[Purpose, str]] = {
    "document": "search_document",
    "query": "search_query",
}
_MAX_TEXTS: Final = 96
_MAX_BATCH_BYTES: Final = 120_000
"""Where Cohere's models are hosted by others, a request has up to 128,000 tokens."""
_DEFAULT_RETRIES: Final = RetryPolicy()


class CohereEmbedder(RemoteEmbedder):
    """Asks Cohere for embeddings. Texts leave the process.

    Texts are sent in batches, `concurrency` at once; what may pass is tried again. A text that
    is longer than the model reads is cut at its end, by the server. A blank text is embedded as
    ".", since the server refuses blank ones.

    Source: https://docs.cohere.com/reference/embed (v2, 2026-11), and Cohere's Python SDK 7.3.
    """

    def __init__(
        self,
        model: str = "embed-v4.0",
        *,
        api_key: str | None = None,
        base_url: str = COHERE_URL,
        dimension: int | None = None,
        batch_size: int = _MAX_TEXTS,
        concurrency: int = 4,
        timeout_s: float = 60.0,
        http: Any = None,
        transport: Any = None,
        retries: RetryPolicy = _DEFAULT_RETRIES,
        clock: Clock = SYSTEM_CLOCK,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Prepare an embedder; nothing is opened before the first call.

        Args:
            model: what Cohere calls it.
            api_key: defaults to CO_API_KEY, then COHERE_API_KEY.
            base_url: without `/v2`; while it is Cohere's own, CO_API_URL replaces it.
            dimension: asks for vectors of this length: 256, 512, 1024 or 1536 of `embed-v4.0`;
                older models have one length only. None takes the model's own.
            batch_size: texts in one request, from 1 to 96.
            concurrency: requests at once, at most.
            timeout_s: seconds for each whole answer.
            http: an `httpx2.AsyncClient` to use; it is not closed.
            transport: an httpx2 or httpx transport instead of the network.
            retries: how often and how long to try.
            clock: measures and waits between attempts.
            jitter: returns numbers from 0 up to 1, to spread the waits.

        Raises:
            ValueError: no key, a key or address that cannot be one, a size that cannot be, or
                both `http` and `transport`.
        """
        if batch_size > _MAX_TEXTS:
            raise ValueError(f"batch_size is {batch_size}, Cohere takes {_MAX_TEXTS} texts at once")
        server = ModelServer(
            *cohere_account("CohereEmbedder", "/v2/embed", api_key, base_url),
            timeout_s=timeout_s,
            max_bytes=MAX_REPLY_BYTES,
            retries=retries,
            clock=clock,
            jitter=jitter,
            http=http,
            transport=transport,
        )
        super().__init__(
            server,
            model=model,
            own_dimension=_OWN_DIMENSIONS.get(model),
            dimension=dimension,
            batch_size=batch_size,
            max_batch_bytes=_MAX_BATCH_BYTES,
            concurrency=concurrency,
        )

    def _body(self, texts: list[str], purpose: Purpose) -> dict[str, Any]:
        size = {} if self._requested is None else {"output_dimension": self._requested}
        return {
            "model": self.model,
            "texts": texts,
            "input_type": _INPUT_TYPES[purpose],
            "embedding_types": ["float"],
            "truncate": "END",
            **size,
        }

    def _rows(self, answer: Mapping[str, Any], count: int) -> list[Floats]:
        by_type = answer.get("embeddings")
        found = cast(dict[str, Any], by_type).get("float") if isinstance(by_type, dict) else None
        if not isinstance(found, list):
            raise InvalidReply("the server's answer has no list of embeddings")
        embeddings = cast(list[Any], found)
        if len(embeddings) != count:
            raise InvalidReply(f"the server gave {len(embeddings)} embeddings for {count} texts")
        return [row_of(embedding) for embedding in embeddings]
