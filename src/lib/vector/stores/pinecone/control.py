"""Finds the index through the control plane, or creates it where that is enabled."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from lib._util.clock import Clock
from lib.errors import DimensionMismatch, MetricMismatch, StoreUnavailable
from lib.vector.records import Layout, Metric
from lib.vector.stores.pinecone.client import Api, checked_host

METRICS: Final[dict[Metric, str]] = {
    "cosine": "cosine",
    "dot": "dotproduct",
    "euclidean": "euclidean",
}
READY_S: Final = 300.0
"""How long a new index may take; it is some seconds as a rule."""

_NAMES: Final[dict[str, Metric]] = {theirs: ours for ours, theirs in METRICS.items()}
_POLL_S: Final = 1.0
_CONFLICT: Final = 409
_MISSING: Final = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexConfig:
    """The index that a store wants.

    Attributes:
        name: of the index, or None if `host` is set.
        host: its address, or None where it is to be looked up.
        control: the address of the control plane.
        dimension: of every vector.
        metric: how nearness is measured.
        create: True makes the index if it is missing.
        cloud: where to make it.
        region: where in that cloud.
    """

    name: str | None
    host: str | None
    control: str
    dimension: int
    metric: Metric
    create: bool
    cloud: str
    region: str


async def found(api: Api, config: IndexConfig, clock: Clock) -> str:
    """Return the address of the index, which is ready and of the configured kind.

    Raises:
        DimensionMismatch, MetricMismatch: it was made for other vectors.
        StoreUnavailable: it is missing and not to be made, or not ready in time, or Pinecone
            cannot be reached.
    """
    if config.host is not None and not config.create:
        stats = await api.post(f"{config.host}/describe_index_stats", b"{}")
        _check(config, stats.body)
        return config.host
    index = await _described(api, config)
    if index is None:
        if not config.create:
            raise StoreUnavailable(
                f"there is no index {config.name!r}: make it, or pass create=True", status=_MISSING
            )
        await _make(api, config)
    index = await _ready(api, config, clock, index)
    _check(config, index)
    return config.host or _address(index)


async def existing(api: Api, config: IndexConfig) -> Layout | None:
    """Return for what the index was made; None if it is missing.

    Raises:
        StoreUnavailable: Pinecone cannot be config.
    """
    if config.name is not None:
        index = await _described(api, config)
    else:
        index = (await api.post(f"{config.host}/describe_index_stats", b"{}")).body
    if index is None:
        return None
    return Layout(dimension=index.get("dimension"), metric=_NAMES.get(str(index.get("metric"))))


async def _described(api: Api, config: IndexConfig) -> dict[str, Any] | None:
    try:
        return (await api.get(f"{config.control}/indexes/{config.name}")).body
    except StoreUnavailable as error:
        if error.status != _MISSING:
            raise
        return None


async def _make(api: Api, config: IndexConfig) -> None:
    wanted = {
        "name": config.name,
        "dimension": config.dimension,
        "metric": METRICS[config.metric],
        "vector_type": "dense",
        "spec": {"serverless": {"cloud": config.cloud, "region": config.region}},
    }
    try:
        await api.post(f"{config.control}/indexes", json.dumps(wanted).encode())
    except StoreUnavailable as error:
        if error.status != _CONFLICT:  # another process was faster, or an earlier attempt worked
            raise


async def _ready(
    api: Api, config: IndexConfig, clock: Clock, index: dict[str, Any] | None
) -> dict[str, Any]:
    deadline = clock.monotonic() + READY_S
    while index is None or not _is_ready(index):
        if clock.monotonic() >= deadline:
            raise StoreUnavailable(
                f"index {config.name!r} is not ready after {READY_S:g} s", retryable=True
            )
        await clock.sleep(_POLL_S)
        index = await _described(api, config)
    return index


def _is_ready(index: dict[str, Any]) -> bool:
    status: Any = index.get("status")
    return isinstance(status, dict) and status.get("ready") is True  # pyright: ignore[reportUnknownMemberType] - JSON


def _check(config: IndexConfig, index: dict[str, Any]) -> None:
    """Compare what Pinecone tells; the statistics of an older index tell no metric."""
    dimension, metric = index.get("dimension"), index.get("metric", METRICS[config.metric])
    if dimension != config.dimension:
        if not isinstance(dimension, int):
            raise StoreUnavailable("Pinecone tells of no dimension: the index is none for vectors")
        raise DimensionMismatch(expected=dimension, got=config.dimension)
    if metric != METRICS[config.metric]:
        raise MetricMismatch(expected=_NAMES.get(metric) or str(metric), got=config.metric)


def _address(index: dict[str, Any]) -> str:
    try:
        return checked_host(index["host"], "the host that Pinecone tells")
    except (KeyError, TypeError, ValueError) as error:
        raise StoreUnavailable("Pinecone tells no host of the index") from error
