"""What every vector store does: the contract, as tests.

Give a subclass the store, and pytest runs it:

    class TestMyVectorStore(VectorStoreContract):
        @pytest.fixture
        def kind(self) -> StoreKind:
            return StoreKind(
                open=lambda place, dimension, metric: MyStore(place, dimension, metric),
                refuses=frozenset({"string order"}),
            )

`check_against_memory` holds a store against `InMemoryVectorStore` over random operations, and
`check_tenants` lets tenants who share it try to get at each other's records.
"""

from lib.testing.vector_store.cases import features, random_filter, random_meta
from lib.testing.vector_store.filters import FilterContract
from lib.testing.vector_store.hybrid import HybridContract
from lib.testing.vector_store.input import InputContract
from lib.testing.vector_store.kit import StoreKind
from lib.testing.vector_store.machine import check_against_memory
from lib.testing.vector_store.records import RecordContract
from lib.testing.vector_store.scan import ScanContract
from lib.testing.vector_store.search import SearchContract
from lib.testing.vector_store.tenants import check_tenants
from lib.vector.filter.refusals import Feature

__all__ = [
    "Feature",
    "StoreKind",
    "VectorStoreContract",
    "check_against_memory",
    "check_tenants",
    "features",
    "random_filter",
    "random_meta",
]


class VectorStoreContract(
    RecordContract, SearchContract, FilterContract, InputContract, HybridContract, ScanContract
):
    """All that a vector store promises; override the fixture `kind`."""
