import asyncio
import json
import logging
import sys

from lib import Agent
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
    client = ChatClient("some-model", base_url="http://127.0.0.1:9/v1")  # no server listens there
    agent = Agent(client, retries=RetryPolicy(attempts=2, base_s=0))
    clock = ManualClock()  # for the same output every time, as the id
    async with client, agent.engine(clock=clock, new_id=lambda: "order-7") as engine:
        run = await agent.start(engine, "Where is my parcel?")
        await run.result()


handler = logging.StreamHandler(sys.stdout)
handler.setFormatter(JsonLines())
logging.getLogger("lib").addHandler(handler)
logging.getLogger("lib").setLevel(logging.INFO)
asyncio.run(main())
