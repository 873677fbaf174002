"""`TenantEventStore`: one tenant's view of an event store that many share.

Through the view, the runs of other tenants do not exist: the answer to a foreign id is exactly that
to a missing one. Engines make the ids of runs: they are unguessable (128 random bits, or a digest
with the tenant in it) and unique in the store, over all tenants.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import quote

from lib._util.contexts import AsyncStore
from lib.errors import RunNotFound, StoreClosed, TenantViolation
from lib.events.codec import encode_data
from lib.events.event import Event, NewEvent
from lib.events.kinds import RUN_STARTED
from lib.events.paging import each_run
from lib.events.runs import Lease, RunInfo, RunQuery, advance, check_batch
from lib.events.store import (
    START,
    CountsErasures,
    EventStore,
    FeedPage,
    Tombstone,
    erasures_of,
    run_mark,
)
from lib.events.wakeups import Wakeups

_RUNS_AT_ONCE = 256


def tenant_mark(tenant: str, name: str = "") -> str:
    """Return the name under which a store keeps a mark of a tenant's view."""
    return f"tenant/{quote(tenant, safe='', errors='surrogatepass')}/{name}"


class TenantEventStore(CountsErasures, AsyncStore):
    """The part of an event store that belongs to one tenant; itself an event store.

    - Runs started through it belong to the tenant; a start that names another tenant is refused,
      and one with a parent or a root may name only runs of the tenant.
    - Its marks are its own: no other view and not the store itself has them under these names.
    - An erased run looks as if it had never existed, `tombstone` included: a tombstone does not
      show the tenant of its run.

    Four things show that other tenants exist. The start of a run under an id that another tenant's
    run has, or had, is refused, since an id is used once in a store; chance does not hit one.
    The cursor of `feed` moves over the events of others, and the time that a call takes depends on
    them. `wakeups` is the store's own, and wakes for any run. The number of `erasures` grows with
    those of all tenants.
    """

    _users_at_once: ClassVar[int] = 64

    def __init__(self, store: EventStore, tenant: str) -> None:
        """Make a view of the tenant's part of the store.

        Args:
            store: shared by many views; the caller closes it.
            tenant: an id that is not empty.

        Raises:
            ValueError: the tenant is empty.
        """
        if not tenant:
            raise ValueError("expected the id of a tenant, got an empty text")
        self._store = store
        self._tenant = tenant
        self._closed = False

    @property
    def tenant(self) -> str:
        """The id of the tenant."""
        return self._tenant

    @property
    def partitions(self) -> int:
        """The number of partitions of the store."""
        return self._store.partitions

    @property
    def store_id(self) -> str:
        """The id that tells the store from every other."""
        return self._store.store_id

    @property
    def wakeups(self) -> Wakeups:
        """The store's own."""
        return self._store.wakeups

    async def setup(self) -> None:
        """Set the store up, and open this view again if it was closed."""
        await self._store.setup()
        self._closed = False

    async def close(self) -> None:
        """Close this view, and neither the store nor other views of it; safe to repeat."""
        self._closed = True

    async def schema_version(self) -> int:
        """Return the layout version of the stored data."""
        return await self._open().schema_version()

    # -- logs ------------------------------------------------------------------------------

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        """Append all events or none; see `EventStore.append`.

        Raises:
            TenantViolation: an event names another tenant, or a run is started under an id that
                is another tenant's.
            RunNotFound: a start names a parent or a root that this tenant does not have.
        """
        store = self._open()
        own = [self._with_tenant(event) for event in events]
        info = await store.run(run_id)
        if not self._is_own(info):
            check_batch(run_id, own, expected)
            for event in own:
                encode_data(event.data)
            started, _ = advance(None, run_id, own, expected)
            await self._check_relatives(started)
            if info is not None:
                raise TenantViolation(self._tenant, f"run id {run_id!r} is taken")
        return await store.append(run_id, own, expected=expected)

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the run's events with `seq > after` in order."""
        if await self.run(run_id) is None:
            return []
        return await self._open().read(run_id, after=after, limit=limit)

    async def runs(self, query: RunQuery | None = None) -> list[RunInfo]:
        """Return the runs of the tenant that match the query, in the order of their creation."""
        query = query or RunQuery()
        if query.after is not None and await self.run(query.after) is None:
            raise RunNotFound(query.after)
        if query.tenant not in (None, self._tenant):
            return []
        return await self._open().runs(replace(query, tenant=self._tenant))

    async def run(self, run_id: str) -> RunInfo | None:
        """Return one run of the tenant, or None."""
        info = await self._open().run(run_id)
        return info if self._is_own(info) else None

    async def feed(self, after: str = START, *, limit: int = 512, partition: int = 0) -> FeedPage:
        """Return the tenant's events in commit order; see `EventStore.feed`."""
        events: list[Event] = []
        while True:
            wanted = limit - len(events)
            page = await self._open().feed(after, limit=wanted, partition=partition)
            events += [event for event in page.events if event.tenant == self._tenant]
            after = page.cursor
            if len(page.events) < wanted or len(events) == limit:
                return FeedPage(events, after)

    async def blob_users(self, digest: str, *, limit: int = 1) -> list[str]:
        """Return the ids of up to `limit` runs of the tenant that refer to this blob."""
        is_own, wanted = dict[str, bool](), max(limit, self._users_at_once)
        while True:
            users = await self._open().blob_users(digest, limit=wanted)
            for run_id in users:
                if run_id not in is_own:
                    is_own[run_id] = await self.run(run_id) is not None
            own = [run_id for run_id in users if is_own[run_id]]
            if len(own) >= limit or len(users) < wanted:
                return own[:limit]
            wanted *= 4

    # -- leases ----------------------------------------------------------------------------

    async def claim(
        self,
        owner: str,
        *,
        ttl_s: float,
        run_id: str | None = None,
        limit: int = 1,
        algorithms: Collection[str] | None = None,
        skip: Collection[str] = (),
    ) -> list[Lease]:
        """Take the lease of runs of the tenant; see `EventStore.claim`."""
        skipped = frozenset(skip)
        options: dict[str, Any] = {"ttl_s": ttl_s, "algorithms": algorithms, "skip": skipped}
        if run_id is not None:
            if await self.run(run_id) is None:
                return []
            return await self._open().claim(owner, run_id=run_id, limit=limit, **options)
        leases: list[Lease] = []
        async for info in each_run(self, RunQuery(status="open")):
            if len(leases) == limit:
                break
            if info.ready and info.run_id not in skipped:
                leases += await self._open().claim(owner, run_id=info.run_id, **options)
        return leases

    async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        """Return the lease with a later end, or None if it has been lost."""
        if await self.run(lease.run_id) is None:
            return None
        return await self._open().renew(lease, ttl_s=ttl_s)

    async def release(self, lease: Lease, *, idle_at: int | None = None) -> None:
        """Give the lease back; see `EventStore.release`."""
        if await self.run(lease.run_id) is not None:
            await self._open().release(lease, idle_at=idle_at)

    # -- marks -----------------------------------------------------------------------------

    async def mark(self, name: str) -> str | None:
        """Return the value of a mark, or None."""
        return await self._open().mark(self._named(name))

    async def marks(self, prefix: str) -> dict[str, str]:
        """Return the marks whose names have this prefix, ordered by name."""
        cut = len(self._named(""))
        found = await self._open().marks(self._named(prefix))
        return {name[cut:]: value for name, value in found.items()}

    async def set_mark(self, name: str, value: str) -> None:
        """Set a mark."""
        await self._open().set_mark(self._named(name), value)

    async def compare_and_set_mark(
        self, name: str, *, expected: str | None, value: str | None
    ) -> bool:
        """Set a mark if its value is the expected one; return True if it was."""
        return await self._open().compare_and_set_mark(
            self._named(name), expected=expected, value=value
        )

    # -- erasure ---------------------------------------------------------------------------

    async def erase(self, run_id: str) -> bool:
        """Delete a run of the tenant, with its events and its marks; see `EventStore.erase`."""
        for name, value in (await self.marks(run_mark(run_id))).items():
            await self.compare_and_set_mark(name, expected=value, value=None)
        if await self.run(run_id) is None:
            return False
        return await self._open().erase(run_id)

    async def tombstone(self, run_id: str) -> Tombstone | None:
        """Return None: an erased run looks as if it had never existed."""
        self._open()
        return None

    async def erasures(self) -> int | None:
        """Return the store's own number of erasures, which all tenants raise."""
        return await erasures_of(self._open())

    # -- walls -----------------------------------------------------------------------------

    def _open(self) -> EventStore:
        if self._closed:
            raise StoreClosed("this view of an event store is closed: call setup()")
        return self._store

    def _named(self, name: str) -> str:
        return tenant_mark(self._tenant, name)

    def _is_own(self, info: RunInfo | None) -> bool:
        return info is not None and info.tenant == self._tenant

    def _with_tenant(self, event: NewEvent) -> NewEvent:
        """Return the event as the tenant's own."""
        if event.tenant not in (None, self._tenant):
            raise TenantViolation(self._tenant, "an event names another tenant")
        if event.kind != RUN_STARTED:
            return event
        return replace(event, tenant=self._tenant)

    async def _check_relatives(self, started: RunInfo) -> None:
        """Refuse a start below a run of another tenant, as below a missing one."""
        for run_id in (started.parent_id, started.root_id):
            if run_id not in (None, started.run_id) and await self.run(run_id) is None:
                raise RunNotFound(run_id)
