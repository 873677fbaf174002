"""Model calls."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from lib.engine.attachments import load, store
from lib.engine.core.algorithm import LLMRequest, Request
from lib.engine.core.settle import Draft
from lib.engine.given import check_has
from lib.engine.handler import Admission, Context, Live
from lib.engine.handlers.calls import with_writable_calls
from lib.engine.handlers.guarding import Guarding, as_guards, watch
from lib.engine.logs import LLM_LOG, log_run
from lib.errors import BlobError, InvalidReply, LibError, LLMError
from lib.events import Event
from lib.events import kinds as k
from lib.guards import Guard
from lib.llm import LLMClient, Reply, ToolCall, ToolSpec, parse_output, reply_to_json
from lib.llm.client import usage_to_json
from lib.llm.empty import is_empty
from lib.llm.pieces import deltas_of
from lib.llm.prices import PriceBook, with_cost
from lib.resilience import RetryPolicy, retry


class LLMHandler:
    """Fulfils model requests with a client; retries what may succeed later."""

    kind = k.LLM_REQUESTED
    request_type = LLMRequest
    offers: Sequence[ToolSpec] = ()

    def __init__(
        self,
        client: LLMClient,
        *,
        guards: Iterable[Guard] = (),
        retries: RetryPolicy | None = None,
        jitter: random.Random | None = None,
        prices: PriceBook | None = None,
    ) -> None:
        """Take a client.

        Args:
            client: speaks to the model.
            guards: asked in this order; "input" before a call, of what is new since the last
                reply (in a run's first call of all that it was given), and "output" of a reply,
                its thinking included, before anybody else sees any of it: then no piece of it is
                shown while it is written. What they block ends the run as BLOCKED.
            retries: how often and how long to try; each attempt is counted in the log.
            jitter: spreads the attempts of many processes.
            prices: for replies whose provider states no cost; it goes into the log with the reply,
                so that budgets see it and it never changes afterwards. A call whose cost nobody
                tells counts as nothing; the first one in a run with a ceiling of cost is warned of.

        Raises:
            TypeError: the client is none, such as the name of a model, or a class; or so is a
                guard.
        """
        check_has(client, "complete", "is no client: an LLMHandler takes one such as ChatClient(…)")
        self._client = client
        self._guards = as_guards(guards)
        self._holds_back = watch(self._guards, "output")
        self._retries = retries or RetryPolicy()
        self._jitter = jitter or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._prices = prices
        self._warned = False

    def admit(self, request: Request, admission: Admission) -> Draft:
        """Return the intent: what the call rests on and its digest, never its content."""
        request = cast("LLMRequest", request)
        tools_digest = admission.offers.digest(request.tools)
        data: dict[str, Any] = {
            "key": request.key,
            "upto": admission.upto,
            "digest": request.digest(tools_digest),
        }
        if provider := getattr(self._client, "provider", None):
            data["provider"] = provider
        if server := getattr(self._client, "server", None):
            data["server"] = dict(server)
        if tools_digest:
            data["tools_digest"] = tools_digest
            data["tools"] = [spec.name for spec in admission.offers.chosen(request.tools)]
        if request.output is not None:
            data["output"] = "json"
        # Its own where the request names none: a call that fails has no reply that tells.
        if model := request.model or getattr(self._client, "model", None):
            data["model"] = model
        if request.settings:
            data["settings"] = request.settings
        if request.state is not None:
            data["provider_state"] = True
        return Draft(k.LLM_REQUESTED, data)

    async def handle(self, request: Event, context: Context) -> Sequence[Draft]:
        """Call the model and return its reply, or how it failed."""
        decided = cast("LLMRequest", context.decided)
        attempts, state = 0, decided.state
        streamed = _Streamed()
        guarding = Guarding(self._guards, request, context)

        async def attempt() -> Reply:
            nonlocal attempts, state
            attempts += 1
            try:
                return await self._call(request, context, attempts, state, streamed)
            except LLMError as error:
                if state is None or not error.state_lost:
                    raise
            attempts, state = attempts + 1, None  # the whole conversation will do
            return await self._call(request, context, attempts, None, streamed)

        try:
            if why := await guarding.input(decided.messages):
                return [*guarding.verdicts, _blocked(request, why)]
            reply = await retry(
                attempt,
                policy=self._retries,
                clock=context.clock,
                random=self._jitter.random,
                on_retry=partial(_log_retry, request, self._retries),
            )
            reply = self._priced(reply, request, context)
            self._warn_of_no_cost(reply, request, context)
            if why := await guarding.output(reply):
                return [*guarding.verdicts, _blocked(request, why, attempts, reply)]
            (message,) = await store([reply.message], context.blobs)
        except (LLMError, BlobError) as error:
            what = "got no reply for %s: %s (attempts: %d)"
            key = request.data["key"]
            log_run(logging.WARNING, request.run_id, what, key, error, attempts, logger=LLM_LOG)
            return [*guarding.verdicts, _failed(request, error, attempts)]
        self._show(reply, request, context, attempts)
        reply = replace(reply, parts=message.parts)
        result = _completed(request, context, reply, attempts)
        if streamed.first_chunk_s is not None:
            result.data["first_chunk_s"] = streamed.first_chunk_s
        return [*guarding.verdicts, result]

    def recover(self, request: Event) -> Draft | None:
        """Ask again: a model call that was cut off costs money, nothing else."""
        return None

    def _priced(self, reply: Reply, request: Event, context: Context) -> Reply:
        if self._prices is None:
            return reply
        return with_cost(
            reply,
            self._prices,
            provider=request.data.get("provider"),
            model=request.data.get("model") or self._client.model,
            at=context.clock.now(),
        )

    def _warn_of_no_cost(self, reply: Reply, request: Event, context: Context) -> None:
        if self._warned or context.budget.cost is None or reply.usage.cost is not None:
            return
        self._warned = True
        LLM_LOG.warning(
            "run %r has a ceiling of cost, but nobody tells what its model call has cost, and "
            "the call counts as nothing: give the LLMHandler prices= that know it (model %r, "
            "provider %r), or limit tokens; this is not told again",
            context.run_id,
            reply.model or request.data.get("model") or self._client.model,
            request.data.get("provider"),
        )

    async def _call(
        self,
        request: Event,
        context: Context,
        attempt: int,
        state: Mapping[str, Any] | None,
        streamed: _Streamed,
    ) -> Reply:
        decided = cast("LLMRequest", context.decided)
        messages = await load(decided.messages, context.blobs)
        options: dict[str, Any] = {
            "model": decided.model,
            "tools": context.offers.chosen(decided.tools),
            "output": decided.output,
            "settings": decided.settings,
        }
        if state is not None:
            options["state"] = {**state, "covers": decided.covers}
        if context.live is None or self._holds_back:
            return await self._client.complete(messages, **options)
        key, begun = request.data["key"], context.clock.monotonic()
        streamed.first_chunk_s = None
        async for piece in self._client.stream(messages, **options):
            if streamed.first_chunk_s is None:
                streamed.first_chunk_s = round(context.clock.monotonic() - begun, 6)
            if isinstance(piece, Reply):
                return piece
            context.live(Live(key=key, attempt=attempt, delta=piece))
        raise InvalidReply("the client's stream ended without a reply", retryable=True)

    def _show(self, reply: Reply, request: Event, context: Context, attempt: int) -> None:
        """Show a reply that was held back, now that the guards have seen it."""
        if context.live is not None and self._holds_back:
            for delta in deltas_of(reply):
                context.live(Live(key=request.data["key"], attempt=attempt, delta=delta))


def _log_retry(
    request: Event, policy: RetryPolicy, failed: int, error: LibError, delay_s: float
) -> None:
    what = "tries %s again in %.1f s, %d of %d attempts have failed: %s"
    facts = (request.data["key"], delay_s, failed, policy.attempts, error)
    log_run(logging.INFO, request.run_id, what, *facts, logger=LLM_LOG)


@dataclass(slots=True)
class _Streamed:
    """How long the last attempt took to its first piece, None if it was not streamed."""

    first_chunk_s: float | None = None


def _completed(request: Event, context: Context, reply: Reply, attempts: int) -> Draft:
    data: dict[str, Any] = {
        "key": request.data["key"],
        "reply": reply_to_json(with_writable_calls(with_distinct_calls(reply))),
    }
    if attempts > 1:
        data["attempts"] = attempts
    if is_empty(reply):
        data["empty"] = True
    output = cast("LLMRequest", context.decided).output
    if output is not None and not reply.tool_calls and (misfit := _misfit(reply, output)):
        data["misfit"] = misfit
    return Draft(k.LLM_COMPLETED, data)


def _misfit(reply: Reply, output: Mapping[str, Any]) -> str:
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
        wanted = f"{call_id or 'call'}-{number}"
    seen.add(wanted)
    return wanted


def _blocked(request: Event, why: str, attempts: int = 0, reply: Reply | None = None) -> Draft:
    """Return how a call ends that guards have stopped; what it cost is kept, what it said not."""
    error = {"type": "Blocked", "message": f"the {'reply' if reply else 'input'} is {why}"}
    data: dict[str, Any] = {"key": request.data["key"], "reason": "blocked", "error": error}
    if attempts > 1:
        data["attempts"] = attempts
    if reply is not None and (usage := usage_to_json(reply.usage)):
        data["usage"] = usage
    if reply is not None and reply.model:
        data["model"] = reply.model
    return Draft(k.LLM_FAILED, data)


def _failed(request: Event, error: LLMError | BlobError, attempts: int) -> Draft:
    told: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, LLMError) and error.status is not None:
        told["status"] = error.status
    data: dict[str, Any] = {"key": request.data["key"], "reason": "error", "error": told}
    if attempts > 1:
        data["attempts"] = attempts
    return Draft(k.LLM_FAILED, data)
