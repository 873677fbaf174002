"""Chroma's clients: opened and closed; their answers; their errors as errors of `lib`."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Any, Final
from weakref import WeakValueDictionary

import chromadb
import httpx
from chromadb.api import AsyncServerAPI
from chromadb.api.async_client import AsyncClient
from chromadb.api.shared_system_client import SharedSystemClient
from chromadb.config import Settings
from chromadb.errors import ChromaError

from lib.errors import LibError, StoreUnavailable
from lib.http.failures import RETRYABLE
from lib.http.lifetime import watch

TIMEOUT_S: Final = 120.0
"""For each answer of a server; Chroma's own client would wait for ever."""

_HINTS: Final = {
    401: "check the credentials",
    403: "check what the credentials allow",
    404: "the tenant or database is missing, or this is not a Chroma server",
    413: "a record is larger than a request may be",
}
_ephemeral = count(1)
_sharing = Lock()
"""Held while a client in process is made or closed: those of one folder share parts, and Chroma
counts their users without a lock."""
_writing: WeakValueDictionary[str, Lock] = WeakValueDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """The server or folder where a store keeps its records.

    Attributes:
        path: of a folder; None for a server or for memory.
        host: of a server, or None.
        port: of that server.
        client: the caller's client, used instead.
    """

    path: str | None
    host: str | None
    port: int
    client: Any

    @property
    def blocks(self) -> bool:
        """True if its client blocks."""
        if self.client is not None:
            return not inspect.iscoroutinefunction(self.client.list_collections)
        return self.host is None

    @property
    def in_memory(self) -> bool:
        """True if its records end with the store object."""
        return self.client is None and self.path is None and self.host is None


async def opened(location: Location) -> Any:
    """Return a client; one that works in process blocks meanwhile.

    Raises:
        StoreUnavailable: this process has the folder open with other settings.
    """
    if location.client is not None:
        return location.client
    if location.host is not None:
        loop = asyncio.get_running_loop()
        return await asyncio.to_thread(_server, location.host, location.port, loop)
    settings = Settings(anonymized_telemetry=False)
    try:
        with _sharing:
            if location.path is None:
                return chromadb.EphemeralClient(settings=settings)
            return chromadb.PersistentClient(location.path, settings=settings)
    except ValueError as error:
        raise StoreUnavailable(
            "this process has opened Chroma there with other settings: pass that client="
        ) from error


class _Client(AsyncClient):
    """The client that `chromadb.AsyncHttpClient` returns, made off the event loop.

    Workaround: that function reads files on the event loop, checks no TLS certificates, and keeps
    the connections of all clients in one dict of the class, by the hash of their loop; a later
    loop can have the same hash, and be handed connections that are closed. And it keeps the parts
    of each client for others to share, though no other can, and never lets them go.
    """

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        shared: Any = SharedSystemClient
        try:
            super().__init__(settings=settings)
            server: Any = self._system.instance(AsyncServerAPI)
        finally:
            shared._decrement_refcount(self._identifier)  # noqa: SLF001 - see above
            shared._identifier_to_system.pop(self._identifier, None)  # noqa: SLF001 - see above
        self._server = server
        self._http = httpx.AsyncClient(
            timeout=TIMEOUT_S,
            headers={"content-type": "application/json"},
            event_hooks={"response": [watch]},
        )
        server._clients = {hash(loop): self._http}  # noqa: SLF001 - see above

    async def aclose(self) -> None:
        """Close the connections, for which Chroma has no public way."""
        await self._http.aclose()


def _server(host: str, port: int, loop: asyncio.AbstractEventLoop) -> Any:
    """Return a client of a server; no request is sent yet."""
    settings = Settings(anonymized_telemetry=False)
    settings.chroma_api_impl = "chromadb.api.async_fastapi.AsyncFastAPI"
    settings.chroma_server_host = host
    settings.chroma_server_http_port = port
    try:
        return _Client(settings, loop)
    except ValueError as error:
        raise StoreUnavailable(
            f"host is a name or an http or https address, got {host!r}"
        ) from error


async def closed(client: Any) -> None:
    """Close a client that `opened` has made."""
    if isinstance(client, _Client):
        await client.aclose()
    else:
        with _sharing:
            client.close()


def writing_alone(location: Location, client: Any) -> AbstractContextManager[Any]:
    """Return what is held while a client that blocks writes, each in its own store's thread.

    So other stores of this process that write to the same folder have to wait.
    """
    if not location.blocks:
        return nullcontext()
    shared = getattr(client, "_identifier", None)  # the folder as it was named, for one in process
    folder = os.path.realpath(shared) if isinstance(shared, str) else f"client {id(client)}"
    with _sharing:
        return _writing.setdefault(folder, Lock())


async def answer(result: Any) -> Any:
    """Return the result of a client's call: as it is, or once the server has answered."""
    if not inspect.isawaitable(result):
        return result
    async with asyncio.timeout(TIMEOUT_S):
        return await result


def own_prefix(location: Location, prefix: str) -> str:
    """Return a prefix that no other store has where all memory is one database: each its own."""
    return f"{prefix}.{next(_ephemeral)}" if location.in_memory else prefix


@contextmanager
def typed_errors() -> Generator[None]:
    """Raise what the client raises as `StoreUnavailable`; Chroma's words are its cause.

    They are not in the message, since they may repeat what was stored.
    """
    try:
        yield
    except LibError:
        raise
    except ChromaError as error:
        raise _refused(error) from error
    except httpx.HTTPError as error:
        raise StoreUnavailable(
            f"the Chroma server cannot be reached: {type(error).__name__}", retryable=True
        ) from error
    except OSError as error:
        raise _failed(error) from error
    except (
        ValueError,
        OverflowError,
    ) as error:  # its client raises them for what it did not expect
        raise StoreUnavailable(
            "Chroma's answer is unreadable, or its client refuses the call: "
            "the cause of this error holds its words"
        ) from error
    except Exception as error:
        # Workaround: its client raises this very class for an answer that it does not know.
        if type(error) is not Exception:
            raise
        raise _answered(error.__context__) from error


def _failed(error: OSError) -> StoreUnavailable:
    if isinstance(error, TimeoutError):
        return StoreUnavailable("the Chroma server did not answer in time", retryable=True)
    return StoreUnavailable(
        f"Chroma's folder or server cannot be used: {type(error).__name__}, {error.strerror}"
    )


def _answered(error: BaseException | None) -> StoreUnavailable:
    status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None
    hint = f": {_HINTS[status]}" if status in _HINTS else ""
    return StoreUnavailable(
        f"what should be a Chroma server answered {status}{hint}",
        status=status,
        retryable=status is not None and _may_pass(status),
    )


def _refused(error: ChromaError) -> StoreUnavailable:
    status = error.code()
    hint = _HINTS.get(status, "the cause of this error holds its words")
    return StoreUnavailable(
        f"Chroma answered {type(error).__name__}: {hint}",
        status=status,
        retryable=_may_pass(status),
    )


def _may_pass(status: int) -> bool:
    return status in RETRYABLE or status >= 500  # noqa: PLR2004 - HTTP
