"""The least score of a hit, from exact scores of some rows that look near.

Nothing depends on which rows these are but the time.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.search import EXCLUDED, GATHER_SHARE, Rows
from lib.vector.records import Metric

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Places = NDArray[np.intp]
Seeds = tuple[Places, float]

LOWEST: Final = -1e38
"""Below every key of a row that may be found: vectors are at most 2**62 long."""

_SEEDS: Final = 48
_MOST_SEEDS: Final = 256
_GROUPS: Final = 128
_STRIDE: Final = 8
_MANY: Final = 1 << 14


def seeds(keys: Floats, allowed: Mask | None, k: int) -> Seeds:
    """Return where at least k of the highest keys are, and what these reach.

    Usually some more; of very many that reach it, some.

    Args:
        keys: one for each row, higher being better.
        allowed: which rows may be found; None if all may. At least k may.
        k: how many are wanted.
    """
    wanted = k if allowed is None else math.ceil(k / GATHER_SHARE)  # so many of any rows
    least = reached(keys, None, math.ceil((wanted + _SEEDS) / _STRIDE))
    found = reaching(keys, allowed, least)
    if len(found) < k:
        least = kth_highest(excluding(keys, allowed), k + _SEEDS)
        found = reaching(keys, allowed, least)
    return found[: _most(k)], least


def left(keys: Floats, allowed: Mask | None, least: float, sown: Seeds, k: int) -> Places:
    """Return where keys are no less than this, and allowed.

    Args:
        keys: one for each row.
        allowed: which rows may be found; None if all may.
        least: what they have to reach.
        sown: what `seeds` has returned for the same, which may save reading all keys again.
        k: the k that `seeds` got.
    """
    found, reached = sown
    if least >= reached and len(found) < _most(k):
        return found[keys[found] >= least]
    return reaching(keys, allowed, least)


def _most(k: int) -> int:
    return 4 * k + _MOST_SEEDS


def reached(keys: Floats, allowed: Mask | None, k: int) -> float:
    """Return what at least k of the allowed keys reach; -inf if there are fewer.

    Of many rows one in eight is looked at: they are not in the order of their keys.
    """
    groups = _groups(k)
    if len(keys) >= max(_MANY, 4 * _STRIDE * groups):
        some = None if allowed is None else _table(allowed, groups)[::_STRIDE]
        least = _kth(excluding(_table(keys, groups)[::_STRIDE], some).max(axis=0), k)
        if least > -math.inf:
            return least
    return kth_highest(excluding(keys, allowed), k)


def reaching(keys: Floats, allowed: Mask | None, least: float) -> Places:
    """Return where keys are no less than this, and allowed."""
    found = (keys >= least).nonzero()[0]
    return found if allowed is None else found[allowed[found]]  # few, so `allowed` is read for each


def scored(
    rows: Rows, query: NDArray[np.float64], places: Places, metric: Metric
) -> NDArray[np.float64]:
    """Return the keys of some rows, from the rows as they are."""
    dots = rows.vectors[places].astype(np.float64) @ query
    lengths = rows.scales[places].astype(np.float64)
    if metric == "cosine":
        return dots * lengths
    return dots - 0.5 * lengths * lengths if metric == "euclidean" else dots


def highest(values: NDArray[Any], k: int) -> NDArray[Any]:
    """Return the k highest, the least of them first; all, in any order, if there are fewer."""
    if len(values) < k:
        return values
    values.partition(len(values) - k)
    return values[len(values) - k :]


def excluding(keys: Floats, allowed: Mask | None) -> Floats:
    """Return the keys, below `LOWEST` where they are not allowed."""
    return keys if allowed is None else keys - EXCLUDED * ~allowed


def kth_highest(keys: Floats, k: int) -> float:
    """Return what at least k of the keys above `LOWEST` reach: the k-th highest or little less."""
    groups = _groups(k)
    few = keys.copy() if len(keys) < 4 * groups else _table(keys, groups).max(axis=0)
    return _kth(few, k)


def _groups(k: int) -> int:
    """Return into how many groups to put keys, so that the k highest are mostly in k of them."""
    return max(_GROUPS, 8 * k)


def _table(values: NDArray[Any], groups: int) -> NDArray[Any]:
    """Return all but the last few values as a table with a column for each group."""
    return values[: len(values) // groups * groups].reshape(-1, groups)


def _kth(values: Floats, k: int) -> float:
    least = float(highest(values, k)[0]) if len(values) >= k else -math.inf
    return least if least > LOWEST else -math.inf
