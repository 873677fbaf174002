"""The places of the facts of a user: behind three walls, of tenant, user and namespace.

Each user has a namespace, a sibling of the tenant's own: `TENANT#memory/USER`, and
`TENANT#memory` for what belongs to the tenant and no user. A tenant's view pins every call to it
and narrows it to records that name the tenant; on top of that, every record names its user, and
every filter does. What belongs to no tenant stands in `#memory…`, which no tenant's view reaches.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, cast

from lib._util.json import digest
from lib.errors import TenantViolation, VectorError
from lib.vector import Record, TenantVectorStore, VectorStore
from lib.vector.contract import FilterLike, PurgingStore, capabilities, is_scannable
from lib.vector.filter import F, Filter
from lib.vector.filter.language import And
from lib.vector.ordering import listed

MEMORY: Final = "#memory"
USER: Final = "user"
"""The metadata field that names the user of a record."""

_MAX_NAME_CHARS: Final = 200
_RESERVED: Final = re.compile("[:/#%~\x00-\x1f\x7f\ud800-\udfff]")


class UserRecords:
    """The records of one user in a store that many share.

    Attributes:
        store: the tenant's view of it, or the store itself where there is no tenant.
        namespace: what its calls name: None for the view's own.
    """

    def __init__(self, store: VectorStore, *, tenant: str | None, user: str | None) -> None:
        """See what a user has in the store.

        Raises:
            ValueError: the tenant or the user is an empty text.
        """
        if user == "":
            raise ValueError("expected a user's id, got an empty text: None is no user")
        self._user = user or ""
        self._wall = F(USER) == self._user
        suffix = MEMORY + (f"/{_name(user)}" if user else "")
        if tenant is None:
            self.store: VectorStore = store
            self.namespace: str | None = suffix
        else:
            self.store = tenant_records(store, tenant).sibling(suffix)
            self.namespace = None

    def narrowed(self, filter: FilterLike = None) -> Filter:
        """Return a filter that only records of this user pass."""
        parsed = Filter.parse(filter)
        return self._wall if parsed is None else And((self._wall, parsed))

    async def get(self, ids: Sequence[str]) -> list[Record]:
        """Return the user's records of these ids, in their order."""
        found = await self.store.get(list(ids), namespace=self.namespace) if ids else []
        return [each for each in found if self._is_own(each.meta)]

    async def upsert(self, records: Iterable[Record]) -> None:
        """Store records as the user's, all of them or none."""
        signed = [
            Record(each.id, each.vector, each.text, {**each.meta, USER: self._user})
            for each in records
        ]
        if signed:
            await self.store.upsert(signed, namespace=self.namespace)

    async def delete(self, ids: Sequence[str] | None = None) -> int:
        """Delete the user's records of these ids, all for None; return how many there were."""
        if ids is not None and not ids:
            return 0
        wanted = None if ids is None else list(ids)
        return await self.store.delete(wanted, filter=self._wall, namespace=self.namespace)

    async def count(self, filter: FilterLike = None) -> int:
        """Return how many of the user's records pass the filter."""
        return await self.store.count(filter=self.narrowed(filter), namespace=self.namespace)

    async def read(self, filter: FilterLike = None) -> AsyncGenerator[Record]:
        """Yield the user's records that pass the filter, in the order of their ids."""
        if not is_scannable(self.store):
            raise VectorError(
                f"{type(self.store).__name__} cannot be read in order, which a memory needs: "
                "use a store that has scan()"
            )
        narrowed = self.narrowed(filter)
        records = listed(self.store, filter=narrowed, batch_size=500, namespace=self.namespace)
        async with aclosing(records):
            async for record in records:
                if self._is_own(record.meta):
                    yield record

    async def note(self, ids: Sequence[str], fields: Mapping[str, Any]) -> None:
        """Merge fields into the user's records of these ids, in a store that can do that."""
        if ids and "update" in capabilities(self.store):
            store: Any = self.store
            await store.update_meta(
                fields, ids=list(ids), filter=self._wall, namespace=self.namespace
            )

    def check(self, found: Iterable[Mapping[str, Any]]) -> None:
        """Refuse what a search has found if a record of another user is among it.

        A store that disregards the filter is not believed.

        Raises:
            TenantViolation: there is one.
        """
        if not all(map(self._is_own, found)):
            raise TenantViolation(self._user, "the store has found a record of another user")

    def _is_own(self, meta: Mapping[str, Any]) -> bool:
        return meta.get(USER) == self._user


def tenant_records(store: VectorStore, tenant: str) -> TenantVectorStore:
    """Return the view of a tenant, whatever characters its id has.

    Raises:
        ValueError: it is an empty text.
    """
    return TenantVectorStore(store, _name(tenant))


async def users_of(store: VectorStore, tenant: str) -> list[str | None]:
    """Return the users of a tenant that have any records; None is the tenant itself."""
    prefix = _name(tenant) + MEMORY
    names = [
        name
        for name in await store.namespaces(prefix)
        if name == prefix or name.startswith(f"{prefix}/")
    ]
    return [user or None for name in names for user in await _users_in(store, name)]


async def tenants_of(store: VectorStore) -> list[tuple[str | None, str | None]]:
    """Return the tenant and the user of each part of a store that holds facts, sorted."""
    pairs: set[tuple[str | None, str | None]] = set()
    for name in await store.namespaces():
        before, mark, after = name.partition(MEMORY)
        if mark and (not after or after.startswith("/")):
            users = await _users_in(store, name)
            pairs |= {(_original(before) if before else None, user or None) for user in users}
    return sorted(pairs, key=lambda pair: (pair[0] or "", pair[1] or ""))


async def purge(store: VectorStore) -> None:
    """Leave no byte of deleted records in the files of a store that can do that."""
    if "purge" in capabilities(store):
        await cast("PurgingStore", store).purge()


async def _users_in(store: VectorStore, namespace: str) -> list[str]:
    """Return the user whose records a namespace holds: all name the same."""
    first = await store.scan(limit=1, namespace=namespace) if is_scannable(store) else []
    return [str(each.meta.get(USER, "")) for each in first]


def _name(part: str) -> str:
    """Return a tenant's or user's id as a part of a namespace's name; distinct for distinct ids."""
    quoted = _RESERVED.sub(lambda found: f"%{ord(found[0]):02x}~", part)
    if len(quoted) > _MAX_NAME_CHARS:
        return f"%~{digest('name', part)}"
    return quoted


def _original(name: str) -> str:
    return re.sub(r"%([0-9a-f]{2,4})~", lambda found: chr(int(found[1], 16)), name)
