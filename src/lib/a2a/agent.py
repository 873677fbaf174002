"""`A2AAgent`: an agent of others as a tool of ours."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, cast, get_args

import httpx2

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.json import canonical, digest
from lib._util.tasks import cancelled
from lib.a2a.card import Card, card_url, items, mapping
from lib.a2a.wire import UNKNOWN, Headers, Json, Wire
from lib.content.hygiene import clean, fenced
from lib.errors import ToolError
from lib.llm import LLMClient
from lib.tools import Effects, OpenToolset, Tool, ToolAnnotations, ToolContext
from lib.tools.builtin.fetch.pinned_transport import PinnedTransport
from lib.tools.builtin.fetch.policy import FetchPolicy
from lib.tools.builtin.fetch.url import parse
from lib.tools.output import clip

_log = logging.getLogger("lib.a2a")

TTL_S: Final = 300.0
"""Seconds for which a card is kept."""

COOLDOWN_S: Final = 15.0
"""Seconds between attempts to read a card that was not to be had."""

_CANCEL_S: Final = 3.0
_MAX_ID_CHARS: Final = 512
_MAX_ERROR_CHARS: Final = 1_500
_MAX_POLL_S: Final = 30.0
_MAX_FAILURES: Final = 6
_ENDED: Final = frozenset({"COMPLETED", "FAILED", "CANCELED", "REJECTED"})
_WAITING: Final = frozenset({"INPUT_REQUIRED", "AUTH_REQUIRED"})
_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "what you want of the agent, in full"},
        "task": {
            "type": "string",
            "description": "only to answer a task that waits for input: its id",
        },
    },
    "required": ["message"],
    "additionalProperties": False,
}


class A2AAgent:
    """An agent of others: a description, which each engine opens for itself.

    `Agent(…, tools=[A2AAgent("https://travel.example")])`. The agent is a stranger: its texts are
    fenced, its answers are limited, and a call whose outcome is not known is not repeated. Its card
    is read when a run needs it; while it is down, calls fail, and the engine goes on. A call that
    is cancelled, or takes too long, cancels its task.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        description: str | None = None,
        headers: Headers | None = None,
        effects: Effects = "once",
        approval: bool = False,
        streaming: bool = True,
        allow_private_networks: bool = False,
        timeout_s: float | None = 300.0,
        connect_timeout_s: float = 10.0,
        poll_s: float = 1.0,
        max_bytes: int = 4_000_000,
        max_output_chars: int = 20_000,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Describe an agent; nothing is opened.

        Args:
            url: where it is, without `/.well-known/agent-card.json`, or that of its card. Only its
                host and port are reached, over connections to checked public addresses; no
                redirect is followed.
            name: of the tool; None for that of the card.
            description: of the tool, for the model; None for that of the card.
            headers: sent with each request, or an async function that returns them.
            effects: what another call does; see `Effects`. "idempotent" is for agents that take a
                message with the same id once, as ours do: then a call whose process died is made
                again, and finds its task.
            approval: whether a person must approve calls.
            streaming: follow tasks as they go on, if the agent can; False looks at them now and
                then.
            allow_private_networks: whether the URL may lead to a private network, and be an http
                one.
            timeout_s: seconds for one call, with all that the agent does; None is unlimited.
            connect_timeout_s: seconds for reading the card.
            poll_s: seconds between the first two looks at a task; they get rarer.
            max_bytes: how much it may send in a response.
            max_output_chars: how much of an answer a model gets.
            clock: the time.

        Raises:
            ValueError: the URL is without TLS and `allow_private_networks` is False, or a value
                makes no sense.
            FetchBlocked: the URL is not one of http or https.
        """
        target = parse(url)
        if target.scheme == "http" and not allow_private_networks:
            raise ValueError(
                "expected an https URL of an agent, got an http one: "
                "allow_private_networks=True allows it"
            )
        if effects not in get_args(Effects):
            raise ValueError(f"effects is 'none', 'idempotent' or 'once', not {effects!r}")
        if poll_s <= 0:
            raise ValueError(f"expected more than 0 seconds as poll_s, got {poll_s!r}")
        self._policy = FetchPolicy(
            allowed_hosts=(target.host,),
            allowed_ports=(target.port,),
            allow_http=allow_private_networks,
            allow_private_networks=allow_private_networks,
            max_bytes=max_bytes,
        )
        self._headers: Headers = headers or {}
        self._name, self._description = name, description
        self._effects: Effects = effects
        self._approval, self._timeout_s = approval, timeout_s
        self._max_output_chars = max_output_chars
        self.card_url: str = card_url(url)
        self.streaming: bool = streaming
        self.connect_timeout_s: float = connect_timeout_s
        self.poll_s: float = poll_s
        self.clock: Clock = clock
        if name is not None:
            self.as_tool(
                Card(name=name, description="", url="", binding="JSONRPC", streams=False), _no
            )

    def __repr__(self) -> str:
        """Return it without what may be secret: the path, headers."""
        return f"A2AAgent({parse(self.card_url).host!r})"

    def open_tools(self, models: Sequence[LLMClient]) -> OpenToolset:
        """Return the tool for one engine; nothing is connected yet."""
        network = PinnedTransport(self._policy)
        http = httpx2.AsyncClient(transport=network, timeout=httpx2.Timeout(None))
        return _OpenA2AAgent(self, http, Wire(http, self._headers))

    def as_tool(self, card: Card, call: Any) -> Tool:
        """Return the agent as a tool."""
        name = self._name or card.name
        description = self._description or card.description or f"Ask the agent {name}."
        version = digest(name, description, card.url, card.binding, self._effects)[:32]
        return Tool(
            name=name,
            description=description,
            input_schema=_SCHEMA,
            call=call,
            annotations=ToolAnnotations(read_only=self._effects == "none", open_world=True),
            effects=self._effects,
            timeout_s=self._timeout_s,
            approval=self._approval,
            untrusted_output=True,
            max_output_chars=self._max_output_chars,
            version=version,
        )


async def _no(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
    raise ToolError("unavailable", "not called")


class _OpenA2AAgent:
    """An agent of others as one engine uses it."""

    def __init__(self, agent: A2AAgent, http: httpx2.AsyncClient, wire: Wire) -> None:
        self._agent, self._http, self._wire = agent, http, wire
        self._tools: list[Tool] = []
        self._fresh_until = self._retry_at = float("-inf")
        self._refreshing = asyncio.Lock()

    @property
    def tools(self) -> Sequence[Tool]:
        return self._tools

    async def refresh(self) -> None:
        async with self._refreshing:
            now = self._agent.clock.monotonic()
            if now < self._fresh_until or now < self._retry_at:
                return
            try:
                async with asyncio.timeout(self._agent.connect_timeout_s):
                    card = await self._wire.card(self._agent.card_url)
            except TimeoutError:
                self._back_off("it gave no answer in time")
            except ToolError as error:
                self._back_off(error.message)
            # Around a stranger's card, and a function of the application that makes headers.
            except Exception as error:  # noqa: BLE001 - see above
                self._back_off(type(error).__name__)
            else:
                self._tools = [self._agent.as_tool(card, _Caller(self._agent, self._wire, card))]
                self._fresh_until = now + TTL_S

    def _back_off(self, why: str) -> None:
        self._retry_at = self._agent.clock.monotonic() + COOLDOWN_S
        _log.warning("the card of an A2A agent was not found: %s", why)

    async def aclose(self) -> None:
        await self._http.aclose()


class _Caller:
    """Calls an agent: sends a message, and follows its task to the end."""

    def __init__(self, agent: A2AAgent, wire: Wire, card: Card) -> None:
        self._agent, self._wire, self._card = agent, wire, card

    async def __call__(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Send a message and return the answer.

        Raises:
            ToolError: the agent has failed or refused, or what it does is not known.
        """
        message: Json = {
            "messageId": digest("a2a", context.idempotency_key)[:32],
            "role": "ROLE_USER",
            "parts": [{"text": _argument(arguments, "message")}],
        }
        if arguments.get("task"):
            message["taskId"] = _argument(arguments, "task")
        following = _Following()
        streams = self._agent.streaming and self._card.streams
        send = self._stream if streams else self._send
        sending = asyncio.create_task(send(message, following), name="lib.a2a.send")
        try:
            await asyncio.shield(sending)
            return _answer(await self._end(following), self._card.name)
        except asyncio.CancelledError:
            await self._cancel(following, sending)
            raise

    async def _send(self, message: Json, following: _Following) -> None:
        params = {"message": message, "configuration": {"returnImmediately": True}}
        following.take(await self._wire.call(self._card, "SendMessage", params))

    async def _stream(self, message: Json, following: _Following) -> None:
        """Send a message, and follow its task as long as the stream lasts."""
        stream = self._wire.stream(self._card, "SendStreamingMessage", {"message": message})
        try:
            async with stream as events, aclosing(events):
                async for event in events:
                    following.take(event)
                    if following.has_paused or following.message is not None:
                        return
        except ToolError:
            if following.task_id is None:
                raise  # else the task is looked at

    async def _end(self, following: _Following) -> Json:
        """Return the answer: a message, or the task once it has ended or waits for input."""
        if following.message is not None:
            return following.message
        if following.task_id is None:
            raise ToolError("unknown", f"the agent gave no answer; {UNKNOWN}")
        poll_s, failures = self._agent.poll_s, 0
        while following.task is None or not following.has_paused:
            if not following.has_paused or failures:
                await self._agent.clock.sleep(poll_s)
                poll_s = min(poll_s * 1.5, _MAX_POLL_S)
            try:
                task = await self._wire.call(self._card, "GetTask", {"id": following.task_id})
            except ToolError:  # it may be starting again
                failures += 1
                if failures == _MAX_FAILURES:
                    message = f"the agent no longer shows its task; {UNKNOWN}"
                    raise ToolError("unknown", message) from None
                continue
            failures = 0
            following.take({"task": task})
        return following.task

    async def _cancel(self, following: _Following, sending: asyncio.Task[None]) -> None:
        """Cancel the task of a call that ends early, if the agent names it in time."""
        named = asyncio.ensure_future(following.named.wait())
        try:
            with suppress(Exception):
                async with asyncio.timeout(_CANCEL_S):
                    await asyncio.wait([sending, named], return_when=asyncio.FIRST_COMPLETED)
                    if following.task_id is not None and not following.has_paused:
                        await self._wire.call(self._card, "CancelTask", {"id": following.task_id})
        finally:
            named.cancel()
            await cancelled(sending)


class _Following:
    """The task of a call, as far as its agent has shown it.

    Attributes:
        task_id: of the task, None before there is one.
        task: as it was shown last, None if it has changed since.
        has_paused: True if it has ended or waits for input.
        message: the answer, if the agent gives one without a task.
        named: set once the task or the answer is there.
    """

    def __init__(self) -> None:
        self.task_id: str | None = None
        self.task: Json | None = None
        self.has_paused = False
        self.message: Json | None = None
        self.named = asyncio.Event()

    def take(self, event: Json) -> None:
        """Take what the agent shows.

        Raises:
            ToolError: it is nothing that belongs to the task.
        """
        match event:
            case {"task": {"id": task_id, "status": {"state": str(state)}} as task}:
                self._take(task_id, state, cast(Json, task))
            case {"statusUpdate": {"taskId": task_id, "status": {"state": str(state)}}}:
                self._take(task_id, state, None)
            case {"message": {"parts": [*_]} as message} if self.task_id is None:
                self.message = cast(Json, message)
            case {"artifactUpdate": {"taskId": task_id}} if task_id == self.task_id:
                self.task = None
            case _:
                raise ToolError("unknown", f"the agent's answer cannot be read; {UNKNOWN}")
        self.named.set()

    def _take(self, task_id: object, state: str, task: Json | None) -> None:
        is_id = isinstance(task_id, str) and 0 < len(task_id) <= _MAX_ID_CHARS
        if not is_id or self.task_id not in (None, task_id):
            raise ToolError("unknown", f"the agent has mixed up its tasks; {UNKNOWN}")
        self.task_id, self.task = cast(str, task_id), task
        self.has_paused = state.removeprefix("TASK_STATE_") in _ENDED | _WAITING


# -- what a model reads ----------------------------------------------------------------------------


def _argument(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if isinstance(value, str) and value.strip():
        return value
    raise ToolError("invalid_arguments", f"expected a text as {name}")


def _answer(shown: Json, source: str) -> str:
    """Return what a model reads of a message or a task.

    Raises:
        ToolError: the agent has not completed its task.
    """
    if "status" not in shown:
        return _text(shown)
    text = "\n\n".join(_text(each) for each in items(shown.get("artifacts")))
    state = str(shown["status"]["state"]).removeprefix("TASK_STATE_")
    if state == "COMPLETED":
        return text
    about = _text(shown["status"].get("message"))
    if state in _WAITING:
        task_id = clean(str(shown["id"]))
        return f"The agent waits for input. Answer it with task={task_id!r}.\n\n{about}"
    message, _ = clip(clean(about or text), _MAX_ERROR_CHARS)
    raise ToolError("failed", fenced(message or f"the task is {state}", source=source))


def _text(holder: object) -> str:
    """Return the text of the parts of a message or an artifact; what is no text is named."""
    parts = [_part(part) for part in items(mapping(holder).get("parts"))]
    return "\n".join(part for part in parts if part)


def _part(part: object) -> str:
    if "data" in mapping(part):
        return canonical(mapping(part)["data"])
    match part:
        case {"text": str(text)}:
            return text
        case {"url": str(url)}:
            return f"[link to {url}]"
        case {"raw": str(_)}:
            return "[a file, not shown]"
        case _:
            return ""
