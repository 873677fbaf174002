import asyncio
from collections.abc import Sequence

from lib import Agent, Engine
from lib.llm import Message
from lib.testing.providers import KeepingClient


def answer(messages: Sequence[Message]) -> str:
    """Stands in for the model, which sees what the provider has kept and what was sent."""
    return f"I see {len(messages)} messages."


async def main() -> None:
    provider = KeepingClient(answer)  # stands in for OpenAIClient("gpt-5-mini")
    agent = Agent(provider, instructions="You are a patient listener.", provider_state=True)
    async with Engine("memory:", agents=[agent]) as engine:
        session = await agent.session(engine, user="ada")
        for text in ("My parcel never came.", "It was order 7.", "And a gift.", "Well?"):
            if text == "Well?":
                provider.forget()  # as OpenAI does after some time
            result = await (await session.send(text)).result()
            print(f"{provider.sent[-1]} sent: {result.output}")


asyncio.run(main())
