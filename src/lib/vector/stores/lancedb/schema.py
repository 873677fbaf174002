"""The table of a store: its columns, and the check of one that exists."""

from __future__ import annotations

from typing import Any, Final, cast

import pyarrow  # pyright: ignore[reportMissingTypeStubs] - it has no types  # noqa: ICN001 - see below

from lib.errors import DimensionMismatch, MetricMismatch, SchemaTooNew, StoreCorrupt
from lib.vector.records import Layout, Metric
from lib.vector.stores.lancedb.config import TableConfig
from lib.vector.validate import Batch, checked_metric

pa: Any = cast(Any, pyarrow)

LAYOUT: Final = 1
NAMES: Final = ("ns", "id", "vector", "text", "meta")

_METRIC, _LAYOUT = b"lib:metric", b"lib:layout"
# Without it, two writers that insert the same new id at the same moment both succeed, and there are
# two rows. With it, Lance compares the keys of the two commits and does the later one again.
_KEY: Final = {b"lance-schema:unenforced-primary-key": b"true"}


def schema(config: TableConfig) -> Any:
    """Return the schema of a new table."""
    return pa.schema(
        [
            pa.field("ns", pa.string(), nullable=False, metadata=_KEY),
            pa.field("id", pa.string(), nullable=False, metadata=_KEY),
            pa.field("vector", _vector(config.dimension), nullable=False),
            pa.field("text", pa.string(), nullable=False),
            pa.field("meta", pa.string(), nullable=False),
        ],
        metadata={_METRIC: config.metric.encode(), _LAYOUT: str(LAYOUT).encode()},
    )


def check(found: Any, config: TableConfig) -> None:
    """See that a table is of the expected kind.

    Raises:
        StoreCorrupt, SchemaTooNew: as `made` says.
        DimensionMismatch, MetricMismatch: it was made for other vectors.
    """
    dimension, metric = _made(found, config)
    if dimension != config.dimension:
        raise DimensionMismatch(expected=dimension, got=config.dimension)
    if metric != config.metric:
        raise MetricMismatch(expected=metric, got=config.metric)


def made(found: Any, config: TableConfig) -> Layout:
    """Return how a table was made.

    Raises:
        StoreCorrupt: it is not a vector store's.
        SchemaTooNew: a newer release has made it.
    """
    dimension, metric = _made(found, config)
    return Layout(dimension=dimension, metric=checked_metric(cast(Metric, metric)))


def _made(found: Any, config: TableConfig) -> tuple[int, str]:
    noted: dict[bytes, bytes] = found.metadata or {}
    if not {_METRIC, _LAYOUT} <= noted.keys() or not set(NAMES) <= set(found.names):
        raise StoreCorrupt(f"{config.label} is not a vector store's: name another")
    layout, metric = int(noted[_LAYOUT]), noted[_METRIC].decode()
    if layout > LAYOUT:
        raise SchemaTooNew(config.label, found=layout, supported=LAYOUT)
    return found.field("vector").type.list_size, metric


def rows(namespace: str, batch: Batch, metas: list[str], config: TableConfig) -> Any:
    """Return a batch as an Arrow table; the namespace is a column like any other."""
    flat = pa.array(batch.vectors.reshape(-1), pa.float32())
    columns = [
        [namespace] * len(batch.ids),
        batch.ids,
        pa.FixedSizeListArray.from_arrays(flat, type=_vector(config.dimension)),
        batch.texts,
        metas,
    ]
    return pa.table(dict(zip(NAMES, columns, strict=True)), schema=schema(config))


def _vector(dimension: int) -> Any:
    return pa.list_(pa.float32(), dimension)
