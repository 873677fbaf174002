"""The second stage behind an index: what it fetches, returns, passes on, and refuses."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from lib.errors import LLMError, VectorError
from lib.vector import Doc, F, Hit, RerankingIndex


class Listing:
    """An index that returns its documents in their order, and records its calls."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts
        self.calls: list[tuple[str, int, Any, Any]] = []

    async def search(
        self, query: str, k: int = 5, *, filter: Any = None, hybrid: Any = None
    ) -> list[Hit]:
        self.calls.append((query, k, filter, hybrid))
        found = enumerate(self.texts[:k])
        return [Hit(Doc(f"d{n}", text, {"n": n}), 1 - n / 100, "dot") for n, text in found]


class Answering:
    """A reranker that returns the same places for every call, and records its calls."""

    def __init__(self, *places: Any) -> None:
        self.places = places
        self.calls: list[tuple[str, list[str], int]] = []

    async def rerank(self, query: str, texts: Sequence[str], k: int) -> list[int]:
        self.calls.append((query, list(texts), k))
        return list(self.places)


class Lengths:
    """A reranker that likes long texts."""

    async def rerank(self, query: str, texts: Sequence[str], k: int) -> list[int]:
        return sorted(range(len(texts)), key=lambda place: -len(texts[place]))[:k]


class Failing:
    """A reranker that fails."""

    async def rerank(self, query: str, texts: Sequence[str], k: int) -> list[int]:
        raise LLMError("down", retryable=True)


def texts(count: int) -> list[str]:
    return ["x" * (n + 1) for n in range(count)]


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.id for hit in hits]


async def test_the_best_of_fetch_k_candidates_keep_their_first_stage_scores() -> None:
    index = Listing(*texts(100))

    hits = await RerankingIndex(index, Lengths(), fetch_k=10).search("q", 2)

    assert hits == [
        Hit(Doc("d9", "x" * 10, {"n": 9}), 1 - 9 / 100, "dot"),
        Hit(Doc("d8", "x" * 9, {"n": 8}), 1 - 8 / 100, "dot"),
    ]
    assert index.calls == [("q", 10, None, None)]


async def test_thirty_candidates_are_fetched_and_five_returned_unless_said_otherwise() -> None:
    index = Listing(*texts(100))

    hits = await RerankingIndex(index, Lengths()).search("q")

    assert ids(hits) == ["d29", "d28", "d27", "d26", "d25"]


async def test_as_many_as_wanted_are_fetched_where_that_is_more() -> None:
    index = Listing(*texts(100))

    hits = await RerankingIndex(index, Lengths(), fetch_k=3).search("q", 7)

    assert ids(hits) == ["d6", "d5", "d4", "d3", "d2", "d1", "d0"]
    assert index.calls[0][1] == 7


async def test_the_filter_and_the_mode_are_left_to_the_index() -> None:
    def predicate(doc: Doc) -> bool:
        return bool(doc)

    index = Listing("a")
    reranking = RerankingIndex(index, Lengths())

    for filter_ in (F("n") == 1, {"n": 1}, predicate):
        await reranking.search("q", filter=filter_, hybrid="auto")

    assert index.calls == [
        ("q", 30, F("n") == 1, "auto"),
        ("q", 30, {"n": 1}, "auto"),
        ("q", 30, predicate, "auto"),
    ]


async def test_reranking_indexes_nest() -> None:
    class Shortest:
        async def rerank(self, query: str, texts: Sequence[str], k: int) -> list[int]:
            return sorted(range(len(texts)), key=lambda place: len(texts[place]))[:k]

    inner = RerankingIndex(Listing(*texts(100)), Lengths(), fetch_k=20)
    outer = RerankingIndex(inner, Shortest(), fetch_k=4)

    assert ids(await outer.search("q", 2)) == ["d16", "d17"]


async def test_without_hits_the_reranker_is_not_called() -> None:
    reranker = Answering()

    assert (await RerankingIndex(Listing(), reranker).search("q")) == []
    assert reranker.calls == []


async def test_the_reranker_sees_the_query_the_texts_and_how_many_are_wanted() -> None:
    reranker = Answering(1)

    await RerankingIndex(Listing("a", "b"), reranker).search("q", 1)

    assert reranker.calls == [("q", ["a", "b"], 1)]


@pytest.mark.parametrize("places", [[], [0], [0, 0], [0, 3], [0, -1], [0, 1, 2]], ids=str)
async def test_a_reranker_that_gives_no_order_is_an_error(places: list[int]) -> None:
    index = RerankingIndex(Listing("secret", "b", "c"), Answering(*places))

    with pytest.raises(VectorError, match="not the 2 best of 3 texts") as refused:
        await index.search("q", 2)

    assert "secret" not in str(refused.value)


async def test_a_failure_of_the_reranker_is_the_callers_to_handle() -> None:
    async def main() -> list[Hit]:
        index = RerankingIndex(Listing("a", "b"), Failing())
        try:
            return await index.search("q", 1)
        except LLMError:
            return await index.index.search("q", 1)

    assert ids(await main()) == ["d0"]


@pytest.mark.parametrize("k", [0, -1, True, cast(int, "5")])
async def test_no_hits_cannot_be_wanted(k: int) -> None:
    index = Listing("a")

    with pytest.raises(ValueError, match="at least 1"):
        await RerankingIndex(index, Lengths()).search("q", k)

    assert index.calls == []


@pytest.mark.parametrize("fetch_k", [0, -1])
def test_no_candidates_cannot_be_wanted(fetch_k: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        RerankingIndex(Listing(), Lengths(), fetch_k=fetch_k)
