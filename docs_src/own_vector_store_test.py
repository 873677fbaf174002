import pytest
from own_vector_store import DictVectorStore

from lib.testing.vector_store import StoreKind, VectorStoreContract, check_against_memory


class TestDictVectorStore(VectorStoreContract):
    @pytest.fixture
    def kind(self) -> StoreKind:
        return StoreKind(open=lambda _, dimension, metric: DictVectorStore(dimension, metric))

    def test_it_answers_as_the_memory_store_does(self, kind: StoreKind) -> None:
        check_against_memory(kind)
