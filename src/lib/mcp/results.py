"""Tools and their results in the types of the protocol."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast, get_type_hints
from urllib.parse import quote

from pydantic import PydanticUserError, TypeAdapter
from pydantic_core import to_jsonable_python

from lib.content.hygiene import fenced
from lib.errors import ToolError
from lib.llm import Attachment, Audio, File, Image, Text
from lib.llm.schema import violations
from lib.mcp.sdk import types
from lib.tools import FunctionTool, Tool
from lib.tools.output import as_text, clip

_BLOCKS: Final = (
    types.TextContent,
    types.ImageContent,
    types.AudioContent,
    types.EmbeddedResource,
    types.ResourceLink,
)
_SHOWN_AS_SUCH: Final = (*_BLOCKS, types.CallToolResult, Text, Attachment)
_OBJECT: Final = "object"


class ToolSurface:
    """A tool as clients see it: its definition, and its results.

    Attributes:
        tool: the tool.
        definition: for clients of the present protocol.
        legacy_definition: for those of 2025-11-25 and before, whose structured output is an object.
    """

    def __init__(self, tool: Tool) -> None:
        """Read what the tool declares."""
        self.tool = tool
        self._output_schema = tool.output_schema or _returned_schema(tool)
        self.definition: types.Tool = types.Tool(
            name=tool.name,
            description=tool.description,
            input_schema={"type": _OBJECT, **tool.input_schema},
            output_schema=None if self._output_schema is None else dict(self._output_schema),
            annotations=_annotations(tool),
        )
        self._is_object = (self._output_schema or {}).get("type") == _OBJECT
        self.legacy_definition: types.Tool = (
            self.definition
            if self._is_object
            else self.definition.model_copy(update={"output_schema": None})
        )

    def result(self, value: Any, *, legacy: bool) -> types.CallToolResult:
        """Return what the tool has returned.

        Args:
            value: text, data, parts of messages, or content blocks of the protocol.
            legacy: True for a client of 2025-11-25 or before.

        Raises:
            ToolError: the value cannot be shown, or is not what the tool declares.
        """
        if isinstance(value, types.CallToolResult):
            return value
        content = [self._shown(block) for block in content_blocks(value)]
        if self._output_schema is None or (legacy and not self._is_object):
            return types.CallToolResult(content=content)
        data = to_jsonable_python(value)
        if next(violations(data, self._output_schema), None) is not None:
            message = "the tool ran, but what it returned does not fit its output schema"
            raise ToolError("failed", message)
        return types.CallToolResult(content=content, structured_content=data)

    def _shown(self, block: types.ContentBlock) -> types.ContentBlock:
        if not isinstance(block, types.TextContent):
            return block
        text, _ = clip(block.text, self.tool.max_output_chars)
        if self.tool.untrusted_output:
            text = fenced(text, source=self.tool.name)
        return block.model_copy(update={"text": text})


def failure(message: str) -> types.CallToolResult:
    """Return the result of a failed call, for the model that has made it."""
    return types.CallToolResult(content=[types.TextContent(text=message)], is_error=True)


def content_blocks(value: Any) -> list[types.ContentBlock]:
    """Return a value as content: parts and blocks as they are, and anything else as text.

    Raises:
        ToolError: it cannot be shown.
    """
    if value is None:
        return []
    if isinstance(value, list | tuple) and value:
        items = cast("Sequence[Any]", value)
        if all(isinstance(each, _SHOWN_AS_SUCH) for each in items):
            return [_block(each) for each in items]
    return [_block(value)]


def _block(value: Any) -> types.ContentBlock:
    if isinstance(value, _BLOCKS):
        return value
    if isinstance(value, Attachment):
        return _attached(value)
    return types.TextContent(text=value.text if isinstance(value, Text) else as_text(value))


def _attached(value: Attachment) -> types.ContentBlock:
    if value.url is not None:
        return types.ResourceLink(uri=value.url, name=value.url, mime_type=value.media_type or None)
    if value.data is None:
        raise ToolError("failed", "the tool ran, but returned content that is not at hand")
    data = base64.b64encode(value.data).decode("ascii")
    match value:
        case Image():
            return types.ImageContent(data=data, mime_type=value.media_type)
        case Audio():
            return types.AudioContent(data=data, mime_type=value.media_type)
        case _:
            name = value.name if isinstance(value, File) else ""
            contents = types.BlobResourceContents(
                uri=f"attachment:{quote(name or 'file')}",
                blob=data,
                mime_type=value.media_type or None,
            )
            return types.EmbeddedResource(resource=contents)


def _annotations(tool: Tool) -> types.ToolAnnotations:
    """Return what the declared effect says: without one, clients expect the worst."""
    reads_only = tool.effects == "none"
    return types.ToolAnnotations(
        read_only_hint=reads_only,
        destructive_hint=not reads_only
        and (tool.effects == "once" or tool.annotations.destructive),
        idempotent_hint=tool.effects != "once",
        open_world_hint=tool.annotations.open_world or tool.untrusted_output,
    )


def _returned_schema(tool: Tool) -> Mapping[str, Any] | None:
    """Return the schema of what a function says that it returns, if that is an object."""
    if not isinstance(tool, FunctionTool) or tool.untrusted_output:  # text alone can be fenced
        return None
    returned: Any = get_type_hints(tool.function, include_extras=True).get("return", str)
    if returned is str or (isinstance(returned, type) and issubclass(returned, _SHOWN_AS_SUCH)):
        return None
    try:
        schema = TypeAdapter[Any](cast("Any", returned)).json_schema(mode="serialization")
    except PydanticUserError:  # a type of its own, which is shown as text if it can be
        return None
    return schema if schema.get("type") == _OBJECT else None
