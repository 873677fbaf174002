"""The server of the protocol's conformance suite, made with `lib.mcp`: `uvicorn` serves `app`.

The suite calls its tools, prompts and resources by name, and says what each has to return.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from typing import Annotated, Any, Literal

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

from lib import Agent, Engine, tool
from lib.errors import ToolError
from lib.llm import Audio, FunctionClient, Image
from lib.mcp import (
    MCPToolServer,
    TaskTool,
    ask,
    can_ask,
    close_response,
    form,
    log,
    prompt,
    resource,
)
from lib.tools import Tool, ToolContext
from lib_server import Server

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")
IMAGE = Image(data=PNG, media_type="image/png")


def embedded(uri: str, text: str, media_type: str = "text/plain") -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=media_type, text=text)
    return types.EmbeddedResource(resource=contents)


@tool(effects="none")
def test_simple_text() -> str:
    """Return text."""
    return "This is a simple text response for testing."


@tool(effects="none")
def test_image_content() -> Image:
    """Return an image."""
    return IMAGE


@tool(effects="none")
def test_audio_content() -> Audio:
    """Return sound."""
    return Audio(data=WAV, media_type="audio/wav")


@tool(effects="none")
def test_embedded_resource() -> types.EmbeddedResource:
    """Return a resource."""
    return embedded("test://embedded-resource", "This is an embedded resource content.")


@tool(effects="none")
def test_multiple_content_types() -> list[Any]:
    """Return content of several kinds."""
    return [
        types.TextContent(text="Multiple content types test:"),
        IMAGE,
        embedded(
            "test://mixed-content-resource", '{"test":"data","value":123}', "application/json"
        ),
    ]


@tool(effects="none")
def test_error_handling() -> None:
    """Fail."""
    raise ToolError("failed", "This tool intentionally returns an error for testing")


@tool(effects="none")
async def test_tool_with_progress(context: ToolContext) -> str:
    """Report progress."""
    for done in (0, 50, 100):
        context.progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(0.05)  # noqa: TID251 - the suite counts reports, and newer ones replace older
    return "done"


async def _nothing(_arguments: Any, _context: ToolContext) -> str:
    return "ok"


ADDRESS = {
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
}
json_schema_2020_12_tool = Tool(
    name="json_schema_2020_12_tool",
    description="Take arguments of a schema with all keywords.",
    effects="none",
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "addressDef", **ADDRESS}},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
    call=_nothing,
)
test_x_mcp_header = Tool(
    name="test_x_mcp_header",
    description="Take arguments that are mirrored in headers.",
    effects="none",
    input_schema={
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "priority": {"type": "integer", "x-mcp-header": "Priority"},
            "verbose": {"type": "boolean", "x-mcp-header": "Verbose"},
        },
    },
    call=_nothing,
)


class Name(BaseModel):
    name: str


class Color(BaseModel):
    color: str


class Okay(BaseModel):
    ok: bool


class Context(BaseModel):
    context: str


ROOTS = types.ListRootsRequest()


def sampling(text: str) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=text))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=50)
    return types.CreateMessageRequest(params=params)


@tool(effects="none")
def test_missing_capability() -> str:
    """Ask the model of the client."""
    ask(answer=sampling("hello"))
    return "ok"


@tool(effects="none")
def test_input_required_result_elicitation() -> str:
    """Ask the person."""
    answer: Any = ask(user_name=form("What is your name?", Name))["user_name"]
    return f"Hello, {answer.content['name']}!"


@tool(effects="none")
def test_input_required_result_sampling() -> str:
    """Ask the model of the client."""
    answer: Any = ask(capital_question=sampling("What is the capital of France?"))
    return f"{answer['capital_question'].content.text}"


@tool(effects="none")
def test_input_required_result_list_roots() -> str:
    """Ask for roots."""
    answer: Any = ask(client_roots=ROOTS)["client_roots"]
    return ", ".join(str(root.uri) for root in answer.roots)


@tool(effects="none")
def test_input_required_result_request_state() -> str:
    """Ask with a state."""
    ask(confirm=form("Please confirm", Okay))
    return "state-ok"


@tool(effects="none")
def test_input_required_result_multiple_inputs() -> str:
    """Ask for three things."""
    ask(
        user_name=form("What is your name?", Name),
        greeting=sampling("Generate a greeting"),
        client_roots=ROOTS,
    )
    return "all there"


@tool(effects="none")
def test_input_required_result_multi_round() -> str:
    """Ask twice."""
    first: Any = ask(step1=form("Step 1: What is your name?", Name))["step1"]
    second: Any = ask(step2=form("Step 2: What is your favourite color?", Color))["step2"]
    return f"{first.content} {second.content}"


@tool(effects="none")
def test_input_required_result_tampered_state() -> str:
    """Ask with a sealed state."""
    ask(confirm=form("Please confirm", Okay))
    return "confirmed"


@tool(effects="none")
def test_input_required_result_capabilities() -> str:
    """Ask for what the client answers."""
    questions: dict[str, types.InputRequest] = {
        "user_name": form("What is your name?", Name),
        "greeting": sampling("Generate a greeting"),
        "client_roots": ROOTS,
    }
    ask(**{key: each for key, each in questions.items() if can_ask(each)})
    return "all there"


@tool(effects="none")
def test_streaming_elicitation(context: ToolContext) -> str:
    """Report, and ask the person."""
    context.progress(1, 2, "about to ask")
    ask(user_name=form("What is your name?", Name))
    return "ok"


@tool(effects="none")
def test_logging_tool() -> str:
    """Send messages of several levels."""
    logging.getLogger(__name__).warning("nothing for clients")
    for level in ("debug", "info", "warning"):
        log(level, f"a message of level {level}")
    return "ok"


@tool(effects="none")
async def test_tool_with_logging() -> str:
    """Send messages while it works."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        log("info", message, logger="conformance")
        await asyncio.sleep(0.05)  # noqa: TID251 - the suite asks for it
    return "done"


@tool(effects="none")
async def test_reconnection() -> str:
    """End the response before the result."""
    close_response()
    await asyncio.sleep(0.1)  # noqa: TID251 - the client is to come back for the result
    return "the result comes after the response has ended"


@tool(effects="none")
def test_sampling(prompt: str) -> str:
    """Ask the model of the client."""
    answer: Any = ask(answer=sampling(prompt))["answer"]
    return f"LLM response: {answer.content.text}"


class Contact(BaseModel):
    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


@tool(effects="none")
def test_elicitation(message: str) -> str:
    """Ask the person."""
    answer: Any = ask(contact=form(message, Contact))["contact"]
    return f"User response: action={answer.action}, content={answer.content}"


class Defaults(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


def titled(*titles: str) -> list[dict[str, str]]:
    return [{"const": f"value{at}", "title": title} for at, title in enumerate(titles, start=1)]


OPTIONS = ["option1", "option2", "option3"]
CHOICES = {
    "untitledSingle": {"type": "string", "enum": OPTIONS},
    "titledSingle": {"type": "string", "oneOf": titled("First Option", "Second Option")},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": titled("First Choice", "Second Choice")}},
}


@tool(effects="none")
def test_elicitation_sep1034_defaults() -> str:
    """Ask the person, with defaults."""
    answer: Any = ask(person=form("Please check your data.", Defaults))["person"]
    return f"Elicitation completed: action={answer.action}, content={answer.content}"


@tool(effects="none")
def test_elicitation_sep1330_enums() -> str:
    """Let the person choose."""
    schema = {"type": "object", "properties": CHOICES}
    answer: Any = ask(choices=form("Please choose.", schema))["choices"]
    return f"Elicitation completed: action={answer.action}, content={answer.content}"


@resource("test://static-text", media_type="text/plain")
def static_text() -> str:
    """Text."""
    return "This is the content of the static text resource."


@resource("test://static-binary", media_type="image/png")
def static_binary() -> bytes:
    """An image."""
    return PNG


@resource("test://watched-resource", media_type="text/plain", watched=True)
def watched() -> str:
    """Text."""
    return "Watched resource content"


@resource("test://template/{id}/data", media_type="application/json")
def template(id: str) -> dict[str, Any]:  # noqa: A002 - the suite's name
    """Data of a template."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@prompt
def test_simple_prompt() -> str:
    """A prompt."""
    return "This is a simple prompt for testing."


@prompt(complete={"arg1": lambda begun: [f"{begun}ing"]})
def test_prompt_with_arguments(
    arg1: Annotated[str, Field(description="first")],
    arg2: Annotated[str, Field(description="second")],
) -> str:
    """A prompt with arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


def message(content: types.ContentBlock) -> types.PromptMessage:
    return types.PromptMessage(role="user", content=content)


@prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:  # noqa: N803 - the suite's name
    """A prompt with a resource."""
    text = "Embedded resource content for testing."
    return [message(embedded(resourceUri, text)), "Please process the embedded resource above."]


@prompt
def test_prompt_with_image() -> list[Any]:
    """A prompt with an image."""
    image = types.ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png")
    return [message(image), "Please analyze the image above."]


@prompt
def test_input_required_result_prompt() -> str:
    """A prompt that asks."""
    answer: Any = ask(user_context=form("What context should the prompt use?", Context))
    return f"Use this context: {answer['user_context'].content}"


@tool(effects="none")
def greet(name: str) -> str:
    """Greet."""
    return f"Hello, {name}!"


@tool(effects="none", timeout_s=None)
async def slow_compute(seconds: float, label: str = "") -> str:
    """Take some seconds."""
    await asyncio.sleep(seconds)  # noqa: TID251 - the suite says how long
    return f"{label} done"


@tool(effects="none")
async def failing_job() -> str:
    """Fail."""
    raise ToolError("failed", "This job fails")


@tool(effects="none")
async def protocol_error_job() -> str:
    """Fail with an error of the protocol."""
    raise MCPError(types.INTERNAL_ERROR, "This job breaks the protocol")


class Confirm(BaseModel):
    confirm: bool


@tool
def confirm_delete(filename: str) -> str:
    """Ask before it deletes."""
    answer: Any = ask(confirm=form(f"Delete {filename}?", Confirm))["confirm"]
    return f"{answer.content}"


@tool
def multi_input() -> str:
    """Ask for two things at once."""
    ask(first=form("Your name?", Name), second=form("And that of your cat?", Name))
    return "all there"


NAME_QUESTION = form("What is your name?", Name)


@tool(effects="none")
def test_tool_with_task() -> str:
    """Use an answer that was given before the task has begun."""
    answer: Any = ask(user_name=NAME_QUESTION)["user_name"]
    return f"Hello, {answer.content['name']}!"


TASKS = [
    TaskTool(slow_compute),
    TaskTool(failing_job, required=True),
    TaskTool(protocol_error_job),
    TaskTool(confirm_delete),
    TaskTool(multi_input),
    TaskTool(test_tool_with_task, required=True, questions={"user_name": NAME_QUESTION}),
]


def offered(engine: Engine) -> MCPToolServer:
    @tool
    def added() -> None:
        """Come and go."""

    @prompt(name="added")
    def added_prompt() -> str:
        """Come and go."""
        return "added"

    @tool(name="test_trigger_tool_change", effects="none")
    async def change_tools() -> str:
        """Change the list of tools."""
        server.add(added)
        server.remove("added")
        return "changed"

    @tool(name="test_trigger_prompt_change", effects="none")
    async def change_prompts() -> str:
        """Change the list of prompts."""
        server.add(added_prompt)
        server.remove("added")
        return "changed"

    as_tasks = [each.tool for each in TASKS]
    tools = [each for each in globals().values() if isinstance(each, Tool)]
    own = [each for each in tools if each not in as_tasks]
    server = MCPToolServer(
        [*own, change_tools, change_prompts, *TASKS],
        name="conformance",
        engine=engine,
        resources=[static_text, static_binary, watched, template],
        prompts=[
            test_simple_prompt,
            test_prompt_with_arguments,
            test_prompt_with_embedded_resource,
            test_prompt_with_image,
            test_input_required_result_prompt,
        ],
        lists_change=True,
    )
    return server


agent = Agent(FunctionClient(lambda _: "hello"))
app = Server(Engine("memory:", agents=[agent, *TASKS]), mcp=offered)
