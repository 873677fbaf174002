"""`TaskTool`: a tool whose calls are runs, which outlive their client and this process.

A run makes one call. Where the tool asks its client (`ask`), the call ends with the questions, the
run waits for the answers, which are signals, and then makes the call again from its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, cast

from pydantic import TypeAdapter

from lib._util.json import canonical, parse
from lib.engine import AgentParts, AgentSpec, Budget, Finish, Start, ToolHandler, ToolRequest, Wait
from lib.engine.handlers.base import Admission, Call
from lib.engine.handlers.tool import PendingEvent
from lib.events import Event
from lib.events import kinds as k
from lib.llm import Message, ToolCall, message_from_json
from lib.mcp.calls import call_tool, check_arguments
from lib.mcp.inputs import INPUTS, InputRequired, Inputs, dump_answers, read_answers
from lib.mcp.results import ToolSurface, failure
from lib.mcp.sdk import MCPError, types
from lib.tools import CheckResult, Happened, Tool, ToolContext
from lib.tools.checks import ask_check

INPUT_PROVIDED: Final = "mcp.input.provided"
"""The kind of the signal that brings answers: signal_id, answers {key: response}."""

MAX_ROUNDS: Final = 10
_MAX_STORED_CHARS: Final = 4_000_000
_CALL: Final = "call"
_CLIENT: Final = "client"
_REQUESTS: Final = TypeAdapter[types.InputRequests](types.InputRequests)
_WIRE: Final[Mapping[str, Any]] = {"mode": "json", "by_alias": True, "exclude_none": True}


class TaskTool:
    """A tool whose calls are runs: an agent without a model, which engines take as one.

    `MCPToolServer([TaskTool(report)], store="runs.db")` offers it: a client that takes tasks gets
    a task at once and its result later, also after a restart. Others wait for the result.

    Attributes:
        tool: what is called.
        required: True if clients that take no tasks are refused.
        questions: what the client answers before the task begins, by the keys under which the
            tool's own `ask` finds the answers.
        surface: the tool as clients see it.
    """

    def __init__(
        self,
        tool: Tool,
        *,
        required: bool = False,
        questions: Mapping[str, types.InputRequest] | None = None,
    ) -> None:
        """Describe it; see the attributes.

        Raises:
            TypeError: `tool` is no tool.
        """
        if not isinstance(tool, Tool):  # pyright: ignore[reportUnnecessaryIsInstance] - not all callers are typed
            raise TypeError(
                f"expected a Tool, got {type(tool).__name__}: write @tool before the function"
            )
        self.tool = tool
        self.required = required
        self.questions: Mapping[str, types.InputRequest] = dict(questions or {})
        self.surface: ToolSurface = ToolSurface(tool)

    @property
    def name(self) -> str:
        """The name of the tool, by which its runs are started."""
        return self.tool.name

    @property
    def budget(self) -> Budget | None:
        """None: one call is made."""
        return None

    @property
    def callees(self) -> Sequence[AgentSpec[Any]]:
        """Nothing: it calls no agents."""
        return ()

    def parts(self) -> AgentParts:
        """Return its algorithm and its handler, made for one engine."""

        async def close() -> None:
            """Close nothing."""

        return AgentParts(
            algorithm=OneCall(self.name), handlers=[_CallHandler(self._stored())], close=close
        )

    async def run_config(self, start: Start) -> Mapping[str, Any]:
        """Return nothing: its input says it all."""
        return {}

    def parse_output(self, text: str) -> types.CallToolResult:
        """Return the result that a completed run has stored."""
        return types.CallToolResult.model_validate(parse(text)["result"], by_name=False)

    def _stored(self) -> Tool:
        """Return the tool as runs call it: its result is text, from which all of it comes back."""
        tool = self.tool

        async def call(arguments: Mapping[str, Any], context: ToolContext) -> str:
            try:
                check_arguments(tool, arguments)
                return self._text_of(await call_tool(tool, arguments, context))
            except InputRequired as required:
                return canonical({"asks": _REQUESTS.dump_python(required.requests, **_WIRE)})
            except MCPError as error:
                return canonical({"error": error.error.model_dump(**_WIRE)})

        async def check(arguments: Mapping[str, Any], context: ToolContext) -> CheckResult:
            assert tool.check is not None  # noqa: S101 - the only reason to be called
            answer = await ask_check(tool.check, arguments, context)
            return (
                Happened(self._text_of(answer.output)) if isinstance(answer, Happened) else answer
            )

        return Tool(
            name=tool.name,
            description=tool.description,
            input_schema=tool.input_schema,
            call=call,
            effects=tool.effects,
            timeout_s=tool.timeout_s,
            approval=tool.approval,
            max_output_chars=_MAX_STORED_CHARS,
            check=None if tool.check is None else check,
            repeat_after_unknown=tool.repeat_after_unknown,
            version=tool.version,
        )

    def _text_of(self, value: Any) -> str:
        result = self.surface.result(value, legacy=False)
        text = canonical({"result": result.model_dump(**_WIRE)})
        if len(text) <= _MAX_STORED_CHARS:
            return text
        refused = failure(f"the tool ran, but its result is above {_MAX_STORED_CHARS:,} characters")
        return canonical({"result": refused.model_dump(**_WIRE)})


def call_input(
    name: str, arguments: Mapping[str, Any], inputs: Inputs | None = None
) -> list[Message]:
    """Return the input of a run of a `TaskTool`.

    Args:
        name: of the tool.
        arguments: of the call.
        inputs: what the client can answer, and has answered.
    """
    parts = [ToolCall(_CALL, name, dict(arguments))]
    if inputs is not None:
        client = {
            "capabilities": inputs.capabilities.model_dump(**_WIRE),
            "answers": dump_answers(inputs.answers),
        }
        parts.append(ToolCall(_CLIENT, name, client))
    return [Message("assistant", tuple(parts))]


class CallState(NamedTuple):
    """The state of a run that makes one call.

    Attributes:
        arguments: of the call; None if the input of the run holds none.
        client: what it can answer (`capabilities`).
        answers: of the client, by the tool's keys, as JSON.
        questions: the questions without an answer, by keys that are unique in the run, as JSON.
        round: the number of the call, from 1.
        output: what the last call has stored, None while it is under way or is to be made.
        failed: the code and message of a failed call.
    """

    arguments: Mapping[str, Any] | None
    client: Mapping[str, Any]
    answers: Mapping[str, Any]
    questions: Mapping[str, Mapping[str, Any]]
    round: int = 1
    output: str | None = None
    failed: Mapping[str, Any] | None = None


class OneCall:
    """Makes one call, once more after each round of answers."""

    def __init__(self, name: str) -> None:
        """Take the name of the tool."""
        self.name = name

    def config(self) -> dict[str, Any]:
        """Return nothing: the tool has this name."""
        return {}

    def initial(self, started: Event, history: Sequence[Message] = ()) -> CallState:
        """Return a call that is to be made, of the arguments in the input."""
        parts = _input_parts(started)
        client = parts.get(_CLIENT, {})
        return CallState(
            arguments=parts.get(_CALL),
            client=client.get("capabilities", {}),
            answers=client.get("answers", {}),
            questions={},
        )

    def evolve(self, state: CallState, event: Event) -> CallState:
        """Return the state after one more event."""
        data = event.data
        match event.kind:
            case k.TOOL_COMPLETED:
                return _returned(state, data["output"])
            case k.TOOL_FAILED:
                failed = {"type": data["code"], "message": data["message"]}
                text = canonical({"result": failure(data["message"]).model_dump(**_WIRE)})
                return state._replace(output=text, failed=failed)
            case kind if kind == INPUT_PROVIDED and isinstance(data.get("answers"), dict):
                return _answered(state, data["answers"])
            case _:
                return state

    def decide(self, state: CallState) -> Sequence[ToolRequest] | Finish | Wait:
        """Return the call, its end, or that answers are missing."""
        if state.arguments is None:
            error = {
                "type": "input",
                "message": "expected the arguments of a call as a JSON object",
            }
            return Finish(outcome="FAILED", reason="input", error=error)
        if state.output is not None:
            if state.failed is None:
                return Finish(outcome="COMPLETED", output=state.output)
            return Finish(outcome="FAILED", output=state.output, reason="tool", error=state.failed)
        if state.questions:
            return Wait()
        return [
            _Round(
                key=f"tool/{state.round}",
                call_id=_CALL,
                name=self.name,
                arguments=state.arguments,
                number=state.round,
                client=state.client,
                answers=state.answers,
            )
        ]


def _returned(state: CallState, output: str) -> CallState:
    """Return the state after a call has returned questions, an error or a result."""
    stored = _as_object(output) or {}
    asks = stored.get("asks")
    if isinstance(asks, dict) and state.round < MAX_ROUNDS:
        new = cast("dict[str, Any]", asks)
        questions = {f"{state.round}.{key}": each for key, each in new.items()}
        return state._replace(questions=questions, round=state.round + 1)
    if asks is not None or not ("result" in stored or "error" in stored):
        message = "the answers of the client do not fit the questions"
        stored = {"error": {"code": types.INVALID_REQUEST, "message": message}}
    error = stored.get("error")
    failed = None if error is None else {"type": str(error["code"]), "message": error["message"]}
    return state._replace(output=canonical(stored), failed=failed)


def _answered(state: CallState, answers: Mapping[str, Any]) -> CallState:
    """Return the state after answers; those to questions that are not open count for nothing."""
    new = {key: answers[key] for key in state.questions if key in answers}
    rest = {key: each for key, each in state.questions.items() if key not in new}
    by_own_key = {key.partition(".")[2]: answer for key, answer in new.items()}
    return state._replace(answers={**state.answers, **by_own_key}, questions=rest)


def _input_parts(started: Event) -> dict[str, Any]:
    """Return the arguments of the parts of a run's input, by id; of text, what it is as JSON."""
    for message in started.data.get("input", ()):
        made = message_from_json(message)
        if made.tool_calls:
            return {each.id: each.arguments for each in made.tool_calls if each.invalid is None}
        found = _as_object(made.text)
        return {} if found is None else {_CALL: found}
    return {}


def _as_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is, None if it is something else."""
    try:
        found = parse(text)
    except ValueError:
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round(ToolRequest):
    """A call with the answers that its client has given so far."""

    number: int
    client: Mapping[str, Any] = field(default_factory=dict[str, Any])
    answers: Mapping[str, Any] = field(default_factory=dict[str, Any])


class _CallHandler(ToolHandler):
    """Makes the call; what a person has approved stays approved when the tool asks."""

    def __init__(self, tool: Tool) -> None:
        super().__init__([tool])
        self._version = tool.version

    def admit(self, request: ToolRequest, admission: Admission) -> PendingEvent:
        if isinstance(request, _Round) and request.number > 1:
            admission = replace(admission, approved=True, approved_version=self._version)
        return super().admit(request, admission)

    async def handle(self, call: Call[ToolRequest]) -> Sequence[PendingEvent]:
        decided = cast("_Round", call.decided)
        INPUTS.set(
            Inputs(
                capabilities=types.ClientCapabilities.model_validate(decided.client),
                answers=read_answers(decided.answers),
                sent=frozenset(decided.answers),
            )
        )
        return await super().handle(call)
