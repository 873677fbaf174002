"""Checks the fields that readers of an event rely on, by its kind. Pure.

Every store refuses an event that lacks a required field or holds another type in its place, and
every fold ignores such an event of an older release. The other fields that `lib.events.kinds` names
are optional, and have their type where they are present. Unknown fields and unknown kinds are not
checked, so that a log of a newer release can be read and written.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from lib.errors import InvalidEvent
from lib.events import kinds as k
from lib.events.event import Event

_LARGEST: Final = 2**63  # sums of such numbers are still finite
_ROLES: Final = frozenset({"system", "user", "assistant", "tool"})


def payload_fault(kind: str, data: object) -> str | None:
    """Return the fault of an event's payload as a message, None if it has none."""
    shape = _SHAPES.get(kind)
    return None if shape is None else _fault(shape, data)


def _fault(shape: _Shape, data: object) -> str | None:
    if shape.test(data):
        return None
    if not isinstance(data, dict):
        return f"expected a JSON object, got {type(data).__name__}"
    fields = cast("dict[str, Any]", data)
    for name, check in shape.required:
        if name not in fields:
            return f"expected {check.name} in {name!r}, got nothing"
    wrong = (
        f"expected {check.name} in {name!r}, got {_described(fields[name])}"
        for name, check in (*shape.required, *shape.optional)
        if name in fields and not check.test(fields[name])
    )
    return next(wrong)


def fits(kind: str, data: Any) -> bool:
    """Return True if a payload has the fields that readers of its kind rely on."""
    shape = _SHAPES.get(kind)
    return shape is None or shape.test(data)


def fitting(kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a payload that have their type."""
    shape = _SHAPES.get(kind)
    if shape is None:
        return dict(data)
    checks = dict((*shape.required, *shape.optional))
    return {
        name: value
        for name, value in data.items()
        if name not in checks or checks[name].test(value)
    }


def readable(event: Event) -> Event:
    """Return the event without the fields that have a wrong type, itself if it has none.

    The other fields of a run's start still show its owner.
    """
    if fits(event.kind, event.data):
        return event
    return replace(event, data=fitting(event.kind, event.data))


def check_payload(kind: str, data: object) -> None:
    """Refuse a payload without the fields that readers of its kind rely on.

    Raises:
        InvalidEvent: a field is missing, or has another type.
    """
    if not fits(kind, data):
        raise InvalidEvent(kind, payload_fault(kind, data) or "it is malformed")


def check_signal(kind: str, data: object) -> None:
    """Refuse the payload of a caller's signal, also for fields that only callers must give.

    Raises:
        InvalidEvent: a field is missing, or has another type.
        TypeError: it is not a dict.
    """
    if not isinstance(data, dict):
        raise TypeError(f"expected a dict as the payload of a signal, got {type(data).__name__}")
    fields = cast("dict[str, Any]", data)
    check_payload(kind, {"signal_id": "", **fields})  # the engine adds the id later
    if kind in _OF_CALLERS and (fault := _fault(_OF_CALLERS[kind], fields)) is not None:
        raise InvalidEvent(kind, fault)


def _described(value: object) -> str:
    return "one with other fields" if isinstance(value, dict | list) else type(value).__name__


# -- checks --------------------------------------------------------------------------------

Test = Callable[[Any], bool]


class _Check(NamedTuple):
    """A type of field.

    Attributes:
        name: for error messages.
        test: returns True for a value of this type.
        exact: a class whose every instance passes; comparing classes is cheaper than a call.
    """

    name: str
    test: Test
    exact: type | None = None


class _Shape(NamedTuple):
    """The fields of an object; others are ignored."""

    required: tuple[tuple[str, _Check], ...]
    optional: tuple[tuple[str, _Check], ...]
    test: Test


def _shape(required: Mapping[str, _Check] | None = None, **optional: _Check) -> _Shape:
    needed = required or {}
    names, checks = frozenset(needed), {**needed, **optional}

    def test(value: Any) -> bool:  # of every event that is appended, and when it is folded
        if not isinstance(value, dict):
            return False
        fields = cast("dict[str, Any]", value)
        if not names <= fields.keys():
            return False
        for name, found in fields.items():
            check = checks.get(name)
            if check is not None and found.__class__ is not check.exact and not check.test(found):
                return False
        return True

    return _Shape(tuple(needed.items()), tuple(optional.items()), test)


def _object(name: str, required: Mapping[str, _Check] | None = None, **optional: _Check) -> _Check:
    return _Check(name, _shape(required, **optional).test)


def _or_null(check: _Check) -> _Check:
    def test(value: Any) -> bool:
        return value is None or check.test(value)

    return _Check(f"{check.name} or null", test)


def _list(check: _Check) -> _Check:
    def test(value: Any) -> bool:
        if not isinstance(value, list | tuple):
            return False
        for each in cast("list[Any]", value):  # noqa: SIM110 - a generator costs more than the rest
            if not check.test(each):
                return False
        return True

    return _Check(f"a list, each of it {check.name}", test)


def _is_number(value: Any) -> bool:
    is_one = value.__class__ is int or isinstance(value, int | float)
    return is_one and value.__class__ is not bool and -_LARGEST < value < _LARGEST


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value.__class__ is not bool and 0 <= value < _LARGEST


def _is_amount(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_judgement(value: Any) -> bool:
    return isinstance(value, str | bool) or _is_number(value)


def _instance(name: str, exact: type) -> _Check:
    def test(value: Any) -> bool:
        return isinstance(value, exact)

    return _Check(name, test, exact)


_TEXT: Final = _instance("a text", str)
_TRUTH: Final = _instance("true or false", bool)
_OBJECT: Final = _instance("an object", dict)
_NUMBER: Final = _Check("a number below 2**63", _is_number)
_COUNT: Final = _Check("a whole number from 0 on", _is_count)
_AMOUNT: Final = _Check("a number from 0 on", _is_amount)
_JUDGEMENT: Final = _Check("a number, true, false or a text", _is_judgement)
_TEXT_OR_NULL: Final = _or_null(_TEXT)

# -- parts of payloads ---------------------------------------------------------------------


def _is_base64(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        base64.b64decode(value, validate=True)
    except ValueError:
        return False
    return True


def _is_size(value: Any) -> bool:
    return type(value) is int


_BASE64: Final = _Check("base64", _is_base64)
_BLOB: Final = _object(
    "a blob reference {$blob, size, type}",
    {"$blob": _TEXT, "size": _Check("bytes", _is_size), "type": _TEXT},
)
_ATTACHMENT: Final = _shape(
    None,
    data=_or_null(_BASE64),
    blob=_or_null(_BLOB),
    url=_TEXT_OR_NULL,
    media_type=_TEXT_OR_NULL,
    name=_TEXT_OR_NULL,
)


def _is_attachment(value: Any) -> bool:
    if not _ATTACHMENT.test(value):
        return False
    sources = [value.get(name) for name in ("data", "blob", "url")]
    has_type = sources[0] is None or bool(value.get("media_type"))
    return sum(source is not None for source in sources) == 1 and has_type


_PARTS: Final[Mapping[str, Test]] = {
    "text": _shape({"text": _TEXT}).test,
    "thinking": _shape({"text": _TEXT}, signature=_TEXT_OR_NULL).test,
    "tool_call": _shape(
        {"id": _TEXT, "name": _TEXT}, arguments=_OBJECT, invalid=_TEXT_OR_NULL
    ).test,
    "tool_result": _shape({"call_id": _TEXT, "content": _TEXT}).test,
    **dict.fromkeys(("image", "audio", "file"), _is_attachment),
}


def _is_part(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    kind = cast("dict[str, Any]", value).get("type")
    if not isinstance(kind, str):
        return False
    test = _PARTS.get(kind)  # parts of a newer release are not checked
    return test is None or test(value)


_PART_LIST: Final = _list(_Check("a part", _is_part))


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    message = cast("dict[str, Any]", value)
    role, content, parts = message.get("role"), message.get("content"), message.get("parts")
    if not isinstance(role, str) or role not in _ROLES:
        return False
    if isinstance(content, str):
        return not isinstance(parts, list)
    return isinstance(parts, list) and _PART_LIST.test(parts)


_MESSAGES: Final = _list(_Check("a message", _is_message))
_TOOL_LIST: Final = _list(
    _object("a tool {name, description, input_schema}", {"name": _TEXT, "input_schema": _OBJECT})
)
_USAGE: Final = _object(
    "usage",
    input_tokens=_NUMBER,
    output_tokens=_NUMBER,
    cache_read_tokens=_NUMBER,
    cache_write_tokens=_NUMBER,
    cache_write_1h_tokens=_NUMBER,
    reasoning_tokens=_NUMBER,
    cost=_or_null(_NUMBER),
)
_ERROR: Final = _object("an error {type, message}", type=_TEXT, message=_TEXT)
_REPLY: Final = _object(
    "a reply {parts, …}",
    parts=_PART_LIST,
    usage=_USAGE,
    model=_TEXT,
    id=_TEXT,
    state=_or_null(_OBJECT),
    request_id=_TEXT,
)
_SPEND: Final = _object(
    "a spend",
    tokens=_NUMBER,
    cost=_or_null(_NUMBER),
    llm_calls=_NUMBER,
    tool_calls=_NUMBER,
    seconds=_NUMBER,
)
_CEILINGS: Final = _object(
    "a budget",
    **dict.fromkeys(
        ("tokens", "cost", "llm_calls", "tool_calls", "seconds", "depth"), _or_null(_AMOUNT)
    ),
)
_PARENT: Final = _object("a parent {run_id, key}", {"run_id": _TEXT}, key=_TEXT)

# -- kinds ---------------------------------------------------------------------------------

_CALL: Final = {"key": _TEXT, "call_id": _TEXT}
_CALLED: Final = {**_CALL, "name": _TEXT, "args": _OBJECT}
_ENDED: Final = {"output": _TEXT, "reason": _TEXT, "error": _ERROR, "spend": _SPEND}

_SHAPES: Final[Mapping[str, _Shape]] = {
    k.RUN_STARTED: _shape(
        {"algorithm": _TEXT},
        input=_MESSAGES,
        config=_OBJECT,
        budget=_CEILINGS,
        root=_TEXT,
        parent=_or_null(_PARENT),
        request=_TEXT,
        upto=_COUNT,
        client_tools=_TOOL_LIST,
        traceparent=_TEXT,
        tracestate=_TEXT,
    ),
    k.RUN_RESUMED: _shape(None, worker=_TEXT, epoch=_COUNT, error=_ERROR),
    k.LEASE_LOST: _shape({"epoch": _COUNT}, signal_id=_TEXT, worker=_TEXT),
    k.RUN_COMPLETED: _shape({"outcome": _TEXT}, output=_TEXT, reason=_TEXT, error=_ERROR),
    k.CANCEL_REQUESTED: _shape(None, signal_id=_TEXT, reason=_TEXT, key=_TEXT),
    k.CLOSE_REQUESTED: _shape(None, signal_id=_TEXT),
    k.LLM_REQUESTED: _shape(
        {"key": _TEXT},
        upto=_COUNT,
        digest=_TEXT,
        model=_TEXT,
        provider=_TEXT,
        settings=_OBJECT,
        tools_digest=_TEXT,
        agent=_TEXT,
        epoch=_COUNT,
    ),
    k.LLM_COMPLETED: _shape(
        {"key": _TEXT, "reply": _REPLY}, attempts=_COUNT, misfit=_TEXT, empty=_TRUTH
    ),
    k.LLM_FAILED: _shape(
        {"key": _TEXT}, reason=_TEXT, error=_ERROR, attempts=_COUNT, usage=_USAGE, model=_TEXT
    ),
    k.TOOL_REQUESTED: _shape(
        _CALL,
        name=_TEXT,
        args=_OBJECT,
        effects=_TEXT,
        idempotency_key=_TEXT,
        invalid=_TEXT,
        version=_TEXT,
        agent=_TEXT,
        epoch=_COUNT,
    ),
    k.TOOL_CHECKED: _shape({"key": _TEXT, "answer": _TEXT}, call_id=_TEXT, reason=_TEXT),
    k.TOOL_COMPLETED: _shape({"key": _TEXT}, call_id=_TEXT, output=_TEXT, truncated=_COUNT),
    k.TOOL_FAILED: _shape({"key": _TEXT}, call_id=_TEXT, reason=_TEXT, code=_TEXT, message=_TEXT),
    k.TOOL_AWAITED: _shape(_CALLED, agent=_TEXT),
    k.TOOL_ANSWERED: _shape({"key": _TEXT, "output": _TEXT}, signal_id=_TEXT, failed=_TRUTH),
    k.APPROVAL_REQUESTED: _shape(_CALLED, reason=_TEXT, repeats=_TEXT, version=_TEXT),
    k.APPROVAL_DECIDED: _shape({"key": _TEXT, "approved": _TRUTH}, signal_id=_TEXT, comment=_TEXT),
    k.CALL_SETTLED: _shape({"key": _TEXT, "happened": _TRUTH}, signal_id=_TEXT),
    k.CHILD_REQUESTED: _shape(
        {"key": _TEXT, "run_id": _TEXT},
        call_id=_TEXT,
        name=_TEXT,
        algorithm=_TEXT,
        input=_MESSAGES,
        budget=_CEILINGS,
        agent=_TEXT,
        epoch=_COUNT,
    ),
    k.CHILD_COMPLETED: _shape({"key": _TEXT}, call_id=_TEXT, run_id=_TEXT, outcome=_TEXT, **_ENDED),
    k.TURN_REQUESTED: _shape({"signal_id": _TEXT}, input=_MESSAGES, client_tools=_TOOL_LIST),
    k.TURN_STARTED: _shape(
        {"key": _TEXT, "run_id": _TEXT},
        algorithm=_TEXT,
        upto=_COUNT,
        budget=_CEILINGS,
        epoch=_COUNT,
    ),
    k.TURN_COMPLETED: _shape(
        {"run_id": _TEXT}, key=_TEXT, signal_id=_TEXT, outcome=_TEXT, **_ENDED
    ),
    k.CONTEXT_REQUESTED: _shape(
        {"key": _TEXT},
        upto=_COUNT,
        digest=_TEXT,
        covers=_TEXT,
        messages=_COUNT,
        agent=_TEXT,
        epoch=_COUNT,
    ),
    k.CONTEXT_SUMMARY: _shape(
        None, key=_TEXT, covers=_TEXT, messages=_COUNT, text=_TEXT, usage=_USAGE, attempts=_COUNT
    ),
    k.CONTEXT_FAILED: _shape(
        {"key": _TEXT}, reason=_TEXT, error=_ERROR, attempts=_COUNT, usage=_USAGE
    ),
    k.MEMORY_REQUESTED: _shape({"key": _TEXT}, epoch=_COUNT),
    k.MEMORY_COMPLETED: _shape({"key": _TEXT}, usage=_USAGE, attempts=_COUNT),
    k.MEMORY_FAILED: _shape({"key": _TEXT}, error=_ERROR, usage=_USAGE, attempts=_COUNT),
    k.GUARD_VERDICT: _shape(None, key=_TEXT, stage=_TEXT, verdict=_TEXT, usage=_USAGE),
    k.EVAL_SCORE: _shape(None, signal_id=_TEXT),  # readers leave out what is no score
    k.SWARM_HANDOFF: _shape({"source": _TEXT, "target": _TEXT}),
    k.REFLEXION_FEEDBACK: _shape({"text": _TEXT}),
    k.DEBATE_TURN: _shape({"agent": _TEXT, "round": _COUNT, "text": _TEXT}),
}

_OF_CALLERS: Final[Mapping[str, _Shape]] = {
    k.EVAL_SCORE: _shape(
        {"name": _TEXT, "value": _JUDGEMENT},
        comment=_or_null(_TEXT),
        source=_or_null(_TEXT),
        span_id=_or_null(_TEXT),
        meta=_or_null(_OBJECT),
    ),
    k.TURN_REQUESTED: _shape({"input": _MESSAGES}),
}
"""The fields that callers must give beside those that readers rely on."""
