"""What tests of `TenantVectorStore` share: records, a store of few gifts, and intruders."""

from typing import Any

from lib.vector import InMemoryVectorStore, Record, VectorStore


class Bare:
    """A store that can do what every store must, and nothing more."""

    def __init__(self) -> None:
        self._whole = InMemoryVectorStore(2)
        self.asked = False

    def __getattr__(self, name: str) -> Any:
        if name in ("query_hybrid", "scan"):
            raise AttributeError(name)
        self.asked = True
        return getattr(self._whole, name)


def made(*names: str, **meta: Any) -> list[Record]:
    return [Record(name, [1.0, 0.0], "a text", dict(meta)) for name in names]


async def planted(store: VectorStore) -> None:
    """Put a record of b and one of nobody into the namespace of a, past the views."""
    await store.upsert([*made("b's", tenant="b"), *made("nobody's")], namespace="a")
