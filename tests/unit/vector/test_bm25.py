"""BM25: what counts, and what leaves with a text."""

import numpy as np
import pytest

from lib.vector.bm25 import BM25, best


def indexed(*texts: str) -> BM25:
    index = BM25()
    for text in texts:
        index.add(text.split())
    return index


def test_rare_words_short_texts_and_repetition_raise_a_score() -> None:
    index = indexed("common rare", "common", "common common", "common and much else besides", "")

    rare, short, twice, long, empty = index.scores(["common"])
    assert twice > short > rare > long > empty == 0.0
    assert index.scores(["rare"])[0] > index.scores(["common"])[0]


def test_a_term_that_the_query_repeats_counts_as_often() -> None:
    index = indexed("apple", "pear")

    assert index.scores(["apple", "apple"])[0] == pytest.approx(2 * index.scores(["apple"])[0])


def test_no_score_is_negative_even_for_a_term_of_every_text() -> None:
    assert (indexed("a", "a", "a").scores(["a"]) > 0).all()


def test_an_unknown_term_and_an_empty_query_find_nothing() -> None:
    index = indexed("a", "b")

    assert index.scores(["x"]).tolist() == [0.0, 0.0]
    assert index.scores([]).tolist() == [0.0, 0.0]
    assert best(index.scores([]), 5, ["1", "2"]) == []
    assert BM25().scores(["a"]).tolist() == []


def test_a_removed_text_leaves_every_statistic_at_once() -> None:
    index = indexed("a b", "a long text that is gone", "b")
    index.remove(1)

    fresh = indexed("a b", "b")
    assert index.scores(["a", "b"])[[0, 2]].tolist() == fresh.scores(["a", "b"]).tolist()


def test_a_term_that_left_with_its_last_text_can_come_back() -> None:
    index = indexed("a", "b")
    index.remove(0)
    assert index.scores(["a"])[1] == 0.0
    index = index.compacted(np.array([1]))
    index.add(["a"])

    assert index.scores(["a"]).tolist() == indexed("b", "a").scores(["a"]).tolist()


def test_a_count_beyond_sixteen_bits_is_kept_at_the_most() -> None:
    index = BM25()
    index.add(["a"] * 70_000)

    assert index.scores(["a"])[0] > 0
