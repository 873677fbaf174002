"""A vector store held against the in-memory store, over random sequences of operations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, cast

from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lib.errors import VectorError
from lib.testing.vector_store.cases import random_filter, random_meta
from lib.testing.vector_store.kit import StoreKind
from lib.vector import Filter, InMemoryVectorStore, Record, VectorStore
from lib.vector.contract import declared_fusions

randoms: st.SearchStrategy[Random] = st.randoms(use_true_random=False)
namespaces: st.SearchStrategy[str | None] = st.sampled_from([None, "", "t", "t:x", "ü"])
names: st.SearchStrategy[str] = st.sampled_from(
    ["a", "b", "ab", "c", "d", "ä", "10", "9", "\U0001f600", "\uffff"]
)
# Small whole numbers, whose products and sums every machine computes alike: ties stay ties.
vectors: st.SearchStrategy[list[int]] = st.lists(st.integers(-3, 3), min_size=3, max_size=3)
texts: st.SearchStrategy[str] = st.lists(
    st.sampled_from(["apple", "pear", "plum", "Apples", "é"]), max_size=5
).map(" ".join)
records: st.SearchStrategy[Record] = st.builds(
    Record, names, vectors, texts, randoms.map(random_meta)
)
counts: st.SearchStrategy[int] = st.integers(1, 12)
_TRIES = 20


def check_against_memory(kind: StoreKind, *, max_examples: int = 50) -> None:
    """Fail if the store ever answers something else than `InMemoryVectorStore` does.

    Args:
        kind: the store.
        max_examples: how many sequences of operations to try; `kind.examples` may make it fewer.
    """

    class Machine(_Agreement):
        """The machine of this kind of store."""

        store_kind = kind

    examples = kind.at_most(max_examples)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


class _Agreement(RuleBasedStateMachine):
    """Does everything twice, and compares."""

    store_kind: StoreKind

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._place = TemporaryDirectory()
        self._memory: Any = InMemoryVectorStore(3, "dot")
        self._store: Any = self._opened()
        bm25, can = self.store_kind.bm25, self.store_kind.can
        self.compares_hybrid = bm25 and can(self._store, "hybrid")
        self.inserts, self.updates = can(self._store, "insert"), can(self._store, "update")
        self.batches = can(self._store, "batch")
        self.scans = can(self._store, "scan")
        self.compares_keywords = bm25 and can(self._store, "keywords")

    def _opened(self) -> VectorStore:
        store = self.store_kind.open(Path(self._place.name), 3, "dot")
        self._runner.run(store.setup())
        return store

    def teardown(self) -> None:
        """Close everything."""
        self._runner.run(self._store.close())
        self._runner.close()
        self._place.cleanup()

    def _both(self, call: Callable[[Any], Awaitable[Any]]) -> None:
        """Compare what both stores answer, or the errors that both raise."""
        expected, answer = (
            self._runner.run(_outcome(call, store)) for store in (self._memory, self._store)
        )
        assert answer == expected

    def _filter(self, random: Random) -> Filter | None:
        return self._supported(random) if random.random() < 0.7 else None

    def _supported(self, random: Random) -> Filter:
        """Return a filter that the store takes: where it refuses much, at the second try or so."""
        filters = (random_filter(random, depth=1) for _ in range(_TRIES))
        taken = (one for one in filters if self.store_kind.takes(self._store, one))
        found = next(taken, None)
        assume(found is not None)
        return cast(Filter, found)

    @rule(batch=st.lists(records, min_size=1, max_size=8), namespace=namespaces)
    def upsert(self, batch: list[Record], namespace: str | None) -> None:
        """Insert and replace."""
        self._both(lambda store: store.upsert(batch, namespace=namespace))

    @precondition(lambda self: self.inserts)
    @rule(batch=st.lists(records, max_size=8), namespace=namespaces)
    def insert(self, batch: list[Record], namespace: str | None) -> None:
        """Insert what is not there."""
        self._both(lambda store: store.insert(batch, namespace=namespace))

    @precondition(lambda self: self.updates)
    @rule(random=randoms, some=st.lists(names, max_size=4), namespace=namespaces)
    def update_meta(self, random: Random, some: list[str], namespace: str | None) -> None:
        """Change metadata of some records, by id, by filter, or by both."""
        changes, filter = random_meta(random), self._filter(random)
        chosen = some if filter is None or random.random() < 0.5 else None
        self._both(
            lambda store: store.update_meta(changes, ids=chosen, filter=filter, namespace=namespace)
        )

    @rule(batch=st.lists(records, max_size=3), namespace=namespaces)
    def upsert_what_does_not_fit(self, batch: list[Record], namespace: str | None) -> None:
        """Be refused."""
        wrong = Record("wrong", [1.0, 2.0])
        self._both(lambda store: store.upsert([*batch, wrong], namespace=namespace))

    @rule(gone=st.lists(names, max_size=4), namespace=namespaces)
    def delete_some(self, gone: list[str], namespace: str | None) -> None:
        """Delete by id."""
        self._both(lambda store: store.delete(gone, namespace=namespace))

    @rule(random=randoms, namespace=namespaces)
    def delete_matching(self, random: Random, namespace: str | None) -> None:
        """Delete by filter."""
        filter = self._supported(random)
        self._both(lambda store: store.delete(filter=filter, namespace=namespace))

    @rule(vector=vectors, k=counts, random=randoms, namespace=namespaces)
    def query(self, vector: list[int], k: int, random: Random, namespace: str | None) -> None:
        """Search by vector."""
        filter = self._filter(random)
        self._both(
            lambda store: store.query(
                vector,
                k,
                filter=filter,
                namespace=namespace,
                include_vectors=k % 2 == 0,
                score_threshold=None if k % 3 else k - 6,
            )
        )

    @precondition(lambda self: self.batches)
    @rule(many=st.lists(vectors, max_size=4), k=counts, random=randoms, namespace=namespaces)
    def query_many(
        self, many: list[list[int]], k: int, random: Random, namespace: str | None
    ) -> None:
        """Search by many vectors."""
        filter = self._filter(random)
        self._both(lambda store: store.query_many(many, k, filter=filter, namespace=namespace))

    @precondition(lambda self: self.compares_hybrid)
    @rule(vector=vectors, text=texts, k=counts, random=randoms, namespace=namespaces)
    def query_hybrid(
        self, vector: list[int], text: str, k: int, random: Random, namespace: str | None
    ) -> None:
        """Search by vector and words."""
        filter = self._filter(random)
        fusion = random.choice(sorted(declared_fusions(self._store) - {"weights"}))
        self._both(
            lambda store: store.query_hybrid(
                vector, text, k, filter=filter, namespace=namespace, fusion=fusion
            )
        )

    @precondition(lambda self: self.compares_keywords)
    @rule(text=texts, k=counts, random=randoms, namespace=namespaces)
    def query_keywords(self, text: str, k: int, random: Random, namespace: str | None) -> None:
        """Search by words."""
        filter = self._filter(random)
        self._both(lambda store: store.query_keywords(text, k, filter=filter, namespace=namespace))

    @precondition(lambda self: self.scans)
    @rule(limit=counts, after=names, random=randoms, namespace=namespaces)
    def scan(self, limit: int, after: str, random: Random, namespace: str | None) -> None:
        """Read a page."""
        filter = self._filter(random)
        start = after if random.random() < 0.5 else None
        self._both(
            lambda store: store.scan(filter=filter, after=start, limit=limit, namespace=namespace)
        )

    @rule(wanted=st.lists(names, max_size=6), namespace=namespaces)
    def get(self, wanted: list[str], namespace: str | None) -> None:
        """Get by id."""
        self._both(lambda store: store.get(wanted, namespace=namespace))

    @rule(random=randoms, namespace=namespaces)
    def count(self, random: Random, namespace: str | None) -> None:
        """Count what passes a filter."""
        filter = self._filter(random)
        self._both(lambda store: store.count(filter=filter, namespace=namespace))

    @precondition(lambda self: self.store_kind.shared)
    @rule()
    def change_hands(self) -> None:
        """Go on with another store object for the same place."""
        successor = self._opened()
        self._runner.run(self._store.close())
        self._store = successor

    @invariant()
    def hold_the_same(self) -> None:
        """Compare the namespaces."""
        self._both(lambda store: store.namespaces())


async def _outcome(call: Callable[[Any], Awaitable[Any]], store: Any) -> Any:
    try:
        return await call(store)
    except VectorError as error:
        return type(error), str(error)
