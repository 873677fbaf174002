"""`@tool`: a typed function becomes a `Tool`; its signature is the schema."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, ParamSpec, TypeVar, Unpack, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from lib.errors import ToolError
from lib.tools.checks import CheckCallable, CheckResult
from lib.tools.definition import (
    Effects,
    RepeatAfterUnknown,
    Tool,
    ToolAnnotations,
    ToolContext,
)

_log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
Function = Callable[..., Any]

MAX_FAULTS: Final = 5
"""How many wrong arguments one error message names."""


class ToolOptions(TypedDict, total=False):
    """The options of `@tool`; see `Tool`.

    A `check` here is a typed function like the tool's own: it names those of the tool's parameters
    that it needs, and a parameter annotated `ToolContext` gets the context.
    """

    name: str
    description: str
    effects: Effects
    timeout_s: float | None
    approval: bool | Callable[[Mapping[str, Any]], bool]
    annotations: ToolAnnotations
    output_schema: Mapping[str, Any]
    untrusted_output: bool
    max_output_chars: int
    check: CheckCallable | None
    repeat_after_unknown: RepeatAfterUnknown


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTool(Tool, Generic[P, R]):
    """A tool that can still be called as the function that it is: `refund(7)`.

    A direct call runs the function alone: nothing is recorded, checked or approved.

    Attributes:
        function: the function.
    """

    function: Callable[P, R]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    @property
    def __wrapped__(self) -> Callable[P, R]:
        """The function, for `inspect.signature` and the like."""
        return self.function


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    **options: Unpack[ToolOptions],
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a tool of a typed function, sync (run in a thread) or async.

    The tool stays callable as the function that it is.

    The name and the docstring become the tool's; a model knows what a tool is for by its
    description alone, so one without is logged as a warning. Each parameter needs an annotation,
    and a `pydantic.Field` in `Annotated` describes it. A parameter annotated `ToolContext` gets the
    context and is not shown to the model. Unknown arguments are refused.

    Raises:
        TypeError: a parameter has no annotation or one that cannot be resolved, is `*args`,
            `**kwargs` or positional only, or has a `Field` as its default; or the check has a
            parameter that the tool has not.
        ValueError: the name is none that a model can call, `effects` is none that there is, or
            there is a check and `effects` is not "once".
    """
    if function is None:
        return lambda decorated: _make(decorated, options)
    return _make(function, options)


def _make(function: Callable[P, R], options: ToolOptions) -> FunctionTool[P, R]:
    arguments, context_name = _arguments_model(function)
    description = inspect.getdoc(function) or ""
    if not description and "description" not in options:
        _log.warning(
            "tool %r has no description, by which a model tells what it is for: "
            "write a docstring, or give description=",
            options.get("name", function.__name__),
        )
    made = FunctionTool(
        function=function,
        name=options.get("name", function.__name__),
        description=description,
        input_schema=_schema(arguments),
        call=_caller(function, arguments, context_name),
    )
    if (check := options.get("check")) is not None and callable(check):
        bound = _check_caller(check, arguments, options.get("name", function.__name__))
        options = {**options, "check": bound}
    return replace(made, **options)


def _arguments_model(function: Function) -> tuple[type[BaseModel], str | None]:
    """Return a model of the parameters, and the name of the one that takes the context."""
    hints = _hints(function)
    fields: dict[str, Any] = {}
    context_name: str | None = None
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"tool {function.__name__!r}: a model cannot fill {parameter}")
        if isinstance(parameter.default, FieldInfo):
            raise TypeError(f"tool {function.__name__!r}: write {name!r} as Annotated[…, Field(…)]")
        if name not in hints:
            way_out = (
                "make the tool of the bound method, tool(instance.method)"
                if name in ("self", "cls")
                else f"write {name}: str, or the type that it has"
            )
            raise TypeError(
                f"tool {function.__name__!r}: parameter {name!r} has no annotation: {way_out}"
            )
        if hints[name] is ToolContext:
            context_name = name
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        # The alias keeps names that a model's own attributes would shadow, such as "schema".
        fields[f"arg_{name}"] = (hints[name], Field(default, alias=name))
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    return create_model(function.__name__, __config__=config, **fields), context_name


def _hints(function: Function) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"tool {function.__name__!r}: an annotation cannot be resolved ({error}): "
            "write types that its module knows"
        ) from error


def _schema(arguments: type[BaseModel]) -> dict[str, Any]:
    schema = arguments.model_json_schema()
    schema.pop("title", None)
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
    return schema


def _caller(
    function: Function, arguments: type[BaseModel], context_name: str | None
) -> Callable[[Mapping[str, Any], ToolContext], Awaitable[Any]]:
    names = {name: name.removeprefix("arg_") for name in arguments.model_fields}

    async def call(values: Mapping[str, Any], context: ToolContext) -> Any:
        try:
            checked = arguments.model_validate(dict(values))
        except ValidationError as error:
            raise ToolError("invalid_arguments", explain(error)) from error
        bound = {python: getattr(checked, name) for name, python in names.items()}
        if context_name is not None:
            bound[context_name] = context
        if inspect.iscoroutinefunction(function):
            return await function(**bound)
        return await asyncio.to_thread(function, **bound)

    return call


def _check_caller(
    check: CheckCallable, arguments: type[BaseModel], tool_name: str
) -> Callable[[Mapping[str, Any], ToolContext], Awaitable[CheckResult]]:
    """Return the check as a function of all arguments and the context."""
    hints = get_type_hints(check if inspect.isroutine(check) else type(check).__call__)
    names = {name.removeprefix("arg_"): name for name in arguments.model_fields}
    parameters = inspect.signature(check).parameters
    taken = [name for name in parameters if name in names or hints.get(name) is ToolContext]
    for name, parameter in parameters.items():
        by_name = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if not by_name or (name not in taken and parameter.default is parameter.empty):
            raise TypeError(
                f"tool {tool_name!r}: its check has the parameter {str(parameter)!r}, the tool has "
                f"{', '.join(names) or 'none'}: a check takes parameters of the tool by name, and "
                "one annotated ToolContext"
            )

    async def ask(values: Mapping[str, Any], context: ToolContext) -> CheckResult:
        checked = arguments.model_validate(dict(values))
        bound = {
            name: context if hints.get(name) is ToolContext else getattr(checked, names[name])
            for name in taken
        }
        if inspect.iscoroutinefunction(check):
            return await check(**bound)
        answer = await asyncio.to_thread(check, **bound)
        return await answer if inspect.isawaitable(answer) else answer

    return ask


def explain(error: ValidationError) -> str:
    """Return what is wrong with the arguments, for the model: where, what, and nothing given."""
    faults = [
        f"{'.'.join(str(part) for part in fault['loc']) or 'arguments'}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    more = [f"and {len(faults) - MAX_FAULTS} more"] if len(faults) > MAX_FAULTS else []
    return "; ".join([*faults[:MAX_FAULTS], *more])
