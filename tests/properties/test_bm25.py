"""An index that texts come to and go from scores as one that is made at once, by the formula."""

from collections import Counter
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.vector.bm25 import BM25, best

terms = st.lists(st.sampled_from("abcdef"), max_size=6)
steps = st.lists(
    st.tuples(st.just("add"), terms)
    | st.tuples(st.sampled_from(["remove", "compact"]), st.integers(0, 30)),
    max_size=30,
)


def by_the_formula(texts: dict[int, list[str]], query: list[str], row: int) -> float:
    """Source: Robertson and Zaragoza, 2009, with Lucene's idf; k1 = 1.2, b = 0.75."""
    average = sum(map(len, texts.values())) / len(texts)
    score = 0.0
    for term in query:
        having = sum(term in text for text in texts.values())
        idf = log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        count = texts[row].count(term)
        score += idf * count / (count + 1.2 * (1 - 0.75 + 0.75 * len(texts[row]) / average or 1))
    return score


@settings(max_examples=300)
@given(steps, terms)
def test_it_agrees_with_the_formula_after_any_steps(
    plan: list[tuple[str, list[str] | int]], query: list[str]
) -> None:
    index, texts = BM25(), dict[int, list[str]]()
    for _, argument in plan:
        living = sorted(texts)
        if isinstance(argument, list):
            texts[len(index)] = argument
            index.add(argument)
        elif living and argument < 20:
            gone = living[argument % len(living)]
            index.remove(gone)
            del texts[gone]
        else:
            index = index.compacted(np.array(living, np.intp))
            texts = {place: texts[row] for place, row in enumerate(living)}

    scores = index.scores(query)
    assert len(scores) == len(index)
    for row, text in texts.items():
        expected = by_the_formula(texts, query, row) if Counter(text) & Counter(query) else 0.0
        assert scores[row] == pytest.approx(expected)


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), max_size=30), st.integers(1, 12))
def test_the_best_are_the_highest_above_zero_ties_by_id(totals: list[float], limit: int) -> None:
    ids = [str(number) for number in range(len(totals))]

    rows = [row for row, total in enumerate(totals) if total]
    rows.sort(key=lambda row: (-totals[row], ids[row]))
    assert best(np.array(totals), limit, ids) == rows[:limit]
