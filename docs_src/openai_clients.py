import asyncio

import httpx2
import openai

from lib import Agent
from lib.llm import FunctionClient
from lib_server import Server

agents = [Agent(FunctionClient(lambda messages: f"You wrote: {messages[-1].text}"), name="echo")]


async def main() -> None:
    server = Server(agents)
    transport = httpx2.ASGITransport(server)  # in place of a socket
    http = httpx2.AsyncClient(transport=transport)
    client = openai.AsyncOpenAI(
        base_url="http://localhost/v1", api_key="not needed here", http_client=http
    )
    async with server, client:
        print([model.id async for model in client.models.list()])

        answer = await client.chat.completions.create(
            model="echo",
            messages=[{"role": "user", "content": "Where is order 7?"}],
            extra_headers={"Idempotency-Key": "order-7"},
        )
        print(answer.choices[0].finish_reason, answer.choices[0].message.content)

        first = await client.responses.create(model="echo", input="And order 8?")
        again = await client.responses.retrieve(first.id)
        print(again.status, again.output_text)


if __name__ == "__main__":
    asyncio.run(main())
