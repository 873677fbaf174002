"""The shop of `docs_src/mcp_server.py` over HTTP behind keys: `uvicorn` serves `app`."""

from __future__ import annotations

import os

from docs_src.mcp_server import complaint, find_order, order_page, send_reminders

from lib import Agent, Engine
from lib.llm import FunctionClient
from lib.mcp import MCPToolServer
from lib_server import ApiKeyAuthenticator, Server

model = FunctionClient(lambda messages: f"I shall look after it: {messages[-1].text}")
clerk = Agent(model, name="clerk", tools=[find_order])


def offered(engine: Engine) -> MCPToolServer:
    tools = [find_order, send_reminders, clerk.as_tool("Looks after customers.")]
    return MCPToolServer(tools, engine=engine, resources=[order_page], prompts=[complaint])


engine = Engine(os.environ["SHOP_STORE"], agents=[clerk])
app = Server(engine, auth=ApiKeyAuthenticator(), mcp=offered)
