"""A chat of a front end: a session named by the client, and its turns.

The conversation is that of the session: what a client sends of it again is not read. A chat belongs
to the user who has begun it.
"""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import astuple, dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from lib.engine import (
    ApprovalRequested,
    Result,
    RunEnded,
    Session,
    StreamItem,
    ToolAwaited,
    Turn,
    WaitingCall,
)
from lib.engine.api.starting import start_id
from lib.errors import RunNotFound
from lib.llm import ToolSpec
from lib_server.api.approvals import decide
from lib_server.api.runs import allowed_budget, messages
from lib_server.api.sessions import admitted_turn
from lib_server.bodies import Decide, Digest, Id, UserMessage
from lib_server.other_apis import with_idle
from lib_server.problems import Problem
from lib_server.routing import Call, check_right

_LONGEST_COMMENT = 10_000


def _key(call: Call[Any, Any], chat_id: str) -> str:
    named = ["chat", call.principal.user, chat_id]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


async def find(call: Call[Any, Any], chat_id: str) -> Session | None:
    """Return the session of a chat, None before it has begun."""
    tenant = call.principal.tenant
    session_id = start_id(call.engine, _key(call, chat_id), tenant)
    if await call.store.run(session_id) is None:
        return None
    return call.engine.session(session_id, tenant=tenant)


async def begin(call: Call[Any, Any], chat_id: str, agent: str | None) -> Session:
    """Return the session of a chat, which begins here if it is new.

    Args:
        call: the request.
        chat_id: names it among those of its user.
        agent: the name of the one that answers; None for that of the chat, or the only one.

    Raises:
        Problem: `agent_not_found`, `invalid`, `idempotency_mismatch`: another agent answers it.
    """
    session = await find(call, chat_id)
    await check_agent(call, session, agent)
    if session is None:
        name = agent or _only_agent(call)
        return await call.engine.start_session(
            agent=name,
            tenant=call.principal.tenant,
            user=call.principal.user,
            turn_budget=allowed_budget(call, name, None, field="agent"),
            idempotency_key=_key(call, chat_id),
        )
    return session


async def check_agent(call: Call[Any, Any], session: Session | None, agent: str | None) -> None:
    """Refuse an agent that does not answer a chat.

    Raises:
        Problem: `agent_not_found`, `idempotency_mismatch`.
    """
    if agent is not None and agent not in call.engine.agents:
        raise Problem("agent_not_found", "no agent has this name")
    if session is not None and agent not in (None, await agent_of(call, session)):
        raise Problem("idempotency_mismatch", "another agent answers this chat: begin a new one")


def _only_agent(call: Call[Any, Any]) -> str:
    names = list(call.engine.agents)
    if len(names) == 1:
        return names[0]
    raise Problem(
        "invalid", errors=[("/agent", "expected the name of an agent: there are several")]
    )


async def agent_of(call: Call[Any, Any], session: Session) -> str:
    """Return the name of the agent that answers a chat."""
    first = await call.store.read(session.id, limit=1)
    config: dict[str, Any] = first[0].data.get("config", {}) if first else {}
    return str(config.get("algorithm", ""))


async def send(
    call: Call[Any, Any],
    session: Session,
    key: str,
    message: UserMessage,
    client_tools: Sequence[ToolSpec] = (),
) -> Turn:
    """Send a message, once for each key, and return the turn that answers it.

    Args:
        call: the request.
        session: of the chat.
        key: of the turn.
        message: of the user.
        client_tools: the tools whose calls the client makes, which were checked.

    Raises:
        Problem: `run_open`: the turn before waits for a person, or for the client;
            `upload_not_found`, `open_runs_cap`, `budget_spent`, `session_not_found`.
    """
    turns = [turn.id for turn in await session.turns()]
    if turns and key not in turns:
        result = await session.run.result(wait=False)
        if waits_for_client(result):
            assert result.waiting_for is not None  # noqa: S101 - see above
            whom = "a person" if result.waiting_for.approvals else "the results of its calls"
            detail = f"the turn before waits for {whom}: answer them, or cancel its run"
            raise Problem("run_open", detail)
    try:
        async with admitted_turn(call, session, key) as turn_key:
            return await session.send(
                await messages(call, [message]),
                idempotency_key=turn_key,
                user=call.principal.user,
                client_tools=client_tools,
            )
    except RunNotFound:  # erased since
        raise Problem("session_not_found", "the chat has been erased: begin a new one") from None


# -- what happens in a turn ------------------------------------------------------------------------


def waits_for_client(result: Result[Any]) -> bool:
    """Return True if a run waits for a person's decision, or for a call of its client."""
    waits = result.waiting_for
    return waits is not None and bool(waits.approvals or waits.client_calls)


async def happenings(
    call: Call[Any, Any], turn: Turn, *, after: int
) -> AsyncGenerator[StreamItem[Any] | Result | None]:
    """Yield what happens in a turn, and at last its result once it has ended or waits.

    Args:
        call: the request.
        turn: which need not have begun.
        after: the `seq` behind which to begin.

    Yields None for each heartbeat without anything.
    """
    idle_s = call.services.limits.heartbeat_s
    async with aclosing(with_idle(items_of(turn, after), idle_s)) as items:
        async for item in items:
            if isinstance(item, RunEnded):
                yield item.result
                return
            yield item
            if item is None or isinstance(item, ApprovalRequested | ToolAwaited):
                result = await turn.result(wait=False)
                if waits_for_client(result):
                    yield result
                    return


async def items_of(turn: Turn, after: int) -> AsyncGenerator[StreamItem[Any]]:
    """Yield the items of the run of a turn behind a `seq`, once the run has begun."""
    run = turn.run
    run.keep_deltas()
    turn.drop_deltas()
    if not after:
        async with aclosing(turn.events()) as events:
            async for _ in events:
                break
            else:  # it was cancelled before
                yield RunEnded(seq=0, result=await turn.result(wait=False))
                return
    async with aclosing(run.stream(after=after)) as items:
        async for item in items:
            yield item


# -- approvals -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ApprovalRef:
    """The name of a call in decisions of front ends; it gives no right to decide.

    Attributes:
        turn_run_id: the run of the turn that waits.
        after: the `seq` of that run up to which the client has read.
        run_id: the run of the call: that one, or one below it.
        key: of the call.
        digest: of the arguments that the person has seen.
    """

    turn_run_id: str
    after: int
    run_id: str
    key: str
    digest: str

    @classmethod
    def of(cls, call: WaitingCall, turn_run_id: str, after: int) -> ApprovalRef:
        """Return that of a call that waits."""
        return cls(turn_run_id, after, call.run_id, call.key, call.arguments_digest)

    def encode(self) -> str:
        """Return it as an opaque id."""
        return urlsafe_b64encode(json.dumps(astuple(self)).encode()).decode().rstrip("=")

    @property
    def call_id(self) -> str:
        """The call, named among all calls of the turn."""
        return call_id(self.turn_run_id, self.run_id, self.key)


_REF = TypeAdapter(
    tuple[Id, Annotated[int, Field(ge=0, le=2**53)], Id, str, Digest],
    config=ConfigDict(defer_build=True),
)


def call_id(turn_run_id: str, run_id: str, key: str) -> str:
    """Return the name of a call among all of a turn."""
    return key if run_id == turn_run_id else f"{run_id}/{key}"


def approval_ref(text: str) -> ApprovalRef:
    """Return what an id stands for.

    Raises:
        Problem: `approval_not_found`.
    """
    try:
        content = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        return ApprovalRef(*_REF.validate_json(content, strict=True))
    except (ValueError, ValidationError):
        raise Problem("approval_not_found", "no call has this id") from None


async def turn_of(call: Call[Any, Any], session: Session, refs: Sequence[ApprovalRef]) -> Turn:
    """Return the turn that calls belong to, for a caller who may decide about them.

    Raises:
        Problem: `forbidden`, `approval_not_found`.
    """
    check_right(call.principal, "approve")
    turns = {turn.run_id: turn for turn in await session.turns()}
    named = {ref.turn_run_id for ref in refs}
    if len(named) != 1 or not named <= turns.keys():
        raise Problem("approval_not_found", "no turn of this chat has such calls")
    for ref in refs:
        info = await call.store.run(ref.run_id)
        if info is None or info.root_id != session.id:
            raise Problem("approval_not_found", "no call of this chat has this id")
    return turns[named.pop()]


async def decide_all(
    call: Call[Any, Any],
    decisions: Sequence[tuple[ApprovalRef, bool, str]],
    *,
    signal_id: str | None = None,
) -> None:
    """Decide about calls of one turn; each decision may be sent again.

    Args:
        call: the request.
        decisions: which call of `turn_of`, whether it is approved, and why.
        signal_id: names them in the log; None makes names.

    Raises:
        Problem: `approval_not_found`, `digest_mismatch`, `already_decided`, `not_pending`; the
            decisions before it stand.
    """
    for ref, approved, comment in decisions:
        body = Decide(
            decision="approve" if approved else "deny",
            arguments_digest=ref.digest,
            comment=comment[:_LONGEST_COMMENT],
        )
        run = call.engine.run(ref.run_id, tenant=call.principal.tenant)
        await decide(call, run, ref.key, body, signal_id=signal_id)
