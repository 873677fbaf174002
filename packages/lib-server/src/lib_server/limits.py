"""The limits of a server: sizes, counts, times, and the quotas of callers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

from lib.engine import Budget
from lib.events.rates import Rate
from lib_server.auth.principal import Principal

Level: TypeAlias = Literal["server", "tenant", "key"]
"""Whose quota it is: of all callers together, of one tenant, of one key."""

COUNTED_BY_DAY: Final = ("tokens", "cost", "llm_calls", "tool_calls")
"""The resources of a budget that are counted over all runs of a day."""

_MAY_BE_ZERO: Final = frozenset({"open_runs", "open_streams"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The most that may be used; None is unlimited.

    Attributes:
        requests: how many requests are answered in a time, over all processes if the event store
            is on Redis, in each process otherwise.
        open_runs: how many runs of agents may be open at once, child runs and those of turns
            included, when another one is started. Not for keys: a run belongs to a tenant.
        open_streams: how many streams one process keeps open at once.
        run: the ceilings of each run, under which a caller may choose less.
        day: the ceilings of all runs together that are started over HTTP on a day of UTC, over all
            processes; ceilings of each run as well.
    """

    requests: Rate | None = None
    open_runs: int | None = None
    open_streams: int | None = None
    run: Budget | None = None
    day: Budget | None = None

    def __post_init__(self) -> None:
        """Refuse counts below 0, and ceilings that no day has."""
        for name in _MAY_BE_ZERO:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"expected 0 or more as {name}, or None, got {value!r}")
        for name in self.day.to_json() if self.day is not None else ():
            if name not in COUNTED_BY_DAY:
                raise ValueError(f"expected {', '.join(COUNTED_BY_DAY)} of a day, got {name}")


UNLIMITED: Final = Quota()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Ceilings of one server process.

    Attributes:
        body_bytes: of the body of a request, blobs excepted.
        blob_bytes: of a blob that is uploaded.
        headers: how many header lines a request may have.
        header_bytes: of all of them together.
        connections: that are open at once; requests on further ones are refused.
        head_s: seconds within which the head of a request must have come.
        body_s: seconds within which its body must have come, and as many more as it takes at
        body_bytes_s: bytes a second.
        stream_queue: events that a stream may lag behind the log while it is sent live; above it
            the stream ends with `stream.lagged`, and the client resumes.
        stalled_s: seconds for which a client may read nothing before its connection is cut.
        heartbeat_s: seconds between the comments that keep an idle stream open.
        recheck_s: seconds between checks of the credentials of an open stream.
        resume_s: seconds for which a call over MCP goes on without its client, if that can come
            back for the rest of the response, and for which its messages are kept afterwards.
        live_s: seconds for which the replies of a run that was just started are kept for a stream
            that is about to be opened.
        server: the quota of all callers together.
        tenant: the quota of each tenant that `tenants` does not name.
        key: the quota of each key, or subject of a token, that `keys` does not name.
        tenants: the quotas of these tenants.
        keys: the quotas of these keys, by their ids.
    """

    body_bytes: int = 1024 * 1024
    blob_bytes: int = 32 * 1024 * 1024
    headers: int = 100
    header_bytes: int = 32 * 1024
    connections: int = 10_000
    head_s: float = 10.0
    body_s: float = 30.0
    body_bytes_s: int = 8 * 1024
    stream_queue: int = 256
    stalled_s: float = 30.0
    heartbeat_s: float = 15.0
    recheck_s: float = 60.0
    resume_s: float = 60.0
    live_s: float = 30.0
    server: Quota = Quota(open_streams=10_000)
    tenant: Quota = UNLIMITED
    key: Quota = UNLIMITED
    tenants: Mapping[str, Quota] = field(default_factory=dict[str, Quota])
    keys: Mapping[str, Quota] = field(default_factory=dict[str, Quota])

    def __post_init__(self) -> None:
        """Refuse a ceiling under which nothing could be served."""
        for each in dataclasses.fields(self):
            value: Any = getattr(self, each.name)
            if isinstance(value, int | float) and not value > 0:
                raise ValueError(f"expected a number above 0 as {each.name}, got {value!r}")
        if any(quota.open_runs is not None for quota in (self.key, *self.keys.values())):
            raise ValueError("expected no open_runs of a key: limit those of its tenant")

    @classmethod
    def read(cls, path: Path) -> Limits:
        """Return the limits that a file of TOML describes, with its tables as quotas.

        Raises:
            ValueError: it is no TOML, or has a name that no limit has, or no number as its value.
            OSError: it cannot be read.
        """
        import tomllib  # noqa: PLC0415 - loaded with the first file

        found: Limits = _described(cls, tomllib.loads(path.read_text(encoding="utf-8")), "")
        return found

    def quotas(self, principal: Principal) -> list[tuple[Level, str, Quota]]:
        """Return what counts for a caller: levels, names of what is counted, quotas."""
        tenant, key_id = principal.tenant or "", principal.key_id
        return [
            ("server", "server", self.server),
            ("tenant", f"tenant {tenant}", self.tenants.get(tenant, self.tenant)),
            ("key", f"key {tenant} {key_id}", self.keys.get(key_id, self.key)),
        ]


_TABLES: Final[Mapping[str, type[Any]]] = {
    "requests": Rate,
    "run": Budget,
    "day": Budget,
    "server": Quota,
    "tenant": Quota,
    "key": Quota,
}
_TABLES_BY_NAME: Final = frozenset({"tenants", "keys"})


def _described(kind: type[Any], table: object, place: str) -> Any:
    """Return what a table describes.

    Args:
        kind: the dataclass whose fields it may name.
        table: as TOML has it.
        place: its path in the file, for errors.

    Raises:
        ValueError: see `Limits.read`.
    """
    names = {each.name: str(each.type) for each in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for name, value in _table(table, place).items():
        at = f"{place}.{name}" if place else name
        if name not in names:
            raise ValueError(f"{at} is no limit: expected one of {', '.join(sorted(names))}")
        if name in _TABLES_BY_NAME:
            each = _table(value, at).items()
            values[name] = {owner: _described(Quota, its, f"{at}.{owner}") for owner, its in each}
        elif name in _TABLES:
            values[name] = _described(_TABLES[name], value, at)
        else:
            values[name] = _number(value, at, whole="float" not in names[name])
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: {error}" if place else str(error)) from None


def _table(value: object, place: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"expected a table as {place}, got {value!r}")  # noqa: TRY004 - of a file
    return cast("Mapping[str, object]", value)


def _number(value: object, place: str, *, whole: bool) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        what = "a whole number" if whole else "a number"
        raise ValueError(f"expected {what} as {place}, got {value!r}")  # noqa: TRY004 - of a file
    return value
