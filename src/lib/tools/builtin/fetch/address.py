"""The addresses that a fetch may reach: our own table, the same on every Python.

`ipaddress.is_global` differs between patch releases and is wrong about a third of the addresses
that matter, so that `ipaddress` only parses here. IPv4 is public unless listed. IPv6 is refused
unless inside 2000::/3 and not listed. An IPv4 address inside an IPv6 one is judged, too.

Source: IANA IPv4 and IPv6 special-purpose registries (2026-11), RFC 6052, RFC 4380, RFC 5214; the
cloud vendors' pages on instance metadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, Literal

Address = IPv4Address | IPv6Address

Verdict = Literal["public", "private", "metadata", "unusable"]
"""The class of an address.

public     may be reached.
private    only with `allow_private_networks`: also reserved, documentation, deprecated ranges.
metadata   never: it hands a cloud machine's credentials to any caller. All of IPv4's link-local
           range is taken for it.
unusable   never: no single host (multicast, unspecified, broadcast).
"""

_METADATA: Final = frozenset(
    map(
        ip_address,
        (
            *("168.63.129.16", "100.100.100.200", "192.0.0.192"),
            *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42"),
            *("fd00:c1::a9fe:a9fe", "fd00:a9fe:a9fe::1", "fe80::a9fe:a9fe"),
        ),
    )
)

# Whole, as vendors put more and more there: 169.254.169.254, .170.2, .170.23, .42.42, .0.23.
_LINK_LOCAL_V4: Final = IPv4Network("169.254.0.0/16")

_UNUSABLE_V4: Final = tuple(map(IPv4Network, ("0.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32")))
_PRIVATE_V4: Final = tuple(
    map(
        IPv4Network,
        (
            *("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16"),
            *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"),
        ),
    )
)

_UNUSABLE_V6: Final = tuple(map(IPv6Network, ("::/128", "ff00::/8")))
_UNICAST_V6: Final = IPv6Network("2000::/3")
_PRIVATE_V6: Final = tuple(
    map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3ffe::/16", "3fff::/20"))
)

_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_IN_THE_LAST_BITS: Final = tuple(map(IPv6Network, ("::/96", "::ffff:0:0:0/96")))
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")
_SIX_TO_FOUR: Final = IPv6Network("2002::/16")
_TEREDO: Final = IPv6Network("2001::/32")
_ISATAP: Final = frozenset({b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe"})


def read(text: str) -> Address | None:
    """Return the address that a resolver wrote, without its zone; None where it is none."""
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None


def judge(address: Address) -> Verdict:
    """Tell what an address is to a fetch."""
    if isinstance(address, IPv4Address):
        return _judge_v4(address)
    plain = IPv6Address(int(address))  # fe80::1%1 is not equal to fe80::1
    carried = translated(plain)
    if carried is not None:
        return _judge_v4(carried)
    if plain in _METADATA or any(_judge_v4(inner) == "metadata" for inner in _embedded(plain)):
        return "metadata"
    if any(plain in network for network in _UNUSABLE_V6):
        return "unusable"
    return "public" if _is_public_v6(plain) else "private"


def translated(address: Address) -> IPv4Address | None:
    """Return the IPv4 address that packets to this IPv6 address end at, if it is such a one."""
    if isinstance(address, IPv6Address) and (address in _MAPPED or address in _NAT64):
        return IPv4Address(address.packed[12:])
    return None


def text(address: Address) -> str:
    """Return the address as it is written in a URL, without brackets.

    `str` of an IPv6 address that maps an IPv4 address depends on the release of Python.
    """
    if isinstance(address, IPv6Address) and address in _MAPPED:
        high, low = divmod(int(address) & 0xFFFFFFFF, 1 << 16)
        return f"::ffff:{high:x}:{low:x}"
    return str(address)


def _judge_v4(address: IPv4Address) -> Verdict:
    if address in _METADATA or address in _LINK_LOCAL_V4:
        return "metadata"
    if any(address in network for network in _UNUSABLE_V4):
        return "unusable"
    return "private" if any(address in network for network in _PRIVATE_V4) else "public"


def _is_public_v6(address: IPv6Address) -> bool:
    if address not in _UNICAST_V6 or any(address in network for network in _PRIVATE_V6):
        return False
    return all(_judge_v4(inner) == "public" for inner in _embedded(address))


def _embedded(address: IPv6Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses that a router or a tunnel may take out of this one."""
    octets = address.packed
    if any(address in network for network in _IN_THE_LAST_BITS) or octets[8:12] in _ISATAP:
        yield IPv4Address(octets[12:])
    if address in _LOCAL_NAT64:  # the prefix's length is the operator's: 48, 56, 64 or 96
        yield IPv4Address(octets[6:8] + octets[9:11])
        yield IPv4Address(octets[7:8] + octets[9:12])
        yield IPv4Address(octets[9:13])
        yield IPv4Address(octets[12:])
    if address in _SIX_TO_FOUR:
        yield IPv4Address(octets[2:6])
    if address in _TEREDO:
        yield IPv4Address(octets[4:8])
        yield IPv4Address(bytes(octet ^ 0xFF for octet in octets[12:]))
