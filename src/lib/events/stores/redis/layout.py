"""The keys of an event store, and the migration from an older layout.

All begin with `{prefix}:`. The braces put them into one slot of a Redis Cluster, so that one script
may touch all of them: a store lives on one node. `n` is a run's number, assigned at its start:
users choose names, so only the last part of a key ever holds one.

    meta         hash: version, partitions, runs (how many numbers were assigned), id (of the
                 store, unless it was made before stores had one)
    names        hash: run id -> n
    run:n        hash: the projection of the run's events, its lease, its partition
    log:n        list: its events
    feed:p       list: `n:seq` for each event of a partition, in commit order; empty once erased
    positions:n  list: index in the feed and number of events, for each append
    all, roots, open, closed, tenant:…, tree:…, parent:… (2)
                 sorted sets: the runs of a query, by n
    free:…, held:…, algorithms
                 sorted sets of ready runs by algorithm: without a lease, by n; and with one, by
                 its end; and a set of the algorithms
    marks, marks:names
                 hash: the small durable values; sorted set: their names
    blob:… (2), blobs:n (2)
                 sorted set: the runs that refer to a blob; set: the blobs to which a run refers
    rate:…       when the window of a rate is free again, in microseconds; expires then
    tombstones (2)
                 hash: what is left of erased runs

Each migration is one script, which has the server to itself: that is the setup lock. The state that
it was planned on is read before, and compared in the script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from lib.errors import MigrationNeeded, SchemaTooNew, StoreCorrupt, StoreReadOnly
from lib.events.store import LAYOUT_VERSION, new_store_id
from lib.events.stores.redis import rows
from lib.events.stores.redis.operations import digests
from lib.events.stores.redis.server import GONE_TEXT, Server

DEFAULT_PARTITIONS: Final = 8

CREATE: Final = """
local meta = KEYS[1] .. ':meta'
if redis.call('EXISTS', meta) == 1 then return 0 end
redis.call('HSET', meta, 'version', '1', 'partitions', ARGV[1], 'id', ARGV[2])
return 1
"""

STATE: Final = """
local P, call = KEYS[1] .. ':', redis.call
local state = call('HGET', P .. 'meta', 'version') .. ' ' .. call('ZCARD', P .. 'all')
for n = 0, tonumber(call('HGET', P .. 'meta', 'partitions')) - 1 do
  state = state .. ' ' .. call('LLEN', P .. 'feed:' .. n)
end
"""
"""Sets `state`, a text that changes when anything is appended or erased."""

SECOND: Final = f"""
if redis.replicate_commands then redis.replicate_commands() end
{STATE}
if state ~= ARGV[1] or string.sub(state, 1, 2) ~= '1 ' then return 0 end
local at = 1
while at < #ARGV do
  local number, parent, count = ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  if parent ~= '' then call('ZADD', P .. 'parent:' .. string.sub(parent, 2), number, number) end
  for n = at + 4, at + 3 + count do
    call('ZADD', P .. 'blob:' .. ARGV[n], number, number)
    call('SADD', P .. 'blobs:' .. number, ARGV[n])
  end
  at = at + 3 + count
end
call('HSET', P .. 'meta', 'version', '2')
return 1
"""
"""Layout 2: which runs refer to a blob, and runs by their parent."""


async def stored(server: Server, key: str, store: str) -> tuple[int, int] | None:
    """Return the version and the number of partitions of a store, or None if there is none.

    Raises:
        StoreCorrupt: the record is not readable.
        SchemaTooNew: a newer release has written it.
    """
    found = await server.call("HMGET", f"{key}:meta", "version", "partitions")
    if found == [None, None]:
        return None
    try:
        version, partitions = (int(value) for value in found)
    except (TypeError, ValueError) as error:
        raise StoreCorrupt(f"{store} has the layout {found!r}") from error
    if version > LAYOUT_VERSION:
        raise SchemaTooNew(store, found=version, supported=LAYOUT_VERSION)
    return version, partitions


async def store_id(server: Server, key: str) -> str:
    """Return the id of the store, empty for one that has none."""
    found = await server.call("HGET", f"{key}:meta", "id")
    return "" if found is None else found.decode()


def gone(store: str) -> StoreCorrupt:
    """Return the error for a store whose data has vanished since `setup`."""
    return StoreCorrupt(f"{store} {GONE_TEXT}")


async def check_readable(server: Server, key: str, store: str) -> int:
    """Return the number of partitions of a store that is opened read-only.

    Raises:
        StoreReadOnly: there is no event store, and none may be made.
        SchemaTooNew: a newer release has written it.
        MigrationNeeded: it is older than this release reads.
    """
    found = await stored(server, key, store)
    if found is None:
        raise StoreReadOnly(
            f"{store} holds no event store: check the name, or open it once for writing"
        )
    if found[0] < LAYOUT_VERSION:
        raise MigrationNeeded(store, found=found[0], supported=LAYOUT_VERSION)
    return found[1]


async def migrate(
    server: Server,
    key: str,
    store: str,
    partitions: int | None,
    *,
    check: Callable[[int], object],
) -> int:
    """Create the store or migrate it; return the number of its partitions. Safe to race.

    Args:
        server: connections to its server.
        key: begins its keys.
        store: its name in errors.
        partitions: the number that it must have; None takes the present or the default number.
        check: refuses a number of partitions, before anything is changed.

    Raises:
        SchemaTooNew: a newer release has written it; nothing was changed.
        ValueError: it has another number of partitions.
    """
    while (found := await stored(server, key, store)) is None:
        check(partitions or DEFAULT_PARTITIONS)
        await server.run(CREATE, key, partitions or DEFAULT_PARTITIONS, new_store_id())
    version, theirs = found
    if partitions not in (None, theirs):
        raise ValueError(f"{store} has {theirs} partitions, which never change: not {partitions}")
    check(theirs)
    while version < LAYOUT_VERSION:
        await _to_second(server, key)
        version, _ = await stored(server, key, store) or found
    return theirs


async def _to_second(server: Server, key: str) -> None:
    """Migrate layout 1 to layout 2, unless another process writes meanwhile or has done it."""
    args: list[bytes] = [await server.run(STATE + "return state", key)]
    for number in await server.call("ZRANGE", f"{key}:all", 0, -1):
        args += await _uses(server, key, number)
    await server.run(SECOND, key, *args)


async def _uses(server: Server, key: str, number: bytes) -> Sequence[bytes]:
    name = number.decode()
    run_id, parent = await server.call("HMGET", f"{key}:run:{name}", "id", "parent")
    if run_id is None:
        return ()  # erased meanwhile: the script will see that something has changed
    log = await server.call("LRANGE", f"{key}:log:{name}", 0, -1)
    events = [rows.event_of(run_id.decode(), seq, entry) for seq, entry in enumerate(log, 1)]
    found = sorted(digests(events))
    if parent is None and not found:
        return ()
    return number, b"" if parent is None else b"=" + parent, b"%d" % len(found), *found
