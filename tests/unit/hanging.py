"""A test that its time-out does not end; run by test_hanging.py alone."""

import asyncio

import pytest


@pytest.mark.timeout(1, func_only=True)
async def test_a_callback_that_spins() -> None:
    loop = asyncio.get_running_loop()

    def spin() -> None:
        loop.call_soon(spin)
        while True:
            pass

    loop.call_soon(spin)
    await asyncio.Event().wait()


def test_another() -> None:
    pass
