"""Reranking by Voyage AI, at its own address or at MongoDB's."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.resilience import RetryPolicy
from lib.vector.remote.accounts import VOYAGE_URL, voyage_account
from lib.vector.rerank.http import DEFAULT_RETRIES, HTTPReranker


class VoyageReranker(HTTPReranker):
    """Asks Voyage AI for the order. The query and the passages leave the process.

    A passage that is longer than the model reads is cut, by the server. A call takes up to 1,000
    passages, and refuses more than 600,000 tokens, where the query counts once for each passage.

    Source: https://docs.voyageai.com/reference/reranker-api (2026-11).
    """

    _max_texts: ClassVar[int] = 1_000
    _results: ClassVar[str] = "data"

    def __init__(
        self,
        api_key: str | None = None,
        *,
        model: str = "rerank-2.5",
        base_url: str = VOYAGE_URL,
        timeout_s: float = 20.0,
        transport: Any = None,
        http: Any = None,
        retries: RetryPolicy = DEFAULT_RETRIES,
        clock: Clock = SYSTEM_CLOCK,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Prepare a reranker; nothing is opened before the first call.

        Args:
            api_key: defaults to VOYAGE_API_KEY.
            model: what Voyage calls it.
            base_url: without `/v1`; while it is Voyage's own, keys of MongoDB Atlas ("al-...")
                go to https://ai.mongodb.com.
            timeout_s: seconds for a whole call, attempts and waits included.
            transport: an httpx2 or httpx transport instead of the network.
            http: an `httpx2.AsyncClient` to use; it is not closed.
            retries: how often and how long to try, within `timeout_s`.
            clock: measures and waits between attempts.
            jitter: returns numbers from 0 up to 1, to spread the waits.

        Raises:
            ValueError: no key, a key or address that cannot be one, or both `http` and
                `transport`.
        """
        super().__init__(
            voyage_account("VoyageReranker", "/v1/rerank", api_key, base_url),
            model=model,
            timeout_s=timeout_s,
            http=http,
            transport=transport,
            retries=retries,
            clock=clock,
            jitter=jitter,
        )

    def _body(self, query: str, texts: list[str], wanted: int) -> dict[str, Any]:
        return {
            "model": self.model,
            "query": query,
            "documents": texts,
            "top_k": wanted,
            "return_documents": False,
            "truncation": True,
        }
