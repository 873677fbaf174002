"""Embedders behind a server: batches of texts, requests at once, and the vectors of the answers."""

from __future__ import annotations

import asyncio
import base64
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, Final, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from lib._util.contexts import AsyncClosable
from lib._util.turns import turn
from lib.errors import InvalidReply, VectorError
from lib.resilience.protect import Protection
from lib.vector.contract import Purpose
from lib.vector.remote import ModelServer

T = TypeVar("T")
R = TypeVar("R")

MAX_REPLY_BYTES: Final = 256 * 1024 * 1024

Floats = NDArray[np.float32]


def indexed_rows(answer: Mapping[str, Any], count: int) -> list[Floats]:
    """Return the vectors of `{"data": [{"index": …, "embedding": …}]}` in the order of the texts.

    Raises:
        InvalidReply: they are not those of `count` texts.
    """
    data = answer.get("data")
    items = cast(list[Any], data) if isinstance(data, list) else []
    if not items or not all(isinstance(item, dict) for item in items):
        raise InvalidReply("the server's answer has no list of embeddings")
    return [row_of(item.get("embedding")) for item in _ordered(items, count)]


def row_of(embedding: Any) -> Floats:
    """Return the vector of a list of numbers, or of base64 of 32-bit little-endian floats.

    Raises:
        InvalidReply: it is neither.
    """
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


def stacked(rows: Sequence[Floats]) -> Floats:
    """Return the vectors, at least one, as the rows of a matrix.

    Raises:
        InvalidReply: they differ in length, are empty, or not finite.
    """
    expected = len(rows[0])
    for row in rows:
        if len(row) != expected or not expected:
            raise wrong_length(len(row), expected)
    matrix = np.stack(rows)
    if not np.isfinite(matrix).all():
        raise InvalidReply("the server gave a vector with a number that is not finite")
    return matrix


def wrong_length(got: int, expected: int) -> InvalidReply:
    """Return the error of a vector that has another length than the others."""
    return InvalidReply(f"the server gave a vector of length {got}, expected {expected}")


def _ordered(items: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Return the items by their index, or as they came where a server gives none."""
    indexes = [item.get("index") for item in items]
    if indexes == [None] * count:
        return items
    places = [index for index in indexes if type(index) is int]
    if len(places) != len(items) or sorted(places) != list(range(count)):
        raise InvalidReply(f"the server's {len(items)} embeddings are not those of {count} texts")
    return sorted(items, key=lambda item: item["index"])


def batches(texts: Iterable[str], *, max_texts: int, max_bytes: int) -> Iterator[list[str]]:
    """Yield the texts in lists of bounded length and size; a text above the size goes alone.

    Servers bound the tokens of a request; no token is shorter than a byte.
    """
    batch: list[str] = []
    size = 0
    for text in texts:
        more = len(text.encode("utf-8", "replace"))
        if batch and (len(batch) == max_texts or size + more > max_bytes):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += more
    if batch:
        yield batch


async def each(
    items: Sequence[T], call: Callable[[T], Awaitable[R]], *, concurrency: int
) -> list[R]:
    """Return what `call` gives for each item, in the order of the items.

    At most `concurrency` calls run at once. The first that fails cancels the others, and its
    error is raised.
    """
    waiting = enumerate(items)
    results: dict[int, R] = {}

    async def work() -> None:
        for place, item in waiting:
            results[place] = await call(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(items))):
                group.create_task(work())
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [results[place] for place in range(len(items))]


class RemoteEmbedder(AsyncClosable, ABC):
    """Sends texts to a server in batches, a few at once, and puts the vectors in order.

    A subclass says what a request is and where the vectors stand in the answer.

    Attributes:
        model: what the server calls it.
    """

    _stand_in: ClassVar[str] = "."
    """What is sent instead of a blank text, which servers refuse together with its batch."""

    def __init__(
        self,
        server: ModelServer,
        *,
        model: str,
        own_dimension: int | None,
        dimension: int | None,
        batch_size: int,
        max_batch_bytes: int,
        concurrency: int,
        prefixes: Mapping[Purpose, str] | None = None,
    ) -> None:
        """Take the limits of the server and of the caller.

        Args:
            server: where to ask.
            model: what the server calls it.
            own_dimension: the length of the model's vectors, None if unknown.
            dimension: the length that the caller wants, None for the model's own.
            batch_size: texts in one request, at most.
            max_batch_bytes: bytes of UTF-8 in one request, at most, unless one text has more.
            concurrency: requests at once, at most.
            prefixes: what is put before each text, by its purpose.

        Raises:
            ValueError: a size is below 1.
        """
        if batch_size < 1 or concurrency < 1 or (dimension is not None and dimension < 1):
            raise ValueError("batch_size, concurrency and dimension are at least 1")
        self.model = model
        self._server = server
        self._dimension = dimension or own_dimension
        self._is_learned = self._dimension is None
        self._contradicting: int | None = None
        self._requested = dimension if dimension != own_dimension else None
        self._batch_size, self._max_batch_bytes = batch_size, max_batch_bytes
        self._concurrency = concurrency
        self._prefixes: dict[Purpose, str] = {"document": "", "query": "", **(prefixes or {})}

    @property
    def dimension(self) -> int:
        """The length of every vector.

        Where it was not passed, it is that of the first vectors, until the server contradicts
        them twice running: the first such answer is refused, the second is believed.

        Raises:
            VectorError: it is unknown: nothing was embedded yet, and the model is not in our table.
        """
        if self._dimension is None:
            raise VectorError(
                f"the dimension of {self.model!r} is not known before its first vector: "
                "await discover() or pass dimension="
            )
        return self._dimension

    async def discover(self) -> int:
        """Return the dimension, embedding a text if it is unknown.

        Raises:
            LLMError: the server cannot be reached.
        """
        if self._dimension is None:
            await self.embed(["dimension"])
        return self.dimension

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Floats:
        """Return one row per text, in their order.

        A blank text is embedded as a stand-in, since servers refuse blank ones.

        Raises:
            LLMError: the server refuses, or cannot be reached; `retryable` if it may pass. The
                first batch that fails stops the others.
            InvalidReply: its answer cannot be read, or has vectors of another length.
        """
        await turn()
        prefix = self._prefixes[purpose]
        sent = [prefix + text if (prefix + text).strip() else self._stand_in for text in texts]
        limits = {"max_texts": self._batch_size, "max_bytes": self._max_batch_bytes}

        async def send(batch: list[str]) -> Floats:
            return await self._embed(batch, purpose)

        rows = await each([*batches(sent, **limits)], send, concurrency=self._concurrency)
        for row in rows:
            _check_length(row.shape[1], rows[0].shape[1])
        return np.concatenate(rows) if rows else np.zeros((0, self._dimension or 0), np.float32)

    def protected(self, protection: Protection) -> Self:
        """Return the same embedder behind a breaker and a limiter: each request is one attempt."""
        embedder = copy(self)
        embedder._server = self._server.protected(protection)  # noqa: SLF001 - a copy of its own
        return embedder

    async def aclose(self) -> None:
        """Close the connections that it has opened."""
        await self._server.aclose()

    async def _embed(self, batch: list[str], purpose: Purpose) -> Floats:
        def read(answer: dict[str, Any]) -> Floats:
            return stacked(self._rows(answer, len(batch)))

        vectors = await self._server.ask(self._body(batch, purpose), read)
        self._settle(vectors.shape[1])
        return vectors

    def _settle(self, length: int) -> None:
        """Learn the dimension, or hold the vectors of an answer to it."""
        # One wrong answer must not close the embedder to all right ones, even if it was the first.
        expected = self._dimension
        if expected is None or (self._is_learned and length == self._contradicting):
            expected = self._dimension = length
        self._contradicting = None if length == expected else length
        _check_length(length, expected)

    @abstractmethod
    def _body(self, texts: list[str], purpose: Purpose) -> dict[str, Any]:
        """Return the request."""

    @abstractmethod
    def _rows(self, answer: Mapping[str, Any], count: int) -> list[Floats]:
        """Return the vectors of an answer to `count` texts, in their order."""


def _check_length(length: int, expected: int) -> None:
    if length != expected:
        raise wrong_length(length, expected)
