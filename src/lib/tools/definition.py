"""A tool, which a model may call, and what it declares about its effect; tools by name."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeVar, cast, get_args

from lib._util.json import canonical
from lib.errors import ToolError
from lib.llm import ToolSpec
from lib.tools.checks import CheckCallable

Effects = Literal["none", "idempotent", "once"]
"""The effect of calling a tool again: it decides about a call whose outcome is unknown.

none         it only reads: the call is made again.
idempotent   the receiver knows a repeated call by its idempotency key: it is made again.
once         anything else: the engine never repeats it on a guess. The tool's `check` tells what
             became of the call; without one the model reads that the outcome is unknown.
"""

RepeatAfterUnknown = Literal["ask", "allow"]
"""The rule for when a model repeats a call of the same run whose outcome is unknown.

ask          a person must approve the repetition.
allow        it is made like any other call.
"""

T = TypeVar("T")

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnnotations:
    """Hints for people and clients that show a tool; nothing is enforced by them."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False


class Deps:
    """The application's own objects, by type: `context.deps[Pool]`. Never logged.

    They belong to the engine of a process, not to a run: one that is resumed elsewhere gets those
    of that engine.
    """

    __slots__ = ("_objects",)

    def __init__(self, objects: Iterable[object] = ()) -> None:
        """Keep the objects.

        Raises:
            TypeError: they are not in a list, or one is a class.
            ValueError: two have one type.
        """
        untyped: object = objects
        if isinstance(untyped, Mapping | str | bytes | type) or not hasattr(untyped, "__iter__"):
            got = type(cast("object", untyped)).__name__
            raise TypeError(f"expected a list of objects as deps, got {got}: deps=[pool, client]")
        self._objects: dict[type, object] = {}
        for each in objects:
            if isinstance(each, type):
                raise TypeError(f"expected an instance in deps, got the class {each.__name__}")
            if type(each) in self._objects:
                raise ValueError(
                    f"two deps have the type {type(each).__name__}: "
                    "wrap them in a dataclass of your own"
                )
            self._objects[type(each)] = each

    def __getitem__(self, kind: type[T]) -> T:
        """Return the object of this type, or the only one of a subclass.

        Raises:
            LookupError: there is none, or there are several of subclasses.
        """
        found = self._objects.get(kind)
        if isinstance(found, kind):
            return found
        several = [each for each in self._objects.values() if isinstance(each, kind)]
        if len(several) == 1:
            return several[0]
        got = ", ".join(each.__name__ for each in self._objects) or "none"
        raise LookupError(f"expected one {kind.__name__} in deps, got {got}: Engine(…, deps=[…])")


NO_DEPS: Final = Deps()


ProgressCallback = Callable[[float, float | None, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """The identity of a running call, and its application objects.

    Attributes:
        run_id: the run that calls.
        call_id: the model's name for the call.
        idempotency_key: the same each time this call is made: hand it to whom you call.
        tenant: who owns the run.
        user: who started it.
        traceparent: the header of this name to send with requests to services of yours, so that
            what they record hangs under this call in the application's trace; None if the run was
            started within no trace. It is nothing for hosts of strangers.
        tracestate: the header of this name, None if there is none.
        deps: the application's own objects, as given to the engine.
        on_progress: takes what `progress` reports; None where the caller shows no progress.
    """

    run_id: str
    call_id: str
    idempotency_key: str
    tenant: str | None = None
    user: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    deps: Deps = field(default=NO_DEPS, repr=False, compare=False)
    on_progress: ProgressCallback | None = field(default=None, repr=False, compare=False)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report how far the call is, from any thread; MCP clients show it, others do not.

        Args:
            done: grows with each report; one that does not grow is left out.
            total: what `done` will be at the end, None if unknown.
            message: what is being done.
        """
        if self.on_progress is not None:
            self.on_progress(done, total, message)


ToolCallable = Callable[[Mapping[str, Any], ToolContext], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function with a name, a schema and declarations; `@tool` makes one from a typed function.

    Attributes:
        name: how the model calls it: letters, digits, "_" and "-", at most 64.
        description: what it does and when to use it, written for the model.
        input_schema: JSON schema of its arguments, an object.
        call: gets the arguments and the context; returns text or plain data, or raises
            `ToolError`. It checks its arguments itself.
        output_schema: JSON schema of what it returns, for clients that want to know.
        effects: what calling it again would do; see `Effects`.
        timeout_s: how long one call may take; None is unlimited.
        approval: whether a person must approve a call, or a predicate over its arguments.
        untrusted_output: whether strangers can write into its output, which is then fenced.
        max_output_chars: how much of its output the model gets.
        check: tells what became of a `once` call whose process died: it takes the arguments and,
            as a second parameter if it has one, the context, and returns `Happened(output)`,
            `DidNotHappen()` or `CannotTell()`; sync (run in a thread) or async. The call is then
            completed, made, or its outcome is unknown. A check that raises, or takes longer than
            `timeout_s`, cannot tell.
        repeat_after_unknown: what happens when a model makes the same call again, with the same
            arguments, after one of the same run whose outcome is unknown; see
            `RepeatAfterUnknown`. Calls of tools that only read (`none`) are made in any case.
        version: names this definition, where it can change while runs go on, as that of a server's
            tool can. It is recorded with each call: a call that was approved under another version
            goes back to the person, and one that was recorded under another is not made.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    call: ToolCallable
    output_schema: Mapping[str, Any] | None = None
    annotations: ToolAnnotations = field(default_factory=ToolAnnotations)
    effects: Effects = "once"
    timeout_s: float | None = 60.0
    approval: bool | Callable[[Mapping[str, Any]], bool] = False
    untrusted_output: bool = False
    max_output_chars: int = 20_000
    check: CheckCallable | None = None
    repeat_after_unknown: RepeatAfterUnknown = "ask"
    version: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no model or provider could call."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"tool name {self.name!r} is not 1 to 64 letters, digits, '_' or '-': rename it"
            )
        if self.max_output_chars < 1:
            raise ValueError(f"max_output_chars is at least 1, not {self.max_output_chars}")
        if self.effects not in get_args(Effects):  # else a misspelt "once" would be made again
            raise ValueError(
                f"tool {self.name!r}: effects is 'none', 'idempotent' or 'once', "
                f"not {self.effects!r}"
            )
        if self.repeat_after_unknown not in get_args(RepeatAfterUnknown):
            raise ValueError(
                f"tool {self.name!r}: repeat_after_unknown is 'ask' or 'allow', "
                f"not {self.repeat_after_unknown!r}"
            )
        if self.check is not None:
            self._refuse_useless_check()

    def _refuse_useless_check(self) -> None:
        if not callable(self.check):
            raise TypeError(
                f"tool {self.name!r}: check is a function that tells what became of a call, "
                f"got {type(self.check).__name__}"
            )
        if self.effects != "once":
            raise ValueError(
                f"tool {self.name!r}: a check is for effects='once', got effects={self.effects!r}: "
                "such a call is made again without asking, leave check= out"
            )

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it: name, description and schema of the arguments."""
        return ToolSpec(self.name, self.description, dict(self.input_schema))

    def needs_approval(self, arguments: Mapping[str, Any]) -> bool:
        """Return True if a person must approve this call."""
        return self.approval if isinstance(self.approval, bool) else self.approval(arguments)


MAX_SCHEMA_CHARS: Final = 32_000
MAX_SCHEMA_DEPTH: Final = 32


def foreign_schema_fault(schema: Mapping[str, Any]) -> str | None:
    """Return what keeps a stranger's schema of arguments from being given to a model.

    None if nothing does. It is not read beyond that: its patterns may take for ever.
    """
    if schema.get("type") != "object":
        return "its input schema is not that of an object"
    if not isinstance(schema.get("properties", {}), dict):
        return "its input schema has properties that are no object"
    if _is_deeper(schema, MAX_SCHEMA_DEPTH):
        return f"its input schema is nested deeper than {MAX_SCHEMA_DEPTH}"
    if len(canonical(schema)) > MAX_SCHEMA_CHARS:
        return f"its input schema is longer than {MAX_SCHEMA_CHARS} characters"
    return None


def _is_deeper(value: Any, depth: int) -> bool:
    match value:
        case dict():
            children = list(cast("dict[str, Any]", value).values())
        case list():
            children = cast("list[Any]", value)
        case _:
            return False
    return depth == 0 or any(_is_deeper(child, depth - 1) for child in children)


_SHOWN_CHARS: Final = 64


class ToolRegistry:
    """Tools with distinct names, in the order in which they were given."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        """Keep the tools.

        Raises:
            TypeError: one is no `Tool`, or a single one or its name was given.
            ValueError: two of them have one name.
        """
        if isinstance(tools, Tool):
            raise TypeError(f"expected tools as a list, got a tool: write [{tools.name}]")
        if isinstance(tools, str) or not hasattr(tools, "__iter__"):
            got = type(tools).__name__
            raise TypeError(f"expected tools as a list, such as [refund], got {got}")
        self._tools: dict[str, Tool] = {}
        for tool in cast(Iterable[object], tools):
            if not isinstance(tool, Tool):
                raise TypeError(
                    f"expected a Tool, got {tool!r:.100}: write @tool before the function"
                )
            if tool.name in self._tools:
                raise ValueError(f"two tools are named {tool.name!r}: rename one of them")
            self._tools[tool.name] = tool

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def get(self, name: str, *, among: Sequence[str] | None = None) -> Tool:
        """Return the tool of this name.

        Args:
            name: as the model wrote it.
            among: the names that it may use, None for all.

        Raises:
            ToolError: there is none; the message names a close one.
        """
        usable = [tool_name for tool_name in self._tools if among is None or tool_name in among]
        if name in usable:
            return self._tools[name]
        close = get_close_matches(name, usable, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there is {', '.join(usable) or 'none'}"
        raise ToolError("not_found", f"no tool is named {name[:_SHOWN_CHARS]!r}: {hint}")
