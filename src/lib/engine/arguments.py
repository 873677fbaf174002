"""What is easily given in place of something else: refused where it enters, with the way out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from typing import TypeAlias, TypeVar

from lib.llm import Message

T = TypeVar("T")

Input: TypeAlias = str | Message | Sequence[Message]
"""What a user says: text, a message, or a conversation."""


def type_label(given: object) -> str:
    """Return what people call it: its type, or that it is a class itself."""
    return f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__


def as_list(given: Iterable[T], what: str, example: str) -> list[T]:
    """Return what was given as a list.

    Raises:
        TypeError: it is one thing alone, or text.
    """
    if isinstance(given, type | str | bytes) or not hasattr(given, "__iter__"):
        raise TypeError(f"{what} are given as a list, such as {example}, got {type_label(given)}")
    return list(given)


def require_attribute(given: object, name: str, told: str) -> None:
    """Refuse what has no such attribute, and a class in place of an instance.

    Raises:
        TypeError: it says what was given, and goes on with what was told.
    """
    if isinstance(given, type) or not hasattr(given, name):
        raise TypeError(f"{type_label(given)} {told}")


def require_optional_text(**names: object) -> None:
    """Refuse a name that is neither text nor None, such as the number that a database gives.

    Raises:
        TypeError: one is.
    """
    for name, given in names.items():
        if given is not None and not isinstance(given, str):
            told = f"{name} is text or None, got {type_label(given)}"
            raise TypeError(f"{told}: write {name}=str(…)")


def require_nonempty_key(idempotency_key: object) -> None:
    """Refuse a key that is empty: all that lacks one would be taken for the same.

    Raises:
        ValueError: it is.
    """
    if idempotency_key == "":
        raise ValueError("an idempotency key has at least one character")


def require_text(**texts: object) -> None:
    """Refuse what is no text where it is to be written into a log.

    Raises:
        TypeError: one is none.
    """
    for name, given in texts.items():
        if not isinstance(given, str):
            raise TypeError(f"{name} is text, got {type_label(given)}")


def as_run_id(given: object) -> str:
    """Return the id of a run.

    Raises:
        TypeError: it is none, such as a handle on the run.
    """
    if not isinstance(given, str):
        told = f"a run is named by its id, a text, got {type_label(given)}"
        raise TypeError(f"{told}: write its .id" if hasattr(given, "id") else told)
    return given


def check_wait(wait: object, timeout_s: object) -> None:
    """Refuse what is no way to wait for a result.

    Raises:
        TypeError: `wait` is no bool, or `timeout_s` no number.
        ValueError: `timeout_s` is negative or NaN, or goes with `wait=False`.
    """
    if not isinstance(wait, bool):
        raise TypeError(
            f"wait is True or False, got {type_label(wait)}: timeout_s= bounds the wait"
        )
    if timeout_s is None:
        return
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise TypeError(f"timeout_s is a number of seconds or None, got {type_label(timeout_s)}")
    if isnan(timeout_s) or timeout_s < 0:
        raise ValueError(f"timeout_s is 0 or more seconds, got {timeout_s!r}")
    if not wait:
        raise ValueError("expected wait=False or timeout_s=, got both: wait=False never waits")


def as_messages(given: Input) -> list[Message]:
    """Return what was given as messages; text is the user's.

    Raises:
        TypeError: it is neither text nor messages.
    """
    if isinstance(given, str):
        return [Message.user(given)]
    if isinstance(given, Message):
        return [given]
    if isinstance(given, type | bytes | Mapping) or not hasattr(given, "__iter__"):
        raise _no_message(type_label(given))
    messages = list(given)
    for message in messages:
        if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance] - not all callers are typed
            raise _no_message(f"{type_label(given)} of {type_label(message)}")
    return messages


def _no_message(got: str) -> TypeError:
    told = f"what is said is text, a Message or a list of them, got {got}"
    return TypeError(f"{told}: Message.user(…) makes one")
