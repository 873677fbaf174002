"""Names that go: they still work, and tell each caller what to use instead and until when.

`DeprecationWarning` names the caller's line, so that Python's default filter shows it once there.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Moved(NamedTuple):
    """The new place of a module's attribute, and the version that drops the old name.

    Attributes:
        to: "module:attribute".
        removed_in: a version.
    """

    to: str
    removed_in: str


def deprecated(*, use: str, removed_in: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function warn when it is called.

    Args:
        use: what to call instead.
        removed_in: the version that has the function no more.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def warning(*args: P.args, **kwargs: P.kwargs) -> T:
            _warn(f"{function.__qualname__}()", use, removed_in)
            return function(*args, **kwargs)

        return _like(function, warning)

    return decorate


def deprecated_parameter(
    name: str, *, use: str, removed_in: str
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function warn when a caller passes one of its parameters, by position or by name.

    Args:
        name: the parameter.
        use: what to pass or to do instead.
        removed_in: the version in which the function does not take it any more.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)
        if name not in signature.parameters:
            raise TypeError(f"{function.__qualname__}() has no parameter {name!r}")

        @wraps(function)
        def warning(*args: P.args, **kwargs: P.kwargs) -> T:
            if name in kwargs or name in signature.bind_partial(*args).arguments:
                _warn(f"parameter {name!r} of {function.__qualname__}()", use, removed_in)
            return function(*args, **kwargs)

        return _like(function, warning)

    return decorate


def deprecated_attributes(
    module: str, moved: Mapping[str, Moved], otherwise: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """Return `__getattr__` of a module some of whose names have moved.

    Args:
        module: `__name__` of the module.
        moved: where each of the names is now.
        otherwise: gets all other names, such as the `__getattr__` of `lazy_exports`.
    """

    def get(name: str) -> Any:
        if name in moved:
            home, _, attribute = moved[name].to.partition(":")
            _warn(f"{module}.{name}", f"{home}.{attribute}", moved[name].removed_in)
            return getattr(import_module(home), attribute)
        if otherwise is not None:
            return otherwise(name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return get


def _warn(what: str, use: str, removed_in: str) -> None:
    message = f"{what} is deprecated and goes in {removed_in}: use {use}"
    warnings.warn(message, DeprecationWarning, stacklevel=3)


def _like(function: Callable[P, T], wrapper: Callable[P, T]) -> Callable[P, T]:
    """Return the wrapper, marked as a coroutine function where the function is one."""
    if sys.version_info >= (3, 12) and inspect.iscoroutinefunction(function):
        return inspect.markcoroutinefunction(wrapper)
    return wrapper
