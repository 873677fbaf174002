"""`lib-server`: serves agents, and describes the routes."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lib.cli.references import ObjectReference
from lib_server import __version__
from lib_server.auth.commands import command as keys

if TYPE_CHECKING:
    from lib_server.serve import DrainingServer

_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_SOURCE: Final = ObjectReference(
    "an engine, an agent, several agents, or a function that makes one of them"
)


@click.group()
@click.version_option(__version__, prog_name="lib-server")
def main() -> None:
    """Serve durable agents over HTTP."""


@main.command()
@click.argument("source", type=_SOURCE)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: a free one."
)
@click.option(
    "--store",
    default="lib.db",
    show_default=True,
    metavar="PATH_OR_URL",
    help="Where the logs are, if SOURCE is agents and no engine.",
)
@click.option(
    "--drive/--no-drive",
    default=True,
    show_default=True,
    help="Drive runs, or leave that to lib worker, if SOURCE is agents.",
)
@click.option(
    "--auth",
    type=click.Choice(["none", "keys"]),
    default="none",
    show_default=True,
    help="keys: callers need an API key of lib-server keys create.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="A reverse proxy whose X-Forwarded-For is believed; may be repeated.",
)
@click.option(
    "--limits",
    "limits_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A TOML file of limits and quotas.",
)
@click.option(
    "--drain-s",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="Seconds that runs may go on after SIGTERM.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What is logged on stderr.",
)
def serve(
    source: Any,
    *,
    host: str,
    port: int,
    store: str,
    drive: bool,
    auth: str,
    proxies: Sequence[str],
    limits_file: Path | None,
    drain_s: float,
    log_level: str,
) -> None:
    """Serve SOURCE, an Engine, an Agent, several agents, or a function that makes one of them.

    SIGTERM or SIGINT takes no new work, ends every stream with a last event, lets runs go on for
    --drain-s, and leaves the others to the next process; a second one stops at once.
    """
    from lib_server.auth.api_key import ApiKeyAuthenticator  # noqa: PLC0415 - see below
    from lib_server.limits import Limits  # noqa: PLC0415 - see below
    from lib_server.serve import make_uvicorn  # noqa: PLC0415 - the commands without it stay quick
    from lib_server.server import Server  # noqa: PLC0415 - see above

    logging.basicConfig(format=_LOG_FORMAT, level=log_level.upper())
    try:
        authenticator = ApiKeyAuthenticator() if auth == "keys" else None
        server = Server(
            source,
            auth=authenticator,
            limits=None if limits_file is None else Limits.read(limits_file),
            store=store,
            drive=drive,
            drain_s=drain_s,
        )
        running = make_uvicorn(server, host=host, port=port, proxies=proxies)
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    _run(running)


@main.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: a free one."
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".lib/demo"),
    show_default=True,
    help="Where the log, the uploads and the index are kept.",
)
def demo(*, port: int, data: Path) -> None:
    """Serve two agents on this machine: one answers about documents, one pays if you approve.

    They need neither a key nor a model. Open the address that is printed in a browser.
    """
    from lib_server.demo import demo_engine  # noqa: PLC0415 - see above
    from lib_server.serve import make_uvicorn  # noqa: PLC0415 - see above
    from lib_server.server import Server  # noqa: PLC0415 - see above

    logging.basicConfig(format=_LOG_FORMAT, level="INFO")
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{str(data)!r} cannot be written: {error.strerror}: name another with --data"
        raise click.ClickException(message) from error
    _run(make_uvicorn(Server(lambda: demo_engine(data)), port=port))


def _run(running: DrainingServer) -> None:
    gc.collect()
    gc.freeze()  # what is loaded by now stays: no collection has to look at it again
    asyncio.run(running.serve())


main.add_command(keys)


@main.command()
@click.option("--base-path", default="", help="Where the server is mounted.")
def openapi(base_path: str) -> None:
    """Print the OpenAPI document of the routes."""
    from lib_server.openapi import document  # noqa: PLC0415 - see above
    from lib_server.routes import ROUTES  # noqa: PLC0415 - see above

    described = document(ROUTES, version=__version__, base_path=base_path)
    click.echo(json.dumps(described, indent=2))
