"""A run behind one request of another API: followed until it ends, or waits for a person.

The run never depends on the request: it goes on if the client leaves, or the server stops.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

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
from lib_server.other_apis import attended, data_event, why_failed, with_idle
from lib_server.problems import Problem, openai_error
from lib_server.routing import Call

_BREAK: Final = "\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The state of a run when its request is answered.

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
    return "\n".join(["This waits for a person to approve or deny:", *lines, "", last])


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


def failed(problem: Problem) -> bytes:
    """Return the event with which a stream of chat completions fails."""
    return data_event(openai_error(problem))


def seconds(info: RunInfo) -> int:
    """Return when a run was created, as OpenAI's API has times."""
    return int(info.created_at.timestamp())
