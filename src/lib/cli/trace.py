"""`lib trace`: one trace as a waterfall, in the terminal or as a page; the log stays as it is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from lib._util.clock import SYSTEM_CLOCK
from lib._util.files import write_atomically
from lib.cli.options import OrderedCommand
from lib.cli.stores import FORMS, VARIABLE, StoreParam, find_run, reading
from lib.cli.terminal import json_line, text_line
from lib.errors import RunNotFound
from lib.evals import Score
from lib.events import RunInfo
from lib.events.urls import StoreURL
from lib.observe import Span
from lib.observe.trace import Capture, RunTrace, read_trace
from lib.observe.view.page import Page, render_page
from lib.observe.view.waterfall import Waterfall
from lib.observe.view.words import state_of, title_of

PIPE_WIDTH: Final = 120
"""Columns of a trace that is not printed to a terminal."""

ROWS: Final = 500
"""Spans that are drawn in the terminal without --limit."""

_TERMINAL_CHARS: Final = 1_000
_PAGE_CHARS: Final = 20_000
"""Characters of each piece of content."""


@click.command(cls=OrderedCommand)
@click.argument("run_id", metavar="RUN")
@click.option(
    "--store",
    type=StoreParam(),
    required=True,
    envvar=VARIABLE,
    help=f"{FORMS[0].upper()}{FORMS[1:]}; ${VARIABLE} if it is not given.",
)
@click.option("--depth", type=click.IntRange(min=1), help="Levels to show; 1 is the root alone.")
@click.option("--limit", type=click.IntRange(min=1), help=f"Rows to show; by default {ROWS}.")
@click.option("--width", type=click.IntRange(min=1), help="Columns; by default the terminal's.")
@click.option("--content", is_flag=True, help="Show prompts, replies, arguments and results, too.")
@click.option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Write one self-contained page instead; - for stdout.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON value a line, one for each span.")
def command(
    run_id: str,
    *,
    store: StoreURL,
    depth: int | None,
    limit: int | None,
    width: int | None,
    content: bool,
    page: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Show the trace that RUN belongs to: what it did, when, and how it came out.

    RUN is the id of a root run or of any run below it, or the beginning of one. The store is opened
    read-only.
    """
    if as_json and (page, depth, limit, width) != (None, None, None, None):
        raise click.UsageError(
            "--json shows all spans: leave --html, --depth, --limit, --width out"
        )
    if page is not None:
        if (depth, limit, width) != (None, None, None):
            raise click.UsageError("a page shows all spans: leave --depth, --limit and --width out")
        _refuse_to_replace(page, force=force)
    capture = Capture(content=content, limit=_PAGE_CHARS if page or as_json else _TERMINAL_CHARS)
    root, runs = asyncio.run(_read(store, run_id, capture))
    spans = [span for run in runs for span in run.spans]
    if as_json:
        for span in spans:
            click.echo(json_line(_to_json(span)))
    elif page is None:
        _draw(root, spans, Waterfall(spans, depth=depth, limit=limit or ROWS), width)
    else:
        shown = Page(run_id=root.run_id, spans=spans, content=content, scores=_scores(runs))
        _write(page, render_page(shown), force)


def _to_json(span: Span) -> dict[str, Any]:
    """Return a span as plain data, without empty fields."""
    fields: dict[str, Any] = {
        **asdict(replace(span, trace={})),
        "start": span.start.isoformat(),
        "end": None if span.end is None else span.end.isoformat(),
        "state": state_of(span),
        "events": [{**asdict(event), "at": event.at.isoformat()} for event in span.events],
    }
    return {name: value for name, value in fields.items() if value not in (None, {}, [], ())}


def _scores(runs: Sequence[RunTrace]) -> dict[str, list[Score]]:
    """Return the scores of each span, by its id."""
    scores: dict[str, list[Score]] = {}
    for run in runs:
        for logged in run.scores:
            scores.setdefault(logged.span_id, []).append(logged.score)
    return scores


async def _read(
    place: StoreURL, run_id: str, capture: Capture
) -> tuple[RunInfo, Sequence[RunTrace]]:
    async with reading(place) as store:
        root_id = (await find_run(store, run_id)).root_id
        root = await store.run(root_id)
        now = SYSTEM_CLOCK.now()
        runs = await read_trace(store, root_id, dead_at=now, capture=capture, wanted=_every_run)
    if root is None or not runs:
        raise RunNotFound(root_id)
    return root, runs


def _every_run(_run: RunInfo, _dead: bool) -> bool:
    return True


def _draw(root: RunInfo, spans: Sequence[Span], waterfall: Waterfall, width: int | None) -> None:
    console = Console()
    if width is not None or not console.is_terminal:
        console = Console(width=width or PIPE_WIDTH)
    title = text_line(title_of(spans))
    run = f"{text_line(root.run_id)}, begun {root.created_at:%Y-%m-%d %H:%M:%S} UTC"
    console.print(Text(title, "bold", no_wrap=True, overflow="ellipsis"))
    console.print(Text(run, "dim", no_wrap=True, overflow="ellipsis"))
    console.print(waterfall)


def _refuse_to_replace(page: Path, *, force: bool) -> None:
    if str(page) != "-" and page.exists() and not force:
        raise click.ClickException(f"{str(page)!r} is there already: --force replaces it")


def _write(page: Path, content: str, force: bool) -> None:
    raw = content.encode()
    if str(page) == "-":
        sys.stdout.buffer.write(raw)
        return
    _refuse_to_replace(page, force=force)
    try:
        write_atomically(page, raw)
    except OSError as error:
        raise click.ClickException(f"{str(page)!r} was not written: {error.strerror}") from error
    click.echo(f"{page}: {len(raw):,} bytes", err=True)
