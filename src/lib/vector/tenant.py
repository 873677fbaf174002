"""`TenantVectorStore`: one tenant's view of a store that many share, behind two walls.

Wall one: every call goes to the tenant's own namespace, `<prefix><tenant>`, or to one that follows
it after a reserved character. Wall two: every record says in its metadata whose it is, and every
call is narrowed to those that say so, outside the filter that the caller brings. Either wall alone
keeps the records apart; a fault in one does not open the other. But only wall one keeps statistics
apart: where two tenants do share a namespace, how often a word stands in the texts of one shows in
the scores that a hybrid search of the other returns.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar, cast

from lib._util.contexts import AsyncStore
from lib.errors import HybridUnavailable, StoreClosed, TenantViolation, VectorError
from lib.vector.contract import (
    Capability,
    FilterLike,
    FusionWord,
    VectorStore,
    capabilities,
    declared_fusions,
    method_of,
    query_hybrid,
)
from lib.vector.filter import F, Field, Filter
from lib.vector.filter.language import And
from lib.vector.filter.refusals import Refusal, declared_refusals
from lib.vector.ordering import listed
from lib.vector.records import Facet, Match, Metric, Record, Vector
from lib.vector.text.fusion import FusionLike
from lib.vector.validate import (
    checked_deletion,
    checked_list,
    checked_namespace,
    checked_record,
    checked_scan,
    checked_update,
)

_CAPABILITIES: Final[frozenset[Capability]] = frozenset(
    {"hybrid", "keywords", "scan", "insert", "update", "batch", "facet"}
)
RESERVED: Final = (":", "/", "#")
"""What begins the name of a sibling, and stands neither in a tenant's id nor in a prefix."""

FIELD: Final = "tenant"
"""The metadata field that names a record's tenant."""


class _Owned(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def meta(self) -> dict[str, Any]: ...


T = TypeVar("T", bound=_Owned)


class TenantVectorStore(AsyncStore):
    """The part of a store that one tenant may see and change; itself a store.

    Records come back with `meta["tenant"]`, even if they went in without it. A record of
    another tenant is as one that is not there: it is neither found, got, counted nor deleted. The
    one call that tells is an upsert of its id, which is refused rather than let to replace it.
    That takes a look before each upsert, so it is no proof against two writers at one moment;
    records of two tenants meet in a namespace only where something writes past the views, or where
    two prefixes are in use: with "x" and "xy", tenants "yz" and "z" have the same one. One
    database should know one prefix.

    A view reaches its own namespace alone. `namespaces` also names the tenant's siblings of it,
    each of which has a view of its own: see `sibling`.

    It can be searched by words, and read in order, where the store can: its `capabilities` say so.
    """

    def __init__(self, store: VectorStore, tenant: str, *, namespace_prefix: str = "") -> None:
        """See what the tenant has in the store.

        Args:
            store: shared by many views; it stays the caller's to close.
            tenant: an id, neither empty nor with a `:`, `/` or `#` in it.
            namespace_prefix: of all tenants' namespaces, under the same rules, or empty.

        Raises:
            ValueError: the tenant or the prefix is not such a string, or both together are longer
                than the name of a namespace may be.
        """
        if not tenant:
            raise ValueError("expected a tenant's id, got an empty text")
        self._tenant = _checked_part(tenant, "a tenant's id")
        self._prefix = _checked_part(namespace_prefix, "a namespace prefix")
        self._root = checked_namespace(self._prefix + self._tenant)
        self._namespace = self._root
        self._wall = F(FIELD) == self._tenant
        self._store: Any = store
        self._closed = False

    @property
    def tenant(self) -> str:
        """The tenant's id."""
        return self._tenant

    @property
    def namespace(self) -> str:
        """The one that every call goes to."""
        return self._namespace

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Its abilities beyond `VectorStore`: what its store can, and a view keeps apart."""
        return capabilities(self._store) & _CAPABILITIES

    @property
    def fusions(self) -> frozenset[FusionWord]:
        """The ways in which its store can fuse words and vectors."""
        return declared_fusions(self._store)

    @property
    def refusals(self) -> frozenset[Refusal]:
        """The filters that its store cannot express."""
        return declared_refusals(self._store)

    @property
    def metric(self) -> Metric:
        """The metric of its vectors."""
        return self._store.metric

    @property
    def dimension(self) -> int | None:
        """The length of every vector; None until the first upsert has settled it."""
        return self._store.dimension

    @property
    def higher_is_better(self) -> bool:
        """True if a higher score is a better one."""
        return self._store.higher_is_better

    def sibling(self, suffix: str) -> TenantVectorStore:
        """Return the same tenant's view of the namespace `<namespace><suffix>`.

        Args:
            suffix: begins with `:`, `/` or `#`, or tenant "a" could reach the namespace of "ab".

        Raises:
            ValueError: it does not, or the name becomes too long.
        """
        if not isinstance(cast(object, suffix), str) or not suffix.startswith(RESERVED):
            raise ValueError(f"a sibling's suffix begins with one of {_LISTED}, got {suffix!r}")
        view = TenantVectorStore(self._store, self._tenant, namespace_prefix=self._prefix)
        view._namespace = checked_namespace(self._namespace + suffix)
        return view

    async def setup(self) -> None:
        """Set the store up; safe to repeat."""
        self._check_open()
        await self._store.setup()

    async def close(self) -> None:
        """Close this view, and neither the store nor other views of it; safe to repeat."""
        self._closed = True

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        """Insert the records as the tenant's own; all of them or none.

        Raises:
            TenantViolation: a record claims another tenant, another namespace is named, or
                one of the ids belongs to another tenant here.
        """
        name = self._pinned(namespace)
        await self._store.upsert(await self._claimed(records, name), namespace=name)

    async def insert(self, records: Sequence[Record], *, namespace: str | None = None) -> int:
        """Insert the records whose ids are not there, as the tenant's own; return their number.

        Raises:
            TenantViolation: as `upsert` says.
            VectorError: the store has no `insert`.
        """
        name = self._pinned(namespace)
        self._check_can("insert")
        return await self._store.insert(await self._claimed(records, name), namespace=name)

    async def update_meta(
        self,
        meta: Mapping[str, Any],
        *,
        ids: Sequence[str] | None = None,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> int:
        """Merge fields into the metadata of the tenant's records; return how many there were.

        Raises:
            TenantViolation: the fields claim another tenant, or another namespace is named.
            VectorError: the store has no `update_meta`.
        """
        name = self._pinned(namespace)
        changes, wanted, parsed = checked_update(meta, ids, filter)
        if changes.pop(FIELD, None) not in (None, self._tenant):
            raise TenantViolation(self._tenant, "the metadata claims another tenant")
        self._check_can("update")
        return await self._store.update_meta(
            changes, ids=wanted, filter=self._narrowed(parsed), namespace=name
        )

    async def _claimed(self, records: Sequence[Record], name: str) -> list[Record]:
        """Return the records as the tenant's own, unless another one has one of the ids."""
        own = [self._signed(record) for record in checked_list(records)]
        there: list[Record] = await self._store.get([record.id for record in own], namespace=name)
        if not all(map(self._is_own, there)):
            raise TenantViolation(self._tenant, f"an id in {name!r} belongs to another tenant")
        return own

    async def query(
        self,
        vector: Vector,
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
        include_vectors: bool = False,
        score_threshold: float | None = None,
    ) -> list[Match]:
        """Return the tenant's k records nearest to `vector`, best first."""
        name = self._pinned(namespace)
        return self._checked(
            await self._store.query(
                vector,
                k,
                filter=self._narrowed(filter),
                namespace=name,
                include_vectors=include_vectors,
                score_threshold=score_threshold,
            )
        )

    async def query_many(
        self,
        vectors: Sequence[Vector],
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
        include_vectors: bool = False,
        score_threshold: float | None = None,
    ) -> list[list[Match]]:
        """Return what `query` does for each vector, in their order.

        Raises:
            VectorError: the store has no `query_many`.
        """
        name = self._pinned(namespace)
        narrowed = self._narrowed(filter)
        self._check_can("batch")
        found: list[list[Match]] = await self._store.query_many(
            vectors,
            k,
            filter=narrowed,
            namespace=name,
            include_vectors=include_vectors,
            score_threshold=score_threshold,
        )
        return [self._checked(one) for one in found]

    async def query_hybrid(
        self,
        vector: Vector,
        text: str,
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
        fusion: FusionLike = "rrf",
    ) -> list[Match]:
        """Return the tenant's k best by nearness and words.

        Raises:
            HybridUnavailable: the store has no hybrid search.
            UnsupportedFusion: it cannot fuse so.
        """
        name = self._pinned(namespace)
        narrowed = self._narrowed(filter)
        self._check_can("hybrid")
        found = await query_hybrid(
            self._store, vector, text, k, filter=narrowed, namespace=name, fusion=fusion
        )
        return self._checked(found)

    async def query_keywords(
        self,
        text: str,
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> list[Match]:
        """Return the tenant's k best texts for the words of `text`.

        Raises:
            HybridUnavailable: the store has no search by keywords.
        """
        name = self._pinned(namespace)
        narrowed = self._narrowed(filter)
        self._check_can("keywords")
        return self._checked(
            await self._store.query_keywords(text, k, filter=narrowed, namespace=name)
        )

    async def scan(
        self,
        *,
        filter: FilterLike = None,
        after: str | None = None,
        limit: int = 1000,
        namespace: str | None = None,
    ) -> list[Record]:
        """Return the tenant's first `limit` records whose ids follow `after`.

        Raises:
            VectorError: the store cannot be read in order.
        """
        name = self._pinned(namespace)
        _, limit = checked_scan(after, limit)
        parsed = Filter.parse(filter)
        narrowed = None if parsed is None else self._narrowed(parsed)
        self._check_can("scan")
        found: list[Record] = []
        while len(found) < limit:
            page: list[Record] = await self._store.scan(
                filter=narrowed, after=after, limit=limit, namespace=name
            )
            found += self._own(page)
            if len(page) < limit:
                break
            after = page[-1].id
        return found[:limit]

    async def facet(
        self,
        field: Field,
        *,
        filter: FilterLike = None,
        limit: int = 100,
        namespace: str | None = None,
    ) -> Facet:
        """Return the values of a field among the tenant's records that pass, with their counts.

        Raises:
            VectorError: the store has no `facet`.
        """
        name = self._pinned(namespace)
        narrowed = self._narrowed(filter)
        self._check_can("facet")
        return await self._store.facet(field, filter=narrowed, limit=limit, namespace=name)

    def list_records(
        self,
        *,
        filter: FilterLike = None,
        after: str | None = None,
        batch_size: int = 1000,
        namespace: str | None = None,
    ) -> AsyncGenerator[Record]:
        """Yield the tenant's records that pass the filter, in the order of their ids.

        Args:
            filter: what the records have to pass.
            after: an id, as that of the last record that was read; None starts with the first.
            batch_size: how many are read at once, 1 to 10,000.
            namespace: the view's own, or None.

        Raises:
            VectorError: the store cannot be read in order.
        """
        return listed(self, filter=filter, after=after, batch_size=batch_size, namespace=namespace)

    async def get(self, ids: Sequence[str], *, namespace: str | None = None) -> list[Record]:
        """Return the tenant's records of these ids, in their order."""
        name = self._pinned(namespace)
        return self._own(await self._store.get(ids, namespace=name))

    async def delete(
        self,
        ids: Sequence[str] | None = None,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> int:
        """Delete records of the tenant by id, by filter, or both; return how many there were."""
        name = self._pinned(namespace)
        wanted, parsed = checked_deletion(ids, filter)
        return await self._store.delete(wanted, filter=self._narrowed(parsed), namespace=name)

    async def count(self, *, filter: FilterLike = None, namespace: str | None = None) -> int:
        """Return how many records of the tenant pass the filter."""
        name = self._pinned(namespace)
        return await self._store.count(filter=self._narrowed(filter), namespace=name)

    async def namespaces(self, prefix: str = "") -> list[str]:
        """Return those of the tenant's namespaces that hold its records and start so, sorted.

        Siblings are among them, which this view does not reach: `sibling` gives theirs.
        """
        self._check_open()
        return [
            name
            for name in await self._reachable()
            if name.startswith(prefix)
            and await self._store.count(filter=self._wall, namespace=name)
        ]

    async def count_all(self) -> int:
        """Return how many records this tenant has, in its namespace and all siblings of it."""
        self._check_open()
        counts = [
            await self._store.count(filter=self._wall, namespace=name)
            for name in await self._reachable()
        ]
        return sum(counts)

    async def erase(self) -> None:
        """Delete every record of this tenant, from its namespace and all siblings of it.

        All siblings are erased, whichever is called. A store that can is purged, so that its files
        hold no byte of them either, which may rewrite it. Safe to repeat, as it must be if it
        fails midway or if another process writes for the tenant at the same time.
        """
        self._check_open()
        for name in sorted({self._root, self._namespace, *await self._reachable()}):
            await self._store.delete(filter=self._wall, namespace=name)
        if "purge" in capabilities(self._store):
            await self._store.purge()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("this view of a vector store is closed")

    def _check_can(self, capability: Capability) -> None:
        if capability in capabilities(self._store):
            return
        store = type(self._store).__name__
        if capability in ("hybrid", "keywords"):
            raise HybridUnavailable(store, "search with query()")
        if capability == "scan":
            raise VectorError(f"{store} cannot be read in order: it has no scan()")
        raise VectorError(f"{store} has no {method_of(capability)}()")

    def _pinned(self, namespace: str | None) -> str:
        """Return the namespace to use: wall one."""
        self._check_open()
        if namespace is not None and namespace != self._namespace:
            what = f"namespace {namespace!r} was requested"
            if isinstance(cast(object, namespace), str) and self._reaches(namespace):
                what += ", which has a view of its own (see sibling)"
            raise TenantViolation(self._tenant, what)
        return self._namespace

    def _narrowed(self, filter: FilterLike) -> Filter:
        """Return the caller's filter, narrowed to the tenant: wall two.

        Built without `&`, whose limits are the caller's to use up to the last condition.
        """
        parsed = Filter.parse(filter)
        return self._wall if parsed is None else And((self._wall, parsed))

    def _signed(self, record: Record) -> Record:
        """Return the record as the tenant's own.

        A key or a value of a class of its own may hash and compare as it likes, so its characters
        are what counts, as they are what will be stored.
        """
        meta = [(_plain(key), value) for key, value in checked_record(record).meta.items()]
        for key, value in meta:
            if key == FIELD and _plain(value) not in (None, self._tenant):
                raise TenantViolation(self._tenant, f"record {record.id!r} claims another tenant")
        return replace(record, meta={**dict(meta), FIELD: self._tenant})

    def _is_own(self, found: _Owned) -> bool:
        return found.meta.get(FIELD) == self._tenant

    def _own(self, found: Sequence[T]) -> list[T]:
        return [one for one in found if self._is_own(one)]

    def _checked(self, found: list[Match]) -> list[Match]:
        """Return what a search has found; a store that disregards the filter is not believed."""
        if not all(map(self._is_own, found)):
            raise TenantViolation(self._tenant, "the store has found a record of another tenant")
        return found

    async def _reachable(self) -> list[str]:
        """Return the tenant's namespaces that hold anything, sorted."""
        named: list[str] = await self._store.namespaces(self._root)
        return [name for name in named if self._reaches(name)]

    def _reaches(self, name: str) -> bool:
        """Return True if the name is that of the tenant's first namespace, or of a sibling."""
        return name == self._root or name.startswith(tuple(self._root + mark for mark in RESERVED))


_LISTED: Final = ", ".join(map(repr, RESERVED))


def _checked_part(part: str, what: str) -> str:
    """Return a part of a namespace's name, exactly as a `str`."""
    if not isinstance(cast(object, part), str):
        raise ValueError(f"{what} is a str, got {type(part).__name__}")  # noqa: TRY004 - all bad input is one error
    if any(mark in part for mark in RESERVED):
        raise ValueError(f"{what} holds none of {_LISTED}, got {part!r}")
    return str.__str__(part)


def _plain(value: Any) -> Any:
    """Return a string exactly as a `str`, and anything else as it is."""
    return str.__str__(value) if isinstance(value, str) else value
