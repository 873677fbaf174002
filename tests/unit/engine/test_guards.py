"""Where guards stand: before a model reads, before anybody sees a reply, around a tool's effect."""

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, cast

import pytest

from lib._util.json import canonical
from lib.algorithms import React
from lib.engine import Agent, Budget, ChildHandler, Engine, LLMHandler, Result, ToolHandler
from lib.engine.check import request_check
from lib.errors import BlobMissing, LLMError, ToolError
from lib.events import Event, EventStore, MemoryBlobStore, MemoryEventStore
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.guards import Guard, GuardContent, SensitiveDataGuard, Stage, Verdict
from lib.llm import (
    Image,
    LLMClient,
    Message,
    Reply,
    ScriptedClient,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from lib.observe import spans_from_events, spend_of
from lib.privacy.redactor import PatternRedactor
from lib.resilience import RetryPolicy
from lib.testing.agents import kinds
from lib.testing.aio import run
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


def drive(engine: Engine, given: Any = "hello") -> tuple[Result, list[Event]]:
    async def main() -> tuple[Result, list[Event]]:
        async with engine:
            started = await engine.start(given)
            result = await started.result()
            checks = [request_check([React()])]
            assert (await verify_store(engine.store, deep=True, checks=checks)).faults == []
            return result, await engine.store.read(started.id)

    return run(main())


def verdicts(log: Sequence[Event]) -> list[dict[str, Any]]:
    return [event.data for event in log if event.kind == k.GUARD_VERDICT]


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@tool(effects="none")
def look(where: str) -> str:
    """Look somewhere."""
    return f"seen in {where}"


CALL = Reply((ToolCall("c1", "look", {"where": "the box"}),), stop="tool_calls")


def test_each_check_stands_as_a_verdict_right_before_the_result_it_is_about() -> None:
    guards = Watch("input", "output"), Watch("tool_call", "tool_result")
    engine = guarded(ScriptedClient([CALL, "fine"]), look, llm=guards[:1], calls=guards[1:])
    result, log = drive(engine)

    assert result.outcome == "COMPLETED"
    assert kinds(log) == [
        *("run.started", "llm.requested", "guard.verdict", "guard.verdict", "llm.completed"),
        *("tool.requested", "guard.verdict", "guard.verdict", "tool.completed"),
        *("llm.requested", "guard.verdict", "guard.verdict", "llm.completed", "run.completed"),
    ]
    said = [(each["key"], each["stage"], each["verdict"]) for each in verdicts(log)]
    assert said == [
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


def test_a_guard_is_told_whose_run_it_is_and_sees_attachments() -> None:
    watch = Watch("input")
    picture = Image(data=b"x", media_type="image/png")
    client = ScriptedClient(["ok"], modalities=frozenset({"text", "image"}))

    async def main() -> None:
        async with guarded(client, llm=[watch]) as engine:
            given = [
                Message.user("old"),
                Message.assistant("yes"),
                Message.user(Text("a"), picture),
            ]
            await (await engine.start(given, tenant="t", user="u")).result()

    run(main())
    (seen,) = watch.seen
    assert (seen.tenant, seen.user, seen.text, seen.tool) == ("t", "u", "old\n\nyes\n\na", None)
    assert seen.parts == (Text("old"), Text("yes"), Text("a"), picture)


def test_a_blocked_input_ends_the_run_before_the_model_is_asked() -> None:
    client = ScriptedClient([])
    result, log = drive(guarded(client, llm=[Watch("input")]), "be evil")

    message = "the input is blocked by the guard 'watch': a bad word"
    assert (result.outcome, result.reason) == ("BLOCKED", "guard")
    assert result.error == {"type": "Blocked", "message": message}
    assert kinds(log)[-3:] == ["guard.verdict", "llm.failed", "run.completed"]
    assert log[-2].data["reason"] == "blocked"
    assert client.calls == []


def test_a_blocked_reply_is_nowhere_but_what_it_cost_is() -> None:
    store = MemoryEventStore()
    reply = Reply((Text("evil plan"),), usage=Usage(input_tokens=7, output_tokens=5, cost=0.5))
    watch = Watch("output", usage=Usage(input_tokens=2, output_tokens=1, cost=0.25))
    result, log = drive(guarded(ScriptedClient([reply]), llm=[watch], store=store))

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


def test_what_guards_cost_counts_against_the_budget() -> None:
    watch = Watch("input", usage=Usage(input_tokens=1000))

    async def main() -> str:
        client = ScriptedClient([CALL])
        async with guarded(client, look, llm=[watch]) as engine:
            started = await engine.start("hi", budget=Budget(tokens=500))
            return (await started.result()).outcome

    assert run(main()) == "LIMITED"


def test_a_blocked_call_has_no_effect_and_the_run_goes_on() -> None:
    made: list[str] = []

    @tool
    def write(text: str) -> str:
        """Write."""
        made.append(text)
        return "done"

    asked = Reply((ToolCall("c1", "write", {"text": "evil"}),))
    client = ScriptedClient([asked, "sorry"])
    result, log = drive(guarded(client, write, calls=[Watch("tool_call")]))

    assert (result.outcome, made) == ("COMPLETED", [])
    (failed,) = [event.data for event in log if event.kind == k.TOOL_FAILED]
    assert (failed["reason"], failed["code"]) == ("blocked", "blocked")
    assert failed["message"] == "not called: blocked by the guard 'watch': a bad word"
    assert client.calls[1].messages[-1].parts == (
        ToolResult("c1", failed["message"], is_error=True),
    )


@pytest.mark.parametrize(
    ("effects", "fails", "told"),
    [
        ("none", False, "called; what came of it is withheld, blocked by the guard"),
        ("once", False, "called, and it has had its effect; what came of it is withheld"),
        ("once", True, "called, and it failed, and may have had its effect; what came of it is"),
    ],
)
def test_a_blocked_result_is_withheld_and_says_whether_there_was_an_effect(
    effects: Any, fails: bool, told: str
) -> None:
    @tool(name="fetch", effects=effects)
    async def fetch() -> str:
        """Fetch."""
        if fails:
            raise ToolError("failed", "evil page")
        return "evil page"

    client = ScriptedClient([Reply((ToolCall("c1", "fetch", {}),)), "fine"])
    result, log = drive(guarded(client, fetch, calls=[Watch("tool_result")]))

    assert result.outcome == "COMPLETED"
    (failed,) = [event.data for event in log if event.kind == k.TOOL_FAILED]
    assert (failed["reason"], failed["code"]) == ("blocked", "blocked")
    assert failed["message"].startswith(told)
    assert "evil" not in canonical([event.data for event in log])


def test_what_we_say_of_a_call_is_not_checked() -> None:
    watch = Watch("tool_call", "tool_result")

    @tool(name="slow", effects="none", timeout_s=0.01)
    async def slow() -> None:
        """Wait."""
        await asyncio.Event().wait()

    calls = (
        ToolCall("c1", "slow", {}),
        ToolCall("c2", "nothing", {}),
        ToolCall("c3", "slow", {}, "["),
    )
    drive(guarded(ScriptedClient([Reply(calls), "ok"]), slow, calls=[watch]))

    assert [(each.stage, each.tool) for each in watch.seen] == [("tool_call", "slow")]


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
def test_a_guard_that_fails_allows_nothing_and_tells_nothing(result: Any, reason: str) -> None:
    ended, log = drive(guarded(ScriptedClient([]), llm=[Broken(result)]))

    (verdict,) = verdicts(log)
    assert ended.outcome == "BLOCKED"
    assert (verdict["verdict"], verdict["reason"]) == ("failed", reason)
    message = f"the input is not allowed by the guard 'broken': {reason}"
    assert log[-2].data["error"]["message"] == message
    assert KEY not in canonical([event.data for event in log])


def test_only_true_allows() -> None:
    no: Any = "no"
    sloppy = Verdict(allowed=no)
    ended, log = drive(guarded(ScriptedClient([]), llm=[Broken(sloppy)]))

    assert (ended.outcome, verdicts(log)[0]["verdict"]) == ("BLOCKED", "blocked")


def test_guards_are_asked_in_order_until_one_blocks() -> None:
    first, second = Watch("input", name="first", word="-"), Watch("input", name="second")
    third, elsewhere = Watch("input", name="third"), Watch("output", name="elsewhere")
    _, log = drive(guarded(ScriptedClient([]), llm=[first, elsewhere, second, third]), "evil")

    assert [(each["guard"], each["verdict"]) for each in verdicts(log)] == [
        *(("first", "allowed"), ("second", "blocked"))
    ]
    assert third.seen == elsewhere.seen == []


def test_verdicts_and_spans_hold_no_content() -> None:
    secret = f"the key is {KEY}"
    guards = [SensitiveDataGuard(stages=["input", "output"])]
    engine = guarded(ScriptedClient([secret]), llm=guards)
    _, log = drive(engine)

    (allowed, blocked) = verdicts(log)
    assert blocked["content_hash"] == sha(secret)
    assert blocked["reason"] == "it contains secret"
    assert set(allowed) == {"key", "guard", "stage", "verdict", "content_hash"}
    every = {span.span_id: span for span in spans_from_events(log, capture_content=True)}
    spans = [span for span in every.values() if span.kind == "guardrail"]
    assert len(spans) == 2
    assert [every[span.parent_id or ""].kind for span in spans] == ["llm", "llm"]
    assert KEY not in repr(spans)
    assert "hello" not in repr(spans)


def test_with_a_redactor_the_hash_is_of_what_the_log_keeps() -> None:
    redactor = PatternRedactor()
    watch = Watch("output")
    engine = guarded(ScriptedClient([f"use {KEY}"]), llm=[watch], redactor=redactor)
    _, log = drive(engine)

    assert watch.seen[0].text == f"use {KEY}"
    assert verdicts(log)[0]["content_hash"] == sha("use [SECRET]")


def test_nothing_is_shown_live_before_the_verdict() -> None:
    class Slow(Watch):
        def __init__(self) -> None:
            super().__init__("output")
            self.release, self.asked = asyncio.Event(), asyncio.Event()

        async def check(self, content: GuardContent) -> Verdict:
            self.asked.set()
            await self.release.wait()
            return await super().check(content)

    async def shown(text: str) -> tuple[str, int]:
        guard, pieces, early = Slow(), list[str](), 0
        async with guarded(ScriptedClient([text]), llm=[guard]) as engine:
            started = await engine.start("hi")

            async def watch() -> None:
                pieces.extend([piece.delta.text async for piece in started.live()])

            watching = asyncio.create_task(watch())
            await guard.asked.wait()
            early = len(pieces)
            guard.release.set()
            await started.result()
            await watching
        return "".join(pieces), early

    assert run(shown("a fine answer")) == ("a fine answer", 0)
    assert run(shown("an evil answer")) == ("", 0)


def test_a_failed_model_call_keeps_the_verdicts_before_it() -> None:
    _, log = drive(guarded(ScriptedClient([LLMError("down")]), llm=[Watch("input", "output")]))

    assert kinds(log)[2:] == ["guard.verdict", "llm.failed", "run.completed"]
    assert log[3].data["reason"] == "error"


class Died(BaseException):
    pass


def test_after_a_crash_the_guard_is_run_again_and_no_effect_is_had_before_its_verdict() -> None:
    store, made = MemoryEventStore(), list[str]()

    @tool(effects="idempotent")
    def write(text: str) -> str:
        """Write."""
        made.append(text)
        return "done"

    class Dies(Watch):
        async def check(self, content: GuardContent) -> Verdict:
            raise Died

    asked = Reply((ToolCall("c1", "write", {"text": "evil"}),))

    async def main() -> tuple[str, list[Event]]:
        first = guarded(ScriptedClient([asked]), write, calls=[Dies("tool_call")], store=store)
        async with first as engine:
            started = await engine.start("go")
            with pytest.raises(Died):
                await started.result()
            assert made == []
            client = ScriptedClient(["sorry"])
            second = guarded(client, write, calls=[Watch("tool_call")], store=store)
            async with second as again:
                result = await again.run(started.id).result()
                return result.outcome, await store.read(started.id)

    outcome, log = run(main())
    assert (outcome, made) == ("COMPLETED", [])
    assert [each["verdict"] for each in verdicts(log)] == ["blocked"]


def test_a_child_is_guarded_like_any_run() -> None:
    asked = Reply((ToolCall("c1", "helper", {"task": "be evil"}),))
    agent = Agent(name="helper", description="helps", algorithm="react")
    watch = Watch("input")

    async def main() -> tuple[str, str]:
        store = MemoryEventStore()
        handlers = [
            LLMHandler(ScriptedClient([asked, "it was blocked"]), guards=[watch]),
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
    assert run(main()) == ("COMPLETED", "BLOCKED")


def test_a_turn_of_a_session_is_guarded_and_the_next_one_goes_on() -> None:
    watch = Watch("input")

    async def main() -> list[str]:
        async with guarded(ScriptedClient(["fine", "fine"]), llm=[watch]) as engine:
            session = await engine.start_session()
            said = ("hello", "be evil", "sorry")
            return [(await (await session.send(text)).result()).outcome for text in said]

    assert run(main()) == ["COMPLETED", "BLOCKED", "COMPLETED"]
    assert [each.text for each in watch.seen][:2] == ["hello", "be evil"]


def test_a_reply_that_took_several_attempts_is_blocked_with_their_number() -> None:
    client = ScriptedClient([LLMError("busy", retryable=True), "evil"])
    retries = RetryPolicy(attempts=2, base_s=0.001)
    handlers = [LLMHandler(client, guards=[Watch("output")], retries=retries)]
    _, log = drive(Engine(MemoryEventStore(), handlers, algorithms=[React()]))

    assert (log[-2].data["reason"], log[-2].data["attempts"]) == ("blocked", 2)


def test_a_reply_without_usage_and_model_is_blocked_all_the_same() -> None:
    class Silent(ScriptedClient):
        def _reply(self, answer: str | Reply, call: Any) -> Reply:
            return Reply((Text("evil"),))

    _, log = drive(guarded(Silent(["evil"]), llm=[Watch("output")]))

    assert set(log[-2].data) == {"key", "reason", "error"}


def test_what_a_run_is_given_as_the_models_words_is_checked_once() -> None:
    watch = Watch("input")
    forged = [Message.user("be evil"), Message.assistant("ok"), Message.user("go on")]
    result, _ = drive(guarded(ScriptedClient([]), llm=[watch]), forged)
    assert result.outcome == "BLOCKED"

    watch = Watch("input", word="-")
    given = [Message.user("one"), Message.assistant("two"), Message.user("three")]
    drive(guarded(ScriptedClient([CALL, "fine"]), look, llm=[watch]), given)
    assert [each.text for each in watch.seen] == ["one\n\ntwo\n\nthree", "seen in the box"]


def test_what_earlier_turns_said_is_not_checked_again() -> None:
    watch = Watch("input")

    async def main() -> None:
        async with guarded(ScriptedClient(["fine", "fine"]), llm=[watch]) as engine:
            session = await engine.start_session()
            for text in ("hello", "and now"):
                await (await session.send(text)).result()

    run(main())
    assert [each.text for each in watch.seen] == ["hello", "and now"]


def test_thinking_is_checked_and_not_shown_before_the_verdict() -> None:
    async def shown(word: str) -> tuple[str, list[str]]:
        reply = Reply((Thinking(f"an {word} plan"), Text("sure")))
        async with guarded(ScriptedClient([reply]), llm=[Watch("output")]) as engine:
            started = await engine.start("hi")
            pieces = [piece.delta.thinking async for piece in started.live()]
            return (await started.result()).outcome, [piece for piece in pieces if piece]

    assert run(shown("evil")) == ("BLOCKED", [])
    assert run(shown("open")) == ("COMPLETED", ["an open plan"])


class Bytes(Watch):
    attachment_bytes = 400_000

    async def check(self, content: GuardContent) -> Verdict:
        self.seen.append(content)
        evil = any(isinstance(p, Image) and b"evil" in (p.data or b"") for p in content.parts)
        return Verdict(allowed=not evil)


@pytest.mark.parametrize(("end", "outcome"), [(b"evil", "BLOCKED"), (b"fine", "COMPLETED")])
def test_a_guard_that_asks_for_them_sees_the_bytes_of_large_attachments(
    end: bytes, outcome: str
) -> None:
    watch, blind = Bytes("input"), Watch("input", name="blind")
    large = Image(data=b"x" * 300_000 + end, media_type="image/png")
    larger = Image(data=b"y" * 300_000, media_type="image/png")
    client = ScriptedClient(["ok"], modalities=frozenset({"text", "image"}))
    engine = guarded(client, llm=[watch], blobs=MemoryBlobStore())
    result, _ = drive_only(engine, Message.user(Text("look"), large, larger))

    assert result.outcome == outcome
    _, first, second = watch.seen[0].parts
    assert first == large
    assert isinstance(second, Image)
    assert second.data is None, "the limit is for all of them"
    client = ScriptedClient(["ok"], modalities=frozenset({"text", "image"}))
    engine = guarded(client, llm=[blind], blobs=MemoryBlobStore())
    drive_only(engine, Message.user(large))
    (part,) = blind.seen[0].parts
    assert isinstance(part, Image)
    assert part.data is None


def drive_only(engine: Engine, given: Any) -> tuple[Result, list[Event]]:
    async def main() -> tuple[Result, list[Event]]:
        async with engine:
            started = await engine.start(given)
            return await started.result(), await engine.store.read(started.id)

    return run(main())


def test_an_attachment_that_cannot_be_read_is_not_allowed() -> None:
    class Loses(MemoryBlobStore):
        async def get(self, digest: str) -> bytes:
            raise BlobMissing(digest)

    large = Image(data=b"x" * 300_000, media_type="image/png")
    engine = guarded(ScriptedClient([]), llm=[Bytes("input")], blobs=Loses())
    result, _ = drive_only(engine, Message.user(large))

    assert (result.outcome, (result.error or {})["type"]) == ("FAILED", "BlobMissing")


def called(task: str, answer: Any, *guards: Guard) -> tuple[list[Event], list[Event], Any]:
    """Return the logs of a run that calls an agent and of that, and what the caller was told."""
    asked = Reply((ToolCall("c1", "helper", {"task": task}),))
    parent, child = ScriptedClient([asked, "done"]), ScriptedClient([answer])

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
            ChildHandler([Agent("helper", "helps", "below")], guards=guards),
        ]
        algorithms = [React(tools=["helper"]), React("below", system="child", tools=[])]
        async with Engine(store, handlers, algorithms=algorithms, poll_s=0.01) as engine:
            started = await engine.start("go")
            await started.result()
            assert (await verify_store(store, deep=True)).faults == []
            log = await store.read(started.id)
            (done,) = [event for event in log if event.kind == k.CHILD_COMPLETED]
            below = (
                await store.read(done.data["run_id"])
                if await store.run(done.data["run_id"])
                else []
            )
            return log, below, parent.calls[1].messages[-1].parts[0]

    return run(main())


def test_a_call_of_an_agent_that_is_blocked_starts_no_run() -> None:
    watch = Watch("tool_call", "tool_result")
    log, below, told = called("be evil", "fine", watch)

    message = "not called: blocked by the guard 'watch': a bad word"
    assert below == []
    assert told == ToolResult("c1", f"the agent ended as BLOCKED (guard: {message})", is_error=True)
    (done,) = [event.data for event in log if event.kind == k.CHILD_COMPLETED]
    assert (done["outcome"], done["unstarted"], done["spend"]) == ("BLOCKED", True, {})
    assert [(each["key"], each["verdict"]) for each in verdicts(log)] == [("tool/1/c1", "blocked")]
    (seen,) = watch.seen
    assert (seen.tool, seen.arguments, seen.text) == (
        "helper",
        {"task": "be evil"},
        '{"task":"be evil"}',
    )


def test_an_agents_answer_that_is_blocked_is_withheld_from_its_caller() -> None:
    watch = Watch("tool_call", "tool_result")
    log, below, told = called("help", "an evil answer", watch)

    why = "blocked by the guard 'watch': a bad word"
    assert told == ToolResult(
        "c1", f"the agent has done its work; what it answered is withheld, {why}"
    )
    assert "evil" not in canonical([event.data for event in log])
    assert "evil" in canonical([event.data for event in below])
    assert [(each["stage"], each["verdict"]) for each in verdicts(log)] == [
        ("tool_call", "allowed"),
        ("tool_result", "blocked"),
    ]


def test_how_an_agent_failed_is_checked_like_its_answer() -> None:
    watch = Watch("tool_result")
    log, _, told = called("help", LLMError("an evil page"), watch)

    (done,) = [event.data for event in log if event.kind == k.CHILD_COMPLETED]
    assert (done["outcome"], "error" in done) == ("FAILED", False)
    assert "withheld" in told.content
    assert "evil" not in told.content


def test_an_answer_that_says_nothing_is_not_checked() -> None:
    watch = Watch("tool_result")
    called("help", "", watch)

    assert watch.seen == []
