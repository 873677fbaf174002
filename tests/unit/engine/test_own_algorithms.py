"""An algorithm of a user's own: it needs nothing but what `lib.engine` exports."""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from lib.engine import Engine, Finish, LLMHandler, LLMRequest, Request, Wait
from lib.engine.api.check import request_check
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.llm import Message, ScriptedClient, reply_from_json


class AnswerState(NamedTuple):
    words: str
    requested: bool = False
    answer: str | None = None


class Once:
    """Asks a model once, with messages of any kind of sequence."""

    name = "once"

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def config(self) -> dict[str, Any]:
        return {}

    def initial(self, started: Event, history: Sequence[Message] = ()) -> AnswerState:
        return AnswerState(started.data["input"][0]["content"])

    def evolve(self, state: AnswerState, event: Event) -> AnswerState:
        if event.kind == k.LLM_REQUESTED:
            return state._replace(requested=True)
        if event.kind == k.LLM_COMPLETED:
            return state._replace(answer=reply_from_json(event.data["reply"]).text)
        return state

    def decide(self, state: AnswerState) -> Sequence[Request] | Finish | Wait:
        if state.answer is not None:
            return Finish(outcome="COMPLETED", output=state.answer)
        if state.requested:
            return Wait()
        return [LLMRequest(key="llm/1", messages=self.kind([Message.user(state.words)]))]


class Forgetful(Once):
    """Returns a request as long as it has no result, which every author tries first."""

    def evolve(self, state: AnswerState, event: Event) -> AnswerState:
        return super().evolve(state, event)._replace(requested=False)


async def test_a_pending_request_is_not_made_again() -> None:
    async def main() -> list[str]:
        client = ScriptedClient(["hello"])
        forgetful = Forgetful(list)
        async with Engine(
            MemoryEventStore(), [LLMHandler(client)], algorithms=[forgetful]
        ) as engine:
            started = await engine.start("hi")
            await started.result()
            return [event.kind async for event in started.events()]

    assert (await main()) == [k.RUN_STARTED, k.LLM_REQUESTED, k.LLM_COMPLETED, k.RUN_COMPLETED]


async def test_a_model_request_takes_any_sequence_of_messages() -> None:
    async def main(kind: Any) -> tuple[str, int]:
        store, once = MemoryEventStore(), Once(kind)
        client = ScriptedClient(["hello"])
        async with Engine(store, [LLMHandler(client)], algorithms=[once]) as engine:
            result = await (await engine.start("hi")).result()
            report = await verify_store(store, checks=[request_check([once])])
        assert [call.messages for call in client.calls] == [(Message.user("hi"),)]
        return result.output, len(report.faults)

    for kind in (list, tuple, deque):
        assert (await main(kind)) == ("hello", 0), kind


def test_a_model_request_without_a_sequence_of_messages_is_refused_at_construction() -> None:
    refused: list[Any] = ["hi", ["hi"], None, Message.user("hi"), iter([Message.user("hi")])]
    for messages in refused:
        with pytest.raises(
            TypeError, match=r"are a list of Message, got .*: write \[Message\.user"
        ):
            LLMRequest(key="llm/1", messages=messages)


def test_equal_messages_make_equal_requests_in_any_sequence_type() -> None:
    messages = [Message.user("hi"), Message.assistant("hello")]
    listed = LLMRequest(key="llm/1", messages=messages)

    assert listed == LLMRequest(key="llm/1", messages=tuple(messages))
    messages.append(Message.user("later"))
    assert list(listed.messages) == messages[:2]  # it keeps what it was given
