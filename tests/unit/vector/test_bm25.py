"""BM25: what counts, and what leaves with a text."""

import numpy as np
import pytest

from lib.vector.text.bm25 import BM25


def indexed(*texts: str) -> BM25:
    index = BM25()
    for text in texts:
        index.add(text.split())
    return index


def scores(index: BM25, tokens: list[str]) -> list[float]:
    ids = [str(row) for row in range(len(index))]
    found = dict(index.ranked(tokens, len(index) + 1, ids))
    return [found.get(row, 0.0) for row in range(len(index))]


def test_rare_words_short_texts_and_repetition_raise_a_score() -> None:
    index = indexed("common rare", "common", "common common", "common and much else besides", "")

    rare, short, twice, long, empty = scores(index, ["common"])
    assert twice > short > rare > long > empty == 0.0
    assert scores(index, ["rare"])[0] > scores(index, ["common"])[0]


def test_a_term_that_the_query_repeats_counts_as_often() -> None:
    index = indexed("apple", "pear")

    assert scores(index, ["apple", "apple"])[0] == pytest.approx(2 * scores(index, ["apple"])[0])


def test_no_score_is_negative_even_for_a_term_of_every_text() -> None:
    assert min(scores(indexed("a", "a", "a"), ["a"])) > 0


def test_an_unknown_term_and_an_empty_query_find_nothing() -> None:
    index = indexed("a", "b")

    assert scores(index, ["x"]) == [0.0, 0.0]
    assert scores(index, []) == [0.0, 0.0]
    assert scores(BM25(), ["a"]) == []


def test_a_removed_text_leaves_every_statistic_at_once() -> None:
    index = indexed("a b", "a long text that is gone", "b")
    index.remove(1)

    fresh = indexed("a b", "b")
    assert scores(index, ["a", "b"])[0::2] == scores(fresh, ["a", "b"])


def test_a_term_that_left_with_its_last_text_can_come_back() -> None:
    index = indexed("a", "b")
    index.remove(0)
    assert index.ranked(["a"], 5, ["0", "1"]) == []
    index = index.compacted(np.array([1]))
    index.add(["a"])

    assert scores(index, ["a"]) == scores(indexed("b", "a"), ["a"])


def test_a_count_beyond_sixteen_bits_is_kept_at_the_most() -> None:
    index = BM25()
    index.add(["a"] * 70_000)

    assert scores(index, ["a"])[0] > 0


def test_a_failed_query_leaves_nothing_behind() -> None:
    index = indexed("a", "b", "a b")
    before = scores(index, ["a", "b"])

    with pytest.raises(IndexError):
        index.ranked(["a", "b"], 2, [])

    assert scores(index, ["a", "b"]) == before
    index.add(["a"])  # nothing holds on to its lists


def test_terms_of_many_texts_are_only_looked_up_where_they_can_matter() -> None:
    noise = np.random.default_rng(3)
    index, ids = BM25(), [f"{row:05}" for row in range(12_000)]
    texts = [
        ["often"] * int(noise.integers(1, 4)) + ["rare"] * (row % 400 == 0) + ["x"] * (row % 7)
        for row in range(len(ids))
    ]
    for text in texts:
        index.add(text)

    everything = index.ranked(["often", "rare"], len(ids), ids)
    assert index.ranked(["often", "rare"], 10, ids) == everything[:10]
    assert {row % 400 for row, _ in everything[:10]} == {0}
