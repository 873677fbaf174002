"""The contract of a vector store: keywords and nearness in one list."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lib.errors import (
    DimensionMismatch,
    HybridUnavailable,
    InvalidFilter,
    InvalidVector,
    UnsupportedFusion,
)
from lib.testing.vector_store.kit import METRICS, StoreTests, Using, case, ids
from lib.vector import EmbeddingIndex, F, Fusion, HybridStore, Match, Metric, Record
from lib.vector.contract import Purpose, declared_fusions, query_hybrid
from lib.vector.text.fusion import METHODS

HOSTILE = (
    "", " ", "\0", "\ud800", "'", '"', '""', "'; DROP TABLE lib_vectors; --", "*", "a*", "^a", "(",
    "fox AND", "NOT", "OR OR", "NEAR(fox dog, 2)", "text:fox", "{text} : fox", "-fox", "+fox",
    "fox\\", "%", "fox & dog | !x", "fox <-> dog", ":*", "\U0001f600", "fox\0dog", "日本語 บท",
    "a" * 10_000, "fox " * 3_000, "e\u0301", "İ", "\u202e", "x" + "\u0301" * 500,
)  # fmt: skip
_SYNTAX = (
    "AND", "OR", "NOT", "NEAR", "NEAR(", "NEAR/2", "TO", "&", "|", "!", "<->", "<2>", ":*", "*",
    "^", "~", "~2",
    "+", "-", "(", ")", "[", "]", "{", "}", ":", "::", ";", "--", "/*", "*/", "'", "''", '"',
    '""', "`", "\\", "\\\\",
    "%", "_", "?", "$1", "%s", "%(x)s", "{0}", "text:", "meta:", "rowid:", "rank", "<", ">", "=",
    "@@", "@", "#",
    "\0", "\n", "\r\n", "\t", "\ud800", "\udfff", "\ufeff", "\u202e", "\u200d", "\ufe0f",
    "\u0301", "\u0345",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U000e0041", "\uffff", "\U0010ffff", "\x1f",
    "\x7f", "\x85",
)  # fmt: skip
_WORDS = (
    "fox", "foxes", "dog", "the", "and", "naïve", "İ", "ß", "ﬁ", "日本語", "บท", "학교", "हिन्दी",
    "שָׁלוֹם", "x1.5",
    "2e308", "1e-400", "http://a.b/c?d=e&f", "a@b.com", "/etc/passwd", "C++", "don't",
    "O'Reilly", "foo_bar",
    "DROP TABLE lib_vectors", "SELECT", "pg_sleep(9)", "null", "true", "a" * 3_000, "é" * 3_000,
    "x" + "\u0301" * 99,
)  # fmt: skip
TEXTS = {
    "fox": "The quick brown fox jumps over the lazy dog",
    "dogs": "Two dogs were sleeping",
    "cafe": "A Café in Zürich",
    "plain": "Nothing of interest",
    "japanese": "日本語 入門",
    "emoji": "Hello 👋🏽 wave",
    "silent": "",
}
FORMS: tuple[tuple[str, list[str]], ...] = (
    ("fox", ["fox"]),
    ("FOXES!", ["fox"]),
    ("sleep", ["dogs"]),
    ("dog jumping", ["fox", "dogs"]),
    ("cafe", ["cafe"]),
    ("CAFÉ", ["cafe"]),
    ("zurich unknown", ["cafe"]),
    ("cafe\u0301", ["cafe"]),
    ("日本語", ["japanese"]),
    ("hello", ["emoji"]),
    ("👋", []),
    ("the of a", []),
    ("unknown", []),
    ("...", []),
)
"""Queries by words over `TEXTS`, and what they find, best first."""
BATCHES, TEXTS_A_BATCH = (8, 2_500) if os.environ.get("LIB_TEST_LONG") else (1, 1_000)
"""So many hostile texts for each store: 1,000, or 20,000 in the long mode."""


class HybridContract(StoreTests):
    """Hybrid queries, of a store that declares them."""

    @pytest.mark.parametrize("metric", METRICS)
    def test_a_score_is_the_sum_of_reciprocal_ranks(self, using: Using, metric: Metric) -> None:
        async def body(store: HybridStore) -> None:
            await store.upsert(
                [
                    Record("a", [4.0, 0.0], "pear"),
                    Record("b", [4.0, 1.0], "apple apple"),
                    Record("c", [4.0, 2.0], "apple pear plum"),
                ]
            )

            found = await store.query_hybrid([4.0, 0.0], "apple", 3)
            assert ids(await store.query([4.0, 0.0], 3)) == ["a", "b", "c"]
            assert [(match.id, match.score) for match in found] == [
                ("b", pytest.approx(1 / 62 + 1 / 61)),
                ("c", pytest.approx(1 / 63 + 1 / 62)),
                ("a", pytest.approx(1 / 61)),
            ]

        self._with_hybrid(using, body, metric=metric)

    @pytest.mark.parametrize("metric", METRICS)
    def test_a_convex_score_is_the_weighted_mean_of_both_lists(
        self, using: Using, metric: Metric
    ) -> None:
        async def body(store: HybridStore) -> None:
            texts = ("pear", "apple apple", "apple pear plum fig", "apple pear")
            await store.upsert(
                [Record(str(row), [4.0 - row, row], text) for row, text in enumerate(texts)]
            )

            async def shares(near: float, worded: float) -> dict[str, float]:
                fusion = Fusion("convex", (near, worded))
                found = await store.query_hybrid([4.0, 0.0], "apple", 9, fusion=fusion)
                assert ids(found) == sorted(
                    ids(found), key=lambda name: (-scores(found)[name], name)
                )
                return scores(found)

            if not declared_fusions(store) >= {"convex", "weights"}:
                with pytest.raises(UnsupportedFusion):
                    await shares(1, 3)
                return
            near, worded, both = await shares(1, 0), await shares(0, 2), await shares(1, 3)
            assert (near["0"], near["3"]) == (1.0, 0.0)
            assert sorted(worded) == ["1", "2", "3"]
            assert (max(worded.values()), min(worded.values())) == (1.0, 0.0)
            assert both == {
                name: pytest.approx(near[name] / 4 + worded.get(name, 0.0) * 3 / 4) for name in near
            }

        self._with_hybrid(using, body, metric=metric)

    @pytest.mark.parametrize(("text", "found"), FORMS)
    def test_any_word_may_match_whatever_its_form(
        self, using: Using, text: str, found: list[str]
    ) -> None:
        async def body(store: HybridStore) -> None:
            await store.upsert([Record(name, [1.0, 0.0], text) for name, text in TEXTS.items()])

            assert await worded(store, text) == found

        self._with_hybrid(using, body)

    def test_a_part_of_a_text_without_spaces_is_found_where_the_store_says_so(
        self, using: Using
    ) -> None:
        async def body(store: HybridStore) -> None:
            await store.upsert([Record(name, [1.0, 0.0], text) for name, text in TEXTS.items()])

            assert await worded(store, "本") == (["japanese"] if using.kind.parts else [])

        self._with_hybrid(using, body)

    def test_the_filter_holds_for_both_lists(self, using: Using) -> None:
        async def body(store: HybridStore) -> None:
            await store.upsert(
                [
                    Record("near", [1.0, 0.0], "", {"x": 1}),
                    Record("worded", [-1.0, 0.0], "apple", {"x": 1}),
                    Record("near too", [1.0, 0.0], "", {"x": 2}),
                    Record("worded too", [-1.0, 0.0], "apple apple", {"x": 2}),
                ]
            )

            if using.kind.takes_equality(store):
                found = await store.query_hybrid([1.0, 0.0], "apple", 9, filter=F("x") == 1)
                assert ids(found) == ["worded", "near"]
                assert await store.query_hybrid([1.0, 0.0], "apple", filter={"x": 3}) == []
            assert await store.query_hybrid([1.0, 0.0], "apple", filter={"x": {"$in": []}}) == []

        self._with_hybrid(using, body)

    def test_words_that_were_replaced_or_deleted_are_gone(self, using: Using) -> None:
        async def body(store: HybridStore) -> None:
            await store.upsert([Record(name, [1.0, 0.0], text) for name, text in TEXTS.items()])
            assert await worded(store, "fox") == ["fox"]
            await store.upsert([Record("fox", [1.0, 0.0], "A hare"), Record("new", [1, 0], "fox")])
            await store.delete(["dogs"])

            assert await worded(store, "fox") == ["new"]
            assert await worded(store, "hare") == ["fox"]
            assert await worded(store, "dogs") == []

        self._with_hybrid(using, body)

    def test_what_other_namespaces_hold_changes_no_ranking(self, using: Using) -> None:
        async def body(store: HybridStore) -> None:
            rare, common = "apple " + "pear " * 3, "pear " + "apple " * 3
            await store.upsert(
                [Record("1", [1, 0], "apple plum"), Record("2", [1, 0], "pear plum")]
                + [Record(f"{number}", [1, 0], "apple cherry") for number in range(3, 9)]
            )
            before = await worded(store, "apple pear")
            assert before[0] == "2"
            await store.upsert(
                [Record(f"{number}", [1, 0], common + rare) for number in range(50)]
                + [Record(f"p{number}", [1, 0], "pear") for number in range(500)],
                namespace="other",
            )

            assert await worded(store, "apple pear") == before

        self._with_hybrid(using, body)

    def test_an_empty_namespace_finds_nothing(self, using: Using) -> None:
        async def body(store: HybridStore) -> None:
            await store.upsert([Record("a", [1.0, 0.0], "apple")], namespace="other")

            assert await store.query_hybrid([1.0, 0.0], "apple") == []

        self._with_hybrid(using, body)

    def test_no_text_breaks_a_query(self, using: Using) -> None:
        async def body(store: HybridStore) -> None:
            await store.upsert([Record(name, [1.0, 0.0], text) for name, text in TEXTS.items()])

            for text in HOSTILE:
                with case(text[:20]):
                    assert len(await store.query_hybrid([1.0, 0.0], text, 10)) == len(TEXTS)

        self._with_hybrid(using, body)

    @pytest.mark.parametrize("seed", range(BATCHES))
    def test_no_hostile_text_breaks_a_query(self, using: Using, seed: int) -> None:
        async def body(store: HybridStore) -> None:
            random = Random(seed)  # noqa: S311 - tests repeat
            await store.upsert([Record(name, [1.0, 0.0], text) for name, text in TEXTS.items()])

            for _ in range(TEXTS_A_BATCH):
                text = hostile_text(random)
                assert len(await store.query_hybrid([1.0, 0.0], text, 10)) == len(TEXTS), text

        self._with_hybrid(using, body)

    def test_bad_input_is_refused_as_in_a_plain_query(self, using: Using) -> None:
        async def body(store: HybridStore) -> None:
            wrong: list[tuple[type[Exception], dict[str, Any]]] = [
                (DimensionMismatch, {"vector": [1.0]}),
                (InvalidVector, {"vector": [0.0, 0.0]}),
                (InvalidFilter, {"filter": {"x": {"$like": "a"}}}),
                (ValueError, {"k": 0}),
                (TypeError, {"text": None}),
                (ValueError, {"fusion": "mean"}),
            ]
            right: dict[str, Any] = {"vector": [1.0, 0.0], "text": "x"}
            await store.upsert([Record("a", [1.0, 0.0], "apple")])
            for error, change in wrong:
                with pytest.raises(error):
                    await store.query_hybrid(**{**right, **change})

        self._with_hybrid(using, body)

    def test_a_fusion_that_it_cannot_make_is_refused_before_any_effect(self, using: Using) -> None:
        async def body(store: Any) -> None:
            await store.upsert([Record("a", [1.0, 0.0], "apple")])
            embedder, able = _Noting(), declared_fusions(store)
            index = EmbeddingIndex(store, embedder, hybrid=True)
            for method, weights in product(METHODS, ((1.0, 1.0), (1.0, 3.0))):
                fusion, needed = Fusion(method, weights), {method}
                needed |= {"weights"} if weights[0] != weights[1] else set()
                with case(str(fusion)):
                    if needed <= able:
                        found = await query_hybrid(
                            store,
                            [1.0, 0.0],
                            "apple",
                            5,
                            filter=None,
                            namespace=None,
                            fusion=fusion,
                        )
                        assert ids(found) == ["a"]
                        continue
                    with pytest.raises(UnsupportedFusion):
                        await index.search("apple", fusion=fusion)
                    with pytest.raises(UnsupportedFusion):
                        await index.search_many(["apple"], fusion=fusion)
                    if hasattr(store, "fusions"):
                        with pytest.raises(UnsupportedFusion):
                            await store.query_hybrid([1.0, 0.0], "apple", fusion=fusion)
            assert embedder.texts == []

        self._with_hybrid(using, body)

    def _with_hybrid(self, using: Using, body: Any, *, metric: Metric = "cosine") -> None:
        """Run the body; a store without hybrid search has no such method, or one that refuses."""

        async def main(store: Any) -> None:
            if using.kind.can(store, "hybrid"):
                await body(store)
            elif hasattr(store, "query_hybrid"):
                with pytest.raises(HybridUnavailable):
                    await store.query_hybrid([1.0, 0.0], "apple")

        using(main, metric=metric)


class _Noting:
    """An embedder that notes the texts that it was paid for."""

    dimension = 2

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def embed(
        self, texts: Sequence[str], *, purpose: Purpose = "document"
    ) -> NDArray[np.float32]:
        """Return the same vector for each text."""
        del purpose
        self.texts.extend(texts)
        return np.array([[1.0, 0.0]] * len(texts), np.float32)


def scores(found: list[Match]) -> dict[str, float]:
    """Return the scores of what was found."""
    return {match.id: match.score for match in found}


async def worded(store: HybridStore, text: str) -> list[str]:
    """Return what the words alone have found, best first: what vectors add is taken away."""
    near = ids(await store.query([1.0, 0.0], 100))
    found = await store.query_hybrid([1.0, 0.0], text, 100)
    gains = {match.id: match.score - 1 / (61 + near.index(match.id)) for match in found}
    return sorted((name for name in gains if gains[name] > 1e-9), key=lambda name: -gains[name])


def hostile_text(random: Random) -> str:
    """Return a text of syntax, words, and characters of any kind, in any order."""
    pieces = [_piece(random) for _ in range(random.randint(1, 9))]
    return random.choice(["", " ", " ", '"']).join(pieces)


def _piece(random: Random) -> str:
    kind = random.random()
    if kind < 0.55:
        return random.choice(_SYNTAX)
    if kind < 0.8:
        return random.choice(_WORDS)
    top = random.choice([0x80, 0x800, 0x10000, 0x110000])
    return "".join(chr(random.randrange(top)) for _ in range(random.randint(1, 12)))
