import asyncio

import httpx2

from lib import Agent
from lib.llm import FunctionClient
from lib_server import Client, ResourceNotFound, Server
from lib_server.bodies import EventView

agents = [Agent(FunctionClient(lambda messages: f"You wrote: {messages[-1].text}"), name="echo")]


async def main() -> None:
    server = Server(agents)
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(server))  # in place of a socket
    async with server, http, Client("http://localhost", http=http) as client:
        run = await client.start("Where is order 7?", agent="echo", key="order-7")
        async for item in client.stream(run):
            if isinstance(item, EventView):
                print(item.seq, item.kind)
        print((await client.result(run)).text)

        session = await client.start_session(agent="echo")
        turn = await client.send(session, "And order 8?")
        print((await client.result(turn)).text)

        try:
            await client.run("nothing")
        except ResourceNotFound as error:
            print(error.status, error.code)


if __name__ == "__main__":
    asyncio.run(main())
