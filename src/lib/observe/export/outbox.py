"""What each sink has acknowledged, and what it is owed, remembered as long as it matters.

A sink whose spans outlive the process has a ledger in the event store, so that nothing is sent
twice after a restart and nothing is forgotten:

- For each trace one mark, which goes with its run, holds what the sink has (`Delivered`). Before
  an export it is claimed until a time; a claim that is still there says that somebody else exports
  it just now or, once that time has passed, that nobody knows whether the spans arrived.
- Traces that are due are listed before the bus moves on, so the queue of a process survives it: in
  one mark for each batch, which goes when all of the batch has been delivered. One more mark says
  which batches there may be. An observer that starts takes over all that it finds there.

Several observers of one group may share both: every change is a swap of what was read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from lib.events import EventStore
from lib.events.store import run_mark
from lib.observe.export.checkpoint import Delivered, decode, encode

_CLAIM: Final = "claim"
_OWED: Final = "owed"
_FIRST: Final = "first"
_FOLLOWING: Final = "following"
_LOOK_AHEAD: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a sink has of one trace, claimed for an export.

    Attributes:
        delivered: what it has acknowledged.
        doubt: whether an export before this one was begun and never settled.
        mark: what the store holds, to be swapped.
    """

    delivered: Delivered
    doubt: bool = False
    mark: str | None = None


class Ledger(Protocol):
    """The accounts of one sink, and the list of what is due for it."""

    async def peek(self, root_id: str) -> Delivered:
        """Return what the sink has of a trace, as far as it has been written down."""
        ...

    async def claim(self, root_id: str, *, now: datetime) -> Account | datetime:
        """Take the account of a trace; or return until when somebody else has it."""
        ...

    async def settle(self, root_id: str, account: Account, delivered: Delivered) -> None:
        """Write down what the sink has now, and let others have the account."""
        ...

    async def give_back(
        self, root_id: str, account: Account, delivered: Delivered, *, now: datetime
    ) -> None:
        """Do the same, so that whoever comes next doubts what is written there."""
        ...

    async def drop(self, root_id: str, account: Account) -> None:
        """Forget a trace whose run is not here any more."""
        ...

    async def owe(self, root_ids: Sequence[str]) -> int:
        """List different traces as due, for this process and the next; return their batch."""
        ...

    async def paid(self, batch: int) -> None:
        """Strike one trace off a batch."""
        ...

    async def owed(self) -> list[tuple[str, int]]:
        """Return what is due, whoever has listed it, with its batch; it is ours from here on."""
        ...


class MemoryLedger:
    """For a sink that is gone with its process: remembers the last traces."""

    def __init__(self, *, most: int) -> None:
        """Begin with nothing.

        Args:
            most: of how many traces to know what the sink has.
        """
        self._most = most
        self._delivered: OrderedDict[str, Delivered] = OrderedDict()

    async def peek(self, root_id: str) -> Delivered:
        """Return what the sink has of a trace."""
        return self._delivered.get(root_id) or Delivered()

    async def claim(self, root_id: str, *, now: datetime) -> Account:
        """Take the account of a trace."""
        return Account(delivered=await self.peek(root_id))

    async def settle(self, root_id: str, account: Account, delivered: Delivered) -> None:
        """Write down what the sink has now."""
        self._delivered[root_id] = delivered
        self._delivered.move_to_end(root_id)
        if len(self._delivered) > self._most:
            self._delivered.popitem(last=False)

    async def give_back(
        self, root_id: str, account: Account, delivered: Delivered, *, now: datetime
    ) -> None:
        """Write down what the sink has now."""
        await self.settle(root_id, account, delivered)

    async def drop(self, root_id: str, account: Account) -> None:
        """Forget a trace."""
        self._delivered.pop(root_id, None)

    async def owe(self, root_ids: Sequence[str]) -> int:
        """Do nothing: what is due is in the queue."""
        return 0

    async def paid(self, batch: int) -> None:
        """Do nothing: what is due is in the queue."""

    async def owed(self) -> list[tuple[str, int]]:
        """Return nothing: there was no process before."""
        return []


class StoreLedger:
    """For a sink whose spans outlive the process: marks of the event store."""

    def __init__(self, store: EventStore, name: str, *, owner: str, claim_s: float) -> None:
        """Describe the ledger; it is read when it is needed.

        Args:
            store: holds the marks.
            name: of the group and the destination.
            owner: of claims: unique among live observers.
            claim_s: seconds, how long an export may take.
        """
        self._store = store
        self._name = f"observe/{name}"
        self._owner = owner
        self._claim_s = claim_s
        self._left: dict[int, int] = {}  # how many of a batch are due

    # -- accounts --------------------------------------------------------------------------

    async def peek(self, root_id: str) -> Delivered:
        """Return what the sink has of a trace, as far as it has been written down."""
        return Delivered.from_json(decode(await self._store.mark(run_mark(root_id, self._name))))

    async def claim(self, root_id: str, *, now: datetime) -> Account | datetime:
        """Take the account of a trace; or return until when somebody else has it."""
        mark = run_mark(root_id, self._name)
        while True:
            text = await self._store.mark(mark)
            told = decode(text)
            before = _claim_of(told.get(_CLAIM))
            if before is not None and before[0] != self._owner and now < before[1]:
                return before[1]
            until = now + timedelta(seconds=self._claim_s)
            claimed = encode({**told, _CLAIM: [self._owner, until.isoformat()]})
            if await self._store.swap_mark(mark, expected=text, value=claimed):
                delivered = Delivered.from_json(told)
                return Account(delivered=delivered, doubt=before is not None, mark=claimed)

    async def settle(self, root_id: str, account: Account, delivered: Delivered) -> None:
        """Write down what the sink has now; without effect if the run is erased meanwhile."""
        await self._replace(root_id, account, encode(delivered.to_json()))

    async def give_back(
        self, root_id: str, account: Account, delivered: Delivered, *, now: datetime
    ) -> None:
        """Do the same, so that whoever comes next doubts what is written there."""
        claim = [self._owner, now.isoformat()]
        await self._replace(root_id, account, encode({**delivered.to_json(), _CLAIM: claim}))

    async def drop(self, root_id: str, account: Account) -> None:
        """Forget a trace whose run is not here any more."""
        await self._replace(root_id, account, None)

    async def _replace(self, root_id: str, account: Account, value: str | None) -> None:
        mark = run_mark(root_id, self._name)
        await self._store.swap_mark(mark, expected=account.mark, value=value)

    # -- what is due -----------------------------------------------------------------------

    async def owe(self, root_ids: Sequence[str]) -> int:
        """List different traces as due, in a batch of their own; return its number."""
        value = encode({_OWED: list(root_ids)})
        _, number = _range_of(decode(await self._store.mark(self._name)))
        while not await self._store.swap_mark(self._batch(number), expected=None, value=value):
            number += 1
        self._left[number] = len(root_ids)
        await self._widen(number + 1)
        return number

    async def paid(self, batch: int) -> None:
        """Strike one trace off a batch; a batch of which nothing is left goes."""
        self._left[batch] -= 1
        if not self._left[batch]:
            del self._left[batch]
            text = await self._store.mark(self._batch(batch))
            await self._store.swap_mark(self._batch(batch), expected=text, value=None)

    async def owed(self) -> list[tuple[str, int]]:
        """Return what is due, whoever has listed it, with its batch; it is ours from here on."""
        number, following = _range_of(decode(await self._store.mark(self._name)))
        found = list[tuple[str, int]]()
        while True:
            text = await self._store.mark(self._batch(number))
            if text is None and number >= following:
                break
            batch = [str(root_id) for root_id in decode(text).get(_OWED, ())]
            self._left |= {number: len(batch)} if batch else {}
            found += [(root_id, number) for root_id in batch]
            number += 1
        await self._widen(number)
        return found

    async def _widen(self, following: int) -> None:
        """Say that there may be batches before this one, and none before the first that is left."""
        while True:
            text = await self._store.mark(self._name)
            first, last = _range_of(decode(text))
            last = max(last, following)
            for _ in range(_LOOK_AHEAD):
                if first == last or await self._store.mark(self._batch(first)) is not None:
                    break
                first += 1
            value = encode({_FIRST: first, _FOLLOWING: last})
            if await self._store.swap_mark(self._name, expected=text, value=value):
                return

    def _batch(self, number: int) -> str:
        return f"{self._name}/{number}"


def _range_of(told: Mapping[str, Any]) -> tuple[int, int]:
    """Return the first batch that there may be, and the first that there never was."""
    return int(told.get(_FIRST, 0)), int(told.get(_FOLLOWING, 0))


def _claim_of(told: object) -> tuple[str, datetime] | None:
    """Return whose claim it is, and until when."""
    match told:
        case [str(owner), str(until)]:
            return owner, datetime.fromisoformat(until)
        case _:
            return None
