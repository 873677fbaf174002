"""A run behind one request of another API: followed until it ends, or waits for a person.

The run never depends on the request: it goes on if the client leaves, or the server stops.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from lib.engine import (
    ApprovalRequested,
    ModelReplied,
    ReplyDelta,
    ReplyReset,
    Result,
    Run,
    RunEnded,
    StreamItem,
)
from lib.events import Event, RunInfo
from lib.events import kinds as k
from lib.events.payloads import fits
from lib.llm import Message, reply_from_json
from lib_server.api.runs import (
    admitted,
    allowed_budget,
    idempotency_key,
    messages,
)
from lib_server.bodies import UserMessage
from lib_server.problems import Problem, openai_error, problem_of
from lib_server.routing import Call
from lib_server.sse import HEADERS, HEARTBEAT

_log = logging.getLogger("lib_server")

T = TypeVar("T")
_BREAK: Final = "\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """How far a run has come when its request is answered.

    Attributes:
        text: the answer, or what there is of it; of a run that waits, where to decide.
        result: of the run.
        input_tokens: all that its model calls, and those of its child runs, have used but the
            output.
        output_tokens: what its own model calls have written.
    """

    text: str
    result: Result[Any]
    input_tokens: int
    output_tokens: int


async def start(
    call: Call[Any, Any],
    agent: str,
    conversation: Sequence[UserMessage],
    *,
    stream: bool,
    past: Sequence[Message] = (),
) -> Run:
    """Start a run, or find the one that the same Idempotency-Key has started.

    Args:
        call: the request.
        agent: its name.
        conversation: what was sent.
        stream: keep the pieces of its replies from the start on.
        past: of the conversation, before that.

    Raises:
        Problem: `agent_not_found`, `draining`, `budget_spent`, `open_runs_cap`, `stream_cap`.
    """
    call.check_not_draining()
    if agent not in call.engine.agents:
        raise Problem("agent_not_found", "no agent has the name that model says")
    if stream:
        call.services.quotas.check_streams(call.principal)
    budget = allowed_budget(call, agent, None, field="budget")
    async with admitted(call, idempotency_key(call, None), budget) as key:
        return await call.engine.start(
            [*past, *await messages(call, conversation)],
            agent=agent,
            idempotency_key=key,
            tenant=call.principal.tenant,
            user=call.principal.user,
            budget=budget,
            traceparent=call.request.headers.get("traceparent", ""),
            tracestate=call.request.headers.get("tracestate"),
            stream=stream,
        )


def streams_replies(call: Call[Any, Any], agent: str) -> bool:
    """Return False for an agent of whose answer only the whole can be read.

    That is an answer of a type, and one of a team that writes drafts on the way to it.
    """
    spec = call.engine.agents[agent]
    drafts = getattr(getattr(spec, "algorithm", None), "drafts", False)
    return getattr(spec, "output", None) is None and not drafts


# -- what is written ---------------------------------------------------------------------------


class Written:
    """The text of a run as a client sees it, which cannot take back what it has shown.

    A reply that begins anew is shown once it is whole: only what is new of it where it begins
    with what was shown, else all of it behind a blank line.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._shown: dict[str, str] = {}
        self._restarted: set[str] = set()
        self._last = ""

    def take(self, item: StreamItem[Any]) -> str:
        """Return what an item adds."""
        match item:
            case ReplyDelta(key=key, text=text) if text and key not in self._restarted:
                return self._add(key, text)
            case ReplyReset(key=key):
                self._restarted.add(key)
            case ModelReplied(key=key, text=text) if text:
                self._last = text
                shown = self._shown.get(key, "")
                if text.startswith(shown):
                    return self._add(key, text[len(shown) :])
                return _BREAK + text
            case _:
                pass
        return ""

    def end(self, text: str) -> str:
        """Return what is still to be shown of the answer."""
        if not text or text.strip() == self._last.strip():
            return ""
        return (_BREAK if self._shown else "") + text

    def _add(self, key: str, text: str) -> str:
        lead = _BREAK if text and self._shown and key not in self._shown else ""
        if text:
            self._shown[key] = self._shown.get(key, "") + text
        return lead + text


async def follow(run: Run, *, live: bool, idle_s: float) -> AsyncGenerator[str | Result[Any]]:
    """Yield the text of a run as it comes, and at last its result.

    Args:
        run: just started, or found.
        live: yield replies while they are written; else only the answer.
        idle_s: seconds without anything after which "" is yielded.
    """
    written = Written()
    async with aclosing(with_idle(run.stream(), idle_s)) as items:
        async for item in items:
            if isinstance(item, RunEnded):
                if text := written.end(item.result.text):
                    yield text
                yield item.result
                return
            if item is None or isinstance(item, ApprovalRequested):
                result = await run.result(wait=False)
                if result.waiting_for is not None and result.waiting_for.approvals:
                    yield result
                    return
                yield ""
            elif live and (text := written.take(item)):
                yield text


async def with_idle(
    stream: AsyncGenerator[StreamItem[Any]], idle_s: float
) -> AsyncGenerator[StreamItem[Any] | None]:
    """Yield the items of a run up to its end, and None after so many seconds without."""
    async with aclosing(stream) as items:
        coming = asyncio.ensure_future(anext(items))
        try:
            while True:
                await asyncio.wait([coming], timeout=idle_s)
                if not coming.done():
                    yield None
                    continue
                item = coming.result()
                yield item
                if isinstance(item, RunEnded):
                    return
                coming = asyncio.ensure_future(anext(items))
        finally:
            coming.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await coming


# -- how it ends -------------------------------------------------------------------------------


def notice(call: Call[Any, Any], result: Result[Any]) -> str:
    """Return where a person decides about the calls that a run waits for, "" without one."""
    waits = result.waiting_for
    if waits is None or not waits.approvals:
        return ""
    root = call.request.scope.get("root_path", "")
    lines = [
        f"- `{each.name}`: POST {root}/v1/runs/{each.run_id}/approvals/{each.key}"
        for each in waits.approvals
    ]
    last = (
        f"All that waits: GET {root}/v1/approvals. The run goes on after the decision; its answer "
        f"is then at GET {root}/v1/runs/{result.run_id}/result."
    )
    return "\n".join(["This waits for a person to approve or deny:", *lines, last])


async def answered(call: Call[Any, Any], result: Result[Any]) -> Answered:
    """Return how far a run has come.

    Raises:
        Problem: `run_failed`, `run_cancelled`.
    """
    if result.outcome == "FAILED":
        raise Problem("run_failed", why_failed(result))
    if result.outcome == "CANCELLED":
        raise Problem("run_cancelled", "start another one")
    written = output_tokens(await call.store.read(result.run_id))
    text = _BREAK.join(each for each in (result.text, notice(call, result)) if each)
    return Answered(
        text=text,
        result=result,
        input_tokens=max(0, result.spend.tokens - written),
        output_tokens=written,
    )


def why_failed(result: Result[Any]) -> str:
    """Return the reason of a run that has failed."""
    error = result.error or {}
    parts = (error.get("type"), error.get("message"), result.reason)
    return ": ".join([str(part) for part in parts if part][:2])


def output_tokens(log: Sequence[Event]) -> int:
    """Return how many tokens the model calls of a log have written."""
    return sum(
        reply_from_json(event.data["reply"]).usage.output_tokens
        for event in log
        if event.kind == k.LLM_COMPLETED and fits(event.kind, event.data)
    )


async def wait(call: Call[Any, Any], run: Run) -> Result[Any]:
    """Return the result of a run once it has ended, or waits for a person.

    Raises:
        Problem: `draining`: the server stops, and another one has the answer.
        ClientDisconnect: the client has gone.
    """

    async def last() -> Result[Any]:
        idle_s = call.services.limits.heartbeat_s
        async with aclosing(follow(run, live=False, idle_s=idle_s)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Result):
                    return piece
        raise AssertionError("the text of a run ends with its result")

    return await attended(call, last())


async def attended(call: Call[Any, Any], work: Coroutine[Any, Any, T]) -> T:
    """Do what a client waits for, as long as it does and the server takes requests.

    Raises:
        Problem: `draining`.
        ClientDisconnect: the client has gone.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(call.request.receive))
    ending = asyncio.ensure_future(call.services.channels.ending.wait())
    try:
        await asyncio.wait([working, gone, ending], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        if gone.done():
            raise ClientDisconnect
        detail = "the run goes on: send the request again, with the same Idempotency-Key"
        raise Problem("draining", detail, retry_after_s=1)
    finally:
        for each in (working, gone, ending):
            each.cancel()
        await asyncio.wait([working, gone, ending])


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# -- streams -----------------------------------------------------------------------------------


class Streamed:
    """An ASGI response: server-sent events made of a run; a disconnect leaves the run alone."""

    def __init__(
        self,
        call: Call[Any, Any],
        events: AsyncGenerator[bytes],
        *,
        headers: dict[str, str],
        failure: Callable[[Problem], bytes],
    ) -> None:
        """Send events.

        Args:
            call: the request.
            events: b"" where nothing has come for a while.
            headers: further headers of the answer.
            failure: makes the last event of a stream that cannot go on.
        """
        self._call = call
        self._events = events
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._failure = failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        headers = [*HEADERS, *self._headers]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async with aclosing(self._events):
                await attended(self._call, self._send_all(send))
            content = b""
        except (ClientDisconnect, TimeoutError):
            return
        except Exception as error:  # noqa: BLE001 - the boundary of a stream; _problem logs it
            content = self._failure(_problem(error))
        await send({"type": "http.response.body", "body": content, "more_body": False})

    async def _send_all(self, send: Send) -> None:
        recheck, stalled_s = self._call.recheck(), self._call.services.limits.stalled_s
        async for content in self._events:
            async with asyncio.timeout(stalled_s):
                body = content or HEARTBEAT
                await send({"type": "http.response.body", "body": body, "more_body": True})
            if not await recheck.passes():
                raise Problem("unauthenticated", "the credential is no longer valid")


def _problem(error: Exception) -> Problem:
    problem = error if isinstance(error, Problem) else problem_of(error)
    if problem is not None:
        return problem
    _log.error("a stream failed", exc_info=error)
    return Problem("internal", "the log of the server has the cause")


def failed(problem: Problem) -> bytes:
    """Return the event with which a stream of chat completions fails."""
    return data_event(openai_error(problem))


def data_event(value: Any, name: str = "") -> bytes:
    """Return a server-sent event, with a name where the API has names."""
    lead = f"event: {name}\n" if name else ""
    return f"{lead}data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


def seconds(info: RunInfo) -> int:
    """Return when a run was created, as OpenAI's API has times."""
    return int(info.created_at.timestamp())
