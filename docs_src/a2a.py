import asyncio
import socket

import uvicorn

from lib import Agent
from lib.a2a import A2AAgent
from lib.llm import FunctionClient, Reply, ScriptedClient, ToolCall
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

    travel = A2AAgent(f"http://127.0.0.1:{port}", allow_private_networks=True)  # on this machine
    call = Reply((ToolCall("call-1", "travel", {"message": "A seat to Rome, early."}),))
    model = ScriptedClient([call, "You are on the 7:15, seat 42."])
    clerk = Agent(model, name="clerk", tools=[travel])
    result = await clerk.run("Book me a train to Rome.")
    print(model.calls[0].tools[0].description)
    print(result.output)

    running.should_exit = True
    await serving


asyncio.run(main())
