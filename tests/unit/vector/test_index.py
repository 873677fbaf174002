"""The index in front of a store: what it adds, finds, refuses, and how far it looks."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from lib.errors import HybridUnavailable, InvalidFilter, VectorError
from lib.vector import (
    Doc,
    EmbeddingIndex,
    F,
    Hit,
    InMemoryVectorStore,
    LSAEmbedder,
    Match,
    Metric,
    Record,
    TenantVectorStore,
    VectorStore,
)
from lib.vector.contract import Purpose
from lib.vector.filter import Filter


class Numbers:
    """Embeds a number near its neighbours: as a point on the unit circle."""

    dimension = 2

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], Purpose]] = []

    async def embed(
        self, texts: Sequence[str], *, purpose: Purpose = "document"
    ) -> NDArray[np.float32]:
        self.calls.append((list(texts), purpose))
        angles = np.array([float(text) for text in texts]) / 1000
        return np.column_stack([np.cos(angles), np.sin(angles)]).astype(np.float32)


class CountingStore(InMemoryVectorStore):
    """The in-memory store, noting how many results each query asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def query(self, vector: Any, k: int = 5, **options: Any) -> list[Match]:
        self.sizes.append(k)
        return await super().query(vector, k, **options)

    async def query_hybrid(self, vector: Any, text: str, k: int = 5, **options: Any) -> list[Match]:
        self.sizes.append(k)
        return await super().query_hybrid(vector, text, k, **options)


class DenseStore:
    """A store that has no hybrid search: what it lacks is left out, the rest passed on."""

    def __init__(self) -> None:
        self._store = InMemoryVectorStore()

    def __getattr__(self, name: str) -> Any:
        if name == "query_hybrid":
            raise AttributeError(name)
        return getattr(self._store, name)


def numbers(count: int, start: int = 0) -> list[Doc]:
    return [Doc(f"n{n:04}", str(n), {"n": n}) for n in range(start, start + count)]


async def filled(count: int, store: VectorStore | None = None, **options: Any) -> EmbeddingIndex:
    index = EmbeddingIndex(store or InMemoryVectorStore(), Numbers(), **options)
    await index.add(numbers(count))
    return index


def ids(hits: list[Hit]) -> list[str]:
    return [hit.id for hit in hits]


async def test_the_nearest_documents_are_found_best_first() -> None:
    index = await filled(20)

    hits = await index.search("7", 3, filter=F("n") != 6)

    assert ids(hits) == ["n0007", "n0008", "n0005"]
    assert hits[0].doc == Doc("n0007", "7", {"n": 7})
    assert hits[0].score == pytest.approx(1)
    assert {(hit.metric, hit.higher_is_better) for hit in hits} == {("cosine", True)}
    assert ids(await index.search("7")) == ["n0007", "n0006", "n0008", "n0005", "n0009"]


@pytest.mark.parametrize(("metric", "higher"), [("dot", True), ("euclidean", False)])
async def test_hits_tell_how_to_read_their_score(metric: Metric, higher: bool) -> None:
    index = await filled(3, InMemoryVectorStore(metric=metric))

    (hit,) = await index.search("1", 1)

    assert (hit.metric, hit.higher_is_better) == (metric, higher)


@pytest.mark.parametrize("filter_", [{"n": {"$gte": 15}}, F("n") >= 15])
async def test_a_filter_is_left_to_the_store(filter_: Filter | dict[str, Any]) -> None:
    store = CountingStore()
    index = await filled(20, store)

    hits = await index.search("0", 2, filter=filter_)

    assert ids(hits) == ["n0015", "n0016"]
    assert store.sizes == [2]


async def test_a_threshold_that_no_score_can_be_compared_with_is_refused() -> None:
    index = await filled(3)
    with pytest.raises(ValueError, match="score_threshold is a number of 64 bits"):
        await index.search("1", score_threshold=10**400)


@pytest.mark.parametrize(
    ("metric", "threshold", "found"),
    [("cosine", 0.99995, 3), ("dot", 2.0, 0), ("euclidean", 0.01, 3)],
)
async def test_hits_worse_than_the_threshold_are_left_out(
    metric: Metric, threshold: float, found: int
) -> None:
    index = await filled(100, InMemoryVectorStore(metric=metric))

    hits = await index.search("7", 50, score_threshold=threshold)

    assert len(hits) >= found
    assert hits == [
        hit
        for hit in await index.search("7", 50)
        if (hit.score >= threshold if hit.higher_is_better else hit.score <= threshold)
    ]
    assert [hits] == await index.search_many(["7"], 50, score_threshold=threshold)
    (vector,) = await index.embedder.embed(["7"])
    assert hits == await index.search_by_vector(vector, 50, score_threshold=threshold)


async def test_a_predicate_search_with_a_threshold_ends_where_the_rest_is_worse() -> None:
    store = CountingStore()
    index = await filled(1000, store)

    hits = await index.search(
        "0", 5, filter=lambda doc: doc.meta["n"] % 9 == 0, score_threshold=0.9999
    )

    assert ids(hits) == ["n0000", "n0009"]
    assert store.sizes == [20]


@pytest.mark.parametrize("hybrid", [True, "auto"])
async def test_a_threshold_is_no_measure_of_fused_ranks(hybrid: Any) -> None:
    index = await filled(10)

    with pytest.raises(ValueError, match="score_threshold"):
        await index.search("7", hybrid=hybrid, score_threshold=0.5)


async def test_documents_are_found_by_words_alone_without_an_embedding() -> None:
    embedder = Numbers()
    index = EmbeddingIndex(InMemoryVectorStore(2), embedder)
    await index.add([Doc("one", "1", {"n": 1}), Doc("two", "2", {"n": 2})])
    await index.store.upsert([Record("words", [1.0, 0.0], "one apple", {"n": 3})])
    embedder.calls.clear()

    (hit,) = await index.search_by_keywords("apples", 3)
    assert (hit.id, hit.metric, hit.higher_is_better) == ("words", "keywords", True)
    assert await index.search_by_keywords("apples", filter={"n": 1}) == []
    assert await index.search_by_keywords("apples", filter=lambda doc: doc.id == "one") == []
    assert await index.search_by_keywords("apples", filter=lambda doc: doc.id == "words") == [hit]
    assert embedder.calls == []


async def test_a_store_without_words_refuses_a_search_by_keywords() -> None:
    class Wordless(InMemoryVectorStore):
        capabilities = frozenset()

    index = await filled(3, Wordless())
    with pytest.raises(HybridUnavailable, match="Wordless has no full-text search"):
        await index.search_by_keywords("1")


async def test_a_predicate_search_asks_for_more_until_enough_survive() -> None:
    store = CountingStore()
    index = await filled(100, store)

    hits = await index.search("0", 2, filter=lambda doc: doc.meta["n"] >= 20)

    assert ids(hits) == ["n0020", "n0021"]
    assert store.sizes == [8, 32]


async def test_a_predicate_search_ends_when_the_store_is_exhausted() -> None:
    store = CountingStore()
    index = await filled(30, store)

    hits = await index.search("0", 5, filter=lambda doc: doc.text == "29")

    assert ids(hits) == ["n0029"]
    assert store.sizes == [20, 80]


@pytest.mark.parametrize("hybrid", [False, True])
async def test_a_predicate_search_looks_at_max_overfetch_candidates_at_most(hybrid: bool) -> None:
    store = CountingStore()
    index = await filled(100, store, max_overfetch=50, hybrid=hybrid)

    assert ids(await index.search("0", 1, filter=lambda doc: doc.meta["n"] == 49)) == ["n0049"]
    assert await index.search("0", 1, filter=lambda doc: doc.meta["n"] == 50) == []
    assert store.sizes == [4, 16, 50] * 2


async def test_max_overfetch_bounds_the_candidates_whatever_k_is() -> None:
    store = CountingStore()
    index = await filled(30, store, max_overfetch=7)

    assert len(await index.search("0", 20, filter=lambda _: True)) == 7
    assert len(await index.search("0", 20)) == 20
    assert store.sizes == [7, 20]


async def test_only_documents_that_are_not_there_are_embedded_and_inserted() -> None:
    index = await filled(3)
    embedder = cast(Numbers, index.embedder)
    embedder.calls.clear()

    assert await index.insert([Doc("n0001", "9"), *numbers(3, start=2)], batch_size=2) == 2
    assert embedder.calls == [(["3", "4"], "document")]
    assert await index.get(["n0001", "n0004"]) == [*numbers(1, start=1), *numbers(1, start=4)]
    assert await index.insert(numbers(5)) == 0
    with pytest.raises(ValueError, match="batch_size"):
        await index.insert(numbers(1), batch_size=0)


async def test_metadata_of_documents_changes_without_an_embedding() -> None:
    index = await filled(3)
    embedder = cast(Numbers, index.embedder)
    embedder.calls.clear()

    assert await index.update_meta({"seen": True}, filter=F("n") >= 1) == 2
    assert await index.update_meta({"n": 7}, ids=["n0000"]) == 1
    assert [doc.meta for doc in await index.get(["n0000", "n0002"])] == [
        {"n": 7},
        {"n": 2, "seen": True},
    ]
    assert embedder.calls == []


async def test_what_a_store_does_not_have_is_named() -> None:
    class Narrow(InMemoryVectorStore):
        capabilities = frozenset()

    index = await filled(3, Narrow())
    with pytest.raises(VectorError, match=r"Narrow has no insert\(\)"):
        await index.insert(numbers(1))
    with pytest.raises(VectorError, match=r"Narrow has no update_meta\(\)"):
        await index.update_meta({}, ids=[])


async def test_diverse_hits_are_picked_from_four_times_as_many() -> None:
    store = CountingStore()
    index = await filled(100, store)
    near = await index.search("0", 12)

    hits = await index.search("0", 3, diversity=1.0)

    assert ids(hits)[:2] == ["n0000", "n0011"]
    assert store.sizes == [12, 12]
    assert all(hit in near for hit in hits)
    assert ids(await index.search("0", 3, diversity=0.0)) == ids(near[:3])
    assert await index.search_many(["0"], 3, diversity=1.0) == [hits]
    (vector,) = await index.embedder.embed(["0"])
    assert await index.search_by_vector(vector, 3, diversity=1.0) == hits
    passing = await index.search("0", 2, diversity=1.0, filter=lambda doc: doc.meta["n"] < 5)
    assert ids(passing) == ["n0000", "n0004"]
    assert await index.search("0", diversity=0.5, filter={"n": -1}) == []


@pytest.mark.parametrize("diversity", [-0.1, 1.1, float("nan")])
async def test_a_diversity_is_a_share(diversity: float) -> None:
    index = await filled(3)

    with pytest.raises(ValueError, match="diversity is from 0 to 1"):
        await index.search("0", diversity=diversity)
    with pytest.raises(ValueError, match="diversity reads similarities"):
        await index.search("0", diversity=0.5, hybrid=True)


async def test_the_values_of_a_field_are_counted() -> None:
    index = await filled(5)

    facet = await index.facet("n", filter=F("n") > 1, limit=2)
    assert (facet.values, facet.distinct) == ([(2, 1), (3, 1)], 3)
    assert (facet.minimum, facet.maximum) == (2, 4)


async def test_documents_are_listed_by_filter_from_a_cursor_on() -> None:
    index = await filled(10)

    wanted = [doc async for doc in index.list_docs(filter=F("n") >= 4, batch_size=2)]
    assert wanted == numbers(6, start=4)
    assert [doc async for doc in index.list_docs(filter=F("n") >= 4, after="n0007")] == wanted[4:]


async def test_a_store_that_cannot_be_read_in_order_lists_no_documents() -> None:
    class Unordered(InMemoryVectorStore):
        capabilities = frozenset()

    index = await filled(3, Unordered())
    with pytest.raises(VectorError, match="Unordered cannot be read in order"):
        await anext(index.list_docs())


async def test_documents_are_counted_and_deleted_by_filter() -> None:
    index = await filled(10)

    assert await index.count() == 10
    assert await index.count(filter={"n": {"$lt": 4}}) == 4
    assert await index.delete(filter={"n": {"$lt": 4}}) == 4
    assert await index.delete(["n0009", "n0001"], filter={"n": 9}) == 1
    assert await index.count() == 5
    with pytest.raises(ValueError, match="EVERYTHING"):
        await index.delete()


async def test_many_queries_are_embedded_at_once_and_found_one_by_one() -> None:
    index = await filled(10)
    calls = list[int]()
    embed = index.embedder.embed

    class Counted(Numbers):
        async def embed(
            self, texts: Sequence[str], *, purpose: Purpose = "document"
        ) -> NDArray[np.float32]:
            calls.append(len(texts))
            return await embed(texts, purpose=purpose)

    index.embedder = Counted()
    queries = ["0", "3", "7"]
    found = await index.search_many(queries, 2, filter={"n": {"$gte": 1}})
    assert calls == [3]
    assert found == [await index.search(one, 2, filter={"n": {"$gte": 1}}) for one in queries]
    assert await index.search_many([]) == []
    wrong: Any = "one string"
    with pytest.raises(TypeError, match="wrap it in a list"):
        await index.search_many(wrong)


async def test_a_vector_is_searched_for_without_an_embedder() -> None:
    index = await filled(10)
    (vector,) = await index.embedder.embed(["3"], purpose="query")

    found = await index.search("3", 4)
    assert await index.search_by_vector(vector, 4) == found
    assert (
        await index.search_by_vector(vector, 2, filter=lambda doc: doc.id != found[0].id)
        == (found[1:3])
    )


async def test_hybrid_search_fuses_words_with_nearness() -> None:
    store = InMemoryVectorStore()
    index = EmbeddingIndex(store, embedder := LSAEmbedder(4), hybrid=True)
    docs = [Doc("cat", "a cat sleeps"), Doc("dog", "a dog barks"), Doc("car", "a car drives")]
    await embedder.fit([doc.text for doc in docs])
    await index.add(docs)

    hits = await index.search("dog barking")

    assert hits[0] == Hit(docs[1], 2 / 61, "rrf", higher_is_better=True)
    assert {hit.metric for hit in hits} == {"rrf"}
    assert {hit.metric for hit in await index.search("dog", hybrid=False)} == {"cosine"}


async def test_the_search_may_differ_from_the_setting_of_the_index() -> None:
    index = await filled(3)

    metrics = [
        {hit.metric for hit in await index.search("1", hybrid=hybrid)}
        for hybrid in (None, False, True, "auto")
    ]

    assert metrics == [{"cosine"}, {"cosine"}, {"rrf"}, {"rrf"}]


async def test_hybrid_search_of_a_store_without_it_is_an_error_unless_auto() -> None:
    index = await filled(3, cast(VectorStore, DenseStore()))

    hits = await index.search("1", 1, hybrid="auto")
    with pytest.raises(HybridUnavailable) as refused:
        await index.search("1", hybrid=True)

    assert [(hit.id, hit.metric) for hit in hits] == [("n0001", "cosine")]
    assert refused.value.store == "DenseStore"


async def test_a_view_without_hybrid_search_is_named_as_users_know_it() -> None:
    view = TenantVectorStore(cast(VectorStore, DenseStore()), "acme")
    embedder = Numbers()
    index = EmbeddingIndex(view, embedder)

    with pytest.raises(HybridUnavailable) as refused:
        await index.search("1", hybrid=True)
    assert refused.value.store == "TenantVectorStore"
    assert embedder.calls == []  # refused before an embedding is paid for


async def test_a_namespace_keeps_indexes_of_one_store_apart() -> None:
    store = InMemoryVectorStore()
    one = EmbeddingIndex(store, Numbers(), namespace="one")
    two = EmbeddingIndex(store, Numbers(), namespace="two")
    await one.add(numbers(2))
    await two.add(numbers(2, start=5))

    await one.delete(["n0000", "n0005", "unknown"])

    assert ids(await one.search("0")) == ["n0001"]
    assert ids(await two.search("0")) == ["n0005", "n0006"]
    assert await two.get(["n0006", "n0001", "n0005"]) == [
        Doc("n0006", "6", {"n": 6}),
        Doc("n0005", "5", {"n": 5}),
    ]


async def test_documents_are_embedded_in_batches_and_the_last_of_an_id_counts() -> None:
    index = EmbeddingIndex(InMemoryVectorStore(), embedder := Numbers())

    await index.add((doc for doc in [*numbers(4), Doc("n0000", "9")]), batch_size=2)
    await index.add([])

    assert embedder.calls == [
        (["0", "1"], "document"),
        (["2", "3"], "document"),
        (["9"], "document"),
    ]
    assert (await index.search("9", 1))[0].doc == Doc("n0000", "9")
    assert embedder.calls[-1] == (["9"], "query")


async def test_searches_at_once_do_not_disturb_each_other() -> None:
    index = await filled(200)
    plain = [index.search(str(n), 1) for n in range(0, 200, 20)]
    picky = [
        index.search("0", 1, filter=partial(has_number, n=n), hybrid=n % 40 == 0)
        for n in range(0, 200, 20)
    ]

    found = await asyncio.gather(*plain, *picky)

    assert [ids(hits) for hits in found] == [[f"n{n:04}"] for n in range(0, 200, 20)] * 2


def has_number(doc: Doc, n: int) -> bool:
    return doc.meta["n"] == n


async def answers_later(doc: Doc) -> bool:
    return True


class AnswersLater:
    async def __call__(self, doc: Doc) -> bool:
        return True


def hands_on(doc: Doc) -> Any:
    return answers_later(doc)


@pytest.mark.parametrize(
    "predicate", [answers_later, AnswersLater(), partial(answers_later), hands_on]
)
async def test_an_async_predicate_is_refused(predicate: Any) -> None:
    index = await filled(3)

    with pytest.raises(TypeError, match="has to be awaited"):
        await index.search("1", filter=predicate)


class Promise:
    def __await__(self) -> Any:
        raise NotImplementedError


async def test_a_predicate_that_answers_with_a_promise_is_refused() -> None:
    index = await filled(3)

    with pytest.raises(TypeError, match="has to be awaited"):
        await index.search("1", filter=lambda _: Promise())  # type: ignore[arg-type, return-value] - what is tested


async def test_bad_arguments_are_refused_before_anything_is_embedded() -> None:
    index = EmbeddingIndex(InMemoryVectorStore(), embedder := Numbers())
    wrong: Any = "sometimes"

    with pytest.raises(ValueError, match="got 0"):
        await index.search("1", 0)
    with pytest.raises(ValueError, match="got 'sometimes'"):
        await index.search("1", hybrid=wrong)
    with pytest.raises(InvalidFilter):
        await index.search("1", filter={"n": {"$near": 1}})
    with pytest.raises(TypeError, match="got str"):
        await index.search("1", filter=wrong)
    with pytest.raises(ValueError, match="batch_size is 0"):
        await index.add(numbers(1), batch_size=0)

    assert embedder.calls == []


def test_bad_settings_are_refused_at_once() -> None:
    store = InMemoryVectorStore()
    wrong: Any = "sometimes"
    with pytest.raises(ValueError, match="max_overfetch is 0"):
        EmbeddingIndex(store, Numbers(), max_overfetch=0)
    with pytest.raises(ValueError, match="hybrid is True, False or 'auto'"):
        EmbeddingIndex(store, Numbers(), hybrid=wrong)


class Forgetful(Numbers):
    async def embed(
        self, texts: Sequence[str], *, purpose: Purpose = "document"
    ) -> NDArray[np.float32]:
        return (await super().embed(texts, purpose=purpose))[1:]


async def test_an_embedder_that_loses_texts_is_an_error() -> None:
    index = EmbeddingIndex(InMemoryVectorStore(), Forgetful())

    with pytest.raises(VectorError, match="1 vectors for 2 texts"):
        await index.add(numbers(2))
