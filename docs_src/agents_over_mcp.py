import asyncio
import socket

import uvicorn

from lib import Agent, Engine
from lib.llm import FunctionClient, Reply, ScriptedClient, ToolCall
from lib.mcp import MCPTools
from lib_server import Server


def look_up(_: object) -> str:
    return "There are 7 lamps."


buyer = Agent(FunctionClient(look_up), name="buyer")


def clerk(url: str) -> Agent:
    """An agent of another service, which gives tasks to the buyer at this address."""
    buyers = MCPTools(
        url,
        allow_private_networks=True,  # the server is on this machine
        effects={"buyer": "idempotent"},  # a call that is made again is the same task there
    )
    asks = Reply((ToolCall("call-1", "buyer", {"task": "Are there 5 lamps?"}),))
    return Agent(ScriptedClient([asks, "You can have 5 lamps."]), name="clerk", tools=[buyers])


async def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    engine = Engine("buyers.db", agents=[buyer])
    server = uvicorn.Server(uvicorn.Config(Server(engine), log_level="error"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))

    agent = clerk(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp")
    async with agent.engine("clerks.db") as own:
        run = await agent.start(own, "I need 5 lamps.")
        print((await run.result()).output)
        for event in await own.store.read(run.id):
            if event.kind == "lib.tool.completed":
                print(event.data["output"].splitlines()[1])

    for info in await engine.store.runs():
        print("at the server:", info.algorithm, info.outcome)
    server.should_exit = True
    await serving
    listening.close()


if __name__ == "__main__":
    asyncio.run(main())
