"""Reflexion: an agent tries again with what a judge finds wrong, a bounded number of times."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from lib import Agent, Budget, tool
from lib.algorithms import Reflexion
from lib.events import Event
from lib.events import kinds as k
from lib.llm import Reply, ToolCall

from .team_kit import in_order, play

GOOD = '{"passed": true, "feedback": ""}'
BAD = '{"passed": false, "feedback": "too long"}'


def feedback(log: Sequence[Event]) -> list[Any]:
    return [event.data for event in log if event.kind == k.REFLEXION_FEEDBACK]


async def test_an_answer_that_the_judge_accepts_is_the_answer() -> None:
    poet = Agent(in_order("a verse", GOOD), algorithm=Reflexion("Is it short?"))

    result, log = await play(poet)

    assert (result.outcome, result.output, feedback(log)) == ("COMPLETED", "a verse", [])


async def test_feedback_is_on_the_log_and_the_agent_reads_it_after_its_own_answer() -> None:
    model = in_order("a long verse", BAD, "a verse", GOOD)
    poet = Agent(model, instructions="Be a poet.", algorithm=Reflexion("Is it short?"))

    result, log = await play(poet)

    assert (result.outcome, result.output) == ("COMPLETED", "a verse")
    assert feedback(log) == [{"text": "too long", "trial": 1}]
    [first, judge, second, _] = model.calls
    assert [m.role for m in second.messages] == ["system", "user", "assistant", "user"]
    assert second.messages[:2] == first.messages
    assert "too long" in second.messages[-1].text
    assert judge.messages[0].text == "Is it short?"
    assert "a long verse" in judge.messages[-1].text
    assert judge.tools == ()


async def test_a_run_whose_last_answer_is_rejected_is_limited_and_has_that_answer() -> None:
    poet = Agent(in_order("one", BAD, "two", BAD), algorithm=Reflexion("Short?", trials=2))

    result, log = await play(poet)

    assert (result.outcome, result.reason, result.text) == ("LIMITED", "trials", "two")
    assert [each["trial"] for each in feedback(log)] == [1, 2]


def sync_judge(answer: str) -> str | None:
    return None if len(answer) < 6 else "too long"


async def async_judge(answer: str) -> bool:
    return len(answer) < 6


@pytest.mark.parametrize("judge", [sync_judge, async_judge])
async def test_a_function_judges(judge: Callable[[str], Any]) -> None:
    model = in_order("a long verse", "verse")
    poet = Agent(model, algorithm=Reflexion(judge))

    result, log = await play(poet)

    assert (result.outcome, result.output, len(feedback(log))) == ("COMPLETED", "verse", 1)
    assert model.calls[0].tools == ()  # no model can call the judge
    assert [e.data["agent"] for e in log if e.kind == k.TOOL_REQUESTED] == ["judge", "judge"]


def raising(_answer: str) -> None:
    raise OSError("the disk is full")


async def test_a_judge_that_fails_ends_the_run_as_failed_with_the_answer() -> None:
    for judge in (raising, cast("Any", len)):
        result, _ = await play(Agent(in_order("a verse"), algorithm=Reflexion(judge)))

        assert (result.outcome, result.reason, result.text) == ("FAILED", "judge", "a verse")
        assert result.error is not None
        assert result.error["type"] == "JudgeFailed"


async def test_an_agent_judges_with_a_model_instructions_and_tools_of_its_own() -> None:
    @tool(effects="none")
    def count(text: str) -> int:
        """Count words."""
        return len(text.split())

    call = Reply((ToolCall("c1", "count", {"text": "a verse"}),), stop="tool_calls")
    critic_model = in_order(call, BAD, GOOD)
    critic = Agent(critic_model, name="critic", instructions="Be a critic.", tools=[count])
    model = in_order("a verse", "verse")

    result, log = await play(Agent(model, name="poet", algorithm=Reflexion(critic)))

    assert (result.output, result.spend.tool_calls) == ("verse", 1)
    assert critic_model.calls[0].messages[0].text == "Be a critic."
    assert [spec.name for spec in critic_model.calls[0].tools] == ["count"]
    assert [spec.name for spec in model.calls[0].tools] == []
    assert {e.data.get("agent") for e in log if e.kind == k.LLM_REQUESTED} == {None, "critic"}


async def test_the_budget_counts_the_judge() -> None:
    poet = Agent(in_order("one", BAD, "two"), algorithm=Reflexion("Short?"))

    result, _ = await play(poet, budget=Budget(llm_calls=3))

    assert (result.outcome, result.reason, result.spend.llm_calls) == ("LIMITED", "llm_calls", 3)


async def test_the_turns_of_a_session_are_judged_each() -> None:
    model = in_order("one", GOOD, "two", BAD, "three", GOOD)
    poet = Agent(model, algorithm=Reflexion("Short?"))

    async with poet.engine() as engine:
        session = await poet.session(engine)
        answers = [(await (await session.send(text)).result()).output for text in ("a", "b")]
        await session.close()

    assert answers == ["one", "three"]
    assert [m.text for m in model.calls[3].messages][1:4] == ["a", "one", "b"]  # the judge reads it


@pytest.mark.parametrize("trials", [0, 11, True])
def test_an_impossible_number_of_trials_is_refused(trials: int) -> None:
    with pytest.raises(ValueError, match="expected 1 to 10 trials"):
        Reflexion("Short?", trials=trials)


@pytest.mark.parametrize("judge", [None, 7, str])
def test_what_is_no_judge_is_refused(judge: Any) -> None:
    with pytest.raises(TypeError, match="expected text, an agent or a function as judge"):
        Reflexion(judge)


def test_an_empty_text_is_no_judge() -> None:
    with pytest.raises(ValueError, match="an empty text"):
        Reflexion(" ")


def test_a_team_is_no_member_of_a_team() -> None:
    poet = Agent(in_order(), name="poet", algorithm=Reflexion("Short?"))

    with pytest.raises(TypeError, match="a team has no teams as members"):
        Reflexion(poet)
