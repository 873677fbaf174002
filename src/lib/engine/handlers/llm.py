"""Model calls."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final, cast

from lib._util.attempts import counting
from lib._util.json import canonical
from lib.engine.arguments import require_attribute
from lib.engine.core.algorithm import LLMRequest
from lib.engine.core.settle import PendingEvent
from lib.engine.handlers.attachments import load, store
from lib.engine.handlers.base import Admission, Call, LiveDelta
from lib.engine.handlers.guards import RequestGuards, any_watches, as_guards
from lib.engine.logs import LLM_LOG, log_run
from lib.errors import (
    BlobError,
    CircuitOpen,
    InvalidReply,
    LibError,
    LLMError,
    RateLimited,
)
from lib.events import Event
from lib.events import kinds as k
from lib.guards import Guard
from lib.llm import LLMClient, Reply, ToolCall, ToolSpec, parse_output, reply_to_json
from lib.llm.api.fields import is_shallow
from lib.llm.client import usage_to_json
from lib.llm.prices import PriceBook, with_cost
from lib.llm.replies import deltas_of, is_empty
from lib.resilience import RetryPolicy, is_retryable, retry
from lib.resilience.deadlines import deadline, require_seconds
from lib.resilience.hedge import Claim, hedged
from lib.resilience.services import elsewhere

MAX_TRIES: Final = 32
"""The most attempts of a call that are listed in its result."""


class LLMHandler:
    """Fulfils model requests with a client; retries what may succeed later."""

    kind = k.LLM_REQUESTED
    request_type = LLMRequest
    offers: Sequence[ToolSpec] = ()

    def __init__(
        self,
        clients: LLMClient | Sequence[LLMClient],
        *,
        guards: Iterable[Guard] = (),
        retries: RetryPolicy | None = None,
        deadline_s: float | None = None,
        hedge_after_s: float | None = None,
        jitter: random.Random | None = None,
        prices: PriceBook | None = None,
    ) -> None:
        """Take a client, or several.

        Args:
            clients: the model clients; of several, each next one is called when the one before
                it has failed, retries included. All attempts are in the log.
            guards: called in this order; "input" before a call, on what is new since the last
                reply (in a run's first call, on its whole input), and "output" on a reply,
                its thinking included, before anybody else sees any of it: then no piece of it is
                shown while it is written. What they block ends the run as BLOCKED.
            retries: how often and how long to try each client; each attempt is counted in the log.
                One that refuses a call (see `ResilientClient`) is not waited for if there is
                another.
            deadline_s: seconds for a whole call: all attempts, waits and clients together.
            hedge_after_s: seconds after which a slow attempt gets a second one beside it, at the
                next client or, without one, at the same: the first reply counts, and the other
                attempt is cancelled, whose cost is not known. None for never, and never once a
                piece of the reply has been shown.
            jitter: spreads the attempts of many processes.
            prices: for replies whose provider states no cost; it goes into the log with the reply,
                so that budgets see it and it never changes afterwards. A call without a
                stated cost counts as nothing; the first one in a run with a cost ceiling is logged.

        Raises:
            TypeError: a client or a guard is of another type, such as the name of a model or a
                class.
            ValueError: there is no client, or a time is not above 0.
        """
        require_seconds(deadline_s=deadline_s, hedge_after_s=hedge_after_s)
        self._clients = _as_clients(clients)
        self._guards = as_guards(guards)
        self._holds_back = any_watches(self._guards, "output")
        self._retries = retries or RetryPolicy()
        self._deadline_s, self._hedge_after_s = deadline_s, hedge_after_s
        self._jitter = jitter or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._prices = prices
        self._warned = False

    def admit(self, request: LLMRequest, admission: Admission) -> PendingEvent:
        """Return the intent: what the call rests on and its digest, never its content."""
        tools_digest = admission.offers.digest(request.tools)
        data: dict[str, Any] = {
            "key": request.key,
            "upto": admission.upto,
            "digest": request.digest(tools_digest),
        }
        if provider := getattr(self._clients[0], "provider", None):
            data["provider"] = provider
        if server := getattr(self._clients[0], "server", None):
            data["server"] = dict(server)
        if tools_digest:
            data["tools_digest"] = tools_digest
            data["tools"] = [spec.name for spec in admission.offers.select(request.tools)]
        if request.output is not None:
            data["output"] = "json"
        # Its own where the request names none: a failed call has no reply that names it.
        if model := request.model or getattr(self._clients[0], "model", None):
            data["model"] = model
        if request.settings:
            data["settings"] = request.settings
        if request.state is not None:
            data["provider_state"] = True
        return PendingEvent(k.LLM_REQUESTED, data)

    async def handle(self, call: Call[LLMRequest]) -> Sequence[PendingEvent]:
        """Call the model and return its reply, or how it failed."""
        model_call = _ModelCall(call, self._clients[0])
        guarding = RequestGuards(self._guards, call)
        try:
            decided = model_call.decided
            if why := await guarding.input(decided.messages, checked=decided.checked):
                return [*guarding.verdicts, _blocked(call.event, why)]
            reply = None if call.known_reply is None else await call.known_reply()
            if reply is None:
                reply = await self._called(model_call)
            if why := await guarding.output(reply):
                return [*guarding.verdicts, _blocked(call.event, why, model_call, reply)]
            (message,) = await store([reply.message], call.blobs)
            if message.parts is not reply.parts:
                reply = replace(reply, parts=message.parts)
        except (LLMError, BlobError) as error:
            what = "got no reply for %s: %s (attempts: %d)"
            facts = (call.event.data["key"], error, model_call.attempts)
            log_run(logging.WARNING, call.run_id, what, *facts, logger=LLM_LOG)
            return [*guarding.verdicts, _failed(model_call, error)]
        self._show(reply, model_call)
        return [*guarding.verdicts, _completed(model_call, reply)]

    async def _called(self, model_call: _ModelCall) -> Reply:
        """Return the reply, with its cost.

        Raises:
            LLMError: no client has one.
        """
        async with deadline(self._deadline_s, clock=model_call.call.clock):
            reply = await self._complete_or_fall_back(model_call)
        reply = self._with_cost(reply, model_call)
        self._warn_of_no_cost(reply, model_call)
        return reply

    async def _complete_or_fall_back(self, model_call: _ModelCall) -> Reply:
        """Return the reply of the first client that has one.

        Raises:
            LLMError: none has.
        """
        for client, following in pairwise(self._clients):
            try:
                return await self._try(model_call, client, following)
            except LLMError as error:
                if not error.retryable:  # the next client would get the same request
                    raise
                what = "falls back to model %r for %s: %s"
                facts = (following.model, model_call.request.data["key"], error)
                log_run(logging.WARNING, model_call.request.run_id, what, *facts, logger=LLM_LOG)
                model_call.fall_back(client, following, error)
        return await self._try(model_call, self._clients[-1], None)

    async def _try(
        self, model_call: _ModelCall, client: LLMClient, following: LLMClient | None
    ) -> Reply:
        """Return the reply of a client, after several attempts if need be.

        Args:
            model_call: the call.
            client: whose turn it is.
            following: the next one, None if this is the last.
        """

        async def attempt() -> Reply:
            return await hedged(
                partial(self._attempt, model_call, client),
                partial(self._attempt, model_call, following or client, hedge=True),
                after_s=self._hedge_after_s,
                clock=model_call.call.clock,
            )

        return await retry(
            attempt,
            policy=self._retries,
            clock=model_call.call.clock,
            random=self._jitter.random,
            is_retryable=is_retryable if following is None else elsewhere(),
            on_retry=partial(_log_retry, model_call.request, self._retries),
        )

    async def _attempt(
        self, model_call: _ModelCall, client: LLMClient, claim: Claim, *, hedge: bool = False
    ) -> Reply:
        """Return the reply to one attempt, or to the one after it without the provider's state."""
        try:
            return await self._record(model_call, model_call.begin(client, hedge=hedge), claim)
        except LLMError as error:
            if not model_call.holds_state(client) or not error.state_lost:
                raise
        model_call.state = None  # the whole conversation will do
        return await self._record(model_call, model_call.begin(client, hedge=hedge), claim)

    async def _record(self, model_call: _ModelCall, attempt: _Attempt, claim: Claim) -> Reply:
        clock, began = model_call.call.clock, model_call.call.clock.monotonic()
        with counting() as counts:
            try:
                reply = await self._call(model_call, attempt, claim)
                claim()
            except BaseException as error:
                attempt.error = error
                if isinstance(error, CircuitOpen | RateLimited):
                    model_call.attempts -= 1  # nothing was sent
                raise
            finally:
                attempt.took_s = clock.monotonic() - began
                attempt.waited_s = counts.get("waited_s", 0.0)
        model_call.replied(attempt)
        return reply

    def recover(self, request: Event) -> PendingEvent | None:
        """Ask again: a model call that was cut off costs money, nothing else."""
        return None

    def _with_cost(self, reply: Reply, model_call: _ModelCall) -> Reply:
        if self._prices is None:
            return reply
        return with_cost(
            reply,
            self._prices,
            provider=model_call.provider,
            model=model_call.model or model_call.client.model,
            at=model_call.call.clock.now(),
        )

    def _warn_of_no_cost(self, reply: Reply, model_call: _ModelCall) -> None:
        if self._warned or model_call.call.budget.cost is None or reply.usage.cost is not None:
            return
        self._warned = True
        LLM_LOG.warning(
            "run %r limits its cost, but the cost of its model call is unknown and counts as "
            "nothing: give the LLMHandler prices= that have it (model %r, provider %r), or limit "
            "tokens; this is logged once",
            model_call.call.run_id,
            reply.model or model_call.model or model_call.client.model,
            model_call.provider,
        )

    async def _call(self, model_call: _ModelCall, attempt: _Attempt, claim: Claim) -> Reply:
        decided, call = model_call.decided, model_call.call
        messages = await load(decided.history, call.blobs)
        options: dict[str, Any] = {
            "model": decided.model if attempt.client is self._clients[0] else None,
            "tools": call.offers.select(decided.tools),
            "output": decided.output,
            "settings": decided.settings,
        }
        if model_call.state is not None and model_call.holds_state(attempt.client):
            options["state"] = {**model_call.state, "covers": decided.covers}
        if call.on_delta is None or self._holds_back:
            return await attempt.client.complete(messages, **options)
        key, begun = model_call.request.data["key"], call.clock.monotonic()
        pieces = attempt.client.stream(messages, **options)
        try:
            async for piece in pieces:
                if attempt.first_chunk_s is None:
                    attempt.first_chunk_s = round(call.clock.monotonic() - begun, 6)
                if isinstance(piece, Reply):
                    return piece
                claim()
                call.on_delta(LiveDelta(key=key, attempt=attempt.number, delta=piece))
        finally:
            if isinstance(pieces, AsyncGenerator):  # its connection is returned now
                await pieces.aclose()
        raise InvalidReply("the client's stream ended without a reply", retryable=True)

    def _show(self, reply: Reply, model_call: _ModelCall) -> None:
        """Show a reply that was held back, now that the guards have seen it."""
        on_delta, key = model_call.call.on_delta, model_call.request.data["key"]
        if on_delta is not None and self._holds_back:
            for delta in deltas_of(reply):
                on_delta(LiveDelta(key=key, attempt=model_call.attempts, delta=delta))


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """One attempt of a model call.

    Attributes:
        client: which is called.
        number: from 1.
        hedge: True if it began beside a slow one.
        after_s: when it began, counted from the beginning of the call.
        waited_s: how long a rate limiter made it wait.
        took_s: how long it took, the wait included; None while it goes on.
        error: how it failed.
        first_chunk_s: how long it took to its first piece, None if it was not streamed.
    """

    client: LLMClient
    number: int
    hedge: bool
    after_s: float
    waited_s: float = 0.0
    took_s: float | None = None
    error: BaseException | None = None
    first_chunk_s: float | None = None

    def to_json(self, model: str | None) -> dict[str, Any]:
        out: dict[str, Any] = {"model": model} if model else {}
        if self.after_s:
            out["after_s"] = round(self.after_s, 3)
        if self.took_s is not None:
            out["took_s"] = round(self.took_s, 3)
        if self.waited_s:
            out["waited_s"] = round(self.waited_s, 3)
        if self.hedge:
            out["hedge"] = True
        if self.error is not None:
            status = self.error.status if isinstance(self.error, LLMError) else None
            shown: dict[str, Any] = {} if status is None else {"status": status}
            out["error"] = {"type": type(self.error).__name__, **shown}
        return out


class _ModelCall:
    """One model call: its attempts, at one client after the other.

    Attributes:
        decided: the request.
        client: the one whose turn it is, or that has replied.
        state: what a provider holds of the conversation, for the first client alone.
        attempts: made so far, at all clients.
        begun: the same, with those that nothing was sent for.
        failed: what has become of the clients before, for the log.
        first_chunk_s: how long the attempt that replied took to its first piece, None if it was not
            streamed.
    """

    def __init__(self, call: Call[LLMRequest], client: LLMClient) -> None:
        """Begin with the first client."""
        self.call = call
        self.request = call.event
        self.client = self._first = client
        self.decided = call.decided
        self.state = self.decided.state
        self.attempts = 0
        self._began = call.clock.monotonic()
        self.begun: list[_Attempt] = []
        self.failed: list[dict[str, Any]] = []
        self.first_chunk_s: float | None = None

    @property
    def moved(self) -> bool:
        """True if another client than the first one is called, or has replied."""
        return self.client is not self._first

    @property
    def provider(self) -> str | None:
        """The provider that is called, None if unknown."""
        if self.moved:
            return getattr(self.client, "provider", None)
        return self.request.data.get("provider")

    @property
    def model(self) -> str | None:
        """The model that is called, None for the client's own."""
        return self._model_of(self.client)

    def holds_state(self, client: LLMClient) -> bool:
        """Return True if the provider of this client holds a part of the conversation."""
        return self.state is not None and client is self._first

    def begin(self, client: LLMClient, *, hedge: bool) -> _Attempt:
        """Begin an attempt."""
        self.attempts += 1
        after_s = self.call.clock.monotonic() - self._began
        attempt = _Attempt(client=client, number=len(self.begun) + 1, hedge=hedge, after_s=after_s)
        self.begun.append(attempt)
        return attempt

    def replied(self, attempt: _Attempt) -> None:
        """Note which attempt has the reply."""
        self.client, self.first_chunk_s = attempt.client, attempt.first_chunk_s

    def fall_back(self, client: LLMClient, following: LLMClient, error: LLMError) -> None:
        """Go on with the next client, which has no handle of another provider."""
        self.client = client
        before = {"model": self.model or client.model, "provider": self.provider}
        named = {name: value for name, value in before.items() if value}
        self.failed.append({**named, "error": _error_json(error)})
        self.client = following

    def attempted(self) -> dict[str, Any]:
        """Return the fields of the result that describe the attempts."""
        data: dict[str, Any] = {"key": self.request.data["key"]}
        if self.attempts > 1:
            data["attempts"] = self.attempts
        if self.failed:
            data["failed_models"] = self.failed
        if self.moved and self.provider:
            data["provider"] = self.provider
        simple = self.attempts == len(self.begun) == 1 and not self.begun[0].waited_s
        if self.begun and not simple:
            data["tries"] = [
                each.to_json(self._model_of(each.client) or each.client.model)
                for each in self.begun[:MAX_TRIES]
            ]
        return data

    def _model_of(self, client: LLMClient) -> str | None:
        return self.request.data.get("model") if client is self._first else client.model


def _as_clients(value: LLMClient | Sequence[LLMClient]) -> list[LLMClient]:
    clients: list[LLMClient] = (
        list(value) if isinstance(value, list | tuple) else [cast("LLMClient", value)]
    )
    for each in clients:
        require_attribute(each, "complete", "an LLMClient", "use one such as ChatClient(…)")
    if not clients:
        raise ValueError("expected a client or several, got an empty list")
    return clients


def _log_retry(
    request: Event, policy: RetryPolicy, failed: int, error: LibError, delay_s: float
) -> None:
    what = "tries %s again in %.1f s, %d of %d attempts have failed: %s"
    facts = (request.data["key"], delay_s, failed, policy.attempts, error)
    log_run(logging.INFO, request.run_id, what, *facts, logger=LLM_LOG)


def _completed(model_call: _ModelCall, reply: Reply) -> PendingEvent:
    if model_call.moved:  # what this provider holds is of no use to the first client
        reply = replace(reply, state=None, model=reply.model or model_call.client.model)
    data = model_call.attempted()
    data["reply"] = reply_to_json(with_writable_calls(with_distinct_calls(reply)))
    if is_empty(reply):
        data["empty"] = True
    output = model_call.decided.output
    if (
        output is not None
        and not reply.tool_calls
        and (mismatch := _output_mismatch(reply, output))
    ):
        data["misfit"] = mismatch
    if model_call.first_chunk_s is not None:
        data["first_chunk_s"] = model_call.first_chunk_s
    return PendingEvent(k.LLM_COMPLETED, data)


def _output_mismatch(reply: Reply, output: Mapping[str, Any]) -> str:
    try:
        parse_output(reply, output)
    except InvalidReply as error:
        return str(error)
    return ""


def with_distinct_calls(reply: Reply) -> Reply:
    """Return the reply with call ids that differ: some servers repeat or leave out theirs.

    What its provider has kept goes by the old ids, and is of no use with the new ones.
    """
    ids = {call.id for call in reply.tool_calls}
    if len(ids) == len(reply.tool_calls) and "" not in ids:
        return reply
    seen: set[str] = set()
    parts: list[Any] = []
    for part in reply.parts:
        if isinstance(part, ToolCall):
            part = replace(part, id=_distinct(part.id, seen))  # noqa: PLW2901 - the same part
        parts.append(part)
    return replace(reply, parts=tuple(parts), state=None)


def _distinct(call_id: str, seen: set[str]) -> str:
    wanted, number = call_id or "call", 1
    while wanted in seen:
        number += 1
        wanted = f"{call_id or 'model_call'}-{number}"
    seen.add(wanted)
    return wanted


def _blocked(
    request: Event, why: str, model_call: _ModelCall | None = None, reply: Reply | None = None
) -> PendingEvent:
    """Return the failure of a call that guards have blocked, with its cost and without its text."""
    data = {"key": request.data["key"]} if model_call is None else model_call.attempted()
    message = f"the {'reply' if reply else 'input'} is {why}"
    data |= {"reason": "blocked", "error": {"type": "Blocked", "message": message}}
    if reply is not None and (usage := usage_to_json(reply.usage)):
        data["usage"] = usage
    if reply is not None and reply.model:
        data["model"] = reply.model
    return PendingEvent(k.LLM_FAILED, data)


def _failed(model_call: _ModelCall, error: LLMError | BlobError) -> PendingEvent:
    return PendingEvent(
        k.LLM_FAILED, {**model_call.attempted(), "reason": "error", "error": _error_json(error)}
    )


def _error_json(error: LLMError | BlobError) -> dict[str, Any]:
    described: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, LLMError) and error.status is not None:
        described["status"] = error.status
    if isinstance(error, LLMError) and error.request_id is not None:
        described["request_id"] = error.request_id
    return described


UNWRITABLE: Final = "(not JSON, or nested too deeply)"


def with_writable_calls(reply: Reply) -> Reply:
    """Return the reply with arguments that are JSON, and not nested too deeply to be written.

    Other arguments are marked as invalid, which the model reads as the result of its call. Our
    clients do so themselves; this is for all others.
    """
    if all(_is_writable(call.arguments) for call in reply.tool_calls):
        return reply
    parts = [
        replace(part, arguments={}, invalid=UNWRITABLE)
        if isinstance(part, ToolCall) and not _is_writable(part.arguments)
        else part
        for part in reply.parts
    ]
    return replace(reply, parts=tuple(parts))


def _is_writable(arguments: Mapping[str, Any]) -> bool:
    try:
        canonical(arguments)
    except (TypeError, ValueError, RecursionError):
        return False
    return is_shallow(arguments)
