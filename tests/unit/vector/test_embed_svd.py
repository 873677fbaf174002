"""Sparse products and singular vectors, held against numpy's dense ones."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lib.vector.embed.svd import Floats, Sparse, principal_axes

matrices = st.tuples(st.integers(1, 8), st.integers(1, 8)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.integers(-3, 3).map(float))
)


def sparse(dense: Floats) -> Sparse:
    rows, columns = np.nonzero(dense)
    starts = np.searchsorted(rows, np.arange(len(dense) + 1))
    return Sparse(starts, columns, dense[rows, columns], dense.shape[1])


@given(matrices, st.integers(1, 4))
def test_products_equal_the_dense_ones(dense: Floats, width: int) -> None:
    matrix = sparse(dense)
    right = np.arange(dense.shape[1] * width, dtype=np.float32).reshape(-1, width)
    left = np.arange(len(dense) * width, dtype=np.float32).reshape(-1, width)

    np.testing.assert_allclose(matrix.times(right), dense @ right)
    np.testing.assert_allclose(matrix.transposed().times(left), dense.T @ left)


@given(matrices)
def test_all_axes_of_a_small_matrix_are_the_exact_ones(dense: Floats) -> None:
    axes, strengths = principal_axes(sparse(dense), 8)

    exact = np.linalg.svd(dense, compute_uv=False)
    rank = len(strengths)
    np.testing.assert_allclose(strengths, exact[:rank], rtol=1e-3)
    assert all(exact[rank:] <= 1e-2 * exact[0])
    np.testing.assert_allclose(axes.T @ axes, np.eye(rank), atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(dense @ axes, axis=0), strengths, rtol=1e-3)
    assert np.all(axes[np.argmax(np.abs(axes), axis=0), np.arange(rank)] > 0)


def test_only_the_strongest_axes_are_returned() -> None:
    axes, strengths = principal_axes(sparse(np.diag(np.arange(1, 31, dtype=np.float32))), 3)

    assert axes.shape == (30, 3)
    assert list(strengths) == sorted(strengths, reverse=True)
    assert strengths[0] > 25
