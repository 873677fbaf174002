"""With a redactor, nothing that must not be kept reaches a log, a model, or a resumed run."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from lib._util.json import canonical
from lib.algorithms import React
from lib.engine import AgentTool, ChildHandler, Engine, LLMHandler
from lib.engine.api.check import request_check
from lib.engine.core.state import RunState
from lib.errors import IdempotencyMismatch, LLMError, RedactionFailed, ToolError
from lib.events import Event, EventStore, MemoryEventStore, RunQuery
from lib.events import kinds as k
from lib.events.stores.sqlite import SQLiteEventStore
from lib.events.verify import verify_store
from lib.guards import GuardContent, Stage, Verdict
from lib.llm import Image, Message, Reply, ScriptedClient, Text, Thinking, ToolCall, message_to_json
from lib.privacy import PatternRedactor
from lib.privacy.redactor import LARGE_CHARS, redaction
from lib.testing.agents import kinds, make_engine
from lib.tools import Tool, tool

from .run_kit import NEVER_ANSWERS, reached

KEYED = PatternRedactor(key=b"0123456789abcdef")
MAIL, PHONE, CARD = "jo.doe@secret.example", "+49 30 7654321", "4111 1111 1111 1111"
IBAN, KEY = "DE89370400440532013000", "sk-abcDEF1234567890abcdEFGH"
PLANTED = [MAIL, PHONE, CARD, CARD.replace(" ", ""), IBAN, KEY, "secret.example"]
ALL = f"{MAIL} {PHONE} {CARD} {IBAN} {KEY}"


class Folded(React):
    """Notes every event that is folded while the run is alive."""

    def __init__(self) -> None:
        super().__init__(system=f"write to {MAIL}", settings={"stop": [MAIL]})
        self.folded: list[Event] = []

    def evolve(self, state: Any, event: Event) -> Any:
        self.folded.append(event)
        return super().evolve(state, event)


@tool(effects="none")
def look_up(who: str, details: dict[str, Any]) -> str:
    """Look a person up."""
    return f"{who} {sorted(details)}: {ALL}"


@tool(effects="none")
def fail(who: str) -> str:
    """Fail."""
    raise ToolError("failed", f"no {ALL}")


@tool(effects="none")
def crash(who: str) -> str:
    """Crash."""
    raise KeyError(ALL)


@tool(approval=True)
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


TOOLS: tuple[Tool, ...] = (look_up, fail, crash, send)


def script() -> list[Any]:
    return [
        Reply(
            (
                Thinking(f"they said {ALL}", signature="seal"),
                Text(f"I look up {ALL}"),
                ToolCall(
                    "c1", "look_up", {"who": ALL, "details": {MAIL: int(CARD.replace(" ", ""))}}
                ),
                ToolCall("c2", "fail", {"who": ALL}),
                ToolCall("c3", "crash", {"who": ALL}),
                ToolCall("c4", "send", {}, invalid=f"not json {ALL}"),
            )
        ),
        Reply((ToolCall("c5", "send", {"text": ALL}),)),
        Reply((ToolCall("c6", "send", {"text": ALL}),)),
        f"done: {ALL}",
    ]


async def whole_life(store: EventStore, client: ScriptedClient, agent: React) -> str:
    """Drive a run through every kind of event that holds content."""
    options: dict[str, Any] = {"agent": agent, "store": store, "redactor": KEYED}
    async with make_engine(client, *TOOLS, **options) as engine:
        message = Message.user(Text(f"I am {ALL}"), Text(MAIL, extra={"note": MAIL}))
        started = await engine.start(message, idempotency_key=f"key of {MAIL}", user="u7")
        await wait_for_approval(started)
        (pending,) = await started.pending()
        await started.approve(pending.key, comment=f"ask {ALL}")
        await wait_for_approval(started, but=pending.key)
        (pending,) = await started.pending()
        await started.deny(pending.key, comment=f"never {ALL}")
        result = await started.result()
        assert (result.outcome, KEY in result.output) == ("COMPLETED", False)
        await engine.signal(
            started.id, k.EVAL_SCORE, {"name": "tone", "value": f"like {MAIL}", "comment": ALL}
        )
        await engine.signal(started.id, "acme.note", {"text": ALL, MAIL: {"deep": [ALL]}})
        return started.id


async def wait_for_approval(started: Any, but: str = "") -> None:
    async for event in started.events():
        if event.kind == k.APPROVAL_REQUESTED and event.data["key"] != but:
            return


def planted_in(text: str) -> list[str]:
    return [secret for secret in PLANTED if secret in text]


async def test_no_planted_secret_is_in_the_log_and_the_running_state_equals_its_fold() -> None:
    agent, store = Folded(), MemoryEventStore()
    client = ScriptedClient(script())

    run_id = await whole_life(store, client, agent)
    await store.setup()
    log = await store.read(run_id)

    assert planted_in(canonical([event.data for event in log])) == []
    assert planted_in(canonical([shown(call.messages) for call in client.calls])) == []
    assert [event for event in agent.folded if event not in log] == []
    assert {event.seq for event in agent.folded} >= {e.seq for e in log if e.seq > 1} - {
        log[-2].seq,
        log[-1].seq,
    }
    checks = [request_check([agent])]
    assert (await verify_store(store, deep=True, checks=checks)).faults == []
    assert set(kinds(log)) >= {
        *("run.started", "llm.completed", "tool.requested", "tool.completed", "tool.failed"),
        *("approval.requested", "approval.decided", "eval.score", "run.completed"),
    }


def shown(messages: Iterable[Message]) -> list[Any]:
    return [message_to_json(message) for message in messages]


async def test_no_planted_secret_is_in_the_files_of_a_store(tmp_path: Path) -> None:
    store = SQLiteEventStore(tmp_path / "runs.db")
    await whole_life(store, ScriptedClient(script()), Folded())
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())

    assert b"[EMAIL:" in raw
    assert [secret for secret in PLANTED if secret.encode() in raw] == []


async def test_cancelled_and_failed_runs_store_no_secret() -> None:
    store = MemoryEventStore()

    client = ScriptedClient([LLMError(ALL), Reply((ToolCall("c", "send", {"text": ALL}),))])
    async with make_engine(client, *TOOLS, store=store, redactor=KEYED) as engine:
        failed = await engine.start(ALL)
        assert (await failed.result()).outcome == "FAILED"
        cancelled = await engine.start(ALL)
        await wait_for_approval(cancelled)
        await cancelled.cancel(f"by {ALL}")
        assert planted_in((await cancelled.result()).reason) == []
        logs = [*await store.read(cancelled.id), *await store.read(failed.id)]
        assert planted_in(canonical([event.data for event in logs])) == []


class Stopped(Exception):
    pass


async def test_a_resumed_run_sends_the_same_bytes_as_the_one_that_was_never_interrupted() -> None:
    def steps() -> list[Any]:
        reply = Reply((ToolCall("c1", "look_up", {"who": ALL, "details": {}}),))
        return [reply, f"done {ALL}"]

    async def interrupted(path: MemoryEventStore) -> list[Any]:
        first, second = steps()
        before = ScriptedClient([first, Stopped()])
        async with make_engine(before, *TOOLS, store=path, redactor=KEYED) as engine:
            started = await engine.start(ALL)
            with pytest.raises(Stopped):
                await started.result()
            after = ScriptedClient([second])
            fresh: Engine = make_engine(after, *TOOLS, store=path, redactor=KEYED)
            async with fresh:
                assert (await fresh.run(started.id).result()).outcome == "COMPLETED"
        return [shown(call.messages) for call in (*before.calls[:1], *after.calls)]

    client = ScriptedClient(steps())
    async with make_engine(client, *TOOLS, redactor=KEYED) as engine:
        await (await engine.start(ALL)).result()
    assert (await interrupted(MemoryEventStore())) == [
        shown(call.messages) for call in client.calls
    ]


async def test_bytes_of_attachments_are_unchanged() -> None:
    store = MemoryEventStore()
    client = ScriptedClient(["ok"], modalities=frozenset({"text", "image"}))
    picture = Image(data=MAIL.encode(), media_type="image/png")
    async with make_engine(client, store=store, redactor=KEYED) as engine:
        await (await engine.start(Message.user(Text(MAIL), picture))).result()
    assert client.calls[0].messages[0].parts[1] == picture


async def test_a_start_with_the_same_key_and_secret_is_the_same_run() -> None:
    async with make_engine(ScriptedClient(["ok"]), redactor=KEYED) as engine:
        first = await engine.start(f"to {MAIL}", idempotency_key="k")
        again = await engine.start(f"to {MAIL}", idempotency_key="k")
        assert first.id == again.id
        with pytest.raises(IdempotencyMismatch):
            await engine.start("to mo@secret.example", idempotency_key="k")
        await first.result()


class Flaky:
    """Redacts until it meets a word."""

    def __init__(self, word: str) -> None:
        self.word = word

    def redact(self, text: str) -> str:
        if self.word in text:
            raise ValueError(text)
        return text


async def test_a_redactor_that_fails_stops_the_run_before_anything_is_written() -> None:
    store = MemoryEventStore()

    client = ScriptedClient(["boom"])
    async with make_engine(client, store=store, redactor=Flaky("boom")) as engine:
        with pytest.raises(RedactionFailed):
            await engine.start("boom")
        started = await engine.start("hello")
        with pytest.raises(RedactionFailed) as raised:
            await started.result()
        assert raised.value.kind == k.LLM_COMPLETED
        with pytest.raises(RedactionFailed):
            await engine.signal(started.id, k.CANCEL_REQUESTED, {"reason": "boom"})
        log = await store.read(started.id)
        assert kinds(log) == ["run.started", "llm.requested"]
        info = await started.info()
        assert (info.status, info.owner) == ("open", None)


async def test_another_engine_with_a_redactor_that_works_finishes_the_run() -> None:
    store = MemoryEventStore()

    async def main() -> str:
        async with make_engine(
            ScriptedClient(["boom"]), store=store, redactor=Flaky("boom")
        ) as one:
            started = await one.start("hello")
            with pytest.raises(RedactionFailed):
                await started.result()
            async with make_engine(ScriptedClient(["boom"]), store=store) as two:
                return (await two.run(started.id).result()).output

    assert (await main()) == "boom"


async def test_without_a_redactor_all_content_is_stored() -> None:
    async def main() -> RunState[Any]:
        async with make_engine(ScriptedClient([ALL])) as engine:
            started = await engine.start(ALL)
            assert (await started.result()).output == ALL
            return await started.state()

    assert (await main()).loop.messages[0].text == ALL


async def test_sessions_and_children_store_no_secret() -> None:
    store = MemoryEventStore()
    reply = Reply((ToolCall("c", "helper", {"task": f"write to {ALL}"}),))
    client = ScriptedClient([reply, f"helped {ALL}", f"done {ALL}", f"again {ALL}"])
    helper = AgentTool(name="helper", description="helps", algorithm="react")
    handlers = [LLMHandler(client), ChildHandler([helper])]

    agent = React(system=f"write to {MAIL}", tools=["helper"])
    async with Engine(store, handlers, algorithms=[agent], redactor=KEYED, poll_s=0.01) as engine:
        session = await engine.start_session()
        for text in (ALL, f"once more, {ALL}"):
            turn = await session.send(text, idempotency_key=f"say {text[:4]}")
            again = await session.send(text, idempotency_key=f"say {text[:4]}")
            assert turn.id == again.id
            assert (await turn.result()).outcome == "COMPLETED"
        await session.close()
        await session.run.result()
        logs = [
            event
            for info in await store.runs(RunQuery())
            for event in await store.read(info.run_id)
        ]
        assert planted_in(canonical([event.data for event in logs])) == []
        assert planted_in(canonical([shown(call.messages) for call in client.calls])) == []
        assert set(kinds(logs)) >= {
            *("turn.requested", "turn.started", "turn.completed", "close.requested"),
            *("child.requested", "child.completed"),
        }
        checks = [request_check([agent], store)]
        assert (await verify_store(store, deep=True, checks=checks)).faults == []


def test_a_provider_handle_is_dropped_when_its_conversation_was_redacted() -> None:
    done, state = redaction(KEYED), {"id": "resp_1"}
    parts = [{"type": "text", "text": "hello"}]
    kept = {"reply": {"parts": parts, "state": state}}

    assert done(k.LLM_COMPLETED, kept) == kept
    redacted = done(
        k.LLM_COMPLETED, {"reply": {"parts": [{"type": "text", "text": MAIL}], "state": state}}
    )
    assert set(redacted["reply"]) == {"parts"}
    assert redaction(None)(k.LLM_COMPLETED, kept) is kept


class Noting:
    """Redacts like the pattern redactor, and notes the size of each text and its thread."""

    def __init__(self) -> None:
        self.inner = PatternRedactor()
        self.calls: list[tuple[int, bool]] = []

    def redact(self, text: str) -> str:
        on_loop = threading.current_thread() is threading.main_thread()
        self.calls.append((len(text), on_loop))
        return self.inner.redact(text)


@tool(effects="none")
def read_long() -> str:
    """Read a long text."""
    return f"{MAIL} " * 2_000


async def test_large_payloads_are_redacted_in_a_thread_and_small_ones_on_the_event_loop() -> None:
    redactor = Noting()
    script = [Reply((ToolCall("c1", "read_long", {}),)), Reply((Text("done"),))]

    async def read() -> list[Event]:
        async with make_engine(ScriptedClient(script), read_long, redactor=redactor) as engine:
            started = await engine.start("read it")
            await started.result()
            return [event async for event in started.events()]

    events = await read()

    assert not [size for size, on_loop in redactor.calls if on_loop and size > LARGE_CHARS]
    assert [size for size, on_loop in redactor.calls if not on_loop and size > LARGE_CHARS]
    assert [size for size, on_loop in redactor.calls if on_loop]
    assert "secret.example" not in canonical([event.data for event in events])


LONG = f"{MAIL} " * 5_000


def on_loop_and_off(redactor: Noting) -> tuple[list[int], list[int]]:
    """Return the sizes of large texts that were redacted on the event loop, and in a thread."""
    large = [(size, on_loop) for size, on_loop in redactor.calls if size > LARGE_CHARS]
    return [n for n, on_loop in large if on_loop], [n for n, on_loop in large if not on_loop]


async def test_large_inputs_and_signals_are_redacted_in_a_thread() -> None:
    async def act(what: str, redactor: Noting) -> None:
        async with make_engine(ScriptedClient(["done"] * 2), redactor=redactor) as engine:
            if what == "session":
                session = await engine.start_session()
                turn = await session.send(LONG, idempotency_key="one")
                await turn.result()
                return
            started = await engine.start(LONG if what == "input" else "hi", idempotency_key="one")
            await started.result()
            if what == "score":
                await started.score("polite", 1.0, comment=LONG)
            if what == "signal":
                await engine.signal(started.id, "shop.noted", {"note": LONG})
            log = [event.data async for event in started.events()]
            assert "secret.example" not in canonical(log)

    for what in ("input", "session", "score", "signal"):
        redactor = Noting()
        await act(what, redactor)
        on_loop, off_loop = on_loop_and_off(redactor)
        assert (on_loop, bool(off_loop)) == ([], True), what


async def test_a_large_reason_for_a_cancellation_is_redacted_in_a_thread() -> None:
    redactor = Noting()

    async def main() -> str | None:
        async with make_engine(NEVER_ANSWERS, redactor=redactor) as engine:
            started = await engine.start("hi")
            await reached(started, k.LLM_REQUESTED)
            await started.cancel(LONG)
            return (await started.result()).outcome

    assert (await main()) == "CANCELLED"
    assert on_loop_and_off(redactor)[0] == []


async def test_large_checked_texts_are_redacted_and_hashed_in_a_thread() -> None:
    redactor = Noting()
    seen: list[int] = []

    class Weigher:
        name = "weigher"
        stages: frozenset[Stage] = frozenset({"input"})

        async def check(self, content: GuardContent) -> Verdict:
            seen.append(len(content.text))
            return Verdict(allowed=True)

    async def main() -> str | None:
        handlers = [LLMHandler(ScriptedClient(["done"]), guards=[Weigher()])]
        algorithms = [React()]
        async with Engine(
            MemoryEventStore(), handlers, algorithms=algorithms, redactor=redactor
        ) as engine:
            return (await (await engine.start(LONG)).result()).outcome

    assert (await main()) == "COMPLETED"
    assert seen[0] > LARGE_CHARS
    assert on_loop_and_off(redactor)[0] == []
