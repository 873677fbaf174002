"""The connections to a server, and Redis's errors as ours; the only user of the driver.

Nothing is ever sent twice: a script that writes may have run although its answer was lost.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from lib._util.clock import Clock
from lib.errors import MissingDriver, StoreClosed, StoreCorrupt, StoreError, StoreReadOnly

_log = logging.getLogger(__name__)

_OLDEST_SERVER: Final = (6, 2)
_LOOK_S: Final = 0.05

GONE: Final = "LIBGONE"
"""The error of scripts that find no store any more."""
GONE_TEXT: Final = (
    "is gone: another client deleted its keys, or the server came back without its data; "
    "restore them, or open the store anew to begin an empty one"
)

_REFUSALS: Final = (
    (GONE, StoreCorrupt, GONE_TEXT),
    # The texts of Redis's own errors: the driver has no types for those of a script.
    ("READONLY", StoreReadOnly, "is a replica, which cannot be written"),
    ("OOM ", StoreError, "is out of memory (maxmemory) and takes no writes"),
    ("MISCONF", StoreError, "cannot save to its disk and takes no writes"),
    ("NOREPLICAS", StoreError, "has too few replicas and takes no writes"),
    ("LOADING", StoreError, "is still loading its data"),
    ("BUSY", StoreError, "is busy with a script"),
    ("WRONGTYPE", StoreCorrupt, "holds other data under the store's keys"),
    ("NOPERM", StoreError, "does not permit this user a command or a key"),
    ("NOAUTH", StoreError, "wants a password"),
    ("WRONGPASS", StoreError, "refuses the user name or the password"),
    ("MOVED", StoreError, "is a node of a cluster that does not hold this store"),
)
_PASSING: Final = frozenset({"OOM ", "MISCONF", "NOREPLICAS", "LOADING", "BUSY"})
_DRIVER_REFUSALS: Final = {
    # The driver cuts the first word off these.
    "ReadOnlyError": "READONLY",
    "OutOfMemoryError": "OOM ",
    "BusyLoadingError": "LOADING",
    "NoPermissionError": "NOPERM",
    "AuthenticationError": "WRONGPASS",
    "MovedError": "MOVED",
}


class Server:
    """A bounded number of connections to one server."""

    def __init__(self, url: str, store: str, *, connections: int, timeout_s: float) -> None:
        """Prepare the connections; they are made on demand.

        Args:
            url: of the server, as redis-py reads it.
            store: its name in errors.
            connections: at most so many at once.
            timeout_s: how long to wait for a free connection, for the server to accept one, and
                for the answers to what is sent in one go, each.

        Raises:
            MissingDriver: redis is not installed.
            ValueError: the URL is invalid.
        """
        self._redis = _driver()
        self._store = store
        self._connections = connections
        self._timeout_s = timeout_s
        self._free = asyncio.Semaphore(connections)
        self._closed = False
        try:
            self._pool = self._redis.pool(**self._options(url))
            self._pool.make_connection()
        except (TypeError, ValueError):
            # Without the driver's message, which may quote a part of the password.
            raise ValueError(
                "the URL is not redis://, rediss:// or unix://, or has a port or an option that "
                "redis-py does not know"
            ) from None

    def _options(self, url: str) -> dict[str, Any]:
        ours: dict[str, Any] = {
            "max_connections": self._connections,
            # Ours end in `_connection`: the driver's are made with `asyncio.wait_for`, which in
            # Python 3.11 swallows a cancellation that comes as the last byte is written.
            "socket_timeout": None,
            "socket_connect_timeout": None,
            "decode_responses": False,
            "protocol": 2,
            "retry": self._redis.never,
            "retry_on_error": [],
            # Else it reads the version of its own package from the disk for every connection.
            **dict.fromkeys(self._redis.library),
        }
        return {**self._redis.parse_url(url), **ours}

    async def run(self, script: str, key: str, *args: bytes | str | int) -> Any:
        """Run a script and return its reply; its text is sent only if the server lacks it."""
        async with self._connection() as connection:
            try:
                return await _request(connection, "EVALSHA", _sha1(script), 1, key, *args)
            except self._redis.errors.NoScriptError:  # it has not run
                return await _request(connection, "EVAL", script, 1, key, *args)

    async def call(self, *command: bytes | str | int) -> Any:
        """Send a command and return its reply."""
        async with self._connection() as connection:
            return await _request(connection, *command)

    async def together(self, commands: Sequence[Sequence[bytes | str | int]]) -> list[Any]:
        """Send commands in one go and return their replies."""
        async with self._connection() as connection:
            packed = connection.pack_commands(commands)
            await connection.send_packed_command(packed)
            return [await connection.read_response() for _ in commands]

    async def close(self) -> None:
        """Wait for what is under way, and close all connections."""
        self._closed = True
        try:
            for _ in range(self._connections):
                await self._free.acquire()
        finally:
            with suppress(OSError, self._redis.errors.RedisError):
                await self._pool.disconnect()

    @asynccontextmanager
    async def apart(self) -> AsyncGenerator[Any]:
        """Yield a connection beside the others, for subscriptions."""
        connection = self._pool.make_connection()
        try:
            with self.typed_errors("cannot be reached"):
                async with asyncio.timeout(self._timeout_s):
                    await connection.connect()
            yield connection
        finally:
            await connection.disconnect(nowait=True)

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Any]:
        if self._closed:
            raise StoreClosed(f"{self._store} has been closed")
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._free.acquire()
        except TimeoutError:
            raise StoreError(
                f"{self._store}: all {self._connections} connections were in use for "
                f"{self._timeout_s} s: raise max_connections",
                retryable=True,
            ) from None
        try:
            with self.typed_errors("cannot be reached"):
                async with asyncio.timeout(self._timeout_s):
                    connection = await self._pool.get_connection()
            try:
                with self.typed_errors("lost its connection: what was under way may have happened"):
                    async with asyncio.timeout(self._timeout_s):
                        yield connection
            except BaseException:
                # Half an answer may be left in it, above all when the caller was cancelled.
                await connection.disconnect(nowait=True)
                raise
            finally:
                await self._pool.release(connection)
        finally:
            self._free.release()

    @contextmanager
    def typed_errors(self, trouble: str) -> Generator[None]:
        """Raise what the driver raises as a `StoreError` of the right type."""
        try:
            yield
        except (self._redis.errors.RedisError, OSError) as error:
            cause = f"no answer within {self._timeout_s:g} s" if _timed_out(error) else str(error)
            unanswered = (StoreError, f"{trouble} ({cause})", True)
            kind, message, retryable = self._refusal(error) or unanswered
            raise kind(f"{self._store} {message}", retryable=retryable) from error

    def _refusal(self, error: Exception) -> tuple[type[StoreError], str, bool] | None:
        """Return the type and the message of a refusal, and whether a retry may succeed."""
        text = _DRIVER_REFUSALS.get(type(error).__name__, "") + str(error)
        for word, kind, message in _REFUSALS:
            if word in text:
                return kind, message, word in _PASSING
        if isinstance(error, self._redis.errors.ResponseError):
            return StoreError, f"refused a command: {str(error)[:200]}", False
        return None


def _timed_out(error: Exception) -> bool:
    return isinstance(error, TimeoutError) and not error.args


@cache
def _sha1(script: str) -> str:
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


async def _request(connection: Any, *command: bytes | str | int) -> Any:
    await connection.send_command(*command)
    return await connection.read_response()


@dataclass(frozen=True, slots=True)
class _Driver:
    """The parts of redis-py in use, untyped as its own types are incomplete.

    Attributes:
        never: its policy of no retries.
        library: the options that send the server the name and the version of redis-py.
    """

    pool: Any
    parse_url: Any
    never: Any
    errors: Any
    library: Sequence[str]


def _driver() -> _Driver:
    try:
        import redis  # noqa: PLC0415 - only a store needs it
        from redis import asyncio, backoff, exceptions  # noqa: PLC0415 - as above
        from redis.asyncio import connection, retry  # noqa: PLC0415 - as above
    except ImportError as error:
        raise MissingDriver("RedisEventStore", driver="redis", extra="redis") from error
    return _Driver(
        pool=asyncio.ConnectionPool,
        parse_url=connection.parse_url,
        never=retry.Retry(backoff.NoBackoff(), 0),
        errors=exceptions,
        library=("driver_info",) if hasattr(redis, "driver_info") else ("lib_name", "lib_version"),
    )


async def inspect(server: Server, store: str) -> None:
    """Warn if the server may lose what it has confirmed.

    Raises:
        StoreError: it is too old.
    """
    try:
        facts = await _facts(server)
    except StoreError as error:
        if error.retryable:  # the next call meets it, too
            return
        _log.warning("%s does not tell how it is configured: %s", store, error)
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
    """Make the server rewrite its append-only file from its present data.

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
