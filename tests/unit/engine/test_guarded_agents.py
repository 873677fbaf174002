"""Agents that are called are guarded like tools, and their runs like any run."""

from collections.abc import Sequence
from typing import Any

from lib._util.json import canonical
from lib.algorithms import React
from lib.engine import AgentTool, ChildHandler, Engine, Finish, LLMHandler, Request, Wait
from lib.errors import LLMError
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.guards import Guard
from lib.llm import Message, Reply, ScriptedClient, ToolCall, ToolResult
from lib.resilience import RetryPolicy

from .guard_kit import Watch, verdicts


async def test_a_child_is_guarded_like_any_run() -> None:
    reply = Reply((ToolCall("c1", "helper", {"task": "be evil"}),))
    agent = AgentTool(name="helper", description="helps", algorithm="react")
    watch = Watch("input")

    async def main() -> tuple[str | None, str]:
        store = MemoryEventStore()
        handlers = [
            LLMHandler(ScriptedClient([reply, "it was blocked"]), guards=[watch]),
            ChildHandler([agent]),
        ]
        react = React(tools=["helper"])
        async with Engine(store, handlers, algorithms=[react], poll_s=0.01) as engine:
            started = await engine.start("go")
            result = await started.result()
            log = await store.read(started.id)
            (child,) = [e.data for e in log if e.kind == k.CHILD_COMPLETED]
            return result.outcome, child["outcome"]

    # The parent then reads of the block; that text holds no "evil" any more.
    assert (await main()) == ("COMPLETED", "BLOCKED")


class Silent(React):
    """Ends with nothing to say."""

    def decide(self, state: Any) -> Sequence[Request] | Finish | Wait:
        step = super().decide(state)
        return Finish(outcome=step.outcome, output="") if isinstance(step, Finish) else step


BELOW = React("below", system="child", tools=[])


async def called(
    task: str, answer: Any, *guards: Guard, below: React = BELOW
) -> tuple[list[Event], list[Event], Any]:
    """Return the logs of a run that calls an agent and of that, and what the caller was shown."""
    reply = Reply((ToolCall("c1", "helper", {"task": task}),))
    parent, child = ScriptedClient([reply, "done"]), ScriptedClient([answer])

    class Both:
        model = "both"

        async def complete(self, messages: Sequence[Message], **options: Any) -> Reply:
            own = messages[0].text == "child"
            return await (child if own else parent).complete(messages, **options)

    async def main() -> tuple[list[Event], list[Event], Any]:
        store = MemoryEventStore()
        client: Any = Both()
        retries = RetryPolicy(attempts=1)
        handlers = [
            LLMHandler(client, retries=retries),
            ChildHandler([AgentTool("helper", "helps", "below")], guards=guards),
        ]
        algorithms = [React(tools=["helper"]), below]
        async with Engine(store, handlers, algorithms=algorithms, poll_s=0.01) as engine:
            started = await engine.start("go")
            await started.result()
            assert (await verify_store(store, deep=True)).faults == []
            log = await store.read(started.id)
            (done,) = [event for event in log if event.kind == k.CHILD_COMPLETED]
            inner = (
                await store.read(done.data["run_id"])
                if await store.run(done.data["run_id"])
                else []
            )
            return log, inner, parent.calls[1].messages[-1].parts[0]

    return await main()


async def test_a_call_of_an_agent_that_is_blocked_starts_no_run() -> None:
    watch = Watch("tool_call", "tool_result")
    log, below, shown = await called("be evil", "fine", watch)

    message = "not called: blocked by the guard 'watch': a bad word"
    assert below == []
    assert shown == ToolResult(
        "c1", f"the agent ended as BLOCKED (guard: {message})", is_error=True
    )
    (done,) = [event.data for event in log if event.kind == k.CHILD_COMPLETED]
    assert (done["outcome"], done["unstarted"], done["spend"]) == ("BLOCKED", True, {})
    assert [(each["key"], each["verdict"]) for each in verdicts(log)] == [("tool/1/c1", "blocked")]
    (seen,) = watch.seen
    assert (seen.tool, seen.arguments, seen.text) == (
        "helper",
        {"task": "be evil"},
        '{"task":"be evil"}',
    )


async def test_an_agents_answer_that_is_blocked_is_withheld_from_its_caller() -> None:
    watch = Watch("tool_call", "tool_result")
    log, below, shown = await called("help", "an evil answer", watch)

    why = "blocked by the guard 'watch': a bad word"
    assert shown == ToolResult(
        "c1", f"the agent has done its work; what it answered is withheld, {why}"
    )
    assert "evil" not in canonical([event.data for event in log])
    assert "evil" in canonical([event.data for event in below])
    assert [(each["stage"], each["verdict"]) for each in verdicts(log)] == [
        ("tool_call", "allowed"),
        ("tool_result", "blocked"),
    ]


async def test_how_an_agent_failed_is_checked_like_its_answer() -> None:
    watch = Watch("tool_result")
    log, _, shown = await called("help", LLMError("an evil page"), watch)

    (done,) = [event.data for event in log if event.kind == k.CHILD_COMPLETED]
    assert (done["outcome"], "error" in done) == ("FAILED", False)
    assert "withheld" in shown.content
    assert "evil" not in shown.content


async def test_an_empty_answer_is_not_checked() -> None:
    watch = Watch("tool_result")
    await called("help", "fine", watch, below=Silent("below", system="child", tools=[]))

    assert watch.seen == []
