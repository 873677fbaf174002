"""Looking up names: few threads, waiting that ends, and no address that was not checked."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address
from typing import Any

import pytest

from lib._util.clock import SYSTEM_CLOCK
from lib.errors import FetchBlocked, ToolError
from lib.testing.aio import run
from lib.tools.builtin.fetch.fetcher import SafeFetcher
from lib.tools.builtin.fetch.policy import FetchPolicy, Rules
from lib.tools.builtin.fetch.resolver import Addresses, SystemResolver


class Lookups:
    """Stands for `getaddrinfo`: names that begin with "slow" wait until they are let go.

    Attributes:
        hosts: what has been looked up.
    """

    def __init__(self) -> None:
        self.go = threading.Event()
        self.running = self.most = 0
        self.hosts: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, host: str, port: int, **_: Any) -> list[Any]:
        with self._lock:
            self.hosts.add(host)
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            if host.startswith("slow"):
                self.go.wait(200)
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


async def test_names_are_resolved_by_the_system(lookups: Lookups) -> None:
    assert (await SystemResolver().resolve("example.com", 80)) == ["93.184.216.34"]


async def test_the_error_of_the_system_is_not_shown(lookups: Lookups) -> None:
    with pytest.raises(ToolError) as caught:
        await addresses().of("no.example.com", 80, timeout_s=200)

    assert caught.value.code == "unavailable"
    assert str(caught.value) == "could not be found"
    assert caught.value.__context__ is None


async def test_names_that_never_answer_hold_few_threads_and_no_caller_past_the_deadline(
    lookups: Lookups,
) -> None:
    resolver = SystemResolver(max_threads=2, max_all_threads=2)

    waiting = [
        addresses(resolver).of(f"slow{number}.example.com", 80, timeout_s=0.1)
        for number in range(10)
    ]
    failures = await asyncio.gather(*waiting, return_exceptions=True)

    while lookups.most < 2:  # a thread may begin late
        time.sleep(0.001)
    assert {getattr(failure, "code", None) for failure in failures} == {"timeout"}
    assert lookups.most == 2
    assert not resolver._waiting  # pyright: ignore[reportPrivateUsage] - no other sign
    lookups.go.set()
    assert (await resolver.resolve("example.com", 80)) == ["93.184.216.34"]


async def test_names_without_a_waiting_caller_do_not_hold_up_others(lookups: Lookups) -> None:
    resolver = SystemResolver(max_threads=2, max_all_threads=5)
    found = addresses(resolver)

    for names in ({"slow1.com", "slow2.com"}, {"slow3.com", "slow4.com"}):
        while not names <= lookups.hosts:  # a thread may begin late
            waiting = [found.of(name, 80, timeout_s=0.05) for name in names - lookups.hosts]
            assert all(await asyncio.gather(*waiting, return_exceptions=True))
        assert await resolver.resolve("example.com", 80) == ["93.184.216.34"]
    while "slow5.com" not in lookups.hosts:
        with pytest.raises(ToolError, match="took over"):
            await found.of("slow5.com", 80, timeout_s=0.05)
    with pytest.raises(ToolError, match="took over"):  # the bound of all threads
        await found.of("example.com", 80, timeout_s=0.05)
    lookups.go.set()
    assert (await resolver.resolve("example.com", 80)) == ["93.184.216.34"]
    assert lookups.most == 5


async def test_a_late_lookup_whose_place_was_taken_starts_no_other(lookups: Lookups) -> None:
    resolver = SystemResolver(max_threads=1, max_all_threads=3)

    with pytest.raises(ToolError):
        await addresses(resolver).of("slow1.com", 80, timeout_s=0.05)
    second = asyncio.create_task(resolver.resolve("slow2.com", 80))
    while lookups.running < 2:
        await SYSTEM_CLOCK.sleep(0.01)
    third = asyncio.create_task(resolver.resolve("example.com", 80))
    await SYSTEM_CLOCK.sleep(0.05)
    assert (lookups.running, third.done()) == (2, False)
    lookups.go.set()
    assert await asyncio.gather(second, third) == [["93.184.216.34"]] * 2
    assert lookups.most == 2


async def test_one_name_takes_two_threads_at_most(lookups: Lookups) -> None:
    resolver = SystemResolver(max_threads=5)

    slow = [asyncio.create_task(resolver.resolve("slow.com", 80)) for _ in range(9)]
    other = await resolver.resolve("example.com", 80)
    while lookups.running < 2:  # a thread may begin late
        await SYSTEM_CLOCK.sleep(0.001)
    assert lookups.running == 2
    lookups.go.set()
    assert await asyncio.gather(*slow) == [other] * 9
    assert other == ["93.184.216.34"]


async def test_a_lookup_that_was_left_gives_back_its_thread_when_it_ends(lookups: Lookups) -> None:
    resolver = SystemResolver(max_threads=1, max_all_threads=3)
    found = addresses(resolver)

    for number in range(2):
        with pytest.raises(ToolError):
            await found.of(f"slow{number}.com", 80, timeout_s=0.05)
    lookups.go.set()
    while resolver._threads:  # pyright: ignore[reportPrivateUsage] - no other sign
        await SYSTEM_CLOCK.sleep(0.01)
    lookups.go.clear()
    task = asyncio.create_task(resolver.resolve("slow.com", 80))
    await SYSTEM_CLOCK.sleep(0.05)
    waiting = asyncio.create_task(resolver.resolve("example.com", 80))
    await SYSTEM_CLOCK.sleep(0.05)
    assert not waiting.done()
    lookups.go.set()
    await asyncio.gather(task, waiting)


def test_an_answer_for_a_loop_that_has_ended_is_dropped(lookups: Lookups) -> None:
    resolver = SystemResolver(max_threads=1)
    with pytest.raises(ToolError):
        run(addresses(resolver).of("slow.example.com", 80, timeout_s=0.05))

    lookups.go.set()

    assert run(resolver.resolve("example.com", 80)) == ["93.184.216.34"]


async def test_an_answer_without_a_waiting_caller_is_dropped(lookups: Lookups) -> None:
    resolver = SystemResolver(max_threads=1)

    with pytest.raises(ToolError):
        await addresses(resolver).of("slow.example.com", 80, timeout_s=0.05)
    lookups.go.set()
    assert (await resolver.resolve("example.com", 80)) == ["93.184.216.34"]


async def test_a_forked_process_starts_threads_of_its_own(lookups: Lookups) -> None:
    resolver = SystemResolver(max_threads=1)
    vars(resolver).update(_threads=1, _process=-1)  # as a child finds it

    assert (await resolver.resolve("example.com", 80)) == ["93.184.216.34"]


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
async def test_one_address_that_may_not_be_reached_spoils_the_name(
    answers: list[str], rule: str
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return answers

    with pytest.raises(FetchBlocked, match=rule) as caught:
        await addresses(resolve).of("example.com", 80, timeout_s=200)

    assert caught.value.host == "example.com"
    assert "10.0.0.1" not in str(caught.value)


async def test_a_name_with_many_addresses_is_tried_at_few_of_them_each_once() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return [f"93.184.216.{n // 2}" for n in range(40)]

    found = await addresses(resolve).of("example.com", 80, timeout_s=200)

    assert [str(address) for address in found] == [f"93.184.216.{n}" for n in range(8)]


async def test_a_name_without_addresses_is_not_found() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return []

    with pytest.raises(ToolError, match="could not be found"):
        await addresses(resolve).of("example.com", 80, timeout_s=200)


async def test_a_resolver_of_others_may_fail_as_it_likes() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise LookupError("10.0.0.53 says no")

    with pytest.raises(ToolError, match="could not be found") as caught:
        await addresses(resolve).of("example.com", 80, timeout_s=200)

    assert caught.value.__context__ is None


async def test_an_address_is_judged_and_not_looked_up() -> None:
    with pytest.raises(FetchBlocked):
        await addresses().of("::1", 80, timeout_s=200)

    assert [str(found) for found in (await addresses().of("8.8.8.8", 80, timeout_s=200))] == [
        "8.8.8.8"
    ]


A = "93.184.216.34"


class Resolves:
    def __init__(self, result: Any) -> None:
        self._result = result

    async def resolve(self, host: str) -> Any:
        return self._result


class Blocks:
    def resolve(self, host: str, port: int) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        return [A]


class Called:
    async def __call__(self, host: str, port: int) -> Any:
        return [A]


async def by_name(host: str) -> Any:
    return [A]


async def with_a_family(host: str, family: int = 4) -> Any:
    return [A] if family == 4 else []


async def with_a_port(host: str, port: int = 0, family: int = 4) -> Any:
    return [A] if port == 80 else []


async def with_anything(*args: Any) -> Any:
    return [A] if args == ("example.com", 80) else []


def that_blocks(_: str) -> Any:
    return [A]


def that_leads_on(host: str, _: int) -> Any:
    return by_name(host)


def of_nothing() -> Any:
    return [A]


def of_three(host: str, port: int, family: int) -> Any:
    return [A, host, port, family]


def of_a_keyword(host: str, *, port: int) -> Any:
    return [A, host, port]


@pytest.mark.parametrize(
    "resolver",
    [
        *(by_name, with_a_family, with_a_port, with_anything, Blocks(), Called()),
        *(that_blocks, that_leads_on, partial(with_a_port, family=5)),
        *(Resolves(A), Resolves([A.encode()]), Resolves({A}), Resolves([ip_address(A)])),
        *(Resolves(ip_address(A)), Resolves(A.encode()), Resolves(one for one in [A])),
        Resolves([(socket.AF_INET, socket.SOCK_STREAM, 6, "", (A, 80))]),
    ],
)
async def test_resolvers_may_have_many_shapes(resolver: Any) -> None:
    found = await addresses(resolver).of("example.com", 80, timeout_s=200)

    assert [str(address) for address in found] == [A]


@pytest.mark.parametrize(
    "result",
    [
        *(None, 5, [5], [None], {A: 1}, [(A, 80)], [(1, 2, 3, 4, 5)], [{"host": A}], [b"\xff"]),
        *([(1, 2, 3, 4, ())], [A] * 5_000, iter(int, 1)),
    ],
)
async def test_what_a_resolver_returns_and_is_no_list_of_addresses_is_no_answer(
    result: Any,
) -> None:
    def blocks(_: str) -> Any:
        return result

    for resolver in (Resolves(result), blocks):
        with pytest.raises(ToolError, match=r"could not be found") as caught:
            await addresses(resolver).of("example.com", 80, timeout_s=200)

        assert caught.value.code == "unavailable"
        assert not isinstance(caught.value, FetchBlocked)


async def test_a_resolver_that_blocks_may_fail_as_it_likes() -> None:
    def resolve(host: str) -> Any:
        raise StopIteration("10.0.0.53 says no")

    with pytest.raises(ToolError, match="could not be found"):
        await addresses(resolve).of("example.com", 80, timeout_s=200)


async def test_a_blocking_resolver_holds_no_other_name_up() -> None:
    go = threading.Event()

    def resolve(host: str) -> Any:
        if host == "slow.com":
            go.wait(20)
        return [A]

    found = addresses(resolve)
    with pytest.raises(ToolError, match="took over"):
        await found.of("slow.com", 80, timeout_s=0.05)
    assert await found.of("example.com", 80, timeout_s=200)
    go.set()


@pytest.mark.parametrize(
    "resolver",
    [
        *(object(), {"example.com": [A]}, "8.8.8.8", 5, Blocks, socket.gethostbyname),
        *(of_nothing, of_three, of_a_keyword),
    ],
)
def test_an_object_without_getaddrinfo_is_refused_as_resolver(resolver: Any) -> None:
    with pytest.raises(TypeError, match="resolver is a function of"):
        SafeFetcher(resolver=resolver)


@pytest.mark.parametrize("address", ["169.254.169.254", "224.0.0.1", "0.0.0.0", "::"])
async def test_private_networks_do_not_hold_metadata_or_what_is_no_host(address: str) -> None:
    with pytest.raises(FetchBlocked):
        await addresses(allow_private_networks=True).of(address, 80, timeout_s=200)
