"""Ends the lease of a run whose worker is known to be dead."""

from __future__ import annotations

from typing import Final

from lib.events import kinds as k
from lib.events.runs import Lease, RunInfo
from lib.events.store import EventStore

_SOON_S: Final = 0.001
_MOST_CLAIMS: Final = 100_000


async def end_lease(store: EventStore, info: RunInfo) -> Lease | None:
    """Let the lease of a run end now instead of later; return it as it is now.

    The run stays its owner's until another worker claims it, which counts as a takeover: whatever
    the owner appends then is refused. An owner that is alive renews its lease before that.

    A lease is named by its owner and by how often the run has been claimed. The store tells the
    first only, so each count is tried, from the last one in the log on.

    Args:
        store: open for writing.
        info: the run, as the store lists it.

    Returns:
        None if nobody holds the run, or its owner has changed meanwhile.
    """
    if info.owner is None or info.lease_until is None:
        return None
    for epoch in range(await _last_epoch(store, info.run_id), _MOST_CLAIMS):
        lease = Lease(run_id=info.run_id, owner=info.owner, epoch=epoch, until=info.lease_until)
        if (ended := await store.renew(lease, ttl_s=_SOON_S)) is not None:
            return ended
        now = await store.run(info.run_id)
        if now is None or now.owner != info.owner:
            return None
    return None


async def _last_epoch(store: EventStore, run_id: str) -> int:
    kinds = k.REQUESTS | {k.RUN_RESUMED}
    epochs = [event.data.get("epoch") for event in await store.read(run_id) if event.kind in kinds]
    return max((epoch for epoch in epochs if isinstance(epoch, int)), default=1)
