"""Events as bytes: canonical JSON for payloads, microseconds for times.

No class path is ever stored, so a log outlives the code that wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from lib._util.json import canonical, parse
from lib.events.event import Event, NewEvent

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

MAX_DEPTH: Final = 200
"""How deep objects and lists of a payload may be nested; parsers take no more.

Well below what any process can write and read, however deep its stack is already.
"""
_TOO_DEEP: Final = f"a payload has at most {MAX_DEPTH} levels of objects and lists, got more"
_NESTING: Final = (dict, list, tuple)


def encode_data(data: dict[str, Any]) -> str:
    """Return the payload as canonical JSON.

    Raises:
        ValueError: it holds a number that is not finite, or more than `MAX_DEPTH` levels of
            objects and lists.
        TypeError: it is not a dict, or holds something that is not JSON.
    """
    if not isinstance(data, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - not all are typed
        raise TypeError(f"expected a dict as the payload of an event, got {type(data).__name__}")
    try:
        text = canonical(data)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if text.count("{") + text.count("[") > MAX_DEPTH and _is_deep(data):  # the first is cheap
        raise ValueError(_TOO_DEEP)
    return text


def _is_deep(data: Any) -> bool:
    level: list[Any] = [data]
    for _ in range(MAX_DEPTH):
        level = [item for value in level for item in _items(value) if isinstance(item, _NESTING)]
    return bool(level)


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value  # pyright: ignore[reportUnknownVariableType] - any JSON


def with_copies(events: Sequence[NewEvent], payloads: Sequence[str]) -> list[NewEvent]:
    """Return the events with payloads decoded anew, so that the caller's own may change."""
    return [
        NewEvent(event.kind, decode_data(payload), event.at, event.tenant, event.user)
        for event, payload in zip(events, payloads, strict=True)
    ]


def decode_data(text: str | bytes) -> dict[str, Any]:
    """Return the payload that `encode_data` has encoded.

    Raises:
        ValueError: it is not a JSON object.
    """
    try:
        value = parse(text)
    except RecursionError:  # written by an older release, which had no limit
        raise ValueError("an event's payload is nested too deeply to be read") from None
    if not isinstance(value, dict):
        raise ValueError("an event's payload is a JSON object")  # noqa: TRY004 - damage, not a type
    return value  # pyright: ignore[reportUnknownVariableType] - keys of parsed JSON are strings


def encode_time(at: datetime) -> int:
    """Return microseconds since 1970 in UTC."""
    return (at - _EPOCH) // _MICROSECOND


@lru_cache(maxsize=64)  # events of one append have the same
def decode_time(micros: int) -> datetime:
    """Return the time that `encode_time` has encoded."""
    return _EPOCH + timedelta(0, 0, micros)


def event_to_json(event: Event) -> dict[str, Any]:
    """Return the event as plain data with defaults left out, for export and fixtures."""
    out: dict[str, Any] = {
        "run_id": event.run_id,
        "seq": event.seq,
        "kind": event.kind,
        "at": event.at.isoformat(),
        "data": event.data,
    }
    if event.tenant is not None:
        out["tenant"] = event.tenant
    if event.user is not None:
        out["user"] = event.user
    return out


def event_from_json(value: dict[str, Any]) -> Event:
    """Return the event of `event_to_json`."""
    return Event(
        run_id=value["run_id"],
        seq=value["seq"],
        kind=value["kind"],
        data=value["data"],
        at=datetime.fromisoformat(value["at"]),
        tenant=value.get("tenant"),
        user=value.get("user"),
    )
