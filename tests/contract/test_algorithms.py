"""Every algorithm keeps the contract; a new one is a line in the table."""

from collections.abc import Callable, Sequence

import pytest

from lib import Agent
from lib.algorithms import Debate, React, Reflexion, Remembering, Swarm
from lib.context import ClipToolOutputs, KeepLast, Summarize
from lib.engine import MemoryHandler
from lib.llm import FunctionClient, Message, Reply, ToolCall, ToolResult
from lib.memory import Memory, RuleExtractor
from lib.testing.algorithm import AlgorithmContract, World
from lib.tools import ToolError, tool


@tool(effects="idempotent")
async def look(place: str) -> str:
    if place == "nowhere":
        raise ToolError("not_found", "no such place")
    return f"seen {place}"


def answer(messages: Sequence[Message]) -> Reply | str:
    """Look at two places, then at one, then answer; once with a reply that does not fit."""
    results = [p for m in messages for p in m.parts if isinstance(p, ToolResult)]
    if not results:
        places = ("here", "nowhere")
        return Reply(tuple(ToolCall(f"c{n}", "look", {"place": p}) for n, p in enumerate(places)))
    if len(results) == 2:
        return Reply((ToolCall("c0", "look", {"place": "there"}),))
    text = "; ".join(result.content for result in results)
    return f'{{"answer": "{text}"}}' if messages[-1].role == "user" else text


def improve(messages: Sequence[Message]) -> Reply | str:
    """Look, answer badly, and better once feedback has come; as judge, want it better."""
    if messages[0].text == "Be strict.":
        passed = "better" in messages[-1].text
        return (
            f'{{"passed": {str(passed).lower()}, "feedback": "{"" if passed else "look there"}"}}'
        )
    reply = answer(messages)
    if isinstance(reply, Reply) or "look there" not in messages[-1].text:
        return reply
    return "better"


async def judge(answer: str) -> str | None:
    return None if "better" in answer else "look there"


@tool(effects="none", name="judge")
async def judge_tool(answer: str) -> dict[str, object]:
    return {"passed": "better" in answer, "feedback": "look there"}


def debate(messages: Sequence[Message]) -> Reply | str:
    """Look, and answer; then be of one mind with the others; at last say what they said."""
    if "\nDecide" in messages[-1].text:
        return messages[-1].text.partition("=====\n")[2]
    if "Other agents" in messages[-1].text:
        return "seen here"
    reply = answer(messages)
    return reply if isinstance(reply, Reply) else f"{messages[0].text}: {reply}"


def hand_over(messages: Sequence[Message]) -> Reply | str:
    """Look and hand over twice at once; then look, hand back, and answer."""
    over = "taken this conversation over" in messages[-1].text
    if over and messages[0].text != "Be helpful.":
        calls = [ToolCall("c", "look", {"place": "here"}), ToolCall("d", "hand_off_to_swarm", {})]
        return Reply(tuple(calls))
    if over:
        return "; ".join(message.text for message in messages)
    calls = [ToolCall(f"c{n}", f"hand_off_to_{name}", {}) for n, name in enumerate("ab")]
    return Reply((ToolCall("c", "look", {"place": "nowhere"}), *calls))


def look_on(messages: Sequence[Message]) -> Reply | str:
    """Look at one place after the other, by what is left of the conversation; or sum it up."""
    if messages[0].text.startswith("You keep the memory"):
        return "They have looked around."
    calls = [call for message in messages for call in message.tool_calls]
    seen = max((int(call.id[1:]) for call in calls if call.name == "look"), default=0)
    if seen == 9:
        return "; ".join(message.text for message in messages)
    if seen == 5 and messages[0].text == "Look around.":
        return Reply((ToolCall("c5", "hand_off_to_a", {}),))
    return Reply((ToolCall(f"c{seen + 1}", "look", {"place": "here " + "x" * 200}),))


SHORT = [ClipToolOutputs(100, keep_last=1), Summarize(300)]


def member(name: str) -> Agent:
    return Agent(FunctionClient(answer), name=name, instructions=f"I am {name}.")


BAD = '{"passed": false, "feedback": "look there"}'
SHAPE = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}

ALGORITHMS: dict[str, Callable[[], World]] = {
    "react": lambda: World(
        algorithm=React(system="Look around.", output=SHAPE),
        input="What is there?",
        answer=answer,
        tools=[look],
    ),
    "reflexion": lambda: World(
        algorithm=Reflexion("Be strict."),
        input="What is there?",
        answer=improve,
        tools=[look],
    ),
    "reflexion, never good enough": lambda: World(
        algorithm=Reflexion("Be strict.", trials=2),
        input="What is there?",
        answer=lambda messages: BAD if messages[0].text == "Be strict." else "no better",
    ),
    "reflexion, judged by a function": lambda: World(
        algorithm=Reflexion(judge, tools=["look"]),
        input="What is there?",
        answer=improve,
        tools=[look, judge_tool],
    ),
    "debate, judged": lambda: World(
        algorithm=Debate([member("b"), member("a")], rounds=4),
        input="What is there?",
        answer=debate,
        tools=[look],
    ),
    "debate, by vote": lambda: World(
        algorithm=Debate([member("b"), member("a")], rounds=1, by="vote"),
        input="What is there?",
        answer=debate,
        tools=[look],
    ),
    "react, with summaries": lambda: World(
        algorithm=React(system="Look for long.", context=SHORT),
        input="What is there?",
        answer=look_on,
        tools=[look],
    ),
    "react, without what is old": lambda: World(
        algorithm=React(context=[KeepLast(4)]),
        input="What is there?",
        answer=look_on,
        tools=[look],
    ),
    "react, with a memory": lambda: World(
        algorithm=Remembering(React(), {"learns": True, "shared": True}),
        input="I like tea. What is there?",
        answer=answer,
        tools=[look],
        handlers=[MemoryHandler(Memory("memory:", extractor=RuleExtractor()))],
    ),
    "reflexion, with a memory that is gone": lambda: World(
        algorithm=Remembering(Reflexion("Be strict."), {"learns": True, "shared": True}),
        input="What is there?",
        answer=improve,
        tools=[look],
    ),
    "swarm, with summaries": lambda: World(
        algorithm=Swarm(
            [Agent(FunctionClient(look_on), name="a", context=SHORT)],
            system="Look around.",
            context=SHORT,
        ),
        input="What is there?",
        answer=look_on,
        tools=[look],
    ),
    "swarm": lambda: World(
        algorithm=Swarm([member("a"), member("b")], system="Be helpful."),
        input="What is there?",
        answer=hand_over,
        tools=[look],
    ),
}


@pytest.mark.parametrize("name", ALGORITHMS)
class TestAlgorithms(AlgorithmContract):
    @pytest.fixture(autouse=True)
    def choose(self, name: str) -> None:
        self._open = ALGORITHMS[name]

    def world(self) -> World:
        return self._open()
