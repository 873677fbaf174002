import sys
from pathlib import Path

from agno.agent import Agent
from agno.db.sqlite import SqliteDb
from agno.models.openai import OpenAIResponses
from agno.tools import tool


@tool(requires_confirmation=True)
def refund(order: int) -> str:
    """Give the customer the money back."""
    with Path("refunds.txt").open("a", encoding="utf-8") as ledger:
        ledger.write(f"{order}\n")
    return f"order {order} refunded"


clerk = Agent(
    name="clerk",
    model=OpenAIResponses(id="gpt-5-mini"),
    instructions="You help customers.",
    tools=[refund],
    db=SqliteDb(db_file="runs.db"),
    session_id="ticket-1234",
)
if sys.argv[1] == "ask":
    run = clerk.run("Please refund order 7.")
    for requirement in run.active_requirements:
        call = requirement.tool_execution
        print("waits:", call.tool_name, call.tool_args)
else:
    run = clerk.get_last_run_output()
    for requirement in run.active_requirements:
        requirement.confirm()
    print(clerk.continue_run(run_id=run.run_id, requirements=run.requirements).content)
