import asyncio
import sys

from lib import Agent
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.mcp import MCPTools

SERVER = '''
from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("shop")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def status(order: int) -> str:
    """Tell where an order is."""
    return f"order {order} is on its way"


@server.tool()
def cancel(order: int) -> str:
    """Cancel an order."""
    return f"order {order} is cancelled"


server.run("stdio")
'''

shop = MCPTools(
    command=[sys.executable, "-c", SERVER],  # or a URL: MCPTools("https://shop.example/mcp")
    prefix="shop_",
    approval=["cancel"],
)
call = Reply((ToolCall("call-1", "shop_status", {"order": 7}),))
model = ScriptedClient([call, "It is on its way."])
clerk = Agent(model, name="clerk", tools=[shop])


async def main() -> None:
    async with clerk.engine() as engine:
        run = await clerk.start(engine, "Where is order 7?")
        result = await run.result()
        for event in await engine.store.read(run.id):
            if event.kind == "lib.tool.requested":
                print(event.data["name"], "has the effect", repr(event.data["effects"]))
            if event.kind == "lib.tool.completed":
                print(event.data["output"].splitlines()[1])
    print([spec.name for spec in model.calls[0].tools])
    print(result.output)


asyncio.run(main())
