"""`/v1/responses`, a subset: text, attachments, streams, conversations, background.

A response is a run, and its id names the run: it can be read later, also after its stream was cut,
and cancelled. Not there: tools of the caller, items other than messages, deletion.

Source: OpenAI API reference, Responses and its streaming events, 2026-10.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from itertools import count
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from starlette.types import ASGIApp

from lib.engine import Result, Run
from lib.events import RunInfo
from lib.llm import Message, message_from_json
from lib_server.api.runs import IDEMPOTENCY_KEY
from lib_server.bodies import Answer, Empty, Id, Name, Prompt
from lib_server.openai.chat import RUN_PROBLEMS, TextFormat, run_headers
from lib_server.openai.content import ChatMessage, Conversation, as_messages
from lib_server.openai.follow import (
    Answered,
    answered,
    follow,
    notice,
    seconds,
    start,
    wait,
)
from lib_server.other_apis import (
    Lenient,
    RunState,
    Streamed,
    data_event,
    run_state,
    streams_replies,
)
from lib_server.problems import Problem, openai_error
from lib_server.routing import AnyRoute, Call, Route, answer

_PREFIX: Final = "resp_"

Status = Literal["completed", "failed", "in_progress", "cancelled", "incomplete"]
_STATUS: Final[Mapping[str | None, Status]] = {
    None: "in_progress",
    "COMPLETED": "completed",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "BLOCKED": "incomplete",
    "LIMITED": "incomplete",
}
_INCOMPLETE: Final = {"BLOCKED": "content_filter", "LIMITED": "max_output_tokens"}


class TextConfig(Lenient):
    """The form of the answer, which the agent alone decides."""

    format: TextFormat | None = None


class CreateResponse(Lenient):
    """A request to an agent; settings of models are ignored."""

    model: Name = Field(description="the name of an agent")
    input: Prompt | Conversation
    instructions: str | None = Field(None, description="read as a message of the user")
    previous_response_id: Id | None = Field(None, description="whose conversation goes on")
    stream: bool | None = None
    background: bool | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = Field(
        None, description="none: an agent has its own"
    )
    text: TextConfig | None = None


class OutputText(Answer):
    """The text of an answer."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = Field(default_factory=list[Any])


class OutputMessage(Answer):
    """The message of an agent."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    status: Literal["in_progress", "completed", "incomplete"]
    content: list[OutputText]


class ResponseError(Answer):
    """Why a run has failed."""

    code: str
    message: str


class IncompleteDetails(Answer):
    """Why an answer is not whole: a guard or a budget."""

    reason: str


class TokenDetails(Answer):
    """Parts that are not counted here."""

    cached_tokens: int = 0
    reasoning_tokens: int = 0


class ResponseUsage(Answer):
    """The tokens of all model calls of a run and its child runs."""

    input_tokens: int
    input_tokens_details: TokenDetails = Field(default_factory=TokenDetails)
    output_tokens: int
    output_tokens_details: TokenDetails = Field(default_factory=TokenDetails)
    total_tokens: int


class Response(Answer):
    """The answer of an agent, or how far it has come."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Status = Field(
        description="`in_progress` also of a run that waits for a person; `incomplete` where a "
        "guard or a budget ended it"
    )
    model: str
    output: list[OutputMessage]
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    previous_response_id: str | None = None
    instructions: None = None
    metadata: dict[str, str] = Field(default_factory=dict[str, str])
    parallel_tool_calls: bool = True
    tool_choice: Literal["auto"] = "auto"
    tools: list[Any] = Field(default_factory=list[Any])
    usage: ResponseUsage | None
    run: RunState


# -- handlers ----------------------------------------------------------------------------------


async def _create(call: Call[Empty, CreateResponse]) -> ASGIApp:
    body = call.body
    conversation = _conversation(body)
    past = await _past(call, body.previous_response_id)
    run = await start(call, body.model, conversation, stream=bool(body.stream), past=past)
    info = await run.info()
    headers = run_headers(run)
    if body.stream:
        events = _Events(call, run, info)
        stream = Streamed(call, events.all(), headers=headers, failure=events.failed)
        return call.services.quotas.counted(call.principal, stream)
    if body.background:
        result = await run.result(wait=False)
    else:
        result = await wait(call, run)
    return answer(await _response(call, info, result), headers=headers)


def _conversation(body: CreateResponse) -> list[Any]:
    if isinstance(body.input, str):
        sent = [ChatMessage(role="user", content=body.input)]
    else:
        sent = body.input
    found = as_messages(sent, field="input")
    if body.instructions:
        first = [ChatMessage(role="developer", content=body.instructions)]
        return [*as_messages(first, field="instructions"), *found]
    return found


async def _past(call: Call[Any, Any], response_id: str | None) -> list[Message]:
    """Return the conversation up to the answer of a response.

    Raises:
        Problem: `run_not_found`, also for another tenant's; `run_open`.
    """
    if response_id is None:
        return []
    run, info = await _run(call, response_id)
    if info.status == "open":
        raise Problem("run_open", "wait until the previous response has ended")
    log = await call.store.read(run.id)
    past = [message_from_json(each) for each in log[0].data.get("input", ())] if log else []
    text = (await run.result(wait=False)).text
    return [*past, Message.assistant(text)] if text else past


async def _run(call: Call[Any, Any], response_id: str) -> tuple[Run, RunInfo]:
    run_id = response_id.removeprefix(_PREFIX)
    if run_id == response_id:
        raise Problem("run_not_found", "no response has this id")
    run = call.engine.run(run_id, tenant=call.principal.tenant)
    return run, await run.info()


async def _get(call: Call[Empty, None]) -> ASGIApp:
    run, info = await _run(call, call.path("response_id"))
    return answer(await _response(call, info, await run.result(wait=False)))


async def _cancel(call: Call[Empty, None]) -> ASGIApp:
    run, info = await _run(call, call.path("response_id"))
    await run.cancel(user=call.principal.user)
    return answer(await _response(call, info, await run.result(wait=False)))


async def _response(
    call: Call[Any, Any], info: RunInfo, result: Result[Any], text: str | None = None
) -> Response:
    """Return a run as a response.

    Args:
        call: the request.
        info: the run.
        result: how far it has come.
        text: what a stream has brought; None for the answer.
    """
    error = done = None
    try:
        done = await answered(call, result)
    except Problem as problem:
        if problem.code == "run_failed":
            error = ResponseError(code="server_error", message=problem.detail)
    status = _STATUS[result.outcome]
    reason = _INCOMPLETE.get(result.outcome or "")
    shown = text if text is not None else done.text if done else ""
    whole = "completed" if status == "completed" else "incomplete"
    return Response(
        id=f"{_PREFIX}{info.run_id}",
        created_at=seconds(info),
        status=status,
        model=info.algorithm,
        output=[_message(info, shown, whole)] if shown else [],
        error=error,
        incomplete_details=IncompleteDetails(reason=reason) if reason else None,
        usage=_usage(done) if done and result.outcome else None,
        run=run_state(result),
    )


def _message(info: RunInfo, text: str, status: Any) -> OutputMessage:
    content = [OutputText(text=text)] if text else []
    return OutputMessage(id=f"msg_{info.run_id}", status=status, content=content)


def _usage(done: Answered) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=done.input_tokens,
        output_tokens=done.output_tokens,
        total_tokens=done.input_tokens + done.output_tokens,
    )


# -- the stream --------------------------------------------------------------------------------


class _Events:
    """The events of one stream, each with its number."""

    def __init__(self, call: Call[Empty, CreateResponse], run: Run, info: RunInfo) -> None:
        self._call = call
        self._run = run
        self._info = info
        self._numbers = count()

    def failed(self, problem: Problem) -> bytes:
        """Return the event with which a stream fails."""
        error = openai_error(problem)["error"]
        return self._event("error", code=error["code"], message=error["message"], param=None)

    async def all(self) -> AsyncGenerator[bytes]:
        """Yield the events; b"" where nothing has come for a while."""
        call, run, info = self._call, self._run, self._info
        begun = (await _response(call, info, await run.result(wait=False), "")).model_dump()
        begun |= {"status": "in_progress", "output": []}
        item = _message(info, "", "in_progress").model_dump()
        part = OutputText(text="").model_dump()
        yield self._event("response.created", response=begun)
        yield self._event("response.in_progress", response=begun)
        yield self._event("response.output_item.added", output_index=0, item=item)
        yield self._of_part("response.content_part.added", part=part)
        live = streams_replies(call, call.body.model)
        idle_s = call.services.limits.heartbeat_s
        text = ""
        async with aclosing(follow(run, live=live, idle_s=idle_s)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Result):
                    if why := notice(call, piece):
                        why = f"\n\n{why}" if text else why
                        text += why
                        yield self._delta(why)
                    yield await self._end(piece, text)
                elif piece:
                    text += piece
                    yield self._delta(piece)
                else:
                    yield b""

    async def _end(self, result: Result[Any], text: str) -> bytes:
        response = await _response(self._call, self._info, result, text)
        status = "completed" if result.outcome == "COMPLETED" else "incomplete"
        item = _message(self._info, text, status).model_dump()
        part = OutputText(text=text).model_dump()
        last = "incomplete" if response.status in ("in_progress", "cancelled") else response.status
        return b"".join(
            [
                self._of_part("response.output_text.done", text=text, logprobs=[]),
                self._of_part("response.content_part.done", part=part),
                self._event("response.output_item.done", output_index=0, item=item),
                self._event(f"response.{last}", response=response.model_dump()),
            ]
        )

    def _delta(self, text: str) -> bytes:
        return self._of_part("response.output_text.delta", delta=text, logprobs=[])

    def _of_part(self, kind: str, **fields: Any) -> bytes:
        item_id = f"msg_{self._info.run_id}"
        return self._event(kind, item_id=item_id, output_index=0, content_index=0, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        return data_event({"type": kind, "sequence_number": next(self._numbers), **fields}, kind)


_PATH: Final = "/v1/responses/{response_id}"

ROUTES: list[AnyRoute] = [
    Route(
        method="POST",
        path="/v1/responses",
        handler=_create,
        summary="Send a request to an agent, as the Responses API of OpenAI has it",
        tag="openai",
        right="run",
        body=CreateResponse,
        answers={200: Response},
        problems=[*RUN_PROBLEMS, "run_not_found", "run_open"],
        headers=IDEMPOTENCY_KEY,
        events={"response.*": "as the API reference has them", "error": "the stream cannot go on"},
        errors="openai",
    ),
    Route(
        method="GET",
        path=_PATH,
        handler=_get,
        summary="Read a response, finished or not",
        tag="openai",
        right="read",
        answers={200: Response},
        errors="openai",
    ),
    Route(
        method="POST",
        path=f"{_PATH}/cancel",
        handler=_cancel,
        summary="Cancel a response",
        tag="openai",
        right="run",
        answers={200: Response},
        errors="openai",
    ),
]
