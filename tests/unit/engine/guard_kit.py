"""Shared by tests of guards in runs: a guard that watches, and an engine that it stands in."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from lib.algorithms import React
from lib.engine import Engine, LLMHandler, Result, ToolHandler
from lib.engine.api.check import request_check
from lib.events import Event, EventStore, MemoryEventStore
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.guards import Guard, GuardContent, Stage, Verdict
from lib.llm import LLMClient, Reply, ToolCall, Usage
from lib.resilience import RetryPolicy
from lib.tools import Tool, tool

KEY = "sk-abcDEF1234567890abcdEFGH"


class Watch:
    """Notes what it sees, and blocks texts with a word in them."""

    def __init__(
        self, *stages: Stage, word: str = "evil", name: str = "watch", usage: Usage | None = None
    ) -> None:
        self.name = name
        self.stages = frozenset(stages)
        self.seen: list[GuardContent] = []
        self._word, self._usage = word, usage

    async def check(self, content: GuardContent) -> Verdict:
        self.seen.append(content)
        allowed = self._word not in content.text
        reason = "" if allowed else "a bad word"
        return Verdict(allowed=allowed, reason=reason, usage=self._usage, model="judge-1")


def guarded(
    client: LLMClient,
    *tools: Tool,
    llm: Iterable[Guard] = (),
    calls: Iterable[Guard] = (),
    store: EventStore | None = None,
    **options: Any,
) -> Engine:
    handlers = [
        LLMHandler(client, guards=llm, retries=RetryPolicy(attempts=1)),
        ToolHandler(tools, guards=calls, boundary=lambda: "b7"),
    ]
    settings: dict[str, Any] = {"poll_s": 0.01, "grace_s": 0.5, "algorithms": [React()], **options}
    return Engine(store or MemoryEventStore(), handlers, **settings)


async def drive(engine: Engine, content: Any = "hello") -> tuple[Result, list[Event]]:
    async def main() -> tuple[Result, list[Event]]:
        async with engine:
            started = await engine.start(content)
            result = await started.result()
            checks = [request_check([React()])]
            assert (await verify_store(engine.store, deep=True, checks=checks)).faults == []
            return result, await engine.store.read(started.id)

    return await main()


def verdicts(log: Sequence[Event]) -> list[dict[str, Any]]:
    return [event.data for event in log if event.kind == k.GUARD_VERDICT]


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@tool(effects="none")
def look(where: str) -> str:
    """Look somewhere."""
    return f"seen in {where}"


CALL = Reply((ToolCall("c1", "look", {"where": "the box"}),), stop="tool_calls")
