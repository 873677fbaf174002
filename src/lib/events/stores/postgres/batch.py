"""The rows that a batch of appends writes, and the statement that writes them. Pure.

Every append is checked and projected by `lib.events.runs.advance`, as in the other stores. The
statement is one round trip and one transaction:

1. It takes the rows of its partitions first, in their order, and holds them until the commit. So
   one transaction at a time writes to a partition, positions become visible in their order, and no
   reader skips one.
2. A run goes on only if its head is still the one that the batch was planned with, and begins only
   if there was never one of its id; events are stored of those runs only. Commits of other
   processes are seen although the statement began before: PostgreSQL reads the rows that a
   statement changes again.
3. It returns the position of each partition before the batch, and the names of the runs that were
   written; nothing at all if a newer release has changed the layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal

from lib._util.postgres import Fixed, array, integers, texts
from lib.errors import RunErased
from lib.events.blobs import BLOB_MARKER, blob_digests
from lib.events.codec import encode_data, encode_time, with_copies
from lib.events.event import Event, NewEvent
from lib.events.kinds import is_signal
from lib.events.runs import RunInfo, advance, partition_of
from lib.events.store import LAYOUT_VERSION
from lib.events.stores.postgres.rows import check_name, maybe_text, run_name, text
from lib.events.stores.postgres.schema import Place

ERASED: Final = "erased"

StoredRun = RunInfo | Literal["erased"] | None
"""The state of a run: its info, that it was erased, or None for a run that does not exist."""

BYTEA: Final = 17


class WrongPartition(Exception):
    """The run is in another partition than its append assumes."""

    def __init__(self, partition: int) -> None:
        self.partition = partition


@dataclass(slots=True, eq=False)
class Append:
    """One append that waits; its payloads are copies of the caller's.

    Attributes:
        partition: that of its run, or the one that is assumed until `WrongPartition`.
        size: characters of its payloads.
    """

    partition: int
    run_id: str
    name: bytes
    events: list[NewEvent]
    payloads: Sequence[str]
    expected: int | None
    size: int

    @classmethod
    def of(
        cls, partition: int, run_id: str, events: Sequence[NewEvent], expected: int | None
    ) -> Append:
        """Build an append from arguments that `check_batch` has accepted.

        Raises:
            ValueError: a payload cannot be written, or the run id is too long.
            TypeError: a payload is not JSON.
        """
        check_name(run_id)
        payloads = [encode_data(event.data) for event in events]
        copies = with_copies(events, payloads)
        size = sum(map(len, payloads))
        return cls(partition, run_id, run_name(run_id), copies, payloads, expected, size)


@dataclass(slots=True)
class _Run:
    """A run that the batch changes."""

    partition: int
    name: bytes
    old: int
    info: RunInfo
    signal: bool = False


@dataclass(slots=True)
class _Entry:
    """An event, and its ordinal among those of the batch in its partition."""

    partition: int
    place: int
    name: bytes
    event: Event
    payload: str


@dataclass(slots=True)
class Batch:
    """The effect of appends, in their order.

    Attributes:
        outcomes: of each append its events, or the error that refuses it.
        unverified: the runs of appends that cached state refuses, or cannot decide about.
        runs: the new state of each run that is appended to.
        sizes: how many events each partition gets.
    """

    partitions: int
    outcomes: list[Any] = field(default_factory=list[Any])
    unverified: dict[str, bytes] = field(default_factory=dict[str, bytes])
    runs: dict[str, _Run] = field(default_factory=dict[str, _Run])
    sizes: dict[int, int] = field(default_factory=dict[int, int])
    _log: list[_Entry] = field(default_factory=list["_Entry"])

    @classmethod
    def of(
        cls, appends: Iterable[Append], states: Mapping[str, StoredRun], partitions: int
    ) -> Batch:
        """Plan appends on the states of their runs.

        An append that starts a run without a state assumes that the run is new; if it is not,
        the database refuses it.
        """
        batch = cls(partitions)
        for append in appends:
            try:
                batch.outcomes.append(batch._take(append, states))
            except Exception as refusal:  # noqa: BLE001 - the outcome of this append; others go on
                batch.outcomes.append(refusal)
                batch.unverified[append.run_id] = append.name
        return batch

    def _take(self, append: Append, states: Mapping[str, StoredRun]) -> list[Event] | None:
        run_id = append.run_id
        run = self.runs.get(run_id)
        before = run.info if run else states.get(run_id)
        if before == ERASED:
            raise RunErased(run_id)
        if before is None and append.expected != 0 and run_id not in states:
            self.unverified[run_id] = append.name
            return None
        info, stored = advance(before, run_id, append.events, append.expected)
        self._check(append, before, info)
        if run is None:
            old = before.head if before else 0
            run = self.runs[run_id] = _Run(append.partition, append.name, old, info)
        run.info = info
        run.signal = run.signal or is_signal(stored[-1].kind)
        place = self.sizes.get(append.partition, 0)
        for event, payload in zip(stored, append.payloads, strict=True):
            place += 1
            self._log.append(_Entry(append.partition, place, append.name, event, payload))
        self.sizes[append.partition] = place
        return stored

    def _check(self, append: Append, before: RunInfo | None, info: RunInfo) -> None:
        """Refuse a run of another partition, and names too long for an index."""
        partition = partition_of(info.root_id, self.partitions)
        if partition != append.partition:
            raise WrongPartition(partition)
        if before is None:
            for name in (info.root_id, info.parent_id, info.tenant):
                check_name(name)

    @property
    def started(self) -> dict[str, Any]:
        """The runs that begin, as parameters; empty if there are none."""
        runs = [run for run in self.runs.values() if run.old == 0]
        if not runs:
            return {}
        infos = [run.info for run in runs]
        return {
            "s_part": integers([run.partition for run in runs]),
            "s_name": array(BYTEA, [run.name for run in runs]),
            "s_run_id": texts([text(info.run_id) for info in infos]),
            "s_root_id": texts([text(info.root_id) for info in infos]),
            "s_parent_id": texts([maybe_text(info.parent_id) for info in infos]),
            "s_algorithm": texts([text(info.algorithm) for info in infos]),
            "s_tenant": texts([maybe_text(info.tenant) for info in infos]),
            "s_user": texts([maybe_text(info.user) for info in infos]),
            "s_created_at": integers([encode_time(info.created_at) for info in infos]),
            "s_updated_at": integers([encode_time(info.updated_at) for info in infos]),
            "s_head": integers([info.head for info in infos]),
            "s_outcome": texts([maybe_text(info.outcome) for info in infos]),
        }

    @property
    def changed(self) -> dict[str, Any]:
        """The runs that go on, as parameters; empty if there are none."""
        runs = [run for run in self.runs.values() if run.old]
        if not runs:
            return {}
        return {
            "c_part": integers([run.partition for run in runs]),
            "c_name": array(BYTEA, [run.name for run in runs]),
            "c_old": integers([run.old for run in runs]),
            "c_head": integers([run.info.head for run in runs]),
            "c_updated_at": integers([encode_time(run.info.updated_at) for run in runs]),
            "c_outcome": texts([maybe_text(run.info.outcome) for run in runs]),
        }

    @property
    def logged(self) -> dict[str, Any]:
        """The events, as parameters."""
        log, events = self._log, [entry.event for entry in self._log]
        return {
            "parts": integers(list(self.sizes)),
            "sizes": integers(list(self.sizes.values())),
            "e_part": integers([entry.partition for entry in log]),
            "e_place": integers([entry.place for entry in log]),
            "e_name": array(BYTEA, [entry.name for entry in log]),
            "e_seq": integers([event.seq for event in events]),
            "e_kind": texts([text(event.kind) for event in events]),
            "e_at": integers([encode_time(event.at) for event in events]),
            "e_user": texts([maybe_text(event.user) for event in events]),
            "e_data": texts([entry.payload for entry in log]),
        }

    @property
    def uses(self) -> dict[str, Any]:
        """Return the references of runs to blobs, as parameters; empty if there are none."""
        found = sorted(
            {
                (digest, entry.name)
                for entry in self._log
                if BLOB_MARKER in entry.payload
                for digest in blob_digests(entry.event.kind, entry.event.data)
            }
        )
        if not found:
            return {}
        return {
            "u_digest": texts([digest for digest, _ in found]),
            "u_name": array(BYTEA, [name for _, name in found]),
        }


_HEADS: Final = """
    WITH held AS MATERIALIZED (
        SELECT id FROM {lib_partitions}
        WHERE id = ANY(%(parts)s::bigint[]) AND layout = %(layout)s::smallint
        ORDER BY id FOR UPDATE
    ), h AS (
        UPDATE {lib_partitions} p SET head = p.head + k.size
        FROM held, unnest(%(parts)s::bigint[], %(sizes)s::bigint[]) AS k(id, size)
        WHERE p.id = held.id AND k.id = held.id
        RETURNING p.id, p.head - k.size AS base
    )
"""
_STARTED: Final = """
    , started AS (
        INSERT INTO {lib_runs} (name, part, run_id, root_id, parent_id, algorithm, tenant, "user",
            created_at, updated_at, head, outcome, ready)
        SELECT k.name, h.id, k.run_id, k.root_id, k.parent_id, k.algorithm, k.tenant,
            k."user", k.created_at, k.updated_at, k.head, k.outcome, k.outcome IS NULL
        FROM h, unnest(%(s_part)s::bigint[], %(s_name)s::bytea[], %(s_run_id)s::text[],
            %(s_root_id)s::text[], %(s_parent_id)s::text[], %(s_algorithm)s::text[],
            %(s_tenant)s::text[], %(s_user)s::text[], %(s_created_at)s::bigint[],
            %(s_updated_at)s::bigint[], %(s_head)s::bigint[], %(s_outcome)s::text[])
            WITH ORDINALITY AS k(part, name, run_id, root_id, parent_id, algorithm, tenant, "user",
                created_at, updated_at, head, outcome, place)
        WHERE h.id = k.part ORDER BY k.place
        ON CONFLICT (name) DO NOTHING RETURNING id, name, part
    )
"""
_CHANGED: Final = """
    , changed AS (
        UPDATE {lib_runs} r SET head = k.head, updated_at = k.updated_at, outcome = k.outcome,
            ready = k.outcome IS NULL
        FROM h, unnest(%(c_part)s::bigint[], %(c_name)s::bytea[], %(c_old)s::bigint[],
            %(c_head)s::bigint[], %(c_updated_at)s::bigint[], %(c_outcome)s::text[])
            AS k(part, name, old, head, updated_at, outcome)
        WHERE h.id = k.part AND r.name = k.name AND r.head = k.old AND r.run_id IS NOT NULL
        RETURNING r.id, r.name, r.part
    )
"""
_LOGGED: Final = """
    , logged AS (
        INSERT INTO {lib_events} (part, pos, run, seq, kind, at, "user", data)
        SELECT h.id, h.base + e.place, t.id, e.seq, e.kind, e.at, e."user", e.data
        FROM unnest(%(e_part)s::bigint[], %(e_place)s::bigint[], %(e_name)s::bytea[],
            %(e_seq)s::bigint[], %(e_kind)s::text[], %(e_at)s::bigint[], %(e_user)s::text[],
            %(e_data)s::text[]) AS e(part, place, name, seq, kind, at, "user", data)
        JOIN h ON h.id = e.part JOIN touched t ON t.name = e.name
    )
"""
_USED: Final = """
    , used AS (
        INSERT INTO {lib_blob_uses} (digest, run)
        SELECT u.digest, t.id FROM unnest(%(u_digest)s::text[], %(u_name)s::bytea[])
            AS u(digest, name) JOIN touched t ON t.name = u.name
        ON CONFLICT DO NOTHING
    )
"""
_RESULT: Final = " SELECT h.id, h.base, t.name FROM h LEFT JOIN touched t ON t.part = h.id"


@lru_cache(8)
def _text(*, started: bool, changed: bool, used: bool) -> str:
    touched = ["SELECT id, name, part FROM started"] * started + [
        "SELECT id, name, part FROM changed"
    ] * changed
    parts = [
        _HEADS,
        _STARTED if started else "",
        _CHANGED if changed else "",
        f", touched AS ({' UNION ALL '.join(touched)})",
        _LOGGED,
        _USED if used else "",
        _RESULT,
    ]
    return " ".join(" ".join(parts).split())


def write(place: Place, batch: Batch) -> tuple[Fixed, dict[str, Any]]:
    """Return the statement for a batch that has events, and its parameters."""
    started, changed, uses = batch.started, batch.changed, batch.uses
    statement = _text(started=bool(started), changed=bool(changed), used=bool(uses))
    parameters = batch.logged | started | changed | uses | {"layout": LAYOUT_VERSION}
    return place.fixed(statement), parameters
