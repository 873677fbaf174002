"""`SyncClient`: the methods of `Client` for programs without an event loop.

They are made of those of `Client`, which run in a thread of their own; so they also work where a
loop runs already, as in a notebook.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from lib.resilience import RetryPolicy
from lib_server.client.client import RETRIES, Client

P = ParamSpec("P")
T = TypeVar("T")
Y = TypeVar("Y")

_END: Final = object()


def _waits(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    """Return a method that waits for what a method of `Client` returns."""

    @functools.wraps(method)
    def waiting(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.wait_for(method(self.client, *args, **kwargs))

    return waiting


def _iterates(
    method: Callable[Concatenate[Client, P], AsyncGenerator[Y]],
) -> Callable[Concatenate[SyncClient, P], Generator[Y]]:
    """Return a method that yields what a method of `Client` yields."""

    @functools.wraps(method)
    def iterating(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Generator[Y]:
        items = method(self.client, *args, **kwargs)
        try:
            while (item := self.wait_for(_next(items))) is not _END:
                yield item
        finally:
            if self.is_open:
                self.wait_for(items.aclose())

    return iterating


async def _next(items: AsyncGenerator[Any]) -> Any:
    return await anext(items, _END)


class SyncClient:
    """Speaks to a server: `with SyncClient("http://127.0.0.1:8000") as client`; see `Client`.

    One client may be used by several threads.

    Attributes:
        client: does the work, in the loop of the thread.
    """

    def __init__(
        self, base_url: str, *, api_key: str | None = None, retries: RetryPolicy = RETRIES
    ) -> None:
        """Prepare; see `Client`."""
        self.client: Client = Client(base_url, api_key=api_key, retries=retries)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="lib_server.client", daemon=True
        )
        self._thread.start()
        self.wait_for(self.client.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections and end its thread; safe to repeat."""
        if self._loop is None or self._thread is None:
            return
        self.wait_for(self._loop.shutdown_asyncgens())
        self.wait_for(self.client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    @property
    def is_open(self) -> bool:
        """True between its opening and its end."""
        return self._loop is not None

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work in the loop of the client, and wait for it; an interrupt cancels it."""
        if self._loop is None:
            work.close()
            raise RuntimeError("expected an open client: with SyncClient(…) as client")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    agents = _waits(Client.agents)
    start = _waits(Client.start)
    run = _waits(Client.run)
    runs = _iterates(Client.runs)
    result = _waits(Client.result)
    cancel = _waits(Client.cancel)
    stream = _iterates(Client.stream)
    approvals = _iterates(Client.approvals)
    approve = _waits(Client.approve)
    deny = _waits(Client.deny)
    unknown_calls = _iterates(Client.unknown_calls)
    settle = _waits(Client.settle)
    start_session = _waits(Client.start_session)
    session = _waits(Client.session)
    send = _waits(Client.send)
    history = _waits(Client.history)
    close_session = _waits(Client.close_session)
    score = _waits(Client.score)
    scores = _waits(Client.scores)
    upload = _waits(Client.upload)
    download = _waits(Client.download)
