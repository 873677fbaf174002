import asyncio
from typing import Any

from lib.algorithms import React
from lib.engine import Engine, LLMHandler
from lib.events import MemoryEventStore
from lib.llm import OpenAIClient
from lib.testing.llm_server import API_KEY
from lib.testing.responses_server import ResponsesServer


def answer(body: dict[str, Any]) -> str:
    """Stands in for the model, which sees what the server has kept and what was sent."""
    return f"I see {len(body['input'])} messages."


async def main() -> None:
    async with ResponsesServer(answer) as server:  # stands in for api.openai.com
        client = OpenAIClient("gpt-5-mini", base_url=server.base_url, api_key=API_KEY)
        agent = React(system="You are a patient listener.", provider_state=True)
        handlers = [LLMHandler(client)]
        async with client, Engine(MemoryEventStore(), handlers, algorithms=[agent]) as engine:
            session = await engine.start_session(user="ada")
            for text in ("My parcel never came.", "It was order 7.", "And a gift.", "Well?"):
                if text == "Well?":
                    server.forget()  # as OpenAI does after some time
                result = await (await session.send(text)).result()
                print(f"{server.sent[-1]} sent: {result.output}")


asyncio.run(main())
