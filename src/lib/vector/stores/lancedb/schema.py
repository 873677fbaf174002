"""The table of a store: its columns, and whether one that is there fits."""

from __future__ import annotations

from typing import Any, Final, cast

import pyarrow  # pyright: ignore[reportMissingTypeStubs] - it has no types  # noqa: ICN001 - see below

from lib.errors import DimensionMismatch, MetricMismatch, SchemaTooNew, StoreCorrupt
from lib.vector.records import Layout, Metric
from lib.vector.stores.lancedb.config import Asked
from lib.vector.validate import Batch, checked_metric

pa = cast(Any, pyarrow)

LAYOUT: Final = 1
NAMES: Final = ("ns", "id", "vector", "text", "meta")

_METRIC, _LAYOUT = b"lib:metric", b"lib:layout"
# Without it, two writers that insert the same new id at the same moment both succeed, and there are
# two rows. With it, Lance compares the keys of the two commits and does the later one again.
_KEY: Final = {b"lance-schema:unenforced-primary-key": b"true"}


def schema(asked: Asked) -> Any:
    """Return the schema of a new table."""
    return pa.schema(
        [
            pa.field("ns", pa.string(), nullable=False, metadata=_KEY),
            pa.field("id", pa.string(), nullable=False, metadata=_KEY),
            pa.field("vector", _vector(asked.dimension), nullable=False),
            pa.field("text", pa.string(), nullable=False),
            pa.field("meta", pa.string(), nullable=False),
        ],
        metadata={_METRIC: asked.metric.encode(), _LAYOUT: str(LAYOUT).encode()},
    )


def check(found: Any, asked: Asked) -> None:
    """See that a table is of the kind asked for.

    Raises:
        StoreCorrupt, SchemaTooNew: as `made` says.
        DimensionMismatch, MetricMismatch: it was made for other vectors.
    """
    dimension, metric = _made(found, asked)
    if dimension != asked.dimension:
        raise DimensionMismatch(expected=dimension, got=asked.dimension)
    if metric != asked.metric:
        raise MetricMismatch(expected=metric, got=asked.metric)


def made(found: Any, asked: Asked) -> Layout:
    """Return how a table was made.

    Raises:
        StoreCorrupt: it is not a vector store's.
        SchemaTooNew: a newer release has made it.
    """
    dimension, metric = _made(found, asked)
    return Layout(dimension=dimension, metric=checked_metric(cast(Metric, metric)))


def _made(found: Any, asked: Asked) -> tuple[int, str]:
    noted: dict[bytes, bytes] = found.metadata or {}
    if not {_METRIC, _LAYOUT} <= noted.keys() or not set(NAMES) <= set(found.names):
        raise StoreCorrupt(f"{asked.place} is not a vector store's: name another")
    layout, metric = int(noted[_LAYOUT]), noted[_METRIC].decode()
    if layout > LAYOUT:
        raise SchemaTooNew(asked.place, found=layout, supported=LAYOUT)
    return found.field("vector").type.list_size, metric


def rows(namespace: str, batch: Batch, metas: list[str], asked: Asked) -> Any:
    """Return a batch as an Arrow table; the namespace is a column like any other."""
    flat = pa.array(batch.vectors.reshape(-1), pa.float32())
    columns = [
        [namespace] * len(batch.ids),
        batch.ids,
        pa.FixedSizeListArray.from_arrays(flat, type=_vector(asked.dimension)),
        batch.texts,
        metas,
    ]
    return pa.table(dict(zip(NAMES, columns, strict=True)), schema=schema(asked))


def _vector(dimension: int) -> Any:
    return pa.list_(pa.float32(), dimension)
