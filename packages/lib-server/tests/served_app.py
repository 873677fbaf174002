"""What processes of tests serve and drive: `served_app:agents`, `served_app:engine`."""

import os

from lib import Agent, Engine
from lib.llm import FunctionClient


def agents() -> list[Agent]:
    return [Agent(FunctionClient(lambda _: f"pid {os.getpid()}"), name="pid")]


def engine() -> Engine:
    return Engine(os.environ["SERVED_STORE"], agents=agents())
