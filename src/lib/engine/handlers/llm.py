"""Model calls."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from lib._util.json import canonical
from lib.engine.arguments import require_attribute
from lib.engine.core.algorithm import LLMRequest
from lib.engine.core.settle import PendingEvent
from lib.engine.handlers.attachments import load, store
from lib.engine.handlers.base import Admission, Call, LiveDelta
from lib.engine.handlers.guards import RequestGuards, any_watches, as_guards
from lib.engine.logs import LLM_LOG, log_run
from lib.errors import BlobError, InvalidReply, LibError, LLMError
from lib.events import Event
from lib.events import kinds as k
from lib.guards import Guard
from lib.llm import LLMClient, Reply, ToolCall, ToolSpec, parse_output, reply_to_json
from lib.llm.api.fields import is_shallow
from lib.llm.client import usage_to_json
from lib.llm.prices import PriceBook, with_cost
from lib.llm.replies import deltas_of, is_empty
from lib.resilience import RetryPolicy, retry


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
            retries: how often and how long to try; each attempt is counted in the log.
            jitter: spreads the attempts of many processes.
            prices: for replies whose provider states no cost; it goes into the log with the reply,
                so that budgets see it and it never changes afterwards. A call without a
                stated cost counts as nothing; the first one in a run with a cost ceiling is logged.

        Raises:
            TypeError: a client or a guard is of another type, such as the name of a model or a
                class.
            ValueError: there is no client.
        """
        self._clients = _as_clients(clients)
        self._guards = as_guards(guards)
        self._holds_back = any_watches(self._guards, "output")
        self._retries = retries or RetryPolicy()
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
            if why := await guarding.input(model_call.decided.messages):
                return [*guarding.verdicts, _blocked(call.event, why)]
            reply = self._with_cost(await self._complete_or_fall_back(model_call), model_call)
            self._warn_of_no_cost(reply, model_call)
            if why := await guarding.output(reply):
                return [*guarding.verdicts, _blocked(call.event, why, model_call, reply)]
            (message,) = await store([reply.message], call.blobs)
        except (LLMError, BlobError) as error:
            what = "got no reply for %s: %s (attempts: %d)"
            facts = (call.event.data["key"], error, model_call.attempts)
            log_run(logging.WARNING, call.run_id, what, *facts, logger=LLM_LOG)
            return [*guarding.verdicts, _failed(model_call, error)]
        self._show(reply, model_call)
        return [*guarding.verdicts, _completed(model_call, replace(reply, parts=message.parts))]

    async def _complete_or_fall_back(self, model_call: _ModelCall) -> Reply:
        """Return the reply of the first client that has one.

        Raises:
            LLMError: none has.
        """
        for client in self._clients[1:]:
            try:
                return await self._try(model_call)
            except LLMError as error:
                if not error.retryable:  # the next client would get the same request
                    raise
                what = "falls back to model %r for %s: %s"
                facts = (client.model, model_call.request.data["key"], error)
                log_run(logging.WARNING, model_call.request.run_id, what, *facts, logger=LLM_LOG)
                model_call.fall_back(client, error)
        return await self._try(model_call)

    async def _try(self, model_call: _ModelCall) -> Reply:
        async def attempt() -> Reply:
            model_call.attempts += 1
            try:
                return await self._call(model_call)
            except LLMError as error:
                if model_call.state is None or not error.state_lost:
                    raise
            model_call.attempts, model_call.state = (
                model_call.attempts + 1,
                None,
            )  # the whole conversation will do
            return await self._call(model_call)

        return await retry(
            attempt,
            policy=self._retries,
            clock=model_call.call.clock,
            random=self._jitter.random,
            on_retry=partial(_log_retry, model_call.request, self._retries),
        )

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

    async def _call(self, model_call: _ModelCall) -> Reply:
        decided, call = model_call.decided, model_call.call
        messages = await load(decided.history, call.blobs)
        options: dict[str, Any] = {
            "model": None if model_call.failed else decided.model,
            "tools": call.offers.select(decided.tools),
            "output": decided.output,
            "settings": decided.settings,
        }
        if model_call.state is not None:
            options["state"] = {**model_call.state, "covers": decided.covers}
        if call.on_delta is None or self._holds_back:
            return await model_call.client.complete(messages, **options)
        key, begun = model_call.request.data["key"], call.clock.monotonic()
        model_call.first_chunk_s = None
        pieces = model_call.client.stream(messages, **options)
        try:
            async for piece in pieces:
                if model_call.first_chunk_s is None:
                    model_call.first_chunk_s = round(call.clock.monotonic() - begun, 6)
                if isinstance(piece, Reply):
                    return piece
                call.on_delta(LiveDelta(key=key, attempt=model_call.attempts, delta=piece))
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


class _ModelCall:
    """One model call: its attempts, at one client after the other.

    Attributes:
        decided: the request.
        client: the one whose turn it is.
        state: what a provider holds of the conversation, for the first client alone.
        attempts: made so far, at all clients.
        failed: what has become of the clients before, for the log.
        first_chunk_s: how long the last attempt took to its first piece, None if it was not
            streamed.
    """

    def __init__(self, call: Call[LLMRequest], client: LLMClient) -> None:
        """Begin with the first client."""
        self.call = call
        self.request = call.event
        self.client = client
        self.decided = call.decided
        self.state = self.decided.state
        self.attempts = 0
        self.failed: list[dict[str, Any]] = []
        self.first_chunk_s: float | None = None

    @property
    def provider(self) -> str | None:
        """The provider that is called, None if unknown."""
        if self.failed:
            return getattr(self.client, "provider", None)
        return self.request.data.get("provider")

    @property
    def model(self) -> str | None:
        """The model that is called, None for the client's own."""
        return self.client.model if self.failed else self.request.data.get("model")

    def fall_back(self, client: LLMClient, error: LLMError) -> None:
        """Go on with the next client, which has no handle of another provider."""
        before = {"model": self.model or self.client.model, "provider": self.provider}
        named = {name: value for name, value in before.items() if value}
        self.failed.append({**named, "error": _error_json(error)})
        self.client, self.state, self.first_chunk_s = client, None, None

    def attempted(self) -> dict[str, Any]:
        """Return the fields of the result that describe the attempts."""
        data: dict[str, Any] = {"key": self.request.data["key"]}
        if self.attempts > 1:
            data["attempts"] = self.attempts
        if self.failed:
            data["failed_models"] = self.failed
            if self.provider:
                data["provider"] = self.provider
        return data


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
    if model_call.failed:  # what this provider holds is of no use to the first client
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
