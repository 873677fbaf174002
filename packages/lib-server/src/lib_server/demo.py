"""`lib-server demo`: a server with two agents, without a key, a model or a network.

One answers questions about this project's documents; the other pays, and asks a person first.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

from lib import Agent, Engine
from lib.cli.demo import SYSTEM, index_home, open_library, own_documents, search_tool
from lib.cli.models import choose_model
from lib.events import DirectoryBlobStore, SQLiteEventStore
from lib.llm import FunctionClient, Message, Reply, ToolCall, ToolResult
from lib.tools import tool

_ORDER: Final = re.compile(r"\d{1,9}")


@tool(effects="once", approval=True)
def pay(order: int) -> str:
    """Pay an order."""
    return f"paid order {order}: 100 EUR to Ada"


def think(messages: Sequence[Message]) -> Reply | str:
    """Stand in for the model of the cashier: ask for the payment, then repeat what came of it."""
    last = messages[-1].parts[0]
    if isinstance(last, ToolResult):
        return f"The payment: {last.content}"
    order = _ORDER.search(messages[-1].text)
    if order is None:
        return "Which order am I to pay? Write, for example: Pay order 7."
    return Reply((ToolCall(f"call-{len(messages)}", "pay", {"order": int(order[0])}),))


@asynccontextmanager
async def demo_engine(data: Path) -> AsyncGenerator[Engine]:
    """Index the documents and open an engine with the agents.

    Args:
        data: where the log, the uploads and the index are kept.
    """
    documents = own_documents()
    home = index_home(documents, data)
    model = choose_model()
    async with open_library(documents, home, Console(stderr=True)) as library:
        librarian = Agent(
            model.client,
            name="librarian",
            instructions=SYSTEM,
            tools=[search_tool(library, 0)],
        )
        cashier = Agent(FunctionClient(think), name="cashier", tools=[pay])
        try:
            async with Engine(
                SQLiteEventStore(data / "server.db"),
                agents=[librarian, cashier],
                blobs=DirectoryBlobStore(data / "uploads"),
            ) as engine:
                yield engine
        finally:
            await model.aclose()
