"""Records as Qdrant's points, and back, to the last bit.

Qdrant normalises vectors under cosine, so the caller's own stands in the payload; and it may
return 1.0 as 1, or a float that its parser has rounded, so metadata stands there twice: as it is,
for filters, and as JSON text, which is what comes back.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID, uuid5

import numpy as np
from qdrant_client import models

from lib._util.json import compact, parse
from lib.errors import StoreCorrupt
from lib.vector.records import Match, Metric, Record
from lib.vector.stores.qdrant.filter import KEYS, META, NAMESPACE
from lib.vector.validate import Batch

POINTS_A_REQUEST: Final = 256
BYTES_A_REQUEST: Final = 8 << 20
"""The server takes 32 MB (`service.max_request_size_mb`)."""

_ID, _TEXT, _JSON, _VECTOR = "id", "text", "json", "vector"
IDS: Final[dict[str, Any]] = {"with_payload": [_ID], "with_vectors": False}
"""The arguments that ask for what `name` needs."""

_POINT_IDS: Final = UUID("90f4dfa8-3853-5225-ab83-e179cffc8a2a")
_FOREIGN: Final = "the collection holds a point that this store has not written"
_FLOAT_CHARS: Final = 22  # the longest that a 32-bit float, widened, is written with


def point_id(namespace: str, name: str) -> str:
    """Return the id of a record's point: Qdrant takes numbers and UUIDs alone."""
    return str(uuid5(_POINT_IDS, compact([namespace, name])))


def requests(namespace: str, batch: Batch, metric: Metric) -> Iterator[list[models.PointStruct]]:
    """Yield the points of a batch, as many at a time as one request may carry."""
    points: list[models.PointStruct] = []
    total = 0
    for row, name in enumerate(batch.ids):
        payload = _payload(namespace, batch, row, metric)
        vector: list[float] = batch.vectors[row].tolist()
        size = len(compact(payload).encode()) + _FLOAT_CHARS * len(vector)
        if points and (len(points) == POINTS_A_REQUEST or total + size > BYTES_A_REQUEST):
            yield points
            points, total = [], 0
        identity = point_id(namespace, name)
        points.append(models.PointStruct(id=identity, vector=vector, payload=payload))
        total += size
    yield points


def _payload(namespace: str, batch: Batch, row: int, metric: Metric) -> dict[str, Any]:
    meta = batch.metas[row]
    payload: dict[str, Any] = {
        NAMESPACE: namespace,
        _ID: batch.ids[row],
        _TEXT: batch.texts[row],
        META: meta,
        KEYS: [key for key, value in meta.items() if value is not None],
        _JSON: compact(meta),
    }
    if metric == "cosine":
        packed = batch.vectors[row].astype("<f4", copy=False).tobytes()
        payload[_VECTOR] = b64encode(packed).decode()
    return payload


def wanted(metric: Metric, *, vectors: bool) -> dict[str, Any]:
    """Return the arguments that ask for what `record` and `match` need."""
    fields = [_ID, _TEXT, _JSON]
    if vectors and metric == "cosine":
        return {"with_payload": [*fields, _VECTOR], "with_vectors": False}
    return {"with_payload": fields, "with_vectors": vectors}


def name(point: models.Record) -> str:
    """Return the id of the record that a point was made of."""
    try:
        return (point.payload or {})[_ID]
    except KeyError as error:
        raise StoreCorrupt(_FOREIGN) from error


def record(point: models.Record) -> Record:
    """Return the record that a point was made of."""
    name, text, meta = _contents(point)
    return Record(name, _vector(point), text, meta)


def match(point: models.ScoredPoint, *, vectors: bool) -> Match:
    """Return the match that a point was found as."""
    name, text, meta = _contents(point)
    return Match(name, float(point.score), text, meta, _vector(point) if vectors else None)


def _contents(point: models.Record | models.ScoredPoint) -> tuple[str, str, dict[str, Any]]:
    payload = point.payload or {}
    try:
        return payload[_ID], payload[_TEXT], parse(payload[_JSON])
    except (KeyError, TypeError, ValueError) as error:
        raise StoreCorrupt(_FOREIGN) from error


def _vector(point: models.Record | models.ScoredPoint) -> list[float]:
    packed = (point.payload or {}).get(_VECTOR)
    if packed is None:
        return np.array(point.vector, np.float32).tolist()
    return np.frombuffer(b64decode(packed), "<f4").tolist()
