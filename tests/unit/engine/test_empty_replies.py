"""Replies with nothing in them: one more model call, and a second one fails the run."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.unit.engine.run_kit import Kept, add, join_results, play
from tests.unit.engine.session_kit import in_session

import lib
from lib.algorithms import React
from lib.engine import AgentTool, ChildHandler, Engine, LLMHandler, Result
from lib.engine.api.check import request_check
from lib.events import Event, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.llm import (
    FunctionClient,
    Image,
    Message,
    Reply,
    ScriptedClient,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from lib.llm.replies import ASK_AGAIN, is_empty
from lib.observe.spans import spans_from_events
from lib.testing.agents import make_engine
from lib.testing.providers import KeepingClient

EMPTY: dict[str, Reply] = {
    "no part": Reply(()),
    "an empty text": Reply((Text(""),)),
    "whitespace": Reply((Text(" \n\t"), Text("\u00a0\u2003"))),
    "characters that cannot be seen": Reply((Text("\u200b\ufeff\u2060\u00ad\u3164\U000e0041"),)),
    "thinking only": Reply((Thinking("I could say hello."),)),
    "thinking and a line break": Reply((Thinking("hm"), Text("\n\n"))),
    "another stop": Reply((), stop="other"),
}
CALL = Reply((ToolCall("c1", "add", {"a": 1, "b": 2}),))


async def resumed(log: Sequence[Event], client: ScriptedClient) -> tuple[Result, list[Any]]:
    """Go on after the first events of a log; return how that ends, and what a check finds."""
    store = Kept()
    async with make_engine(client, store=store) as engine:
        begun = [NewEvent(event.kind, event.data, event.at) for event in log]
        await store.append("again", begun, expected=0)
        result = await engine.run("again").result()
        found = await verify_store(store, deep=True, checks=[request_check([], store)])
    return result, list(found.faults)


def roles(messages: Sequence[Message]) -> list[str]:
    return [message.role for message in messages]


def emptied(log: Sequence[Event]) -> list[Any]:
    return [event.data.get("empty") for event in log if event.kind == k.LLM_COMPLETED]


@pytest.mark.parametrize("empty", EMPTY.values(), ids=EMPTY)
async def test_a_model_is_called_once_more_after_an_empty_reply(empty: Reply) -> None:
    client = ScriptedClient([empty, "hello"])

    with client:
        result, log = await play(client)

    assert (result.outcome, result.output, result.error) == ("COMPLETED", "hello", None)
    assert result.spend.llm_calls == 2
    assert client.calls[1].messages == (Message.user("go"), ASK_AGAIN)
    assert emptied(log) == [True, None]


@pytest.mark.parametrize("empty", EMPTY.values(), ids=EMPTY)
async def test_a_second_empty_reply_fails_the_run_with_a_reason(empty: Reply) -> None:
    result, log = await play(ScriptedClient([empty, empty]))

    assert (result.outcome, result.output, result.reason) == ("FAILED", "", "empty")
    assert result.error is not None
    assert (result.error["type"], result.error["stop"]) == ("EmptyReply", empty.stop)
    assert "allow_empty=True" in result.error["message"]
    assert emptied(log) == [True, True]


def test_any_content_makes_a_reply_non_empty() -> None:
    picture = Image(data=b"p", media_type="image/png")
    replies = [
        Reply((Text("0"),)),
        Reply((Text(" \u200b."),)),
        Reply((Text("👍🏽"),)),
        CALL,
        Reply((picture,)),
    ]

    assert [is_empty(reply) for reply in replies] == [False] * len(replies)


@pytest.mark.parametrize(
    ("stop", "outcome", "advice"),
    [
        ("length", "LIMITED", "raise the limit"),
        ("content_filter", "BLOCKED", "change what is sent"),
    ],
)
async def test_an_empty_reply_with_an_abnormal_stop_is_not_retried_and_the_error_names_it(
    stop: Any, outcome: str, advice: str
) -> None:
    client = ScriptedClient([Reply((Thinking("and then"),), stop=stop)])

    with client:
        result, _ = await play(client)

    assert (result.outcome, result.output, result.reason) == (outcome, "", stop)
    assert result.error is not None
    assert (result.error["type"], result.error["stop"]) == ("EmptyReply", stop)
    assert advice in result.error["message"]


async def test_an_empty_reply_between_calls_of_tools_is_repaired_each_time() -> None:
    client = ScriptedClient(["", CALL, "", "3"])

    with client:
        result, _ = await play(client, add)

    assert (result.outcome, result.output, result.spend.llm_calls) == ("COMPLETED", "3", 4)
    assert roles(client.calls[-1].messages) == ["user", "user", "assistant", "tool", "user"]


async def test_both_requests_count_as_spend() -> None:
    empty = Reply((), usage=Usage(input_tokens=10, output_tokens=5, cost=0.25))

    result, _ = await play(ScriptedClient([empty, empty]))

    assert (result.spend.tokens, result.spend.cost, result.spend.llm_calls) == (30, 0.5, 2)


async def test_a_retry_needs_a_step_and_budget() -> None:
    steps, _ = await play(ScriptedClient([""]), agent=React(max_steps=1))

    assert (steps.outcome, steps.reason) == ("LIMITED", "max_steps")


async def test_an_agent_whose_tools_do_the_work_may_end_without_a_word() -> None:
    client = ScriptedClient([CALL, ""])

    with client:
        result, log = await play(client, add, agent=React(allow_empty=True))

    assert (result.outcome, result.output, result.reason) == ("COMPLETED", "", "")
    assert log[0].data["config"]["allow_empty"] is True


def test_an_agent_of_the_front_door_may_end_without_a_word_or_fails_with_the_reason() -> None:
    silent = lib.Agent(ScriptedClient([""]), algorithm=partial(React, allow_empty=True))
    failing = lib.Agent(ScriptedClient(["", ""])).run_sync("go")

    assert silent.run_sync("go").outcome == "COMPLETED"
    assert (failing.outcome, failing.reason, failing.text) == ("FAILED", "empty", "")


async def test_an_empty_reply_does_not_count_as_an_attempt_at_the_output_schema() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    fitting = '{"n": 1}'
    for steps, outcome, reason in [
        (["", fitting], "COMPLETED", ""),
        (["", "{}", fitting], "COMPLETED", ""),
        (["{}", "", fitting], "COMPLETED", ""),
        (["", ""], "FAILED", "empty"),
        (["{}", "", ""], "FAILED", "empty"),
        (["", "{}", "{}"], "FAILED", "output"),
    ]:
        with ScriptedClient(steps) as client:
            result, _ = await play(client, agent=React(output=schema))
        assert (result.outcome, result.reason) == (outcome, reason), steps


async def test_a_stream_shows_only_the_final_content() -> None:
    async with make_engine(ScriptedClient(["", "hello"])) as engine:
        started = await engine.start("go")
        pieces = [piece.delta.text async for piece in started.deltas()]
        pieces, result = "".join(pieces), await started.result()

    assert (pieces, result.output) == ("hello", "hello")


async def test_a_turn_after_an_empty_one_begins_without_it() -> None:
    sent: list[Sequence[Message]] = []

    def answer(messages: Sequence[Message]) -> str:
        sent.append(messages)
        return "" if len(sent) < 3 else f"{len(sent)}"

    async with in_session(answer=answer) as (_, session):
        silent = await (await session.send("one")).result()
        spoken = await (await session.send("two")).result()

    assert (silent.outcome, silent.reason) == ("FAILED", "empty")
    assert (spoken.outcome, spoken.output) == ("COMPLETED", "3")
    assert [message.text for message in sent[2]] == ["be kind", "one", "two"]


async def test_a_called_agent_reports_why_it_has_no_answer() -> None:
    def think(messages: Sequence[Message]) -> Reply | str:
        if messages[0].text == "help me":
            return ""
        if messages[-1].role == "tool":
            return join_results(messages)
        return Reply((ToolCall("c1", "helper", {"task": "help me"}),))

    handlers = [
        LLMHandler(FunctionClient(think)),
        ChildHandler([AgentTool("helper", "Helps.", "helper")]),
    ]
    algorithms = [React("boss"), React("helper", tools=[])]
    async with Engine(MemoryEventStore(), handlers, algorithms=algorithms) as engine:
        result = await (await engine.start("go")).result()

    assert "FAILED (empty: expected text or a tool call, got an empty reply" in result.output


async def test_the_provider_state_of_an_empty_reply_is_not_used() -> None:
    client = KeepingClient(lambda messages: "hello" if messages[-1] == ASK_AGAIN else "")

    result, log = await play(client, agent=React(provider_state=True))

    assert (result.outcome, result.output) == ("COMPLETED", "hello")
    assert [e.data.get("provider_state") for e in log if e.kind == k.LLM_REQUESTED] == [None, None]


async def test_a_run_goes_on_in_another_process_after_every_event_of_a_repair() -> None:
    _, log = await play(ScriptedClient(["", "hello"]))

    for count in range(1, len(log)):
        result, faults = await resumed(log[:count], ScriptedClient(["", "hello"]))
        assert (result.outcome, result.output, faults) == ("COMPLETED", "hello", []), count


async def test_a_log_of_an_older_release_ends_with_the_same_result() -> None:
    _, log = await play(ScriptedClient(["", ""]))
    old = [replace(e, data={n: v for n, v in e.data.items() if n != "empty"}) for e in log]

    result, faults = await resumed(old[:3], ScriptedClient([]))

    assert (result.outcome, result.output, faults) == ("COMPLETED", "", [])


async def test_a_trace_names_an_empty_reply_and_shows_it_to_no_later_call() -> None:
    _, log = await play(ScriptedClient(["", "hello"]))

    calls = [span for span in spans_from_events(log) if span.kind == "llm"]

    assert [span.attributes.get("lib.reason") for span in calls] == ["empty", None]
