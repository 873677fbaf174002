"""Deltas of replies on their way from handlers to those who watch, in this process and in others.

A delta names its place: the epoch of the lease under which it was written, the attempt, and how
many characters were written before it. From that a watcher sees what it has shown already, what was
lost, and where a reply begins anew, however the delta came. It shows the beginning of one attempt,
without a gap and nothing twice.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, Protocol, TypeGuard, TypeVar
from weakref import WeakSet

from lib.engine.handlers.base import LiveDelta
from lib.events.live import LiveChannel
from lib.events.wakeups import Wakeups
from lib.llm import Delta

FLUSH_S: Final = 0.05
"""Seconds between two messages about one reply to other processes."""
FLUSH_CHARS: Final = 2_048
"""Characters of a reply that are sent to other processes before those seconds are over."""
MAX_SHARED_CHARS: Final = 262_144
"""Characters of a reply, and of its thinking, of which other processes see deltas."""
MAX_WAITING: Final = 10_000
"""Deltas that wait for one watcher; more are dropped."""

_MAX_REPLIES: Final = 256
_MOMENT_S: Final = 0.1
_SETTLED: Final = (float("inf"), 0)

T = TypeVar("T")


# -- one reply -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Shown:
    version: tuple[float, int]
    text: int = 0
    thinking: int = 0


class ShownReplies:
    """Replies of a run, as far as a watcher has shown them."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._epoch = 0
        self._replies: OrderedDict[str, _Shown] = OrderedDict()

    def resume(self, epoch: int) -> None:
        """Take note that a worker with a lease of this epoch drives the run."""
        self._epoch = max(self._epoch, epoch)

    def settle(self, key: str) -> None:
        """Take note that the reply is in the log: nothing more is shown of it."""
        self._keep(key, _Shown(_SETTLED))

    def take(self, live: LiveDelta) -> tuple[LiveDelta | None, bool]:
        """Return what of a delta is new, or None, and True if it begins the reply anew."""
        version, shown = (live.epoch, live.attempt), self._replies.get(live.key)
        if live.epoch < self._epoch or (shown is not None and version < shown.version):
            return None, False
        self._epoch = live.epoch
        restarts = shown is not None and version > shown.version
        at = _Shown(version) if shown is None or restarts else shown
        if live.text_at > at.text or live.thinking_at > at.thinking:
            return None, False  # something was lost: the reply in the log replaces it
        text = live.delta.text[at.text - live.text_at :]
        thinking = live.delta.thinking[at.thinking - live.thinking_at :]
        if not (text or thinking or live.delta.tool_call):
            return None, False
        new = replace(
            live,
            text_at=at.text,
            thinking_at=at.thinking,
            delta=replace(live.delta, text=text, thinking=thinking),
        )
        at.text, at.thinking = at.text + len(text), at.thinking + len(thinking)
        self._keep(live.key, at)
        return new, restarts

    def _keep(self, key: str, shown: _Shown) -> None:
        self._replies[key] = shown
        self._replies.move_to_end(key)
        if len(self._replies) > _MAX_REPLIES:
            self._replies.popitem(last=False)


@dataclass(eq=False)
class ReplyWriter:
    """Takes the deltas of one model call from its handler and passes them on.

    Watchers of this process get each at once. Other processes get a message in `FLUSH_S` seconds,
    or for `FLUSH_CHARS` characters, and only while one of them watches.

    Attributes:
        run_id: the run.
        seq: that of the request.
        epoch: that of the lease.
        hub: has the watchers.
        live: the way to other processes, None if nothing is shared with them.
    """

    run_id: str
    seq: int
    epoch: int
    hub: DeltaHub
    live: LiveChannel | None
    _key: str = ""
    _attempt: int = 0
    _text: list[str] = field(default_factory=list[str], repr=False)
    _thinking: list[str] = field(default_factory=list[str], repr=False)
    _half: tuple[str, str] = ("", "")
    _at: tuple[int, int] = (0, 0)
    _sent: tuple[int, int] = (0, 0)
    _flushed_s: float = 0.0
    _timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    def __call__(self, piece: LiveDelta) -> None:
        """Take a delta of the handler."""
        if (piece.key, piece.attempt) != (self._key, self._attempt):
            self._key, self._attempt, self._half = piece.key, piece.attempt, ("", "")
            self._text, self._thinking = [], []
            self._at = self._sent = (0, 0)
        text_at, thinking_at = self._at
        text, half = _joined(self._half[0] + piece.delta.text)
        thinking, half_thought = _joined(self._half[1] + piece.delta.thinking)
        self._half = half, half_thought
        placed = LiveDelta(
            key=piece.key,
            attempt=piece.attempt,
            delta=(delta := replace(piece.delta, text=text, thinking=thinking)),
            epoch=self.epoch,
            seq=self.seq,
            text_at=text_at,
            thinking_at=thinking_at,
        )
        self._at = text_at + len(delta.text), thinking_at + len(delta.thinking)
        self.hub.show(self.run_id, placed)
        if text_at < MAX_SHARED_CHARS and thinking_at < MAX_SHARED_CHARS:
            self._text.append(delta.text[: MAX_SHARED_CHARS - text_at])
            self._thinking.append(delta.thinking[: MAX_SHARED_CHARS - thinking_at])
            if self.live is not None and self.live.watched(self.run_id):
                self._flush_soon()

    def repeat(self) -> None:
        """Send anew what has been written, for a subscriber that has just come."""
        self._sent = (0, 0)
        self._flush()

    def _flush_soon(self) -> None:
        loop = asyncio.get_running_loop()
        wait_s = self._flushed_s + FLUSH_S - loop.time()
        if wait_s <= 0 or sum(self._at) - sum(self._sent) >= FLUSH_CHARS:
            self._flush()
        elif self._timer is None:
            self._timer = loop.call_later(wait_s, self._flush)

    def _flush(self) -> None:
        self._flushed_s = asyncio.get_running_loop().time()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.live is None or not self.live.watched(self.run_id):
            return
        new = self.written(*self._sent)
        text_at, thinking_at = self._sent
        self._sent = text_at + len(new.delta.text), thinking_at + len(new.delta.thinking)
        if self._sent != (text_at, thinking_at):
            for message in messages_of(new, self.live.max_bytes):
                self.live.publish(self.run_id, message)

    def written(self, text_at: int = 0, thinking_at: int = 0) -> LiveDelta:
        """Return what has been written behind these characters, as one delta."""
        self._text, self._thinking = ["".join(self._text)], ["".join(self._thinking)]
        return LiveDelta(
            key=self._key,
            attempt=self._attempt,
            delta=Delta(self._text[0][text_at:], self._thinking[0][thinking_at:]),
            epoch=self.epoch,
            seq=self.seq,
            text_at=text_at,
            thinking_at=thinking_at,
        )


def _joined(text: str) -> tuple[str, str]:
    """Return a text with whole characters, and the half of one at its end.

    Some servers cut a character into its two surrogates, one in each piece.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        units = text[: len(text) - len(half)].encode("utf-16-le", "surrogatepass")
        return units.decode("utf-16-le", "replace"), half
    return text, ""


# -- messages between processes ------------------------------------------------------------


def messages_of(live: LiveDelta, max_bytes: int) -> Generator[str]:
    """Yield a delta as messages in ASCII, each of which is a delta that stands by itself."""
    text, thinking = live.delta.text, live.delta.thinking
    parts: list[Any] = [live.epoch, live.attempt, live.seq, live.text_at, live.thinking_at]
    message = json.dumps([*parts, live.key, text, thinking])
    if len(message) <= max_bytes:
        yield message
    elif len(text) + len(thinking) > 1:  # else its key fills the message
        for half in _halves(live):
            yield from messages_of(half, max_bytes)


def _halves(live: LiveDelta) -> tuple[LiveDelta, LiveDelta]:
    text, thinking = live.delta.text, live.delta.thinking
    t, h = len(text) // 2, (len(thinking) + 1) // 2
    first = replace(live, delta=Delta(text[:t], thinking[:h]))
    rest = Delta(text[t:], thinking[h:])
    return first, replace(
        live, delta=rest, text_at=live.text_at + t, thinking_at=live.thinking_at + h
    )


def delta_of(message: str) -> LiveDelta | None:
    """Return the delta of a message, None for what is no such message."""
    try:
        fields: object = json.loads(message)
    except (ValueError, RecursionError):
        return None
    if not _is_message(fields):
        return None
    epoch, attempt, seq, text_at, thinking_at, key, text, thinking = fields
    return LiveDelta(
        key=key,
        attempt=attempt,
        delta=Delta(text, thinking),
        epoch=epoch,
        seq=seq,
        text_at=text_at,
        thinking_at=thinking_at,
    )


_NUMBERS: Final = 5
_FIELDS: Final = 8


def _is_message(fields: object) -> TypeGuard[list[Any]]:
    if not isinstance(fields, list) or len(fields) != _FIELDS:  # pyright: ignore[reportUnknownArgumentType] - of any items
        return False
    numbers: list[Any] = fields[:_NUMBERS]  # pyright: ignore[reportUnknownVariableType] - as above
    texts: list[Any] = fields[_NUMBERS:]  # pyright: ignore[reportUnknownVariableType] - as above
    return all(type(number) is int and number >= 0 for number in numbers) and all(
        isinstance(text, str) for text in texts
    )


# -- watchers ------------------------------------------------------------------------------


class Watcher(Protocol):
    """A receiver of deltas; None says that this process no longer drives the run."""

    def put_nowait(self, item: LiveDelta | None, /) -> None:
        """Take one, or drop it."""
        ...


class DeltaQueue(Generic[T]):
    """A queue of deltas and other items, in which a slow reader costs what `MAX_WAITING` says."""

    def __init__(self, on_stop: Callable[[], None] = lambda: None) -> None:
        """Begin empty.

        Args:
            on_stop: is called when this process no longer drives the run.
        """
        self._on_stop = on_stop
        self._items: deque[LiveDelta | T] = deque()
        self._readable, self._writable = asyncio.Event(), asyncio.Event()
        self._ended = False

    def __len__(self) -> int:
        """Return how many items wait."""
        return len(self._items)

    def put_nowait(self, item: LiveDelta | None, /) -> None:
        """Take a delta, or drop it; None calls `on_stop`."""
        if item is None:
            self._on_stop()
        elif len(self._items) < MAX_WAITING:
            self._items.append(item)
            self._readable.set()

    async def put(self, item: T) -> None:
        """Take an item, after there is room for it."""
        while len(self._items) >= MAX_WAITING:
            self._writable.clear()
            await self._writable.wait()
        self._items.append(item)
        self._readable.set()

    def end(self) -> None:
        """Let `get` return None when it has returned all items."""
        self._ended = True
        self._readable.set()

    async def get(self) -> LiveDelta | T | None:
        """Wait for an item and return it; None at the end."""
        while not self._items:
            if self._ended:
                return None
            self._readable.clear()
            await self._readable.wait()
        self._writable.set()
        return self._items.popleft()


# -- the hub -------------------------------------------------------------------------------


class DeltaHub:
    """Carries deltas of replies to the watchers of this process, whatever process drives the run.

    It subscribes to the store's live channel for runs that are watched and not driven here.
    """

    def __init__(
        self,
        live: LiveChannel | None,
        wakeups: Wakeups,
        *,
        shares: bool = True,
        drives: bool = False,
    ) -> None:
        """Make a hub without watchers.

        Args:
            live: the way to and from other processes, None if there is none.
            wakeups: of the store; woken by the first delta of a reply, whose request is in the log.
            shares: False sends no deltas to other processes: what the log holds is redacted, and
                part of a text cannot be.
            drives: True if this process drives most of what it watches: then it subscribes only to
                what it does not drive a moment later.
        """
        self._live, self._wakeups = live, wakeups
        self._shares, self._drives = shares, drives
        self._watchers: defaultdict[str, set[Watcher]] = defaultdict(set)
        self._writers: dict[str, WeakSet[ReplyWriter]] = {}
        self._stops: dict[str, Callable[[], None]] = {}
        self._leaves: dict[str, Callable[[], None]] = {}

    # -- of runs that are driven here ----------------------------------------------------------

    def begin(self, run_id: str) -> None:
        """Note that this process drives the run from now on."""
        self._writers[run_id] = WeakSet()
        self._leave(run_id)
        if self._live is not None and self._shares:
            self._stops[run_id] = self._live.drive(run_id, lambda: self._repeat(run_id))

    def end(self, run_id: str) -> None:
        """Put None: this process has stopped driving the run."""
        self._writers.pop(run_id, None)
        if stop := self._stops.pop(run_id, None):
            stop()
        self._subscribe(run_id)
        if run_id in self._watchers:
            for watcher in list(self._watchers[run_id]):
                watcher.put_nowait(None)

    def writer(self, run_id: str, *, seq: int = 0, epoch: int = 0) -> ReplyWriter | None:
        """Return what takes the deltas of a reply, None where it has no watcher."""
        live = self._live if self._shares else None
        if run_id not in self._watchers and not (live is not None and live.watched(run_id)):
            return None
        writer = ReplyWriter(run_id, seq, epoch, self, live)
        if run_id in self._writers:
            self._writers[run_id].add(writer)
        return writer

    def show(self, run_id: str, piece: LiveDelta) -> None:
        """Give a delta to the watchers of this process."""
        for watcher in self._watchers.get(run_id, ()):
            watcher.put_nowait(piece)

    def _repeat(self, run_id: str) -> None:
        for writer in list(self._writers.get(run_id, ())):
            writer.repeat()

    # -- watchers ------------------------------------------------------------------------------

    def add(self, run_id: str, watcher: Watcher) -> None:
        """Add a watcher of this run, which need not be driven here yet."""
        watched = run_id in self._watchers
        self._watchers[run_id].add(watcher)
        if not watched and self._drives:
            asyncio.get_running_loop().call_later(_MOMENT_S, self._subscribe, run_id)
        elif not watched:
            self._subscribe(run_id)
        for writer in self._writers.get(run_id, ()):
            watcher.put_nowait(writer.written())

    def discard(self, run_id: str, watcher: Watcher) -> None:
        """Remove a watcher; safe to repeat."""
        watchers = self._watchers.get(run_id, set())
        watchers.discard(watcher)
        if not watchers:
            self._watchers.pop(run_id, None)
            self._leave(run_id)

    def _subscribe(self, run_id: str) -> None:
        elsewhere = run_id in self._watchers and run_id not in self._writers
        if self._live is not None and elsewhere and run_id not in self._leaves:
            self._leaves[run_id] = self._live.subscribe(run_id, self._receiver(run_id))

    def _leave(self, run_id: str) -> None:
        if leave := self._leaves.pop(run_id, None):
            leave()

    def _receiver(self, run_id: str) -> Callable[[str], None]:
        last: tuple[int, int, int] | None = None

        def receive(message: str) -> None:
            nonlocal last
            live = delta_of(message)
            if live is None:
                return
            if (live.epoch, live.seq, live.attempt) != last:
                last = live.epoch, live.seq, live.attempt
                self._wakeups.committed(run_id, signal=False)
            self.show(run_id, live)

        return receive
