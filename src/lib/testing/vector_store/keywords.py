"""The contract of a vector store: texts found by their words alone."""

from __future__ import annotations

from typing import Any

import pytest

from lib.errors import HybridUnavailable, InvalidFilter, StoreClosed
from lib.testing.vector_store.hybrid import FORMS, HOSTILE, TEXTS
from lib.testing.vector_store.kit import StoreTests, Using, case, ids
from lib.vector import F, KeywordStore, Record

_RECORDS = [Record(name, [1.0, 0.0], text) for name, text in TEXTS.items()]


class KeywordContract(StoreTests):
    """Keyword queries, of a store that declares them; others refuse by name."""

    def test_any_word_of_a_keyword_query_may_match_whatever_its_form(self, using: Using) -> None:
        async def body(store: KeywordStore) -> None:
            await store.upsert(_RECORDS)

            for text, found in FORMS:
                with case(text):
                    assert ids(await store.query_keywords(text)) == found

        self._with_keywords(using, body)

    def test_the_most_relevant_text_comes_first_and_brings_its_record(self, using: Using) -> None:
        async def body(store: KeywordStore) -> None:
            apples = Record("apples", [0.0, 1.0], "apple apple pear", {"x": [1]})
            await store.upsert([apples, Record("apple", [1.0, 0.0], "apple pear plum"), *_RECORDS])

            found = await store.query_keywords("apple", 5)
            assert ids(found) == ["apples", "apple"]
            assert found[0].score > found[1].score > 0
            assert (found[0].text, found[0].meta) == (apples.text, apples.meta)
            assert found[0].vector is None
            assert await store.query_keywords("apple", 1) == found[:1]

        self._with_keywords(using, body)

    def test_equally_relevant_texts_stand_in_the_order_of_their_ids(self, using: Using) -> None:
        async def body(store: KeywordStore) -> None:
            names = ["b", "a", "ab", "Z", "é", "10", "9", "\U0001f600", "\uffff"]
            await store.upsert([Record(name, [1.0, 0.0], "apple") for name in names])

            for k in (1, 3, 9, 20):
                assert ids(await store.query_keywords("apple", k)) == sorted(names)[:k]

        self._with_keywords(using, body)

    def test_a_keyword_query_is_filtered_and_stays_in_its_namespace(self, using: Using) -> None:
        async def body(store: KeywordStore) -> None:
            await store.upsert(
                [Record("one", [1, 0], "apple", {"x": 1}), Record("two", [1, 0], "apple", {"x": 2})]
            )
            await store.upsert([Record("other", [1, 0], "apple")], namespace="other")

            assert ids(await store.query_keywords("apple")) == ["one", "two"]
            assert ids(await store.query_keywords("apple", namespace="other")) == ["other"]
            assert await store.query_keywords("apple", namespace="none") == []
            assert await store.query_keywords("apple", filter={"x": {"$in": []}}) == []
            if using.kind.takes_equality(store):
                assert ids(await store.query_keywords("apple", filter=F("x") == 2)) == ["two"]
                assert await store.query_keywords("apple", filter={"x": 3}) == []

        self._with_keywords(using, body)

    def test_keywords_that_were_replaced_or_deleted_find_nothing(self, using: Using) -> None:
        async def body(store: KeywordStore) -> None:
            await store.upsert(_RECORDS)
            assert ids(await store.query_keywords("fox")) == ["fox"]
            await store.upsert([Record("fox", [1.0, 0.0], "A hare"), Record("new", [1, 0], "fox")])
            await store.delete(["dogs"])

            assert ids(await store.query_keywords("fox")) == ["new"]
            assert ids(await store.query_keywords("hare")) == ["fox"]
            assert await store.query_keywords("dogs") == []

        self._with_keywords(using, body)

    def test_no_text_breaks_a_keyword_query_and_bad_arguments_are_refused(
        self, using: Using
    ) -> None:
        async def body(store: Any) -> None:
            await store.upsert(_RECORDS)

            for text in HOSTILE:
                with case(text[:20]):
                    assert len(await store.query_keywords(text, 10)) <= len(TEXTS)
            wrong: list[tuple[type[Exception], dict[str, Any]]] = [
                (InvalidFilter, {"filter": {"x": {"$like": "a"}}}),
                (ValueError, {"k": 0}),
                (TypeError, {"text": None}),
            ]
            for error, change in wrong:
                with case(change), pytest.raises(error):
                    await store.query_keywords(**{"text": "fox", **change})
            await store.close()
            with pytest.raises(StoreClosed):
                await store.query_keywords("fox")

        self._with_keywords(using, body)

    def _with_keywords(self, using: Using, body: Any) -> None:
        """Run the body; a store without full-text support lacks the method, or refuses."""

        async def main(store: Any) -> None:
            if using.kind.can(store, "keywords"):
                await body(store)
            elif hasattr(store, "query_keywords"):
                with pytest.raises(HybridUnavailable):
                    await store.query_keywords("apple")

        using(main)
