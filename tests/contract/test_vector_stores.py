"""Every vector store keeps the contract; a new one is one more line of the table."""

import pytest

from lib.testing.vector_store import StoreKind, VectorStoreContract, check_against_memory
from lib.vector import InMemoryVectorStore, SQLiteVectorStore

VECTOR_STORES = {
    "memory": StoreKind(open=lambda _, dimension, metric: InMemoryVectorStore(dimension, metric)),
    "sqlite": StoreKind(
        open=lambda place, dimension, metric: SQLiteVectorStore(
            place / "vectors.db", dimension=dimension, metric=metric
        ),
        shared=True,
        parts=False,
    ),
    "sqlite in memory": StoreKind(
        open=lambda _, dimension, metric: SQLiteVectorStore(dimension=dimension, metric=metric),
        parts=False,
    ),
}


@pytest.fixture(params=VECTOR_STORES.values(), ids=list(VECTOR_STORES))
def each_kind(request: pytest.FixtureRequest) -> StoreKind:
    return request.param


class TestVectorStores(VectorStoreContract):
    @pytest.fixture
    def kind(self, each_kind: StoreKind) -> StoreKind:
        return each_kind

    def test_it_answers_as_the_memory_store_does(self, kind: StoreKind) -> None:
        check_against_memory(kind, max_examples=30)
