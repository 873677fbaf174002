"""Resolvers of the caller's, in the shapes that they have in the field."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address
from itertools import islice
from typing import Any, Final, TypeAlias, cast

from lib.tools.builtin.fetch.threads import LookupThreads

MAX_ANSWERS: Final = 4_096
"""How many addresses a name may have."""

Lookup: TypeAlias = Callable[[str, int], Awaitable[list[str]]]

_SHAPE: Final = (
    "resolver is a function of (host) or (host, port), or has a method `resolve` that is one"
)
_GETADDRINFO_FIELDS: Final = 5


def adapted(resolver: Any) -> Lookup:
    """Return a resolver as one function, whatever its shape; what blocks runs in a thread.

    Raises:
        TypeError: it cannot be called with a host, or with a host and a port.
    """
    function = getattr(resolver, "resolve", resolver)
    if isinstance(resolver, type) or not callable(function):
        raise TypeError(f"{_SHAPE}, not {type(resolver).__name__}")
    with_port = _takes_port(function)

    def call(host: str, port: int) -> Any:
        return function(host, port) if with_port else function(host)

    if not _is_async(function):
        return _in_threads(call)

    async def look_up(host: str, port: int) -> list[str]:
        return answers(await call(host, port))

    return look_up


def answers(found: Any) -> list[str]:
    """Return the addresses that a resolver has found, as text.

    Args:
        found: addresses as str, bytes, objects of `ipaddress` or entries of `getaddrinfo`; or one.

    Raises:
        TypeError: it is something else.
        ValueError: it is too much, or not ASCII.
    """
    kind = type(found).__name__
    if isinstance(found, str | bytes | IPv4Address | IPv6Address):
        return [_answer(found)]
    if isinstance(found, Mapping) or not isinstance(found, Iterable):
        raise TypeError(f"a resolver returned {kind}")
    listed = [_answer(one) for one in islice(cast(Iterable[Any], found), MAX_ANSWERS + 1)]
    if len(listed) > MAX_ANSWERS:
        raise ValueError("a resolver returned too many addresses")
    return listed


def _in_threads(call: Callable[[str, int], Any]) -> Lookup:
    """Return a function that blocks as one that does not; what it returns may be awaitable."""

    def block(host: str, port: int) -> list[Any]:
        found = call(host, port)
        return [found] if inspect.isawaitable(found) else answers(found)

    threads = LookupThreads(block)

    async def look_up(host: str, port: int) -> list[str]:
        found: list[Any] = await threads.resolve(host, port)
        if len(found) == 1 and inspect.isawaitable(found[0]):
            return answers(await found[0])
        return found

    return look_up


def _answer(one: Any) -> str:
    if isinstance(one, tuple):
        entry = cast(tuple[Any, ...], one)
        if len(entry) != _GETADDRINFO_FIELDS or not isinstance(entry[4], tuple):
            raise TypeError("a resolver returned tuples that are not those of getaddrinfo")
        one = cast(tuple[Any, ...], entry[4])[0]
    if isinstance(one, bytes):
        return one.decode("ascii")
    if isinstance(one, str | IPv4Address | IPv6Address):
        return str(one)
    raise ValueError(f"a resolver returned {type(one).__name__} for an address")


def _is_async(function: Callable[..., Any]) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004 - of an object
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _takes_port(function: Callable[..., Any]) -> bool:
    """Tell whether to call it with a port, too.

    Raises:
        TypeError: neither way is possible, or it does not tell its parameters.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:
        raise TypeError(f"{_SHAPE}: {function!r} does not tell its parameters, wrap it") from None
    positional = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind not in {parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD}
    ]
    # A second parameter that may be left out can be anything: a family, a record's type.
    second = positional[1] if len(positional) > 1 else None
    wanted = second is not None and (second.default is second.empty or "port" in second.name)
    var = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in positional[:2])
    with_port = wanted or var
    try:
        signature.bind(*("host", 0)[: 1 + with_port])
    except TypeError:
        raise TypeError(f"{_SHAPE}, not one of {signature}") from None
    return with_port
