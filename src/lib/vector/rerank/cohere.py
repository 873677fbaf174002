"""Reranking by Cohere."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.resilience import RetryPolicy
from lib.vector.remote.accounts import COHERE_URL, cohere_account
from lib.vector.rerank.http import DEFAULT_RETRIES, HTTPReranker


class CohereReranker(HTTPReranker):
    """Asks Cohere for the order. The query and the passages leave the process.

    Passages are cut at `max_tokens_per_doc`, by the server. A call takes up to 10,000 passages;
    Cohere advises up to 1,000.

    Source: https://docs.cohere.com/reference/rerank (v2, 2026-11).
    """

    _max_texts: ClassVar[int] = 10_000
    _results: ClassVar[str] = "results"

    def __init__(
        self,
        api_key: str | None = None,
        *,
        model: str = "rerank-v4.0-pro",
        base_url: str = COHERE_URL,
        timeout_s: float = 20.0,
        transport: Any = None,
        http: Any = None,
        max_tokens_per_doc: int = 4096,
        retries: RetryPolicy = DEFAULT_RETRIES,
        clock: Clock = SYSTEM_CLOCK,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Prepare a reranker; nothing is opened before the first call.

        Args:
            api_key: defaults to CO_API_KEY, then COHERE_API_KEY.
            model: what Cohere calls it.
            base_url: without `/v2`; while it is Cohere's own, CO_API_URL replaces it.
            timeout_s: seconds for a whole call, attempts and waits included.
            transport: an httpx2 or httpx transport instead of the network.
            http: an `httpx2.AsyncClient` to use; it is not closed.
            max_tokens_per_doc: how much of each passage is read.
            retries: how often and how long to try, within `timeout_s`.
            clock: measures and waits between attempts.
            jitter: returns numbers from 0 up to 1, to spread the waits.

        Raises:
            ValueError: no key, a key or address that cannot be one, or both `http` and
                `transport`.
        """
        super().__init__(
            cohere_account("CohereReranker", "/v2/rerank", api_key, base_url),
            model=model,
            timeout_s=timeout_s,
            http=http,
            transport=transport,
            retries=retries,
            clock=clock,
            jitter=jitter,
        )
        self._max_tokens_per_doc = max_tokens_per_doc

    def _body(self, query: str, texts: list[str], wanted: int) -> dict[str, Any]:
        return {
            "model": self.model,
            "query": query,
            "documents": texts,
            "top_n": wanted,
            "max_tokens_per_doc": self._max_tokens_per_doc,
        }
