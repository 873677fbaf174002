"""One stream of all that happens in a run: what its model writes, its calls, its end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, Protocol, TypeAlias

from typing_extensions import TypeVar

from lib.engine.core.result import Result
from lib.engine.core.settle import call_result
from lib.engine.handlers.base import LiveDelta
from lib.engine.runtime.deltas import MAX_WAITING, DeltaQueue, ShownReplies
from lib.events import Event
from lib.events import kinds as k
from lib.events.payloads import fits
from lib.llm import ToolCall, message_from_json, reply_from_json

T = TypeVar("T", default=str)
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """One item of a stream.

    Attributes:
        seq: the place in the run's log: `run.stream(after=seq)` goes on behind it.
    """

    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyDelta(_Item):
    """A part of a reply while the model writes it; never stored.

    `ModelReplied` brings the whole reply, and replaces all of them.

    Attributes:
        key: the model call.
        attempt: from 1, of the process that writes it.
        text: what was added to the answer.
        thinking: what was added to the thinking.
    """

    key: str
    attempt: int
    text: str
    thinking: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyReset(_Item):
    """A reply begins anew: what has come of it so far is void, and what follows is its beginning.

    Its model call has failed and is tried again, or another worker has taken the run over.

    Attributes:
        key: the model call.
        attempt: from 1, of the process that writes it.
    """

    key: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logged(_Item):
    """An item that is an event of the log.

    Attributes:
        key: names the request in the run.
        at: when it was recorded.
    """

    key: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplied(_Logged):
    """A model has replied.

    Attributes:
        text: the answer, "" if there are only calls.
        calls: the tool calls that it makes.
        model: the model that answered, "" if it does not say.
    """

    text: str
    calls: Sequence[ToolCall]
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailed(_Logged):
    """A model call has failed, after its retries.

    Attributes:
        error: `type` and `message`.
    """

    error: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted(_Logged):
    """A call of a tool or an agent begins; it is recorded before it has its effect.

    Attributes:
        name: of the tool or agent.
        arguments: what the model has filled in; of an agent, the text of its `task`.
    """

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded(_Logged):
    """A call of a tool or an agent has ended.

    Attributes:
        name: of the tool or agent, "" if the stream began behind the start of the call.
        output: what the model reads of it.
        failed: True if the output is the reason of a failure.
    """

    name: str
    output: str
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequested(_Logged):
    """A call waits for a person: `run.approve(key)` or `run.deny(key)`."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecided(_Logged):
    """A person has decided on a call."""

    approved: bool
    comment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAwaited(_Logged):
    """A call waits for the client of the run to make it: `run.answer(key, output)`."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardJudged(_Logged):
    """A guard has judged an input, a reply, a call or a result.

    Attributes:
        guard: its name.
        stage: "input", "output", "tool_call" or "tool_result".
        verdict: "allowed", "flagged" or "blocked".
        reason: why, "" if the guard gives none.
    """

    guard: str
    stage: str
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(_Item, Generic[T]):
    """The run has ended; always the last item."""

    result: Result[T]


StreamItem: TypeAlias = (
    ReplyDelta
    | ReplyReset
    | ModelReplied
    | ModelFailed
    | ToolStarted
    | ToolEnded
    | ApprovalRequested
    | ApprovalDecided
    | ToolAwaited
    | GuardJudged
    | RunEnded[T]
)
"""What `Run.stream` yields."""


class Source(Protocol[T_co]):
    """A run, as far as its stream needs it; see `Run`."""

    def events(self, *, after: int = 0) -> AsyncGenerator[Event]:
        """Yield its events until it is closed."""
        ...

    async def result(self) -> Result[T_co]:
        """Wait for its end and return it."""
        ...


async def stream_of(
    run: Source[T], queue: DeltaQueue[Event], *, after: int
) -> AsyncGenerator[StreamItem[T]]:
    """Yield the items of a run in the order in which they happen; see `Run.stream`."""
    replies, names, seq = _Replies(after), dict[str, str](), after
    end = asyncio.ensure_future(_end(run, queue, after=after))
    end.add_done_callback(lambda _: queue.end())
    try:
        while (taken := await queue.get()) is not None:
            if isinstance(taken, Event):
                seq = taken.seq
                if (item := _item(taken, names)) is not None:
                    yield item
                due = replies.settle(taken)
            else:
                due = replies.take(taken)
            for delta in due:
                yield delta
        yield RunEnded(seq=seq, result=await end)
    finally:
        end.cancel()
        await asyncio.wait([end])


async def _end(run: Source[T], queue: DeltaQueue[Event], *, after: int) -> Result[T]:
    """Put the events of a run beside its deltas; wait for its end and return it."""

    async def read() -> None:
        # In one queue with the deltas: those of a reply are there before its event is appended.
        async with aclosing(run.events(after=after)) as events:
            async for event in events:
                await queue.put(event)

    reader = asyncio.ensure_future(read())
    try:
        result = await run.result()
        await reader
        return result
    finally:
        reader.cancel()
        await asyncio.wait([reader])


class _Replies:
    """The replies of a run, each behind its request and before its event, from any process."""

    def __init__(self, seq: int) -> None:
        """Begin behind this event."""
        self._seq = seq
        self._shown = ShownReplies()
        self._early: deque[LiveDelta] = deque(maxlen=MAX_WAITING)

    def take(self, live: LiveDelta) -> list[ReplyDelta | ReplyReset]:
        """Return what a delta adds; one of a request that was not read yet is kept."""
        if live.seq > self._seq:
            self._early.append(live)
            return []
        new, restarts = self._shown.take(live)
        if new is None:
            return []
        items: list[ReplyDelta | ReplyReset] = []
        if restarts:
            items.append(ReplyReset(seq=self._seq, key=new.key, attempt=new.attempt))
        if new.delta.text or new.delta.thinking:  # else of a call's JSON
            text, thinking = new.delta.text, new.delta.thinking
            items.append(
                ReplyDelta(
                    seq=self._seq,
                    key=new.key,
                    attempt=new.attempt,
                    text=text,
                    thinking=thinking,
                )
            )
        return items

    def settle(self, event: Event) -> list[ReplyDelta | ReplyReset]:
        """Take note of an event; return the deltas that were waiting for it."""
        self._seq = event.seq
        match event:
            case Event(kind=k.LLM_COMPLETED | k.LLM_FAILED, data={"key": str(key)}):
                self._shown.settle(key)
            case Event(kind=k.RUN_RESUMED, data={"epoch": int(epoch)}):
                self._shown.resume(epoch)
            case _:
                pass
        early, self._early = self._early, deque(maxlen=MAX_WAITING)
        return [item for live in early for item in self.take(live)]


def _item(event: Event, names: dict[str, str]) -> StreamItem[Any] | None:
    make = _ITEMS.get(event.kind)
    if make is None or not fits(event.kind, event.data):
        return None
    data = event.data
    if event.kind in (k.TOOL_REQUESTED, k.CHILD_REQUESTED):
        names[data["key"]] = data.get("name", "")
    logged = {"seq": event.seq, "key": data["key"], "at": event.at}
    return make(logged, event, names.pop(data["key"], "") if event.kind in _ENDS else "")


def _replied(logged: Mapping[str, Any], event: Event, _name: str) -> ModelReplied:
    reply = reply_from_json(event.data["reply"])
    return ModelReplied(**logged, text=reply.text, calls=reply.tool_calls, model=reply.model)


def _model_failed(logged: Mapping[str, Any], event: Event, _name: str) -> ModelFailed:
    return ModelFailed(**logged, error=event.data.get("error", {}))


def _started(logged: Mapping[str, Any], event: Event, _name: str) -> ToolStarted:
    data = event.data
    arguments: Mapping[str, Any] = data.get("args", {})
    if event.kind == k.CHILD_REQUESTED:
        texts = [message_from_json(message).text for message in data.get("input", ())]
        arguments = {"task": "\n".join(texts)}
    return ToolStarted(**logged, name=data.get("name", ""), arguments=arguments)


def _waits(logged: Mapping[str, Any], event: Event, _name: str) -> ApprovalRequested:
    data = event.data
    return ApprovalRequested(**logged, name=data["name"], arguments=data["args"])


def _awaited(logged: Mapping[str, Any], event: Event, _name: str) -> ToolAwaited:
    data = event.data
    return ToolAwaited(**logged, name=data["name"], arguments=data["args"])


def _returned(logged: Mapping[str, Any], event: Event, name: str) -> ToolEnded:
    result = call_result(event)
    return ToolEnded(**logged, name=name, output=result.content, failed=result.is_error)


def _decided(logged: Mapping[str, Any], event: Event, _name: str) -> ApprovalDecided:
    data = event.data
    return ApprovalDecided(**logged, approved=data["approved"], comment=data.get("comment", ""))


def _judged(logged: Mapping[str, Any], event: Event, _name: str) -> GuardJudged:
    data = event.data
    names = ("guard", "stage", "verdict", "reason")
    return GuardJudged(**logged, **{name: data.get(name, "") for name in names})


_ENDS: Final = frozenset({k.TOOL_COMPLETED, k.TOOL_FAILED, k.CHILD_COMPLETED})
_ITEMS: Final[Mapping[str, Callable[[Mapping[str, Any], Event, str], Any]]] = {
    k.LLM_COMPLETED: _replied,
    k.LLM_FAILED: _model_failed,
    k.TOOL_REQUESTED: _started,
    k.CHILD_REQUESTED: _started,
    k.TOOL_COMPLETED: _returned,
    k.TOOL_FAILED: _returned,
    k.CHILD_COMPLETED: _returned,
    k.TOOL_AWAITED: _awaited,
    k.APPROVAL_REQUESTED: _waits,
    k.APPROVAL_DECIDED: _decided,
    k.GUARD_VERDICT: _judged,
}
