"""`lib mcp serve`: tools and agents for a client of the Model Context Protocol."""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import IO, Any, Final, cast

import click

from lib.cli.options import OrderedCommand
from lib.cli.references import ObjectReference
from lib.mcp.server import MCPToolServer
from lib.mcp.stdio import divert_stdout, serve_stdio

_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_SERVED: Final = ObjectReference("an MCPToolServer, or a function that makes one,")


@click.group()
def command() -> None:
    """Serve clients of the Model Context Protocol."""


@command.command(cls=OrderedCommand)
@click.argument("name", metavar="MODULE:NAME")  # imported once printing is diverted
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
    help="What the library logs on stderr, unless the module sets logging up itself.",
)
@click.pass_context
def serve(ctx: click.Context, name: str, log_level: str) -> None:
    """Serve the program that starts this one, over standard input and output.

    NAME is an MCPToolServer, or what that offers: tools, functions, agents, an Engine; or a
    function without arguments, plain or async, that returns one of them or an async context
    manager of one.

    What the module prints goes to standard error. The command ends when its standard input does,
    and at SIGTERM or SIGINT; runs that were under way can be resumed over the same store.
    """
    stdout = divert_stdout()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)  # a thread waits for input, whatever else ends
    logging.basicConfig(format=_LOG_FORMAT)
    logging.getLogger("lib").setLevel(log_level.upper())
    asyncio.run(_serve(_SERVED.convert(name, None, ctx), stdout))


async def _serve(found: Any, stdout: IO[bytes]) -> None:
    made: Any = found() if callable(found) else found
    if inspect.isawaitable(made):
        made = await made
    async with AsyncExitStack() as stack:
        if isinstance(made, AbstractAsyncContextManager) and not isinstance(made, MCPToolServer):
            made = await stack.enter_async_context(cast("AbstractAsyncContextManager[Any]", made))
        try:
            server = made if isinstance(made, MCPToolServer) else MCPToolServer(made)
        except TypeError as error:
            raise click.UsageError(f"expected what can be served: {error}") from None
        await serve_stdio(server, stdout=stdout)
