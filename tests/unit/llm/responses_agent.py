"""A process that answers turns of a session with a model that keeps conversations.

Its argument is JSON: the model's URL, the path of the store, the session and the message.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from fakes.llm_server import API_KEY
from lib.algorithms import React
from lib.engine import Engine, LLMHandler, ToolHandler
from lib.events import EventStore, SQLiteEventStore
from lib.llm import OpenAIClient
from lib.resilience import RetryPolicy
from lib.tools import tool

AGENT = React(system="be kind", provider_state=True)


@tool(effects="none")
async def look(place: str) -> str:
    return f"seen {place}"


def engine(client: OpenAIClient, store: EventStore, agent: React = AGENT, **options: Any) -> Engine:
    retries = RetryPolicy(attempts=options.pop("attempts", 1), base_s=0.01)
    handlers = [LLMHandler(client, retries=retries), ToolHandler([look])]
    settings: dict[str, Any] = {"poll_s": 0.01, "lease_s": 3600, "grace_s": 60, **options}
    return Engine(store, handlers, algorithms=[agent], **settings)


async def main(arguments: dict[str, str]) -> None:
    store = SQLiteEventStore(arguments["store"])
    async with (
        OpenAIClient("m", base_url=arguments["base_url"], api_key=API_KEY) as client,
        engine(client, store) as running,
    ):
        session = running.session(arguments["session"])
        turn = await session.send(arguments["text"], idempotency_key=arguments["text"])
        await turn.result()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
