import asyncio
import os
import sys
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel

from lib import Agent, tool
from lib.llm import FunctionClient
from lib.mcp import MCPToolServer, prompt, resource
from lib.tools import ToolContext


class Order(BaseModel):
    id: int
    state: str


@tool(effects="none")
def find_order(order: int) -> Order:
    """Find an order by its number."""
    return Order(id=order, state="on its way")


@tool(effects="idempotent")
def send_reminders(orders: list[int], context: ToolContext) -> str:
    """Remind the customers of these orders."""
    for done, _ in enumerate(orders, start=1):
        context.progress(done, len(orders), "sent")
    return f"{len(orders)} reminders"


@resource("orders://{order}")
def order_page(order: int) -> Order:
    """One order."""
    return Order(id=order, state="on its way")


@prompt
def complaint(product: str) -> str:
    """A complaint about a product."""
    return f"My {product} broke. What can I do?"


def server() -> MCPToolServer:
    model = FunctionClient(lambda messages: f"I shall look after it: {messages[-1].text}")
    clerk = Agent(model, name="clerk", tools=[find_order])
    return MCPToolServer(
        [find_order, send_reminders, clerk.as_tool("Looks after customers.")],
        name="shop",
        resources=[order_page],
        prompts=[complaint],
    )


def show(result: CallToolResult) -> None:
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    print("failed:" if result.is_error else "answered:", *texts)


async def main() -> None:
    here = Path(__file__)
    arguments = ["-m", "lib.cli", "mcp", "serve", f"{here.stem}:server"]
    shop = StdioServerParameters(
        command=sys.executable, args=arguments, cwd=here.parent, env=dict(os.environ)
    )
    async with Client(shop) as client:
        print([each.name for each in (await client.list_tools()).tools])

        print((await client.call_tool("find_order", {"order": 7})).structured_content)

        refused = await client.call_tool("find_order", {"order": "seven"})
        show(refused)

        answer = await client.call_tool("clerk", {"task": "Order 7 has not come."})
        show(answer)

        page = await client.read_resource("orders://7")
        print(page.contents[0].model_dump_json(exclude_none=True))


if __name__ == "__main__":
    asyncio.run(main())
