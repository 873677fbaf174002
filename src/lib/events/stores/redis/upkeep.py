"""How the server is run, and what it keeps of what was erased."""

from __future__ import annotations

import logging
from typing import Final

from lib._util.clock import Clock
from lib.errors import StoreError
from lib.events.stores.redis.server import Server

_log = logging.getLogger(__name__)

_OLDEST_SERVER: Final = (6, 2)
_LOOK_S: Final = 0.05


async def inspect(server: Server, store: str) -> None:
    """Warn if the server may lose what it has confirmed.

    Raises:
        StoreError: it is too old.
    """
    try:
        facts = await _facts(server)
    except StoreError as error:  # not permitted, or there is worse, which the next call will tell
        _log.warning("%s does not say how it is run", store, exc_info=error)
        return
    version = facts.get("redis_version", "0")
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_SERVER:
        raise StoreError(f"{store} is Redis {version}: it must be 6.2 or newer")
    if facts.get("aof_enabled") != "1":
        _log.warning(
            "%s keeps no append-only file: what it confirms may be lost when it stops; "
            "set appendonly to yes",
            store,
        )
    policy = facts.get("maxmemory_policy", "")
    if policy.startswith("allkeys"):
        _log.warning(
            "%s may evict logs when its memory is full (maxmemory-policy %s): set it to noeviction",
            store,
            policy,
        )


async def rewrite(server: Server, store: str, clock: Clock) -> None:
    """Let the server write its append-only file anew, from what it holds.

    Raises:
        StoreError: it could not, or does not permit it.
    """
    facts = await _settled(server, clock)  # a rewrite under way may be older than an erasure
    if facts.get("aof_enabled") != "1":
        return
    await server.call("BGREWRITEAOF")
    facts = await _settled(server, clock)
    if facts.get("aof_last_bgrewrite_status") != "ok":
        raise StoreError(f"{store} could not rewrite its append-only file")


async def _settled(server: Server, clock: Clock) -> dict[str, str]:
    """Return the facts once no rewrite is under way."""
    while True:
        facts = await _facts(server)
        if "1" not in (facts.get("aof_rewrite_in_progress"), facts.get("aof_rewrite_scheduled")):
            return facts
        await clock.sleep(_LOOK_S)


async def _facts(server: Server) -> dict[str, str]:
    text: bytes = await server.call("INFO")
    pairs = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value for name, _, value in pairs}
