"""Every vector store keeps the contract; a new one is one more line of the table."""

import os
from hashlib import sha256
from pathlib import Path

import pytest

from fakes.pinecone_server import API_KEY, HurryingClock, PineconeServer
from lib.testing.vector_store import (
    StoreKind,
    VectorStoreContract,
    check_against_memory,
    check_tenants,
)
from lib.vector import (
    ChromaVectorStore,
    InMemoryVectorStore,
    LanceDBVectorStore,
    Metric,
    PineconeVectorStore,
    PostgresVectorStore,
    QdrantVectorStore,
    SQLiteVectorStore,
)
from servers import chroma, postgres

LONG = bool(os.environ.get("LIB_TEST_LONG"))


def in_a_table_of_its_own(place: Path, dimension: int, metric: Metric) -> PostgresVectorStore:
    """One database serves all tests of a process."""
    table = f"t{sha256(str(place).encode()).hexdigest()[:32]}"
    return PostgresVectorStore(postgres.url(), dimension=dimension, metric=metric, table=table)


def with_a_prefix_of_its_own(place: Path, dimension: int, metric: Metric) -> ChromaVectorStore:
    """All tests share a server; a place is a prefix of its collections' names."""
    host, port = chroma.chroma_server()
    prefix = sha256(str(place).encode()).hexdigest()[:16]
    return ChromaVectorStore(
        dimension=dimension, metric=metric, host=host, port=port, prefix=prefix
    )


PINECONE: dict[Path, PineconeServer] = {}


def in_an_index_of_its_own(place: Path, dimension: int, metric: Metric) -> PineconeVectorStore:
    """Open an index in the project of this place; those of earlier tests are dropped."""
    if place not in PINECONE and place.parent not in PINECONE:
        PINECONE.clear()
    if place not in PINECONE:
        PINECONE[place] = PineconeServer(lag=2)
    return PineconeVectorStore(
        dimension=dimension,
        metric=metric,
        api_key=API_KEY,
        index_name="test",
        create=True,
        client=PINECONE[place].client(),
        clock=HurryingClock(),
    )


VECTOR_STORES = {
    "memory": StoreKind(open=lambda _, dimension, metric: InMemoryVectorStore(dimension, metric)),
    "sqlite": StoreKind(
        open=lambda place, dimension, metric: SQLiteVectorStore(
            place / "vectors.db", dimension=dimension, metric=metric
        ),
        shared=True,
        parts=False,
    ),
    "sqlite beside memory": StoreKind(
        open=lambda place, dimension, metric: SQLiteVectorStore(
            place / "vectors.db",
            dimension=dimension,
            metric=metric,
            cache_bytes=0,
            scratch_dir=place,
        ),
        shared=True,
        parts=False,
    ),
    "sqlite in memory": StoreKind(
        open=lambda _, dimension, metric: SQLiteVectorStore(dimension=dimension, metric=metric),
        parts=False,
    ),
    "qdrant": StoreKind(
        open=lambda _, dimension, metric: QdrantVectorStore(
            dimension=dimension, metric=metric, location=":memory:"
        ),
    ),
    "lancedb": StoreKind(
        open=lambda place, dimension, metric: LanceDBVectorStore(
            place / "lancedb", dimension=dimension, metric=metric
        ),
        shared=True,
    ),
    "chroma": StoreKind(
        open=lambda place, dimension, metric: ChromaVectorStore(
            dimension=dimension, metric=metric, path=str(place / "chroma")
        ),
        shared=True,
    ),
    "chroma server": StoreKind(
        open=with_a_prefix_of_its_own,
        shared=True,
        examples=5,  # each call is a request or more
    ),
    "pinecone": StoreKind(
        open=in_an_index_of_its_own,
        shared=True,
    ),
    "postgres": StoreKind(open=in_a_table_of_its_own, shared=True, bm25=False, parts=False),
}


@pytest.fixture(params=list(VECTOR_STORES))
def each_kind(request: pytest.FixtureRequest) -> StoreKind:
    if request.param == "postgres":
        postgres.url()  # starting the server blocks, and no event loop runs yet
    if request.param == "chroma server":
        chroma.forget_collections()  # the same
    return VECTOR_STORES[request.param]


class TestVectorStores(VectorStoreContract):
    @pytest.fixture
    def kind(self, each_kind: StoreKind) -> StoreKind:
        return each_kind

    def test_it_answers_as_the_memory_store_does(self, kind: StoreKind) -> None:
        check_against_memory(kind, max_examples=300 if LONG else 10)

    def test_no_tenant_reaches_what_another_one_has(self, kind: StoreKind) -> None:
        check_tenants(kind, max_examples=150 if LONG else 6)
