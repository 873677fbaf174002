"""The table of addresses: ranges to their edges, and addresses inside of addresses."""

from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

import pytest

from lib.tools.builtin.fetch.address import judge, read, text

NOT_PUBLIC = {
    "metadata": ("169.254.0.0/16",),
    "private": (
        *("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
        *("198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "2002::/16", "3fff::/20"),
        *("fc00::/7", "fe80::/10", "fec0::/10", "5f00::/16", "100::/64", "2001::/23"),
        *("64:ff9b:1::/48", "3ffe::/16", "4000::/2", "8000::/1"),
    ),
    "unusable": ("0.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32", "ff00::/8"),
}


@pytest.mark.parametrize(
    ("network", "verdict"),
    [(network, verdict) for verdict, networks in NOT_PUBLIC.items() for network in networks],
)
def test_a_range_is_judged_from_its_first_to_its_last_address(network: str, verdict: str) -> None:
    parsed = IPv6Network(network) if ":" in network else IPv4Network(network)
    last = parsed[-1]

    assert judge(parsed[0]) == verdict
    # The last ones of the widest ranges are in ranges of their own, such as multicast.
    assert judge(last) == verdict or network == "8000::/1"


@pytest.mark.parametrize(
    "address",
    [
        *(
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
        ),
        *("128.0.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.0.3.0", "223.255.255.255"),
        *("2000::", "2001:200::1", "2606:4700:4700::1111", "2c0f:f248::1", "3fff:1000::"),
        *("::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2606:4700::5efe:808:808"),
    ],
)
def test_what_is_public_is_public(address: str) -> None:
    assert judge(ip_address(address)) == "public"


@pytest.mark.parametrize("inner", ["127.0.0.1", "10.1.2.3", "100.64.0.1", "192.168.0.1"])
def test_an_ipv4_address_is_found_inside_of_an_ipv6_address(inner: str) -> None:
    number = int(ip_address(inner))
    prefixes = ("::ffff:0:0", "64:ff9b::", "::", "::ffff:0:0:0", "2606:4700::5efe:0:0")
    for prefix in (*prefixes, "2606:4700::200:5efe:0:0"):
        assert judge(IPv6Address(int(IPv6Address(prefix)) | number)) == "private", prefix


@pytest.mark.parametrize(
    "address",
    [
        *(
            "169.254.169.254",
            "168.63.129.16",
            "100.100.100.200",
            "fd00:ec2::254",
            "fd00:ec2::254%1",
        ),
        *("fd00:a9fe:a9fe::1", "169.254.1.1", "::ffff:169.254.1.1", "2002:a9fe:101::"),
        *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "::a9fe:a9fe", "::ffff:0:a9fe:a9fe"),
        *("2002:a9fe:a9fe::", "2001:0:a9fe:a9fe::", "2001:0:0:0:0:0:5601:5601"),
        *("64:ff9b:1::a9fe:a9fe", "64:ff9b:1:a9fe:a9:fe00::", "64:ff9b:1:a9:fe:a9fe::"),
        *("64:ff9b:1:0:a9:fea9:fe00::", "2606:4700::5efe:a9fe:a9fe", "fe80::a9fe:a9fe"),
    ],
)
def test_metadata_is_found_in_every_dress(address: str) -> None:
    assert judge(ip_address(address)) == "metadata"


@pytest.mark.parametrize(
    ("address", "verdict"), [("::", "unusable"), ("::ffff:0.0.0.0", "unusable"), ("::1", "private")]
)
def test_special_addresses(address: str, verdict: str) -> None:
    assert judge(ip_address(address)) == verdict


def test_an_answer_is_read_without_its_zone_and_not_at_all_if_it_is_no_address() -> None:
    assert read("fe80::1%eth0") == ip_address("fe80::1")
    assert read("localhost") is None


def test_an_address_is_written_the_same_way_by_every_python() -> None:
    written = [
        text(ip_address(address)) for address in ("::ffff:1.2.3.4", "2606:4700::1", "1.2.3.4")
    ]

    assert written == ["::ffff:102:304", "2606:4700::1", "1.2.3.4"]
