"""Runs and events as bytes.

A run is a hash of its fields, with those left out that are None. An event is the JSON array of its
time, kind, tenant, user and payload. Times are microseconds since 1970 in UTC.
"""

from __future__ import annotations

from typing import cast

from lib._util.json import canonical, parse
from lib.errors import StoreCorrupt
from lib.events.codec import decode_time, encode_time
from lib.events.event import Event
from lib.events.kinds import Outcome
from lib.events.runs import RunInfo, RunQuery


def raw(text: str) -> bytes:
    """Return text as bytes; what is no Unicode text becomes what no stored name is."""
    return text.encode("utf-8", "surrogatepass")


def entry(event: Event, payload: str) -> bytes:
    """Return an event whose payload has been encoded."""
    head = canonical([encode_time(event.at), event.kind, event.tenant, event.user])
    return f"{head[:-1]},{payload}]".encode()


def event_of(run_id: str, seq: int, entry: bytes) -> Event:
    """Return the event that `entry` has written.

    Raises:
        StoreCorrupt: it cannot be read.
    """
    try:
        at, kind, tenant, user, data = parse(entry)
        if not isinstance(data, dict):
            raise ValueError("an event's payload is a JSON object")  # noqa: TRY301, TRY004 - damage
        return Event(run_id, seq, kind, data, decode_time(at), tenant, user)  # pyright: ignore[reportUnknownArgumentType] - keys of JSON are strings
    except (TypeError, ValueError, OverflowError) as error:
        raise StoreCorrupt(f"event {seq} of run {run_id!r} cannot be read") from error


def changed_fields(info: RunInfo) -> list[bytes]:
    """Return, as names and values, what an append changes of a run."""
    fields = {
        "head": str(info.head),
        "updated": str(encode_time(info.updated_at)),
        "ready": "1" if info.ready else "0",
        "outcome": info.outcome,
    }
    return _flat(fields)


def first_fields(info: RunInfo, partition: int) -> list[bytes]:
    """Return, as names and values, what never changes of a run."""
    fields = {
        "id": info.run_id,
        "root": info.root_id,
        "parent": info.parent_id,
        "algorithm": info.algorithm,
        "tenant": info.tenant,
        "user": info.user,
        "created": str(encode_time(info.created_at)),
        "partition": str(partition),
    }
    return _flat(fields)


def _flat(fields: dict[str, str | None]) -> list[bytes]:
    return [
        raw(text)
        for pair in fields.items()
        if pair[1] is not None
        for text in pair
        if text is not None
    ]


def indexes(info: RunInfo) -> list[bytes]:
    """Return the names of the indexes that list a run from its start on."""
    names = ["all", info.status, f"tree:{info.root_id}"]
    if info.tenant is not None:
        names.append(f"tenant:{info.tenant}")
    names.append("roots" if info.parent_id is None else f"parent:{info.parent_id}")
    return [raw(name) for name in names]


def run_of(fields: bytes) -> RunInfo:
    """Return the run of a hash's names and values as JSON."""
    texts: list[str] = parse(fields)
    found = dict(zip(texts[::2], texts[1::2], strict=True))
    outcome, lease_until = found.get("outcome"), found.get("until")
    return RunInfo(
        run_id=found["id"],
        root_id=found["root"],
        parent_id=found.get("parent"),
        algorithm=found["algorithm"],
        tenant=found.get("tenant"),
        user=found.get("user"),
        created_at=decode_time(int(found["created"])),
        updated_at=decode_time(int(found["updated"])),
        head=int(found["head"]),
        status="open" if outcome is None else "closed",
        outcome=cast("Outcome | None", outcome),
        ready=found["ready"] == "1",
        owner=found.get("owner"),
        lease_until=None if lease_until is None else decode_time(int(lease_until)),
    )


def indexes_of(query: RunQuery) -> list[bytes]:
    """Return the names of the indexes that each list all that the query does."""
    names = {
        f"tenant:{query.tenant}": query.tenant is not None,
        f"{query.status}": query.status is not None,
        f"tree:{query.root_id}": query.root_id is not None,
        f"parent:{query.parent_id}": query.parent_id is not None,
        "roots": query.roots,
    }
    return [b"all", *(raw(name) for name, wanted in names.items() if wanted)]
