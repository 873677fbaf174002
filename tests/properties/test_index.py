"""A predicate search finds what filtering the whole ranking would."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lib.vector import Doc, EmbeddingIndex, InMemoryVectorStore
from lib.vector.contract import Purpose


class Letters:
    """Embeds a text as the counts of its letters a to d, and one for all texts."""

    dimension = 5

    async def embed(
        self, texts: Sequence[str], *, purpose: Purpose = "document"
    ) -> NDArray[np.float32]:
        return np.array(
            [[1.0, *(text.count(letter) for letter in "abcd")] for text in texts], np.float32
        )


texts = st.text("abcd ", max_size=6)


@given(
    st.lists(texts, max_size=40),
    texts,
    st.sets(st.integers(0, 39)),
    st.integers(1, 8),
    st.integers(1, 50),
    st.booleans(),
)
async def test_a_predicate_search_equals_the_filtered_ranking(  # noqa: PLR0917 - one per strategy
    bodies: list[str], query: str, chosen: set[int], k: int, max_overfetch: int, hybrid: bool
) -> None:
    index = EmbeddingIndex(
        InMemoryVectorStore(5), Letters(), max_overfetch=max_overfetch, hybrid=hybrid
    )
    await index.add(Doc(f"{n:02}", body, {"n": n}) for n, body in enumerate(bodies))
    ranking = await index.search(query, max(k, max_overfetch))

    survivors = await index.search(query, k, filter=lambda doc: doc.meta["n"] in chosen)

    assert survivors == [hit for hit in ranking if hit.meta["n"] in chosen][:k]
    if not hybrid and max_overfetch >= len(bodies):
        assert survivors == await index.search(query, k, filter={"n": {"$in": list(chosen)}})
