"""A progress bar for people, to be given to `ingest_folder` as `on_progress`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(
    console: Console | None = None, *, label: str = "indexing"
) -> Generator[Callable[[int, int, str], None]]:
    """Show a bar while the context lasts, and give the function that moves it.

    Args:
        console: where it is drawn; None is standard error. Elsewhere than on a terminal only its
            last state is printed.
        label: what is being done.
    """
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[path]}"),
        console=console or Console(stderr=True),
    ) as bar:
        task = bar.add_task(label, total=None, path="")

        def move(done: int, total: int, path: str) -> None:
            bar.update(task, completed=done, total=total, path=escape(path))

        yield move
