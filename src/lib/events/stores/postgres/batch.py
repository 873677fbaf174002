"""What a batch of appends comes to, given what is known of their runs. Pure.

Every append is checked and projected by `lib.events.runs.advance`, as in the other stores; what is
written here is only which rows follow from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from lib._util.postgres import array, integers, texts
from lib.errors import RunErased, StoreError
from lib.events.blobs import blob_digests
from lib.events.codec import decode_data, encode_time
from lib.events.event import Event, NewEvent
from lib.events.kinds import is_signal
from lib.events.runs import RunInfo, advance, partition_of
from lib.events.stores.postgres.rows import check_name, maybe_text, run_name, text

ERASED: Final = "erased"

Known = RunInfo | Literal["erased"] | None
"""What a run is known to be; None if there is none."""

BYTEA: Final = 17
_MAY_REFER: Final = '"$blob"'


class Elsewhere(Exception):
    """The run is in another partition than was thought."""

    def __init__(self, partition: int) -> None:
        self.partition = partition


@dataclass(slots=True, eq=False)
class Append:
    """One append that waits, as its caller has said it; the payloads are copies."""

    run_id: str
    name: bytes
    events: list[NewEvent]
    payloads: Sequence[str]
    expected: int | None
    size: int

    @classmethod
    def of(
        cls, run_id: str, events: Sequence[NewEvent], payloads: Sequence[str], expected: int | None
    ) -> Append:
        """Take an append whose payloads have been encoded.

        Raises:
            ValueError: a name is too long.
        """
        check_name(run_id)
        copies = [
            NewEvent(event.kind, decode_data(payload), event.at, event.tenant, event.user)
            for event, payload in zip(events, payloads, strict=True)
        ]
        size = sum(map(len, payloads))
        return cls(run_id, run_name(run_id), copies, payloads, expected, size)


@dataclass(slots=True)
class _Run:
    """A run that the batch changes."""

    name: bytes
    old: int
    info: RunInfo
    signal: bool = False


@dataclass(slots=True)
class Batch:
    """What follows from appends, in their order.

    Attributes:
        outcomes: of each append its events, or the error that refuses it.
        doubtful: the runs of appends that were refused, or can be neither refused nor taken, on
            what was known of their runs.
        runs: what becomes of each run that grows.
    """

    partition: int
    partitions: int
    outcomes: list[Any] = field(default_factory=list[Any])
    doubtful: dict[str, bytes] = field(default_factory=dict[str, bytes])
    runs: dict[str, _Run] = field(default_factory=dict[str, _Run])
    _log: list[tuple[bytes, Event, str]] = field(default_factory=list[tuple[bytes, Event, str]])

    @classmethod
    def of(
        cls,
        appends: Iterable[Append],
        known: Mapping[str, Known],
        partition: int,
        partitions: int,
    ) -> Batch:
        """Return what follows from appends.

        A start of an unknown run is taken to be its first: the database refuses it otherwise.
        """
        batch = cls(partition, partitions)
        for append in appends:
            try:
                batch.outcomes.append(batch._take(append, known))
            except (StoreError, ValueError, Elsewhere) as refusal:
                batch.outcomes.append(refusal)
                batch.doubtful[append.run_id] = append.name
        return batch

    def _take(self, append: Append, known: Mapping[str, Known]) -> list[Event] | None:
        run_id = append.run_id
        run = self.runs.get(run_id)
        before = run.info if run else known.get(run_id)
        if before == ERASED:
            raise RunErased(run_id)
        if before is None and append.expected != 0 and run_id not in known:
            self.doubtful[run_id] = append.name
            return None
        info, stored = advance(before, run_id, append.events, append.expected)
        self._check(before, info)
        if run is None:
            run = self.runs[run_id] = _Run(append.name, before.head if before else 0, info)
        run.info = info
        run.signal = run.signal or is_signal(stored[-1].kind)
        for event, payload in zip(stored, append.payloads, strict=True):
            self._log.append((append.name, event, payload))
        return stored

    def _check(self, before: RunInfo | None, info: RunInfo) -> None:
        """Refuse what another partition holds, or no index has room for."""
        partition = partition_of(info.root_id, self.partitions)
        if partition != self.partition:
            raise Elsewhere(partition)
        if before is None:
            for name in (info.root_id, info.parent_id, info.tenant):
                check_name(name)

    @property
    def size(self) -> int:
        """How many events there are."""
        return len(self._log)

    @property
    def started(self) -> dict[str, Any]:
        """The runs that begin, as parameters; empty if there are none."""
        infos = [(run.name, run.info) for run in self.runs.values() if run.old == 0]
        if not infos:
            return {}
        return {
            "s_name": array(BYTEA, [name for name, _ in infos]),
            "s_run_id": texts([text(info.run_id) for _, info in infos]),
            "s_root_id": texts([text(info.root_id) for _, info in infos]),
            "s_parent_id": texts([maybe_text(info.parent_id) for _, info in infos]),
            "s_algorithm": texts([text(info.algorithm) for _, info in infos]),
            "s_tenant": texts([maybe_text(info.tenant) for _, info in infos]),
            "s_user": texts([maybe_text(info.user) for _, info in infos]),
            "s_created_at": integers([encode_time(info.created_at) for _, info in infos]),
            "s_updated_at": integers([encode_time(info.updated_at) for _, info in infos]),
            "s_head": integers([info.head for _, info in infos]),
            "s_outcome": texts([maybe_text(info.outcome) for _, info in infos]),
        }

    @property
    def changed(self) -> dict[str, Any]:
        """The runs that go on, as parameters; empty if there are none."""
        runs = [run for run in self.runs.values() if run.old]
        if not runs:
            return {}
        return {
            "c_name": array(BYTEA, [run.name for run in runs]),
            "c_old": integers([run.old for run in runs]),
            "c_head": integers([run.info.head for run in runs]),
            "c_updated_at": integers([encode_time(run.info.updated_at) for run in runs]),
            "c_outcome": texts([maybe_text(run.info.outcome) for run in runs]),
        }

    @property
    def logged(self) -> dict[str, Any]:
        """The events, as parameters."""
        events = [event for _, event, _ in self._log]
        return {
            "part": self.partition,
            "n": self.size,
            "e_name": array(BYTEA, [name for name, _, _ in self._log]),
            "e_seq": integers([event.seq for event in events]),
            "e_kind": texts([text(event.kind) for event in events]),
            "e_at": integers([encode_time(event.at) for event in events]),
            "e_user": texts([maybe_text(event.user) for event in events]),
            "e_data": texts([payload for _, _, payload in self._log]),
        }

    @property
    def uses(self) -> dict[str, Any]:
        """Which runs refer to which blobs, as parameters; empty if none does."""
        found = sorted(
            {
                (digest, name)
                for name, event, payload in self._log
                if _MAY_REFER in payload
                for digest in blob_digests(event.data)
            }
        )
        if not found:
            return {}
        return {
            "u_digest": texts([digest for digest, _ in found]),
            "u_name": array(BYTEA, [name for _, name in found]),
        }
