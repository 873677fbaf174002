"""`ObjectReference`: a parameter that names an object of a module as `module:name`."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


class ObjectReference(click.ParamType[Any]):
    """An object of a module that is installed or in the working directory: `module:name`."""

    name = "module:name"

    def __init__(self, expected: str, *, function: bool = False) -> None:
        """Describe the object.

        Args:
            expected: what it is, for the errors, such as "a function that makes an engine".
            function: only a function will do.
        """
        self._rule = f"expected {expected} as module:name, such as app.agents:make_engine"
        self._function = function

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Import the object; a function must be one that needs no arguments."""
        module_name, _, path = str(value).partition(":")
        if not module_name or not path:
            self.fail(f"{self._rule}, got {value!r}", param, ctx)
        try:
            found: Any = _import(module_name)
        except ModuleNotFoundError as error:
            if not f"{module_name}.".startswith(f"{error.name}."):
                raise  # the module exists, and one of its own imports does not
            where = f"neither installed nor in {Path.cwd()}"
            self.fail(f"there is no module {module_name!r}, {where}: {self._rule}", param, ctx)
        for name in path.split("."):
            found = getattr(found, name, None)
        if found is None or (self._function and not callable(found)):
            kind = "function" if self._function else "object"
            self.fail(f"module {module_name!r} has no {kind} {path!r}: {self._rule}", param, ctx)
        if callable(found) and _needs_arguments(found):
            message = f"{path!r} of module {module_name!r} needs arguments"
            self.fail(f"{message}: name a function that needs none", param, ctx)
        return found


def _import(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _needs_arguments(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    except ValueError:  # some callables written in C have no signature
        return False
    return False
