"""Every algorithm keeps the contract; a new one is a line in the table."""

from collections.abc import Callable, Sequence

import pytest

from lib.algorithms import React, Reflexion
from lib.llm import Message, Reply, ToolCall, ToolResult
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
}


@pytest.mark.parametrize("name", ALGORITHMS)
class TestAlgorithms(AlgorithmContract):
    @pytest.fixture(autouse=True)
    def choose(self, name: str) -> None:
        self._open = ALGORITHMS[name]

    def world(self) -> World:
        return self._open()
