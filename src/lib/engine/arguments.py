"""Checks of arguments: a wrong one is refused where it enters, with the way out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import isnan
from typing import Any, Final, TypeAlias, TypeVar

from lib._util.json import canonical, copied
from lib.content.hygiene import clean
from lib.llm import Message, ToolSpec
from lib.tools.definition import foreign_schema_fault

T = TypeVar("T")

Input: TypeAlias = str | Message | Sequence[Message]
"""What a user says: text, a message, or a conversation."""


def type_label(value: object) -> str:
    """Return how a message names a value: its type, or the class that it is."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def as_list(value: Iterable[T], what: str, example: str) -> list[T]:
    """Return the values as a list.

    Raises:
        TypeError: it is a single value, or text.
    """
    if isinstance(value, type | str | bytes) or not hasattr(value, "__iter__"):
        raise TypeError(f"expected {what} as a list, such as {example}, got {type_label(value)}")
    return list(value)


def as_settings(value: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings of model calls, which the log has to take; None is for none.

    Raises:
        TypeError: they are no mapping, or a value is not JSON.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - not all callers are typed
        example = "{'temperature': 0}"
        message = f"expected settings as a mapping, such as {example}, got {type_label(value)}"
        raise TypeError(message)
    settings = dict(value)
    try:
        canonical(settings)
    except (TypeError, ValueError) as error:
        raise TypeError(f"expected settings of JSON values: {error}") from error
    return settings


def require_attribute(value: object, name: str, expected: str, way_out: str) -> None:
    """Refuse a value without this attribute, and a class in place of an instance.

    Raises:
        TypeError: names the expected thing, the type of the value, and the way out.
    """
    if isinstance(value, type) or not hasattr(value, name):
        raise TypeError(f"expected {expected}, got {type_label(value)}: {way_out}")


def require_optional_text(**names: object) -> None:
    """Refuse a name that is neither text nor None, such as the number that a database gives.

    Raises:
        TypeError: one is.
    """
    for name, value in names.items():
        if value is not None and not isinstance(value, str):
            message = f"expected text or None as {name}, got {type_label(value)}"
            raise TypeError(f"{message}: write {name}=str(…)")


def require_nonempty_key(idempotency_key: object) -> None:
    """Refuse an empty key: all starts that lack one would count as the same.

    Raises:
        ValueError: it is.
    """
    if idempotency_key == "":
        raise ValueError("expected an idempotency key, got an empty text: None is for no key")


def require_text(**texts: object) -> None:
    """Refuse a value that is no text where a log takes text.

    Raises:
        TypeError: one is no text.
    """
    for name, value in texts.items():
        if not isinstance(value, str):
            raise TypeError(f"expected text as {name}, got {type_label(value)}")


def as_run_id(value: object) -> str:
    """Return the id of a run.

    Raises:
        TypeError: it is no text, such as a handle on the run.
    """
    if not isinstance(value, str):
        message = f"expected the id of a run, got {type_label(value)}"
        raise TypeError(f"{message}: write its .id" if hasattr(value, "id") else message)
    return value


def check_wait(wait: object, timeout_s: object) -> None:
    """Refuse arguments by which no result can be awaited.

    Raises:
        TypeError: `wait` is no bool, or `timeout_s` no number.
        ValueError: `timeout_s` is negative or NaN, or goes with `wait=False`.
    """
    if not isinstance(wait, bool):
        raise TypeError(
            f"expected True or False as wait, got {type_label(wait)}: timeout_s= bounds the wait"
        )
    if timeout_s is None:
        return
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise TypeError(f"expected seconds or None as timeout_s, got {type_label(timeout_s)}")
    if isnan(timeout_s) or timeout_s < 0:
        raise ValueError(f"expected 0 or more seconds as timeout_s, got {timeout_s!r}")
    if not wait:
        raise ValueError("expected wait=False or timeout_s=, got both: wait=False never waits")


def as_messages(value: Input) -> list[Message]:
    """Return the input as messages; text is a message of the user.

    Raises:
        TypeError: it is neither text nor messages.
    """
    if isinstance(value, str):
        return [Message.user(value)]
    if isinstance(value, Message):
        return [value]
    if isinstance(value, type | bytes | Mapping) or not hasattr(value, "__iter__"):
        raise _no_message(type_label(value))
    messages = list(value)
    for message in messages:
        if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance] - not all callers are typed
            raise _no_message(f"{type_label(value)} of {type_label(message)}")
    return messages


MAX_CLIENT_TOOLS: Final = 64
_MAX_DESCRIPTION_CHARS: Final = 4_000
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def as_client_tools(tools: Iterable[ToolSpec], taken: Collection[str]) -> list[dict[str, Any]]:
    """Return the tools of a run's client as JSON.

    Args:
        tools: whose calls the client makes.
        taken: names of tools that the agent has.

    Raises:
        TypeError: one is no `ToolSpec`, or is not in a list.
        ValueError: there are too many; or one has a name that is taken, twice there or malformed,
            or is too long, or has a schema that no model could be given.
    """
    listed = as_list(tools, "client_tools", "[ToolSpec('mark', '…', {'type': 'object'})]")
    if len(listed) > MAX_CLIENT_TOOLS:
        raise ValueError(f"expected at most {MAX_CLIENT_TOOLS} tools of a client")
    found: dict[str, dict[str, Any]] = {}
    for spec in listed:
        if not isinstance(spec, ToolSpec):  # pyright: ignore[reportUnnecessaryIsInstance] - not all callers are typed
            raise TypeError(f"expected client_tools as a list of ToolSpec, got {type_label(spec)}")
        fault = _fault(spec, {*taken, *found})
        if fault is not None:
            raise ValueError(f"the client's tool {spec.name[:64]!r} cannot be offered: {fault}")
        found[spec.name] = {
            "name": spec.name,
            "description": clean(spec.description),
            "input_schema": copied(dict(spec.input_schema)),
        }
    return list(found.values())


def _fault(spec: ToolSpec, taken: Collection[str]) -> str | None:
    if not _TOOL_NAME.fullmatch(spec.name):
        return "its name is not 1 to 64 letters, digits, '_' or '-'"
    if spec.name in taken:
        return "another tool has this name"
    if len(spec.description) > _MAX_DESCRIPTION_CHARS:
        return f"its description is longer than {_MAX_DESCRIPTION_CHARS} characters"
    return foreign_schema_fault(spec.input_schema)


def _no_message(got: str) -> TypeError:
    message = f"expected text, a Message or a list of them as input, got {got}"
    return TypeError(f"{message}: use Message.user(…)")
