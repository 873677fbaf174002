"""A store can do what it declares, also behind a proxy, on every version of Python."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from lib.errors import HybridUnavailable, VectorError
from lib.vector import (
    Doc,
    EmbeddingIndex,
    InMemoryVectorStore,
    QdrantVectorStore,
    TenantVectorStore,
    copy_store,
)
from lib.vector.contract import capabilities


class Proxy:
    """Forwards everything to a store, as an observer or a cache does."""

    def __init__(self, store: object) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Embedder:
    dimension = 2

    async def embed(self, texts: Sequence[str], *, purpose: str = "document") -> Any:
        return np.array([[1.0, len(text)] for text in texts], np.float32)


async def test_a_proxy_can_do_what_its_store_can_whichever_came_first() -> None:
    narrow: Any = QdrantVectorStore(dimension=2, location=":memory:")
    whole: Any = InMemoryVectorStore(2)
    for _ in range(2):
        for store in (whole, narrow):
            assert capabilities(Proxy(store)) == capabilities(store)
            view = TenantVectorStore(Proxy(store), "a")  # type: ignore[arg-type] - by __getattr__
            assert view.capabilities == capabilities(store) - {"existing", "purge"}
    await narrow.close()


async def test_stores_behind_proxies_are_searched_by_words_and_copied() -> None:
    proxy: Any = Proxy(InMemoryVectorStore(2))
    target: Any = Proxy(InMemoryVectorStore(2))
    index = EmbeddingIndex(proxy, Embedder(), hybrid=True)
    await index.add([Doc("1", "apple"), Doc("2", "pear")])

    assert [hit.metric for hit in await index.search("apple")] == ["rrf", "rrf"]
    (copied,) = await copy_store(proxy, target)
    assert (copied.written, copied.missing) == (2, 0)


async def test_what_a_store_does_not_declare_is_not_used() -> None:
    class Undeclared(InMemoryVectorStore):
        capabilities = frozenset()

    store = Undeclared(2)
    with pytest.raises(HybridUnavailable):
        await EmbeddingIndex(store, Embedder()).search("apple", hybrid=True)
    with pytest.raises(VectorError, match="cannot be copied from"):
        await copy_store(store, InMemoryVectorStore(2))


def test_an_unknown_capability_is_an_error_that_names_the_known_ones() -> None:
    class Misspelled:
        capabilities = ("hybird",)

    with pytest.raises(ValueError, match=r"hold 'hybird': known are hybrid, keywords, scan"):
        capabilities(Misspelled())
