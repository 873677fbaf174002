"""Records as Pinecone's vectors, and back, to the last bit.

Pinecone's metadata is flat, without null, and its numbers are 64-bit floats. An equation finds any
element of a list, but only lists of strings are taken. So scalars stand under keys of their own,
elements of lists as strings that tell their class, and what is there is listed:

    v:<field>     a string, a bool or a number
    e:<field>     a list of the scalars in a list, as "s:a", "n:1.0", "b:True"
    k             a list of the fields that are not absent
    i, n          the id, and the namespace
    t             the text
    m             the metadata as JSON, its strings left out: they stand above, and space is scarce

Source: https://docs.pinecone.io/guides/index-data/indexing-overview#metadata (2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, cast
from urllib.parse import quote, unquote

import numpy as np
from numpy.typing import NDArray

from lib._util.json import compact, parse
from lib.errors import InvalidMeta, StoreCorrupt
from lib.vector.records import Record
from lib.vector.validate import Batch
from lib.vector.values import Scalar

DEFAULT_NAMESPACE: Final = "__default__"
"""What Pinecone calls the namespace without a name."""

_MAX: Final = 512
_DIGEST: Final = "%h"
_PLAIN: Final = re.compile(r"[!-$&-~]+")
_SAFE: Final = "!\"#$&'()*+,/:;<=>?@[\\]^`{|}~"


def encoded(name: str) -> str:
    """Return an id, or a namespace that has a name, as Pinecone takes it."""
    if _PLAIN.fullmatch(name):
        return name
    quoted = quote(name, safe=_SAFE)
    return quoted if len(quoted) <= _MAX else _DIGEST + sha256(name.encode()).hexdigest()


def encoded_namespace(namespace: str) -> str:
    """Return a namespace as Pinecone takes it; one that has its default's name gets another."""
    if namespace == DEFAULT_NAMESPACE:
        return namespace.replace("_", "%5F", 1)
    return encoded(namespace) if namespace else DEFAULT_NAMESPACE


def decoded(name: str) -> str | None:
    """Return what was encoded, None if only a record can tell."""
    return None if name.startswith(_DIGEST) else unquote(name)


def decoded_namespace(name: str) -> str | None:
    """Return the namespace that was encoded, None if only a record can tell."""
    return "" if name in {"", DEFAULT_NAMESPACE} else decoded(name)


MAX_META_BYTES: Final = 40 * 1024
VECTORS_A_REQUEST: Final = 1000
BYTES_A_REQUEST: Final = 2_000_000

KEYS: Final = "k"
ID: Final = "i"
_NAMESPACE, _TEXT, _META = "n", "t", "m"
_FRAME_BYTES: Final = 64
_FLOAT_EFFORT: Final = 3_000  # of writing one as text, in floats read
_RECORD_EFFORT: Final = 100_000
_CHAR_EFFORT: Final = 20


def value(field: str) -> str:
    """Return where a scalar stands."""
    return f"v:{field}"


def elements(field: str) -> str:
    """Return where the elements of a list stand."""
    return f"e:{field}"


def key(field: str) -> str:
    """Return what stands among the keys if the field is there."""
    return f".{field}"


def token(item: Scalar) -> str:
    """Return an element of a list as a string; equal elements give equal ones."""
    match item:
        case bool():
            return f"b:{item}"
        case str():
            return f"s:{item}"
        case _:
            return f"n:{float(item) + 0.0!r}"  # which makes -0.0 the 0.0 that it equals


def check(namespace: str, batch: Batch) -> None:
    """See that Pinecone takes every record of a batch.

    Raises:
        InvalidMeta: a record's metadata and text are more than Pinecone takes.
    """
    for row, name in enumerate(batch.ids):
        size = len(_metadata(namespace, batch, row).encode())
        if size > MAX_META_BYTES:
            raise InvalidMeta(
                f"record {name!r} needs {size} bytes for its metadata and text, and Pinecone takes "
                f"{MAX_META_BYTES}: keep the text elsewhere, or split it"
            )


def requests(namespace: str, batch: Batch) -> Iterator[bytes]:
    """Yield the bodies of the upserts of a batch, each as large as one may be."""
    tail = f'],"namespace":{compact(encoded_namespace(namespace))}}}'.encode()
    some: list[bytes] = []
    size = 0
    for row in range(len(batch.ids)):
        vector = _vector(namespace, batch, row)
        full = size + len(vector) + 1 > BYTES_A_REQUEST - len(tail) - _FRAME_BYTES
        if some and (full or len(some) == VECTORS_A_REQUEST):
            yield b'{"vectors":[' + b",".join(some) + tail
            some, size = [], 0
        some.append(vector)
        size += len(vector) + 1
    yield b'{"vectors":[' + b",".join(some) + tail


def effort(batch: Batch) -> int:
    """Return what it costs to write a batch as JSON, in floats read."""
    chars = sum(map(len, batch.texts))
    return (
        _FLOAT_EFFORT * batch.vectors.size + _RECORD_EFFORT * len(batch.ids) + _CHAR_EFFORT * chars
    )


def _vector(namespace: str, batch: Batch, row: int) -> bytes:
    metadata = _metadata(namespace, batch, row)
    floats = ",".join(batch.vectors[row].astype(str))  # the fewest digits that tell them apart
    name = compact(encoded(batch.ids[row]))
    return f'{{"id":{name},"values":[{floats}],"metadata":{metadata}}}'.encode()


def _metadata(namespace: str, batch: Batch, row: int) -> str:
    return compact(_kept(namespace, batch.ids[row], batch.texts[row], batch.metas[row]))


def _kept(namespace: str, name: str, text: str, meta: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {
        ID: name,
        _NAMESPACE: namespace,
        _TEXT: text,
        KEYS: [key(field) for field, item in meta.items() if item is not None],
        _META: compact(
            {field: None if isinstance(item, str) else item for field, item in meta.items()}
        ),
    }
    for field, item in meta.items():
        if isinstance(item, bool | str):
            kept[value(field)] = item
        elif isinstance(item, int | float):
            kept[value(field)] = float(item)
        elif isinstance(item, list):
            scalars = [
                one for one in cast(list[Any], item) if isinstance(one, bool | int | float | str)
            ]
            kept[elements(field)] = [token(one) for one in scalars]
    return kept


def record(vector: Mapping[str, Any]) -> Record:
    """Return the record that was stored.

    Raises:
        StoreCorrupt: something else has stored it.
    """
    name, text, meta = contents(vector)
    return Record(name, floats(vector), text, meta)


def contents(vector: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Return id, text and metadata."""
    try:
        kept = vector["metadata"]
        meta: dict[str, Any] = parse(kept[_META])
        strings = {
            field: kept[value(field)]
            for field, item in meta.items()
            if item is None and value(field) in kept
        }
        return kept[ID], kept[_TEXT], meta | strings
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _strange() from error


def namespace_of(vector: Mapping[str, Any]) -> str:
    """Return the namespace that a record says it is in."""
    try:
        return vector["metadata"][_NAMESPACE]
    except (KeyError, TypeError) as error:
        raise _strange() from error


def floats(vector: Mapping[str, Any]) -> list[float]:
    """Return the elements as 32-bit floats hold them."""
    row: NDArray[np.float32] = np.array(vector["values"], np.float32)
    return row.tolist()


def _strange() -> StoreCorrupt:
    return StoreCorrupt("the index holds a record that this store has not written")
