"""Public names of a package that are loaded when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, where: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package whose names live in other modules.

    Assign them under `if not TYPE_CHECKING:`, so that type checkers still see misspelt names, and
    import the same names under `if TYPE_CHECKING:`. A name that was loaded stays in the package.

    Args:
        package: `__name__` of the package.
        where: the module of each name, or "module:attribute" where the name is another one there.
    """
    namespace = vars(sys.modules[package])

    def load(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = where[name].partition(":")
        value = namespace[name] = getattr(import_module(module), attribute or name)
        return value

    def names() -> list[str]:
        return sorted(namespace.keys() | where.keys())

    return load, names
