"""Tools that cannot be turned against their owner, and what they stand on.

Nothing is loaded before its name is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lib.tools.builtin.hygiene import clean, fenced

__all__ = [
    "clean",
    "fenced",
]

_WHERE = {
    "clean": "lib.tools.builtin.hygiene:clean",
    "fenced": "lib.tools.builtin.hygiene:fenced",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        module, _, attribute = _WHERE[name].partition(":")
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
