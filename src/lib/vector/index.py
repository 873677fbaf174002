"""Search by text: an embedder and a store behind a few calls."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal, TypeAlias, cast

import numpy as np

from lib._util.operations import MAX_DOCUMENTS, MAX_QUERY_CHARS, model_of, operation
from lib.errors import HybridUnavailable, VectorError
from lib.vector.contract import (
    Capability,
    Embedder,
    FilterLike,
    HybridStore,
    KeywordStore,
    Purpose,
    VectorStore,
    capabilities,
    checked_fusion,
    is_hybrid,
    is_scannable,
    is_searchable_by_keywords,
    method_of,
    query_hybrid,
)
from lib.vector.diversity import marginal_relevance
from lib.vector.filter import Field, Filter
from lib.vector.offload import offload
from lib.vector.ordering import good_enough, listed
from lib.vector.records import Doc, Facet, Hit, Match, Record, Vector
from lib.vector.text.fusion import Fusion, FusionLike, fusion_of
from lib.vector.validate import checked_k, checked_threshold

Hybrid: TypeAlias = bool | Literal["auto"]
Predicate: TypeAlias = Callable[[Doc], bool]

_GROWTH: Final = 4  # candidates for each wanted hit of a predicate search, then of the last fetch
_READ_EFFORT: Final = 75  # of a float in a list, in floats read
_ASYNC_PREDICATE: Final = "a predicate answers at once, this one has to be awaited: await it before"


class EmbeddingIndex:
    """Embeds documents into a store, and finds them by a question.

    Holds no state but what it was built with: searches may run at once, and several indexes may
    share a store, each with a namespace of its own.

    Attributes:
        store: where the vectors are kept; the caller sets it up and closes it.
        embedder: what makes vectors of texts.
        namespace: the partition that every call stays in.
        max_overfetch: how many candidates a predicate search looks at, at most, whatever k is.
        hybrid: True if searches fuse keyword relevance with nearness unless they say otherwise;
            "auto" does where the store can.
        fusion: how they do unless they say otherwise.
    """

    def __init__(
        self,
        store: VectorStore,
        embedder: Embedder,
        *,
        namespace: str | None = None,
        max_overfetch: int = 1000,
        hybrid: Hybrid = False,
        fusion: FusionLike = "rrf",
    ) -> None:
        """Put an embedder in front of a store.

        Raises:
            ValueError: `max_overfetch` is below 1, `hybrid` is none of the three words, or `fusion`
                is not a fusion.
        """
        if max_overfetch < 1:
            raise ValueError(f"max_overfetch is {max_overfetch}, it has to be at least 1")
        self.store = store
        self.embedder = embedder
        self.namespace = namespace
        self.max_overfetch = max_overfetch
        self.hybrid: Hybrid = _checked_hybrid(hybrid)
        self.fusion: Fusion = fusion_of(fusion)

    async def add(self, docs: Iterable[Doc], *, batch_size: int = 256) -> None:
        """Embed the documents and store them, each replacing what its id held.

        Batches are stored one after the other, each as a whole: when one fails, those before it
        stay. Safe to repeat.

        Args:
            docs: taken one batch at a time, so that a generator is never held as a whole.
            batch_size: how many are embedded and stored at once.

        Raises:
            ValueError: `batch_size` is below 1.
            VectorError: the store refuses a vector, an id or metadata.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, it has to be at least 1")
        for batch in _batches(docs, batch_size):
            await self.store.upsert(await self._records(batch), namespace=self.namespace)

    async def _records(self, docs: list[Doc]) -> list[Record]:
        """Return documents with their vectors."""
        if not docs:
            return []
        vectors = await self._embed([doc.text for doc in docs], "document")
        return [
            Record(doc.id, vector, doc.text, doc.meta)
            for doc, vector in zip(docs, vectors, strict=True)
        ]

    async def insert(self, docs: Iterable[Doc], *, batch_size: int = 256) -> int:
        """Embed and store the documents whose ids are not there; leave those that are.

        Nothing is embedded that is there already. Batches are stored one after the other, each as
        a whole: when one fails, those before it stay.

        Args:
            docs: taken one batch at a time, so that a generator is never held as a whole.
            batch_size: how many are embedded and stored at once.

        Returns:
            How many were inserted.

        Raises:
            ValueError: `batch_size` is below 1.
            VectorError: the store has no `insert`, or refuses a vector, an id or metadata.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, it has to be at least 1")
        store = self._capable("insert")
        inserted = 0
        for batch in _batches(docs, batch_size):
            there = await store.get([doc.id for doc in batch], namespace=self.namespace)
            new = await self._records(_absent(batch, there))
            inserted += await store.insert(new, namespace=self.namespace) if new else 0
        return inserted

    async def update_meta(
        self,
        meta: Mapping[str, Any],
        *,
        ids: Sequence[str] | None = None,
        filter: FilterLike = None,
    ) -> int:
        """Merge fields into the metadata of documents by id, by filter, or both.

        Nothing is embedded. A field that a document has is replaced as a whole, others stay.

        Returns:
            How many documents there were.

        Raises:
            ValueError: there are neither ids nor a filter; `EVERYTHING` is all documents.
            VectorError: the store has no `update_meta`, or refuses the fields.
        """
        store = self._capable("update")
        return await store.update_meta(meta, ids=ids, filter=filter, namespace=self.namespace)

    def _capable(self, capability: Capability) -> Any:
        """Return the store, which can do this."""
        if capability not in capabilities(self.store):
            name = _public_name(type(self.store))
            raise VectorError(f"{name} has no {method_of(capability)}()")
        return self.store

    async def get(self, ids: Sequence[str]) -> list[Doc]:
        """Return the documents of these ids, in their order; unknown ones are left out."""
        records = await self.store.get(ids, namespace=self.namespace)
        return [Doc(record.id, record.text, record.meta) for record in records]

    async def facet(self, field: Field, *, filter: FilterLike = None, limit: int = 100) -> Facet:
        """Return the values of a metadata field among the documents that pass, with their counts.

        Raises:
            ValueError: the limit is below 1.
            VectorError: the store has no `facet`.
        """
        store = self._capable("facet")
        return await store.facet(field, filter=filter, limit=limit, namespace=self.namespace)

    async def list_docs(
        self, *, filter: FilterLike = None, after: str | None = None, batch_size: int = 1000
    ) -> AsyncGenerator[Doc]:
        """Yield the documents that pass the filter, in the order of their ids.

        Args:
            filter: what their metadata has to pass; a store evaluates it.
            after: an id, as that of the last document that was read; None starts with the first.
            batch_size: how many are read at once, 1 to 10,000.

        Raises:
            VectorError: the store cannot be read in order.
        """
        if not is_scannable(self.store):
            name = _public_name(type(self.store))
            raise VectorError(f"{name} cannot be read in order: it has no scan()")
        records = listed(
            self.store,
            filter=filter,
            after=after,
            batch_size=batch_size,
            namespace=self.namespace,
        )
        async with aclosing(records):
            async for record in records:
                yield Doc(record.id, record.text, record.meta)

    async def delete(self, ids: Sequence[str] | None = None, *, filter: FilterLike = None) -> int:
        """Forget documents by id, by filter, or those that meet both; return how many there were.

        Raises:
            ValueError: there are neither ids nor a filter; `EVERYTHING` empties the namespace.
        """
        return await self.store.delete(ids, filter=filter, namespace=self.namespace)

    async def count(self, *, filter: FilterLike = None) -> int:
        """Return how many documents pass the filter."""
        return await self.store.count(filter=filter, namespace=self.namespace)

    async def search(
        self,
        query: str,
        k: int = 5,
        *,
        filter: Predicate | FilterLike = None,
        hybrid: Hybrid | None = None,
        score_threshold: float | None = None,
        fusion: FusionLike | None = None,
        diversity: float | None = None,
    ) -> list[Hit]:
        """Return the k best documents for the query, best first.

        Fewer only where fewer pass the filter, or where a predicate let fewer than k of the
        first `max_overfetch` candidates pass.

        Args:
            query: what is looked for.
            k: how many hits are wanted.
            filter: a `Filter` or a mapping is evaluated by the store. A function of a `Doc`
                cannot be: more and more candidates are fetched until k of them pass.
            hybrid: True fuses keyword relevance with nearness; "auto" does so where the store can;
                None is the setting of the index.
            score_threshold: the least similarity that a hit may have, or under `euclidean` the
                largest distance. Fused scores are neither: it takes `hybrid=False`.
            fusion: how a hybrid search fuses, `rrf`, `convex`, `adaptive` or a `Fusion` with
                weights; each hit says it as its `metric`. None is the setting of the index.
            diversity: 0 to 1 picks hits that are not all alike from four times as many, each by
                its similarity to the query less `diversity` times what it has in common with
                those before it (maximal marginal relevance); hits stand in the order in which
                they were picked. None takes the nearest. It takes `hybrid=False`, too.

        Raises:
            ValueError: k is below 1, `hybrid` or `fusion` is not one of its words, there is a
                threshold or a diversity for a hybrid search, or the diversity is not from 0 to 1.
            TypeError: `filter` is of another type, or a predicate that has to be awaited.
            InvalidFilter: the mapping is not in the filter language.
            UnsupportedFilter: the store cannot say this filter exactly.
            HybridUnavailable: hybrid search was demanded of a store that has none.
            UnsupportedFusion: the store cannot fuse so.
        """
        k = checked_k(k)
        with self._retrieval(k, query) as facts:
            (hits,) = await self._many(
                [query],
                k,
                filter,
                hybrid,
                score_threshold=score_threshold,
                fusion=fusion,
                diversity=diversity,
            )
            facts |= {"count": len(hits), "documents": _ranked(hits)}
            return hits

    async def search_many(
        self,
        queries: Sequence[str],
        k: int = 5,
        *,
        filter: Predicate | FilterLike = None,
        hybrid: Hybrid | None = None,
        score_threshold: float | None = None,
        fusion: FusionLike | None = None,
        diversity: float | None = None,
    ) -> list[list[Hit]]:
        """Return what `search` finds for each query, in their order; they are embedded at once.

        Raises:
            TypeError: `queries` is one string, or as `search`, which raises the other errors, too.
        """
        if isinstance(queries, str):
            raise TypeError("queries are a list of strings, got one string: wrap it in a list")
        k = checked_k(k)
        with self._retrieval(k) as facts:
            found = await self._many(
                queries,
                k,
                filter,
                hybrid,
                score_threshold=score_threshold,
                fusion=fusion,
                diversity=diversity,
            )
            facts["count"] = sum(map(len, found))
            return found

    async def _many(
        self,
        queries: Sequence[str],
        k: int,
        filter: Predicate | FilterLike,
        hybrid: Hybrid | None,
        *,
        score_threshold: float | None,
        fusion: FusionLike | None,
        diversity: float | None,
    ) -> list[list[Hit]]:
        wanted = self.hybrid if hybrid is None else _checked_hybrid(hybrid)
        fused = self.fusion if fusion is None else fusion_of(fusion)
        worst, diverse = checked_threshold(score_threshold), _checked_diversity(diversity)
        for name, value in (("score_threshold", worst), ("diversity", diverse)):
            if wanted and value is not None:
                raise ValueError(f"{name} reads similarities, not fused ranks: hybrid=False")
        predicate, condition = _split_filter(filter)
        if wanted is True or (wanted and is_hybrid(self.store)):
            checked_fusion(_fusing(self.store), fused)  # before an embedding is paid for
        vectors = await self._embed(list(queries), "query") if queries else []
        return [
            await self._found(
                _Fetch(self.store, self.namespace, vector, query, condition, wanted, worst, fused),
                predicate,
                k,
                diverse,
            )
            for vector, query in zip(vectors, queries, strict=True)
        ]

    async def search_by_vector(
        self,
        vector: Vector,
        k: int = 5,
        *,
        filter: Predicate | FilterLike = None,
        score_threshold: float | None = None,
        diversity: float | None = None,
    ) -> list[Hit]:
        """Return the k documents nearest to a vector, best first; nothing is embedded.

        Args:
            vector: as many numbers as the store's vectors have.
            k: how many hits are wanted.
            filter: as in `search`.
            score_threshold: as in `search`.
            diversity: as in `search`.

        Raises:
            ValueError: k is below 1, the threshold no number, or the diversity not from 0 to 1.
            DimensionMismatch: the vector has another length.
            InvalidVector: it has no place in the metric.
        """
        k = checked_k(k)
        predicate, condition = _split_filter(filter)
        worst, diverse = checked_threshold(score_threshold), _checked_diversity(diversity)
        hybrid: Hybrid = False
        fetch = _Fetch(
            self.store, self.namespace, vector, "", condition, hybrid, worst, self.fusion
        )
        with self._retrieval(k) as facts:
            hits = await self._found(fetch, predicate, k, diverse)
            facts |= {"count": len(hits), "documents": _ranked(hits)}
            return hits

    async def search_by_keywords(
        self,
        query: str,
        k: int = 5,
        *,
        filter: Predicate | FilterLike = None,
    ) -> list[Hit]:
        """Return the k documents most relevant to the words of the query, best first.

        Nothing is embedded. A query without words finds nothing; each hit says
        `metric="keywords"`.

        Args:
            query: any of its words may stand in a document.
            k: how many hits are wanted.
            filter: as in `search`.

        Raises:
            ValueError: k is below 1.
            HybridUnavailable: the store has no search by keywords.
        """
        k = checked_k(k)
        predicate, condition = _split_filter(filter)
        if not is_searchable_by_keywords(self.store):
            raise HybridUnavailable(_public_name(type(self.store)), "search with search()")
        fetch = _WordFetch(self.store, self.namespace, query, condition)
        with self._retrieval(k, query) as facts:
            hits = await self._passing(fetch, predicate, k)
            facts |= {"count": len(hits), "documents": _ranked(hits)}
            return hits

    def _retrieval(
        self, k: int, query: str | None = None
    ) -> AbstractContextManager[dict[str, Any]]:
        """Note a search for the trace of the tool that makes it, if one does."""
        shown = None if query is None else query[:MAX_QUERY_CHARS]
        return operation("retriever", source=self.namespace, k=k, query=shown)

    async def _found(
        self, fetch: _Fetch, predicate: Predicate | None, k: int, diversity: float | None
    ) -> list[Hit]:
        if diversity is None:
            return await self._passing(fetch, predicate, k)
        hits = await self._passing(fetch, predicate, _GROWTH * k)
        stored = await self.store.get([hit.id for hit in hits], namespace=self.namespace)
        vectors = {record.id: record.vector for record in stored}
        there = [hit for hit in hits if hit.id in vectors]  # else it was deleted meanwhile
        if not there:
            return []
        query = np.array(list(fetch.vector), np.float32)

        def picked() -> list[Hit]:
            matrix = np.array([vectors[hit.id] for hit in there], np.float32)
            return [there[row] for row in marginal_relevance(query, matrix, k, diversity)]

        effort = len(there) * len(query) * (k + _READ_EFFORT)
        return await offload(effort, picked)

    async def _passing(
        self, fetch: _Fetch | _WordFetch, predicate: Predicate | None, k: int
    ) -> list[Hit]:
        if predicate is None:
            return await fetch.hits(k)
        bound = self.max_overfetch
        size = min(bound, _GROWTH * k)
        while True:
            hits = await fetch.hits(size)
            passed = [hit for hit in hits if _passes(predicate, hit.doc)]
            if len(passed) >= k or len(hits) < size or size == bound:
                return passed[:k]
            size = min(bound, _GROWTH * size)

    async def _embed(self, texts: list[str], purpose: Purpose) -> list[Vector]:
        with operation("embedding", model=model_of(self.embedder), count=len(texts)) as facts:
            vectors = await self.embedder.embed(texts, purpose=purpose)
            facts["dimensions"] = len(vectors[0]) if len(vectors) else None
        if len(vectors) != len(texts):
            raise VectorError(f"the embedder gave {len(vectors)} vectors for {len(texts)} texts")
        return list(vectors)


@dataclass(frozen=True, slots=True)
class _Fetch:
    """One search, repeated for more and more candidates."""

    store: VectorStore
    namespace: str | None
    vector: Vector
    text: str
    condition: Filter | None
    hybrid: Hybrid
    threshold: float | None
    fusion: Fusion

    async def hits(self, size: int) -> list[Hit]:
        if self.hybrid:
            try:
                return await self._fused(size)
            except HybridUnavailable:
                if self.hybrid != "auto":
                    raise
        matches = await self.store.query(
            self.vector, size, filter=self.condition, namespace=self.namespace
        )
        metric, higher = self.store.metric, self.store.higher_is_better
        hits = [Hit(_doc(match), match.score, metric, higher) for match in matches]
        return good_enough(hits, self.threshold, higher_is_better=higher)

    async def _fused(self, size: int) -> list[Hit]:
        matches = await query_hybrid(
            _fusing(self.store),
            self.vector,
            self.text,
            size,
            filter=self.condition,
            namespace=self.namespace,
            fusion=self.fusion,
        )
        return [Hit(_doc(match), match.score, self.fusion.method) for match in matches]


@dataclass(frozen=True, slots=True)
class _WordFetch:
    """One search by words, repeated for more and more candidates."""

    store: KeywordStore
    namespace: str | None
    text: str
    condition: Filter | None

    async def hits(self, size: int) -> list[Hit]:
        matches = await self.store.query_keywords(
            self.text, size, filter=self.condition, namespace=self.namespace
        )
        return [Hit(_doc(match), match.score, "keywords") for match in matches]


def _fusing(store: VectorStore) -> HybridStore:
    if not is_hybrid(store):
        raise HybridUnavailable(_public_name(type(store)), "search with hybrid='auto'")
    return store


def _ranked(hits: Sequence[Hit]) -> list[dict[str, Any]]:
    """Return what a trace shows of hits: ids and scores of the best, no text."""
    return [{"id": hit.doc.id, "score": float(hit.score)} for hit in hits[:MAX_DOCUMENTS]]


def _doc(match: Match) -> Doc:
    return Doc(match.id, match.text, match.meta)


def _split_filter(
    filter: Predicate | FilterLike,
) -> tuple[Predicate | None, Filter | None]:
    """Return the predicate and the store's filter, at most one of which is there."""
    if filter is None or isinstance(filter, Filter):
        return None, filter
    if isinstance(filter, Mapping):
        return None, Filter.parse(cast(Mapping[Field, Any], filter))
    if not callable(filter):
        raise TypeError(f"filter is a Filter, a dict or a function, got {type(filter).__name__}")
    if inspect.iscoroutinefunction(filter) or inspect.iscoroutinefunction(
        getattr(filter, "__call__", None)  # noqa: B004 - an object whose calls are coroutines
    ):
        raise TypeError(_ASYNC_PREDICATE)
    return filter, None


def _passes(predicate: Predicate, doc: Doc) -> bool:
    verdict: object = predicate(doc)
    if inspect.iscoroutine(verdict):
        verdict.close()  # else Python warns that it was never awaited
    if inspect.isawaitable(verdict):
        raise TypeError(_ASYNC_PREDICATE)
    return bool(verdict)


def _checked_hybrid(hybrid: Hybrid) -> Hybrid:
    if hybrid not in (True, False, "auto"):
        raise ValueError(f"hybrid is True, False or 'auto', got {hybrid!r}")
    return hybrid


def _checked_diversity(diversity: float | None) -> float | None:
    if diversity is not None and not 0 <= diversity <= 1:
        raise ValueError(f"diversity is from 0 to 1, got {diversity!r}")
    return diversity


def _batches(docs: Iterable[Doc], size: int) -> Iterator[list[Doc]]:
    remaining = iter(docs)
    while batch := list(islice(remaining, size)):
        yield batch


def _absent(docs: Iterable[Doc], there: Iterable[Record]) -> list[Doc]:
    """Return the documents that are not there, the last one of each id."""
    ids = {record.id for record in there}
    return list({doc.id: doc for doc in docs if doc.id not in ids}.values())


def _public_name(kind: type) -> str:
    """Return the name under which a store's class, or what it is made from, can be imported."""
    return next(each.__name__ for each in kind.__mro__ if not each.__name__.startswith("_"))
