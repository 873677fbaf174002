"""The outbox of a sink: which traces are pending, and a checkpoint for each trace.

A sink whose spans outlive the process has its outbox in the event store, so that nothing is sent
twice after a restart and nothing is forgotten:

- One mark per trace, deleted with its run, holds the checkpoint: what the sink has acknowledged
  (`DeliveryState`). Before an export the checkpoint is claimed until a deadline. A claim found
  there means that another observer exports the trace now or, after the deadline, that it is
  uncertain whether the spans arrived.
- Pending traces are enqueued before the bus moves on, so that the queue of a process survives it:
  one mark per batch, deleted once all of the batch is delivered. One more mark holds the range of
  batch numbers. An observer that starts takes over every batch that it finds.

Observers of one group share both: every write is a compare-and-set.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from lib._util.json import canonical, parse
from lib.events import EventStore
from lib.events.store import run_mark
from lib.observe.export.checkpoint import DeliveryState

# Keys of stored marks.
_CLAIM: Final = "claim"
_PENDING: Final = "owed"
_FIRST: Final = "first"
_END: Final = "following"

_MAX_BATCHES_SKIPPED: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The delivery state of one trace, claimed for an export.

    Attributes:
        state: what it has acknowledged.
        uncertain: whether an earlier export began and was never committed.
        mark: the stored text, for the next compare-and-set.
    """

    state: DeliveryState
    uncertain: bool = False
    mark: str | None = None


class Outbox(Protocol):
    """The checkpoints of one sink, and the traces that are pending for it."""

    async def state(self, root_id: str) -> DeliveryState:
        """Return what the sink has of a trace, without claiming it."""
        ...

    async def claim(self, root_id: str, *, now: datetime) -> Checkpoint | datetime:
        """Claim the checkpoint of a trace; return the deadline of another observer's claim."""
        ...

    async def commit(self, root_id: str, checkpoint: Checkpoint, state: DeliveryState) -> None:
        """Store what the sink has now, and release the claim."""
        ...

    async def release(
        self, root_id: str, checkpoint: Checkpoint, state: DeliveryState, *, now: datetime
    ) -> None:
        """Store what the sink has at least, and release the claim as uncertain."""
        ...

    async def drop(self, root_id: str, checkpoint: Checkpoint) -> None:
        """Delete the checkpoint of a trace whose run was deleted."""
        ...

    async def enqueue(self, root_ids: Sequence[str]) -> int:
        """Add different traces as one pending batch; return its number."""
        ...

    async def ack(self, batch: int) -> None:
        """Remove one trace from a pending batch."""
        ...

    async def pending(self) -> list[tuple[str, int]]:
        """Take over all pending traces, of other observers too; return them with their batches."""
        ...


class MemoryOutbox:
    """The outbox of a sink whose spans are gone with the process: the last traces' checkpoints."""

    def __init__(self, *, max_traces: int) -> None:
        """Create an empty outbox.

        Args:
            max_traces: how many checkpoints to keep.
        """
        self._max_traces = max_traces
        self._states: OrderedDict[str, DeliveryState] = OrderedDict()

    async def state(self, root_id: str) -> DeliveryState:
        """Return what the sink has of a trace."""
        return self._states.get(root_id) or DeliveryState()

    async def claim(self, root_id: str, *, now: datetime) -> Checkpoint:
        """Return the checkpoint of a trace; there is no other observer."""
        return Checkpoint(state=await self.state(root_id))

    async def commit(self, root_id: str, checkpoint: Checkpoint, state: DeliveryState) -> None:
        """Keep what the sink has now."""
        self._states[root_id] = state
        self._states.move_to_end(root_id)
        if len(self._states) > self._max_traces:
            self._states.popitem(last=False)

    async def release(
        self, root_id: str, checkpoint: Checkpoint, state: DeliveryState, *, now: datetime
    ) -> None:
        """Keep what the sink has now."""
        await self.commit(root_id, checkpoint, state)

    async def drop(self, root_id: str, checkpoint: Checkpoint) -> None:
        """Delete the checkpoint of a trace."""
        self._states.pop(root_id, None)

    async def enqueue(self, root_ids: Sequence[str]) -> int:
        """Do nothing: pending traces are in the queue."""
        return 0

    async def ack(self, batch: int) -> None:
        """Do nothing: pending traces are in the queue."""

    async def pending(self) -> list[tuple[str, int]]:
        """Return nothing: no earlier process shares this outbox."""
        return []


class StoreOutbox:
    """The outbox of a sink whose spans outlive the process, in marks of the event store."""

    def __init__(self, store: EventStore, name: str, *, owner: str, claim_s: float) -> None:
        """Create the outbox; nothing is read yet.

        Args:
            store: holds the marks.
            name: group and destination.
            owner: of claims: unique among live observers.
            claim_s: seconds that an export may take.
        """
        self._store = store
        self._name = f"observe/{name}"
        self._owner = owner
        self._claim_s = claim_s
        self._remaining: dict[int, int] = {}  # by batch, how many of its traces are pending

    # -- checkpoints -----------------------------------------------------------------------

    async def state(self, root_id: str) -> DeliveryState:
        """Return what the sink has of a trace, without claiming it."""
        stored = await self._store.mark(run_mark(root_id, self._name))
        return DeliveryState.from_json(_decode(stored))

    async def claim(self, root_id: str, *, now: datetime) -> Checkpoint | datetime:
        """Claim the checkpoint of a trace; return the deadline of another observer's claim."""
        mark = run_mark(root_id, self._name)
        while True:
            text = await self._store.mark(mark)
            values = _decode(text)
            before = _claim_of(values.get(_CLAIM))
            if before is not None and before[0] != self._owner and now < before[1]:
                return before[1]
            until = now + timedelta(seconds=self._claim_s)
            claimed = canonical({**values, _CLAIM: [self._owner, until.isoformat()]})
            if await self._store.compare_and_set_mark(mark, expected=text, value=claimed):
                state = DeliveryState.from_json(values)
                return Checkpoint(state=state, uncertain=before is not None, mark=claimed)

    async def commit(self, root_id: str, checkpoint: Checkpoint, state: DeliveryState) -> None:
        """Store what the sink has now; has no effect if the run was erased meanwhile."""
        await self._replace(root_id, checkpoint, canonical(state.to_json()))

    async def release(
        self, root_id: str, checkpoint: Checkpoint, state: DeliveryState, *, now: datetime
    ) -> None:
        """Store what the sink has at least, and release the claim as uncertain."""
        claim = [self._owner, now.isoformat()]  # which has expired, but is there
        await self._replace(root_id, checkpoint, canonical({**state.to_json(), _CLAIM: claim}))

    async def drop(self, root_id: str, checkpoint: Checkpoint) -> None:
        """Delete the checkpoint of a trace whose run was deleted."""
        await self._replace(root_id, checkpoint, None)

    async def _replace(self, root_id: str, checkpoint: Checkpoint, value: str | None) -> None:
        mark = run_mark(root_id, self._name)
        await self._store.compare_and_set_mark(mark, expected=checkpoint.mark, value=value)

    # -- pending traces --------------------------------------------------------------------

    async def enqueue(self, root_ids: Sequence[str]) -> int:
        """Add different traces as one pending batch; return its number."""
        value = canonical({_PENDING: list(root_ids)})
        _, number = _range_of(_decode(await self._store.mark(self._name)))
        while not await self._store.compare_and_set_mark(
            self._batch(number), expected=None, value=value
        ):
            number += 1
        self._remaining[number] = len(root_ids)
        await self._extend_range(number + 1)
        return number

    async def ack(self, batch: int) -> None:
        """Remove one trace from a pending batch; an empty batch is deleted."""
        self._remaining[batch] -= 1
        if not self._remaining[batch]:
            del self._remaining[batch]
            text = await self._store.mark(self._batch(batch))
            await self._store.compare_and_set_mark(self._batch(batch), expected=text, value=None)

    async def pending(self) -> list[tuple[str, int]]:
        """Take over all pending traces, of other observers too; return them with their batches."""
        number, end = _range_of(_decode(await self._store.mark(self._name)))
        found = list[tuple[str, int]]()
        while True:
            text = await self._store.mark(self._batch(number))
            if text is None and number >= end:
                break
            batch = [str(root_id) for root_id in _decode(text).get(_PENDING, ())]
            self._remaining |= {number: len(batch)} if batch else {}
            found += [(root_id, number) for root_id in batch]
            number += 1
        await self._extend_range(number)
        return found

    async def _extend_range(self, end: int) -> None:
        """Store that batches end at `end` or later, and begin at the first that is left."""
        while True:
            text = await self._store.mark(self._name)
            first, last = _range_of(_decode(text))
            last = max(last, end)
            for _ in range(_MAX_BATCHES_SKIPPED):
                if first == last or await self._store.mark(self._batch(first)) is not None:
                    break
                first += 1
            value = canonical({_FIRST: first, _END: last})
            if await self._store.compare_and_set_mark(self._name, expected=text, value=value):
                return

    def _batch(self, number: int) -> str:
        return f"{self._name}/{number}"


def _decode(text: str | None) -> dict[str, Any]:
    """Return the values of a stored mark, none for a missing one."""
    return parse(text) if text else {}


def _range_of(values: Mapping[str, Any]) -> tuple[int, int]:
    """Return the first batch number that may exist, and the first that was never used."""
    return int(values.get(_FIRST, 0)), int(values.get(_END, 0))


def _claim_of(value: object) -> tuple[str, datetime] | None:
    """Return the owner and the deadline of a stored claim."""
    match value:
        case [str(owner), str(until)]:
            return owner, datetime.fromisoformat(until)
        case _:
            return None
