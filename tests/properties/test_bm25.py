"""An index that texts come to and go from scores as one that is made at once, by the formula."""

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.vector.text import bm25
from lib.vector.text.bm25 import BM25

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


@given(plan=steps, query=terms, limit=st.integers(1, 8), eager=st.booleans())
def test_scores_equal_the_formula_after_any_upserts_and_deletes(
    plan: list[tuple[str, list[str] | int]], query: list[str], limit: int, *, eager: bool
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        if eager:  # ask before each term whether all of its rows are needed
            patched.setattr(bm25, "_WORTH_A_LOOK", 0)
        check(plan, query, limit)


def check(plan: list[tuple[str, list[str] | int]], query: list[str], limit: int) -> None:
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

    ids = [str(row) for row in range(len(index))]
    allowed = np.isin(np.arange(len(index)), list(texts))
    found = index.ranked(query, limit, ids, allowed=allowed)
    expected = {
        row: np.float32(by_the_formula(texts, query, row))
        for row, text in texts.items()
        if set(text) & set(query)
    }
    assert len(found) == min(limit, len(expected))
    assert dict(found) == pytest.approx({row: expected[row] for row, _ in found}, rel=1e-6)
    order = [(-score, ids[row]) for row, score in found]
    assert order == sorted(order)
    least = min((score for _, score in found), default=0.0)
    assert all(expected[row] <= least * 1.000001 for row in expected.keys() - dict(found).keys())
