"""`ChatClient`: models behind an OpenAI-compatible server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.errors import LLMError
from lib.http.failures import reported_error
from lib.llm.api.client import TEXT_ONLY, ModelClient, used_ids
from lib.llm.api.conversation import Origin
from lib.llm.api.endpoint import OPENAI_HOST, openai_endpoint
from lib.llm.api.streams import ServerEvent, new_call_id, read_json
from lib.llm.chat.reasoning import kept_details
from lib.llm.chat.reply import ReplyBuilder
from lib.llm.chat.request import Dialect, build_body, request_prefix
from lib.llm.client import Delta, Output, Reply, ToolSpec
from lib.llm.messages import Message
from lib.llm.output import output_schema
from lib.llm.parts import Part, Text, ToolCall
from lib.llm.replies import arguments_text, deltas_of

_PATH: Final = "/chat/completions"


class ChatClient(ModelClient):
    """Speaks `/chat/completions`: OpenAI, Ollama, vLLM, llama.cpp, OpenRouter and their like.

    It neither retries nor remembers, and can serve many calls at once on one event loop. Settings
    go into the request as they are, except that `max_tokens` gets the server's name for it and
    `tool_choice` may be the name of a tool. `state` is not used: the whole conversation is sent.
    """

    name = "chat"

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
        stream_tools: bool = True,
        output_tool: bool = False,
        thinking_field: str = "",
        max_tokens_field: str | None = None,
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
            modalities: what the model takes beside "text": "image", "audio", "file".
            stream_tools: False requests whole answers whenever there are tools, for servers that
                lose tool calls in streams.
            output_tool: True requests outputs by way of a tool, for servers that cannot constrain
                a reply and take tools at once, as Ollama and llama.cpp.
            thinking_field: where the server wants its thinking back, as "reasoning_content" for
                DeepSeek; "" leaves thinking out of the conversation.
            max_tokens_field: defaults to "max_completion_tokens" at OpenAI, else "max_tokens".
            headers: sent with each request.
            provider: the provider that bills calls, such as "openai" behind a proxy; defaults to
                the one of the address, None for an unknown host.
            max_reply_bytes: content of one answer at most.
            clock: turns a date in Retry-After into seconds.
            new_id: makes ids for tool calls that come without a usable one.

        Raises:
            ValueError: no key for OpenAI, a key or address that cannot be one, or both `http` and
                `transport`.
        """
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
        field = "max_completion_tokens" if self._host == OPENAI_HOST else "max_tokens"
        self._dialect = Dialect(
            max_tokens_field=max_tokens_field or field, thinking_field=thinking_field
        )
        self._stream_tools, self._output_tool = stream_tools, output_tool

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
        body = self._body(messages, model, tools, output, settings, stream=False)
        builder = self._builder(messages, body)
        await self._fill(builder, _PATH, body)
        return self._finished(builder, output)

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
        if not self._stream_tools and (tools or (output and self._output_tool)):
            options: dict[str, Any] = {"model": model, "output": output, "settings": settings}
            reply = await self.complete(messages, tools=tools, **options)
            for delta in deltas_of(reply):
                yield delta
            yield reply
            return
        body = self._body(messages, model, tools, output, settings, stream=True)
        builder = self._builder(messages, body)
        async with self._filling(builder, _PATH, body, take_event) as pieces:
            async for delta in pieces:
                yield delta
        yield self._finished(builder, output)

    def _body(
        self,
        messages: Sequence[Message],
        model: str | None,
        tools: Sequence[ToolSpec],
        output: Output | None,
        settings: Mapping[str, Any] | None,
        *,
        stream: bool,
    ) -> dict[str, Any]:
        self._check(messages)
        if output is not None and self._output_tool:
            tools, settings = with_final_tool(output, tools, settings)
            output = None
        return build_body(
            messages,
            model=model or self.model,
            tools=tools,
            output=output,
            settings=settings,
            stream=stream,
            dialect=self._dialect,
            origin=Origin(self._server, model or self.model),
        )

    def _builder(self, messages: Sequence[Message], body: Mapping[str, Any]) -> ReplyBuilder:
        origin = Origin(self._server, body["model"])
        return ReplyBuilder(
            used_ids=used_ids(messages),
            new_id=self._new_id,
            keep_details=lambda details: kept_details(details, origin, request_prefix(body)),
        )

    def _finished(self, builder: ReplyBuilder, output: Output | None) -> Reply:
        reply = self._reply(builder)
        return reply if output is None or not self._output_tool else without_final_call(reply)


def take_event(event: ServerEvent, builder: ReplyBuilder) -> list[Delta]:
    """Give the builder what an event holds, and return what that adds.

    Raises:
        LLMError: the event is an error that the server reports.
        InvalidReply: it is not JSON.
    """
    if event.event == "error" or "error" in event.other:
        raise reported_error(read_json(event.other.get("error", event.data)), LLMError)
    added: list[Delta] = []
    for text in _documents(event.data):
        if text == "[DONE]":
            builder.end()
        elif text:
            added += builder.add(read_json(text))
    return added


def _documents(data: str) -> list[str]:
    """Return the JSON texts of an event: one, or one a line where blank lines were left out."""
    lines = [line.strip() for line in data.split("\n")]
    several = all(line.startswith("{") or line in {"", "[DONE]"} for line in lines)
    return lines if several else [data]


FINAL_ANSWER: Final = "final_answer"
_FINAL_DESCRIPTION: Final = (
    "Give the final answer. Call this once you have it, instead of writing text."
)


def with_final_tool(
    output: Output, tools: Sequence[ToolSpec], settings: Mapping[str, Any] | None
) -> tuple[Sequence[ToolSpec], Mapping[str, Any]]:
    """Return the tools and settings that make the model answer through a tool.

    For servers that cannot constrain a reply and take tools at once: Ollama and llama.cpp constrain
    the whole reply to the schema, which leaves no token with which the model could call a tool. So
    the answer becomes the arguments of one more tool.
    """
    final = ToolSpec(FINAL_ANSWER, _FINAL_DESCRIPTION, output_schema(output))
    return (*tools, final), {
        "tool_choice": "required" if tools else FINAL_ANSWER,
        **(settings or {}),
    }


def without_final_call(reply: Reply) -> Reply:
    """Return the reply with the answer as its text.

    An answer beside calls of other tools is dropped: it cannot rest on their results.
    """
    finals = [call for call in reply.tool_calls if call.name == FINAL_ANSWER]
    if not finals:
        return reply
    others = [part for part in reply.parts if part not in finals]
    if any(isinstance(part, ToolCall) for part in others):
        return replace(reply, parts=tuple(others))
    thinking: list[Part] = [part for part in others if not isinstance(part, Text)]
    stop = "stop" if reply.stop == "tool_calls" else reply.stop
    return replace(reply, parts=(*thinking, Text(arguments_text(finals[0]))), stop=stop)
