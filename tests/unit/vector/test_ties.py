"""Equal scores stand in the order of their ids, whatever the backend does with them."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.testing.aio import run
from lib.vector import Match
from lib.vector.ordering import contenders, nearest, ordered


class Backend:
    """Returns its n best, of equal ones those that it holds first."""

    def __init__(self, scores: Sequence[float], *, higher_is_better: bool = True) -> None:
        named = enumerate(reversed(scores))
        self.held = [Match(f"{row:03}", score) for row, score in named][::-1]
        self.higher_is_better, self.sizes = higher_is_better, list[int]()

    async def fetch(self, size: int) -> list[Match]:
        self.sizes.append(size)
        sign = -1 if self.higher_is_better else 1
        return sorted(self.held, key=lambda match: sign * match.score)[:size][::-1]

    def nearest(self, k: int, limit: int | None = None) -> list[Match]:
        return run(nearest(self.fetch, k, higher_is_better=self.higher_is_better, limit=limit))


@given(st.lists(st.integers(0, 3)), st.integers(1, 60), st.booleans())
def test_the_k_best_are_those_of_the_whole_in_order(
    scores: list[int], k: int, higher_is_better: bool
) -> None:
    backend = Backend(scores, higher_is_better=higher_is_better)

    assert backend.nearest(k) == ordered(backend.held, higher_is_better=higher_is_better)[:k]


def test_it_asks_once_where_nothing_ties_at_the_end() -> None:
    backend = Backend(range(100))

    assert [match.score for match in backend.nearest(5)] == [99, 98, 97, 96, 95]
    assert backend.sizes == [13]


def test_it_asks_once_where_there_is_no_more() -> None:
    backend = Backend([1.0] * 7)

    assert len(backend.nearest(5)) == 5
    assert backend.sizes == [13]


def test_it_asks_for_more_until_the_ties_end() -> None:
    backend = Backend([1.0] * 100 + [0.0] * 900)

    assert [match.id for match in backend.nearest(2)] == ["900", "901"]
    assert backend.sizes == [10, 40, 160]


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 40])
def test_it_never_requests_more_than_the_limit(limit: int) -> None:
    backend = Backend([1.0] * 100)

    assert len(backend.nearest(2, limit)) == min(2, limit)
    assert max(backend.sizes) == limit


async def test_contenders_are_all_that_are_as_good_as_the_last() -> None:
    backend = Backend([2.0] + [1.0] * 50 + [0.0] * 500)

    found = await contenders(backend.fetch, 2, distance=lambda match: -match.score)
    assert len({match.id for match in found if match.score >= 1.0}) == 51


async def test_a_backend_may_return_more_than_the_requested_number() -> None:
    backend = Backend([1.0] * 30 + [0.5] * 30)

    async def generous(size: int) -> list[Match]:
        return await backend.fetch(3 * size)

    found = await nearest(generous, 4, higher_is_better=True)
    assert [match.id for match in found] == ["030", "031", "032", "033"]
    assert backend.sizes == [36]
