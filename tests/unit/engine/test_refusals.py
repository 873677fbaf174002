"""An engine refuses impossible parts and requests at once, with the way out."""

from typing import Any

import pytest

from lib.algorithms import React
from lib.engine import Engine, LLMHandler, ToolHandler, UnknownAlgorithm, UnknownTool
from lib.errors import ContentTooLarge, RunNotFound
from lib.events import INLINE_LIMIT, MemoryEventStore
from lib.llm import Image, Message, ScriptedClient
from lib.testing.agents import make_engine
from lib.tools import tool

from .run_kit import add


async def test_large_attachments_without_a_blob_store_are_refused_before_the_run_begins() -> None:
    question = Message.user(Image(data=b"p" * (INLINE_LIMIT + 1), media_type="image/png"))

    async with make_engine(ScriptedClient([])) as engine:
        with pytest.raises(ContentTooLarge) as caught:
            await engine.start(question)
        assert (caught.value.size, caught.value.limit) == (INLINE_LIMIT + 1, INLINE_LIMIT)
        assert await engine.store.runs() == []


async def test_unknown_algorithms_and_missing_runs_are_named() -> None:
    async with make_engine(ScriptedClient([])) as engine:
        with pytest.raises(UnknownAlgorithm) as unknown:
            await engine.start("hi", algorithm="reflexion")
        assert (unknown.value.name, unknown.value.available) == ("reflexion", ("react",))
        for missing in (
            engine.run("nope").info(),
            engine.run("nope").result(),
            engine.run("nope").state(),
            engine.resume("nope"),
            engine.run("nope").pending(),
            anext(engine.run("nope").events()),
        ):
            with pytest.raises(RunNotFound) as caught:
                await missing
            assert caught.value.run_id == "nope"


def test_an_engine_with_ambiguous_parts_is_refused() -> None:
    store, client = MemoryEventStore(), ScriptedClient([])

    with pytest.raises(ValueError, match="two algorithms of one engine have the name 'react'"):
        Engine(store, [], algorithms=[React(), React()])
    with pytest.raises(ValueError, match="two handlers of one engine have the kind"):
        Engine(store, [LLMHandler(client), LLMHandler(client)], algorithms=[React()])
    with pytest.raises(ValueError, match="at least one algorithm"):
        Engine(store, [ToolHandler([])], algorithms=[])


def test_a_wrong_store_or_handler_is_refused_with_the_way_out() -> None:
    number: Any = 7
    client: Any = ScriptedClient([])

    with pytest.raises(TypeError, match="expected an EventStore, got int: use open_store"):
        Engine(number, [], algorithms=[React()])
    with pytest.raises(
        TypeError, match="expected a Handler, got ScriptedClient: give clients to an LLMH"
    ):
        Engine(MemoryEventStore(), [client], algorithms=[React()])


@pytest.mark.parametrize(("client", "name"), [("gpt-5", "str"), (ScriptedClient, "ScriptedClient")])
def test_a_wrong_client_is_refused_with_the_way_out(client: Any, name: str) -> None:
    with pytest.raises(
        TypeError, match=f"expected an LLMClient, got (the class )?{name}: use one such as"
    ):
        LLMHandler(client)


def test_an_unknown_tool_is_refused_with_the_names_of_the_known_ones() -> None:
    @tool(effects="none")
    def look() -> str:
        """Look around."""
        return "nothing"

    misspelt = React("desk", tools=["add", "refnd"])

    with pytest.raises(UnknownTool, match=r"'desk' offers the tool 'refnd', .* there is add, look"):
        make_engine(ScriptedClient([]), add, look, agent=misspelt)
    with pytest.raises(UnknownTool, match="there is none") as caught:
        make_engine(ScriptedClient([]), agent=misspelt)
    facts = caught.value
    assert (facts.name, facts.algorithm, facts.available) == ("add", "desk", ())


async def test_an_empty_conversation_is_refused() -> None:
    async with make_engine(ScriptedClient([])) as engine:
        with pytest.raises(ValueError, match="at least one message"):
            await engine.start([])
