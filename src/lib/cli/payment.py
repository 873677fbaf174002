"""The first half of `lib demo`: an agent pays, its process is killed, another resumes the run.

The process that pays is a child of the demo, killed (SIGKILL) once the ledger has the payment and
before the log has its result. The demo is the second process: it resumes the run.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lib._util.clock import SYSTEM_CLOCK
from lib.algorithms import React
from lib.engine import Engine, LLMHandler, ToolHandler
from lib.events import RunQuery, SQLiteEventStore
from lib.llm import FunctionClient, Message, Reply, ToolCall, ToolResult, message_from_json
from lib.observe.trace import Capture, read_trace
from lib.observe.view.waterfall import Waterfall
from lib.tools import Tool, tool

LEASE_S: Final = 2.0
"""Seconds until another process can resume the run of a killed one."""

_START_S: Final = 120.0
"""A machine that needs longer to start a process and pay cannot show anything."""

_POLL_S: Final = 0.02
_AMOUNT: Final = 100


@dataclass(frozen=True, slots=True)
class Payments:
    """The log and the ledger of the demo's payments, kept from one demo to the next."""

    folder: Path

    @property
    def log(self) -> Path:
        """The event log."""
        return self.folder / "payments.db"

    def ledger(self, order: int | None = None) -> list[str]:
        """Return the payments, of all orders or of one."""
        path = self.folder / "ledger.txt"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [line for line in lines if order is None or line.startswith(f"order {order}:")]

    def pay(self, order: int) -> str:
        """Pay an order: a line in the ledger."""
        line = f"order {order}: {_AMOUNT} EUR to Ada"
        with (self.folder / "ledger.txt").open("a", encoding="utf-8") as ledger:
            ledger.write(f"{line}\n")
        return f"paid {line}"


def payment_tool(payments: Payments, *, hangs: bool) -> Tool:
    """Return the tool; one that hangs after the payment leaves time to kill its process."""

    @tool(name="pay", effects="once")
    def pay(order: int) -> str:
        """Pay an order."""
        receipt = payments.pay(order)
        if hangs:
            threading.Event().wait()
        return receipt

    return pay


def think(messages: Sequence[Message]) -> Reply | str:
    """Stand in for a model: pay, then repeat the result of the tool."""
    match messages[-1].parts[0]:
        case ToolResult(content=content):
            return f"The payment: {content}"
        case _:
            order = int(messages[0].text.rsplit(" ", 1)[1])
            return Reply((ToolCall("call-1", "pay", {"order": order}),))


def payment_engine(payments: Payments, *, hangs: bool) -> Engine:
    """Return the engine of either process."""
    handlers = [
        LLMHandler(FunctionClient(think)),
        ToolHandler([payment_tool(payments, hangs=hangs)]),
    ]
    store = SQLiteEventStore(payments.log)
    return Engine(store, handlers, algorithms=[React()], lease_s=LEASE_S)


async def show_payment(payments: Payments, console: Console) -> None:
    """Pay and be killed, resume the run, and show the ledger, the model's answer and the trace."""
    async with payment_engine(payments, hangs=False) as engine:
        interrupted = await engine.store.runs(RunQuery(status="open"))
        if interrupted:
            run = engine.run(interrupted[0].run_id)
            first = await engine.store.read(run.id, limit=1)
            order = int(message_from_json(first[0].data["input"][0]).text.rsplit(" ", 1)[1])
            _print(console, "resumed", f"run {run.id[:8]} after its event {interrupted[0].head}")
            await engine.resume(run.id)
        else:
            order = 1 + len(await asyncio.to_thread(payments.ledger))
            killed = await asyncio.to_thread(pay_and_be_killed, payments, order)
            _print(
                console,
                "killed",
                f"process {killed} by kill -9, after the payment, before its record",
            )
            run = await engine.start(f"Pay order {order}", idempotency_key=f"order-{order}")
        result = await run.result()
        lines = await asyncio.to_thread(payments.ledger, order)
        _print(console, "ledger", "; ".join(lines) or "no line")
        _print(console, "the model", str(result.output))
        traces = await read_trace(
            engine.store,
            run.id,
            dead_at=SYSTEM_CLOCK.now(),
            capture=Capture(content=False, limit=0),
            wanted=lambda _run, _dead: True,
        )
    spans = [span for trace in traces for span in trace.spans]
    console.print(Padding(Waterfall(spans), (1, 0, 1, 2)))


def pay_and_be_killed(payments: Payments, order: int) -> int:
    """Let another process pay, kill it before it can record that, and return its id. Blocks.

    Raises:
        TimeoutError: there was no payment within two minutes.
    """
    command = [sys.executable, "-m", "lib.cli.payment", str(payments.folder), str(order)]
    deadline = SYSTEM_CLOCK.monotonic() + _START_S
    with subprocess.Popen(  # noqa: S603 - this module, our own arguments
        command
    ) as process:
        try:
            while not payments.ledger(order):
                if process.poll() is not None or SYSTEM_CLOCK.monotonic() > deadline:
                    raise TimeoutError(f"order {order} was not paid: see {str(payments.log)!r}")
                threading.Event().wait(_POLL_S)
        finally:
            process.kill()
    return process.pid


@contextmanager
def without_warnings() -> Generator[None]:
    """Leave out the warnings of a takeover, which `show_payment` shows in its own words."""
    log = logging.getLogger("lib.engine")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _print(console: Console, label: str, text: str) -> None:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", width=len("the model"))
    grid.add_row(label, Text(text))
    console.print(Padding(grid, (0, 0, 0, 2)))


async def _pay(folder: str, order: str) -> None:
    async with payment_engine(Payments(Path(folder)), hangs=True) as engine:
        run = await engine.start(f"Pay order {order}", idempotency_key=f"order-{order}")
        await run.result()


if __name__ == "__main__":
    asyncio.run(_pay(*sys.argv[1:]))
