import asyncio
import json
import logging
import sys

from lib.algorithms import React
from lib.engine import Engine, LLMHandler
from lib.events import MemoryEventStore
from lib.llm import ChatClient
from lib.resilience import RetryPolicy
from lib.testing.clock import ManualClock


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = {"level": record.levelname, "logger": record.name, "text": record.getMessage()}
        if run_id := getattr(record, "run_id", None):
            facts["run_id"] = run_id
        return json.dumps(facts)


async def main() -> None:
    nobody_there = ChatClient("some-model", base_url="http://127.0.0.1:9/v1")
    handlers = [LLMHandler(nobody_there, retries=RetryPolicy(attempts=2, base_s=0))]
    store, clock = MemoryEventStore(), ManualClock()  # so that it always prints the same
    async with (
        nobody_there,
        Engine(
            store, handlers, algorithms=[React()], clock=clock, new_id=lambda: "order-7"
        ) as engine,
    ):
        run = await engine.start("Where is my parcel?")
        await run.result()


handler = logging.StreamHandler(sys.stdout)
handler.setFormatter(JsonLines())
logging.getLogger("lib").addHandler(handler)
logging.getLogger("lib").setLevel(logging.INFO)
asyncio.run(main())
