import asyncio
import socket

import uvicorn

from lib import Agent
from lib.a2a import A2AAgent
from lib.llm import FunctionClient, Reply, ScriptedClient, ToolCall
from lib.mcp import MCPTools
from lib_server import Server
from lib_server.a2a import A2AConfig, Skill

# The agent of another team: any server that speaks A2A 1.0. Here it is one of ours.
booking = Agent(FunctionClient(lambda _: "Booked: Rome, 7:15, seat 42."), name="travel")
trains = Skill(id="trains", name="Trains", description="Books seats on trains.")
their_server = Server(booking, a2a=A2AConfig(description="Books journeys.", skills=[trains]))


async def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    running = uvicorn.Server(uvicorn.Config(their_server, log_level="error"))
    serving = asyncio.create_task(running.serve([listening]))

    url = f"http://127.0.0.1:{port}"
    travel = A2AAgent(url, allow_private_networks=True)  # on this machine, without TLS
    tools = MCPTools(f"{url}/mcp", prefix="mcp_", allow_private_networks=True)
    calls = (
        ToolCall("call-1", "travel", {"message": "A seat to Rome, early."}),
        ToolCall("call-2", "mcp_travel", {"task": "The same, over MCP."}),
    )
    model = ScriptedClient([Reply(calls), "You are on the 7:15, seat 42."])
    clerk = Agent(model, name="clerk", tools=[travel, tools])
    async with clerk.engine() as engine:
        run = await clerk.start(engine, "Book me a train to Rome.")
        result = await run.result()
        for event in await engine.store.read(run.id):
            if event.kind == "lib.tool.completed":
                print(event.data["output"].splitlines()[1])
    for spec in model.calls[0].tools:
        print(f"{spec.name}: {spec.description}")
    print(result.output)

    running.should_exit = True
    await serving


asyncio.run(main())
