"""Long conversations: others have their turn meanwhile, and they are gone as soon as they end."""

import asyncio
import gc
from collections.abc import Sequence

from lib.engine import LLMRequest
from lib.engine.core.conversation import History
from lib.engine.runtime.driver import hash_messages
from lib.llm import FunctionClient, Message, Reply, ToolCall
from lib.testing.agents import make_engine
from lib.tools import tool


@tool
async def work() -> str:
    """Do something."""
    return "done"


def answer(messages: Sequence[Message]) -> Reply | str:
    calls = (ToolCall("a", "work"), ToolCall("b", "work"))
    return Reply(calls, stop="tool_calls") if len(messages) < 7 else "good"


def conversations() -> int:
    return sum(isinstance(each, History) for each in gc.get_objects())


async def test_an_ended_run_leaves_no_conversation_to_the_garbage_collector() -> None:
    async def main() -> tuple[int, int]:
        async with make_engine(FunctionClient(answer), work) as engine:
            before = conversations()
            started = await engine.start("go")
            assert (await started.result()).output == "good"
            await engine.wait_while_driven(started.id)
            await asyncio.sleep(0)  # noqa: TID251 - its task ends
            return before, conversations()

    gc.collect()
    gc.disable()
    try:
        before, after = await main()
    finally:
        gc.enable()
    assert after == before


async def test_hashing_a_long_conversation_yields_to_other_tasks() -> None:
    async def turns_of_others(*, chars: int) -> int:
        messages = History().extend([Message.user(str(number)) for number in range(40)])
        request = LLMRequest(key="llm/1", messages=messages)
        hashing = asyncio.ensure_future(hash_messages([request], chars=chars))
        turns = 0
        while not hashing.done():
            await asyncio.sleep(0)  # noqa: TID251 - a turn
            turns += 1
        return turns

    whole, bit_by_bit = await turns_of_others(chars=10**6), await turns_of_others(chars=1)
    assert bit_by_bit >= whole + 39
