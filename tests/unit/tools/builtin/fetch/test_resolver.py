"""Looking up names: few threads, waiting that ends, and no address that was not checked."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lib.errors import FetchBlocked, ToolError
from lib.testing.aio import run
from lib.tools.builtin.fetch.policy import FetchPolicy, Rules
from lib.tools.builtin.fetch.resolver import Addresses, SystemResolver


class Lookups:
    """Stands for `getaddrinfo`: names that begin with "slow" wait until they are let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.running = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, host: str, port: int, **_: Any) -> list[Any]:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            if host.startswith("slow"):
                self.go.wait(20)
            if host.startswith("no"):
                raise socket.gaierror(socket.EAI_NONAME, "10.0.0.53 says no")
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", port))]
        finally:
            with self._lock:
                self.running -= 1


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lookups]:
    found = Lookups()
    monkeypatch.setattr(socket, "getaddrinfo", found)
    yield found
    found.go.set()


def addresses(resolver: Any = None, **fields: Any) -> Addresses:
    return Addresses(Rules(FetchPolicy(**fields)), resolver)


def test_the_system_is_asked(lookups: Lookups) -> None:
    assert run(SystemResolver().resolve("example.com", 80)) == ["93.184.216.34"]


def test_what_the_system_says_of_an_error_is_not_told(lookups: Lookups) -> None:
    with pytest.raises(ToolError) as caught:
        run(addresses().of("no.example.com", 80, timeout_s=5))

    assert caught.value.code == "unavailable"
    assert str(caught.value) == "the host 'no.example.com' could not be found"
    assert caught.value.__context__ is None


def test_names_that_never_answer_hold_few_threads_and_nobody_longer_than_the_deadline(
    lookups: Lookups,
) -> None:
    resolver = SystemResolver(max_threads=2)

    async def main() -> list[Any]:
        waiting = [
            addresses(resolver).of(f"slow{number}.example.com", 80, timeout_s=0.1)
            for number in range(10)
        ]
        return await asyncio.gather(*waiting, return_exceptions=True)

    failures = run(main())

    assert {failure.code for failure in failures} == {"timeout"}
    assert lookups.most == 2
    assert not resolver._waiting  # pyright: ignore[reportPrivateUsage] - no other sign
    lookups.go.set()
    assert run(resolver.resolve("example.com", 80)) == ["93.184.216.34"]


def test_an_answer_for_a_loop_that_has_ended_is_dropped(lookups: Lookups) -> None:
    resolver = SystemResolver(max_threads=1)
    with pytest.raises(ToolError):
        run(addresses(resolver).of("slow.example.com", 80, timeout_s=0.05))

    lookups.go.set()

    assert run(resolver.resolve("example.com", 80)) == ["93.184.216.34"]


def test_an_answer_that_nobody_waits_for_any_more_is_dropped(lookups: Lookups) -> None:
    resolver = SystemResolver(max_threads=1)

    async def main() -> list[str]:
        with pytest.raises(ToolError):
            await addresses(resolver).of("slow.example.com", 80, timeout_s=0.05)
        lookups.go.set()
        return await resolver.resolve("example.com", 80)

    assert run(main()) == ["93.184.216.34"]


def test_a_forked_process_starts_threads_of_its_own(lookups: Lookups) -> None:
    resolver = SystemResolver(max_threads=1)
    vars(resolver).update(_threads=1, _process=-1)  # as a child finds it

    assert run(resolver.resolve("example.com", 80)) == ["93.184.216.34"]


@pytest.mark.parametrize(
    ("answers", "rule"),
    [
        (["93.184.216.34", "10.0.0.1"], "address not public"),
        (["10.0.0.1", "93.184.216.34"], "address not public"),
        (["93.184.216.34", "nonsense"], "address not public"),
        (["fe80::1%eth0"], "address not public"),
        ([f"93.184.216.{n}" for n in range(100)] + ["::1"], "address not public"),
    ],
)
def test_one_address_that_may_not_be_reached_spoils_the_name(answers: list[str], rule: str) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return answers

    with pytest.raises(FetchBlocked, match=rule) as caught:
        run(addresses(resolve).of("example.com", 80, timeout_s=5))

    assert caught.value.host == "example.com"
    assert "10.0.0.1" not in str(caught.value)


def test_a_name_with_many_addresses_is_tried_at_few_of_them_each_once() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return [f"93.184.216.{n // 2}" for n in range(40)]

    found = run(addresses(resolve).of("example.com", 80, timeout_s=5))

    assert [str(address) for address in found] == [f"93.184.216.{n}" for n in range(8)]


def test_a_name_without_addresses_is_not_found() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return []

    with pytest.raises(ToolError, match="could not be found"):
        run(addresses(resolve).of("example.com", 80, timeout_s=5))


def test_a_resolver_of_others_may_fail_as_it_likes() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise LookupError("10.0.0.53 says no")

    with pytest.raises(ToolError, match="could not be found") as caught:
        run(addresses(resolve).of("example.com", 80, timeout_s=5))

    assert caught.value.__context__ is None


def test_an_address_is_judged_and_not_looked_up() -> None:
    with pytest.raises(FetchBlocked):
        run(addresses().of("::1", 80, timeout_s=5))

    assert [str(found) for found in run(addresses().of("8.8.8.8", 80, timeout_s=5))] == ["8.8.8.8"]


@pytest.mark.parametrize("address", ["169.254.169.254", "224.0.0.1", "0.0.0.0", "::"])
def test_private_networks_do_not_hold_metadata_or_what_is_no_host(address: str) -> None:
    with pytest.raises(FetchBlocked):
        run(addresses(allow_private_networks=True).of(address, 80, timeout_s=5))
