"""Checks the input of every store, as a whole, before anything is read or written.

A vector is d finite 32-bit floats. Its length (the Euclidean one) is at most 2**62, and under
cosine at least 2**-62: within these bounds no product or sum of squares leaves the range of a
32-bit float, so that every backend can compute with it.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from lib.errors import DimensionMismatch, InvalidMeta, InvalidVector
from lib.vector.exact.search import row_lengths
from lib.vector.filter import Field, Filter
from lib.vector.filter.field import field_of, names_of
from lib.vector.records import Metric, Record, Vector
from lib.vector.values import plain_scalar, plain_text, python_value, whole_number

MAX_NAME = 512
MAX_META_DEPTH = 64
MAX_PAGE = 10_000
MAX_LENGTH = 2.0**62
MIN_LENGTH = 2.0**-62
_LEAST_SQUARE, _LARGEST_SQUARE = MIN_LENGTH**2, MAX_LENGTH**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records that may be stored: plain copies, no id twice.

    Attributes:
        vectors: n rows of d 32-bit floats, contiguous.
        lengths: their n Euclidean lengths.
    """

    ids: list[str]
    vectors: NDArray[np.float32]
    lengths: NDArray[np.float64]
    texts: list[str]
    metas: list[dict[str, Any]]

    def without(self, ids: Collection[str]) -> Batch:
        """Return the records that have none of the ids."""
        return self._of([row for row, name in enumerate(self.ids) if name not in ids])

    def pages(self, size: int) -> Iterator[Batch]:
        """Yield the records, so many at a time."""
        every = range(len(self.ids))
        for start in every[::size]:
            yield self._of(list(every[start : start + size]))

    def _of(self, rows: list[int]) -> Batch:
        if len(rows) == len(self.ids):
            return self
        return Batch(
            ids=[self.ids[row] for row in rows],
            vectors=self.vectors[rows],
            lengths=self.lengths[rows],
            texts=[self.texts[row] for row in rows],
            metas=[self.metas[row] for row in rows],
        )


def checked_batch(
    records: Sequence[Record], *, metric: Metric, dimension: int | None
) -> Batch | None:
    """Return copies of the records, the last of each id; None if there are none.

    Args:
        records: what the caller wants to store.
        metric: of the store.
        dimension: of the store; None takes that of the first record.

    Raises:
        DimensionMismatch: a vector has another length than the store, or than the first one.
        InvalidVector: a vector has no place in the metric.
        InvalidMeta: an id, a text or metadata cannot be stored everywhere.
    """
    latest = {plain_text(checked_record(record).id): record for record in records}
    if not latest:
        return None
    vectors = [float32(record.vector) for record in latest.values()]
    expected = len(vectors[0]) if dimension is None else dimension
    for vector in vectors:
        if len(vector) != expected:
            raise DimensionMismatch(expected=expected, got=len(vector))
    matrix = np.stack(vectors)
    return Batch(
        ids=list(latest),
        vectors=matrix,
        lengths=checked_lengths(matrix, metric),
        texts=[_checked_text(record) for record in latest.values()],
        metas=[_checked_meta(record) for record in latest.values()],
    )


def checked_list(records: Sequence[Record]) -> list[Record]:
    """Return the records, none of which has been looked at, as a list.

    Raises:
        InvalidMeta: they are no list; a lone record is none.
    """
    value = cast(object, records)
    if isinstance(value, Record):
        raise InvalidMeta("a store takes a list of records, got one record: wrap it in a list")
    if not isinstance(value, Iterable):
        raise InvalidMeta(f"a store takes a list of records, got {type(value).__name__}")
    return list(records)


def checked_record(record: Record) -> Record:
    """Return the record, whose parts may still be unfit: only its id has been looked into.

    Raises:
        InvalidMeta: it is no record, its id cannot be one, or its metadata is not a dict.
    """
    if not isinstance(cast(object, record), Record):
        raise InvalidMeta(f"a store takes records, got {type(record).__name__}")
    _checked_name(record.id, "an id")
    if not isinstance(cast(object, record.meta), dict):
        raise InvalidMeta(
            f"metadata of record {record.id!r} is a dict, got {type(record.meta).__name__}"
        )
    return record


def checked_query(
    vector: Vector, k: int, *, metric: Metric, dimension: int | None
) -> NDArray[np.float32]:
    """Return the query's vector as 32-bit floats.

    Raises:
        ValueError: k is not a positive int.
        DimensionMismatch: the vector's length differs from the store's dimension.
        InvalidVector: the vector has no place in the metric.
    """
    checked_k(k)
    query = float32(vector)
    if dimension is not None and len(query) != dimension:
        raise DimensionMismatch(expected=dimension, got=len(query))
    # of what overflows, `vdot` does not warn
    if not _LEAST_SQUARE <= float(np.vdot(query, query)) <= _LARGEST_SQUARE:
        checked_lengths(query[np.newaxis], metric)
    return query


def checked_k(k: int) -> int:
    """Return k as an int; refuse what is not a positive one."""
    whole = whole_number(k)
    if whole is None or whole < 1:
        raise ValueError(f"k is how many results to return, at least 1, got {k!r}")
    return whole


def checked_facet(field: Field, limit: int) -> tuple[Field, int]:
    """Return the field, and how many of its values are wanted; refuse what is neither."""
    names = names_of(field)
    if not names or not all(isinstance(cast(object, name), str) for name in names):
        raise TypeError(f"expected the name of a field or a tuple of names, got {field!r}")
    whole = whole_number(limit)
    if whole is None or whole < 1:
        raise ValueError(f"limit is how many values to return, at least 1, got {limit!r}")
    return field_of(names), whole


def checked_threshold(threshold: float | None) -> float | None:
    """Return the threshold as a float; refuse what is no number that scores can be compared with.

    Raises:
        ValueError: it is not a number, or NaN.
    """
    plain = python_value(threshold)
    if plain is None:
        return None
    if isinstance(plain, bool) or not isinstance(plain, int | float) or plain != plain:  # noqa: PLR0124 - NaN
        raise ValueError(f"score_threshold is a number, got {threshold!r}")
    try:
        return float(plain)
    except OverflowError:  # of an int beyond all scores
        raise ValueError("score_threshold is a number of 64 bits, got a larger one") from None


def checked_namespace(namespace: str | None) -> str:
    """Return the namespace's name; None names the same one as the empty string.

    Raises:
        InvalidMeta: it is longer than 512 characters or cannot be stored everywhere.
    """
    return "" if namespace in (None, "") else _checked_name(namespace, "a namespace")


def checked_ids(ids: Iterable[str]) -> list[str]:
    """Return the ids as a list.

    Raises:
        InvalidMeta: one of them cannot be the id of a record; a lone string is not a list.
    """
    if isinstance(ids, str):
        raise InvalidMeta("ids are a list of strings, got one string: wrap it in a list")
    if not isinstance(cast(object, ids), Iterable):
        raise InvalidMeta(f"ids are a list of strings, got {type(ids).__name__}")
    return [_checked_name(name, "an id") for name in ids]


def checked_scan(after: str | None, limit: int) -> tuple[str, int]:
    """Return the id that a page of records follows, and how many records it has at most.

    The id of the first page is the empty string.

    Raises:
        ValueError: the limit is not an int from 1 to 10,000.
        InvalidMeta: `after` cannot be the id of a record.
    """
    whole = whole_number(limit)
    if whole is None or not 1 <= whole <= MAX_PAGE:
        raise ValueError(f"limit is how many records to return, 1 to {MAX_PAGE}, got {limit!r}")
    return "" if after is None else _checked_name(after, "an id"), whole


def checked_words(text: str) -> str:
    """Refuse what is not a string; any string may be searched for."""
    if not isinstance(cast(object, text), str):
        raise TypeError(f"text is a str, got {type(text).__name__}")
    return text


def checked_deletion(
    ids: Sequence[str] | None, spec: Filter | Mapping[str, Any] | Mapping[Field, Any] | None
) -> tuple[list[str] | None, Filter | None]:
    """Return what to delete: the ids, the filter, or what meets both.

    Raises:
        ValueError: there are neither ids nor a filter; an empty mapping is none.
        InvalidFilter: the filter is not in the filter language.
        InvalidMeta: one of the ids cannot be the id of a record.
    """
    parsed = Filter.parse(spec)
    if ids is None and parsed is None:
        raise ValueError("delete takes ids or a filter: EVERYTHING empties a namespace")
    return None if ids is None else checked_ids(ids), parsed


def checked_update(
    meta: Mapping[str, Any],
    ids: Sequence[str] | None,
    spec: Filter | Mapping[str, Any] | Mapping[Field, Any] | None,
) -> tuple[dict[str, Any], list[str] | None, Filter | None]:
    """Return a copy of the fields to merge, and the records: by id, by filter, or by both.

    Raises:
        ValueError: there are neither ids nor a filter; an empty mapping is none.
        InvalidFilter: the filter is not in the filter language.
        InvalidMeta: a field cannot be stored everywhere, or one of the ids be that of a record.
    """
    parsed = Filter.parse(spec)
    if ids is None and parsed is None:
        raise ValueError("update_meta takes ids or a filter: EVERYTHING is all records")
    if not isinstance(cast(object, meta), Mapping):
        raise InvalidMeta(f"metadata is a dict, got {type(meta).__name__}")
    try:
        changes = _plain_dict(dict(meta), depth=1)
    except ValueError as fault:
        raise InvalidMeta(f"metadata: {fault}") from None
    return changes, None if ids is None else checked_ids(ids), parsed


def checked_dimension(dimension: int) -> int:
    """Return the dimension as an int; refuse what is not a positive one."""
    whole = whole_number(dimension)
    if whole is None or whole < 1:
        raise ValueError(f"dimension is at least 1, got {dimension!r}")
    return whole


def checked_metric(metric: Metric) -> Metric:
    """Refuse an unknown metric."""
    if metric not in ("cosine", "dot", "euclidean"):
        raise ValueError(f"metric is 'cosine', 'dot' or 'euclidean', got {metric!r}")
    return metric


def float32(vector: Vector) -> NDArray[np.float32]:
    """Return a copy of the vector as one row of 32-bit floats, not yet checked for its values.

    Raises:
        InvalidVector: it is not a sequence of numbers, or an empty one.
    """
    if isinstance(vector, np.ndarray):
        row = _from_numpy(cast("NDArray[Any]", vector))  # quoted: dearer than the copy
    else:
        row = _from_sequence(vector)
    if not len(row):
        raise InvalidVector("a vector has at least one element")
    return row


def checked_lengths(matrix: NDArray[np.float32], metric: Metric) -> NDArray[np.float64]:
    """Return the Euclidean length of each row, all being fit for the metric.

    Raises:
        InvalidVector: a row holds NaN or infinity, is too long, or too short for the metric.
    """
    lengths = row_lengths(matrix)
    longest = lengths.max()
    if not longest <= MAX_LENGTH:  # so that NaN is refused, too
        raise InvalidVector(
            "a vector holds a number that is NaN or infinite as a 32-bit float"
            if not np.isfinite(matrix).all()
            else "a vector is longer than 2**62, which 32-bit floats cannot square"
        )
    if metric == "cosine" and lengths.min() < MIN_LENGTH:
        raise InvalidVector("a zero vector has no direction, which the metric 'cosine' compares")
    return lengths


def _from_numpy(vector: NDArray[Any]) -> NDArray[np.float32]:
    if vector.ndim != 1 or vector.dtype.kind not in "fiu":
        raise InvalidVector(
            f"a vector is one row of numbers, got {vector.dtype} of shape {vector.shape}"
        )
    # only a program that has loaded numpy.ma has such arrays, and loading it takes 10 ms
    if "numpy.ma" in sys.modules and isinstance(vector, np.ma.MaskedArray):
        if np.ma.is_masked(vector):
            raise InvalidVector("a vector has a number at every place, got a masked array")
        vector = vector.data
    if vector.dtype == np.float32:
        return np.array(vector)
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused by its length
        return vector.astype(np.float32)


def _from_sequence(vector: Vector) -> NDArray[np.float32]:
    if isinstance(vector, str | bytes | bytearray | dict | set | frozenset):
        raise InvalidVector("a vector is a sequence of numbers, not text, a dict or a set")
    try:
        return np.frombuffer(array("f", vector), np.float32)
    except (TypeError, OverflowError) as fault:
        raise InvalidVector(f"a vector is a sequence of numbers: {fault}") from None


def _checked_name(name: object, what: str) -> str:
    if not isinstance(name, str):
        raise InvalidMeta(f"{what} is a str, got {type(name).__name__}")
    if not 1 <= len(name) <= MAX_NAME:
        raise InvalidMeta(f"{what} has 1 to {MAX_NAME} characters, got {len(name)}")
    try:
        return plain_text(name)
    except ValueError as fault:
        raise InvalidMeta(f"{what} {name!r}: {fault}") from None


def _checked_text(record: Record) -> str:
    if not isinstance(cast(object, record.text), str):
        raise InvalidMeta(
            f"text of record {record.id!r} is a str, got {type(record.text).__name__}"
        )
    try:
        return plain_text(record.text)
    except ValueError as fault:
        raise InvalidMeta(f"text of record {record.id!r}: {fault}") from None


def _checked_meta(record: Record) -> dict[str, Any]:
    try:
        return _plain_dict(record.meta, depth=1)
    except ValueError as fault:
        raise InvalidMeta(f"metadata of record {record.id!r}: {fault}") from None


def _plain_dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    return {_plain_key(key): _plain(item, depth) for key, item in value.items()}


def _plain_key(key: object) -> str:
    if not isinstance(key, str):
        raise ValueError(f"a key is a str, got {type(key).__name__}")  # noqa: TRY004 - all bad input is one error
    return plain_text(key)


def _plain(value: Any, depth: int) -> Any:
    if not isinstance(value, list | dict):
        return plain_scalar(value)
    if depth == MAX_META_DEPTH:
        raise ValueError(f"nested deeper than {MAX_META_DEPTH} levels")
    if isinstance(value, dict):
        return _plain_dict(cast(dict[Any, Any], value), depth + 1)
    return [_plain(item, depth + 1) for item in cast(list[Any], value)]
