"""Runs and events as rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from sys import intern
from typing import Any, Final

from lib.errors import StoreCorrupt
from lib.events.codec import decode_data, decode_time, encode_time
from lib.events.event import Event
from lib.events.runs import RunInfo
from lib.events.store import Tombstone

Row = tuple[Any, ...]

SELECT_RUNS: Final = """
    SELECT run_id, root_id, parent_id, algorithm, tenant, user, created_at, updated_at, head,
           outcome, ready, owner, lease_until, id FROM lib_runs
"""
_INSERT_EVENTS: Final = """
    INSERT INTO lib_events (run, seq, kind, at, tenant, user, data) VALUES
"""
_INSERT_RUNS: Final = """
    INSERT INTO lib_runs (id, run_id, root_id, parent_id, algorithm, tenant, user, created_at,
                          updated_at, head, outcome, ready) VALUES
"""
_OR_UPDATE_RUNS: Final = """
    ON CONFLICT (id) DO UPDATE SET updated_at = excluded.updated_at, head = excluded.head,
                                   outcome = excluded.outcome, ready = excluded.ready
"""
_FIRST_SURROGATE: Final = 0xD800
_AFTER_SURROGATES: Final = 0xE000
_LAST_CHARACTER: Final = 0x10FFFF
_WIDTHS: Final = (64, 32, 16, 8, 4, 2, 1)


def event_row(run: int, event: Event, data: str) -> Row:
    """Return the row of an event for `insert_events`."""
    at = encode_time(event.at)
    return (run, event.seq, event.kind, at, event.tenant, event.user, data)


def run_row(run: int, info: RunInfo) -> Row:
    """Return the row of a run for `write_runs`."""
    return (
        run,
        info.run_id,
        info.root_id,
        info.parent_id,
        info.algorithm,
        info.tenant,
        info.user,
        encode_time(info.created_at),
        encode_time(info.updated_at),
        info.head,
        info.outcome,
        info.ready,
    )


def run_of(row: Row) -> RunInfo:
    """Return the run of a row of `SELECT_RUNS`."""
    outcome, ready, owner, lease_until, _ = row[9:]
    return RunInfo(
        run_id=row[0],
        root_id=row[1],
        parent_id=row[2],
        algorithm=row[3],
        tenant=row[4],
        user=row[5],
        created_at=decode_time(row[6]),
        updated_at=decode_time(row[7]),
        head=row[8],
        status="open" if outcome is None else "closed",
        outcome=outcome,
        ready=bool(ready),
        owner=owner,
        lease_until=None if lease_until is None else decode_time(lease_until),
    )


def event_of(run_id: str, row: Row) -> Event:
    """Return the event of a row of seq, kind, at, tenant, user and data.

    Raises:
        StoreCorrupt: the payload cannot be read.
    """
    seq, kind, at, tenant, user, data = row
    try:
        # Few kinds: interned, each of them is stored, compared and hashed once.
        return Event(run_id, seq, intern(kind), decode_data(data), decode_time(at), tenant, user)
    except (TypeError, ValueError, OverflowError) as error:
        raise StoreCorrupt(f"event {seq} of run {run_id!r} cannot be read") from error


def tombstone_of(row: Row) -> Tombstone:
    """Return the tombstone of a row of name, events and erased_at."""
    name, events, erased_at = row
    return Tombstone(name, events, decode_time(erased_at))


def above(prefix: str) -> str | None:
    """Return the least text above all texts with this prefix, None if there is no such text."""
    while prefix:
        prefix, last = prefix[:-1], ord(prefix[-1]) + 1
        if last <= _LAST_CHARACTER:
            return prefix + chr(_AFTER_SURROGATES if last == _FIRST_SURROGATE else last)
    return None


@cache
def _insert_events(width: int) -> str:
    return _INSERT_EVENTS + ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * width)


@cache
def _write_runs(width: int) -> str:
    rows = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * width)
    return _INSERT_RUNS + rows + _OR_UPDATE_RUNS


def insert_events(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Append events to the log."""
    _execute_wide(connection, _insert_events, rows)


def write_runs(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Insert runs, or update their columns that change."""
    _execute_wide(connection, _write_runs, rows)


def _execute_wide(
    connection: sqlite3.Connection, statement: Callable[[int], str], rows: Sequence[Row]
) -> None:
    """Write rows in few wide statements.

    Each step of a statement releases the interpreter's lock. Beside a busy event loop it takes 5 ms
    to get it back, so the number of steps counts, and `executemany` has one per row.
    """
    start = 0
    for width in _WIDTHS:
        while len(rows) - start >= width:
            values = list(chain.from_iterable(rows[start : start + width]))
            connection.execute(statement(width), values)
            start += width
