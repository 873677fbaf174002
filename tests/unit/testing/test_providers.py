"""The fake providers are as strict as they say."""

from collections.abc import Sequence

import pytest

from lib.errors import LLMError
from lib.llm import Message, Reply, ToolCall, ToolResult
from lib.testing.providers import KeepingClient, StrictClient

HI = Message.user("hi")
CALL = Message.assistant(ToolCall("c", "look"))
RESULT = Message.tool(ToolResult("c", "seen"))


def answer(messages: Sequence[Message]) -> str:
    return "/".join(message.text for message in messages)


@pytest.mark.parametrize(
    "conversation",
    [[], [HI, CALL], [HI, CALL, HI], [HI, RESULT], [HI, Message.assistant(""), HI]],
)
async def test_what_real_servers_refuse_is_refused(conversation: list[Message]) -> None:
    with pytest.raises(LLMError) as caught:
        await StrictClient(answer).complete(conversation)
    assert caught.value.status == 400


async def test_what_they_take_is_answered() -> None:
    assert (await StrictClient(answer).complete([HI, CALL, RESULT, HI])).text == "hi///hi"


async def test_a_conversation_is_kept_until_it_is_forgotten() -> None:
    client = KeepingClient(answer)

    first = await client.complete([HI])
    messages = [HI, first.message, Message.user("more")]
    state = {**(first.state or {}), "covers": 2}
    pieces = [piece async for piece in client.stream(messages, state=state)]
    client.forget()
    with pytest.raises(LLMError) as caught:
        await client.complete(messages, state=state)
    assert (caught.value.state_lost, caught.value.status) == (True, 404)
    pieces = list(pieces)
    last = pieces[-1]
    assert isinstance(last, Reply)
    assert (last.text, client.sent, client.refused) == ("hi/hi/more", [1, 1], 1)
    assert first.state != last.state
