"""URLs that a fetch takes: a strict grammar of our own that refuses and never repairs.

What two parsers read differently is refused: control characters and blanks anywhere, a backslash
before the query, user names, percent signs in the host, numbers that are no canonical IPv4 address,
zone ids, ports that are not one to five digits. A host is mapped by UTS 46 once, and the outcome is
what lists, DNS, TLS and the Host header see.

Source: RFC 3986; WHATWG URL (host parsing, "ends in a number"); RFC 5891 and UTS 46 through `idna`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NoReturn
from urllib.parse import quote

import idna

from lib.errors import FetchBlocked
from lib.tools.builtin.fetch.address import Address, text

MAX_URL_CHARS: Final = 8_192
MAX_HOST_CHARS: Final = 253

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

# Blanks and invisible letters are listed, not taken from `unicodedata`, whose version is Python's.
_FORBIDDEN: Final = re.compile(
    "[\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff\ud800-\udfff]"
)
_INVISIBLE: Final = re.compile(
    "[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
_SCHEME: Final = re.compile(r"(?!https?:)[a-z][a-z0-9+.-]*:", re.IGNORECASE | re.ASCII)
_SHAPE: Final = re.compile(
    r"(https?)://([^/?#\\]+)(/[^?#\\]*)?(\?[^#]*)?(?:#.*)?", re.IGNORECASE | re.ASCII | re.DOTALL
)
_AUTHORITY: Final = re.compile(
    r"(?:\[([0-9a-f:.]+)\]|([^\[\]:@%]+))(?::([0-9]{1,5}))?", re.IGNORECASE | re.ASCII
)
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4: Final = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}", re.ASCII)

_PATH_SAFE: Final = "%/:@!$&'()*+,;=~|[]"
_QUERY_SAFE: Final = "%/:@!$&()*+,;=~|[]?^`{}"


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL: the path to request, and the host to request it from.

    Attributes:
        scheme: "http" or "https".
        host: in lower case, as A-labels, without a dot at its end; addresses without brackets.
        port: the URL's, or the scheme's.
        path: path and query, percent-encoded.
        address: what the host is, where it is an address and not a name.
        redirected: whether a server has named it.
    """

    scheme: str
    host: str
    port: int
    path: str
    address: Address | None = None
    redirected: bool = field(default=False, compare=False)

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port, which are equal for URLs of one origin."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """The host as the Host header has it: with the port if it is not the scheme's."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL again, without its fragment."""
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def name(self) -> str | None:
        """The host where it is a name as requested.

        Addresses, and what servers write, stay out of messages.
        """
        return None if self.redirected or self.address is not None else self.host


def parse(url: str) -> Target:
    """Read a URL.

    Raises:
        FetchBlocked: it is not http or https, or its parts can be read in more than one way.
    """
    if len(url) > MAX_URL_CHARS:
        _refuse(f"the URL is longer than {MAX_URL_CHARS} characters")
    if _FORBIDDEN.search(url):
        _refuse("the URL has a blank or a control character in it: percent-encode it")
    if _SCHEME.match(url):
        _refuse("only http and https URLs are fetched")
    shape = _SHAPE.fullmatch(url)
    if shape is None:
        _refuse("not a complete http or https URL")
    scheme, authority, path, query = shape.groups()
    return _target(scheme.lower(), authority, _encoded(path or "/", query or ""))


def join(base: Target, location: str) -> Target:
    """Read what a redirect from `base` points to.

    Raises:
        FetchBlocked: as `parse` does.
    """
    try:
        return replace(_joined(base, location), redirected=True)
    except FetchBlocked as error:
        fault = FetchBlocked(error.rule, redirected=True)
    raise fault


def _joined(base: Target, location: str) -> Target:
    if location.startswith("//"):
        return parse(f"{base.scheme}:{location}")
    if re.match(r"[a-z][a-z0-9+.-]*:", location, re.IGNORECASE | re.ASCII):
        return parse(location)
    old_path, _, old_query = base.path.partition("?")
    reference, _, _ = location.partition("#")
    path, mark, query = reference.partition("?")
    if not path:
        path = old_path
        mark, query = (mark, query) if mark else ("?" * bool(old_query), old_query)
    elif not path.startswith("/"):
        path = old_path[: old_path.rindex("/") + 1] + path
    return parse(f"{base.scheme}://{base.authority}{_without_dots(path)}{mark}{query}")


def read_host(name: str) -> tuple[str, Address | None]:
    """Return a host's canonical form, and its address if it is one; brackets are left out.

    Raises:
        FetchBlocked: it is neither a name nor a canonical address.
    """
    if not name.isascii():
        name = _mapped(name)
    host = name.lower()
    if _IPV4.fullmatch(host):
        return host, IPv4Address(host)
    labels = host.removesuffix(".").split(".")
    if _NUMBER.fullmatch(labels[-1]):
        _refuse("the host is a number, but not an address in its usual form")
    host = ".".join(labels)
    if len(host) > MAX_HOST_CHARS or not all(map(_is_label, labels)):
        _refuse("the host is not a valid name")
    return host, None


def read_ipv6(inner: str) -> tuple[str, Address]:
    """Return the canonical form and the address of what stands between brackets.

    Raises:
        FetchBlocked: it is no IPv6 address, or has a zone.
    """
    address = None
    if "%" not in inner and inner.isascii():
        try:
            address = IPv6Address(inner)
        except ValueError:
            address = None  # refused below, where no other error is at hand
    if address is None:
        _refuse("the host is not a valid IPv6 address")
    return text(address), address


def _target(scheme: str, authority: str, path: str) -> Target:
    if "@" in authority:
        _refuse("the URL has a user name in it")
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        _refuse("the host or the port cannot be read")
    inner, name, digits = found.groups()
    host, address = read_host(name) if inner is None else read_ipv6(inner)
    port = _DEFAULT_PORTS[scheme] if digits is None else int(digits)
    if not 1 <= port <= 65_535:  # noqa: PLR2004 - what a port is
        _refuse("the port is out of range")
    return Target(scheme, host, port, path, address)


def _mapped(name: str) -> str:
    """Return a host that is not ASCII as A-labels."""
    if len(name) > MAX_HOST_CHARS or _INVISIBLE.search(name):
        _refuse("the host is too long or has invisible letters")
    try:
        mapped = idna.encode(name, uts46=True).decode("ascii")
    except UnicodeError:
        mapped = ""
    if not mapped or _NUMBER.fullmatch(mapped.removesuffix(".").rpartition(".")[2]):
        _refuse("the host is not a valid name")
    return mapped


def _is_label(label: str) -> bool:
    if not _LABEL.fullmatch(label):
        return False
    return not label.startswith("xn--") or _is_a_label(label)


def _is_a_label(label: str) -> bool:
    """Return True if it stands for letters that IDNA 2008 has, and for the same ones if encoded."""
    try:
        return idna.alabel(idna.ulabel(label)).decode("ascii") == label
    except UnicodeError:
        return False


def _encoded(path: str, query: str) -> str:
    """Return path and query in ASCII, as RFC 3987 maps them; what is ASCII mostly stays."""
    return quote(path, safe=_PATH_SAFE) + quote(query, safe=_QUERY_SAFE)


def _without_dots(path: str) -> str:
    """Return an absolute path without "." and ".." segments (RFC 3986, 5.2.4)."""
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            kept = kept[:-1]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in {".", ".."}:
        kept.append("")
    return "/" + "/".join(kept)


def _refuse(rule: str) -> NoReturn:
    raise FetchBlocked(rule)
