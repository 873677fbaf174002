"""The guards of a handler at work on one request, and the verdicts that go into the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lib._util.json import canonical
from lib.engine.arguments import as_list, require_attribute
from lib.engine.core.conversation import is_recalled
from lib.engine.core.settle import PendingEvent
from lib.engine.handlers.attachments import load_part
from lib.engine.handlers.base import Call
from lib.events import kinds as k
from lib.guards import Guard, GuardContent, Stage, check_all
from lib.llm import Attachment, Message, Part, Reply, Thinking, ToolCall, ToolResult
from lib.llm.messages import text_of
from lib.llm.replies import arguments_text
from lib.privacy.redactor import off_loop_if_large


class RequestGuards:
    """The guards of one handler at work on one request.

    Attributes:
        verdicts: to be recorded, in the same append before the result of the request.
    """

    def __init__(self, guards: Sequence[Guard], call: Call) -> None:
        """Begin without verdicts."""
        self.verdicts: list[PendingEvent] = []
        self._guards = guards
        self._call = call

    def watches(self, stage: Stage) -> bool:
        """Return True if any of the guards checks this stage."""
        return any_watches(self._guards, stage)

    async def input(self, messages: Sequence[Message], *, checked: int = 0) -> str | None:
        """Return why what is new to the model is not allowed, None if it is.

        Args:
            messages: all that is sent.
            checked: how many of the first ones are not new after the first model call.

        Raises:
            BlobError: an attachment that a guard asks for cannot be read.
        """
        if not self.watches("input"):
            return None
        first = self._call.first_model_call
        new = _new_messages(messages[0 if first else checked :], first_model_call=first)
        if checked and not new:
            return None
        parts = tuple([part for message in new for part in message.parts])
        text = _joined(text_ for message in new for text_ in _texts(message.parts))
        return await self._check("input", text, parts=await self._loaded(parts))

    async def output(self, reply: Reply) -> str | None:
        """Return why the reply is not allowed, None if it is; thinking is part of it."""
        if not self.watches("output"):
            return None
        return await self._check("output", _joined(_texts(reply.parts)), parts=reply.parts)

    async def call(self, data: Mapping[str, Any]) -> str | None:
        """Return why the call is not allowed, None if it is."""
        if not self.watches("tool_call"):
            return None
        return await self._check("tool_call", canonical(data["args"]), call=data)

    async def result(self, data: Mapping[str, Any], text: str) -> str | None:
        """Return why what came of the call is not allowed, None if it is."""
        if not self.watches("tool_result"):
            return None
        return await self._check("tool_result", text, call=data)

    async def _loaded(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Return the parts with the bytes of those attachments that a guard wants to see."""
        wanted = [getattr(each, "attachment_bytes", 0) for each in self._guards]
        left = max(wanted, default=0)
        loaded: list[Part] = []
        for part in parts:
            if isinstance(part, Attachment) and part.blob is not None and part.blob.size <= left:
                left -= part.blob.size
                part = await load_part(part, self._call.blobs)  # noqa: PLW2901 - the same part
            loaded.append(part)
        return tuple(loaded)

    async def _check(
        self,
        stage: Stage,
        text: str,
        *,
        parts: tuple[Part, ...] = (),
        call: Mapping[str, Any] | None = None,
    ) -> str | None:
        content = GuardContent(
            stage=stage,
            text=text,
            parts=parts,
            run_id=self._call.run_id,
            tenant=self._call.tenant,
            user=self._call.user,
            tool=None if call is None else call["name"],
            arguments=None if call is None else call.get("args"),
        )
        # Hashed as the log would keep it, so that no hash reveals more than the log.
        redact = self._call.redacted
        kept: str = (await off_loop_if_large(redact, k.TOOL_COMPLETED, {"output": text}))["output"]
        checks = await check_all(
            self._guards, content, kept=lambda _text: kept, clock=self._call.clock
        )
        key = self._call.event.data["key"]
        self.verdicts += [
            PendingEvent(k.GUARD_VERDICT, check.to_json(key)) for check in checks.made
        ]
        return checks.blocked


def as_guards(values: Iterable[Guard]) -> tuple[Guard, ...]:
    """Return the guards as a tuple.

    Raises:
        TypeError: one is no guard, or is not in a list.
    """
    guards = tuple(as_list(values, "guards", "[InjectionGuard()]"))
    for guard in guards:
        require_attribute(guard, "stages", "a guard", "use an instance, such as InjectionGuard()")
    return guards


def any_watches(guards: Sequence[Guard], stage: Stage) -> bool:
    """Return True if any of the guards checks this stage."""
    return bool(guards) and any(stage in guard.stages for guard in guards)


def _new_messages(messages: Sequence[Message], *, first_model_call: bool) -> list[Message]:
    """Return the messages since the last reply, all of them before the first model call.

    Instructions are not among them, nor what a memory has recalled: only what guards had let pass
    was remembered, and a guard that refused it now would refuse all that this user says from now.
    """
    new: list[Message] = []
    for message in reversed(messages):
        if message.role == "assistant" and not first_model_call:
            break
        if message.role != "system" and not is_recalled(message):
            new.append(message)
    return new[::-1]


def _texts(parts: Sequence[Part]) -> Iterator[str]:
    """Yield the texts of a message or a reply: thinking, text, results, and arguments as JSON."""
    yield "".join([part.text for part in parts if isinstance(part, Thinking)])
    yield text_of(parts)
    for part in parts:
        match part:
            case ToolResult(content=content):
                yield content
            case ToolCall():
                yield arguments_text(part)
            case _:
                pass


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(filter(None, texts))
