"""Records as Chroma's rows, and back, to the last bit.

Chroma's metadata is flat, has no None, and two of its types have bugs: a fraction in a filter is
cut to an int where ints are stored (chroma-core/chroma#7491), and list elements outlive their
collection and turn up in another one (#7594). So metadata goes there as JSON text, which is what
comes back, and beside it as scalar marks, which is what filters look at; no int and no list.
Under cosine Chroma normalises vectors, and gives back what rounding has left of them; so the
caller's own stands in the metadata, too.

    _             all of it, as JSON
    f             under cosine: the vector, 32-bit floats in little-endian order, as base64
    k:<field>     True where the field is not absent
    v:<field>     a string, a bool, or a number, always as a float
    n:<field>     True where it is a number
    e:<length>:<field><element>     True for each scalar in a list
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from lib._util.json import compact, parse
from lib.errors import StoreCorrupt
from lib.vector.records import Match, Metric, Record
from lib.vector.validate import Batch
from lib.vector.values import Scalar

BYTES_A_REQUEST: Final = 8 << 20
"""A server took 10 MB and refused 50 MB."""

_JSON, _VECTOR = "_", "f"
_FOREIGN: Final = "the collection holds a record that this store has not written"
_BYTES_A_FLOAT: Final = 30  # as JSON at most 24, and as base64 less than 6


def present(field: str) -> str:
    """Return the mark of a field that is not absent."""
    return f"k:{field}"


def value(field: str) -> str:
    """Return where a scalar stands."""
    return f"v:{field}"


def number(field: str) -> str:
    """Return the mark of a field that is a number."""
    return f"n:{field}"


def element(field: str, item: Scalar) -> str:
    """Return the mark of a list that has the element; the length keeps two fields apart."""
    match item:
        case bool():
            token = f"b:{item}"
        case str():
            token = f"s:{item}"
        case _:
            token = f"n:{float(item) + 0.0!r}"  # which makes -0.0 the 0.0 that it equals
    return f"e:{len(field)}:{field}{token}"


def marks(meta: Mapping[str, Any]) -> dict[str, bool | float | str]:
    """Return metadata as Chroma keeps it."""
    kept: dict[str, bool | float | str] = {_JSON: compact(meta)}
    for field, item in meta.items():
        if item is not None:
            kept[present(field)] = True
            kept.update(_field(field, item))
    return kept


def _field(field: str, item: Any) -> dict[str, bool | float | str]:
    match item:
        case bool() | str():
            return {value(field): item}
        case int() | float():
            return {value(field): float(item), number(field): True}
        case list():
            scalars = [
                one for one in cast(list[Any], item) if isinstance(one, bool | int | float | str)
            ]
            return {element(field, one): True for one in scalars}
        case _:
            return {}


def replacing(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes an upsert replace metadata, which it would merge: None removes a key."""
    return {**dict.fromkeys(old or (), None), **new}


def requests(batch: Batch, most: int) -> Iterator[slice]:
    """Yield the rows of a batch, as many at a time as one request may carry."""
    start, total = 0, 0
    for row, text in enumerate(batch.texts):
        meta = compact(batch.metas[row])
        size = 4 * (len(text) + 3 * len(meta)) + _BYTES_A_FLOAT * batch.vectors.shape[1]
        if row > start and (row - start == most or total + size > BYTES_A_REQUEST):
            yield slice(start, row)
            start, total = row, 0
        total += size
    yield slice(start, len(batch.texts))


class Rows:
    """The rows that Chroma returned, of one query or of a get."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        """Take the answer to `get`, or one of those to `query`."""
        self.ids: list[str] = found["ids"]
        self._found = found

    @classmethod
    def of_query(cls, answer: Mapping[str, Any], place: int = 0) -> Rows:
        """Take the answer to one of the vectors of a query."""
        return cls({name: column[place] for name, column in answer.items() if name in _COLUMNS})

    @property
    def vectors(self) -> NDArray[np.float32]:
        """The vectors as the caller passed them, one in a row.

        Raises:
            StoreCorrupt: something else has stored one.
        """
        vectors = np.array(self._found["embeddings"], np.float32)
        metadatas: list[dict[str, Any] | None] = self._found["metadatas"]
        for row, metadata in enumerate(metadatas):
            packed = None if metadata is None else metadata.get(_VECTOR)
            if packed is not None:
                try:
                    vectors[row] = np.frombuffer(b64decode(packed), "<f4")
                except (TypeError, ValueError) as error:
                    raise StoreCorrupt(_FOREIGN) from error
        return vectors

    @property
    def distances(self) -> list[float]:
        """The distance of each row from the query, nearest first."""
        return self._found["distances"]

    def records(self) -> list[Record]:
        """Return the rows as records."""
        vectors: list[list[float]] = self.vectors.tolist()
        return [
            Record(self.ids[row], vector, *self._contents(row))
            for row, vector in enumerate(vectors)
        ]

    def match(self, row: int, score: float, vector: list[float] | None) -> Match:
        """Return a row as a match."""
        return Match(self.ids[row], score, *self._contents(row), vector)

    def _contents(self, row: int) -> tuple[str, dict[str, Any]]:
        try:
            return self._found["documents"][row] or "", parse(self._found["metadatas"][row][_JSON])
        except (KeyError, TypeError, ValueError) as error:
            raise StoreCorrupt(_FOREIGN) from error


_COLUMNS: Final = ("ids", "embeddings", "documents", "metadatas", "distances")


def columns(
    batch: Batch, rows: slice, old: Sequence[Mapping[str, Any] | None], metric: Metric
) -> dict[str, Any]:
    """Return the arguments of an upsert that replaces what these rows' ids held.

    Args:
        batch: what to store.
        rows: which of it.
        old: the metadata that stands there, None where there is none.
        metric: of the collection.
    """
    vectors = batch.vectors[rows]
    kept = [marks(meta) for meta in batch.metas[rows]]
    if metric == "cosine":
        for row, vector in zip(kept, vectors, strict=True):
            row[_VECTOR] = b64encode(vector.astype("<f4", copy=False).tobytes()).decode()
    return {
        "ids": batch.ids[rows],
        "embeddings": vectors,
        "documents": batch.texts[rows],
        "metadatas": [replacing(held, new) for held, new in zip(old, kept, strict=True)],
    }
