"""A debate: agents answer at once, read each other, answer again; a judge or a vote decides."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
from pydantic import BaseModel

from lib import Agent, Budget, tool
from lib.algorithms import Debate
from lib.errors import LLMError
from lib.events import Event
from lib.events import kinds as k
from lib.guards import SensitiveDataGuard
from lib.llm import FunctionClient, Message, Reply, ToolCall

from .team_kit import in_order, play


def debater(name: str, *replies: Reply | str, **options: Any) -> Agent:
    return Agent(in_order(*replies), name=name, instructions=f"You are {name}.", **options)


def turns(log: Sequence[Event]) -> list[tuple[str, int, str]]:
    found = [event.data for event in log if event.kind == k.DEBATE_TURN]
    return [(each["agent"], each["round"], each["text"]) for each in found]


async def test_all_answer_at_once_then_read_each_other_and_the_own_agent_judges() -> None:
    zoe, ann = debater("zoe", "7", "8"), debater("ann", "9", "8, I was wrong")
    model = in_order("It is 8.")
    judge = Agent(model, instructions="Be fair.", algorithm=Debate([zoe, ann], rounds=2))

    result, log = await play(judge, "How many?")

    assert (result.outcome, result.output) == ("COMPLETED", "It is 8.")
    assert sorted(turns(log)) == [
        ("ann", 1, "9"),
        ("ann", 2, "8, I was wrong"),
        ("zoe", 1, "7"),
        ("zoe", 2, "8"),
    ]
    requests = [e.data.get("agent") for e in log if e.kind == k.LLM_REQUESTED]
    assert requests == ["zoe", "ann", "zoe", "ann", None]
    assert [event.kind for event in log[1:3]] == [k.LLM_REQUESTED, k.LLM_REQUESTED]  # at once
    [call] = model.calls
    assert [m.text for m in call.messages[:2]] == ["Be fair.", "How many?"]
    assert "zoe:\n=====\n8\n=====" in call.messages[2].text
    second = cast(FunctionClient, zoe.models[0]).calls[1].messages
    assert [m.text for m in second[:3]] == ["You are zoe.", "How many?", "7"]
    assert "ann:\n=====\n9\n=====" in second[3].text
    assert "zoe:" not in second[3].text


async def test_agents_that_agree_early_are_not_called_again() -> None:
    team = [debater(name, text) for name, text in (("a", "Yes."), ("b", "yes"), ("c", " YES "))]

    result, log = await play(Agent(in_order(), algorithm=Debate(team, rounds=4, by="vote")))

    assert (result.output, result.spend.llm_calls) == ("Yes.", 3)
    assert {round_ for _, round_, _ in turns(log)} == {1}


async def test_a_vote_takes_the_answer_of_most_and_of_several_the_first() -> None:
    for answers, winner in ((("4", "5", "5"), "5"), (("4", "5", "6"), "4")):
        team = [debater(f"agent-{n}", answer) for n, answer in enumerate(answers)]
        result, _ = await play(Agent(in_order(), algorithm=Debate(team, rounds=1, by="vote")))
        assert result.output == winner


async def test_json_answers_are_compared_as_data_and_fit_the_output_of_the_run() -> None:
    class Count(BaseModel):
        lamps: int
        rooms: int

    texts = ('{"lamps": 1, "rooms": 2}', '{"rooms":2, "lamps":1}', '{"lamps": 3, "rooms": 2}')
    team = [debater(f"agent-{n}", text) for n, text in enumerate(texts)]
    counter = Agent(in_order(), output=Count, algorithm=Debate(team, rounds=1, by="vote"))

    result, _ = await play(counter)

    assert result.output == Count(lamps=1, rooms=2)
    assert cast(FunctionClient, team[0].models[0]).calls[0].output is not None


async def test_an_agent_that_fails_is_left_out_of_what_follows() -> None:
    def fail(_messages: Sequence[Message]) -> Reply:
        raise LLMError("no more", status=400)

    broken = Agent(FunctionClient(fail), name="broken")
    team = [debater("ann", "1", "1"), broken, debater("zoe", "2", "1")]

    result, log = await play(Agent(in_order("one"), algorithm=Debate(team)))

    assert (result.outcome, result.output) == ("COMPLETED", "one")
    assert [turn for turn in turns(log) if turn[0] == "broken"] == [("broken", 1, "")]


async def test_without_any_answer_the_run_ends_as_its_agents_did() -> None:
    guarded = [
        Agent(in_order("x"), name=name, guards=[SensitiveDataGuard(stages=("input",))])
        for name in ("ann", "zoe")
    ]

    result, log = await play(
        Agent(in_order(), algorithm=Debate(guarded)), "My card is 4111 1111 1111 1111."
    )

    assert (result.outcome, result.reason, result.spend.llm_calls) == ("BLOCKED", "debate", 2)
    assert result.error is not None
    assert result.error["message"] == "no agent has answered: ann BLOCKED, zoe BLOCKED"
    assert sum(event.kind == k.GUARD_VERDICT for event in log) == 2


async def test_agents_use_tools_of_their_own_even_of_one_name() -> None:
    def agent(name: str) -> Agent:
        @tool(effects="none", name="look")
        def look() -> str:
            """Look."""
            return f"seen by {name}"

        call = Reply((ToolCall("c1", "look", {}),), stop="tool_calls")
        return debater(name, call, name, tools=[look])

    result, log = await play(
        Agent(in_order("done"), algorithm=Debate([agent("ann"), agent("zoe")], rounds=1))
    )

    assert (result.output, result.spend.tool_calls) == ("done", 2)
    outputs = {e.data["key"]: e.data["output"] for e in log if e.kind == k.TOOL_COMPLETED}
    assert outputs == {
        "debate/ann/tool/1/c1": "seen by ann",
        "debate/zoe/tool/1/c1": "seen by zoe",
    }


async def test_a_round_that_the_budget_does_not_allow_is_not_begun() -> None:
    team = [debater("ann", "1"), debater("zoe", "2")]

    result, log = await play(Agent(in_order(), algorithm=Debate(team)), budget=Budget(llm_calls=3))

    assert (result.outcome, result.reason, result.spend.llm_calls) == ("LIMITED", "llm_calls", 2)
    assert len(turns(log)) == 2


async def test_the_next_turn_of_a_session_has_the_question_and_the_answer_alone() -> None:
    ann, zoe = debater("ann", "1", "3"), debater("zoe", "1", "3")
    model = in_order("one", "three")
    judge = Agent(model, algorithm=Debate([ann, zoe]))

    async with judge.engine() as engine:
        session = await judge.session(engine)
        answers = [(await (await session.send(text)).result()).output for text in ("a", "b")]
        await session.close()

    assert answers == ["one", "three"]
    second = cast(FunctionClient, ann.models[0]).calls[1].messages
    assert [m.text for m in second] == ["You are ann.", "a", "one", "b"]


@pytest.mark.parametrize("count", [0, 1, 8])
def test_too_few_and_too_many_agents_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"expected 2 to 7 agents, got {count}"):
        Debate([debater(f"agent-{n}") for n in range(count)])


@pytest.mark.parametrize("rounds", [0, 5, True])
def test_an_impossible_number_of_rounds_is_refused(rounds: int) -> None:
    with pytest.raises(ValueError, match="expected 1 to 4 rounds"):
        Debate([debater("ann"), debater("zoe")], rounds=rounds)


def test_other_misuse_is_refused() -> None:
    ann = debater("ann")
    with pytest.raises(ValueError, match="by='judge' or by='vote'"):
        Debate([ann, debater("zoe")], by=cast(Any, "lot"))
    with pytest.raises(ValueError, match="two members have the name 'ann'"):
        Debate([ann, debater("ann")])
    with pytest.raises(ValueError, match="rename that agent"):
        Debate([ann, debater("zo e")])
    with pytest.raises(TypeError, match="as a list"):
        Debate(cast(Any, ann))
    with pytest.raises(TypeError, match="expected an Agent, got str"):
        Debate(cast(Any, ["ann", "zoe"]))
