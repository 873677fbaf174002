import asyncio
import tempfile
from collections.abc import Sequence

from lib import Agent
from lib.llm import FunctionClient, Message
from lib.memory import Memory, RuleExtractor


def answer(messages: Sequence[Message]) -> str:
    """Stands in for the model."""
    facts = [line[22:] for each in messages[:-1] for line in each.text.split("\n") if "Z: " in line]
    return " ".join(facts) or "I know nothing about you yet."


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Memory(f"{folder}/memory.db", extractor=RuleExtractor()) as memory:
            agent = Agent(FunctionClient(answer), memory=memory)  # stands in for "openai:gpt-5"
            for text in (
                "I live in Paris. I am allergic to nuts.",
                "Good news, I moved to Berlin!",
                "What do you know about me?",
            ):
                result = await agent.run(text, tenant="acme", user="ann")
                print(f"ann: {text}\n     {result.output}")

            result = await agent.run("What do you know about me?", tenant="acme", user="bob")
            print("bob:", result.output)

            for fact in await memory.list(tenant="acme", user="ann", superseded=True):
                print("-", fact.text, f"({fact.why})" if fact.why else "")


asyncio.run(main())
