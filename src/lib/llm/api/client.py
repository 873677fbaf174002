"""The base of clients of model servers, for any of their paths."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final, Self, TypedDict, TypeVar

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.repeated import RepeatedFailure
from lib._util.trace_context import CURRENT_CALL
from lib.errors import InvalidReply, LLMError
from lib.http.client import Answer, HTTPClient
from lib.http.failures import request_id, status_error
from lib.llm.api.endpoint import Endpoint, host_and_port, server_of
from lib.llm.api.streams import (
    Builder,
    Decoder,
    EventDecoder,
    ServerEvent,
    deltas,
    new_call_id,
    read_json,
)
from lib.llm.client import Delta, Reply, check_modalities
from lib.llm.messages import Message
from lib.llm.parts import ToolCall

B = TypeVar("B", bound=Builder)

_log = logging.getLogger("lib.llm")

TEXT_ONLY: Final = frozenset({"text"})

_OK: Final = 200


class ClientOptions(TypedDict, total=False):
    """Options of all clients of model servers.

    Attributes:
        timeout_s: seconds for each whole answer, streams included; 300 by default.
        idle_timeout_s: seconds between two pieces of an answer; no limit by default.
        http: an `httpx2.AsyncClient` to use; it is not closed.
        transport: an httpx2 transport instead of the network, for tests and gateways.
        headers: sent with each request.
        provider: the provider that bills calls; defaults to the one of the address.
        max_reply_bytes: content of one answer at most; 16 MiB by default.
        clock: turns a date in Retry-After into seconds.
        new_id: makes ids for tool calls that come without a usable one.
    """

    timeout_s: float
    idle_timeout_s: float | None
    http: Any
    transport: Any
    headers: Mapping[str, str] | None
    provider: str | None
    max_reply_bytes: int
    clock: Clock
    new_id: Callable[[], str]


class ModelClient:
    """Posts bodies to one path of a server, and gives what it answers to a builder.

    A subclass builds the body and the reply, and names the error of a refusal.

    Attributes:
        name: the API that it speaks.
        model: the model of calls that name none.
        modalities: what messages may carry.
        provider: the provider that bills calls, None if unknown.
        server: `address` and `port` of the server, as spans show them.
    """

    name: ClassVar[str]
    _accept: ClassVar[str] = "text/event-stream"

    def __init__(
        self,
        model: str,
        endpoint: Endpoint,
        *,
        modalities: frozenset[str],
        timeout_s: float = 300.0,
        idle_timeout_s: float | None = None,
        http: Any = None,
        transport: Any = None,
        headers: Mapping[str, str] | None = None,
        provider: str | None = None,
        max_reply_bytes: int = 16 * 1024 * 1024,
        clock: Clock = SYSTEM_CLOCK,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        """Prepare a client; nothing is opened before the first call. See `ClientOptions`.

        Raises:
            ValueError: both `http` and `transport`.
        """
        self._host = endpoint.host
        self.model = model
        self.modalities = modalities
        self.provider: str | None = provider or endpoint.provider
        self.server: Mapping[str, Any] = server_of(endpoint.address)
        self._address = endpoint.address
        own = {name.lower(): value for name, value in (headers or {}).items()}
        self._headers = {**endpoint.headers, **own}
        self._http = HTTPClient(
            http=http,
            transport=transport,
            timeout_s=timeout_s,
            idle_timeout_s=idle_timeout_s,
            max_bytes=max_reply_bytes,
            failure=LLMError,
            unreadable=InvalidReply,
        )
        self._clock, self._new_id = clock, new_id
        self._server = host_and_port(endpoint.address)
        self._unreachable = RepeatedFailure(_log, logging.WARNING, clock)

    async def aclose(self) -> None:
        """Close the connections that it has opened; another call opens new ones."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _check(self, messages: Sequence[Message]) -> None:
        check_modalities(messages, self.modalities, client=self.name)

    async def _fill(self, builder: Builder, path: str, body: Mapping[str, Any]) -> None:
        """Give the builder the whole answer."""
        async with self._post(path, body, accept="application/json") as answer:
            builder.request_id = request_id(answer.headers) or ""
            builder.add(read_json(await answer.read()), whole=True)

    @asynccontextmanager
    async def _filling(
        self,
        builder: B,
        path: str,
        body: Mapping[str, Any],
        take: Callable[[ServerEvent, B], Iterable[Delta]],
    ) -> AsyncGenerator[AsyncGenerator[Delta]]:
        """Give the builder the answer as it comes; what is yielded yields what that adds."""
        async with self._post(path, body, accept=self._accept) as answer:
            builder.request_id = request_id(answer.headers) or ""
            async with aclosing(deltas(answer, builder, take, self._decoder())) as pieces:
                yield pieces

    def _decoder(self) -> Decoder:
        """Return what finds the events in the bytes of a stream."""
        return EventDecoder()

    def _reply(self, builder: Builder) -> Reply:
        """Return what the builder has made of an answer, or raise its error, with its name."""
        try:
            return replace(builder.reply(), request_id=builder.request_id)
        except LLMError as error:
            error.request_id = builder.request_id or None
            raise

    def _refusal(self, answer: Answer, start: bytes, body: Mapping[str, Any]) -> LLMError:
        """Return the error of an answer whose status is not 200.

        Args:
            answer: its status and headers.
            start: of its content.
            body: of the request.
        """
        return status_error(answer.status, start, answer.headers, self._clock.now(), LLMError)

    async def _authorized(self, url: str, content: bytes) -> Mapping[str, str]:
        """Return the headers of one request that depend on it, or on the hour."""
        return {}

    @asynccontextmanager
    async def _post(
        self, path: str, body: Mapping[str, Any], *, accept: str
    ) -> AsyncGenerator[Answer]:
        # In the order that it was built in: models write properties in the order of the schema.
        content = json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
        url = self._address + path
        headers = {**_traced(), **self._headers, "accept": accept}
        headers |= await self._authorized(url, content)
        async with AsyncExitStack() as stack:
            try:
                answer = await stack.enter_async_context(self._http.post(url, content, headers))
            except LLMError as error:
                if error.retryable:
                    self._unreachable.failed(
                        f"no answer from the model server {self._server}", error
                    )
                raise
            self._unreachable.ended(f"the model server {self._server} answers again")
            if answer.status != _OK:
                raise self._refusal(answer, await answer.read_start(), body)
            if answer.media_type == "text/html":
                raise InvalidReply("the server answered with a web page: check base_url")
            try:
                yield answer
            except LLMError as error:
                error.request_id = error.request_id or request_id(answer.headers)
                raise


def _traced() -> dict[str, str]:
    """Return the header by which a server joins the application's trace.

    Not `tracestate`: that is what others have noted, and no model server needs to know.
    """
    call = CURRENT_CALL.get()
    return {} if call is None else {"traceparent": call.traceparent}


def used_ids(messages: Sequence[Message]) -> set[str]:
    """Return the ids of the tool calls in a conversation, which a new call must not have."""
    parts = (part for message in messages for part in message.parts)
    return {part.id for part in parts if isinstance(part, ToolCall)}
