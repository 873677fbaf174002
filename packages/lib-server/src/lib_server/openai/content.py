"""Messages of OpenAI's API as those of a run.

Instructions of a caller (`system`, `developer`) become messages of the user: an agent takes
instructions from its author only. Calls and results of tools are refused: an agent has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from lib_server.bodies import BASE_64, AttachmentPart, TextPart, UserMessage
from lib_server.other_apis import DATA_URL, Lenient, attachment, source_of
from lib_server.problems import Problem

Source = Annotated[
    str, Field(json_schema_extra={"pattern": f"^(https://|{DATA_URL.pattern}{BASE_64}$)"})
]


# -- parts -------------------------------------------------------------------------------------


class TextContent(Lenient):
    """Plain text."""

    type: Literal["text", "input_text", "output_text"]
    text: str


class ImageURL(Lenient):
    """The address of a picture."""

    url: Source


class ImageContent(Lenient):
    """A picture: a `data:` URL, or one that the model's provider can fetch."""

    type: Literal["image_url"]
    image_url: ImageURL


class InputImage(Lenient):
    """A picture, as the Responses API has it."""

    type: Literal["input_image"]
    image_url: Source


class AudioData(Lenient):
    """A recording, in base64."""

    data: str = Field(json_schema_extra={"pattern": f"^{BASE_64}$"})
    format: Literal["wav", "mp3"]


class AudioContent(Lenient):
    """A recording."""

    type: Literal["input_audio"]
    input_audio: AudioData


class FileData(Lenient):
    """A document, as a `data:` URL."""

    file_data: Source
    filename: str = ""


class FileContent(Lenient):
    """A document."""

    type: Literal["file"]
    file: FileData


class InputFile(FileData):
    """A document, as the Responses API has it."""

    type: Literal["input_file"]


Content = Annotated[
    TextContent | ImageContent | InputImage | AudioContent | FileContent | InputFile,
    Field(discriminator="type"),
]


class ChatMessage(Lenient):
    """A message of a conversation."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Content] | None = None
    tool_calls: Annotated[list[Any], Field(max_length=0)] | None = Field(
        default=None, description="none: the calls of an agent stay inside"
    )


_WITH_CONTENT: Final[dict[str, Any]] = {
    "required": ["content"],
    "properties": {
        "content": {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "minItems": 1}]}
    },
}
Conversation = Annotated[
    list[ChatMessage], Field(min_length=1, json_schema_extra={"contains": _WITH_CONTENT})
]


# -- conversion --------------------------------------------------------------------------------


def as_messages(conversation: Sequence[ChatMessage], *, field: str) -> list[UserMessage]:
    """Return the messages of a run.

    Args:
        conversation: as a caller has sent it.
        field: where it stands in the body, for errors.

    Raises:
        Problem: `invalid`: nothing is in it, or content cannot be read.
    """
    found: list[UserMessage] = []
    for place, message in enumerate(conversation):
        content = message.content
        if not content:
            continue
        if not isinstance(content, str):
            content = [_part(each, f"/{field}/{place}/content") for each in content]
        role = "assistant" if message.role == "assistant" else "user"
        found.append(UserMessage(role=role, content=content))
    if not found:
        raise Problem("invalid", errors=[(f"/{field}", "expected a message with content")])
    return found


def _part(content: Content, field: str) -> TextPart | AttachmentPart:
    if isinstance(content, TextContent):
        return TextPart(type="text", text=content.text)
    return attachment(_attachment(content), field)


def _attachment(content: Any) -> dict[str, Any]:
    match content:
        case ImageContent(image_url=ImageURL(url=url)) | InputImage(image_url=url):
            return {"type": "image", **source_of(url)}
        case AudioContent(input_audio=audio):
            media_type = {"wav": "audio/wav", "mp3": "audio/mpeg"}[audio.format]
            return {"type": "audio", "data": audio.data, "media_type": media_type}
        case FileContent(file=file) | (InputFile() as file):
            return {"type": "file", "name": file.filename, **source_of(file.file_data)}
        case _:
            raise TypeError(type(content).__name__)
