"""The agent of the A2A conformance kit, made with `lib_server`: `uvicorn` serves `app`.

The kit says with the beginning of a message's id what the agent has to do. Our agents do not see
those ids, so this application writes them into the messages, before it hands them to the server.
It also makes each id unique, for the kit sends different messages under one, which is an error of
ours: a message that is sent again has its id.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from lib import Agent, tool
from lib._util.clock import SYSTEM_CLOCK
from lib.engine import Result
from lib.llm import FunctionClient, Reply, ToolCall
from lib.llm import Message as LLMMessage
from lib_server import Server
from lib_server.a2a import A2AConfig, Answer

FILE = {"filename": "output.txt", "mediaType": "text/plain"}
ANSWERS = {
    "tck-artifact-file-url": Answer(parts=[{"url": "https://example.com/output.txt", **FILE}]),
    "tck-artifact-file": Answer(parts=[{"raw": base64.b64encode(b"text").decode(), **FILE}]),
    "tck-artifact-data": Answer(parts=[{"data": {"key": "value", "count": 42}}]),
    "tck-artifact-text": Answer(parts=[{"text": "Generated text content"}]),
    "tck-message-response": Answer(parts=[{"text": "Direct message response"}], as_message=True),
}
NUMBERS = itertools.count()
INSTRUCTION = re.compile(r"message id: ([\w-]+)")


@tool(approval=True)
def go_on() -> str:
    """Go on."""
    return "gone on"


async def reply(messages: Sequence[LLMMessage]) -> Reply | str:
    """Do what the last message's id says."""
    found = INSTRUCTION.findall(repr(messages[-1]))
    wanted = found[-1] if found else ""
    again = "TCK history message" in repr(messages[-1])
    if again or wanted.startswith("tck-input-required"):
        return Reply(parts=(ToolCall(f"call-{len(messages)}", "go_on", {}),))
    if wanted.startswith("test-resubscribe"):
        await SYSTEM_CLOCK.sleep(4)
    return next((each for each in ANSWERS if wanted.startswith(each)), "Hello from TCK")


def answer(result: Result[Any]) -> Answer:
    """Return the parts that the kit expects."""
    return ANSWERS.get(result.text, Answer(parts=[{"text": result.text}]))


agent = Agent(FunctionClient(reply), name="tck", tools=[go_on])
# The kit wants content of a type that the card does not name to be taken: CORE-SEND-003.
config = A2AConfig(answer=answer, input_modes=["*/*"])
server = Server(agent, a2a=config, console=False)


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve, with the ids of messages in them."""
    if scope["type"] != "http" or scope["method"] != "POST":
        await server(scope, receive, send)
        return
    body = b""
    while True:
        part = await receive()
        body += part.get("body", b"")
        if not part.get("more_body"):
            break
    unread: list[Message] = [{"type": "http.request", "body": with_id(body), "more_body": False}]

    async def replayed() -> Message:
        return unread.pop() if unread else await receive()

    headers = [pair for pair in scope["headers"] if pair[0] != b"content-length"]
    await server({**scope, "headers": headers}, replayed, send)


def with_id(body: bytes) -> bytes:
    """Return a request with the id of its message in the message."""
    try:
        request = json.loads(body)
        message = request.get("params", request)["message"]
        if "taskId" not in message:
            message["parts"].insert(0, {"text": f"message id: {message['messageId']}"})
        message["messageId"] += f"-{next(NUMBERS)}"
    except (ValueError, LookupError, AttributeError, TypeError):
        return body
    return json.dumps(request).encode()
