"""A log grows with what is new in a conversation, not with the conversation."""

from collections.abc import Sequence

from lib.algorithms import React
from lib.events import MemoryEventStore
from lib.events.codec import encode_data
from lib.llm import FunctionClient, Message, Reply, Text, ToolCall, Usage
from lib.testing.agents import make_engine
from lib.tools import tool

CALLS = 200
CONVERSATION = "word " * 80_000  # about 100,000 tokens
THOUGHT, NEWS = "t" * 300, "n" * 700
AGENT = React(max_steps=CALLS + 1)


@tool(effects="none")
async def work(step: int) -> str:
    return NEWS


def think(messages: Sequence[Message]) -> Reply:
    made = sum(message.role == "assistant" for message in messages)
    if made == CALLS:
        return Reply((Text("done"),))
    call = ToolCall(f"c{made}", "work", {"step": made})
    return Reply((Text(THOUGHT), call), Usage(input_tokens=100_000 + 300 * made), "tool_calls")


async def test_200_calls_on_a_100k_token_conversation_cost_less_than_twice_the_new_content() -> (
    None
):
    store = MemoryEventStore()
    client = FunctionClient(think)
    async with make_engine(client, work, store=store, agent=AGENT) as engine:
        started = await engine.start(CONVERSATION)
        result = await started.result()
        assert (result.outcome, result.spend.tool_calls) == ("COMPLETED", CALLS)
        sizes = [len(encode_data(event.data)) for event in await store.read(started.id)]

    new = len(CONVERSATION) + CALLS * (len(THOUGHT) + len(NEWS))
    assert sum(sizes) < 2 * new
    first, last = sizes[1:81], sizes[-82:-2]
    assert sum(last) < 1.05 * sum(first)  # a step late in the run costs what an early one did
