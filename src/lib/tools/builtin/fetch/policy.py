"""`FetchPolicy`: what a fetch may reach and how much; `Rules`: a policy applied to URLs."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Self, cast

from lib.errors import FetchBlocked
from lib.tools.builtin.fetch.address import Address, judge, text, translated
from lib.tools.builtin.fetch.url import Target, read_host, read_ipv6

log: Final = logging.getLogger(__name__)

DEFAULT_CONTENT_TYPES: Final = (
    *("text/html", "application/xhtml+xml", "text/plain", "text/markdown", "text/csv"),
    *("text/xml", "application/xml", "application/*+xml", "application/rss+xml"),
    *("application/atom+xml", "application/json", "application/*+json"),
)
"""Media types that a fetch takes by default: text that `extract` reads; no SVG, no PDF."""

MAX_REDIRECTS: Final = 50

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?", re.ASCII)
_TYPE: Final = re.compile(r"[a-z0-9.-]+/(?:\*|\*\+[a-z0-9.-]+|[a-z0-9.+-]+)", re.ASCII)
_NOT_EXTRA: Final = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "accept-encoding"),
        *("cookie", "keep-alive", "te", "trailer", "upgrade", "expect", "user-agent"),
        *("proxy-authorization", "proxy-connection"),
    }
)

_TUPLES: Final = (
    *("allowed_hosts", "denied_hosts", "extra_hosts"),
    *("allowed_ports", "content_types"),
)

# Names of the network that a machine stands in: asking DNS for them only tells others of it.
_INTERNAL: Final = (
    *("localhost", "localdomain", "local", "internal", "intranet", "private", "lan", "home"),
    *("corp", "svc", "home.arpa"),
)


@dataclass(frozen=True)
class FetchPolicy:
    """The hosts that a fetch may reach and its limits, checked when it is made.

    Hosts are names, "*.name" for all names below one, or addresses, without port or brackets.

    Attributes:
        allowed_hosts: hosts that may be reached; empty means every public one.
        denied_hosts: hosts that may not, whatever else is said; an address also stands for the
            names that lead to it, except behind a proxy, which looks them up itself.
        allowed_ports: ports of either scheme.
        allow_http: whether http URLs are fetched and not only https ones.
        max_redirects: how many redirects are followed, at most 50; https never leads to http.
        max_bytes: of a body after decompression; the rest is cut off.
        timeout_s: seconds for a whole fetch: DNS, connecting, all redirects and the body.
        connect_timeout_s: seconds for DNS and connecting, and again for the TLS handshake.
        content_types: media types that are read: "text/html", "text/*" or "application/*+json".
        user_agent: the User-Agent header.
        allow_private_networks: whether addresses that are not public may be reached. Addresses of
            cloud metadata, and all of 169.254.0.0/16, are refused all the same.
        extra: more request headers. They go to the hosts of `extra_hosts` only, by https only, and
            never on to where these redirect to. Kept as a copy that cannot be changed, and not
            shown.
        extra_hosts: the hosts that get `extra`; where it is empty, those of `allowed_hosts`. With
            neither, no host gets them.

    Raises:
        TypeError: a field is of another type.
        ValueError: a field has a value that means nothing, or a header that is not yours to set.
    """

    allowed_hosts: tuple[str, ...] = ()
    denied_hosts: tuple[str, ...] = ()
    allowed_ports: tuple[int, ...] = (80, 443)
    allow_http: bool = True
    max_redirects: int = 5
    max_bytes: int = 1_000_000
    timeout_s: float = 20.0
    connect_timeout_s: float = 5.0
    content_types: tuple[str, ...] = DEFAULT_CONTENT_TYPES
    user_agent: str = "lib-http-fetch/1.0"
    allow_private_networks: bool = False
    extra: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    extra_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        for name in _TUPLES:
            object.__setattr__(self, name, _tuple(name, getattr(self, name)))
        for name in ("allow_http", "allow_private_networks"):
            if type(getattr(self, name)) is not bool:
                raise TypeError(f"{name} is True or False, not {getattr(self, name)!r}")
        object.__setattr__(self, "extra", MappingProxyType(_headers(self.extra)))
        _check_numbers(self)
        for host in (*self.allowed_hosts, *self.denied_hosts, *self.extra_hosts):
            _pattern(host)
        _check_content_types(self.content_types)
        if not _is_value(self.user_agent):
            raise ValueError("user_agent is printable ASCII without line breaks")

    def __reduce__(self) -> tuple[Any, ...]:
        """Tell how to copy and pickle it, for which mappings that cannot be changed have no way."""
        return _made, (type(self), {**vars(self), "extra": dict(self.extra)})

    @classmethod
    def strict(cls, allowed_hosts: Iterable[str], **kw: Any) -> Self:
        """Return a policy that reaches the listed hosts only, and by https only.

        Args:
            allowed_hosts: at least one.
            kw: other fields of the policy.

        Raises:
            TypeError: a field is of another type.
            ValueError: no host is listed, http is allowed, or a field's value means nothing.
        """
        hosts = _tuple("allowed_hosts", allowed_hosts)
        if not hosts:
            raise ValueError("a strict policy lists at least one host")
        if kw.pop("allow_http", False):
            raise ValueError("a strict policy does not allow http")
        return cls(allowed_hosts=hosts, allow_http=False, **kw)


def _made(kind: type[FetchPolicy], fields: Mapping[str, Any]) -> FetchPolicy:
    return kind(**fields)


class Rules:
    """A policy in the form in which URLs are held against it."""

    def __init__(self, policy: FetchPolicy) -> None:
        """Read the policy once."""
        self._policy = policy
        self._allowed = [_pattern(host) for host in policy.allowed_hosts]
        self._denied = [_pattern(host) for host in policy.denied_hosts]
        self._extra = [_pattern(host) for host in policy.extra_hosts or policy.allowed_hosts]
        if policy.extra and not self._extra:
            names = ", ".join(policy.extra)
            log.warning("no host gets the extra headers (%s): name it in extra_hosts", names)

    def check(self, target: Target) -> None:
        """Pass a URL that may be fetched, as far as that can be decided without DNS.

        Raises:
            FetchBlocked: a rule forbids it.
        """
        rule = self._broken_by(target)
        if rule is None and target.address is not None:
            rule = self._broken_by_addresses((target.address,))
        if rule is not None:
            raise FetchBlocked(rule, host=target.name, redirected=target.redirected)

    def gets_extra(self, target: Target) -> bool:
        """Return True if the extra headers are for this URL."""
        return target.scheme == "https" and any(_matches(target, host) for host in self._extra)

    def check_addresses(self, name: str | None, addresses: Collection[Address]) -> None:
        """Pass a host all of whose addresses may be reached.

        Raises:
            FetchBlocked: one of them may not.
        """
        rule = self._broken_by_addresses(addresses)
        if rule is not None:
            raise FetchBlocked(rule, host=name)

    def _broken_by_addresses(self, addresses: Collection[Address]) -> str | None:
        if any(_key(address) in self._denied for address in addresses):
            return "the host is denied"
        private = self._policy.allow_private_networks
        verdicts = {judge(address) for address in addresses}
        usable = {"public", "private"} if private else {"public"}
        return None if verdicts <= usable else "address not public"

    def _broken_by(self, target: Target) -> str | None:
        policy = self._policy
        if target.scheme == "http" and not policy.allow_http:
            return "only https is allowed"
        if target.port not in policy.allowed_ports:
            return f"port {target.port} is not allowed"
        if any(_matches(target, host) for host in self._denied):
            return "the host is denied"
        if self._allowed and not any(_matches(target, host) for host in self._allowed):
            return "the host is not among those allowed"
        inside = target.address is None and _is_internal(target.host)
        if inside and not policy.allow_private_networks:
            return "the host is a name of a private network"
        return None


def takes(content_types: Iterable[str], media_type: str) -> bool:
    """Return True if a media type, in lower case, is among those that a policy names."""
    kind, _, subtype = media_type.partition("/")
    suffix = subtype.rpartition("+")[2] if "+" in subtype else None
    wanted = {media_type, f"{kind}/*", f"{kind}/*+{suffix}"}
    return any(content_type.lower() in wanted for content_type in content_types)


def _pattern(host: str) -> str:
    """Return an entry of a list of hosts in the form that `_matches` takes.

    Raises:
        ValueError: it is no host.
    """
    bare = host.removeprefix("[").removesuffix("]")
    try:
        if host.startswith("*."):
            name, address = read_host(host[2:])
            pattern = f"*.{name}" if address is None else None
        else:
            name, address = read_ipv6(bare) if ":" in bare else read_host(host)
            pattern = name if address is None else _key(address)
    except FetchBlocked:
        pattern = None
    if pattern is None:
        raise ValueError(f"{host!r} is no host: write a name, '*.name' or an address, and no port")
    return pattern


def _matches(target: Target, pattern: str) -> bool:
    if target.address is not None:
        return pattern == _key(target.address)
    if pattern.startswith("*."):
        return target.host.endswith(pattern[1:])
    return target.host == pattern


def _key(address: Address) -> str:
    """Return one spelling for all ways to write where packets end."""
    return text(translated(address) or address)


def _is_internal(host: str) -> bool:
    return "." not in host or any(host.endswith(f".{suffix}") for suffix in _INTERNAL)


def _tuple(name: str, value: Any) -> tuple[Any, ...]:
    wanted = int if name == "allowed_ports" else str
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{name} is a tuple, not {value!r}")
    items: tuple[Any, ...] = tuple(cast(Iterable[Any], value))
    if any(type(item) is not wanted for item in items):
        raise TypeError(f"{name} is a tuple of {wanted.__name__}, not {items!r}")
    return items


def _check_numbers(policy: FetchPolicy) -> None:
    whole = {"max_redirects": (0, MAX_REDIRECTS), "max_bytes": (1, 1 << 40)}
    for name, (least, most) in whole.items():
        value = getattr(policy, name)
        if type(value) is not int:
            raise TypeError(f"{name} is a whole number, not {value!r}")
        if not least <= value <= most:
            raise ValueError(f"{name} is from {least} to {most}, not {value}")
    for name in ("timeout_s", "connect_timeout_s"):
        value = getattr(policy, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} is a number of seconds, not {value!r}")
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} is more than 0 and finite, not {value}")
    ports = policy.allowed_ports
    if not ports or not all(1 <= port <= 65_535 for port in ports):  # noqa: PLR2004 - what a port is
        raise ValueError(f"allowed_ports is at least one port from 1 to 65535, not {ports}")


def _check_content_types(content_types: tuple[str, ...]) -> None:
    wrong = [media_type for media_type in content_types if not _TYPE.fullmatch(media_type.lower())]
    if wrong or not content_types:
        raise ValueError(f"content_types holds media types such as 'text/html', not {wrong}")


def _headers(extra: Any) -> dict[str, str]:
    """Return a copy of the extra headers, all of them fit to be sent. Values stay out of errors."""
    if not isinstance(extra, Mapping):
        raise TypeError("extra maps names of headers to values")
    headers = dict(cast(Mapping[Any, Any], extra))
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise TypeError("extra maps names of headers to values, all of them str")
        if not _TOKEN.fullmatch(name) or not (value == "" or _is_value(value)):
            raise ValueError(
                f"the header {name!r} of extra is not valid: printable ASCII, one line"
            )
        if name.lower() in _NOT_EXTRA:
            raise ValueError(f"the header {name!r} is not for extra: only the fetcher may set it")
    if len({name.lower() for name in headers}) < len(headers):
        raise ValueError("extra names a header twice")
    return headers


def _is_value(value: Any) -> bool:
    return isinstance(value, str) and _VALUE.fullmatch(value) is not None
