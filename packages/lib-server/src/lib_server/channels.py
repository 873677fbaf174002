"""The events and replies of runs for the streams of this process: all have one reader of the log.

A stream subscribes, then replays the log, then goes on with what was put meanwhile: a frame that
the replay has sent already is dropped by its `seq`, and a gap is read from the log. So each event
is sent once and in order, whatever is lost here. Pieces of replies are best effort.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from lib.engine import Engine, LiveDelta
from lib.engine.runtime.deltas import ShownReplies
from lib.errors import StoreClosed, StoreError
from lib.events import Event, RunInfo
from lib.events import kinds as k
from lib.events.runs import partition_of
from lib.events.store import END
from lib.llm import Delta
from lib_server.limits import Limits

_log = logging.getLogger("lib_server")

_PAGE: Final = 512
_RETRY_S: Final = 1.0
_REPLIED: Final = frozenset({k.LLM_COMPLETED, k.LLM_FAILED})
DRAINING: Final = "server.draining"


class Frame(NamedTuple):
    """A piece of a stream, encoded once for all streams.

    Attributes:
        seq: of the event; 0 for a piece of a reply.
        kind: of the event; "" for a piece of a reply.
        key: the model call that it belongs to, or ends; else "".
        content: the bytes to send.
    """

    seq: int
    kind: str
    key: str
    content: bytes


def message(event: str, data: Any, *, seq: int | None = None) -> bytes:
    """Return a server-sent event.

    Args:
        event: its name; one with a line break, which could end it early, is left out.
        data: as JSON.
        seq: what a client resumes behind; None leaves its last one as it is.
    """
    name = "" if "\n" in event or "\r" in event else f"event: {event}\n"
    place = "" if seq is None else f"id: {seq}\n"
    return f"{place}{name}data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def event_json(event: Event) -> dict[str, Any]:
    """Return an event as answers show it; see `EventView`."""
    return {
        "seq": event.seq,
        "kind": event.kind,
        "at": event.at.isoformat().replace("+00:00", "Z"),
        "user": event.user,
        "data": event.data,
    }


def event_frame(event: Event) -> Frame:
    """Return the frame of an event."""
    key = str(event.data.get("key", "")) if event.kind in _REPLIED else ""
    content = message(event.kind, event_json(event), seq=event.seq)
    return Frame(event.seq, event.kind, key, content)


class Subscriber:
    """The frames that one stream is still to send; bounded.

    Attributes:
        lagged: True if frames were dropped because too many waited.
        ended: the event with which the stream is to end, None while it goes on.
    """

    __slots__ = ("_frames", "_limit", "_waiter", "_woken", "ended", "lagged")

    def __init__(self, limit: int) -> None:
        """Begin with no frame."""
        self._frames: list[Frame] = []
        self._limit = limit
        self._woken = False
        self._waiter: asyncio.Future[None] | None = None
        self.lagged: bool = False
        self.ended: str | None = None

    def put(self, frame: Frame) -> None:
        """Take a frame. A piece of a reply is dropped while half of the room is taken."""
        if frame.seq == 0 and len(self._frames) >= self._limit // 2:
            return
        if len(self._frames) >= self._limit:
            self._frames.clear()
            self.lagged = True
        if not self.lagged:
            self._frames.append(frame)
        self._wake()

    def end(self, event: str) -> None:
        """Let the stream end with this event."""
        self.ended = self.ended or event
        self._wake()

    def _wake(self) -> None:
        self._woken = True
        _finish(self._waiter)

    def read_again(self) -> None:
        """Take frames again, after those that were dropped are about to be read from the log."""
        self._frames.clear()
        self.lagged = False

    async def wait(self, timeout_s: float) -> bool:
        """Wait until there is something to do; return False after so many seconds without."""
        if not self._woken:  # less than an asyncio.Event: there is one of these for each stream
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(timeout_s, _finish, self._waiter)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        woken, self._woken = self._woken, False
        return woken

    def take(self) -> list[Frame]:
        """Return the frames that wait, and forget them."""
        frames, self._frames = self._frames, []
        return frames


def _finish(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


class _Reply:
    """A reply that a model is writing, as far as it has come.

    Attributes:
        last: the last piece.
    """

    __slots__ = ("_text", "_thinking", "last")

    def __init__(self, first: LiveDelta) -> None:
        """Begin with the first piece."""
        self.last = first
        self._text = [first.delta.text]
        self._thinking = [first.delta.thinking]

    def add(self, piece: LiveDelta) -> None:
        """Add the next piece."""
        self.last = piece
        self._text.append(piece.delta.text)
        self._thinking.append(piece.delta.thinking)

    def whole(self) -> LiveDelta:
        """Return all of it in one piece."""
        self._text, self._thinking = ["".join(self._text)], ["".join(self._thinking)]
        delta = Delta(self._text[0], self._thinking[0])
        return replace(self.last, delta=delta, text_at=0, thinking_at=0)


class Channel:
    """One run's subscribers, and what its models have written of replies that are not in the log.

    Attributes:
        subscribers: its streams.
        held: the timer that keeps a channel without streams; None without one.
    """

    __slots__ = ("_on_first", "_on_stop", "_replies", "_shown", "held", "subscribers")

    def __init__(self, on_stop: Callable[[], None]) -> None:
        """Begin without a stream.

        Args:
            on_stop: is called when this process stops driving the run: its replies are in the log.
        """
        self._on_stop = on_stop
        self._on_first: Callable[[], None] | None = None
        self.subscribers: set[Subscriber] = set()
        self.held: asyncio.TimerHandle | None = None
        self._shown = ShownReplies()
        self._replies: dict[str, _Reply] = {}

    def put_nowait(self, item: LiveDelta | None, /) -> None:
        """Take a piece of a reply; None calls `on_stop`."""
        if item is None:
            self._on_stop()
            return
        piece = self._shown.take(item)[0]
        if piece is None or not (piece.delta.text or piece.delta.thinking):
            return
        if self._on_first is not None:
            self._on_first()
            self._on_first = None
        reply = self._replies.get(piece.key)
        if reply is None or not (piece.text_at or piece.thinking_at):
            self._replies[piece.key] = _Reply(piece)
        else:
            reply.add(piece)
        if self.subscribers:
            self._put(_delta_frame(piece))

    def call_at_first(self, call: Callable[[], None]) -> None:
        """Call this at the first piece of a reply, unless the whole reply comes before."""
        self._on_first = call

    def put_event(self, event: Event) -> None:
        """Take an event of the log."""
        frame = event_frame(event)
        if frame.key:
            self._on_first = None
            self._shown.settle(frame.key)
            self._replies.pop(frame.key, None)
        self._put(frame)

    def replies_so_far(self) -> list[Frame]:
        """Return the replies that are being written, each in one piece."""
        return [_delta_frame(reply.whole()) for reply in self._replies.values()]

    def _put(self, frame: Frame) -> None:
        for subscriber in self.subscribers:
            subscriber.put(frame)


def _delta_frame(live: LiveDelta) -> Frame:
    data = {
        "key": live.key,
        "epoch": live.epoch,
        "attempt": live.attempt,
        "text_at": live.text_at,
        "text": live.delta.text,
        "thinking_at": live.thinking_at,
        "thinking": live.delta.thinking,
    }
    return Frame(0, "", live.key, message("reply.delta", data))


class Channels:
    """The channels of one server: what happens in its runs, for each stream that subscribes.

    The feed of a partition is read as long as a stream of one of its runs is open.

    Attributes:
        ending: set once every stream is to end.
        sent: how many frames all streams have sent.
    """

    def __init__(
        self,
        engine: Engine,
        limits: Limits,
        *,
        on_first_piece: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Begin without a channel.

        Args:
            engine: whose runs these are; entered.
            limits: of the server.
            on_first_piece: is called with the seconds from the start of a run to the first piece
                of its first reply.
        """
        self.sent: int = 0
        self._on_first_piece = on_first_piece
        self._engine = engine
        self._limits = limits
        self._channels: dict[str, Channel] = {}
        self._followers: dict[int, _Follower] = {}
        self.ending: asyncio.Event = asyncio.Event()

    @property
    def draining(self) -> bool:
        """True once every stream is to end."""
        return self.ending.is_set()

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return sum(len(channel.subscribers) for channel in self._channels.values())

    async def subscribe(self, info: RunInfo) -> tuple[Subscriber, list[Frame]]:
        """Return what gets all that happens in a run from now on, and the present replies.

        `unsubscribe` it in the end. A context manager would cost each stream 0.5 KiB.
        """
        partition = partition_of(info.root_id, self._engine.store.partitions)
        follower = self._followers.get(partition)
        if follower is None:
            follower = self._followers[partition] = _Follower(self._engine, self, partition)
        follower.users += 1
        try:
            await follower.ready.wait()
        except BaseException:
            self._leave(partition)
            raise
        channel = self._channel(info.run_id)
        subscriber = Subscriber(self._limits.stream_queue)
        if self.draining:
            subscriber.end(DRAINING)
        channel.subscribers.add(subscriber)
        return subscriber, channel.replies_so_far()

    def unsubscribe(self, info: RunInfo, subscriber: Subscriber) -> None:
        """Put no more, and stop reading what no other stream needs."""
        self._channels[info.run_id].subscribers.discard(subscriber)
        self._close_if_unused(info.run_id)
        self._leave(partition_of(info.root_id, self._engine.store.partitions))

    def _leave(self, partition: int) -> None:
        follower = self._followers[partition]
        follower.users -= 1
        if not follower.users:
            del self._followers[partition]
            follower.task.cancel()

    def hold(self, run_id: str) -> None:
        """Keep what the model of a run writes for a stream that is about to come.

        It is kept for a while, and no longer than this process drives the run.
        """
        channel = self._channel(run_id)
        if channel.held is None:
            loop = asyncio.get_running_loop()
            channel.held = loop.call_later(self._limits.live_s, self._release, run_id)
            began = loop.time()
            channel.call_at_first(lambda: self._on_first_piece(loop.time() - began))

    def put(self, event: Event) -> None:
        """Take an event of the log."""
        channel = self._channels.get(event.run_id)
        if channel is not None:
            channel.put_event(event)

    def end(self, event: str = DRAINING) -> None:
        """End every stream with this event, and each that is opened from now on."""
        self.ending.set()
        for channel in self._channels.values():
            for subscriber in channel.subscribers:
                subscriber.end(event)

    async def close(self) -> None:
        """End the streams and stop reading."""
        self.end()
        for run_id in list(self._channels):
            self._release(run_id)
        tasks = [follower.task for follower in self._followers.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _channel(self, run_id: str) -> Channel:
        channel = self._channels.get(run_id)
        if channel is None:
            channel = self._channels[run_id] = Channel(lambda: self._release(run_id))
            self._engine.hub.add(run_id, channel)
        return channel

    def _release(self, run_id: str) -> None:
        """Keep a channel only while it has streams."""
        channel = self._channels[run_id]
        if channel.held is not None:
            channel.held.cancel()
            channel.held = None
            self._close_if_unused(run_id)

    def _close_if_unused(self, run_id: str) -> None:
        channel = self._channels[run_id]
        if not channel.subscribers and channel.held is None:
            del self._channels[run_id]
            self._engine.hub.discard(run_id, channel)


class _Follower:
    """Reads the feed of one partition into the channels.

    Attributes:
        users: how many streams need it.
        ready: set once every event that is appended from now on will be read.
        task: reads until it is cancelled.
    """

    def __init__(self, engine: Engine, channels: Channels, partition: int) -> None:
        self.users = 0
        self.ready = asyncio.Event()
        self._engine = engine
        self._channels = channels
        self._partition = partition
        self._cursor = END
        self.task: asyncio.Task[None] = asyncio.create_task(
            self._follow(), name=f"lib_server.feed {partition}"
        )

    async def _follow(self) -> None:
        store, failing = self._engine.store, False
        with store.wakeups.listen(partition=self._partition) as wake:
            while True:
                try:
                    more = await self._read()
                    failing = False
                except StoreClosed:
                    self._channels.end()
                    self.ready.set()
                    return
                except StoreError:
                    if not failing:
                        _log.exception("the feed of the event store cannot be read")
                    failing = more = True
                    await self._engine.clock.sleep(_RETRY_S)
                if not more:
                    await wake.wait(self._engine.poll_s)

    async def _read(self) -> bool:
        """Read the next page; return True if there may be more."""
        page = await self._engine.store.feed(self._cursor, limit=_PAGE, partition=self._partition)
        self._cursor = page.cursor
        self.ready.set()
        for event in page.events:
            self._channels.put(event)
        return len(page.events) == _PAGE
