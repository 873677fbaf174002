"""`lib demo`: documents in, a cited answer and its trace out, on one durable log.

Everything lives in one folder: the event log, the vectors, the fitted embedder. Interrupt it
anywhere, even with `kill -9`, call it again with the same question, and it goes on.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NoReturn

import click
from rich.console import Console
from rich.markdown import Markdown

from lib._util.json import digest
from lib.algorithms import React
from lib.cli.models import Model, choose_model
from lib.cli.options import OrderedCommand
from lib.cli.payment import Payments, show_payment, without_warnings
from lib.engine import Engine, LLMHandler, Result, Run, ToolHandler
from lib.errors import LibError
from lib.events import RunQuery, SQLiteEventStore
from lib.ingest import IngestReport, ingest_folder
from lib.ingest.progress import progress_bar
from lib.llm import Message, message_to_json
from lib.observe import ConsoleSink, Observer
from lib.tools import Tool, tool
from lib.vector import EmbeddingIndex, LSAEmbedder, SQLiteVectorStore

QUESTION: Final = "What happens to a payment tool when the process is killed while it runs?"
_HERE: Final = Path(__file__).resolve()
DOCUMENTS: Final = (_HERE.parent / "docs", _HERE.parents[3] / "docs")
"""Folders of the project's own documents: in an installed package, in its repository."""

LEASE_S: Final = 3.0
"""Seconds until the next demo can resume the run of a killed one."""

SYSTEM: Final = (
    "You answer questions about a folder of documents. Search them with search_documents before "
    "you answer, more than once if need be. Answer only from what you found, briefly, and cite "
    "each statement as [source:line]. Say so if the documents do not tell."
)


@click.command(cls=OrderedCommand)
@click.argument(
    "path", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option("--ask", "question", help=f"The question; by default: {QUESTION}")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".lib/demo"),
    show_default=True,
    help="Where the log and the index are kept.",
)
@click.option("--model", help="A model of the configured server; see OPENAI_BASE_URL.")
@click.option("--slow", type=float, default=0.0, help="Seconds to wait in each search.")
@click.option("--serve", is_flag=True, help="Serve agents to a browser instead: lib-server demo.")
def command(
    path: Path | None,
    *,
    question: str | None,
    data: Path,
    model: str | None,
    slow: float,
    serve: bool,
) -> None:
    """Show what is kept when a process is killed, then answer a question about documents.

    Without PATH and --ask, an agent pays and is killed with -9 before the payment is recorded;
    another process resumes the run. Then a question is answered from the documents in PATH, by
    default this project's own.

    With OPENAI_API_KEY, OPENAI_BASE_URL or a local Ollama, that model answers; without one, a
    stand-in answers with sentences that it finds.
    """
    if serve:
        _serve(data)
    documents = path or own_documents()
    try:
        home = index_home(documents, data)
    except OSError as error:
        message = f"{str(data)!r} cannot be written: {error.strerror}: name another with --data"
        raise click.ClickException(message) from error
    chosen = choose_model(model)
    demo = Demo(Console(), documents, question or QUESTION, home, data / "runs.db", chosen, slow)
    payments = Payments(data) if path is None and question is None else None
    raise click.exceptions.Exit(asyncio.run(_show_both(demo, payments)))


def _serve(data: Path) -> NoReturn:
    """Become `lib-server demo`, which is a package of its own."""
    if find_spec("lib_server") is None:
        message = "the server is not installed: pip install lib-server, then lib-server demo"
        raise click.ClickException(message)
    os.execv(sys.executable, [sys.executable, "-m", "lib_server", "demo", "--data", str(data)])  # noqa: S606 - no shell, and no name that is looked up


async def _show_both(demo: Demo, payments: Payments | None) -> int:
    if payments is not None:
        demo.console.rule("an agent pays, and its process is killed", align="left")
        with without_warnings():
            await show_payment(payments, demo.console)
        demo.console.rule("a question about the documents", align="left")
    return await demo.run()


def own_documents(folders: Iterable[Path] = DOCUMENTS) -> Path:
    """Return the folder of this project's documentation, in the package or in its repository."""
    for folder in folders:
        if folder.is_dir():
            return folder
    raise click.UsageError("this installation has no documents of its own: name a PATH")


@dataclass(frozen=True, slots=True)
class Demo:
    """One call of the command."""

    console: Console
    documents: Path
    question: str
    home: Path
    log: Path
    model: Model
    slow: float

    async def run(self) -> int:
        """Index, ask, answer, show the trace; return the exit status."""
        async with open_library(self.documents, self.home, self.console) as library:
            self.console.print(f"[dim]{library.summary}; {self.model.summary}[/dim]\n")
            result = await self._ask(library)
        self.console.print(f"[dim]The log: lib store events {self.log} {result.run_id}[/dim]")
        return 0 if result.outcome == "COMPLETED" else 1

    async def _ask(self, library: Library) -> Result:
        engine = Engine(
            SQLiteEventStore(self.log),
            [LLMHandler(self.model.client), ToolHandler([search_tool(library, self.slow)])],
            algorithms=[React(system=SYSTEM)],
            lease_s=LEASE_S,
        )
        async with engine, Observer(engine, ConsoleSink(), capture_content=False) as observer:
            run = await self._start(engine)
            result = await run.result()
            self._show(result)
            await observer.drain()
        await self.model.aclose()
        return result

    async def _start(self, engine: Engine) -> Run:
        """Start a run, or resume an interrupted one of the same question."""
        question = [message_to_json(Message.user(self.question))]
        for info in await engine.store.runs(RunQuery(status="open")):
            first = await engine.store.read(info.run_id, limit=1)
            if first[0].data["input"] == question:
                note = f"going on with run {info.run_id} after its event {info.head}"
                self.console.print(f"[yellow]{note}[/yellow]")
                await engine.resume(info.run_id)
                return engine.run(info.run_id)
        return await engine.start(self.question)

    def _show(self, result: Result) -> None:
        self.console.print(f"[bold]{self.question}[/bold]\n")
        if result.outcome == "COMPLETED":
            self.console.print(Markdown(result.output))
        else:
            error = dict(result.error or {}).get("message", result.reason)
            self.console.print(f"[red]{result.outcome}[/red]: {error}")
        self.console.print()


def search_tool(library: Library, slow_s: float) -> Tool:
    """Return the tool by which the agent searches the documents."""

    @tool(effects="none")
    async def search_documents(query: str, results: int = 8) -> list[dict[str, Any]]:
        """Search the documents; returns passages with the file and line where they begin."""
        await asyncio.sleep(slow_s)  # noqa: TID251 - a person wants time to kill it
        return await library.search(query, max(1, min(results, 20)))

    return search_documents


DIMENSION: Final = 512


@dataclass(frozen=True, slots=True)
class Library:
    """Documents that can be searched."""

    index: EmbeddingIndex
    report: IngestReport

    @property
    def summary(self) -> str:
        """The number of files and passages, in words."""
        report = self.report
        files = report.added + report.changed + report.unchanged
        new = report.added + report.changed
        skipped = f", {len(report.skipped)} skipped" if report.skipped else ""
        return f"{files} files ({new} new or changed{skipped}), {report.chunks} passages"

    async def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """Return the best passages, each with its source and line."""
        hits = await self.index.search(query, k)
        return [
            {
                "source": hit.meta["source"],
                "line": hit.meta["line"],
                **({"heading": hit.meta["heading"]} if "heading" in hit.meta else {}),
                "text": hit.text,
            }
            for hit in hits
        ]


def index_home(folder: Path, data: Path) -> Path:
    """Return the directory of this folder's index, created if it is missing."""
    home = data / f"library-{digest(str(folder.resolve()))[:12]}"
    home.mkdir(parents=True, exist_ok=True)
    return home


@asynccontextmanager
async def open_library(folder: Path, home: Path, console: Console) -> AsyncGenerator[Library]:
    """Bring the index of the folder up to date and open it, with a progress bar meanwhile.

    Args:
        folder: the documents.
        home: where their index is kept; see `index_home`.
        console: shows the bar.
    """
    store = SQLiteVectorStore(str(home / "vectors.db"), dimension=DIMENSION)
    await store.setup()
    try:
        embedder = await _embedder(home / "lsa.npz")
        index = EmbeddingIndex(store, embedder, hybrid="auto")
        report = await _ingest(folder, home, index, embedder, console)
        await embedder.save(home / "lsa.npz")
        yield Library(index, report)
    finally:
        await store.close()


async def _embedder(path: Path) -> LSAEmbedder:
    """Return the saved embedder, a new one if it cannot be loaded."""
    try:
        return await LSAEmbedder.load(path)
    except (OSError, LibError):
        return LSAEmbedder(DIMENSION)


async def _ingest(
    folder: Path, home: Path, index: EmbeddingIndex, embedder: LSAEmbedder, console: Console
) -> IngestReport:
    manifest = home / "manifest.json"
    try:
        with progress_bar(console) as show:
            report = await ingest_folder(
                folder, index, manifest=manifest, fit=embedder, on_progress=show
            )
    except ValueError as error:  # there are files, and not one word in them
        raise click.UsageError(f"nothing in {str(folder)!r} can be searched: {error}") from error
    if not report.chunks:
        raise click.UsageError(f"there is no text, Markdown or HTML file in {str(folder)!r}")
    return report
