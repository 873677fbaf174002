"""Records, a minimal store, and foreign records for the tests of `TenantVectorStore`."""

from collections.abc import Callable
from typing import Any

from lib.testing.vector_store.search import METHODS
from lib.vector import InMemoryVectorStore, Record, VectorStore


class Bare:
    """A store with the required methods only, which records that it was called."""

    def __init__(self) -> None:
        self._whole = InMemoryVectorStore(2)
        self.called = False

    def __getattr__(self, name: str) -> Any:
        if name not in (*METHODS, "metric", "dimension", "higher_is_better"):
            raise AttributeError(name)
        attribute = getattr(self._whole, name)
        return self._noted(attribute) if name in METHODS else attribute

    def _noted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.called = True
            return method(*args, **options)

        return call


def made(*names: str, **meta: Any) -> list[Record]:
    return [Record(name, [1.0, 0.0], "a text", dict(meta)) for name in names]


async def planted(store: VectorStore) -> None:
    """Put a record of b and one without a tenant into the namespace of a, past the views."""
    await store.upsert([*made("b's", tenant="b"), *made("no tenant's")], namespace="a")
