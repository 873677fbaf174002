"""Runs and events as rows, and names as PostgreSQL can keep them."""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern
from typing import Any, Final, cast

from lib.errors import StoreCorrupt
from lib.events.codec import decode_data, decode_time
from lib.events.event import Event
from lib.events.kinds import Outcome
from lib.events.runs import RunInfo
from lib.events.store import tombstone_name

MAX_NAME_BYTES: Final = 2_600
"""The longest text that fits into an index."""

Row = tuple[Any, ...]

RUN_COLUMNS: Final = """
    run_id, root_id, parent_id, algorithm, tenant, "user", created_at, updated_at, head, outcome,
    ready, owner, lease_until
"""


def text(value: str) -> str:
    r"""Return text that PostgreSQL can keep, which has no NUL; it sorts and begins as before.

    NUL becomes `\x01\x01`, and `\x01` becomes `\x01\x02`. Payloads need it not: JSON escapes both.
    """
    if "\x00" in value or "\x01" in value:
        return value.replace("\x01", "\x01\x02").replace("\x00", "\x01\x01")
    return value


def untext(value: str) -> str:
    """Return the original of an escaped text: the inverse of `text`."""
    if "\x01" in value:
        return value.replace("\x01\x01", "\x00").replace("\x01\x02", "\x01")
    return value


def maybe_text(value: str | None) -> str | None:
    """Return text as `text` does, or None."""
    return None if value is None else text(value)


def _maybe(value: str | None) -> str | None:
    return None if value is None else untext(value)


def check_name(value: str | None) -> None:
    """Refuse a name that an index has no room for.

    Raises:
        ValueError: it is too long.
    """
    if value is not None and len(value) * 4 > MAX_NAME_BYTES:
        found = len(text(value).encode("utf-8", "surrogatepass"))
        if found > MAX_NAME_BYTES:
            raise ValueError(
                f"PostgreSQL keeps names of runs, tenants and marks up to {MAX_NAME_BYTES} bytes, "
                f"not {found}"
            )


def run_name(run_id: str) -> bytes:
    """Return what a run is found by."""
    return bytes.fromhex(tombstone_name(run_id))


def run_of(row: Row) -> RunInfo:
    """Return the run of a row that begins with `RUN_COLUMNS`."""
    outcome, ready, owner, lease_until = row[9:13]
    return RunInfo(
        run_id=untext(row[0]),
        root_id=untext(row[1]),
        parent_id=_maybe(row[2]),
        algorithm=untext(row[3]),
        tenant=_maybe(row[4]),
        user=_maybe(row[5]),
        created_at=decode_time(row[6]),
        updated_at=decode_time(row[7]),
        head=row[8],
        status="open" if outcome is None else "closed",
        outcome=cast("Outcome | None", _maybe(outcome)),
        ready=ready,
        owner=_maybe(owner),
        lease_until=None if lease_until is None else decode_time(lease_until),
    )


def event_of(row: Row) -> Event:
    """Return the event of a row of run_id, tenant, seq, kind, at, user and data.

    Raises:
        StoreCorrupt: the payload cannot be read.
    """
    return _event(untext(row[0]), _maybe(row[1]), row[1:])


def events_of(run_id: str, rows: Sequence[Row]) -> list[Event]:
    """Return the events of a run, of rows of tenant, seq, kind, at, user and data.

    Raises:
        StoreCorrupt: the payload cannot be read.
    """
    tenant = _maybe(rows[0][0]) if rows else None
    return [_event(run_id, tenant, row) for row in rows]


def _event(run_id: str, tenant: str | None, row: Row) -> Event:
    _, seq, kind, at, user, data = row
    try:
        data, at = decode_data(data), decode_time(at)
    except (TypeError, ValueError, OverflowError) as error:
        raise StoreCorrupt(f"event {seq} of run {run_id!r} cannot be read") from error
    # There are few kinds: each of them is kept, compared and hashed once.
    kind = intern(untext(kind))
    return Event(run_id, seq, kind, data, at, tenant, _maybe(user))
