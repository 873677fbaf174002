"""Replies that must have a shape: the schema of an output, and the value that came."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from lib._util.json import parse
from lib.errors import InvalidReply
from lib.llm.api.fields import is_shallow
from lib.llm.client import Output, Reply
from lib.llm.schema import violations

if TYPE_CHECKING:
    from pydantic import BaseModel

    M = TypeVar("M", bound=BaseModel)

MAX_PROBLEMS: Final = 5
_FENCED: Final = re.compile(r"\A```[a-zA-Z]*\n(.*)\n```\Z", re.DOTALL)


def output_schema(output: Output) -> dict[str, Any]:
    """Return the JSON schema of an output.

    Raises:
        TypeError: it is neither a JSON schema nor a pydantic model.
    """
    if isinstance(output, Mapping):
        return dict(output)
    if isinstance(output, type) and hasattr(output, "model_json_schema"):  # pyright: ignore[reportUnnecessaryIsInstance] - checked for callers without a type checker
        return output.model_json_schema()
    raise TypeError(f"output is a JSON schema or a pydantic model, got {type(output).__name__}")


@overload
def parse_output(reply: Reply, output: type[M]) -> M: ...
@overload
def parse_output(reply: Reply, output: Mapping[str, Any]) -> Any: ...
def parse_output(reply: Reply, output: Output) -> Any:
    """Return the value that the reply's text holds: an instance of the model, or plain JSON.

    A fence of Markdown around the JSON is forgiven.

    Raises:
        InvalidReply: the reply was cut short or declined, is not JSON, or does not fit; the
            message names what to correct, and does not quote the reply.
    """
    if reply.stop == "length":
        raise InvalidReply("the reply was cut off at its token limit")
    if reply.stop == "content_filter":
        raise InvalidReply("the model declined to answer")
    text = reply.text.strip()
    if fenced := _FENCED.match(text):
        text = fenced[1]
    return _plain(text, output) if isinstance(output, Mapping) else _instance(text, output)


def _plain(text: str, schema: Mapping[str, Any]) -> Any:
    try:
        value = parse(text)
    except (ValueError, RecursionError):
        raise InvalidReply("the reply is not JSON") from None
    if not is_shallow(value):
        raise InvalidReply("the reply is nested too deeply")
    try:
        problems = [*islice(violations(value, schema), MAX_PROBLEMS)]
    except ValueError as error:
        raise InvalidReply(f"the reply cannot be checked: {error}") from None
    if problems:
        raise _mismatch(problems)
    return value


def _instance(text: str, model: type[BaseModel]) -> BaseModel:
    from pydantic import ValidationError  # noqa: PLC0415 - loaded with the caller's model anyway

    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        problems = [f"{_place(problem['loc'])}: {problem['msg']}" for problem in error.errors()]
        raise _mismatch(problems[:MAX_PROBLEMS]) from None  # pydantic's own text quotes the reply


def _place(steps: tuple[int | str, ...]) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return path.lstrip(".") or "the value"


def _mismatch(problems: Sequence[str]) -> InvalidReply:
    return InvalidReply(f"the reply does not fit the output schema: {'; '.join(problems)}")
