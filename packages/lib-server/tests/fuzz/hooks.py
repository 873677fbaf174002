"""Hooks of schemathesis, beside `schemathesis.toml`: they make its requests independent.

Each comes from another address: the checks of authentication send more wrong keys than one may. And
each has a key of its own, in its header or in its body: no schema says that one was used before.
None waits: a run that waits for a message would hold it for as long as it says. None revokes the
key that all of them are sent with. Those of Agent2Agent are of the version that is served. And an
upload that is said to be YAML need not be: as YAML, it would end the thread that sends requests.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from itertools import count
from typing import Any, Final

schemathesis: Any = import_module("schemathesis")  # its hooks have no types
HEADER: Final = "Idempotency-Key"
VALID: Final = re.compile(r"[\x20-\x7e]{1,255}")
LONGEST_WAIT_S: Final = 60
OWN_KEY_ID: Final = os.environ["SCHEMATHESIS_KEY"].split("_")[2]
numbers = count(1)


def before_call(_context: Any, case: Any, _options: dict[str, Any]) -> None:
    """Give the request an address, a key where it has a valid one, and no time to wait."""
    number = next(numbers)
    case.headers["X-Forwarded-For"] = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    if case.path.startswith("/a2a"):
        case.headers["A2A-Version"] = "1.0"
    if hasattr(case.body, "get") and _is_valid(case.body.get("key")):
        case.body["key"] = f"k{number}"
        case.headers.pop(HEADER, None)
    elif _is_valid(case.headers.get(HEADER)):
        case.headers[HEADER] = f"k{number}"
    if case.path_parameters.get("key_id") == OWN_KEY_ID:
        case.path_parameters["key_id"] = "another"
    if _is_time(case.query.get("wait_s")):
        case.query["wait_s"] = 0


def _is_valid(key: Any) -> bool:
    return isinstance(key, str) and VALID.fullmatch(key) is not None


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= LONGEST_WAIT_S


def text(_context: Any, response: Any) -> str:
    """Return the content of an upload."""
    return response.content.decode(errors="replace")


schemathesis.hook(before_call)
for media_type in (
    "text/yaml",
    "text/x-yaml",
    "text/vnd.yaml",
    "application/yaml",
    "application/x-yaml",
):
    schemathesis.deserializer(media_type)(text)
