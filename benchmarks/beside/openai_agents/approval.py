import asyncio
import json
import sys
from pathlib import Path

from agents import Agent, Runner, RunState, function_tool

STATE = Path("state.json")


@function_tool(needs_approval=True)
def refund(order: int) -> str:
    """Give the customer the money back."""
    with Path("refunds.txt").open("a", encoding="utf-8") as ledger:
        ledger.write(f"{order}\n")
    return f"order {order} refunded"


clerk = Agent(name="clerk", model="gpt-5-mini", instructions="You help customers.", tools=[refund])


async def main(step: str) -> None:
    if step == "ask":
        result = await Runner.run(clerk, "Please refund order 7.")
        for call in result.interruptions:
            print("waits:", call.name, json.loads(call.arguments))
        STATE.write_text(result.to_state().to_string(), encoding="utf-8")
    else:
        state = await RunState.from_string(clerk, STATE.read_text(encoding="utf-8"))
        for call in state.get_interruptions():
            state.approve(call)
        result = await Runner.run(clerk, state)
        print(result.final_output)


asyncio.run(main(sys.argv[1]))
