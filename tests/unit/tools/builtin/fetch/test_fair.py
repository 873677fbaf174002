"""No party uses up what fetches share: connections, turns, threads, chunks."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fakes.hostile_server import HostileServer
from lib._util.effort import Effort, EffortSpent, check
from lib._util.own_threads import OwnThreads
from lib.content import extract
from lib.errors import ToolError
from lib.testing.aio import run
from lib.tools.builtin.fetch import tool as module
from lib.tools.builtin.fetch.body import MAX_CHUNKS, read_body
from lib.tools.builtin.fetch.fair import FairTurns, LoopTurns, party_of
from lib.tools.builtin.fetch.fetcher import MAX_FETCHES_PER_PARTY, Page, SafeFetcher


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the event loop


def page(url: str, body: bytes = b"<p>x") -> Page:
    return Page(
        url=url,
        requested_url=url,
        status=200,
        content_type="text/html",
        charset=None,
        body=body,
        truncated=False,
    )


def test_a_party_is_a_registered_domain() -> None:
    parties = {
        "a.b.example.com": "example.com",
        "example.com": "example.com",
        "EXAMPLE.com": "example.com",
        "a.example.co.uk": "example.co.uk",
        "localhost": "localhost",
        "93.184.216.34": "93.184.216.34",
        "2606:4700::1111": "2606:4700::1111",
    }

    assert {host: party_of(host) for host in parties} == parties


async def test_a_party_waits_for_its_own_turns_and_keeps_no_other_waiting() -> None:
    fair, done, go = FairTurns(2, 3), list[str](), asyncio.Event()

    async def work(party: str) -> None:
        async with fair.turn(party):
            done.append(party)
            await go.wait()

    tasks = [asyncio.create_task(work("evil")) for _ in range(12)]
    await turns()
    tasks += [asyncio.create_task(work("good")), asyncio.create_task(work("late"))]
    await turns()
    began = list(done)
    tasks[2].cancel()  # which waits
    go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(done) == 13
    assert began == ["evil", "evil", "good"]


async def test_a_turn_that_is_given_to_who_was_just_cancelled_goes_on_to_the_next() -> None:
    fair, go = FairTurns(1, 1), asyncio.Event()

    async def work() -> None:
        async with fair.turn("a"):
            await go.wait()

    first = asyncio.create_task(work())
    await turns()
    second, third = asyncio.create_task(work()), asyncio.create_task(work())
    await turns()
    first.cancel()
    await turns(2)  # the turn is given, and not yet taken
    second.cancel()
    go.set()
    await asyncio.gather(first, second, third, return_exceptions=True)
    assert third.exception() is None


def test_each_event_loop_has_turns_of_its_own() -> None:
    shared = LoopTurns(1, 1)

    async def main() -> None:
        async with shared.here().turn("a"):
            assert shared.here() is shared.here()

    run(main())
    run(main())
    assert len(shared._turns) == 1  # pyright: ignore[reportPrivateUsage] - what it keeps is tested


async def test_hosts_of_one_domain_hold_few_connections_and_others_are_served(
    internet: Any,
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.216.34"]

    async with (
        HostileServer() as internet.server,
        SafeFetcher(resolver=resolve) as fetcher,
    ):
        tasks = [
            asyncio.create_task(fetcher.fetch(f"http://a{number}.evil.com/silence"))
            for number in range(3 * MAX_FETCHES_PER_PARTY)
        ]
        assert (await fetcher.fetch("http://good.com/")).body == b"a page"
        await turns(50)
        held = len(internet.server.requests) - 1
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (await fetcher.fetch("http://b.evil.com/")).body == b"a page"
    assert held <= MAX_FETCHES_PER_PARTY


def test_chunks_are_counted_and_not_only_bytes() -> None:
    taken = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal taken
        for _ in range(1_500_000):
            taken += 1
            yield b"x"

    body = run(
        read_body(chunks(), [], max_bytes=1_500_000, ended_early=lambda error: bool(error.args))
    )

    assert (len(body.content), body.truncated) == (MAX_CHUNKS, True)
    assert taken == MAX_CHUNKS


def test_work_ends_when_its_time_is_used_up_or_no_caller_waits() -> None:
    steps = iter(range(1_000))
    effort = Effort(3, clock=lambda: float(next(steps)))
    check()  # without a limit
    with effort.counting():
        for _ in range(3):
            check()
        with pytest.raises(EffortSpent):
            check()
    check()

    called_off = Effort(1_000)
    called_off.cancel()
    with pytest.raises(EffortSpent):
        called_off.check()


@pytest.mark.parametrize(
    ("piece", "content_type"),
    [
        ("<p>x", "text/html"),
        ("<p style='left:'>x", "text/html"),
        ("<style>a b~c{color:red}</style><a>", "text/html"),
        ("<a>", "application/xml"),
    ],
)
async def test_turning_content_into_text_asks_often_whether_to_go_on(
    piece: str, content_type: str
) -> None:
    steps = 0

    def clock() -> float:
        nonlocal steps
        steps += 1
        return float(steps)

    def work(limit: float) -> None:
        body = piece.encode() * (200_000 // len(piece))
        with Effort(limit, clock=clock).counting():
            extract(body, content_type=content_type, charset=None, url="https://e.org/")

    thread = OwnThreads("test", 1)
    with pytest.raises(EffortSpent):
        await thread.run(lambda: work(20.0))
    assert steps < 30
    await thread.run(lambda: work(1e9))
    assert steps > 60


async def test_a_page_without_a_waiting_caller_frees_its_thread() -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(*_: Any, **__: Any) -> Any:
        begun.set()
        try:
            while True:
                check()
        finally:
            ended.set()

    task = asyncio.create_task(module.Reading(read=endless).text_of(page("https://e.org/")))
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 60)


async def test_pages_that_take_too_much_cpu_are_refused_and_others_are_read() -> None:
    reading = module.Reading(cpu_s=0.0)

    evil = [page(f"https://a{n}.evil.com/", b"<p>x" * 50_000) for n in range(12)]
    pages = [*evil, page("https://good.com/", b"<p>a harmless page")]
    *refused, harmless = await asyncio.gather(*map(reading.text_of, pages), return_exceptions=True)

    assert getattr(harmless, "text", None) == "a harmless page"
    assert all(isinstance(one, ToolError) and one.code == "timeout" for one in refused)
