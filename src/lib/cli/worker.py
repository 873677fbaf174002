"""`lib worker`: drive the runs of a store that have no worker, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Final, cast

import click

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.cli.options import OrderedCommand
from lib.cli.references import ObjectReference
from lib.engine import Algorithm, Engine, Worker
from lib.errors import StoreError

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FACTORY: Final = ObjectReference("a function that makes an engine", function=True)


@click.command(cls=OrderedCommand)
@click.argument("factory", type=FACTORY, metavar="MODULE:FACTORY")
@click.option(
    "--max-runs",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="So many runs at once.",
)
@click.option(
    "--drain-s",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds that runs may go on after SIGTERM.",
)
@click.option(
    "--wait-for-store",
    "wait_s",
    type=click.FloatRange(min=0),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to try again at the start while the store does not answer.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
    help="What the library logs on stderr, unless the module sets logging up itself.",
)
def command(
    factory: Callable[[], Any], *, max_runs: int, drain_s: float, wait_s: float, log_level: str
) -> None:
    """Drive the runs of a store that have no worker.

    FACTORY takes no argument and returns an Engine, or an async context manager of one, such as
    one that observes it; it may be async. Start as many workers as you like over one store.

    A store that does not answer at the start is tried again, ever more seldom, for
    --wait-for-store; FACTORY is called anew for each attempt.

    SIGTERM or SIGINT lets runs finish for --drain-s; a second one stops at once. Other workers
    resume the runs that were interrupted.
    """
    logging.basicConfig(format=_LOG_FORMAT)
    if log_level != "warning":  # which is Python's own
        logging.getLogger("lib").setLevel(log_level.upper())
    asyncio.run(_work(factory, max_runs=max_runs, drain_s=drain_s, wait_s=wait_s))


async def _work(
    factory: Callable[[], Any], *, max_runs: int, drain_s: float, wait_s: float
) -> None:
    loop, starting = asyncio.get_running_loop(), asyncio.current_task()
    worker: Worker | None = None
    stopping = False

    def stop() -> None:
        nonlocal stopping
        if worker is not None:
            (worker.stop if stopping else worker.drain)()
        elif starting is not None and not stopping:
            starting.cancel()
        stopping = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with AsyncExitStack() as stack:
        try:
            engine = await _entered(factory, stack, wait_s, SYSTEM_CLOCK)
        except asyncio.CancelledError:
            if not stopping:
                raise
            _say("stopped before the store answered")
            return
        worker = Worker(engine, max_runs=max_runs, drain_s=drain_s, report=_say)
        await worker.run()


async def _entered(
    factory: Callable[[], Any], stack: AsyncExitStack, wait_s: float, clock: Clock
) -> Engine:
    """Enter what the factory makes, again while its store does not answer; return the engine.

    Raises:
        StoreError: the store has not answered for `wait_s` seconds, or fails in another way.
        UsageError: the factory makes something else.
    """
    give_up, pause_s = clock.monotonic() + wait_s, _FIRST_PAUSE_S
    waiting = False
    while True:
        try:
            engine = await stack.enter_async_context(await _made(factory))
            break
        except StoreError as error:
            left_s = give_up - clock.monotonic()
            if not error.retryable or left_s <= 0:
                raise
            if not waiting:
                _say(f"the store does not answer, trying again for {wait_s:g} s: {error}")
            waiting = True
        await clock.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    if waiting:
        _say("the store answers")
    if not isinstance(engine, Engine):
        raise _wrong(engine)
    if not engine.hosting.drives:
        raise click.UsageError(
            "the engine was made with drive=False: a worker needs one that drives"
        )
    return engine


async def _made(factory: Callable[[], Any]) -> AbstractAsyncContextManager[Any]:
    made = factory()
    if inspect.isawaitable(made):
        made = await made
    if not isinstance(made, AbstractAsyncContextManager):
        raise _wrong(made)
    return cast("AbstractAsyncContextManager[Any]", made)


async def algorithms_of(factory: Callable[[], Any], stack: AsyncExitStack) -> list[Algorithm[Any]]:
    """Return the algorithms of the engine that a factory makes; an engine itself stays closed."""
    engine = await engine_of(factory, stack)
    return [engine.algorithm(name) for name in engine.hosting.algorithms]


async def engine_of(factory: Callable[[], Any], stack: AsyncExitStack) -> Engine:
    """Return the engine that a factory makes, to look at; an engine itself stays closed."""
    made = await _made(factory)
    engine = made if isinstance(made, Engine) else await stack.enter_async_context(made)
    if not isinstance(engine, Engine):
        raise _wrong(engine)
    return engine


def _wrong(made: object) -> click.UsageError:
    return click.UsageError(
        f"the factory returned {type(made).__name__}, not an Engine: return one, "
        "or an async context manager of one"
    )


def _say(line: str) -> None:
    click.echo(f"lib worker: {line}", err=True)
