"""A swarm: agents hand a conversation over, one at a time, one hand-off in a reply."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from lib import Agent, Budget, tool
from lib.algorithms import Swarm
from lib.algorithms.react import LoopState, React
from lib.engine.core.state import fold
from lib.events import Event
from lib.events import kinds as k
from lib.guards import SensitiveDataGuard
from lib.llm import FunctionClient, Reply, Text, Thinking, ToolCall

from .team_kit import in_order, play


def to(target: str, *others: ToolCall, note: str = "", call_id: str = "h") -> Reply:
    """Return a reply that hands over, beside other calls."""
    arguments = {"note": note} if note else {}
    handoff = ToolCall(call_id, f"hand_off_to_{target}", arguments)
    return Reply((*others, handoff), stop="tool_calls")


def handoffs(log: Sequence[Event]) -> list[tuple[str, str]]:
    found = [event.data for event in log if event.kind == k.SWARM_HANDOFF]
    return [(each["source"], each["target"]) for each in found]


def calls(agent: Agent) -> list[Any]:
    return list(cast(FunctionClient, agent.models[0]).calls)


def failures(log: Sequence[Event]) -> list[str]:
    return [event.data["message"] for event in log if event.kind == k.TOOL_FAILED]


@tool(effects="none")
def find_order(number: int) -> str:
    """Find an order."""
    return f"order {number}: 3 lamps"


FIND = ToolCall("f", "find_order", {"number": 7})


async def test_the_other_agent_goes_on_with_its_own_model_instructions_and_tools() -> None:
    billing = Agent(in_order("You get it back."), name="billing", instructions="You are billing.")
    model = in_order(
        Reply((Thinking("hm", "seal"), Text("Let me see."), FIND), stop="tool_calls"),
        to("billing", note="it is order 7"),
    )
    swarm = Swarm([billing.as_tool("Knows invoices and refunds.")])
    desk = Agent(model, name="desk", instructions="Hi.", tools=[find_order], algorithm=swarm)

    result, log = await play(desk, "Refund order 7.")

    assert (result.outcome, result.output) == ("COMPLETED", "You get it back.")
    assert handoffs(log) == [("desk", "billing")]
    first = {spec.name: spec.description for spec in calls(desk)[0].tools}
    assert list(first) == ["find_order", "hand_off_to_billing"]
    assert first["hand_off_to_billing"].endswith("Knows invoices and refunds.")
    [call] = calls(billing)
    assert [spec.name for spec in call.tools] == ["hand_off_to_desk"]
    assert [(m.role, m.text) for m in call.messages] == [
        ("system", "You are billing."),
        ("user", "Refund order 7."),
        (
            "assistant",
            (
                'Let me see.\n[called find_order with {"number":7}]\n'
                "[find_order returned: order 7: 3 lamps]\n"
                '[called hand_off_to_billing with {"note":"it is order 7"}]\n'
                "[hand_off_to_billing returned: billing has the conversation now]"
            ),
        ),
        (
            "user",
            (
                "You have taken this conversation over from desk. Go on with it. Its note for you: "
                "it is order 7"
            ),
        ),
    ]
    assert result.spend.tool_calls == 1  # a hand-off is no call of a tool


async def test_of_two_hand_offs_in_a_reply_the_first_counts_and_other_calls_are_made() -> None:
    billing, shipping = (Agent(in_order("done"), name=name) for name in ("billing", "shipping"))
    both = to("billing", FIND, ToolCall("h2", "hand_off_to_shipping", {}), call_id="h1")
    desk = Agent(
        in_order(both), name="desk", tools=[find_order], algorithm=Swarm([billing, shipping])
    )

    result, log = await play(desk)

    assert (result.output, handoffs(log)) == ("done", [("desk", "shipping")])
    assert [message.partition(";")[0] for message in failures(log)] == [
        "not handed over: one hand-off at a time"
    ]
    answered = [e.data["call_id"] for e in log if e.kind in (k.TOOL_COMPLETED, k.TOOL_FAILED)]
    assert sorted(answered) == ["f", "h1", "h2"]


async def test_no_more_than_the_cap_and_none_to_itself() -> None:
    billing = Agent(in_order(to("desk")), name="billing")
    model = in_order(to("billing"), to("billing"), to("desk"), "I do it myself.")
    desk = Agent(model, name="desk", algorithm=Swarm([billing], max_handoffs=2))

    result, log = await play(desk)

    assert result.output == "I do it myself."
    assert handoffs(log) == [("desk", "billing"), ("billing", "desk")]
    assert failures(log) == [
        "not handed over: no hand-off is left in this run; answer it yourself",
        "not handed over: you have the conversation already",
    ]


async def test_a_hand_off_to_an_unknown_agent_fails_like_any_unknown_tool() -> None:
    billing = Agent(in_order(), name="billing")
    desk = Agent(in_order(to("kitchen"), "done"), name="desk", algorithm=Swarm([billing]))

    result, log = await play(desk)

    assert (result.output, handoffs(log)) == ("done", [])
    assert len(failures(log)) == 1


@pytest.mark.parametrize(
    ("seen", "texts"),
    [
        ("text", ["Refund order 7.", "Let me see."]),
        ("input", ["Refund order 7."]),
    ],
)
async def test_an_agent_sees_as_much_of_the_conversation_as_the_swarm_says(
    seen: Any, texts: list[str]
) -> None:
    billing = Agent(in_order("done"), name="billing")
    look = Reply((Text("Let me see."), FIND), stop="tool_calls")
    model = in_order(look, to("billing"))
    desk = Agent(model, name="desk", tools=[find_order], algorithm=Swarm([billing], seen=seen))

    await play(desk, "Refund order 7.")

    [call] = calls(billing)
    assert [m.text for m in call.messages[:-1]] == texts
    assert call.messages[-1].text.startswith("You have taken this conversation over from desk.")


async def test_the_guards_of_the_other_agent_check_all_that_it_is_to_read() -> None:
    billing = Agent(
        in_order("never"), name="billing", guards=[SensitiveDataGuard(stages=("input",))]
    )
    desk = Agent(in_order(to("billing")), name="desk", algorithm=Swarm([billing]))

    result, log = await play(desk, "My card is 4111 1111 1111 1111.")

    assert (result.outcome, calls(billing)) == ("BLOCKED", [])
    assert handoffs(log) == [("desk", "billing")]


async def test_in_a_session_the_agent_that_has_the_conversation_answers_the_next_turn() -> None:
    billing = Agent(
        in_order("first", "second", to("desk", note="they say hello"), "unused"), name="billing"
    )
    model = in_order(to("billing"), "back at the desk")
    desk = Agent(model, name="desk", algorithm=Swarm([billing]))

    async with desk.engine() as engine:
        session = await desk.session(engine)
        turns = [await session.send(text) for text in ("a", "b", "c")]
        answers = [(await turn.result()).output for turn in turns]
        await session.close()

    assert answers == ["first", "second", "back at the desk"]
    third = [m.text for m in calls(billing)[2].messages]
    assert (third[0], third[-3:]) == ("a", ["b", "second", "c"])


async def test_the_budget_is_that_of_the_run() -> None:
    billing = Agent(in_order("never"), name="billing", budget=Budget(llm_calls=50))
    desk = Agent(in_order(to("billing")), name="desk", algorithm=Swarm([billing]))

    result, _ = await play(desk, budget=Budget(llm_calls=1))

    assert (result.outcome, result.reason, result.spend.llm_calls) == ("LIMITED", "llm_calls", 1)


async def test_instructions_that_depend_on_the_start_are_those_of_that_run() -> None:
    billing = Agent(
        in_order("done"), name="billing", instructions=lambda start: f"You serve {start.tenant}."
    )
    desk = Agent(in_order(to("billing")), name="desk", algorithm=Swarm([billing]))

    await play(desk, tenant="acme")

    assert calls(billing)[0].messages[0].text == "You serve acme."


async def test_the_state_of_a_loop_names_no_agent_and_no_hand_off_where_there_are_none() -> None:
    result, log = await play(Agent(in_order("hello"), name="desk"))
    state = fold(React(), log).loop

    assert result.output == "hello"
    assert (state.agent, state.handoffs) == ("", 0)
    assert (LoopState._field_defaults["agent"], LoopState._field_defaults["handoffs"]) == ("", 0)


def test_misuse_is_refused_where_the_swarm_is_made() -> None:
    billing = Agent(in_order(), name="billing")
    with pytest.raises(ValueError, match="got none"):
        Swarm([])
    with pytest.raises(ValueError, match="0 or more hand-offs"):
        Swarm([billing], max_handoffs=-1)
    with pytest.raises(ValueError, match="seen='all'"):
        Swarm([billing], seen=cast(Any, "some"))
    with pytest.raises(ValueError, match="without approval"):
        Swarm([billing.as_tool("pays", approval=True)])
    with pytest.raises(ValueError, match="the name 'billing'"):
        Agent(in_order(), name="billing", algorithm=Swarm([billing]))
