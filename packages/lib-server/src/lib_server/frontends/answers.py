"""An answer to a message of a chat, as the chunks of a front end's protocol.

What happens in a turn becomes steps, parts of text or reasoning, and calls. A protocol says how
each of them reads on its wire.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Literal, Protocol, TypeAlias

from lib.engine import (
    ApprovalDecided,
    ApprovalRequested,
    GuardJudged,
    ModelReplied,
    ReplyDelta,
    ReplyReset,
    Result,
    StreamItem,
    ToolAwaited,
    ToolEnded,
    ToolStarted,
    Turn,
    WaitingCall,
)
from lib.engine.core.settle import call_result
from lib.events import kinds as k
from lib.events.payloads import fits
from lib_server.frontends import chats
from lib_server.frontends.chats import ApprovalRef
from lib_server.routing import Call

Chunk: TypeAlias = dict[str, Any]
PartKind = Literal["text", "reasoning"]
CallEnd = Literal["returned", "failed", "denied"]


class Wording(Protocol):
    """Writes the parts of an answer in a protocol; each method returns chunks.

    Parts and steps neither nest nor overlap, and a call begins outside of parts.
    """

    def step_begins(self, step: str) -> list[Chunk]:
        """Begin what comes of one model call."""
        ...

    def step_ends(self, step: str) -> list[Chunk]:
        """End it."""
        ...

    def part_begins(self, kind: PartKind, part_id: str) -> list[Chunk]:
        """Begin a text."""
        ...

    def part_adds(self, kind: PartKind, part_id: str, text: str) -> list[Chunk]:
        """Add to it."""
        ...

    def part_ends(self, kind: PartKind, part_id: str) -> list[Chunk]:
        """End it."""
        ...

    def call_begins(
        self, call_id: str, name: str, arguments: Mapping[str, Any], step: str
    ) -> list[Chunk]:
        """Show a call, of the model call `step`, "" if that is not of this stream."""
        ...

    def call_ends(self, call_id: str, output: str, end: CallEnd) -> list[Chunk]:
        """Show what came of a call."""
        ...

    def call_waits(self, call_id: str, ref: ApprovalRef, call: WaitingCall) -> list[Chunk]:
        """Show that a call waits for a person."""
        ...

    def judged(self, item: GuardJudged) -> list[Chunk]:
        """Show what a guard says."""
        ...

    def ended(self, result: Result[Any]) -> list[Chunk]:
        """End the stream: the run has ended, or waits for a person."""
        ...


class Answer:
    """An answer as chunks, which cannot take back what was shown.

    A reply that begins anew is shown once it is whole: only what is new of it where it begins
    with what was shown, else as a text of its own.
    """

    def __init__(
        self,
        wording: Wording,
        *,
        live: bool,
        calls: Iterable[str] = (),
        results: Iterable[str] = (),
    ) -> None:
        """Begin with nothing.

        Args:
            wording: of the protocol.
            live: show replies; else only the answer.
            calls: which the client has already.
            results: the calls of which the client has the results already.
        """
        self._wording = wording
        self._live = live
        self._calls = set(calls)
        self._results = set(results)
        self._denied: set[str] = set()
        self._step = ""
        self._part: tuple[PartKind, str] | None = None
        self._shown: dict[str, str] = {}
        self._restarted: set[str] = set()
        self._last = ""

    def take(self, item: StreamItem[Any]) -> list[Chunk]:
        """Return what an item adds."""
        match item:
            case ReplyDelta() if self._live and item.key not in self._restarted:
                return self._delta(item)
            case ReplyReset():
                self._restarted.add(item.key)
                return self._close_part()
            case ModelReplied() if self._live:
                return self._replied(item)
            case GuardJudged():
                return self._wording.judged(item)
            case _:
                return self._take_call(item)

    def _take_call(self, item: StreamItem[Any]) -> list[Chunk]:
        match item:
            case ApprovalRequested() | ToolAwaited() | ToolStarted():
                return self._call(item.key, item.name, item.arguments)
            case ToolEnded():
                return self.result(item.key, item.output, failed=item.failed, name=item.name)
            case ApprovalDecided(approved=False):
                self._denied.add(item.key)
            case _:
                pass
        return []

    def approval(self, ref: ApprovalRef, call: WaitingCall) -> list[Chunk]:
        """Return the request to decide about a call."""
        lead = self._call(ref.call_id, call.name, call.arguments)
        return [*lead, *self._wording.call_waits(ref.call_id, ref, call)]

    def client_call(self, call: WaitingCall) -> list[Chunk]:
        """Return a call that the client is to make."""
        return self._call(call.key, call.name, call.arguments)

    def result(self, call_id: str, output: str, *, failed: bool, name: str = "") -> list[Chunk]:
        """Return the end of a call."""
        if call_id in self._results:
            return []
        end: CallEnd = "failed" if failed else "returned"
        if call_id in self._denied:
            end = "denied"
        return [*self._call(call_id, name, {}), *self._wording.call_ends(call_id, output, end)]

    def end(self, result: Result[Any]) -> list[Chunk]:
        """Return the end of the stream: the run has ended, or waits for an answer."""
        chunks: list[Chunk] = []
        unfinished = (None, "FAILED", "CANCELLED")
        if result.outcome not in unfinished and result.text.strip() != self._last.strip():
            chunks = [*self._begin_step("answer"), *self._piece("text", "answer", result.text)]
        return [*chunks, *self._end_step(), *self._wording.ended(result)]

    # -- steps and their parts -----------------------------------------------------------------

    def _delta(self, item: ReplyDelta) -> list[Chunk]:
        chunks = self._begin_step(item.key)
        chunks += self._piece("reasoning", item.key, item.thinking)
        self._shown[item.key] = self._shown.get(item.key, "") + item.text
        return chunks + self._piece("text", item.key, item.text)

    def _replied(self, item: ModelReplied) -> list[Chunk]:
        chunks = self._begin_step(item.key)
        shown = self._shown.pop(item.key, "")
        self._last = item.text
        if item.text.startswith(shown):
            chunks += self._piece("text", item.key, item.text[len(shown) :])
        else:
            chunks += self._piece("text", f"{item.key}/again", item.text)
        return chunks + self._close_part()

    def _call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> list[Chunk]:
        if call_id in self._calls:
            return []
        self._calls.add(call_id)
        begins = self._wording.call_begins(call_id, name, arguments, self._step)
        return [*self._close_part(), *begins]

    def _piece(self, kind: PartKind, part_id: str, text: str) -> list[Chunk]:
        if not text:
            return []
        chunks: list[Chunk] = []
        if self._part != (kind, part_id):
            chunks = [*self._close_part(), *self._wording.part_begins(kind, part_id)]
            self._part = kind, part_id
        return [*chunks, *self._wording.part_adds(kind, part_id, text)]

    def _close_part(self) -> list[Chunk]:
        if self._part is None:
            return []
        (kind, part_id), self._part = self._part, None
        return self._wording.part_ends(kind, part_id)

    def _begin_step(self, step: str) -> list[Chunk]:
        if step == self._step:
            return []
        chunks = [*self._end_step(), *self._wording.step_begins(step)]
        self._step = step
        return chunks

    def _end_step(self) -> list[Chunk]:
        if not self._step:
            return []
        step, self._step = self._step, ""
        return [*self._close_part(), *self._wording.step_ends(step)]


class AnswerStream:
    """The chunks of the answer that a turn gives, from its beginning or behind decisions."""

    def __init__(
        self,
        call: Call[Any, Any],
        turn: Turn,
        answer: Answer,
        refs: Collection[ApprovalRef] = (),
        *,
        after: int = 0,
    ) -> None:
        """Follow a turn.

        Args:
            call: the request.
            turn: which need not have begun.
            answer: makes the chunks.
            refs: about which calls this request has decided; the stream begins behind them.
            after: the `seq` behind which the stream begins at least.
        """
        self._call = call
        self._turn = turn
        self._answer = answer
        self._after = max((ref.after for ref in refs), default=after)
        self._below = {ref.call_id: ref for ref in refs if ref.run_id != turn.run_id}

    async def chunks(self) -> AsyncGenerator[list[Chunk]]:
        """Yield the chunks of all that happens; none where nothing has come for a while."""
        items = chats.happenings(self._call, self._turn, after=self._after)
        async with aclosing(items) as happening:
            async for item in happening:
                if item is None:
                    yield []
                elif chunks := await self._chunks(item):
                    yield chunks

    async def _chunks(self, item: StreamItem[Any] | Result[Any]) -> list[Chunk]:
        if isinstance(item, Result):
            return [*await self._ended_below(), *self._end(item)]
        self._after = max(self._after, item.seq)
        lead = await self._ended_below() if isinstance(item, ToolEnded) else []
        return lead + self._answer.take(item)

    def _end(self, result: Result[Any]) -> list[Chunk]:
        chunks: list[Chunk] = []
        if result.outcome is None and result.waiting_for is not None:
            for each in result.waiting_for.approvals:
                ref = ApprovalRef.of(each, self._turn.run_id, self._after)
                chunks += self._answer.approval(ref, each)
            for each in result.waiting_for.client_calls:
                chunks += self._answer.client_call(each)
        return chunks + self._answer.end(result)

    async def _ended_below(self) -> list[Chunk]:
        """Return the results of calls of child runs about which this request has decided."""
        chunks: list[Chunk] = []
        for name, ref in list(self._below.items()):
            for event in await self._call.store.read(ref.run_id):
                is_end = event.kind in (k.TOOL_COMPLETED, k.TOOL_FAILED, k.CHILD_COMPLETED)
                if is_end and fits(event.kind, event.data) and event.data["key"] == ref.key:
                    result = call_result(event)
                    chunks += self._answer.result(name, result.content, failed=result.is_error)
                    del self._below[name]
        return chunks
