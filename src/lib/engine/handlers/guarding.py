"""What the guards of a handler are shown of a request, and the verdicts that go into the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lib._util.json import canonical
from lib.engine.core.settle import Draft
from lib.engine.handler import Context
from lib.events import Event
from lib.events import kinds as k
from lib.guards import Guard, GuardContent, Stage, check_all
from lib.llm import Message, Part, Reply, Text, ToolResult
from lib.llm.pieces import arguments_text


class Guarding:
    """The guards of one handler at work on one request.

    Attributes:
        verdicts: to be recorded, in the same append before the result of the request.
    """

    def __init__(self, guards: Sequence[Guard], request: Event, context: Context) -> None:
        """Begin without verdicts."""
        self.verdicts: list[Draft] = []
        self._guards = guards
        self._request = request
        self._context = context

    async def input(self, messages: Sequence[Message]) -> str | None:
        """Return why what is new to the model is not allowed, None if it is."""
        if not self._watch("input"):
            return None
        parts = [part for message in _new(messages) for part in message.parts]
        return await self._check("input", "\n\n".join(_texts(parts)), parts=tuple(parts))

    async def output(self, reply: Reply) -> str | None:
        """Return why the reply is not allowed, None if it is."""
        if not self._watch("output"):
            return None
        texts = [reply.text, *map(arguments_text, reply.tool_calls)]
        return await self._check("output", "\n\n".join(filter(None, texts)), parts=reply.parts)

    async def call(self, data: Mapping[str, Any]) -> str | None:
        """Return why the call is not allowed, None if it is."""
        if not self._watch("tool_call"):
            return None
        return await self._check("tool_call", canonical(data["args"]), call=data)

    async def result(self, data: Mapping[str, Any], text: str) -> str | None:
        """Return why what came of the call is not allowed, None if it is."""
        if not self._watch("tool_result"):
            return None
        return await self._check("tool_result", text, call=data)

    def _watch(self, stage: Stage) -> bool:
        return watch(self._guards, stage)

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
            run_id=self._context.run_id,
            tenant=self._context.tenant,
            user=self._context.user,
            tool=None if call is None else call["name"],
            arguments=None if call is None else call["args"],
        )
        checks = await check_all(self._guards, content, kept=self._kept)
        key = self._request.data["key"]
        self.verdicts += [Draft(k.GUARD_VERDICT, check.to_json(key)) for check in checks.made]
        return checks.blocked

    def _kept(self, text: str) -> str:
        """Return the text as the log would keep it, so that no hash tells of more than the log."""
        return self._context.redacted(k.TOOL_COMPLETED, {"output": text})["output"]


def watch(guards: Iterable[Guard], stage: Stage) -> bool:
    """Tell whether any of the guards is asked at this stage."""
    return any(stage in guard.stages for guard in guards)


def _new(messages: Sequence[Message]) -> list[Message]:
    """Return what users and tools have said since the last reply."""
    new: list[Message] = []
    for message in reversed(messages):
        if message.role == "assistant":
            break
        if message.role != "system":
            new.append(message)
    return new[::-1]


def _texts(parts: Iterable[Part]) -> Iterable[str]:
    for part in parts:
        match part:
            case Text(text):
                yield text
            case ToolResult(content=content):
                yield content
            case _:
                pass
