"""Upper bounds of scores, from one product in 32 bits and a proven bound of its error.

A search looks for the rows of the highest worth: the score under cosine and dot product, and the
negative half of the squared distance under euclidean. Vectors that share an offset differ by
little, so rows and query are seen from a centre c. With v = x - c, and p = q - c,

    worth = v p - |v|^2 / 2 - |p|^2 / 2        (euclidean)
    worth = v p - |v|^2 / 2 - |p|^2 / 2 + 1    (cosine; x and q divided by their lengths before)
    worth = v p + c q                          (dot product, with p = q)

which hold for any c; how few rows remain depends on how near the rows are to it. Without a
centre, c is 0, and the cosine is x q alone.

Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2002, section 3.1:
whatever the order of summation, a dot product of n terms is computed with an error of at most
nu / (1 - nu) times the dot product of the absolute values, u being the unit roundoff. Sixteen
more roundings are allowed for than the steps around it have: that of p to 32 bits, those of what
is added, and that of c p, since |c| is at most |x| + |v|.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lib.vector.records import Metric

Floats = NDArray[np.float32]
Wide = NDArray[np.float64]

ROUNDING: Final = 2.0**-19
"""Of the few operations on what is relative to (|v| + |p|)^2; 2 |v|^2 + 2 |p|^2 is no less."""

SCORE_ROUNDING: Final = 2.0**-22
"""Of a score to 32 bits, and of a sum of its size, relative to |x| |q|."""

KEPT: Final = 1.0 - 4.0 * ROUNDING
"""The share of |v|^2 / 2 that is no more than it, whatever the roundings."""

_SQUARES: Final = (2.0**-100, 2.0**125)
"""Between these, 32 bits hold a sum of squares to the relative precision of the bound."""

_FEW: Final = 1 << 12
"""To find the k-th highest of so few takes less than to deal them to groups."""

_LEAST: Final = 2.0**-126
"""Of a factor that 32 bits hold to the relative precision of the bound; less is rounded away."""


class View:
    """A query as it is seen from a centre.

    Attributes:
        metric: how worth is defined.
        vector: p.
        length: |p|.
        constant: what worth has beside v p and |v|^2 / 2.
        slack: how far worth is off at most, but for what is relative to a row's own |v|.
    """

    __slots__ = ("_product", "constant", "length", "metric", "slack", "vector")

    def __init__(self, query: Floats, metric: Metric, centre: Wide | None = None) -> None:
        """See the query from this centre; None is 0."""
        wide = query.astype(np.float64)
        if metric == "cosine":
            wide /= math.sqrt(wide.dot(wide))
        self.metric: Metric = metric
        self.constant: float = 0.0
        self._product = 0.0
        self.vector: Wide = wide
        if centre is not None and metric == "dot":
            self.constant = float(centre.dot(wide))
        elif centre is not None:
            self.vector = wide - centre
            self._product = float(centre.dot(self.vector))
        self.length: float = math.sqrt(self.vector.dot(self.vector))
        if metric == "euclidean" or (metric == "cosine" and centre is not None):
            self.constant = (metric == "cosine") - 0.5 * self.length * self.length
        self.slack: float = (len(query) + 16) * 2.0**-126  # of sums that are next to nothing
        if metric != "dot":
            self.slack += 2.0 * ROUNDING * self.length * self.length
        if metric == "cosine":
            self.slack += SCORE_ROUNDING
        elif centre is not None:
            self.slack += SCORE_ROUNDING * math.sqrt(centre.dot(centre)) * self.length

    def of_floats(self, products: Floats, scales: Floats, halves: Floats | None) -> Floats:
        """Turn the products of rows with p in 32 bits into no less than their worth.

        Args:
            products: x p for each row; overwritten.
            scales: as `Rows.scales` has them.
            halves: no more than |v|^2 / 2 less 2 `ROUNDING` |v|^2; None without a centre.
        """
        steps = (len(self.vector) + 16) * 2.0**-24
        error = 1.001 * steps / (1.0 - steps) * self.length
        if self.metric == "dot":  # the same from any centre
            products += max(error + SCORE_ROUNDING * self.length, _LEAST) * scales
            products += self.slack
            return products
        if self.metric == "cosine":
            products *= scales
        else:
            products += max(error, _LEAST) * scales
            error = 0.0
            halves = (0.5 * KEPT) * scales * scales if halves is None else halves
        if halves is not None:
            products -= halves
        products += self.constant - self._product + error + self.slack
        return products

    def of_rows(self, vectors: Floats) -> Floats:
        """Return no less than the worths of rows, from 32 bits alone and without a centre.

        Their squared lengths are sums of products, too, and no further off than `off`, relative to
        what they are. Where 32 bits lose squares, a row may be worth anything.
        """
        steps = (len(self.vector) + 16) * 2.0**-24
        off = 1.001 * steps / (1.0 - steps)
        # BLAS would share so few rows among threads, which takes more of all cores than it saves
        products = np.einsum("ij,j->i", vectors, self.vector.astype(np.float32))
        squares = np.einsum("ij,ij->i", vectors, vectors)
        lengths = np.sqrt(squares)
        if self.metric == "cosine":
            worths = self.of_floats(products, np.float32(1.0) / lengths, None)
            worths += 1.01 * off * self.length
        else:
            halves = (0.5 * KEPT * (1.0 - off)) * squares
            worths = self.of_floats(products, (1.0 + off) * lengths, halves)
        few, many = _SQUARES
        np.putmask(worths, ~((squares > few) & (squares < many)), np.inf)
        return worths

    def least(self, score: float) -> float:
        """Return the worth of a row that scores so, rounded down so far that 32 bits keep it so."""
        worth = -0.5 * score * score if self.metric == "euclidean" else score
        return worth - abs(worth) * 2.0**-22 - 2.0**-149


def reached(worths: Floats, k: int) -> float:
    """Return what at least k of the values reach: the k-th highest, or a little less.

    Where there are many, they are dealt to groups: the k highest are mostly in k of them.
    """
    groups = max(128, 8 * k)
    if len(worths) >= max(_FEW, 4 * groups):
        table = worths[: len(worths) // groups * groups].reshape(-1, groups)
        least = _kth(table.max(axis=0), k)
        if least > -math.inf:
            return least
    return _kth(worths.copy(), k)


def _kth(values: Floats, k: int) -> float:
    values.partition(len(values) - k)
    return float(values[len(values) - k])


def lowest(values: Floats, k: int) -> float:
    """Return the k-th lowest."""
    some = values.copy()
    some.partition(k - 1)
    return float(some[k - 1])
