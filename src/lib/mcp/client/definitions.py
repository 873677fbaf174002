"""The tools of a server as tools of ours: names, schemas, effects, results."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from lib._util.json import canonical, digest
from lib.content.hygiene import clean, fenced
from lib.errors import ToolError
from lib.mcp.client.sdk import types
from lib.tools import Effects, Tool, ToolAnnotations
from lib.tools.definition import ToolCallable, foreign_schema_fault
from lib.tools.output import clip

_log = logging.getLogger("lib.mcp")

MAX_DESCRIPTION_CHARS: Final = 4_000
_MAX_ERROR_CHARS: Final = 1_500
_NAME_CHARS: Final = 64
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRules:
    """The application's rules for a server's tools.

    Attributes:
        prefix: put before their names.
        include: the names, as the server has them, of those that are offered; None for all.
        exclude: the names of those that are not.
        effects: the effects of some by name, whatever the server says.
        trusted: whether the server's word about what is idempotent counts.
        approval: which calls a person must approve: all, none, or by name.
        timeout_s: how long a call may take.
        task_timeout_s: how much longer, if it is a task.
        max_output_chars: how much of an output a model gets.
    """

    prefix: str
    include: frozenset[str] | None
    exclude: frozenset[str]
    effects: Mapping[str, Effects]
    trusted: bool
    approval: bool | Collection[str]
    timeout_s: float | None
    task_timeout_s: float | None
    max_output_chars: int

    @property
    def longest_s(self) -> float | None:
        """The longest time that a call may take, None for no limit."""
        if self.timeout_s is None or self.task_timeout_s is None:
            return None
        return self.timeout_s + self.task_timeout_s

    def selects(self, name: str) -> bool:
        """Return True if the tool of this name, as the server has it, is offered."""
        return name not in self.exclude and (self.include is None or name in self.include)


def as_tools(
    listed: Iterable[types.Tool], rules: ToolRules, make_call: Callable[[str, str], ToolCallable]
) -> list[Tool]:
    """Return those tools of a server that are selected and that a model can call.

    Args:
        listed: the tools as the server describes them.
        rules: the application's.
        make_call: returns what calls the tool of a name, with the version of its definition.
    """
    tools: dict[str, Tool] = {}
    for each in listed:
        if not rules.selects(each.name):
            continue
        name = rules.prefix + _UNFIT.sub("_", each.name)
        unfit = _unfit(each, name)
        if name in tools:
            unfit = "it lists another one of this name"
        if unfit is not None:
            shown = clean(each.name)[:_NAME_CHARS]
            _log.warning("the tool %r of an MCP server is left out: %s", shown, unfit)
            continue
        tools[name] = _tool(each, name, rules, make_call)
    return list(tools.values())


def _unfit(tool: types.Tool, name: str) -> str | None:
    """Return what keeps a model from calling a tool, None if nothing does."""
    if not tool.name or len(name) > _NAME_CHARS:
        return f"its name, with the prefix, is not 1 to {_NAME_CHARS} characters long"
    return foreign_schema_fault(tool.input_schema)


def _tool(
    listed: types.Tool, name: str, rules: ToolRules, make_call: Callable[[str, str], ToolCallable]
) -> Tool:
    hints = listed.annotations or types.ToolAnnotations()
    description = clip(clean(listed.description or listed.title or ""), MAX_DESCRIPTION_CHARS)[0]
    schema = _cleaned(listed.input_schema)
    effects = rules.effects.get(listed.name) or _effects(hints, trusted=rules.trusted)
    version = digest(name, description, canonical(schema), effects)[:32]
    approval = rules.approval
    return Tool(
        name=name,
        description=description,
        input_schema=schema,
        output_schema=listed.output_schema,
        call=make_call(listed.name, version),
        annotations=ToolAnnotations(
            read_only=bool(hints.read_only_hint),
            destructive=hints.destructive_hint is not False,
            idempotent=bool(hints.idempotent_hint),
            open_world=hints.open_world_hint is not False,
        ),
        effects=effects,
        timeout_s=rules.longest_s,
        approval=approval if isinstance(approval, bool) else listed.name in approval,
        untrusted_output=True,
        max_output_chars=rules.max_output_chars,
        version=version,
    )


def _effects(hints: types.ToolAnnotations, *, trusted: bool) -> Effects:
    if hints.read_only_hint:
        return "none"
    return "idempotent" if hints.idempotent_hint and trusted else "once"


def _cleaned(value: Any) -> Any:
    """Return a schema whose texts hold nothing that a reader would not see."""
    match value:
        case str():
            return clean(value)
        case list():
            return [_cleaned(each) for each in cast(list[Any], value)]
        case dict():
            return {key: _cleaned(each) for key, each in cast(dict[str, Any], value).items()}
        case _:
            return value


def as_output(result: types.CallToolResult, source: str) -> str:
    """Return the result of a call as text; what is no text is named.

    Raises:
        ToolError: the tool has failed.
    """
    blocks = [_block(block) for block in result.content]
    text = "\n\n".join(block for block in blocks if block)
    if not text and result.structured_content is not None:
        text = canonical(result.structured_content)
    if result.is_error:
        shown, _ = clip(clean(text), _MAX_ERROR_CHARS)
        raise ToolError("failed", fenced(shown or "the tool has failed", source=source))
    return text


def _block(block: Any) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            return f"[{block.type} of type {block.mime_type}, not shown]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return f"[resource {resource.uri}]\n{resource.text}"
        case types.EmbeddedResource():
            return f"[resource {block.resource.uri}, not shown]"
        case types.ResourceLink():
            return f"[link to the resource {block.uri}]"
        case _:
            return ""
