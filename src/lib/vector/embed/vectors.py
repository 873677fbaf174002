"""Vectors in servers' answers: decoded, counted and checked before anybody computes with them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from lib.errors import InvalidReply

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
