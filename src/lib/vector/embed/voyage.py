"""Embeddings from Voyage AI, at its own address or at MongoDB's."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.resilience import RetryPolicy
from lib.vector.contract import Purpose
from lib.vector.embed.remote import MAX_REPLY_BYTES, Floats, RemoteEmbedder, indexed_rows
from lib.vector.remote import VOYAGE_URL, ModelServer, voyage_account

_OWN_DIMENSIONS: Final[Mapping[str, int]] = dict.fromkeys(
    (
        "voyage-4-large",
        "voyage-4",
        "voyage-4-lite",
        "voyage-3-large",
        "voyage-3.5",
        "voyage-3.5-lite",
        "voyage-code-3",
        "voyage-finance-2",
        "voyage-law-2",
    ),
    1024,
)
_MAX_TOKENS: Final[Mapping[str, int]] = {
    "voyage-4-lite": 1_000_000,
    "voyage-3.5-lite": 1_000_000,
    "voyage-4": 320_000,
    "voyage-3.5": 320_000,
    "voyage-2": 320_000,
}
"""Tokens of one request, of all its texts together; no token is shorter than a byte."""
_LEAST_MAX_TOKENS: Final = 120_000
_MAX_TEXTS: Final = 1_000
_PROMPT_TOKENS: Final = 10
"""What the server puts before and after each text; those of 1,000 texts are kept free."""
_DEFAULT_RETRIES: Final = RetryPolicy()


class VoyageEmbedder(RemoteEmbedder):
    """Asks Voyage AI for embeddings. Texts leave the process.

    Texts are sent in batches, `concurrency` at once; what may pass is tried again. A text that
    is longer than the model reads is cut at its end, by the server. A blank text is embedded as
    ".", since the server refuses empty ones.

    Source: https://docs.voyageai.com/reference/embeddings-api (2026-11), and Voyage's Python
    SDK 0.5.
    """

    def __init__(
        self,
        model: str = "voyage-4",
        *,
        api_key: str | None = None,
        base_url: str = VOYAGE_URL,
        dimension: int | None = None,
        batch_size: int = 128,
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
            model: what Voyage calls it.
            api_key: defaults to VOYAGE_API_KEY.
            base_url: without `/v1`; while it is Voyage's own, keys of MongoDB Atlas ("al-...")
                go to https://ai.mongodb.com.
            dimension: asks for vectors of this length: 256, 512, 1024 or 2048 of most models.
                None takes the model's own.
            batch_size: texts in one request, from 1 to 1,000.
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
            raise ValueError(f"batch_size is {batch_size}, Voyage takes {_MAX_TEXTS} texts at once")
        server = ModelServer(
            *voyage_account("VoyageEmbedder", "/v1/embeddings", api_key, base_url),
            timeout_s=timeout_s,
            max_bytes=MAX_REPLY_BYTES,
            retries=retries,
            clock=clock,
            jitter=jitter,
            http=http,
            transport=transport,
        )
        max_tokens = _MAX_TOKENS.get(model, _LEAST_MAX_TOKENS)
        super().__init__(
            server,
            model=model,
            own_dimension=_OWN_DIMENSIONS.get(model),
            dimension=dimension,
            batch_size=batch_size,
            max_batch_bytes=max_tokens - _MAX_TEXTS * _PROMPT_TOKENS,
            concurrency=concurrency,
        )

    def _body(self, texts: list[str], purpose: Purpose) -> dict[str, Any]:
        size = {} if self._requested is None else {"output_dimension": self._requested}
        return {
            "model": self.model,
            "input": texts,
            "input_type": purpose,
            "truncation": True,
            "encoding_format": "base64",
            **size,
        }

    def _rows(self, answer: Mapping[str, Any], count: int) -> list[Floats]:
        return indexed_rows(answer, count)
