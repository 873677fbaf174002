import asyncio
from collections.abc import Sequence

from lib import Agent
from lib.llm import FunctionClient, Message


def answer(messages: Sequence[Message]) -> str:
    """Stands in for a model; it sees the conversation from the start."""
    texts = [message.text for message in messages if message.role == "user"]
    return f"You wrote {len(texts)} messages so far, first {texts[0]!r}."


listener = Agent(FunctionClient(answer), instructions="You are a patient listener.")


async def begin() -> str:
    async with listener.engine("runs.db") as engine:
        session = await listener.session(engine, user="ada")
        turn = await session.send("My parcel never came.")
        async for piece in turn.deltas():  # the reply while it is written
            print(piece.delta.text, end="")
        print()
        return session.id


async def go_on(session_id: str) -> None:
    async with listener.engine("runs.db") as engine:
        session = engine.session(session_id, agent=listener)
        turns = [await session.send(text) for text in ("It was order 7.", "And a gift.")]
        for turn in turns:  # answered one by one, in the order of the log
            print((await turn.result()).output)
        for message in await session.history():
            print(f"  {message.role}: {message.text}")
        await session.close()
        print((await session.run.result()).outcome)


session_id = asyncio.run(begin())  # this process could end here, for days
asyncio.run(go_on(session_id))
