"""What can be read of a store, each question in one round trip or in pages."""

from __future__ import annotations

from typing import Any, Final

from lib.errors import RunNotFound
from lib.events.codec import decode_time
from lib.events.event import Event
from lib.events.runs import RunInfo, RunQuery, matches
from lib.events.store import END, Feed, Tombstone, tombstone_name
from lib.events.stores.redis import layout, reads, rows
from lib.events.stores.redis.operations import prefix_range
from lib.events.stores.redis.rows import raw
from lib.events.stores.redis.server import Server

_PAGE: Final = 500
_MOST_BYTES: Final = 4 * 1024 * 1024  # the server does nothing else while a script runs


class Reader:
    """Reads one store; every method sees all that has been written before its call."""

    def __init__(self, server: Server, key: str, store: str, store_id: str) -> None:
        """Take the connections to it, the beginning of its keys, its name in errors, its id."""
        self._server = server
        self._key = key
        self._store = store
        self._id = store_id

    async def _ask(self, script: str, *args: bytes | str | int) -> Any:
        """Return what a script answers that reads.

        Raises:
            StoreCorrupt: the store is gone, so that what is not found may have been there.
        """
        return await self._server.run(script, self._key, self._id, *args)

    async def _call(self, *command: bytes | str | int) -> Any:
        """Return what a command answers that reads; see `_ask`."""
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
        found = await self._ask(reads.LOG, raw(run_id), after, last)
        return [rows.event_of(run_id, seq, entry) for seq, entry in enumerate(found, after + 1)]

    async def find(self, run_id: str) -> RunInfo | Tombstone | None:
        """Return a run, or what is left of it."""
        name = tombstone_name(run_id)
        number, found = await self._ask(reads.FIND, raw(run_id), name)
        if number is not None:
            return rows.run_of(found)
        if found is None:
            return None
        events, at = (int(part) for part in found.split())
        return Tombstone(name, events, decode_time(at))

    async def runs(self, query: RunQuery) -> list[RunInfo]:
        """Return runs; see `EventStore.runs`."""
        after = await self._number(query.after)
        found: list[RunInfo] = []
        size, more = _PAGE if query.limit is None else min(query.limit, _PAGE), True
        while more and (query.limit is None or len(found) < query.limit):
            args = (after, size, *rows.indexes_of(query))
            after, page = await self._ask(reads.RUNS, *args)
            found += [info for info in map(rows.run_of, page) if matches(info, query)]
            more, size = len(page) == size, _PAGE
        return found[: query.limit]

    async def _number(self, run_id: str | None) -> bytes:
        if run_id is None:
            return b"0"
        number = await self._call("HGET", f"{self._key}:names", raw(run_id))
        if number is None:
            raise RunNotFound(run_id)
        return number

    async def feed(self, after: str, limit: int, partition: int) -> Feed:
        """Return a page of the feed; see `EventStore.feed`."""
        if after == END:
            length = await self._call("LLEN", f"{self._key}:feed:{partition}")
            return Feed([], str(length))
        cursor, more = b"%d" % int(after or 0), True
        events: list[Event] = []
        while more and len(events) < limit:
            args = (partition, cursor, limit - len(events), _MOST_BYTES)
            cursor, more, pages = await self._ask(reads.FEED, *args)
            for run_id, first, entries in pages:
                numbered = enumerate(entries, int(first))
                events += [rows.event_of(run_id.decode(), seq, entry) for seq, entry in numbered]
        return Feed(events, cursor.decode())

    async def mark(self, name: str) -> str | None:
        """Return a small value; see `EventStore.mark`."""
        value = await self._call("HGET", f"{self._key}:marks", raw(name))
        return None if value is None else value.decode()

    async def marks(self, prefix: str) -> dict[str, str]:
        """Return small values; see `EventStore.marks`."""
        found = await self._ask(reads.MARKS, *prefix_range(prefix))
        texts = [item.decode() for item in found]
        return dict(zip(texts[::2], texts[1::2], strict=True))

    async def erasures(self) -> int:
        """Return how many tombstones there are; see `CountsErasures`."""
        return int(await self._call("HLEN", f"{self._key}:tombstones"))

    async def blob_users(self, digest: str, limit: int) -> list[str]:
        """Return the runs of a blob; see `EventStore.blob_users`."""
        if limit < 1:
            return []
        found = await self._ask(reads.USERS, raw(digest), limit - 1)
        return [name.decode() for name in found]
