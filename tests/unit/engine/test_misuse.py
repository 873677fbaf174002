"""Arguments of a wrong kind are refused where they enter, before any effect."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine import AgentTool, Budget, ChildHandler, Engine, LLMHandler, ToolHandler
from lib.events import MemoryBlobStore, MemoryEventStore
from lib.guards import InjectionGuard
from lib.llm import Image, Message, ScriptedClient, Text
from lib.testing.agents import make_engine
from lib.tools import tool


@tool
def look() -> str:
    """Look around."""
    return "nothing"


def plain() -> str:
    return "nothing"


def model() -> LLMHandler:
    return LLMHandler(ScriptedClient([]))


MODEL = model()
AGENT = AgentTool("helper", "Helps", "react")
HANDLERS = "expected handlers as a list, such as [LLMHandler(…), ToolHandler(…)], got"
ALGORITHMS = "expected algorithms as a list, such as [React()], got"
TOOLS = "expected tools as a list, such as [refund], got"
GUARDS = "expected guards as a list, such as [InjectionGuard()], got"
MADE: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = [
    (
        Engine,
        (MemoryEventStore, []),
        {},
        "an EventStore, got the class MemoryEventStore: use open_store(",
    ),
    (
        Engine,
        ([MODEL], MemoryEventStore()),
        {},
        "expected an EventStore, got list: use open_store(…)",
    ),
    (Engine, (MemoryEventStore(), MODEL), {}, f"{HANDLERS} LLMHandler"),
    (Engine, (MemoryEventStore(), None), {}, f"{HANDLERS} NoneType"),
    (Engine, (MemoryEventStore(), look), {}, f"{HANDLERS} FunctionTool"),
    (Engine, (MemoryEventStore(), "llm"), {}, f"{HANDLERS} str"),
    (
        Engine,
        (MemoryEventStore(), [plain]),
        {},
        "expected a Handler, got function: give clients to an LLMHandler,",
    ),
    (
        Engine,
        (MemoryEventStore(), [look]),
        {},
        "a Handler, got FunctionTool: give clients to an LLMHandler,",
    ),
    (
        Engine,
        (MemoryEventStore(), [LLMHandler]),
        {},
        "a Handler, got the class LLMHandler: give clients",
    ),
    (Engine, (MemoryEventStore(), []), {"algorithms": React()}, f"{ALGORITHMS} React"),
    (Engine, (MemoryEventStore(), []), {"algorithms": React}, f"{ALGORITHMS} the class React"),
    (Engine, (MemoryEventStore(), []), {"algorithms": "react"}, f"{ALGORITHMS} str"),
    (
        Engine,
        (MemoryEventStore(), []),
        {"algorithms": [React]},
        "an Algorithm, got the class React: use an",
    ),
    (
        Engine,
        (MemoryEventStore(), []),
        {"algorithms": ["react"]},
        "expected an Algorithm, got str: use an instance",
    ),
    (
        Engine,
        (MemoryEventStore(), []),
        {"algorithms": [MODEL]},
        "an Algorithm, got LLMHandler: use an instance",
    ),
    (
        Engine,
        (MemoryEventStore(), []),
        {"blobs": "blobs/"},
        "a BlobStore, got str: use DirectoryBlobStore",
    ),
    (
        Engine,
        (MemoryEventStore(), []),
        {"redactor": str.upper},
        "a Redactor, got method_descriptor: use",
    ),
    (LLMHandler, (None,), {}, "expected an LLMClient, got NoneType: use one such as ChatClient"),
    (LLMHandler, (ScriptedClient([]),), {"guards": plain}, f"{GUARDS} function"),
    (
        LLMHandler,
        (ScriptedClient([]),),
        {"guards": [plain]},
        "expected a guard, got function: use an instance, such as",
    ),
    (ToolHandler, (look,), {}, "expected tools as a list, got a tool: write [look]"),
    (ToolHandler, (plain,), {}, f"{TOOLS} function"),
    (ToolHandler, ("look",), {}, f"{TOOLS} str"),
    (ToolHandler, ([look],), {"guards": InjectionGuard()}, f"{GUARDS} InjectionGuard"),
    (
        ToolHandler,
        ([look],),
        {"guards": [InjectionGuard]},
        "a guard, got the class InjectionGuard: use an",
    ),
    (
        ChildHandler,
        (AGENT,),
        {},
        "expected agents as a list, such as [AgentTool(…)], got AgentTool",
    ),
    (
        ChildHandler,
        ([React()],),
        {},
        "expected an AgentTool, got React: use AgentTool(name,",
    ),
    (ChildHandler, ([AGENT],), {"guards": plain}, f"{GUARDS} function"),
]


@pytest.mark.parametrize(("make", "arguments", "options", "expected"), MADE)
def test_a_part_of_the_wrong_type_is_named_at_construction(
    make: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any], expected: str
) -> None:
    if make is Engine:
        options = {"algorithms": [React()], **options}

    with pytest.raises(TypeError, match=re.escape(expected)):
        make(*arguments, **options)


def test_parts_may_come_from_any_iterable() -> None:
    handlers, algorithms = iter([ToolHandler(iter([look]))]), (each for each in [React()])

    engine = Engine(MemoryEventStore(), handlers, algorithms=algorithms)

    assert engine.algorithm("react").name == "react"


EXPECTED = "expected text, a Message or a list of them as input, got"
INPUTS: list[tuple[Any, str]] = [
    (None, f"{EXPECTED} NoneType: use Message.user(…)"),
    (123, f"{EXPECTED} int"),
    (b"hi", f"{EXPECTED} bytes"),
    (["hi"], f"{EXPECTED} list of str"),
    ({"role": "user", "content": "hi"}, f"{EXPECTED} dict"),
    ([{"role": "user", "content": "hi"}], f"{EXPECTED} list of dict"),
    (Text("hi"), f"{EXPECTED} Text"),
    ([Message.user("hi"), None], f"{EXPECTED} list of NoneType"),
    (Message, f"{EXPECTED} the class Message"),
]


@pytest.mark.parametrize(("text", "expected"), INPUTS)
async def test_input_other_than_messages_is_refused_before_a_run_or_turn_begins(
    text: Any, expected: str
) -> None:
    async with make_engine(ScriptedClient([])) as engine:
        with pytest.raises(TypeError, match=re.escape(expected)):
            await engine.start(text)
        assert await engine.store.runs() == []
        session = await engine.start_session()
        with pytest.raises(TypeError, match=re.escape(expected)):
            await session.send(text)
        assert await session.turns() == []


PHOTO = Message.user(Image(data=b"p" * 300_000, media_type="image/png"))
BUDGET = "use Budget(tokens=…)"
CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("start", {"tenant": 5}, "text or None as tenant, got int: write tenant=str(…)"),
    ("start", {"user": 5}, "text or None as user, got int"),
    ("start", {"idempotency_key": 5}, "text or None as idempotency_key, got int"),
    ("start", {"budget": 5}, f"expected a Budget, got int: {BUDGET}"),
    ("start", {"budget": {"tokens": 5}}, f"expected a Budget, got dict: {BUDGET}"),
    ("start", {"budget": Budget}, f"a Budget, got the class Budget: {BUDGET}"),
    ("start", {"algorithm": React()}, "an algorithm's name, such as 'react', got React"),
    ("start", {"algorithm": ["react"]}, "an algorithm's name, such as 'react', got list"),
    ("start_session", {"algorithm": React}, "name, such as 'react', got the class React"),
    ("start_session", {"tenant": 5}, "text or None as tenant, got int"),
    ("start_session", {"user": 5}, "text or None as user, got int"),
    ("start_session", {"idempotency_key": b"k"}, "text or None as idempotency_key, got bytes"),
    ("start_session", {"budget": 5}, f"expected a Budget, got int: {BUDGET}"),
    ("start_session", {"turn_budget": 5}, f"expected a Budget, got int: {BUDGET}"),
    ("send", {"user": 5}, "text or None as user, got int"),
    ("send", {"idempotency_key": 5}, "text or None as idempotency_key, got int"),
    ("cancel", {"user": 5}, "text or None as user, got int"),
    ("cancel", {"reason": 5}, "expected text as reason, got int"),
]


@pytest.mark.parametrize(("method", "options", "expected"), CALLS)
async def test_a_call_with_an_argument_of_the_wrong_type_has_no_effect(
    method: str, options: dict[str, Any], expected: str
) -> None:
    messages = [PHOTO] if method in {"start", "send"} else []

    blobs = MemoryBlobStore()
    async with make_engine(ScriptedClient([]), blobs=blobs) as engine:
        session = await engine.start_session()
        before = await engine.store.read(session.id)
        called = getattr(session if method in {"send", "cancel"} else engine, method)
        with pytest.raises(TypeError, match=re.escape(expected)):
            await called(*messages, **options)
        assert await engine.store.read(session.id) == before
        assert len(await engine.store.runs()) == 1
        assert await blobs.stored() == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tenant", "expected a tenant's id, got an empty text"),
        ("idempotency_key", "expected an idempotency key, got an empty text"),
    ],
)
async def test_an_empty_name_is_refused_before_its_content_is_stored(
    name: str, expected: str
) -> None:
    empty: dict[str, Any] = {name: ""}

    blobs = MemoryBlobStore()
    async with make_engine(ScriptedClient([]), blobs=blobs) as engine:
        with pytest.raises(ValueError, match=expected):
            await engine.start(PHOTO, **empty)
        with pytest.raises(ValueError, match=expected):
            await engine.start_session(**empty)
        assert await blobs.stored() == []


async def test_comments_on_decisions_and_turns_must_be_text() -> None:
    number: Any = 5

    async with make_engine(ScriptedClient(["hi"])) as engine:
        started = await engine.start("go")
        for decide in (started.approve, started.deny):
            with pytest.raises(TypeError, match=r"^expected text as comment, got int$"):
                await decide("tool/1/c1", comment=number)
        turn = await (await engine.start_session()).send("hi")
        with pytest.raises(TypeError, match=r"^expected text as reason, got int$"):
            await turn.cancel(number)


async def test_a_run_and_a_session_are_named_by_their_ids() -> None:
    async with make_engine(ScriptedClient([])) as engine:
        session: Any = await engine.start_session()
        missing: Any = None
        number: Any = 5
        for handle in (engine.run, engine.session):
            with pytest.raises(TypeError, match=r"expected the id of a run, got NoneType$"):
                handle(missing)
            with pytest.raises(TypeError, match="expected the id of a run, got Session: write "):
                handle(session)
            with pytest.raises(TypeError, match="text or None as tenant, got int"):
                handle(session.id, tenant=number)
        with pytest.raises(TypeError, match=r"expected the id of a run, got NoneType$"):
            await engine.resume(missing)
