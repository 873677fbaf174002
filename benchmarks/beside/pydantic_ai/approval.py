import sys
from pathlib import Path

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelMessagesTypeAdapter

STATE = Path("messages.json")
clerk = Agent(
    "openai:gpt-5-mini",
    instructions="You help customers.",
    output_type=[str, DeferredToolRequests],
)


@clerk.tool_plain(requires_approval=True)
def refund(order: int) -> str:
    """Give the customer the money back."""
    with Path("refunds.txt").open("a", encoding="utf-8") as ledger:
        ledger.write(f"{order}\n")
    return f"order {order} refunded"


if sys.argv[1] == "ask":
    result = clerk.run_sync("Please refund order 7.")
    for call in result.output.approvals:
        print("waits:", call.tool_name, call.args_as_dict())
    STATE.write_bytes(result.all_messages_json())
else:
    messages = ModelMessagesTypeAdapter.validate_json(STATE.read_bytes())
    approvals = {call.tool_call_id: True for call in messages[-1].tool_calls}
    result = clerk.run_sync(
        message_history=messages,
        deferred_tool_results=DeferredToolResults(approvals=approvals),
    )
    print(result.output)
