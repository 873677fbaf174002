"""What each sink has acknowledged, and what it is owed, remembered as long as it matters.

A sink whose spans outlive the process has a ledger in the event store, so that nothing is sent
twice after a restart and nothing is forgotten:

- For each trace one mark, which goes with its run, holds what the sink has (`Delivered`). Before
  an export it is claimed until a time; a claim that is still there says that somebody else exports
  it just now or, once that time has passed, that nobody knows whether the spans arrived.
- One mark lists the traces that are due. They are put there before the bus moves on and taken out
  when they were delivered, so the queue of a process survives it.

Several observers of one group may share both: every change is a swap of what was read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from lib.events import EventStore
from lib.events.store import run_mark
from lib.observe.delivered import Delivered, decode, encode

_CLAIM: Final = "claim"
_OWED: Final = "owed"


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
    """The accounts of one sink."""

    async def peek(self, root_id: str) -> Delivered:
        """Return what the sink has of a trace, as far as it has been written down."""
        ...

    async def claim(self, root_id: str, *, now: datetime) -> Account | datetime:
        """Take the account of a trace; or return until when somebody else has it."""
        ...

    async def settle(self, root_id: str, account: Account, delivered: Delivered) -> None:
        """Write down what the sink has now, and give the account back."""
        ...

    async def give_back(
        self, root_id: str, account: Account, delivered: Delivered, *, now: datetime
    ) -> None:
        """Let others have the account, who will doubt what is written there."""
        ...

    async def owe(self, root_ids: Iterable[str]) -> list[str]:
        """Put traces on the list of those due; return those that others have put there."""
        ...

    async def paid(self, root_ids: Iterable[str]) -> list[str]:
        """Take traces from that list; return those that others have put there."""
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

    async def owe(self, root_ids: Iterable[str]) -> list[str]:
        """Do nothing: what is due is in the queue."""
        return []

    async def paid(self, root_ids: Iterable[str]) -> list[str]:
        """Do nothing: what is due is in the queue."""
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
        self._list: str | None = None
        self._mine: dict[str, None] = {}

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
        mark, value = run_mark(root_id, self._name), encode(delivered.to_json())
        await self._store.swap_mark(mark, expected=account.mark, value=value)

    async def give_back(
        self, root_id: str, account: Account, delivered: Delivered, *, now: datetime
    ) -> None:
        """Let others have the account, who will doubt what is written there."""
        value = encode({**delivered.to_json(), _CLAIM: [self._owner, now.isoformat()]})
        mark = run_mark(root_id, self._name)
        await self._store.swap_mark(mark, expected=account.mark, value=value)

    async def owe(self, root_ids: Iterable[str]) -> list[str]:
        """Put traces on the list of those due; return those that others have put there."""
        wanted = dict.fromkeys(root_ids)
        self._mine |= wanted
        return await self._change(add=wanted, remove=frozenset())

    async def paid(self, root_ids: Iterable[str]) -> list[str]:
        """Take traces from that list; return those that others have put there."""
        gone = frozenset(root_ids)
        self._mine = {root_id: None for root_id in self._mine if root_id not in gone}
        return await self._change(add=frozenset(), remove=gone)

    async def _change(self, *, add: Iterable[str], remove: frozenset[str]) -> list[str]:
        while True:
            listed = [str(root_id) for root_id in decode(self._list).get(_OWED, ())]
            now = [root_id for root_id in dict.fromkeys([*listed, *add]) if root_id not in remove]
            value = encode({_OWED: now}) if now else None
            if value != self._list and await self._store.swap_mark(
                self._name, expected=self._list, value=value
            ):
                self._list = value
                break
            before, self._list = self._list, await self._store.mark(self._name)
            if value == before == self._list:  # as it is, and nobody has changed it
                break
        return [root_id for root_id in now if root_id not in self._mine]


def _claim_of(told: object) -> tuple[str, datetime] | None:
    """Return whose claim it is, and until when."""
    match told:
        case [str(owner), str(until)]:
            return owner, datetime.fromisoformat(until)
        case _:
            return None
