"""Erasure for good: of a run with all that descends from it, or of all that a tenant has left.

What is erased: the events of the runs, their marks (dead letters of the bus among them), the blobs
to which no other run refers, what memories know from these runs alone, and with a tenant the
records of its vector stores with their full-text indexes. A tombstone is left of each run, which
holds a hash of its id, a count and a time; so nothing can ever be appended under that id again.

What is not, since it is out of reach: traces that were exported, backups and
replicas, log files, what a consumer of the bus has made of the events, rows that PostgreSQL keeps
until VACUUM and its write-ahead log, Redis' append-only file until its rewrite, blocks that a
file system or a disk has let go.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from lib.errors import RunNotFound, RunOpen, TenantViolation
from lib.events import BlobStore, EventStore, RunInfo, RunQuery
from lib.events.blobs import blob_refs
from lib.events.store import run_mark
from lib.events.summaries import unshare_summaries
from lib.events.tenant import TenantEventStore, tenant_mark
from lib.privacy.blobs import release_blobs, released

_RUNS_AT_ONCE: Final = 256
_EVENTS_AT_ONCE: Final = 256


class TenantRecords(Protocol):
    """The records of one tenant in a shared store; `TenantVectorStore` is one."""

    @property
    def tenant(self) -> str:
        """The tenant to which the records belong."""
        ...

    async def count_all(self) -> int:
        """Return how many records the tenant has."""
        ...

    async def erase(self) -> None:
        """Delete all of them, down to the bytes in its files where the store can do that."""
        ...


class RunFacts(Protocol):
    """A memory of facts from runs; `lib.memory.Memory` is one."""

    async def count_runs(
        self, runs: Iterable[str], *, tenant: str | None = None, user: str | None = None
    ) -> int:
        """Return how many facts are known from these runs alone."""
        ...

    async def erase_runs(
        self, runs: Iterable[str], *, tenant: str | None = None, user: str | None = None
    ) -> int:
        """Erase those facts, and the runs from among the sources of others; return how many."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """Counts of what one call erased, or would erase in a dry run.

    Attributes:
        events: of these runs.
        blobs: to which no other run referred; a dry run counts all to which these runs refer.
        vectors: records of vector stores, facts of memories among them.
        parent_id: the run that had started the one that was erased, where that is left. Its log
            still holds the question to it and its answer.
        root_id: the run to erase if that is to go, too.
    """

    runs: int = 0
    events: int = 0
    blobs: int = 0
    vectors: int = 0
    parent_id: str | None = None
    root_id: str | None = None

    def __add__(self, other: Erased) -> Erased:
        """Return both together."""
        return Erased(
            runs=self.runs + other.runs,
            events=self.events + other.events,
            blobs=self.blobs + other.blobs,
            vectors=self.vectors + other.vectors,
            parent_id=self.parent_id or other.parent_id,
            root_id=self.root_id or other.root_id,
        )


async def erase_run(
    store: EventStore,
    run_id: str,
    *,
    blobs: BlobStore | None = None,
    memories: Sequence[RunFacts] = (),
    force: bool = False,
    dry_run: bool = False,
) -> Erased:
    """Erase a run and everything that descends from it: children first, the run itself last.

    After an interruption, the same call goes on to the end; once more changes nothing.

    Of a run below a root, a turn of a session or the call of an agent, its question and its answer
    stand in the log of its parent, too, and those of its grandparents may quote them. A log is
    appended to and never changed, so they stay there: `Erased.parent_id` and `Erased.root_id` say
    where. Only the erasure of the root leaves nothing.

    Args:
        store: the logs.
        run_id: the run, a root or not.
        blobs: the store of their large content; None leaves it, for `collect_blobs` to find.
        memories: facts that are known from these runs alone go, too. What an open run learns
            afterwards stays: let it end first.
        force: erase open runs, too. Nothing is appended to them: a worker that drives one meets
            `RunErased` at its next step and stops. What it put into the blob store since then is
            left for `collect_blobs`.
        dry_run: only count.

    Raises:
        RunNotFound: there is no such run and there has been none.
        RunOpen: a run is open; nothing has been erased.
    """
    names = [run_id]
    family = await _family(store, names)
    if not family and await store.tombstone(run_id) is None:
        raise RunNotFound(run_id)
    erased = await _left_above(store, run_id, family)
    while family:
        _refuse_open([] if force else family)
        erased += await _forget(memories, family, dry_run=dry_run)
        erased += await _erase(store, family, blobs, dry_run=dry_run)
        names += [info.run_id for info in family if info.run_id != run_id]
        family = [] if dry_run else await _family(store, names)  # one may have begun meanwhile
    return erased


async def _forget(
    memories: Sequence[RunFacts], runs: Sequence[RunInfo], *, dry_run: bool
) -> Erased:
    """Erase what is remembered from runs, before their logs: those tell whose runs they are."""
    owners: dict[tuple[str | None, str | None], list[str]] = {}
    for info in runs:
        owners.setdefault((info.tenant, info.user), []).append(info.run_id)
    counts = [
        await (memory.count_runs if dry_run else memory.erase_runs)(ids, tenant=tenant, user=user)
        for memory in memories
        for (tenant, user), ids in owners.items()
    ]
    return Erased(vectors=sum(counts))


async def _left_above(store: EventStore, run_id: str, family: Sequence[RunInfo]) -> Erased:
    """Return the parent and the root that keep the question and the answer of an erased run."""
    gone = {info.run_id: info.parent_id for info in family}
    parent_id = gone.get(run_id)
    parent = None if parent_id is None or parent_id in gone else await store.run(parent_id)
    return Erased() if parent is None else Erased(parent_id=parent.run_id, root_id=parent.root_id)


async def erase_tenant(
    store: EventStore,
    tenant: str,
    *,
    blobs: BlobStore | None = None,
    vectors: Sequence[TenantRecords] = (),
    force: bool = False,
    dry_run: bool = False,
) -> Erased:
    """Erase all runs of a tenant, and its records in vector stores.

    After an interruption, the same call goes on to the end. Others may write meanwhile: a run
    that this tenant starts before the last look is erased, too; one that it starts after that is
    not. So lock the tenant out first, or call it again; it goes on as long as runs keep coming.

    Args:
        store: the logs.
        tenant: the owner of the runs.
        blobs: the store of their large content; None leaves it, for `collect_blobs` to find.
        vectors: views of this tenant; records in other stores stay.
        force: erase open runs, too; see `erase_run`. Sessions are open until they are closed.
        dry_run: only count.

    Raises:
        RunOpen: a run of the tenant is open; what had ended before it was met may be erased.
        TenantViolation: a view is of another tenant; nothing has been erased.
        ValueError: the tenant is empty.
    """
    await _check_tenant(store, tenant, vectors, force=force)
    if dry_run:
        runs = await store.runs(RunQuery(tenant=tenant))
        counted = Erased(vectors=sum([await view.count_all() for view in vectors]))
        return counted + await _erase(store, runs, blobs, dry_run=True)
    erased = Erased()
    while True:
        async for tree in _trees(store, tenant):
            _refuse_open([] if force else tree)
            erased += await _erase(store, tree, blobs)
        erased += await _erase_beside_runs(store, tenant, vectors)
        if not await store.runs(RunQuery(tenant=tenant, limit=1)):
            return erased


async def _check_tenant(
    store: EventStore, tenant: str, vectors: Sequence[TenantRecords], *, force: bool
) -> None:
    if not tenant:
        raise ValueError("expected a tenant's id, got an empty text")
    for view in vectors:
        if view.tenant != tenant:
            raise TenantViolation(tenant, "a view of another tenant was given")
    if not force:
        _refuse_open(await store.runs(RunQuery(tenant=tenant, status="open", limit=1)))


async def _trees(store: EventStore, tenant: str) -> AsyncIterator[list[RunInfo]]:
    """Yield the tenant's runs, tree by tree, as long as there are any: each is to be erased."""
    while runs := await store.runs(RunQuery(tenant=tenant, limit=_RUNS_AT_ONCE)):
        for root_id in dict.fromkeys(info.root_id for info in runs):
            yield await store.runs(RunQuery(tenant=tenant, root_id=root_id))


async def _erase_beside_runs(
    store: EventStore, tenant: str, vectors: Sequence[TenantRecords]
) -> Erased:
    count = 0
    for view in vectors:
        count += await view.count_all()
        await view.erase()
    await _erase_marks(store, tenant_mark(tenant))
    return Erased(vectors=count)


async def _family(store: EventStore, names: Sequence[str]) -> list[RunInfo]:
    """Return a run and its descendants as far as they exist, parents before their children.

    Args:
        store: the logs.
        names: the run, and those of its descendants that have been erased: what they had started
            is found all the same.
    """
    tree = await store.runs(RunQuery(root_id=names[0]))
    if tree:
        return tree
    own = await store.run(names[0])
    family = {} if own is None else {own.run_id: own}
    parents = list(names)
    while parents:
        children = await store.runs(RunQuery(parent_id=parents.pop()))
        new = {info.run_id: info for info in children if info.run_id not in family}
        family |= new
        parents += new
    return list(family.values())


def _refuse_open(runs: Iterable[RunInfo]) -> None:
    for info in runs:
        if info.status == "open":
            raise RunOpen(info.run_id)


async def _erase(
    store: EventStore,
    runs: Sequence[RunInfo],
    blobs: BlobStore | None,
    *,
    dry_run: bool = False,
) -> Erased:
    """Erase the runs, the last one first."""
    erased, seen = Erased(), set[str]()
    for info in reversed(runs):
        digests = set[str]() if blobs is None else await _digests(store, info.run_id)
        if dry_run:
            fresh = len(digests - seen)
            seen |= digests
            erased += Erased(runs=1, events=info.head, blobs=fresh)
        else:
            erased += await _erase_one(store, info, digests, blobs)
    return erased


async def _erase_one(
    store: EventStore, info: RunInfo, digests: set[str], blobs: BlobStore | None
) -> Erased:
    """Erase a run, its own blobs before it: after a crash nothing would refer to them any more.

    Afterwards they are looked at again: another run that also refers to one may be erased by
    another process at this moment, and each of the two has seen the other.
    """
    gone = 0
    if blobs is not None:
        for digest in sorted(digests):
            gone += await released(store, blobs, digest, beside=(info.run_id,))
    await unshare_summaries(store, info.run_id)
    if info.tenant is not None:
        await unshare_summaries(TenantEventStore(store, info.tenant), info.run_id)
        await _erase_marks(store, tenant_mark(info.tenant, run_mark(info.run_id)))
    there = await store.erase(info.run_id)
    if blobs is not None:
        gone += await release_blobs(store, blobs, digests)
    return Erased(runs=int(there), events=info.head if there else 0, blobs=gone)


async def _digests(store: EventStore, run_id: str) -> set[str]:
    """Return the digests of the blobs to which a run refers."""
    digests, after = set[str](), 0
    while page := await store.read(run_id, after=after, limit=_EVENTS_AT_ONCE):
        digests |= {ref.digest for event in page for ref in blob_refs(event.kind, event.data)}
        after = page[-1].seq
    return digests


async def _erase_marks(store: EventStore, prefix: str) -> None:
    for name in await store.marks(prefix):
        while (value := await store.mark(name)) is not None:
            await store.compare_and_set_mark(name, expected=value, value=None)
