"""Embeddings from OpenAI, or from any server that speaks its `/v1/embeddings`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.llm.api.endpoint import server_address, server_headers
from lib.resilience import RetryPolicy
from lib.vector.contract import Purpose
from lib.vector.embed.remote import MAX_REPLY_BYTES, Floats, RemoteEmbedder, indexed_rows
from lib.vector.remote import ModelServer

_OWN_DIMENSIONS: Final[Mapping[str, int]] = {
    "text-embedding-3-large": 3072,
    "text-embedding-3-small": 1536,
    "text-embedding-ada-002": 1536,
}
_MAX_BATCH_BYTES: Final = 250_000
"""OpenAI takes 300,000 tokens a request, and no token is shorter than a byte."""
_DEFAULT_RETRIES: Final = RetryPolicy()


class OpenAIEmbedder(RemoteEmbedder):
    """Asks a server for embeddings: OpenAI, Ollama, vLLM, llama.cpp, TEI and their like.

    Texts are sent in batches, `concurrency` at once; what may pass is tried again. Vectors come
    back in the order of the texts, as the server made them.

    Source: https://platform.openai.com/docs/api-reference/embeddings (2026-11).
    """

    _stand_in = " "  # the servers of its kind take a space, though neither nothing nor a new line

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
            model: what the server calls it.
            api_key: defaults to OPENAI_API_KEY; a server other than OpenAI's may need none.
            base_url: up to and with `/v1`; defaults to OPENAI_BASE_URL, else OpenAI.
            dimension: asks for vectors of this length, where it is not the model's own. None
                takes what comes: known of OpenAI's models, else with the first vector.
            document_prefix: put before each document, as "search_document: " for Nomic's models.
            query_prefix: put before each query.
            batch_size: texts in one request, at most; OpenAI takes 2,048.
            concurrency: requests at once, at most.
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
        address, host = server_address(base_url)
        server = ModelServer(
            f"{address}/embeddings",
            server_headers(api_key, host),
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
            prefixes={"document": document_prefix, "query": query_prefix},
        )

    def _body(self, texts: list[str], purpose: Purpose) -> dict[str, Any]:
        size = {} if self._requested is None else {"dimensions": self._requested}
        return {"model": self.model, "input": texts, "encoding_format": "base64", **size}

    def _rows(self, answer: Mapping[str, Any], count: int) -> list[Floats]:
        return indexed_rows(answer, count)
