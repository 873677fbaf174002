"""The command and its subcommands; each one's code is loaded when it is called."""

from __future__ import annotations

import importlib
from typing import Final

import click

from lib._util.version import __version__
from lib.errors import LibError

COMMANDS: Final = {
    "demo": ("lib.cli.demo", "Ask a question about a folder of documents."),
    "mcp": ("lib.cli.mcp", "Serve tools and agents to clients of the Model Context Protocol."),
    "memory": ("lib.cli.memory", "Show, correct and forget what agents remember of users."),
    "privacy": ("lib.cli.privacy", "Erase runs and tenants for good, and what has expired."),
    "store": ("lib.cli.store", "Look into an event store."),
    "trace": ("lib.cli.trace", "Show what a run did, as a waterfall or as a page."),
    "vector": ("lib.cli.vector", "Move records between vector stores, or look into one."),
    "worker": ("lib.cli.worker", "Drive the runs of a store that have no worker."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name."""
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command: click.Command = importlib.import_module(module).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; an error of the library is one line, not a traceback."""
        try:
            return super().invoke(ctx)
        except LibError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lib")
def main() -> None:
    """Put LLM agents in front of customers."""
