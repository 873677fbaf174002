"""Adaptive fusion: hardly worse than the better of words and vectors, whichever that is."""

import math
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from lib.vector import Fusion, InMemoryVectorStore, Match, Metric, Record, SQLiteVectorStore
from lib.vector.text.coherence import coherence
from lib.vector.text.evidence import evidence, weight_of_vectors
from lib.vector.text.fusion import fused
from made_collections import KINDS, Kind, MadeCollection, made_collection

ADAPTIVE = Fusion("adaptive")
CHANCE = [(f"{rank:03}", -math.log(rank + 0.5)) for rank in range(100)]  # an exponential tail


def ndcg(found: list[Match], wanted: set[int]) -> float:
    gains = [1.0 / math.log2(rank + 2) for rank in range(10)]
    got = sum(gain for gain, match in zip(gains, found, strict=False) if int(match.id) in wanted)
    return got / sum(gains[: len(wanted)])


async def filled(made: MadeCollection) -> InMemoryVectorStore:
    store = InMemoryVectorStore()
    await store.upsert(
        [
            Record(f"{row:05}", vector, text)
            for row, (vector, text) in enumerate(zip(made.vectors, made.texts, strict=True))
        ]
    )
    return store


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_hardly_worse_than_the_better_of_words_and_vectors(kind: Kind) -> None:
    made = made_collection(kind, documents=1_000, queries=60, seed=4)
    store = await filled(made)

    async def quality(search: Callable[[Any, str], Awaitable[list[Match]]]) -> float:
        scores = [
            ndcg(await search(vector, text), wanted)
            for vector, text, wanted in zip(
                made.query_vectors, made.queries, made.wanted, strict=True
            )
        ]
        return sum(scores) / len(scores)

    def by(fusion: Fusion) -> Callable[[Any, str], Awaitable[list[Match]]]:
        return lambda vector, text: store.query_hybrid(vector, text, 10, fusion=fusion)

    words = await quality(by(Fusion("convex", (0.0, 1.0))))
    vectors = await quality(lambda vector, _: store.query(vector, 10))
    better = max(words, vectors)

    assert (words > vectors + 0.1) is (kind == "words")
    assert (vectors > words + 0.1) is (kind != "words")
    assert await quality(by(ADAPTIVE)) > better - 0.01
    assert await quality(by(Fusion())) < better - 0.05  # which reciprocal rank is not


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
async def test_sqlite_fuses_as_memory_does(metric: Metric) -> None:
    made = made_collection("mixed", documents=300, queries=12, dimension=16)
    records = [
        Record(f"{row:05}", vector, text)
        for row, (vector, text) in enumerate(zip(made.vectors, made.texts, strict=True))
    ]
    memory, file = (
        InMemoryVectorStore(metric=metric),
        SQLiteVectorStore(dimension=16, metric=metric),
    )
    for store in (memory, file):
        await store.upsert(records)
    for vector, text in zip(made.query_vectors, made.queries, strict=True):
        wanted = await memory.query_hybrid(vector, text, 20, fusion=ADAPTIVE)
        assert await file.query_hybrid(vector, text, 20, fusion=ADAPTIVE) == wanted
    await file.close()


def test_evidence_is_that_of_chance_where_scores_fall_off_as_by_chance() -> None:
    amounts = list(evidence(CHANCE, 100).values())

    assert amounts[0] == pytest.approx(5.2, abs=0.5)
    assert amounts[-1] == 0.0
    assert amounts == sorted(amounts, reverse=True)


def test_evidence_depends_on_no_scale() -> None:
    scaled = [(name, 7.0 * score + 3.0) for name, score in CHANCE]

    assert evidence(scaled, 100) == pytest.approx(evidence(CHANCE, 100))


def test_what_stands_out_has_more_evidence_up_to_a_limit() -> None:
    for lead, expected in ((2.0, 7.2), (1_000.0, 12.0)):
        first = [("best", CHANCE[0][1] + lead), *CHANCE[1:]]
        assert evidence(first, 100)["best"] == pytest.approx(expected, abs=0.5)


def test_texts_without_a_word_of_the_query_count_as_the_rest_of_a_short_list() -> None:
    assert evidence([("a", 4.0), ("b", 2.0)], 100) == {"a": 12.0, "b": 6.0}


def test_lists_that_say_nothing_have_no_evidence() -> None:
    assert evidence([], 0) == {}
    assert evidence([("a", 1.0), ("b", 1.0)], 2) == {"a": 0.0, "b": 0.0}
    assert evidence([("a", 1.0)], 1) == {"a": 0.0}


def test_vectors_that_agree_with_words_count_less() -> None:
    near = evidence(CHANCE, 100)

    assert weight_of_vectors(near, near, 0.0) == weight_of_vectors(near, near, 99.0) == 0.4


def test_vectors_that_disagree_with_words_are_believed_if_they_look_sound() -> None:
    near, worded = evidence(CHANCE, 100), {f"w{row}": 5.0 - row / 20 for row in range(100)}
    cramped = dict.fromkeys(near, 2.0)
    decisive = {name: 3.0 * amount for name, amount in worded.items()}

    assert weight_of_vectors(near, worded, 3.1) == 20.0
    assert weight_of_vectors(near, worded, 2.9) == 0.4
    assert weight_of_vectors(cramped, worded, 3.1) == 0.4
    assert weight_of_vectors(near, decisive, 3.1) == 0.4


def test_one_list_alone_keeps_its_order() -> None:
    for near, worded in ((CHANCE, []), ([], CHANCE)):
        names = [name for name, _ in fused(near, worded, 100, ADAPTIVE)]
        assert names == [name for name, _ in CHANCE]


def test_weights_count_beside_what_the_search_decides() -> None:
    worded = [(f"w{row}", 9.0 - row / 12) for row in range(100)]
    first = {
        words: fused(CHANCE, worded, 1, Fusion("adaptive", (1.0, words)))[0][0]
        for words in (0.01, 100.0)
    }

    assert first == {0.01: "000", 100.0: "w0"}


def test_vectors_near_the_query_by_chance_are_not_coherent() -> None:
    random = np.random.default_rng(3)
    query = random.normal(size=64).astype(np.float32)
    rows = random.normal(size=(2_000, 64)).astype(np.float32)
    nearest = rows[np.argsort(-(rows @ query) / np.linalg.norm(rows, axis=1))]
    topic = random.normal(size=64)
    related = (query + topic + 0.5 * random.normal(size=(10, 64))).astype(np.float32)

    assert abs(coherence(query, nearest)) < 3
    assert coherence(query, related) > 10


def test_coherence_of_too_few_or_of_zero_vectors_is_0() -> None:
    query = np.ones(4, np.float32)

    assert coherence(query, np.ones((2, 4), np.float32)) == 0.0
    assert coherence(query, np.zeros((9, 4), np.float32)) == 0.0
