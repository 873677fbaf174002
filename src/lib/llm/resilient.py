"""A model behind a circuit breaker and a rate limiter."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

from lib._util.contexts import AsyncClosable
from lib.errors import InvalidReply
from lib.llm.client import Delta, LLMClient, Output, Reply, ToolSpec
from lib.llm.messages import Message
from lib.llm.models import open_client
from lib.llm.replies import estimate_tokens
from lib.resilience import CircuitBreaker, RateLimiter
from lib.resilience.protect import Protection


class ResilientClient(AsyncClosable):
    """Calls a model only while it works, and only as fast as its account may.

    What it refuses has not been sent: the next model of an agent's list is called at once. A call
    counts by an estimate of its input and its setting `max_tokens`, and after that by its usage.

    Attributes:
        client: the model's client; what it has beyond `LLMClient` is had from here as well.
    """

    def __init__(
        self,
        client: LLMClient | str,
        *,
        breaker: CircuitBreaker | None = None,
        limiter: RateLimiter | None = None,
    ) -> None:
        """Put a breaker, a limiter or both before a model.

        Args:
            client: a client, or "provider:model"; closing this closes it.
            breaker: shared by all that call the same service.
            limiter: shared by all that use the same account.

        Raises:
            ValueError: a model's name is unknown, or its key is missing.
        """
        self.client: LLMClient = open_client(client) if isinstance(client, str) else client
        self._protection = Protection(breaker, limiter)

    def __getattr__(self, name: str) -> Any:
        """Return what the client has beyond `LLMClient`, such as its provider."""
        if name == "client":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.client, name)

    @property
    def name(self) -> str:
        """The wire that the client speaks."""
        return self.client.name

    @property
    def model(self) -> str:
        """The model of calls that name none."""
        return self.client.model

    @property
    def modalities(self) -> frozenset[str]:
        """The modalities that messages may carry."""
        return self.client.modalities

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        model: str | None = None,
        tools: Sequence[ToolSpec] = (),
        output: Output | None = None,
        settings: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Return the model's answer to the conversation; see `LLMClient`.

        Raises:
            CircuitOpen: the model is not called now.
            RateLimited: the turn of the call would come too late.
            LLMError: as the client does.
        """
        options = _options(model, tools, output, settings, state)
        async with self._protection.attempt(_estimate(messages, settings)) as attempt:
            reply = await self.client.complete(messages, **options)
            attempt.tokens = _used(reply)
        return reply

    async def stream(
        self,
        messages: Sequence[Message],
        *,
        model: str | None = None,
        tools: Sequence[ToolSpec] = (),
        output: Output | None = None,
        settings: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Delta | Reply]:
        """Yield the answer in pieces as it comes, and last the whole `Reply`; see `complete`."""
        options = _options(model, tools, output, settings, state)
        async with self._protection.attempt(_estimate(messages, settings)) as attempt:
            pieces = self.client.stream(messages, **options)
            if not isinstance(pieces, AsyncGenerator):
                pieces = _generated(pieces)
            async with aclosing(cast("AsyncGenerator[Delta | Reply]", pieces)) as closing:
                async for piece in closing:
                    if isinstance(piece, Reply):
                        reply = piece
                        break
                    yield piece
                else:
                    raise InvalidReply("the client's stream ended without a reply", retryable=True)
            attempt.tokens = _used(reply)
        yield reply

    async def aclose(self) -> None:
        """Close the client."""
        close = getattr(self.client, "aclose", None)
        if close is not None:
            await close()


def _options(
    model: str | None,
    tools: Sequence[ToolSpec],
    output: Output | None,
    settings: Mapping[str, Any] | None,
    state: Mapping[str, Any] | None,
) -> dict[str, Any]:
    options: dict[str, Any] = {
        "model": model,
        "tools": tools,
        "output": output,
        "settings": settings,
    }
    return options if state is None else {**options, "state": state}


def _estimate(messages: Sequence[Message], settings: Mapping[str, Any] | None) -> int:
    most = (settings or {}).get("max_tokens")
    return estimate_tokens(messages) + (most if isinstance(most, int) else 0)


def _used(reply: Reply) -> int | None:
    """Return the tokens that a call has used, None where the server does not count them."""
    return (reply.usage.input_tokens + reply.usage.output_tokens) or None


async def _generated(pieces: AsyncIterator[Delta | Reply]) -> AsyncGenerator[Delta | Reply]:
    async for piece in pieces:
        yield piece
