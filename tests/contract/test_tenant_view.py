"""A tenant's view keeps the contract of a store: only the field `tenant` and the names differ."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lib.testing.vector_store import StoreKind, VectorStoreContract, check_against_memory
from lib.vector import Facet, Match, Metric, Record, SQLiteVectorStore, Vector
from lib.vector.contract import FilterLike, FusionWord
from lib.vector.filter import Field
from lib.vector.tenant import TenantVectorStore
from lib.vector.validate import checked_namespace

T = TypeVar("T", Match, Record)
LONG: dict[str, str] = {}  # names of namespaces that are too long for a sibling's suffix


class Plain:
    """A view without the field `tenant`, whose siblings are the namespaces of a store."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._view: Any = TenantVectorStore(store, "acme", namespace_prefix="app-")
        self.metric: Metric = store.metric
        self.higher_is_better: bool = store.higher_is_better

    @property
    def fusions(self) -> frozenset[FusionWord]:
        return self._view.fusions

    @property
    def dimension(self) -> int | None:
        return self._view.dimension

    async def setup(self) -> None:
        await self._view.setup()

    async def existing(self) -> Any:
        return await self._store.existing()

    async def close(self) -> None:
        await self._view.close()
        await self._store.close()

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        await self._in(namespace).upsert(records)

    async def insert(self, records: Sequence[Record], *, namespace: str | None = None) -> int:
        return await self._in(namespace).insert(records)

    async def update_meta(self, meta: Any, *, namespace: str | None = None, **options: Any) -> int:
        return await self._in(namespace).update_meta(meta, **options)

    async def query(self, vector: Vector, k: int = 5, **options: Any) -> list[Match]:
        view = self._in(options.pop("namespace", None))
        return unsigned(await view.query(vector, k, **options))

    async def query_many(
        self, vectors: Sequence[Vector], k: int = 5, **options: Any
    ) -> list[list[Match]]:
        view = self._in(options.pop("namespace", None))
        return [unsigned(found) for found in await view.query_many(vectors, k, **options)]

    async def query_hybrid(
        self, vector: Vector, text: str, k: int = 5, **options: Any
    ) -> list[Match]:
        view = self._in(options.pop("namespace", None))
        return unsigned(await view.query_hybrid(vector, text, k, **options))

    async def query_keywords(self, text: str, k: int = 5, **options: Any) -> list[Match]:
        view = self._in(options.pop("namespace", None))
        return unsigned(await view.query_keywords(text, k, **options))

    async def get(self, ids: Sequence[str], *, namespace: str | None = None) -> list[Record]:
        return unsigned(await self._in(namespace).get(ids))

    async def scan(self, *, namespace: str | None = None, **options: Any) -> list[Record]:
        return unsigned(await self._in(namespace).scan(**options))

    async def list_records(
        self, *, namespace: str | None = None, **options: Any
    ) -> AsyncGenerator[Record]:
        async for record in self._in(namespace).list_records(**options):
            yield unsigned([record])[0]

    async def facet(self, field: Field, *, namespace: str | None = None, **options: Any) -> Facet:
        return await self._in(namespace).facet(field, **options)

    async def delete(
        self,
        ids: Sequence[str] | None = None,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> int:
        return await self._in(namespace).delete(ids, filter=filter)

    async def count(self, *, filter: FilterLike = None, namespace: str | None = None) -> int:
        return await self._in(namespace).count(filter=filter)

    async def namespaces(self, prefix: str = "") -> list[str]:
        found: list[str] = await self._view.namespaces("app-acme")
        suffixes = [name.removeprefix("app-acme") for name in found]
        names = [LONG.get(suffix, suffix[1:]) for suffix in suffixes]
        return sorted(name for name in names if name.startswith(prefix))

    def _in(self, namespace: str | None) -> Any:
        name = checked_namespace(namespace)
        suffix = f"/{name}"
        if len(name) > 400:
            suffix = f"#{sha256(name.encode()).hexdigest()}"
            LONG[suffix] = name
        view = self._view.sibling(suffix) if name else self._view
        view._closed = self._view._closed
        return view


def unsigned(found: list[T]) -> list[T]:
    for one in found:
        assert one.meta["tenant"] == "acme"
    return [
        replace(one, meta={key: one.meta[key] for key in one.meta if key != "tenant"})
        for one in found
    ]


def open_sqlite(place: Path, dimension: int, metric: Metric) -> Plain:
    return Plain(SQLiteVectorStore(place / "vectors.db", dimension=dimension, metric=metric))


SQLITE_VIEW = StoreKind(open=open_sqlite, shared=True, parts=False)


class TestTenantView(VectorStoreContract):
    @pytest.fixture
    def kind(self) -> StoreKind:
        return SQLITE_VIEW

    def test_it_answers_as_the_memory_store_does(self, kind: StoreKind) -> None:
        check_against_memory(kind, max_examples=10)
