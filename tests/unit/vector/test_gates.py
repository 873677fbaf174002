"""Tests that reading and writing back has a namespace alone, and other writes share it, in turn."""

import asyncio
from contextlib import AbstractAsyncContextManager

from lib._util.clock import SYSTEM_CLOCK
from lib.vector.gates import Gates


class Calls:
    """Calls that pass a gate, then wait for the test; `inside` names those that are through."""

    def __init__(self) -> None:
        self.gates = Gates()
        self.inside: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, *names: str, namespace: str = "n") -> None:
        """Begin calls, those with an upper-case name alone, and let them get as far as they can."""
        for name in names:
            of_kind = self.gates.exclusive if name.isupper() else self.gates.shared
            self.ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._call(name, of_kind(namespace)))
            await rounds()

    async def end(self, *names: str) -> None:
        for name in names:
            self.ends[name].set()
            await rounds()

    async def cancel(self, *names: str) -> None:
        for name in names:
            self.tasks[name].cancel()
        await rounds()

    async def _call(self, name: str, passed: AbstractAsyncContextManager[None]) -> None:
        async with passed:
            self.inside.append(name)
            try:
                await self.ends[name].wait()
            finally:
                self.inside.remove(name)


async def rounds() -> None:
    for _ in range(5):
        await SYSTEM_CLOCK.sleep(0)


async def test_plain_writes_are_inside_together_and_a_composed_one_alone() -> None:
    calls = Calls()

    await calls.begin("a", "b", "C")
    assert calls.inside == ["a", "b"]
    await calls.end("a")
    assert calls.inside == ["b"]
    await calls.end("b")
    assert calls.inside == ["C"]
    await calls.begin("d", namespace="another")
    assert calls.inside == ["C", "d"]
    await calls.end("C", "d")
    assert len(calls.gates) == 0


async def test_calls_pass_in_the_order_in_which_they_come() -> None:
    calls = Calls()

    await calls.begin("a", "B", "c", "d", "E", "f")
    seen = [list(calls.inside)]
    for name in ("a", "B", "c", "d", "E", "f"):
        await calls.end(name)
        seen.append(list(calls.inside))
    assert seen == [["a"], ["B"], ["c", "d"], ["d"], ["E"], ["f"], []]


async def test_a_call_that_is_cancelled_leaves_its_place() -> None:
    calls = Calls()

    await calls.begin("a", "B", "c", "D", "e")
    await calls.cancel("B")
    assert calls.inside == ["a", "c"]
    await calls.cancel("a")
    await calls.cancel("c", "D")  # at once
    assert calls.inside == ["e"]
    await calls.end("e")
    assert len(calls.gates) == 0


async def test_a_call_that_is_cancelled_as_its_turn_comes_passes_it_on() -> None:
    calls = Calls()

    await calls.begin("A", "B", "c")
    calls.ends["A"].set()
    await SYSTEM_CLOCK.sleep(0)
    assert calls.inside == []
    calls.tasks["B"].cancel()  # whose turn has come, and which has not gone on yet
    await rounds()
    assert calls.inside == ["c"]
    await calls.begin("D")
    await calls.end("c", "D")
    assert len(calls.gates) == 0


async def test_a_gate_is_forgotten_when_its_last_call_has_ended() -> None:
    gates = Gates()

    for n in range(100_000):
        async with gates.shared(f"tenant-{n}"):
            assert len(gates) == 1
    async with gates.exclusive("a"), gates.shared("b"):
        assert len(gates) == 2
    assert len(gates) == 0
