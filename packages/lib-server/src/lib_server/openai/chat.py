"""`/v1/chat/completions` and `/v1/models`: agents in the place of models.

The conversation comes whole with each request, so each request is a run of its own.

Source: OpenAI API reference, Chat and Models, 2026-10.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from starlette.types import ASGIApp

from lib.engine import Result, Run
from lib.events import RunInfo
from lib_server.api.runs import IDEMPOTENCY_KEY
from lib_server.bodies import Answer, Empty, Name
from lib_server.openai.content import Conversation, as_messages
from lib_server.openai.follow import (
    Answered,
    answered,
    failed,
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
from lib_server.problems import Problem
from lib_server.routing import AnyRoute, Call, Route, answer

RUN_PROBLEMS: Final = [
    "budget_spent",
    "open_runs_cap",
    "stream_cap",
    "agent_not_found",
    "upload_not_found",
    "idempotency_mismatch",
    "run_erased",
    "run_failed",
    "run_cancelled",
    "draining",
]

FinishReason = Literal["stop", "length", "content_filter"]
_FINISH: Final[dict[str | None, FinishReason]] = {"LIMITED": "length", "BLOCKED": "content_filter"}


class StreamOptions(Lenient):
    """Options of a stream beside text."""

    include_usage: bool = False


class TextFormat(Lenient):
    """The form of the answer, which the agent alone decides."""

    type: Literal["text"]


class CreateChatCompletion(Lenient):
    """A conversation for an agent to go on with; settings of models are ignored."""

    model: Name = Field(description="the name of an agent")
    messages: Conversation
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = Field(
        None, description="none: an agent has its own"
    )
    response_format: TextFormat | None = None


class ChatAnswer(Answer):
    """The message of an agent."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class Choice(Answer):
    """The one answer."""

    index: Literal[0] = 0
    message: ChatAnswer
    finish_reason: FinishReason = Field(
        description="`stop`, also of a run that waits for a person: `run.outcome` is null then; "
        "`length` where a budget ended it, `content_filter` where a guard did"
    )
    logprobs: None = None


class ChatUsage(Answer):
    """The tokens of all model calls of a run and its child runs."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletion(Answer):
    """The answer of an agent."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: ChatUsage
    run: RunState


class Model(Answer):
    """An agent, as a model."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "lib-server"


class ModelList(Answer):
    """The agents of this server, as models."""

    object: Literal["list"] = "list"
    data: list[Model]


# -- handlers ----------------------------------------------------------------------------------


async def _complete(call: Call[Empty, CreateChatCompletion]) -> ASGIApp:
    body = call.body
    conversation = as_messages(body.messages, field="messages")
    run = await start(call, body.model, conversation, stream=bool(body.stream))
    info = await run.info()
    headers = run_headers(run)
    if body.stream:
        stream = Streamed(call, _chunks(call, run, info), headers=headers, failure=failed)
        return call.services.quotas.counted(call.principal, stream)
    done = await answered(call, await wait(call, run))
    message = ChatAnswer(content=done.text)
    completion = ChatCompletion(
        id=f"chatcmpl-{run.id}",
        created=seconds(info),
        model=body.model,
        choices=[Choice(message=message, finish_reason=_finish_reason(done.result))],
        usage=_usage(done),
        run=run_state(done.result),
    )
    return answer(completion, headers=headers)


def run_headers(run: Run) -> dict[str, str]:
    """Return the headers that name the run of an answer."""
    return {"x-run-id": run.id} | ({"idempotent-replayed": "true"} if run.repeated else {})


def _finish_reason(result: Result[Any]) -> FinishReason:
    return _FINISH.get(result.outcome, "stop")


def _usage(done: Answered) -> ChatUsage:
    return ChatUsage(
        prompt_tokens=done.input_tokens,
        completion_tokens=done.output_tokens,
        total_tokens=done.input_tokens + done.output_tokens,
    )


async def _chunks(
    call: Call[Empty, CreateChatCompletion], run: Run, info: RunInfo
) -> AsyncGenerator[bytes]:
    """Yield the chunks of a stream; b"" where nothing has come for a while."""
    body = call.body
    shared: dict[str, Any] = {
        "id": f"chatcmpl-{run.id}",
        "object": "chat.completion.chunk",
        "created": seconds(info),
        "model": body.model,
    }

    def chunk(delta: dict[str, str], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return data_event({**shared, "choices": [choice], **more})

    yield chunk({"role": "assistant", "content": ""})
    idle_s = call.services.limits.heartbeat_s
    wrote = False
    async with aclosing(follow(run, live=streams_replies(call, body.model), idle_s=idle_s)) as all_:
        async for piece in all_:
            if isinstance(piece, Result):
                done = await answered(call, piece)
                if why := notice(call, piece):
                    yield chunk({"content": f"\n\n{why}" if wrote else why})
                state = run_state(piece).model_dump()
                yield chunk({}, _finish_reason(piece), run=state)
                if body.stream_options and body.stream_options.include_usage:
                    usage = _usage(done).model_dump()
                    yield data_event({**shared, "choices": [], "usage": usage})
            elif piece:
                wrote = True
                yield chunk({"content": piece})
            else:
                yield b""
    yield b"data: [DONE]\n\n"


async def _models(call: Call[Empty, None]) -> ASGIApp:
    return answer(ModelList(data=[Model(id=name) for name in call.engine.agents]))


async def _model(call: Call[Empty, None]) -> ASGIApp:
    name = call.path("model")
    if name not in call.engine.agents:
        raise Problem("agent_not_found", "no agent has this name")
    return answer(Model(id=name))


ROUTES: list[AnyRoute] = [
    Route(
        method="POST",
        path="/v1/chat/completions",
        handler=_complete,
        summary="Go on with a conversation, as OpenAI's API has it; an agent is the model",
        tag="openai",
        right="run",
        body=CreateChatCompletion,
        answers={200: ChatCompletion},
        problems=RUN_PROBLEMS,
        headers=IDEMPOTENCY_KEY,
        events={"message": "a `chat.completion.chunk`, an `error`, and at last `[DONE]`"},
        errors="openai",
    ),
    Route(
        method="GET",
        path="/v1/models",
        handler=_models,
        summary="List the agents, as models of OpenAI's API",
        tag="openai",
        right="read",
        answers={200: ModelList},
        errors="openai",
    ),
    Route(
        method="GET",
        path="/v1/models/{model:path}",
        handler=_model,
        summary="Describe an agent, as a model of OpenAI's API",
        tag="openai",
        right="read",
        answers={200: Model},
        errors="openai",
    ),
]
