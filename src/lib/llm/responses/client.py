"""`OpenAIClient`: models behind OpenAI's responses API, which can keep conversations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.errors import LLMError
from lib.http.client import Answer
from lib.llm.api.client import TEXT_ONLY, ModelClient, used_ids
from lib.llm.api.endpoint import openai_endpoint
from lib.llm.api.streams import ServerEvent, new_call_id, read_json
from lib.llm.client import Delta, Output, Reply, ToolSpec
from lib.llm.messages import Message
from lib.llm.responses.reply import ReplyBuilder
from lib.llm.responses.request import SEALED, Cache, build_body
from lib.llm.responses.state import ignored, is_unopened, refused, split

MODALITIES: Final = frozenset({"text", "image", "file"})
"""What the wire can carry."""

_PATH: Final = "/responses"


class OpenAIClient(ModelClient):
    """Speaks `/responses`, as OpenAI and some compatible servers do.

    It neither retries nor remembers, and can serve many calls at once on one event loop. The
    server keeps the conversation unless `store=False`: `Reply.state` is the handle on it, and a
    call with that handle sends only what is new. A server that has once answered without what the
    handle stands for bills that answer; this object gives and uses no handles any more. What
    an organization keeps or not is between it and OpenAI; nothing here deletes it there. Sealed
    reasoning that the server cannot open is left out of the next attempt, and of all later calls.

    Settings go into the request as they are, except that `max_tokens` gets the server's name for
    it and `tool_choice` may be the name of a tool.

    Source: OpenAI API reference, "Create a model response" (developers.openai.com, 2026-11).
    """

    name = "responses"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout_s: float = 300.0,
        idle_timeout_s: float | None = None,
        http: Any = None,
        transport: Any = None,
        modalities: frozenset[str] = TEXT_ONLY,
        store: bool = True,
        cache: Cache | None = None,
        headers: Mapping[str, str] | None = None,
        provider: str | None = None,
        max_reply_bytes: int = 16 * 1024 * 1024,
        clock: Clock = SYSTEM_CLOCK,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        """Prepare a client; nothing is opened before the first call.

        Args:
            model: the model of calls that name none.
            api_key: defaults to OPENAI_API_KEY; a server other than OpenAI's may need none.
            base_url: up to and with `/v1`; defaults to OPENAI_BASE_URL, else OpenAI.
            timeout_s: seconds for each whole answer, streams included.
            idle_timeout_s: seconds between two pieces of an answer; None for no limit.
            http: an `httpx2.AsyncClient` to use; it is not closed.
            transport: an httpx2 transport instead of the network, for tests and gateways.
            modalities: what the model takes beside "text": "image", "file".
            store: False makes the server keep nothing: replies bring no handle, handles are not
                used, and each call sends the whole conversation.
            cache: marks the beginning that the next call repeats, to be kept for so long at least:
                "30m" or "12h", for GPT-5.6 and later; None leaves that to the server's own rule.
            headers: sent with each request.
            provider: the provider that bills calls, such as "openai" behind a proxy; defaults to
                the one of the address, None for an unknown host.
            max_reply_bytes: content of one answer at most; a stream holds everything twice.
            clock: turns a date in Retry-After into seconds.
            new_id: makes ids for tool calls that come without a usable one.

        Raises:
            ValueError: no key for OpenAI, a key or address that cannot be one, a modality that the
                wire cannot carry, or both `http` and `transport`.
        """
        if not modalities <= MODALITIES:
            unknown = ", ".join(sorted(modalities - MODALITIES))
            raise ValueError(f"the responses API carries text, image and file, not {unknown}")
        super().__init__(
            model,
            openai_endpoint(api_key, base_url),
            timeout_s=timeout_s,
            idle_timeout_s=idle_timeout_s,
            http=http,
            transport=transport,
            modalities=modalities,
            headers=headers,
            provider=provider,
            max_reply_bytes=max_reply_bytes,
            clock=clock,
            new_id=new_id,
        )
        self._store = self._handles = store
        self._cache: Cache | None = cache
        self._unopened = set[tuple[Any, Any]]()

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
        """Return the model's answer; see `LLMClient.complete`."""
        previous, new = self._split(messages, state)
        body = self._body(new, model, tools, output, settings, previous=previous, stream=False)
        builder = self._builder(messages, previous)
        await self._fill(builder, _PATH, body)
        return self._reply(builder)

    async def stream(
        self,
        messages: Sequence[Message],
        *,
        model: str | None = None,
        tools: Sequence[ToolSpec] = (),
        output: Output | None = None,
        settings: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[Delta | Reply]:
        """Yield the answer in pieces, then whole; see `LLMClient.stream`.

        A caller that stops in the middle closes the iterator, which closes the connection.
        """
        previous, new = self._split(messages, state)
        body = self._body(new, model, tools, output, settings, previous=previous, stream=True)
        builder = self._builder(messages, previous)
        async with self._filling(builder, _PATH, body, take_event) as pieces:
            async for delta in pieces:
                yield delta
        yield self._reply(builder)

    def _split(
        self, messages: Sequence[Message], state: Mapping[str, Any] | None
    ) -> tuple[str, Sequence[Message]]:
        self._check(messages)
        return split(messages, state if self._handles else None, self._host)

    def _body(
        self,
        messages: Sequence[Message],
        model: str | None,
        tools: Sequence[ToolSpec],
        output: Output | None,
        settings: Mapping[str, Any] | None,
        *,
        previous: str,
        stream: bool,
    ) -> dict[str, Any]:
        body = build_body(
            messages,
            model=model or self.model,
            server=self._host,
            previous=previous,
            tools=tools,
            output=output,
            settings=settings,
            store=self._store,
            stream=stream,
            cache=self._cache,
        )
        if self._unopened:
            body["input"] = [each for each in body["input"] if _seal(each) not in self._unopened]
        return body

    def _builder(self, messages: Sequence[Message], previous: str) -> ReplyBuilder:
        return ReplyBuilder(
            used_ids=used_ids(messages),
            new_id=self._new_id,
            server=self._host,
            store=self._handles,
            previous=previous,
            ignored=self._ignored,
        )

    def _leave_out(self, body: Mapping[str, Any]) -> bool:
        """Stop sending what is sealed in this body; return True if there is anything."""
        seals = {_seal(item) for item in body["input"] if SEALED in item}
        self._unopened |= seals
        return bool(seals)

    def _ignored(self) -> LLMError:
        self._handles = False  # or each call would be paid for twice
        return ignored()

    def _refusal(self, answer: Answer, start: bytes, body: Mapping[str, Any]) -> LLMError:
        previous, now = body.get("previous_response_id", ""), self._clock.now()
        error = refused(answer.status, start, answer.headers, now, previous=previous)
        if is_unopened(start):
            error.retryable = self._leave_out(body)
        return error


def _seal(item: Mapping[str, Any]) -> tuple[Any, Any]:
    return item.get("id"), item.get(SEALED)


def take_event(event: ServerEvent, builder: ReplyBuilder) -> list[Delta]:
    """Give the builder what an event holds, and return what that adds.

    Raises:
        LLMError: the event is an error that the server reports.
        InvalidReply: it is not JSON.
    """
    text = event.data.strip()
    if builder.ended or text in {"", "[DONE]"}:
        return []
    return builder.add(read_json(text), name=event.event)
