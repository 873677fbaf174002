"""Operations: arguments of the script in `writes.py`, its replies, and the queue of a lane.

One script of a lane is under way at a time. What arrives meanwhile waits for the next one: the
slower the server, the larger the batches, so that all of a batch share the cost of a round trip and
of the server's write to its disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from lib._util.batcher import Batcher
from lib.errors import StoreError
from lib.events.blobs import BLOB_MARKER, blob_digests
from lib.events.codec import decode_time, encode_time, with_copies
from lib.events.event import Event, NewEvent
from lib.events.runs import Lease, RunInfo, advance, partition_of
from lib.events.store import run_mark, tombstone_name
from lib.events.stores.redis import rows
from lib.events.stores.redis.rows import raw

_MICROSECOND: Final = timedelta(microseconds=1)
_MAX_BYTES: Final = 4 * 1024 * 1024  # the server does nothing else while a script runs

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of what a store does in one round trip, and of its caches.

    Attributes:
        operations: written by one script.
        runs: listed by one script.
        cached_runs: whose states are cached.
    """

    operations: int = 256
    runs: int = 500
    cached_runs: int = 10_000


class Outdated(Exception):
    """An append was planned on an outdated state of its run: read the run, and try again."""


class Operation(Protocol):
    """Something that waits to be written."""

    def arguments(self) -> list[bytes]:
        """Return it as arguments of the script.

        Raises:
            Outdated: it contradicts the cached state of its run.
        """
        ...

    def outcome(self, reply: Any) -> Any:
        """Return what the reply means.

        Raises:
            Outdated: the server has another state of the run.
        """
        ...

    def failed(self) -> None:
        """Record that its outcome is unknown: it may have been carried out."""
        ...


class RunCache:
    """The states of runs as this process last saw them; the script of each append checks them."""

    def __init__(self, max_runs: int) -> None:
        """Begin empty."""
        self._max_runs = max_runs
        self._runs: dict[str, RunInfo] = {}

    def get(self, run_id: str) -> RunInfo | None:
        """Return the cached state of a run, or None."""
        return self._runs.get(run_id)

    def put(self, info: RunInfo) -> None:
        """Cache the state of a run; a full cache is emptied first."""
        if len(self._runs) >= self._max_runs:
            self._runs.clear()
        self._runs[info.run_id] = info

    def forget(self, run_id: str) -> None:
        """Drop a run from the cache."""
        self._runs.pop(run_id, None)


@dataclass(slots=True)
class Stored:
    """An append that is stored.

    Attributes:
        before: the length of the partition's feed before the append.
        after: its length after the append.
    """

    events: list[Event]
    partition: int
    before: int
    after: int


@dataclass(slots=True)
class Append:
    """Events for a run, whose payloads have been encoded."""

    cache: RunCache
    partitions: int
    run_id: str
    events: Sequence[NewEvent]
    payloads: Sequence[str]
    expected: int | None
    _partition: int = 0
    _stored: list[Event] = field(default_factory=list[Event])

    def advance(self, info: RunInfo | None) -> tuple[RunInfo, list[Event]]:
        """Return the run after the append, and the events with payloads of their own.

        Raises:
            Conflict: see `lib.events.runs.advance`.
            RunNotFound: likewise.
            ValueError: likewise.
        """
        fresh = with_copies(self.events, self.payloads)
        return advance(info, self.run_id, fresh, self.expected)

    def partition(self, info: RunInfo | None) -> int:
        """Return the partition of the run.

        Raises:
            Outdated: the run is not cached, and this append does not start it.
        """
        root_id = info.root_id if info else self._guess(None)[0].root_id
        return partition_of(root_id, self.partitions)

    def _guess(self, info: RunInfo | None) -> tuple[RunInfo, list[Event]]:
        try:
            return self.advance(info)
        except (StoreError, ValueError) as refusal:
            raise Outdated from refusal

    def arguments(self) -> list[bytes]:
        """Return it as arguments of the script."""
        before = self.cache.get(self.run_id)
        after, stored = self._guess(before)
        self._stored = stored
        self._partition = self.partition(after)
        self.cache.put(after)
        fields = rows.changed_fields(after)
        if before is None:
            fields += rows.first_fields(after, self._partition)
        pairs = zip(stored, self.payloads, strict=True)
        return [
            b"append",
            raw(self.run_id),
            b"%d" % (before.head if before else 0),
            raw(tombstone_name(self.run_id)),
            b"%d" % self._partition,
            raw(after.algorithm),
            *_counted(fields),
            *_counted(rows.indexes(after) if before is None else []),
            *_counted([rows.entry(event, payload) for event, payload in pairs]),
            *_counted(sorted(self._digests())),
        ]

    def _digests(self) -> set[bytes]:
        pairs = zip(self._stored, self.payloads, strict=True)
        logged = [event for event, payload in pairs if BLOB_MARKER in payload]
        return digests(logged)

    def outcome(self, reply: Any) -> Stored:
        """Return the stored events and the growth of the feed."""
        if reply[0] != b"stored":
            self.failed()
            raise Outdated
        return Stored(self._stored, self._partition, int(reply[1]), int(reply[2]))

    def failed(self) -> None:
        """Forget the run."""
        self.cache.forget(self.run_id)


def digests(events: Iterable[Event]) -> set[bytes]:
    """Return the digests of the blobs to which events refer."""
    return {raw(digest) for event in events for digest in blob_digests(event.kind, event.data)}


@dataclass(frozen=True, slots=True)
class Command:
    """An operation that depends on no cached state."""

    args: tuple[bytes, ...]

    def arguments(self) -> list[bytes]:
        """Return it as arguments of the script."""
        return list(self.args)

    def outcome(self, reply: Any) -> Any:
        """Return the reply."""
        return reply

    def failed(self) -> None:
        """Do nothing."""


def claim(
    owner: str,
    now: datetime | None,
    lasts: timedelta,
    which: str | int,
    *,
    algorithms: Collection[str] | None,
    skip: Collection[str],
) -> Command:
    """Return the claim of one run, or of up to `which` runs; `leases` reads its reply."""
    if isinstance(which, str):
        name, what, passed = b"claim_one", raw(which), []
    else:
        name, what, passed = b"claim", b"%d" % which, _counted([raw(run_id) for run_id in skip])
    wanted = [raw(algorithm) for algorithm in algorithms or ()]
    times = _times(now, lasts)
    flag = b"1" if algorithms is None else b"0"
    return Command((name, raw(owner), *times, what, flag, *_counted(wanted), *passed))


def leases(reply: Any, owner: str) -> list[Lease]:
    """Return the leases in the reply to a claim."""
    return [
        Lease(
            run_id=name.decode(),
            owner=owner,
            epoch=epoch,
            until=decode_time(int(until)),
            takeover=bool(takeover),
        )
        for name, epoch, takeover, until in reply
    ]


def renew(lease: Lease, now: datetime | None, lasts: timedelta) -> Command:
    """Return the renewal of a lease; its reply is the new end, or nothing if the lease is lost."""
    return Command((b"renew", *_holder(lease), *_times(now, lasts)))


def _times(now: datetime | None, lasts: timedelta) -> tuple[bytes, bytes]:
    """Return the time, empty for the server's, and how long a lease lasts from then on."""
    return b"" if now is None else b"%d" % encode_time(now), b"%d" % (lasts // _MICROSECOND)


def release(lease: Lease, idle_at: int | None) -> Command:
    """Return the operation that ends a lease."""
    return Command((b"release", *_holder(lease), b"" if idle_at is None else b"%d" % idle_at))


def _holder(lease: Lease) -> tuple[bytes, bytes, bytes]:
    return raw(lease.run_id), raw(lease.owner), b"%d" % lease.epoch


def set_mark(name: str, value: str) -> Command:
    """Return the operation that sets a mark."""
    return Command((b"set_mark", raw(name), raw(value)))


def compare_and_set_mark(name: str, expected: str | None, value: str | None) -> Command:
    """Return the conditional change of a mark; its reply is 1 if the mark was as expected."""
    texts = [[] if text is None else [raw(text)] for text in (expected, value)]
    return Command((b"compare_and_set_mark", raw(name), *_counted(texts[0]), *_counted(texts[1])))


def erase(run_id: str, now: datetime) -> Command:
    """Return the erasure of a run; its reply is 1 if the run existed."""
    marks = prefix_range(run_mark(run_id))
    at = b"%d" % encode_time(now)
    return Command((b"erase", raw(run_id), raw(tombstone_name(run_id)), at, *marks))


def prefix_range(prefix: str) -> tuple[bytes, bytes]:
    """Return the bounds of all texts that begin so, as Redis orders them."""
    return b"[" + raw(prefix), b"(" + raw(prefix) + b"\xff"  # no UTF-8 text holds this byte


def _counted(items: Sequence[bytes]) -> list[bytes]:
    return [b"%d" % len(items), *items]


class Lane:
    """Carries operations from one event loop to the server."""

    def __init__(
        self,
        commit: Callable[[Sequence[bytes]], Awaitable[Sequence[Any]]],
        committed: Callable[[Sequence[Any]], None],
        max_operations: int,
    ) -> None:
        """Begin without work.

        Args:
            commit: carries out operations, each as arguments of the script, and returns a reply
                for each.
            committed: called after each script with the outcomes of what it has carried out.
            max_operations: of one script.
        """
        self._commit, self._committed = commit, committed
        self._batcher = Batcher(
            self._run_script, name="lib.events.commit", max_items=max_operations
        )

    def put(self, operation: Operation) -> asyncio.Future[Any]:
        """Return the outcome to come; cancelled before its script, nothing happens."""
        return self._batcher.put(operation)

    async def drained(self) -> None:
        """Return when nothing waits and nothing is under way."""
        await self._batcher.drained()

    async def _run_script(self, operations: Sequence[Operation]) -> list[Any]:
        """Run those that fit into one script; return the outcome or the refusal of each."""
        outcomes: list[Any] = []
        places: list[int] = []
        args: list[bytes] = []
        size = 0
        for operation in operations:
            if size >= _MAX_BYTES:
                break
            own = _result_or_error(operation, operation.arguments)
            if not isinstance(own, Exception):
                places.append(len(outcomes))
                args += own
                size += sum(map(len, own))
            outcomes.append(own)
        if places:
            sent = await self._send([operations[place] for place in places], args)
            for place, outcome in zip(places, sent, strict=True):
                outcomes[place] = outcome
        return outcomes

    async def _send(self, operations: Sequence[Operation], args: Sequence[bytes]) -> list[Any]:
        try:
            replies = await self._commit(args)
        except BaseException:
            for operation in operations:
                operation.failed()
            raise
        outcomes = [
            _result_or_error(operation, partial(operation.outcome, reply))
            for operation, reply in zip(operations, replies, strict=True)
        ]
        self._committed([each for each in outcomes if not isinstance(each, Exception)])
        return outcomes


def _result_or_error(operation: Operation, step: Callable[[], T]) -> T | Exception:
    """Return the result of a step of an operation, or its error, so that the others go on."""
    try:
        return step()
    except Outdated as refusal:
        return refusal
    except Exception as refusal:  # noqa: BLE001 - the caller that waits gets it
        operation.failed()
        return refusal
