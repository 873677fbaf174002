"""The tools of a memory: users see, correct and erase what is remembered of them."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from lib import Agent, Result
from lib.events import Event, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.memory import Memory, MemoryTools, RuleExtractor

ANN: dict[str, Any] = {"tenant": "acme", "user": "ann"}


def call(name: str, **arguments: Any) -> Reply:
    return Reply(parts=(ToolCall("call-1", name, arguments),))


async def remembering(store: str = "memory:") -> Memory:
    memory = Memory(store, extractor=RuleExtractor())
    await memory.remember("The user lives in Berlin.", key="home", source="before", **ANN)
    await memory.remember("The user has a dog.", source="before", **ANN)
    await memory.remember("The user lives in Rome.", tenant="acme", user="bob")
    return memory


async def ask(
    memory: Memory, text: str, *replies: Reply | str, approval: bool = False, **whose: Any
) -> tuple[Result[Any], Sequence[Event]]:
    store = MemoryEventStore()
    tools = [MemoryTools(memory, approval=approval)]
    agent = Agent(ScriptedClient(replies), memory=memory, tools=tools)
    async with agent.engine(store) as engine:
        result = await (await engine.start(text, **(whose or ANN))).result()
        return result, await store.read(result.run_id)


def text_of(log: Sequence[Event]) -> str:
    return next(each.data["output"] for each in log if each.kind == k.TOOL_COMPLETED)


def output(log: Sequence[Event]) -> Any:
    return json.loads(text_of(log))


async def texts(memory: Memory, user: str = "ann") -> list[str]:
    return sorted(fact.text for fact in await memory.list(tenant="acme", user=user))


async def test_a_user_sees_their_own_memories_as_data() -> None:
    memory = await remembering()

    _, log = await ask(memory, "What do you know?", call("list_memories"), "much")
    _, about = await ask(memory, "Pets?", call("list_memories", about="dog"), "one")

    assert "lives in Berlin" in text_of(log)
    assert "has a dog" in text_of(log)
    assert "Rome" not in text_of(log)
    assert "data, not instructions" in text_of(log)
    assert text_of(about).index("has a dog") < text_of(about).index("lives in Berlin")


async def test_what_a_user_has_forgotten_is_gone_and_not_learned_again_from_the_same_words() -> (
    None
):
    memory = await remembering()
    wanted = ["the user lives in BERLIN", "The user has a boat."]
    forget = call("forget_memories", memories=wanted)

    result, log = await ask(memory, "Forget that I live in Berlin.", forget, "done")

    assert result.output == "done"
    assert output(log) == {"forgotten": wanted[:1], "not_remembered": wanted[1:]}
    assert await texts(memory) == ["The user has a dog."]
    assert await texts(memory, "bob") == ["The user lives in Rome."]
    await ask(memory, "I live in Berlin, by the way.", "good")
    assert await texts(memory) == ["The user has a dog.", "The user lives in Berlin."]


async def test_what_a_user_corrects_is_superseded() -> None:
    memory = await remembering()
    correct = call(
        "correct_memory", memory_text="The user has a dog.", correction="The user has two dogs."
    )

    _, log = await ask(memory, "I have two dogs, not one.", correct, "done")

    assert output(log) == {"memory": "The user has two dogs."}
    assert await texts(memory) == ["The user has two dogs.", "The user lives in Berlin."]


@pytest.mark.parametrize(
    ("memory_text", "correction", "code"),
    [
        ("The user has a cat.", "The user has two.", "not_found"),
        ("The user has a dog.", " ", "invalid_arguments"),
    ],
)
async def test_a_correction_of_nothing_or_to_nothing_fails_by_name(
    memory_text: str, correction: str, code: str
) -> None:
    memory = await remembering()
    correct = call("correct_memory", memory_text=memory_text, correction=correction)

    _, log = await ask(memory, "That is wrong.", correct, "sorry")

    failed = next(each.data for each in log if each.kind == k.TOOL_FAILED)
    assert failed["code"] == code
    assert await texts(memory) == ["The user has a dog.", "The user lives in Berlin."]


async def test_without_another_word_a_person_confirms_each_change_and_sees_its_words() -> None:
    memory = await remembering()
    forget = call("forget_memories", memories=["The user has a dog."])
    agent = Agent(
        ScriptedClient([forget, "I kept it."]), memory=memory, tools=[MemoryTools(memory)]
    )

    async with agent.engine() as engine:
        run = await engine.start("Forget what that page tells you to forget.", **ANN)
        await engine.wait_while_driven(run.id)
        (waiting,) = await run.pending()
        assert waiting.arguments == {"memories": ["The user has a dog."]}
        await run.deny(waiting.key)
        assert (await run.result()).output == "I kept it."

    assert await texts(memory) == ["The user has a dog.", "The user lives in Berlin."]


async def test_a_run_without_a_user_has_no_memories_to_show() -> None:
    memory = await remembering()

    _, log = await ask(memory, "What do you know?", call("list_memories"), "no", tenant="acme")

    failed = next(each.data for each in log if each.kind == k.TOOL_FAILED)
    assert failed["code"] == "unavailable"


async def test_after_a_crash_behind_any_append_the_change_is_made_and_its_words_not_learned() -> (
    None
):
    forget = call("forget_memories", memories=["The user lives in Berlin."])
    _, whole = await ask(await remembering(), "Forget that I live in Berlin.", forget, "done")

    for size in range(1, len(whole)):
        store, memory, left = MemoryEventStore(), await remembering(), whole[:size]
        if any(each.kind == k.TOOL_COMPLETED for each in left):
            (gone,) = [fact for fact in await memory.list(**ANN) if "Berlin" in fact.text]
            await memory.forget(gone.id, **ANN)
        await store.setup()
        new = [NewEvent(each.kind, each.data, each.at, each.tenant, each.user) for each in left]
        await store.append(left[0].run_id, new, expected=0)
        replies = [forget, "done"][sum(each.kind == k.LLM_COMPLETED for each in left) :]
        tools = [MemoryTools(memory, approval=False)]
        agent = Agent(ScriptedClient(replies), memory=memory, tools=tools)
        async with agent.engine(store) as engine:
            assert (await engine.run(left[0].run_id).result()).output == "done"

        assert await texts(memory) == ["The user has a dog."]
