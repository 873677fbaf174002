"""Deletes blobs to which no run refers, while other processes write.

A writer puts content, appends the event that refers to it, then checks that the content is still
there and puts it again if not. A deletion looks for users, deletes, and looks again: if a user has
appeared meanwhile, it puts the content back. The later of the two sees what the earlier has done,
so a run that can be read has its content.

The exception: a process is killed between a deletion and the second look, while another one puts
the same content. `verify_store` reports such a loss, and putting the content again repairs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.tasks import whole
from lib.errors import BlobMissing
from lib.events import BlobStore, EventStore

_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Collected:
    """Counts of what `collect_blobs` has deleted, or would delete.

    Attributes:
        size: of all of them, in bytes.
    """

    blobs: int
    size: int


async def release_blobs(store: EventStore, blobs: BlobStore, digests: Iterable[str]) -> int:
    """Delete those of the blobs to which no run refers; return their number. Safe to repeat.

    Args:
        store: the only one whose runs refer to them: those of another store do not count.
        blobs: the store that holds them.
        digests: the blobs to delete.
    """
    return sum([await released(store, blobs, digest) for digest in dict.fromkeys(digests)])


async def collect_blobs(
    store: EventStore,
    blobs: BlobStore,
    *,
    older_than: timedelta = timedelta(hours=1),
    clock: Clock = SYSTEM_CLOCK,
    dry_run: bool = False,
) -> Collected:
    """Delete blobs to which no run refers, left by crashes between a put and its append.

    Args:
        store: the only one whose runs refer to them.
        blobs: the store whose blobs are checked.
        older_than: younger ones are left, since their append may not have happened yet; choose many
            times the duration of an append.
        clock: the time, the same as the blob store's.
        dry_run: only count.

    Raises:
        ValueError: the age is negative.
    """
    if older_than < timedelta(0):
        raise ValueError(f"older_than is not negative, got {older_than}")
    before, after = clock.now() - older_than, ""
    count = size = 0
    while page := await blobs.stored(after=after, limit=_PAGE):
        for blob in page:
            if blob.put_at >= before or await _users(store, blob.digest):
                continue
            if dry_run or await released(store, blobs, blob.digest):
                count, size = count + 1, size + blob.size
        after = page[-1].digest
    return Collected(count, size)


async def released(
    store: EventStore, blobs: BlobStore, digest: str, *, beside: Collection[str] = ()
) -> bool:
    """Delete a blob to which no run but those `beside` refers; return True if it is gone now.

    Once begun it goes on to its end, even if the caller is cancelled.
    """
    if await _users(store, digest, beside):
        return False
    try:
        content = await blobs.get(digest)
    except BlobMissing:  # or damaged: then there is nothing to put back
        content = None
    return await whole(_delete(store, blobs, digest, content, beside))


async def _delete(
    store: EventStore,
    blobs: BlobStore,
    digest: str,
    content: bytes | None,
    beside: Collection[str],
) -> bool:
    gone, used = await blobs.delete(digest), True  # in doubt, it is put back
    try:
        used = bool(await _users(store, digest, beside))
    finally:
        if used and gone and content is not None:
            await blobs.put(content)
    return gone and not used


async def _users(store: EventStore, digest: str, beside: Collection[str] = ()) -> list[str]:
    users = await store.blob_users(digest, limit=len(beside) + 1)
    return [run_id for run_id in users if run_id not in beside]
