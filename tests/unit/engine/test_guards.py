"""Guards check before a model reads, before a reply is shown, around a tool's effect."""

import asyncio
from typing import Any, cast

import pytest

from lib._util.json import canonical
from lib.algorithms import React
from lib.engine import Budget, Engine, LLMHandler
from lib.errors import LLMError, ToolError
from lib.events import MemoryEventStore
from lib.events import kinds as k
from lib.guards import GuardContent, SensitiveDataGuard, Stage, Verdict
from lib.llm import Reply, ScriptedClient, Text, ToolCall, ToolResult, Usage
from lib.observe import spans_from_events, spend_of
from lib.privacy import PatternRedactor
from lib.resilience import RetryPolicy
from lib.testing.agents import kinds
from lib.tools import tool

from .guard_kit import CALL, KEY, Watch, drive, guarded, look, sha, verdicts


async def test_each_check_stands_as_a_verdict_right_before_the_result_it_is_about() -> None:
    guards = Watch("input", "output"), Watch("tool_call", "tool_result")
    engine = guarded(ScriptedClient([CALL, "fine"]), look, llm=guards[:1], calls=guards[1:])
    result, log = await drive(engine)

    assert result.outcome == "COMPLETED"
    assert kinds(log) == [
        *("run.started", "llm.requested", "guard.verdict", "guard.verdict", "llm.completed"),
        *("tool.requested", "guard.verdict", "guard.verdict", "tool.completed"),
        *("llm.requested", "guard.verdict", "guard.verdict", "llm.completed", "run.completed"),
    ]
    verdict_rows = [(each["key"], each["stage"], each["verdict"]) for each in verdicts(log)]
    assert verdict_rows == [
        *(("llm/1", "input", "allowed"), ("llm/1", "output", "allowed")),
        *(("tool/1/c1", "tool_call", "allowed"), ("tool/1/c1", "tool_result", "allowed")),
        *(("llm/2", "input", "allowed"), ("llm/2", "output", "allowed")),
    ]
    llm, calls = guards
    assert [(each.stage, each.text) for each in llm.seen] == [
        *(("input", "hello"), ("output", '{"where":"the box"}')),
        *(("input", "seen in the box"), ("output", "fine")),
    ]
    assert [(each.tool, each.arguments, each.text) for each in calls.seen] == [
        ("look", {"where": "the box"}, '{"where":"the box"}'),
        ("look", {"where": "the box"}, "seen in the box"),
    ]
    hashes = [each["content_hash"] for each in verdicts(log)]
    assert hashes[0] == sha("hello")
    assert hashes[3] == sha("seen in the box")


async def test_a_blocked_input_ends_the_run_before_any_model_call() -> None:
    client = ScriptedClient([])
    result, log = await drive(guarded(client, llm=[Watch("input")]), "be evil")

    message = "the input is blocked by the guard 'watch': a bad word"
    assert (result.outcome, result.reason) == ("BLOCKED", "guard")
    assert result.error == {"type": "Blocked", "message": message}
    assert kinds(log)[-3:] == ["guard.verdict", "llm.failed", "run.completed"]
    assert log[-2].data["reason"] == "blocked"
    assert client.calls == []


async def test_a_blocked_reply_is_not_stored_but_its_cost_is() -> None:
    store = MemoryEventStore()
    reply = Reply((Text("evil plan"),), usage=Usage(input_tokens=7, output_tokens=5, cost=0.5))
    watch = Watch("output", usage=Usage(input_tokens=2, output_tokens=1, cost=0.25))
    result, log = await drive(guarded(ScriptedClient([reply]), llm=[watch], store=store))

    assert result.outcome == "BLOCKED"
    assert "evil" not in canonical([event.data for event in log])
    assert log[-2].data["usage"] == {"input_tokens": 7, "output_tokens": 5, "cost": 0.5}
    assert log[-2].data["model"] == "scripted"
    assert (result.spend.tokens, result.spend.cost) == (15, 0.75)
    models = spend_of(log).models
    assert {name: float(spend.known_cost) for name, spend in models.items()} == {
        "scripted": 0.5,
        "judge-1": 0.25,
    }


async def test_the_cost_of_guards_counts_against_the_budget() -> None:
    watch = Watch("input", usage=Usage(input_tokens=1000))

    async def main() -> str | None:
        client = ScriptedClient([CALL])
        async with guarded(client, look, llm=[watch]) as engine:
            started = await engine.start("hi", budget=Budget(tokens=500))
            return (await started.result()).outcome

    assert (await main()) == "LIMITED"


async def test_a_blocked_call_has_no_effect_and_the_run_goes_on() -> None:
    made: list[str] = []

    @tool
    def write(text: str) -> str:
        """Write."""
        made.append(text)
        return "done"

    reply = Reply((ToolCall("c1", "write", {"text": "evil"}),))
    client = ScriptedClient([reply, "sorry"])
    result, log = await drive(guarded(client, write, calls=[Watch("tool_call")]))

    assert (result.outcome, made) == ("COMPLETED", [])
    (failed,) = [event.data for event in log if event.kind == k.TOOL_FAILED]
    assert (failed["reason"], failed["code"]) == ("blocked", "blocked")
    assert failed["message"] == "not called: blocked by the guard 'watch': a bad word"
    assert client.calls[1].messages[-1].parts == (
        ToolResult("c1", failed["message"], is_error=True),
    )


@pytest.mark.parametrize(
    ("effects", "fails", "expected"),
    [
        ("none", False, "called; what came of it is withheld, blocked by the guard"),
        ("once", False, "called, and it has had its effect; what came of it is withheld"),
        ("once", True, "called, and it failed, and may have had its effect; what came of it is"),
    ],
)
async def test_a_blocked_result_is_withheld_and_states_if_there_was_an_effect(
    effects: Any, fails: bool, expected: str
) -> None:
    @tool(name="fetch", effects=effects)
    async def fetch() -> str:
        """Fetch."""
        if fails:
            raise ToolError("failed", "evil page")
        return "evil page"

    client = ScriptedClient([Reply((ToolCall("c1", "fetch", {}),)), "fine"])
    result, log = await drive(guarded(client, fetch, calls=[Watch("tool_result")]))

    assert result.outcome == "COMPLETED"
    (failed,) = [event.data for event in log if event.kind == k.TOOL_FAILED]
    assert (failed["reason"], failed["code"]) == ("blocked", "blocked")
    assert failed["message"].startswith(expected)
    assert "evil" not in canonical([event.data for event in log])


class Broken:
    name = "broken"
    stages: frozenset[Stage] = frozenset({"input"})
    timeout_s = 0.02

    def __init__(self, result: Any) -> None:
        self.result = result

    async def check(self, content: GuardContent) -> Verdict:
        if self.result == "wait":
            await asyncio.Event().wait()
        if self.result == "cancel":
            raise asyncio.CancelledError
        if isinstance(self.result, Exception):
            raise self.result
        return cast("Verdict", self.result)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (ValueError(KEY), "ValueError"),
        (TimeoutError(KEY), "TimeoutError"),
        ("wait", "no verdict within 0.02 s"),
        ("cancel", "it was cancelled from within"),
        (True, "it returned no verdict"),
        (None, "it returned no verdict"),
    ],
)
async def test_a_failing_guard_blocks_and_reveals_no_content(result: Any, reason: str) -> None:
    ended, log = await drive(guarded(ScriptedClient([]), llm=[Broken(result)]))

    (verdict,) = verdicts(log)
    assert ended.outcome == "BLOCKED"
    assert (verdict["verdict"], verdict["reason"]) == ("failed", reason)
    message = f"the input is not allowed by the guard 'broken': {reason}"
    assert log[-2].data["error"]["message"] == message
    assert KEY not in canonical([event.data for event in log])


async def test_only_the_value_true_allows() -> None:
    no: Any = "no"
    sloppy = Verdict(allowed=no)
    ended, log = await drive(guarded(ScriptedClient([]), llm=[Broken(sloppy)]))

    assert (ended.outcome, verdicts(log)[0]["verdict"]) == ("BLOCKED", "blocked")


async def test_guards_run_in_order_until_one_blocks() -> None:
    first, second = Watch("input", name="first", word="-"), Watch("input", name="second")
    third, elsewhere = Watch("input", name="third"), Watch("output", name="elsewhere")
    _, log = await drive(guarded(ScriptedClient([]), llm=[first, elsewhere, second, third]), "evil")

    assert [(each["guard"], each["verdict"]) for each in verdicts(log)] == [
        *(("first", "allowed"), ("second", "blocked"))
    ]
    assert third.seen == elsewhere.seen == []


async def test_verdicts_and_spans_hold_no_content() -> None:
    secret = f"the key is {KEY}"
    guards = [SensitiveDataGuard(stages=["input", "output"])]
    engine = guarded(ScriptedClient([secret]), llm=guards)
    _, log = await drive(engine)

    (allowed, blocked) = verdicts(log)
    assert blocked["content_hash"] == sha(secret)
    assert blocked["reason"] == "it contains secret"
    assert set(allowed) == {*("key", "guard", "stage", "verdict", "content_hash", "start", "end")}
    every = {span.span_id: span for span in spans_from_events(log, capture_content=True)}
    spans = [span for span in every.values() if span.kind == "guardrail"]
    assert len(spans) == 2
    assert [every[span.parent_id or ""].kind for span in spans] == ["llm", "llm"]
    assert KEY not in repr(spans)
    assert "hello" not in repr(spans)


async def test_with_a_redactor_the_hash_is_of_the_redacted_content() -> None:
    redactor = PatternRedactor()
    watch = Watch("output")
    engine = guarded(ScriptedClient([f"use {KEY}"]), llm=[watch], redactor=redactor)
    _, log = await drive(engine)

    assert watch.seen[0].text == f"use {KEY}"
    assert verdicts(log)[0]["content_hash"] == sha("use [SECRET]")


async def test_nothing_is_streamed_before_the_verdict() -> None:
    class Slow(Watch):
        def __init__(self) -> None:
            super().__init__("output")
            self.release, self.called = asyncio.Event(), asyncio.Event()

        async def check(self, content: GuardContent) -> Verdict:
            self.called.set()
            await self.release.wait()
            return await super().check(content)

    async def shown(text: str) -> tuple[str, int]:
        guard, pieces, early = Slow(), list[str](), 0
        async with guarded(ScriptedClient([text]), llm=[guard]) as engine:
            started = await engine.start("hi")

            async def watch() -> None:
                pieces.extend([piece.delta.text async for piece in started.deltas()])

            watching = asyncio.create_task(watch())
            await guard.called.wait()
            early = len(pieces)
            guard.release.set()
            await started.result()
            await watching
        return "".join(pieces), early

    assert (await shown("a fine answer")) == ("a fine answer", 0)
    assert (await shown("an evil answer")) == ("", 0)


async def test_a_failed_model_call_keeps_the_verdicts_before_it() -> None:
    _, log = await drive(
        guarded(ScriptedClient([LLMError("down")]), llm=[Watch("input", "output")])
    )

    assert kinds(log)[2:] == ["guard.verdict", "llm.failed", "run.completed"]
    assert log[3].data["reason"] == "error"


class Died(BaseException):
    pass


async def test_after_a_crash_the_guard_runs_again_before_any_effect() -> None:
    store, made = MemoryEventStore(), list[str]()

    @tool(effects="idempotent")
    def write(text: str) -> str:
        """Write."""
        made.append(text)
        return "done"

    class Dies(Watch):
        async def check(self, content: GuardContent) -> Verdict:
            raise Died

    reply = Reply((ToolCall("c1", "write", {"text": "evil"}),))

    first = guarded(ScriptedClient([reply]), write, calls=[Dies("tool_call")], store=store)
    async with first as engine:
        started = await engine.start("go")
        with pytest.raises(Died):
            await started.result()
        assert made == []
        client = ScriptedClient(["sorry"])
        second = guarded(client, write, calls=[Watch("tool_call")], store=store)
        async with second as again:
            result = await again.run(started.id).result()
            outcome, log = result.outcome, await store.read(started.id)
    assert (outcome, made) == ("COMPLETED", [])
    assert [each["verdict"] for each in verdicts(log)] == ["blocked"]


async def test_a_turn_of_a_session_is_guarded_and_the_next_one_goes_on() -> None:
    watch = Watch("input")

    async def main() -> list[str | None]:
        async with guarded(ScriptedClient(["fine", "fine"]), llm=[watch]) as engine:
            session = await engine.start_session()
            texts = ("hello", "be evil", "sorry")
            return [(await (await session.send(text)).result()).outcome for text in texts]

    assert (await main()) == ["COMPLETED", "BLOCKED", "COMPLETED"]
    assert [each.text for each in watch.seen][:2] == ["hello", "be evil"]


async def test_a_reply_that_took_several_attempts_is_blocked_with_their_number() -> None:
    client = ScriptedClient([LLMError("busy", retryable=True), "evil"])
    retries = RetryPolicy(attempts=2, base_s=0.001)
    handlers = [LLMHandler(client, guards=[Watch("output")], retries=retries)]
    _, log = await drive(Engine(MemoryEventStore(), handlers, algorithms=[React()]))

    assert (log[-2].data["reason"], log[-2].data["attempts"]) == ("blocked", 2)


async def test_a_reply_without_usage_and_model_can_be_blocked() -> None:
    class Silent(ScriptedClient):
        def _reply(self, answer: object, call: Any) -> Reply:
            return Reply((Text("evil"),))

    _, log = await drive(guarded(Silent(["evil"]), llm=[Watch("output")]))

    assert set(log[-2].data) == {"key", "reason", "error"}
