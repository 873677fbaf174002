"""Live channels: messages of one moment, from the process that drives a run to its subscribers.

What is sent here is for display while it is fresh. It is never stored, may be lost at any time, and
the log replaces all of it. So nothing here waits: a message that finds a full queue, a lost
connection or no subscriber is dropped.

A subscriber that comes late announces itself, and the driver sends anew what is still being
written. Drivers remember announcements for half a minute and hear them every ten seconds, so that
they know without a request to the store which runs are watched: nothing is published for others.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, TypeVar

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.tasks import cancelled
from lib.errors import StoreError

_log = logging.getLogger(__name__)

_ANNOUNCE_S: Final = 10.0
_REMEMBER_S: Final = 30.0
_SILENT_S: Final = 45.0
"""A process hears its own announcements: with none for so long, the connection is dead."""
_MAX_QUEUED: Final = 1_024
_MAX_REMEMBERED: Final = 65_536
_NAMES_A_MESSAGE: Final = 40
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0

T = TypeVar("T")


class LiveChannel(Protocol):
    """Carries messages about runs, all of them in the order of `publish` or not at all.

    Every method returns at once and raises nothing; call them on the event loop of the store.
    """

    @property
    def max_bytes(self) -> int:
        """The most bytes that a message may have in UTF-8; larger ones are dropped."""
        ...

    def drive(self, run_id: str, joined: Callable[[], None]) -> Callable[[], None]:
        """Learn of subscribers of a run until the returned function is called.

        Args:
            run_id: the run, which this process drives.
            joined: is called whenever a subscriber has come, which has seen nothing yet.
        """
        ...

    def watched(self, run_id: str) -> bool:
        """Return True if there may be a subscriber of a run that this process drives."""
        ...

    def publish(self, run_id: str, message: str) -> None:
        """Send a message to all subscribers of the run, or drop it."""
        ...

    def subscribe(self, run_id: str, receive: Callable[[str], None]) -> Callable[[], None]:
        """Receive the messages about a run until the returned function is called.

        The caller has made sure that it may read the run. A message may come twice.

        Args:
            run_id: the run.
            receive: takes a message; it neither waits nor raises.
        """
        ...


class CarriesDeltas:
    """Base class of the event stores that have a live channel between the processes using them."""

    @property
    def live(self) -> LiveChannel:
        """The live channel; it carries nothing before `setup` and after `close`."""
        raise NotImplementedError


def live_of(store: object) -> LiveChannel | None:
    """Return the live channel of a store, None where it has none."""
    return store.live if isinstance(store, CarriesDeltas) else None


class LocalLive:
    """The live channel of a store that one process uses, and the part of others in the process."""

    max_bytes: int = 65_536

    def __init__(self) -> None:
        """Begin without subscribers."""
        self._drivers: dict[str, dict[object, Callable[[], None]]] = {}
        self._receivers: dict[str, dict[object, Callable[[str], None]]] = {}

    def drive(self, run_id: str, joined: Callable[[], None]) -> Callable[[], None]:
        """Learn of subscribers of a run; see `LiveChannel.drive`."""
        return _add(self._drivers, run_id, joined)

    def watched(self, run_id: str) -> bool:
        """Return True if the run has a subscriber."""
        return run_id in self._receivers

    def publish(self, run_id: str, message: str) -> None:
        """Send a message to all subscribers of the run, or drop it."""
        if len(message.encode()) <= self.max_bytes:
            self._deliver(run_id, message)

    def subscribe(self, run_id: str, receive: Callable[[str], None]) -> Callable[[], None]:
        """Receive the messages about a run; see `LiveChannel.subscribe`."""
        leave = _add(self._receivers, run_id, receive)
        self._call_drivers(run_id)
        return leave

    def _deliver(self, run_id: str, message: str) -> None:
        for receive in list(self._receivers.get(run_id, {}).values()):
            receive(message)

    def _call_drivers(self, run_id: str) -> None:
        for joined in list(self._drivers.get(run_id, {}).values()):
            joined()


def _add(table: dict[str, dict[object, T]], key: str, value: T) -> Callable[[], None]:
    """Add a value under a key; return the function that removes it, which is safe to repeat."""
    entries, token = table.setdefault(key, {}), object()
    entries[token] = value

    def remove() -> None:
        entries.pop(token, None)
        if not entries and table.get(key) is entries:
            del table[key]

    return remove


class LiveLink(Protocol):
    """An open connection to the other processes of a store; every method may raise `StoreError`."""

    async def listen(self, channels: Collection[str]) -> None:
        """Receive what is sent to these channels from now on; what comes to others is ignored."""
        ...

    async def send(self, messages: Sequence[tuple[str, str]]) -> None:
        """Send messages, each a channel and a text in ASCII."""
        ...

    async def receive(self) -> Sequence[tuple[str, str]]:
        """Wait for messages and return them; some may be of other channels."""
        ...


class RemoteLive(LocalLive):
    """The live channel of a store that many processes use, over one connection of each.

    The connection is opened when a run is first driven or subscribed to. While it is lost, there
    are no messages from other processes, and nothing else changes.
    """

    def __init__(
        self,
        connect: Callable[[Callable[[], bool]], AbstractAsyncContextManager[LiveLink]],
        *,
        store: str,
        max_bytes: int,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Connect to nothing yet; `open` allows it.

        Args:
            connect: opens the connection, and closes it again; its argument returns True if this
                process has subscribers, and does not only drive.
            store: for messages of the log.
            max_bytes: what the connection carries in one message.
            clock: paces announcements, and attempts to connect.
        """
        super().__init__()
        self.max_bytes = max_bytes
        self._connect, self._store, self._clock = connect, store, clock
        self._secret = ""
        self._peer = secrets.token_hex(4)
        self._is_open = self._linked = self._failing = False
        self._task: asyncio.Task[None] | None = None
        self._outbox: deque[tuple[str, str]] = deque()
        self._work = asyncio.Event()
        self._wanted: dict[str, str] = {}
        self._driven: dict[str, str] = {}
        self._watched_until: dict[str, float] = {}

    # -- life ------------------------------------------------------------------------------

    def open(self, store_id: str) -> None:
        """Allow a connection.

        Args:
            store_id: names of channels are made of it, so that only readers of the store have them.
                Without one there is no connection.
        """
        self._secret, self._is_open = store_id, bool(store_id)
        self._wanted = {self._channel(run_id): run_id for run_id in self._receivers}
        self._driven = {self._channel(run_id): run_id for run_id in self._drivers}
        if self._drivers or self._receivers:
            self._start()

    async def close(self) -> None:
        """Close the connection; safe to repeat."""
        self._is_open = False
        task, self._task = self._task, None
        if task is not None:
            await cancelled(task)
        self._linked = False
        self._outbox.clear()
        self._watched_until.clear()

    def _start(self) -> None:
        if self._is_open and self._task is None:
            self._work = asyncio.Event()  # of this event loop
            self._task = asyncio.get_running_loop().create_task(self._run(), name="lib.live")

    # -- the channel -----------------------------------------------------------------------

    def drive(self, run_id: str, joined: Callable[[], None]) -> Callable[[], None]:
        """Learn of subscribers of a run; see `LiveChannel.drive`."""
        self._start()
        stop = super().drive(run_id, joined)
        self._driven[self._channel(run_id)] = run_id
        return lambda: self._forget(run_id, stop)

    def watched(self, run_id: str) -> bool:
        """Return True if a subscriber has announced itself, here or elsewhere."""
        return super().watched(run_id) or self._is_watched_elsewhere(run_id)

    def _is_watched_elsewhere(self, run_id: str) -> bool:
        if not self._watched_until:
            return False
        return self._watched_until.get(self._channel(run_id), 0.0) > self._clock.monotonic()

    def publish(self, run_id: str, message: str) -> None:
        """Send a message to all subscribers of the run, or drop it."""
        super().publish(run_id, message)
        if len(message.encode()) <= self.max_bytes and self._is_watched_elsewhere(run_id):
            self._put(self._channel(run_id), message)

    def subscribe(self, run_id: str, receive: Callable[[str], None]) -> Callable[[], None]:
        """Receive the messages about a run; see `LiveChannel.subscribe`."""
        self._start()
        leave = super().subscribe(run_id, receive)
        self._wanted[self._channel(run_id)] = run_id
        self._send("join", [self._channel(run_id)])
        return lambda: self._forget(run_id, leave)

    def _forget(self, run_id: str, remove: Callable[[], None]) -> None:
        remove()
        for names, table in ((self._driven, self._drivers), (self._wanted, self._receivers)):
            if run_id not in table:
                names.pop(self._channel(run_id), None)

    def _channel(self, run_id: str) -> str:
        """Return the name of the channel of a run; of "", of the one for announcements."""
        name = f"{self._secret}/live/{run_id}".encode("utf-8", "surrogatepass")
        return hashlib.sha256(name).hexdigest()[:32]

    def _put(self, channel: str, message: str) -> None:
        if self._linked and len(self._outbox) < _MAX_QUEUED:
            self._outbox.append((channel, message))
            self._work.set()

    def _send(self, verb: str, channels: Collection[str] = ()) -> None:
        """Send an announcement to all processes."""
        names = list(channels)
        for first in range(0, len(names) or 1, _NAMES_A_MESSAGE):
            words = [verb, self._peer, *names[first : first + _NAMES_A_MESSAGE]]
            self._put(self._channel(""), " ".join(words))

    # -- the connection --------------------------------------------------------------------

    async def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            began = self._clock.monotonic()
            try:
                has_subscribers = lambda: bool(self._wanted)  # noqa: E731 - one expression
                async with self._connect(has_subscribers) as link, asyncio.TaskGroup() as group:
                    await link.listen(self._listening())
                    self._linked = True
                    self._send("hello")
                    self._send("join", self._wanted)
                    for work in (self._read(link), self._write(link), self._announce()):
                        group.create_task(work, name="lib.live")
            except* (StoreError, OSError) as errors:
                self._note(errors)
            self._linked = False
            self._outbox.clear()
            if self._clock.monotonic() - began > _LONGEST_PAUSE_S:
                pause_s = _FIRST_PAUSE_S
            await self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _note(self, errors: ExceptionGroup[StoreError | OSError]) -> None:
        if not self._failing:
            what = "%s: no deltas from or to other processes until it can be reached again: %s"
            _log.warning(what, self._store, errors.exceptions[0])
        self._failing = True

    def _listening(self) -> set[str]:
        return {self._channel(""), *self._wanted}

    async def _read(self, link: LiveLink) -> None:
        announcements = self._channel("")
        while True:
            try:
                async with asyncio.timeout(_SILENT_S):
                    messages = await link.receive()
            except TimeoutError:
                text = f"{self._store} is silent: it does not return what is announced"
                raise StoreError(text, retryable=True) from None
            for channel, message in messages:
                if channel == announcements:
                    self._hear(*message.split(" "))
                elif run_id := self._wanted.get(channel):
                    self._deliver(run_id, message)

    async def _write(self, link: LiveLink) -> None:
        listening: set[str] = set()
        while True:
            if (wanted := self._listening()) != listening:
                await link.listen(wanted)
                listening = wanted
            batch, self._outbox = list(self._outbox), deque()
            if batch:
                await link.send(batch)
            else:
                await self._work.wait()
                self._work.clear()

    async def _announce(self) -> None:
        while True:
            await self._clock.sleep(_ANNOUNCE_S)
            self._send("watch", self._wanted)

    def _hear(self, verb: str = "", peer: str = "", *channels: str) -> None:
        """Take an announcement: of a driver that has come, or of subscribers."""
        if peer == self._peer:  # so the connection works, in both directions
            self._failing = False
            return
        if verb == "hello" and self._wanted:
            self._send("join", self._wanted)
        until, watched = self._clock.monotonic() + _REMEMBER_S, self._watched_until
        joined = [name for name in channels if verb == "join" or name not in watched]
        for channel in channels:
            watched.pop(channel, None)  # the latest are last
            watched[channel] = until
        while watched and (
            len(watched) > _MAX_REMEMBERED or watched[next(iter(watched))] <= until - _REMEMBER_S
        ):
            del watched[next(iter(watched))]
        for channel in joined:
            if run_id := self._driven.get(channel):
                self._call_drivers(run_id)
