"""Requests of other agents: the parameters of operations, and messages as our agents read them.

Fields are read under their names in JSON and in the protocol's `.proto`; others are ignored.

Source: A2A 1.0, `lf.a2a.v1`.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from lib_server.a2a.config import DATA, TEXT, A2AConfig
from lib_server.a2a.errors import A2AError
from lib_server.bodies import Id, TextPart, UserMessage
from lib_server.other_apis import attachment
from lib_server.problems import Problem

_BINARY: Final = "application/octet-stream"
_KINDS: Final = ("text", "raw", "url", "data")
_MAX_PAGE: Final = 100


def _or(default: Any) -> BeforeValidator:
    """Read null as the default, as JSON of protocol buffers has it."""
    return BeforeValidator(lambda value: default if value is None else value)


State = Literal[
    "",
    "TASK_STATE_UNSPECIFIED",
    "TASK_STATE_SUBMITTED",
    "TASK_STATE_WORKING",
    "TASK_STATE_COMPLETED",
    "TASK_STATE_FAILED",
    "TASK_STATE_CANCELED",
    "TASK_STATE_INPUT_REQUIRED",
    "TASK_STATE_REJECTED",
    "TASK_STATE_AUTH_REQUIRED",
]
_Optional = Annotated[str, Field(max_length=512), _or("")]
_Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


class _Wire(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", allow_inf_nan=False
    )


class Part(_Wire):
    """A part of a message: exactly one of text, raw, url and data."""

    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Any = None
    media_type: _Optional = ""
    filename: _Optional = ""

    @model_validator(mode="after")
    def _has_one_content(self) -> Part:
        if len([kind for kind in _KINDS if kind in self.model_fields_set]) != 1:
            raise ValueError("expected exactly one of text, raw, url and data")
        return self


class AgentMessage(_Wire):
    """A message of another agent."""

    message_id: Id
    role: Literal["ROLE_USER", 1]
    parts: Annotated[list[Part], Field(min_length=1)]
    context_id: _Optional = ""
    task_id: _Optional = ""


class SendConfiguration(_Wire):
    """The form of the answer to a message."""

    history_length: _Count | None = None
    return_immediately: Annotated[bool, _or(default=False)] = False
    task_push_notification_config: Any = None


class SendMessage(_Wire):
    """The parameters of SendMessage and SendStreamingMessage."""

    message: AgentMessage
    configuration: Annotated[SendConfiguration, _or(default=SendConfiguration())] = (
        SendConfiguration()
    )


class TaskRef(_Wire):
    """The parameters of CancelTask and SubscribeToTask."""

    id: Id


class GetTask(TaskRef):
    """The parameters of GetTask."""

    history_length: _Count | None = None


class ListTasks(_Wire):
    """The parameters of ListTasks."""

    context_id: _Optional = ""
    status: Annotated[State, _or("")] = ""
    page_size: Annotated[int, Field(ge=1, le=_MAX_PAGE), _or(50)] = 50
    page_token: _Optional = ""
    history_length: _Count | None = None
    status_timestamp_after: AwareDatetime | None = None
    include_artifacts: Annotated[bool, _or(default=False)] = False


def check_parts(message: AgentMessage, config: A2AConfig) -> None:
    """Refuse a message with content that the agent does not take.

    Raises:
        A2AError: `CONTENT_TYPE_NOT_SUPPORTED`.
    """
    for part in message.parts:
        media_type = part.media_type or _default_type(part)
        if not config.takes(media_type) and not (part.text is not None and config.takes(TEXT)):
            taken = ", ".join(config.input_modes)
            raise A2AError(
                "CONTENT_TYPE_NOT_SUPPORTED", f"the agent takes {taken}, got a part of another type"
            )


def _default_type(part: Part) -> str:
    if part.text is not None:
        return TEXT
    return DATA if "data" in part.model_fields_set else _BINARY


def as_input(message: AgentMessage) -> UserMessage:
    """Return a message as our agents read it; data becomes its JSON.

    Raises:
        A2AError: `INVALID_PARAMS`: content that cannot be read.
    """
    try:
        content = [_as_part(part, f"parts/{at}") for at, part in enumerate(message.parts)]
    except Problem as problem:
        at, detail = problem.errors[0]
        raise A2AError("INVALID_PARAMS", f"{at}: {detail}") from None
    return UserMessage(role="user", content=content)


def _as_part(part: Part, at: str) -> Any:
    if part.text is not None:
        return TextPart(type="text", text=part.text)
    if "data" in part.model_fields_set:
        return TextPart(type="text", text=json.dumps(part.data, ensure_ascii=False))
    media_type = part.media_type or _BINARY
    kind = media_type.partition("/")[0]
    fields: dict[str, Any] = {"media_type": media_type}
    fields |= {"data": part.raw} if part.raw is not None else {"url": part.url}
    if kind in ("image", "audio"):
        return attachment({"type": kind, **fields}, at)
    return attachment({"type": "file", "name": part.filename, **fields}, at)


def text_of(message: AgentMessage) -> str:
    """Return the text of a message."""
    return "\n".join(part.text for part in message.parts if part.text)
