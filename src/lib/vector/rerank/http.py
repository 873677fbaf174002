"""Cohere and Voyage as rerankers: a query and texts go in, indexes with scores come out."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, Final, Self, cast

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.contexts import AsyncClosable
from lib.errors import InvalidReply, LLMError
from lib.resilience import RetryPolicy
from lib.resilience.protect import Protection
from lib.vector.remote import COHERE_URL, VOYAGE_URL, ModelServer, cohere_account, voyage_account
from lib.vector.rerank.contract import best_first

_log = logging.getLogger("lib.vector")

DEFAULT_RETRIES: Final = RetryPolicy(attempts=3)
_MAX_REPLY_BYTES: Final = 8 * 1024 * 1024


class HTTPReranker(AsyncClosable, ABC):
    """Asks a server for the order of texts; a subclass says what a request is.

    The server's order is not trusted: results are sorted by their score, ties by their place.

    Attributes:
        model: what the server calls it.
        timeout_s: seconds for a whole call, attempts and waits included.
    """

    _max_texts: ClassVar[int]
    _results: ClassVar[str]
    """The answer's field that lists the results."""

    def __init__(
        self,
        account: tuple[str, Mapping[str, str]],
        *,
        model: str,
        timeout_s: float,
        http: Any,
        transport: Any,
        retries: RetryPolicy,
        clock: Clock,
        jitter: Callable[[], float],
    ) -> None:
        """Prepare; `account` is the URL and the headers of a request.

        Raises:
            ValueError: there are both `http` and `transport`.
        """
        self.model = model
        self.timeout_s = timeout_s
        self._server = ModelServer(
            *account,
            timeout_s=timeout_s,
            max_bytes=_MAX_REPLY_BYTES,
            # An attempt that could only begin after the deadline is not waited for.
            retries=replace(retries, deadline_s=min(retries.deadline_s, timeout_s)),
            clock=clock,
            jitter=jitter,
            http=http,
            transport=transport,
        )

    async def rerank(self, query: str, texts: Sequence[str], k: int) -> list[int]:
        """Return the places of the k most relevant texts, best first; see `Reranker`.

        An answer that cannot be read, or is no order of these texts, keeps the order.

        Raises:
            ValueError: k is below 1, or there are more texts than the server takes at once.
            LLMError: the server refuses, or cannot be reached in time; `retryable` if it may pass.
        """

        async def judge(judged: Sequence[str], wanted: int) -> list[int]:
            return await self._judge(query, list(judged), wanted)

        return await best_first(query, texts, k, judge)

    def protected(self, protection: Protection) -> Self:
        """Return the same reranker behind a breaker and a limiter: each request is one attempt."""
        reranker = copy(self)
        reranker._server = self._server.protected(protection)  # noqa: SLF001 - a copy of its own
        return reranker

    async def aclose(self) -> None:
        """Close the connections that it has opened."""
        await self._server.aclose()

    async def _judge(self, query: str, texts: list[str], wanted: int) -> list[int]:
        if len(texts) > self._max_texts:
            raise ValueError(
                f"{type(self).__name__} takes up to {self._max_texts} texts, got {len(texts)}: "
                "lower fetch_k"
            )

        def read(answer: dict[str, Any]) -> list[int]:
            return _order(answer.get(self._results), len(texts), wanted)

        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._server.ask(self._body(query, texts, wanted), read)
        except InvalidReply as error:
            _log.warning("%s keeps the order of the texts: %s", type(self).__name__, error)
            return []
        except TimeoutError:
            raise LLMError(
                f"no complete answer within {self.timeout_s:g} s", retryable=True
            ) from None

    @abstractmethod
    def _body(self, query: str, texts: list[str], wanted: int) -> dict[str, Any]:
        """Return the request for the places of the `wanted` best texts."""


def _order(results: Any, count: int, wanted: int) -> list[int]:
    """Return the places of the results, highest score first.

    Raises:
        InvalidReply: they are not `wanted` different places of `count` texts, each with a score.
    """
    listed = cast(list[Any], results) if isinstance(results, list) else []
    scores = dict(_result(item, count) for item in listed)
    if not len(scores) == len(listed) == wanted:
        raise InvalidReply(
            f"the server's {len(listed)} results are not the {wanted} best of {count} texts"
        )
    return sorted(scores, key=lambda place: (-scores[place], place))


def _result(item: Any, count: int) -> tuple[int, float]:
    fields = cast(dict[str, Any], item) if isinstance(item, dict) else {}
    place, score = fields.get("index"), fields.get("relevance_score")
    if type(place) is not int or not 0 <= place < count:
        raise InvalidReply(f"the server gave a result that is none of the {count} texts")
    if not isinstance(score, int | float) or isinstance(score, bool) or not _is_finite(score):
        raise InvalidReply("the server gave a result whose score is no number")
    return place, score


def _is_finite(score: float) -> bool:
    try:
        return math.isfinite(score)
    except OverflowError:  # an integer beyond all floats
        return False


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
