"""Reads of a store, each in one round trip or in pages.

A script that reads sees one state of the store. A server that has lost its data would reply to each
read with nothing, so each read first compares the id of the store, which is the first argument.
"""

from __future__ import annotations

from typing import Any, Final

from lib.errors import RunNotFound
from lib.events.codec import decode_time
from lib.events.event import Event
from lib.events.runs import RunInfo, RunQuery, matches
from lib.events.store import END, FeedPage, Tombstone, tombstone_name
from lib.events.stores.redis import layout, rows
from lib.events.stores.redis.operations import prefix_range
from lib.events.stores.redis.rows import raw
from lib.events.stores.redis.server import GONE, Server

_MOST_BYTES: Final = 4 * 1024 * 1024  # the server does nothing else while a script runs


_PRESENT: Final = f"""
local meta = redis.call('HMGET', KEYS[1] .. ':meta', 'version', 'id')
if not meta[1] or (meta[2] or '') ~= table.remove(ARGV, 1) then
  return redis.error_reply('{GONE}')
end
"""

_FIND: Final = (
    _PRESENT
    + """
local P = KEYS[1] .. ':'
local number = redis.call('HGET', P .. 'names', ARGV[1])
if number then return {number, cjson.encode(redis.call('HGETALL', P .. 'run:' .. number))} end
return {false, redis.call('HGET', P .. 'tombstones', ARGV[2])}
"""
)
"""The number and the fields of a run, or nothing and its tombstone."""

_LOG: Final = (
    _PRESENT
    + """
local P = KEYS[1] .. ':'
local number = redis.call('HGET', P .. 'names', ARGV[1])
if not number then return {} end
return redis.call('LRANGE', P .. 'log:' .. number, ARGV[2], ARGV[3])
"""
)
"""Entries of a run's log, from an index to another."""

_RUNS: Final = (
    _PRESENT
    + """
local P, call = KEYS[1] .. ':', redis.call
local smallest, fewest
for n = 4, #ARGV do
  local size = call('ZCARD', P .. ARGV[n])
  if not fewest or size < fewest then smallest, fewest = P .. ARGV[n], size end
end
local range, last = 'ZRANGEBYSCORE', '+inf'
if ARGV[3] == 'newest' then range, last = 'ZREVRANGEBYSCORE', '-inf' end
local found = call(range, smallest, '(' .. ARGV[1], last, 'LIMIT', '0', ARGV[2])
local page = {}
for n, number in ipairs(found) do
  page[n] = cjson.encode(call('HGETALL', P .. 'run:' .. number))
end
return {found[#found] or false, page}
"""
)
"""The number of the last and the fields of runs behind a number, from the smallest of some indexes.

Fields are JSON: the driver takes far longer for many small answers than for one."""

_FEED: Final = (
    _PRESENT
    + """
local P, call = KEYS[1] .. ':', redis.call
local feed, after = P .. 'feed:' .. ARGV[1], tonumber(ARGV[2])
local limit, cap = tonumber(ARGV[3]), tonumber(ARGV[4])
local function text(number) return string.format('%.0f', number) end
local length = call('LLEN', feed)
if after > length then after = length end
local pages, events, bytes = {}, 0, 0
while events < limit and after < length and bytes < cap do
  local wanted = math.min(limit - events, 1000)
  local places = call('LRANGE', feed, text(after), text(after + wanted - 1))
  local n = 1
  while n <= #places and bytes < cap do
    local count = 1
    if places[n] ~= '' then
      local number, seq = string.match(places[n], '^(%d+):(%d+)$')
      while count < 16 and places[n + count] == number .. ':' .. text(seq + count) do
        count = count + 1
      end
      local last = text(seq + count - 2)
      local entries = call('LRANGE', P .. 'log:' .. number, text(seq - 1), last)
      for _, entry in ipairs(entries) do bytes = bytes + #entry end
      pages[#pages + 1] = {call('HGET', P .. 'run:' .. number, 'id'), seq, entries}
      events = events + count
    end
    n = n + count
    after = after + count
  end
end
return {text(after), after < length and 1 or 0, pages}
"""
)
"""Events of a partition after a position, the position after them, and whether there are more.

It ends at a number of events, or of bytes, so that it does not hold the server for long."""

_MARKS: Final = (
    _PRESENT
    + """
local P, call = KEYS[1] .. ':', redis.call
local found = {}
for _, name in ipairs(call('ZRANGEBYLEX', P .. 'marks:names', ARGV[1], ARGV[2])) do
  found[#found + 1] = name
  found[#found + 1] = call('HGET', P .. 'marks', name)
end
return found
"""
)
"""Names and values of marks, ordered by name."""

_USERS: Final = (
    _PRESENT
    + """
local P, call = KEYS[1] .. ':', redis.call
local users = {}
for n, number in ipairs(call('ZRANGE', P .. 'blob:' .. ARGV[1], 0, ARGV[2])) do
  users[n] = call('HGET', P .. 'run:' .. number, 'id')
end
return users
"""
)
"""The ids of runs that refer to a blob, oldest first, up to an index."""


class Reader:
    """Reads one store; every method sees all that has been written before its call."""

    def __init__(self, server: Server, key: str, store: str, store_id: str, *, page: int) -> None:
        """Take what it reads from.

        Args:
            server: the connections to it.
            key: the beginning of its keys.
            store: its name in errors.
            store_id: its id.
            page: how many runs are listed by one script.
        """
        self._page = page
        self._server = server
        self._key = key
        self._store = store
        self._id = store_id

    async def _run(self, script: str, *args: bytes | str | int) -> Any:
        """Run a script that reads, and return its reply.

        Raises:
            StoreCorrupt: the store is gone, so that missing data proves nothing.
        """
        return await self._server.run(script, self._key, self._id, *args)

    async def _call(self, *command: bytes | str | int) -> Any:
        """Send a command that reads, and return its reply; see `_run`."""
        meta = ("HMGET", f"{self._key}:meta", "version", "id")
        [version, found], answer = await self._server.together([meta, command])
        if version is None or (found or b"").decode() != self._id:
            raise layout.gone(self._store)
        return answer

    async def schema_version(self) -> int:
        """Return the layout version; see `EventStore.schema_version`."""
        found = await layout.stored(self._server, self._key, self._store)
        if found is None:
            raise layout.gone(self._store)
        return found[0]

    async def read(self, run_id: str, after: int, limit: int | None) -> list[Event]:
        """Return events of a run; see `EventStore.read`."""
        if limit == 0:
            return []
        last = -1 if limit is None else after + limit - 1
        found = await self._run(_LOG, raw(run_id), after, last)
        return [rows.event_of(run_id, seq, entry) for seq, entry in enumerate(found, after + 1)]

    async def find(self, run_id: str) -> RunInfo | Tombstone | None:
        """Return a run, its tombstone, or None."""
        name = tombstone_name(run_id)
        number, found = await self._run(_FIND, raw(run_id), name)
        if number is not None:
            return rows.run_of(found)
        if found is None:
            return None
        events, at = (int(part) for part in found.split())
        return Tombstone(name, events, decode_time(at))

    async def runs(self, query: RunQuery) -> list[RunInfo]:
        """Return runs; see `EventStore.runs`."""
        after = await self._number(query)
        order = b"newest" if query.newest_first else b"oldest"
        found: list[RunInfo] = []
        size, more = self._page if query.limit is None else min(query.limit, self._page), True
        while more and (query.limit is None or len(found) < query.limit):
            args = (after, size, order, *rows.indexes_of(query))
            after, page = await self._run(_RUNS, *args)
            found += [info for info in map(rows.run_of, page) if matches(info, query)]
            more, size = len(page) == size, self._page
        return found[: query.limit]

    async def _number(self, query: RunQuery) -> bytes:
        """Return the number behind which a list begins."""
        if query.after is None:
            return b"+inf" if query.newest_first else b"0"
        number = await self._call("HGET", f"{self._key}:names", raw(query.after))
        if number is None:
            raise RunNotFound(query.after)
        return number

    async def feed(self, after: str, limit: int, partition: int) -> FeedPage:
        """Return a page of the feed; see `EventStore.feed`."""
        if after == END:
            length = await self._call("LLEN", f"{self._key}:feed:{partition}")
            return FeedPage([], str(length))
        cursor, more = b"%d" % int(after or 0), True
        events: list[Event] = []
        while more and len(events) < limit:
            args = (partition, cursor, limit - len(events), _MOST_BYTES)
            cursor, more, pages = await self._run(_FEED, *args)
            for run_id, first, entries in pages:
                numbered = enumerate(entries, int(first))
                events += [rows.event_of(run_id.decode(), seq, entry) for seq, entry in numbered]
        return FeedPage(events, cursor.decode())

    async def mark(self, name: str) -> str | None:
        """Return a small value; see `EventStore.mark`."""
        value = await self._call("HGET", f"{self._key}:marks", raw(name))
        return None if value is None else value.decode()

    async def marks(self, prefix: str) -> dict[str, str]:
        """Return small values; see `EventStore.marks`."""
        found = await self._run(_MARKS, *prefix_range(prefix))
        texts = [item.decode() for item in found]
        return dict(zip(texts[::2], texts[1::2], strict=True))

    async def erasures(self) -> int:
        """Return how many tombstones there are; see `CountsErasures`."""
        return int(await self._call("HLEN", f"{self._key}:tombstones"))

    async def blob_users(self, digest: str, limit: int) -> list[str]:
        """Return the runs of a blob; see `EventStore.blob_users`."""
        if limit < 1:
            return []
        found = await self._run(_USERS, raw(digest), limit - 1)
        return [name.decode() for name in found]
