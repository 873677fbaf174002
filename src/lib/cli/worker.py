"""`lib worker`: drive the runs of a store that nobody drives, until told to stop."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path
from typing import Any, cast

import click

from lib.engine import Algorithm, Engine, Worker

_RULE = "name a function as module:function, such as app.agents:make_engine"


class Factory(click.ParamType[Callable[[], Any]]):
    """A function that makes an engine, named as `module:function`."""

    name = "module:factory"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Callable[[], Any]:
        """Import what is named."""
        module_name, _, path = str(value).partition(":")
        if not module_name or not path:
            self.fail(f"{value!r} lacks a module or a function: {_RULE}", param, ctx)
        try:
            made: Any = _module(module_name)
        except ModuleNotFoundError as error:
            if not f"{module_name}.".startswith(f"{error.name}."):
                raise  # the module is there, and lacks something itself
            where = f"neither installed nor in {Path.cwd()}"
            self.fail(f"there is no module {module_name!r}, {where}: {_RULE}", param, ctx)
        for name in path.split("."):
            made = getattr(made, name, None)
        if not callable(made):
            told = f"module {module_name!r} has no function {path!r}"
            self.fail(f"{told}: {_RULE}", param, ctx)
        if _needs_arguments(made):
            told = f"{path!r} of module {module_name!r} needs arguments"
            self.fail(f"{told}: name a function that needs none", param, ctx)
        return made


def _needs_arguments(made: Callable[..., Any]) -> bool:
    with suppress(ValueError):  # of some that are written in C nobody can tell
        try:
            inspect.signature(made).bind()
        except TypeError:
            return True
    return False


def _module(name: str) -> Any:
    """Import a module that is installed, or in the working directory."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


@click.command()
@click.argument("factory", type=Factory(), metavar="MODULE:FACTORY")
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
    help="Seconds that runs under way may go on after SIGTERM.",
)
def command(factory: Callable[[], Any], *, max_runs: int, drain_s: float) -> None:
    """Drive the runs of a store that nobody drives.

    FACTORY takes no argument and returns an Engine, or an async context manager of one, such as
    one that observes it; it may be async. Start as many workers as you like over one store.

    SIGTERM or SIGINT lets what is under way end, for --drain-s; a second one stops at once. Runs
    that are interrupted are taken up by other workers.
    """
    asyncio.run(_work(factory, max_runs=max_runs, drain_s=drain_s))


async def _work(factory: Callable[[], Any], *, max_runs: int, drain_s: float) -> None:
    async with await _made(factory) as engine:
        if not isinstance(engine, Engine):
            raise _wrong(engine)
        if not engine.hosting.drives:
            raise click.UsageError(
                "the engine was made with drive=False: a worker needs one that drives"
            )
        worker = Worker(engine, max_runs=max_runs, drain_s=drain_s, say=_say)
        asked = False

        def ask() -> None:
            nonlocal asked
            (worker.stop if asked else worker.drain)()
            asked = True

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ask)
        await worker.run()


async def _made(factory: Callable[[], Any]) -> AbstractAsyncContextManager[Any]:
    made = factory()
    if inspect.isawaitable(made):
        made = await made
    if not isinstance(made, AbstractAsyncContextManager):
        raise _wrong(made)
    return cast("AbstractAsyncContextManager[Any]", made)


async def algorithms_of(factory: Callable[[], Any], stack: AsyncExitStack) -> list[Algorithm[Any]]:
    """Return the algorithms of the engine that a factory makes; an engine itself stays closed."""
    made = await _made(factory)
    engine = made if isinstance(made, Engine) else await stack.enter_async_context(made)
    if not isinstance(engine, Engine):
        raise _wrong(engine)
    return [engine.algorithm(name) for name in engine.hosting.algorithms]


def _wrong(made: object) -> click.UsageError:
    return click.UsageError(
        f"the factory returned {type(made).__name__}, not an Engine: return one, "
        "or an async context manager of one"
    )


def _say(line: str) -> None:
    click.echo(f"lib worker: {line}", err=True)
