"""The agents that processes of tests serve and drive: `served_app:agents`, `served_app:engine`."""

import asyncio
import os
from typing import Any

from lib import Agent, Engine
from lib.llm import FunctionClient


async def answer(_: Any) -> str:
    if "SERVED_HANGS" in os.environ:
        await asyncio.Event().wait()
    return f"pid {os.getpid()}"


def agents() -> list[Agent]:
    return [Agent(FunctionClient(answer), name="pid")]


def engine() -> Engine:
    lease_s = float(os.environ.get("SERVED_LEASE_S", "30"))
    return Engine(os.environ["SERVED_STORE"], agents=agents(), lease_s=lease_s)
