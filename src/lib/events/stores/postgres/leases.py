"""Leases: claims, renewals and releases; those that wait at the same time share a round trip.

A shared statement skips the rows that another transaction is writing to: waiting for one of them
would keep all the others waiting, and two statements that wait for each other's rows would never
end. Each claim or change that was skipped is tried again alone, and waits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from lib._util.batcher import Batcher
from lib._util.clock import Clock, own_time
from lib._util.postgres import Connections, array, integers, run, texts
from lib.events.codec import decode_time, encode_time
from lib.events.runs import FARTHEST_LEASE, Lease
from lib.events.stores.postgres.batch import BYTEA
from lib.events.stores.postgres.rows import Row, run_name, text, untext
from lib.events.stores.postgres.schema import Place, typed_errors

_MICROSECOND: Final = timedelta(microseconds=1)
_MAX_ITEMS: Final = 256
"""How many share a statement."""

_CLAIM: Final = """
    WITH t AS MATERIALIZED (SELECT $now AS now), free AS MATERIALIZED (
        SELECT id, owner IS NOT NULL AS takeover FROM {lib_runs}
        WHERE outcome IS NULL AND (lease_until IS NULL OR lease_until <= (SELECT now FROM t)
                OR lease_until > (SELECT now + $farthest FROM t))
            AND $which
        ORDER BY id LIMIT %(limit)s::bigint FOR UPDATE $locked
    )
    UPDATE {lib_runs} r
    SET owner = %(owner)s::text, lease_until = (SELECT now FROM t) + %(lasts)s::bigint,
        epoch = r.epoch + 1
    FROM free WHERE r.id = free.id
    RETURNING r.id, r.run_id, r.epoch, free.takeover, r.lease_until
"""
_SERVERS_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_READY: Final = "ready"
_THIS_ONE: Final = "name = %(name)s::bytea"
_OF_THESE: Final = " AND algorithm = ANY(%(algorithms)s::text[])"
_NONE_OF_THESE: Final = " AND NOT (name = ANY(%(skip)s::bytea[]))"
_CLAIM_THESE: Final = """
    WITH t AS MATERIALIZED (SELECT $now AS now), free AS MATERIALIZED (
        SELECT id, owner IS NOT NULL AS takeover, a.claimant, a.lasts
        FROM {lib_runs} JOIN unnest(%(names)s::bytea[], %(owners)s::text[], %(lasts)s::bigint[])
            AS a(wanted, claimant, lasts) ON name = wanted
        WHERE outcome IS NULL AND (lease_until IS NULL OR lease_until <= (SELECT now FROM t)
            OR lease_until > (SELECT now + $farthest FROM t))
        FOR UPDATE OF lib_runs SKIP LOCKED
    )
    UPDATE {lib_runs} r SET owner = free.claimant,
        lease_until = (SELECT now FROM t) + free.lasts, epoch = r.epoch + 1
    FROM free WHERE r.id = free.id
    RETURNING r.id, r.run_id, r.epoch, free.takeover, r.lease_until, r.name
"""
_CHANGE: Final = """
    WITH held AS MATERIALIZED (
        SELECT id, wanted, value
        FROM {lib_runs} JOIN unnest(%(names)s::bytea[], %(owners)s::text[], %(epochs)s::bigint[],
            %(values)s::bigint[]) AS a(wanted, holder, held_epoch, value)
            ON name = wanted AND owner = holder AND epoch = held_epoch
        FOR UPDATE OF lib_runs $locked
    )
    UPDATE {lib_runs} r SET $change FROM held WHERE r.id = held.id
    RETURNING held.wanted, r.lease_until
"""
_RENEW: Final = "lease_until = $now + held.value"
_RELEASE: Final = (
    "owner = NULL, lease_until = NULL, ready = r.ready AND r.head IS DISTINCT FROM held.value"
)


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claim of leases by an owner; `lasts` is in microseconds."""

    owner: str
    lasts: int
    name: bytes = b""


@dataclass(frozen=True, slots=True)
class _Change:
    """A renewal or a release of a lease.

    Attributes:
        value: microseconds from now for a renewal; the head of an idle run for a release.
    """

    name: bytes
    owner: str
    epoch: int
    value: int | None


class Leases:
    """The leases of one store."""

    def __init__(self, place: Place, connections: Connections, clock: Clock) -> None:
        """Take connections to a store that has the newest layout."""
        self._place, self._connections, self._clock = place, connections, clock
        self._claims = Batcher(self._claim_these, max_items=_MAX_ITEMS, name="lib.events.claim")
        self._renewals = self._changes(_RENEW, "lib.events.renew")
        self._releases = self._changes(_RELEASE, "lib.events.release")

    def _changes(self, change: str, name: str) -> Batcher[_Change, Row | None]:
        return Batcher(partial(self._change_these, change), max_items=_MAX_ITEMS, name=name)

    async def drained(self) -> None:
        """Return when nothing waits and nothing is under way."""
        for each in (self._claims, self._renewals, self._releases):
            await each.drained()

    # -- claiming --------------------------------------------------------------------------

    async def claim(
        self,
        owner: str,
        *,
        lasts: timedelta,
        run_id: str | None,
        limit: int,
        algorithms: Collection[str] | None,
        skip: Collection[str],
    ) -> list[Lease]:
        """Take leases; see `EventStore.claim`.

        A claim of many skips the runs that another transaction is writing to or claiming.
        """
        name = b"" if run_id is None else run_name(run_id)
        claim = _Claim(text(owner), lasts // _MICROSECOND, name)
        plain = name and limit > 0 and algorithms is None and not skip
        row = await self._claims.put(claim) if plain else None
        rows = [row] if row else await self._claim_alone(claim, limit, algorithms, skip)
        return [
            Lease(
                run_id=untext(run_id),
                owner=owner,
                epoch=epoch,
                until=decode_time(until),
                takeover=takeover,
            )
            for _, run_id, epoch, takeover, until, *_ in rows
        ]

    async def _claim_alone(
        self, claim: _Claim, limit: int, algorithms: Collection[str] | None, skip: Collection[str]
    ) -> list[Row]:
        values: dict[str, Any] = {"owner": claim.owner, "lasts": claim.lasts}
        values |= {"limit": limit, "name": claim.name}
        which, locked = (_THIS_ONE, "") if claim.name else (_READY, "SKIP LOCKED")
        if algorithms is not None:
            which += _OF_THESE
            values["algorithms"] = texts([text(name) for name in algorithms])
        if skip:
            which += _NONE_OF_THESE
            values["skip"] = array(BYTEA, [run_name(run_id) for run_id in skip])
        statement = _CLAIM.replace("$which", which).replace("$locked", locked)
        return sorted(await self._fetch(statement, values))

    async def _claim_these(self, claims: Sequence[_Claim]) -> list[Row | None]:
        """Claim runs by name; of several claims of one run only the first counts."""
        first = {claim.name: claim for claim in reversed(claims)}
        values = {
            "names": array(BYTEA, list(first)),
            "owners": texts([claim.owner for claim in first.values()]),
            "lasts": integers([claim.lasts for claim in first.values()]),
        }
        rows = await self._fetch(_CLAIM_THESE, values, fixed=True)
        claimed = {row[-1]: row for row in rows}
        return [claimed.get(each.name) if first[each.name] is each else None for each in claims]

    # -- renewing and releasing ------------------------------------------------------------

    async def renew(self, lease: Lease, lasts: timedelta) -> Lease | None:
        """Move the end of a lease; see `EventStore.renew`."""
        change = _change(lease, lasts // _MICROSECOND)
        held = await self._renewals.put(change) or await self._change_alone(_RENEW, change)
        return replace(lease, until=decode_time(held[1])) if held else None

    async def release(self, lease: Lease, idle_at: int | None) -> None:
        """Give a lease back; see `EventStore.release`."""
        change = _change(lease, idle_at)
        if not await self._releases.put(change):
            await self._change_alone(_RELEASE, change)

    async def _change_alone(self, change: str, held: _Change) -> Row | None:
        return (await self._change(change, [held], locked="")).get(held.name)

    async def _change_these(self, change: str, changes: Sequence[_Change]) -> list[Row | None]:
        latest = {each.name: each for each in changes}
        changed = await self._change(change, list(latest.values()), locked="SKIP LOCKED")
        return [changed.get(each.name) if latest[each.name] == each else None for each in changes]

    async def _change(
        self, change: str, held: Sequence[_Change], *, locked: str
    ) -> dict[bytes, Row]:
        values = {
            "names": array(BYTEA, [each.name for each in held]),
            "owners": texts([each.owner for each in held]),
            "epochs": integers([each.epoch for each in held]),
            "values": integers([each.value for each in held]),
        }
        statement = _CHANGE.replace("$change", change).replace("$locked", locked)
        return {row[0]: row for row in await self._fetch(statement, values, fixed=True)}

    async def _fetch(
        self, statement: str, values: dict[str, Any], *, fixed: bool = False
    ) -> list[Row]:
        """Return the rows of a statement; `fixed` for one whose best plan is always the same."""
        now = own_time(self._clock)
        if now is None:
            statement = statement.replace("$now", _SERVERS_NOW)
        else:
            statement = statement.replace("$now", "%(now)s::bigint")
            values["now"] = encode_time(now)
        statement = statement.replace("$farthest", str(FARTHEST_LEASE // _MICROSECOND))
        with typed_errors(self._place.name):
            async with self._connections.asking() as using:
                query = self._place.fixed(statement) if fixed else self._place.put(statement)
                return await (await run(using, query, values)).fetchall()


def _change(lease: Lease, value: int | None) -> _Change:
    return _Change(run_name(lease.run_id), text(lease.owner), lease.epoch, value)
