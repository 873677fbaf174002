"""Retention: erases trees of runs that have been idle for long enough."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.events import BlobStore, EventStore, RunInfo, RunQuery
from lib.events.paging import each_run
from lib.events.runs import is_held
from lib.privacy.erase import Erased, erase_run

_ROOTS_AT_ONCE: Final = 100


async def expire(
    store: EventStore,
    *,
    older_than: timedelta,
    blobs: BlobStore | None = None,
    tenant: str | None = None,
    include_open: bool = False,
    clock: Clock = SYSTEM_CLOCK,
    limit: int = 100,
    dry_run: bool = False,
    page: int = _ROOTS_AT_ONCE,
) -> Erased:
    """Erase root runs, with all that descends from them, to which nothing was appended for so long.

    A tree counts by its last event, whichever of its runs that belongs to. Call it again until
    nothing is erased any more; safe to repeat and to race.

    Args:
        store: the logs.
        older_than: how long a whole tree has been idle.
        blobs: the store of their large content; None leaves it, for `collect_blobs` to find.
        tenant: only runs of this one; None for all.
        include_open: open trees that no worker drives, too: abandoned sessions, and runs that wait
            for a person. An event that is appended between the check and the erasure is erased,
            too. Without it, one open run keeps its whole tree.
        clock: the time.
        limit: at most so many trees in one call.
        dry_run: only count.
        page: how many trees to list at once.

    Raises:
        ValueError: the age is not positive, or the limit.
    """
    if older_than <= timedelta(0) or limit < 1:
        raise ValueError(f"older_than and limit are positive, got {older_than} and {limit}")
    now = clock.now()
    before = now - older_than
    query = RunQuery(
        tenant=tenant,
        status=None if include_open else "closed",
        roots=True,
        idle_since=before,
    )
    erased, trees = Erased(), 0
    async for root in each_run(store, query, page=page):
        if await _expired(store, root, before, now, include_open=include_open):
            erased += await erase_run(
                store, root.run_id, blobs=blobs, force=include_open, dry_run=dry_run
            )
            trees += 1
        if trees == limit:
            break
    return erased


async def _expired(
    store: EventStore, root: RunInfo, before: datetime, now: datetime, *, include_open: bool
) -> bool:
    """Return True if every run of a tree is idle, and closed or at least driven by no worker."""
    return all(
        info.updated_at < before
        and (info.status == "closed" or (include_open and _is_free(info, now)))
        for info in await store.runs(RunQuery(root_id=root.run_id))
    )


def _is_free(info: RunInfo, now: datetime) -> bool:
    return not is_held(info.lease_until, now)
