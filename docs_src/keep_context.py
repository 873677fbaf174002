import asyncio
from collections.abc import Sequence

from lib import Agent
from lib.context import ClipToolOutputs, Summarize
from lib.llm import FunctionClient, Message

requests: list[int] = []


def answer(messages: Sequence[Message]) -> str:
    """Stands in for the model."""
    requests.append(len(messages))
    return "I note that. " + "What else? " * 20


def summarise(messages: Sequence[Message]) -> str:
    """Stands in for the small model that sums up what was said."""
    boxes = messages[-1].text.count("Box ")
    return f"The user moves house. Boxes of books since the last summary: {boxes}."


mover = Agent(
    FunctionClient(answer),  # stands in for "openai:gpt-5-mini"
    instructions="You help people who move house.",
    context=[
        ClipToolOutputs(max_chars=1_000),
        Summarize(at_tokens=1_000, model=FunctionClient(summarise)),
    ],
)


async def main() -> None:
    async with mover.engine() as engine:
        session = await mover.session(engine)
        summaries = 0
        for box in range(30):
            turn = await session.send(f"Box {box} has books in it.")
            run_id = (await turn.result()).run_id
            async for event in engine.run(run_id).events():
                summaries += event.kind == "lib.context.summary"
        print("messages in the session:", len(await session.history()))
        print("messages in a request:", max(requests), "at most")
        print("summaries:", summaries)


asyncio.run(main())
