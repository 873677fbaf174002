"""`@resource` and `@prompt`: plain functions that clients read, and start conversations with."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

from lib.llm import Message
from lib.mcp.results import content_blocks
from lib.mcp.sdk import UriTemplate, types
from lib.tools import FunctionTool, ToolContext, tool
from lib.tools.output import as_text

P = ParamSpec("P")
R = TypeVar("R")
Complete = Mapping[str, Callable[[str], Sequence[str]]]

_MAX_COMPLETIONS: Final = 100  # the most that the protocol has in one answer
_TEXT: Final = "text/plain"
_JSON: Final = "application/json"
_BINARY: Final = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServedFunction(Generic[P, R]):
    """A function that clients call by name or address; it stays callable as what it is.

    Attributes:
        function: the function.
        name: for programs.
        title: for people.
        description: what it is good for.
        complete: returns the values of a parameter that begin as a text does, by its name.
        checked: the function behind a check of its arguments.
    """

    function: Callable[P, R]
    name: str
    title: str | None
    description: str
    complete: Complete
    checked: FunctionTool[..., Any] = field(repr=False)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    @property
    def parameters(self) -> Mapping[str, Mapping[str, Any]]:
        """The schemas of its parameters, by name."""
        return self.checked.input_schema.get("properties", {})

    def completions(self, parameter: str, begun: str) -> list[str]:
        """Return the values of a parameter that begin like this, as far as they are known."""
        if parameter in self.complete:
            return [*self.complete[parameter](begun)][:_MAX_COMPLETIONS]
        values = self.parameters.get(parameter, {}).get("enum", ())
        return [str(each) for each in values if str(each).startswith(begun)][:_MAX_COMPLETIONS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt(_ServedFunction[P, R]):
    """The beginning of a conversation, which people choose by name; see `prompt`."""

    @property
    def definition(self) -> types.Prompt:
        """The prompt as clients see it."""
        required = self.checked.input_schema.get("required", ())
        return types.Prompt(
            name=self.name,
            title=self.title,
            description=self.description or None,
            arguments=[
                types.PromptArgument(
                    name=name, description=schema.get("description"), required=name in required
                )
                for name, schema in self.parameters.items()
            ],
        )

    async def messages(
        self, arguments: Mapping[str, str], context: ToolContext
    ) -> list[types.PromptMessage]:
        """Return the conversation that it begins.

        Raises:
            ToolError: the arguments do not fit, or the function says so.
            TypeError: it has returned something else.
        """
        made = await self.checked.call(arguments, context)
        several = isinstance(made, list | tuple)
        items = cast("Sequence[Any]", made) if several else [made]
        return [message for each in items for message in _messages(each)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(_ServedFunction[P, R]):
    """Content behind a URI, or behind each one that a template matches; see `resource`.

    Attributes:
        uri: a URI, or a template of one (RFC 6570).
        media_type: of the content; "" for that of what the function returns.
        watched: True if clients can subscribe to it: `MCPToolServer.resource_updated` tells them
            that it has changed.
    """

    uri: str
    media_type: str
    watched: bool
    template: UriTemplate = field(repr=False)

    @property
    def is_template(self) -> bool:
        """True if its URI has variables."""
        return bool(self.template.variables)

    @property
    def definition(self) -> types.Resource:
        """The resource as clients see it, of one URI."""
        return types.Resource(
            uri=self.uri,
            name=self.name,
            title=self.title,
            description=self.description or None,
            mime_type=self.media_type or None,
        )

    @property
    def template_definition(self) -> types.ResourceTemplate:
        """The resource as clients see it, of many URIs."""
        return types.ResourceTemplate(
            uri_template=self.uri,
            name=self.name,
            title=self.title,
            description=self.description or None,
            mime_type=self.media_type or None,
        )

    def match(self, uri: str) -> Mapping[str, str] | None:
        """Return the values of its variables in this URI, None if it is another one's.

        A value is one segment of a path: one that would lead out of it matches nothing.
        """
        if not self.is_template:
            return {} if uri == self.uri else None
        found = self.template.match(uri)
        if found is None:
            return None
        values = {name: value for name, value in found.items() if isinstance(value, str)}
        return values if all(map(_is_segment, values.values())) else None

    async def contents(
        self, uri: str, arguments: Mapping[str, str], context: ToolContext
    ) -> types.TextResourceContents | types.BlobResourceContents:
        """Return its content.

        Raises:
            ToolError: the values of its variables do not fit, or the function says so.
        """
        made = await self.checked.call(arguments, context)
        if isinstance(made, bytes):
            blob = base64.b64encode(made).decode("ascii")
            media_type = self.media_type or _BINARY
            return types.BlobResourceContents(uri=uri, blob=blob, mime_type=media_type)
        media_type = self.media_type or (_TEXT if isinstance(made, str) else _JSON)
        return types.TextResourceContents(uri=uri, text=as_text(made), mime_type=media_type)


def prompt(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str = "",
    title: str | None = None,
    description: str = "",
    complete: Complete | None = None,
) -> Any:
    """Make a prompt of a typed function, sync (run in a thread) or async.

    It returns text, a `lib.llm.Message`, or a list of them. Its parameters are filled in by a
    person; one annotated `ToolContext` gets the context.

    Args:
        function: the function.
        name: the function's by default.
        title: for people.
        description: the docstring by default.
        complete: see `Prompt`; the values of a `Literal` are completed without it.

    Raises:
        TypeError: see `lib.tools.tool`.
    """

    def decorate(decorated: Callable[P, R]) -> Prompt[P, R]:
        return Prompt(**_fields(decorated, name, title, description, complete))

    return decorate if function is None else decorate(function)


def resource(
    uri: str,
    *,
    name: str = "",
    title: str | None = None,
    description: str = "",
    media_type: str = "",
    watched: bool = False,
    complete: Complete | None = None,
) -> Callable[[Callable[P, R]], Resource[P, R]]:
    """Make a resource of a typed function, sync (run in a thread) or async.

    It returns text, bytes, or data, which is shown as JSON. The variables of a template such as
    `orders://{order}` are its parameters; one annotated `ToolContext` gets the context.

    Args:
        uri: see `Resource`.
        name: the function's by default.
        title: for people.
        description: the docstring by default.
        media_type: see `Resource`.
        watched: see `Resource`.
        complete: see `Prompt`.

    Raises:
        TypeError: see `lib.tools.tool`.
        ValueError: the template is malformed, or its variables are not the parameters.
    """
    template = UriTemplate.parse(uri)

    def decorate(decorated: Callable[P, R]) -> Resource[P, R]:
        fields = _fields(decorated, name, title, description, complete)
        made: Resource[P, R] = Resource(
            **fields, uri=uri, media_type=media_type, watched=watched, template=template
        )
        if set(template.variable_names) != set(made.parameters):
            raise ValueError(
                f"expected the variables of {uri!r} as the parameters of {made.name!r}, "
                f"got {', '.join(made.parameters) or 'none'}"
            )
        return made

    return decorate


def _fields(
    function: Callable[P, R],
    name: str,
    title: str | None,
    description: str,
    complete: Complete | None,
) -> dict[str, Any]:
    description = description or inspect.getdoc(function) or ""
    return {
        "function": function,
        "name": name or function.__name__,
        "title": title,
        "description": description,
        "complete": complete or {},
        "checked": tool(name="function", description=description, effects="none")(function),
    }


def _messages(value: Any) -> list[types.PromptMessage]:
    """Return what a prompt has returned as messages: one for each block of content.

    Raises:
        TypeError: it is no message that a prompt can begin with.
    """
    if isinstance(value, types.PromptMessage):
        return [value]
    if isinstance(value, str):
        value = Message.user(value)
    if not isinstance(value, Message) or value.role not in ("user", "assistant"):
        got = value.role if isinstance(value, Message) else type(value).__name__
        raise TypeError(f"expected text or messages of user and assistant of a prompt, got {got}")
    role: types.Role = "user" if value.role == "user" else "assistant"
    return [
        types.PromptMessage(role=role, content=block) for block in content_blocks([*value.parts])
    ]


def _is_segment(value: str) -> bool:
    return value not in (".", "..") and not any(each in value for each in "/\\\0")
