"""Rerankers behind a server: a query and texts go in, an index and a score for each come out."""

from __future__ import annotations

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, cast

from lib._util.clock import Clock
from lib._util.contexts import AsyncClosable
from lib.errors import InvalidReply, LLMError
from lib.resilience import RetryPolicy
from lib.vector.remote.server import ModelServer
from lib.vector.rerank.order import best_first

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
            ValueError: both `http` and `transport` are given.
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
