"""The contract of vector stores, as tests.

Give a subclass the store, and pytest runs it:

    class TestMyVectorStore(VectorStoreContract):
        @pytest.fixture
        def kind(self) -> StoreKind:
            return StoreKind(
                open=lambda place, dimension, metric: MyStore(place, dimension, metric)
            )

The suite asks the store for what it declares: `capabilities`, as hybrid search, and `refusals`,
as operators that its filters do not have. What is not declared is not tested.

`check_against_memory` holds a store against `InMemoryVectorStore` over random operations, and
`check_tenants` lets tenants that share a store try to read each other's records.
"""

from lib.testing import extra as extra
from lib.testing.vector_store.cases import features, random_filter, random_meta, random_nested_meta
from lib.testing.vector_store.changes import ChangeContract
from lib.testing.vector_store.facets import FacetContract
from lib.testing.vector_store.filters import FilterContract
from lib.testing.vector_store.hybrid import HybridContract
from lib.testing.vector_store.input import InputContract
from lib.testing.vector_store.keywords import KeywordContract
from lib.testing.vector_store.kit import StoreKind
from lib.testing.vector_store.machine import check_against_memory
from lib.testing.vector_store.records import RecordContract
from lib.testing.vector_store.scan import ScanContract
from lib.testing.vector_store.search import SearchContract
from lib.testing.vector_store.tenants import check_tenants
from lib.vector.filter.refusals import Feature, Refusal

__all__ = [
    "Feature",
    "Refusal",
    "StoreKind",
    "VectorStoreContract",
    "check_against_memory",
    "check_tenants",
    "features",
    "random_filter",
    "random_meta",
    "random_nested_meta",
]


class VectorStoreContract(
    RecordContract,
    SearchContract,
    FilterContract,
    InputContract,
    HybridContract,
    KeywordContract,
    ScanContract,
    ChangeContract,
    FacetContract,
):
    """All that a vector store promises; override the fixture `kind`."""
