import asyncio
import json

from lib import Agent, tool
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.privacy import PatternRedactor


@tool(effects="none")
def find_customer(email: str) -> dict[str, str]:
    """Look a customer up."""
    return {"email": email, "phone": "+49 30 1234567", "iban": "DE89 3704 0044 0532 0130 00"}


call = Reply((ToolCall("call-1", "find_customer", {"email": "jo@example.org"}),))
agent = Agent(ScriptedClient([call, "Found: jo@example.org"]), tools=[find_customer])
redactor = PatternRedactor(key=b"32 secret bytes, kept like others")


async def main() -> None:
    async with agent.engine(redactor=redactor) as engine:
        question = "Who is jo@example.org? My key is sk-abcDEF1234567890abcdEFGH."
        run = await agent.start(engine, question)
        print((await run.result()).output)
        async for event in run.events():
            for name in ("input", "args", "output"):
                if name in event.data:
                    print(event.kind, json.dumps(event.data[name]))


asyncio.run(main())
