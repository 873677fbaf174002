"""The order of options, the same in all commands: what to work on, what of it, how to print it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

ORDER: Final = (
    # where
    *(
        "store",
        "data",
        "blobs",
        "vectors",
        "memories",
        "prefix",
        "dimension",
        "metric",
        "app",
        "model",
        "provider",
    ),
    # what of it
    *(
        "tenant",
        "user",
        "namespaces",
        "namespace",
        "only_open",
        "roots",
        "superseded",
        "all_of_user",
    ),
    *("older_than", "not_recalled_for", "open_too"),
    *("question", "vector", "like", "hybrid", "filter", "k", "happened", "result", "priced", "by"),
    *("limit", "depth", "width", "content", "deep", "batch_size"),
    # how
    *("slow", "serve", "max_runs", "drain_s", "wait_s", "log_level", "dry_run", "force", "yes"),
    *("page", "as_json"),
)
"""The names of the parameters that options set."""


def in_order(params: Sequence[click.Parameter]) -> list[click.Parameter]:
    """Return arguments as they stand, then options in the order of `ORDER`.

    Raises:
        ValueError: an option is not in it.
    """
    arguments = [each for each in params if isinstance(each, click.Argument)]
    options = [each for each in params if not isinstance(each, click.Argument)]
    return arguments + sorted(options, key=lambda each: ORDER.index(each.name or ""))


class OrderedCommand(click.Command):
    """A command whose options stand in the common order."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what `click.Command` takes."""
        super().__init__(*args, **kwargs)
        self.params: list[click.Parameter] = in_order(self.params)
