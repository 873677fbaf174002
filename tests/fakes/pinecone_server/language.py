"""Pinecone's filter language, as its documentation and its users tell.

An equation finds any element of a list of strings; every condition but `$exists: false` fails on
records that lack the field, `$ne` included; numbers are 64-bit floats and never equal a bool.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import ge, gt, le, lt
from typing import Any, Final, cast

from fakes.pinecone_server.limits import Refused

_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$gt": gt,
    "$gte": ge,
    "$lt": lt,
    "$lte": le,
}
_MAX_VALUES: Final = 10_000


def passes(filter: Any, metadata: dict[str, Any]) -> bool:
    """Return whether metadata passes the filter; refuse what is none."""
    # A list: what is no filter is refused, whatever the conditions before it say.
    return all([_entry(key, wanted, metadata) for key, wanted in _object(filter).items()])  # noqa: C419 - see above


def _entry(key: str, wanted: Any, metadata: dict[str, Any]) -> bool:
    if key in {"$and", "$or"}:
        if not isinstance(wanted, list) or not wanted:
            raise Refused(400, f"the {key} operator must be followed by a list of filters")
        results = [passes(part, metadata) for part in cast(list[Any], wanted)]
        return all(results) if key == "$and" else any(results)
    if key.startswith("$"):
        raise Refused(400, f"{key} is not a supported operator")
    conditions = cast(Any, wanted) if isinstance(wanted, dict) else {"$eq": wanted}
    held = [
        _holds(operator, operand, metadata.get(key)) for operator, operand in conditions.items()
    ]
    return all(held)


def _holds(operator: str, operand: Any, value: Any) -> bool:
    if operator == "$exists":
        return (value is not None) == operand
    if operator in _ORDERS:
        if not _is_number(operand):
            raise Refused(400, f"the {operator} operator must be followed by a number")
        return _is_number(value) and _ORDERS[operator](float(value), float(operand))
    if operator in {"$in", "$nin"}:
        return _among(operator, operand, value)
    if operator not in {"$eq", "$ne"}:
        raise Refused(400, f"{operator} is not a supported operator")
    if not isinstance(operand, str | bool | int | float):
        raise Refused(400, f"the {operator} operator must be followed by a scalar")
    return value is not None and _equal(value, operand) == (operator == "$eq")


def _among(operator: str, operand: Any, value: Any) -> bool:
    if not isinstance(operand, list) or len(cast(list[Any], operand)) > _MAX_VALUES:
        raise Refused(400, f"the {operator} operator must be followed by a list of 10000 at most")
    wanted = cast(list[Any], operand)
    if not all(isinstance(one, str) or _is_number(one) for one in wanted):
        raise Refused(400, f"the {operator} operator takes strings and numbers")
    found = any(_equal(value, one) for one in wanted)
    return value is not None and found == (operator == "$in")


def _equal(value: Any, wanted: Any) -> bool:
    if isinstance(value, list):
        return wanted in cast(list[Any], value)
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if _is_number(value) and _is_number(wanted):
        return float(value) == float(wanted)
    return isinstance(value, str) and value == wanted


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(400, "a filter must be an object")
    return cast(dict[str, Any], value)
