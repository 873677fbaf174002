"""Shared parts of the tests of vector stores."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lib.testing.aio import run
from lib.vector import F, Filter, Match, Metric, Record, VectorStore
from lib.vector.contract import Capability, capabilities
from lib.vector.filter import fold
from lib.vector.filter.refusals import Refusal, declared_refusals, features

METRICS: tuple[Metric, ...] = ("cosine", "dot", "euclidean")


@contextmanager
def case(name: object) -> Generator[None]:
    """Name the case of a loop in what fails in it."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {name!r}")
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """A vector store to test; what it can do beyond the protocol, it declares itself.

    Attributes:
        open: makes a store object, not set up yet, for a directory, a dimension and a metric.
        hybrid: whether it has to have `query_hybrid`; None asks the store's `capabilities`.
        refuses: which filters it has to refuse; None asks the store's `refusals`.
        shared: whether several objects for one directory hold the same, at the same time.
        bm25: whether hybrid queries rank words by BM25 to the last bit, as the reference does.
        parts: whether words find a part of a text that is written without spaces, as Chinese is.
        examples: how many random sequences of operations are tried at most, where a store is slow;
            None leaves it to the test.
    """

    open: Callable[[Path, int, Metric], VectorStore]
    hybrid: bool | None = None
    refuses: frozenset[Refusal] | None = None
    shared: bool = False
    bm25: bool = True
    parts: bool = True
    examples: int | None = None

    def can(self, store: object, capability: Capability) -> bool:
        """Return whether the store has this capability, as it declares."""
        if capability == "hybrid" and self.hybrid is not None:
            return self.hybrid
        return capability in capabilities(store)

    def takes(self, store: object, filter: Filter) -> bool:
        """Return whether the store can express the filter, as it declares."""
        refused = declared_refusals(store) if self.refuses is None else self.refuses
        folded = fold(filter)
        return isinstance(folded, bool) or not features(folded) & refused

    def takes_equality(self, store: object) -> bool:
        """Return whether the store can compare a field with a value."""
        return self.takes(store, F("x") == 1)

    def at_most(self, max_examples: int) -> int:
        """Return how many random sequences of operations to try, of so many that a test asks."""
        return max_examples if self.examples is None else min(max_examples, self.examples)


@dataclass(frozen=True, slots=True)
class Using:
    """Runs the body of a test with a store."""

    kind: StoreKind
    place: Path

    def __call__(
        self,
        body: Callable[[Any], Coroutine[Any, Any, None]],
        *,
        dimension: int = 2,
        metric: Metric = "cosine",
    ) -> None:
        """Run the body with one store."""

        async def main() -> None:
            async with self.opened(dimension=dimension, metric=metric) as store:
                await body(store)

        run(main())

    @asynccontextmanager
    async def opened(
        self, *, dimension: int = 2, metric: Metric = "cosine"
    ) -> AsyncGenerator[VectorStore]:
        """Set up a store object for this directory."""
        store = self.kind.open(self.place, dimension, metric)
        await store.setup()
        try:
            yield store
        finally:
            await store.close()


class StoreTests:
    """The fixtures of the contract's parts."""

    @pytest.fixture
    def kind(self) -> StoreKind:
        """Return the store to test; override it."""
        raise NotImplementedError

    @pytest.fixture
    def using(self, kind: StoreKind, tmp_path: Path) -> Using:
        """Return what runs the body of a test."""
        return Using(kind, tmp_path)


def ids(found: Iterable[Match | Record]) -> list[str]:
    """Return the ids of what was found."""
    return [one.id for one in found]


def points(*names: str, **meta: Any) -> list[Record]:
    """Return records that are named, and all alike."""
    return [Record(name, [1.0, 0.0], "", dict(meta)) for name in names]
