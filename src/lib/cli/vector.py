"""`lib vector`: move records between vector stores, and look into one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, get_args

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lib.cli import stores
from lib.cli.terminal import json_line, text_line
from lib.cli.vector_stores import StoreParam, reading, writing
from lib.errors import HybridUnavailable, LibError, VectorError
from lib.ingest.progress import progress_bar
from lib.vector import (
    Filter,
    InvalidFilter,
    Match,
    Metric,
    OpenAIEmbedder,
    VectorStore,
)
from lib.vector.contract import is_hybrid, is_scannable
from lib.vector.copy import CopiedNamespace, chosen_namespaces, copy_store
from lib.vector.records import Layout
from lib.vector.urls import StoreName

MAX_SHOWN: Final = 120
"""Characters of a text or of metadata that a table shows."""

_store_argument = click.argument("store", type=StoreParam())
_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON value a line.")
_dimension_option = click.option(
    "--dimension", type=click.IntRange(min=1), help="Of STORE's vectors, if it does not tell."
)
_metric_option = click.option(
    "--metric", type=click.Choice(get_args(Metric)), help="Of STORE, if it does not tell."
)


class JsonParam(click.ParamType[Any]):
    """An argument in JSON."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return what the text says."""
        try:
            return json.loads(value)
        except ValueError as error:
            self.fail(f"not JSON: {error}", param, ctx)
        except RecursionError:
            self.fail("JSON that is nested too deeply", param, ctx)


VARIABLE: Final = "LIB_VECTOR_STORE"
"""The environment variable that names the vector store, where it is not the event store's."""


class VectorCommand(stores.StoreCommand):
    """A command whose first store may be left out if the environment names it."""

    variables: ClassVar[tuple[str, ...]] = (VARIABLE, stores.VARIABLE)


class SearchCommand(VectorCommand):
    """A search: a single argument may be its TEXT instead of a store."""

    def lacks_store(self, needed: Sequence[str], found: Mapping[str, Any]) -> bool:
        """Return True if STORE is missing: with one argument, if the options need a TEXT."""
        if isinstance(found.get("text"), str):
            return False
        wants_text = isinstance(found.get("model"), str) or found.get("hybrid") is True
        return wants_text or super().lacks_store(needed, found)


class VectorGroup(click.Group):
    """The group of these commands."""

    command_class: type[click.Command] | None = VectorCommand


@click.group(cls=VectorGroup)
def command() -> None:
    """Move records between vector stores, and look into one.

    A store is a path of an SQLite file or a URL: sqlite:///PATH, postgresql://HOST/DATABASE,
    qdrant+http://HOST:PORT/COLLECTION, qdrant:///PATH, lancedb:///PATH, chroma://HOST:PORT,
    chroma:///PATH, pinecone://INDEX. If STORE or FROM is left out, $LIB_VECTOR_STORE names it, or
    else $LIB_STORE.
    """


@command.command()
@_store_argument
@_dimension_option
@_metric_option
@_json_option
def info(store: StoreName, *, dimension: int | None, metric: Metric | None, as_json: bool) -> None:
    """Show the dimension, the metric and the namespaces of STORE."""
    facts = asyncio.run(_facts(store, Layout(dimension=dimension, metric=metric)))
    if as_json:
        click.echo(json_line(facts))
        return
    named = facts.pop("namespaces")
    _show([facts])
    click.echo()
    _show(named)


async def _facts(name: StoreName, layout: Layout) -> dict[str, Any]:
    async with reading(name, dimension=layout.dimension, metric=layout.metric) as store:
        counts = {one: await store.count(namespace=one) for one in await store.namespaces()}
        return {
            "store": name.shown,
            "kind": name.kind,
            "dimension": store.dimension,
            "metric": store.metric,
            "records": sum(counts.values()),
            "namespaces": [{"namespace": one, "records": counts[one]} for one in counts],
        }


@command.command()
@click.argument("source", metavar="FROM", type=StoreParam())
@click.argument("target", metavar="TO", type=StoreParam())
@click.option("--namespace", "namespaces", multiple=True, help="Only this one; may be repeated.")
@click.option("--batch-size", type=click.IntRange(1, 10_000), default=500, show_default=True)
@_dimension_option
@_metric_option
@_json_option
def copy(
    source: StoreName,
    target: StoreName,
    *,
    namespaces: tuple[str, ...],
    batch_size: int,
    dimension: int | None,
    metric: Metric | None,
    as_json: bool,
) -> None:
    """Copy records FROM one store TO another, made if it is missing, and verify it.

    Nothing is deleted. Interrupted, the same command goes on where it was. Exit status 1 if
    records are missing at the end.
    """
    if source == target:
        raise click.UsageError("a store cannot be copied onto itself")
    layout = Layout(dimension=dimension, metric=metric)
    copied = asyncio.run(_copy(source, target, layout, namespaces or None, batch_size))
    rows = [asdict(one) for one in copied]
    if as_json:
        _print_json(rows)
    else:
        _show(rows)
    missing = sum(one.missing for one in copied)
    if missing:
        raise click.ClickException(f"{missing} records are not in {target.shown}: copy them again")


async def _copy(
    source: StoreName,
    target: StoreName,
    layout: Layout,
    namespaces: Sequence[str] | None,
    batch_size: int,
) -> list[CopiedNamespace]:
    async with reading(source, dimension=layout.dimension, metric=layout.metric) as read:
        if not is_scannable(read):
            raise VectorError(f"{source.kind} cannot be copied from: it has no scan()")
        await chosen_namespaces(read, namespaces)  # before a target is made for nothing
        made_alike = Layout(dimension=read.dimension, metric=read.metric)
        async with writing(target, made_alike) as written:
            with _progress() as show:
                return await copy_store(
                    read,
                    written,
                    namespaces=namespaces,
                    batch_size=batch_size,
                    on_progress=show,
                )


@contextmanager
def _progress() -> Generator[Callable[[int, int, str], None] | None]:
    """Show a bar to a person at a terminal, and nothing to anybody else."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with progress_bar(console, label="copying") as show:
        yield show


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A query and its options.

    Attributes:
        text: words, to be embedded by the model or to be searched for beside a vector.
        model: what embeds them.
        vector: to be near to.
        like: the id of a record to be near to.
        hybrid: whether to search for the words, too.
    """

    text: str | None
    model: str | None
    vector: list[float] | None
    like: str | None
    hybrid: bool

    def __post_init__(self) -> None:
        ways = [self.model, self.vector, self.like]
        if sum(way is not None for way in ways) != 1:
            raise click.UsageError("give one of --model (to embed TEXT), --vector and --like")
        if self.text is None and (self.model is not None or self.hybrid):
            raise click.UsageError("give the TEXT to search for")
        if self.text is not None and self.model is None and not self.hybrid:
            raise click.UsageError("TEXT takes a --model to embed it, or --hybrid for its words")


@command.command(cls=SearchCommand)
@_store_argument
@click.argument("text", required=False)
@click.option("--model", help="Embeds TEXT, at OpenAI or at OPENAI_BASE_URL.")
@click.option("--vector", type=JsonParam(), help="A JSON list of numbers to be near to.")
@click.option("--like", metavar="ID", help="A record to be near to.")
@click.option("--hybrid", is_flag=True, help="Search for the words of TEXT, too.")
@click.option("--namespace", default="", help="Where to search.")
@click.option("-k", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--filter", type=JsonParam(), help='As {"price": {"$lt": 20}}.')
@_dimension_option
@_metric_option
@_json_option
def search(
    store: StoreName,
    *,
    text: str | None,
    model: str | None,
    vector: list[float] | None,
    like: str | None,
    hybrid: bool,
    namespace: str,
    k: int,
    filter: Any,
    dimension: int | None,
    metric: Metric | None,
    as_json: bool,
) -> None:
    """Search a namespace of STORE for TEXT, or for what is near to a vector or to a record."""
    question = Question(text=text, model=model, vector=vector, like=like, hybrid=hybrid)
    try:
        parsed = Filter.parse(filter)
    except InvalidFilter as error:
        raise click.UsageError(str(error)) from error
    where = Where(store, Layout(dimension=dimension, metric=metric), namespace, k, parsed)
    found = asyncio.run(_search(where, question))
    if as_json:
        _print_json([_plain(match) for match in found])
    else:
        _show([_row(match) for match in found])


@dataclass(frozen=True, slots=True)
class Where:
    """In what to search, and how far."""

    name: StoreName
    layout: Layout
    namespace: str
    k: int
    filter: Filter | None


async def _search(where: Where, question: Question) -> list[Match]:
    layout = where.layout
    async with reading(where.name, dimension=layout.dimension, metric=layout.metric) as store:
        vector = await _vector(store, where, question)
        wanted = where.k + (question.like is not None)
        try:
            found = await _found(store, where, question, vector, wanted)
        except LibError:  # some are ValueErrors, too
            raise
        except ValueError as error:  # of an argument, as more results than the database returns
            raise click.UsageError(str(error)) from error
        return [match for match in found if match.id != question.like][: where.k]


async def _found(
    store: VectorStore, where: Where, question: Question, vector: Any, k: int
) -> list[Match]:
    if not question.hybrid:
        return await store.query(vector, k, filter=where.filter, namespace=where.namespace)
    if not is_hybrid(store):
        raise HybridUnavailable(where.name.kind, "leave --hybrid out")
    return await store.query_hybrid(
        vector, question.text or "", k, filter=where.filter, namespace=where.namespace
    )


async def _vector(store: VectorStore, where: Where, question: Question) -> Any:
    if question.vector is not None:
        return question.vector
    if question.like is not None:
        found = await store.get([question.like], namespace=where.namespace)
        if not found:
            message = f"no record {question.like!r} in namespace {where.namespace!r}"
            raise VectorError(
                f"{message}: name another with --namespace, `lib vector info` lists them"
            )
        return found[0].vector
    try:
        embedder = OpenAIEmbedder(question.model or "")
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        return (await embedder.embed([question.text or ""], purpose="query"))[0]
    finally:
        await embedder.aclose()


def _plain(match: Match) -> dict[str, Any]:
    return {"id": match.id, "score": match.score, "text": match.text, "meta": match.meta}


def _row(match: Match) -> dict[str, Any]:
    meta = json.dumps(match.meta, ensure_ascii=False)
    return {"id": match.id, "score": round(match.score, 6), "text": match.text, "meta": meta}


def _print_json(rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        click.echo(json_line(row))


def _show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table; what is in a store is text, whatever a terminal would take it for."""
    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, value in rows[0].items():
        table.add_column(name, justify="right" if isinstance(value, int | float) else "left")
    for row in rows:
        table.add_row(*(Text(_clipped(str(value))) for value in row.values()))
    Console().print(table)


def _clipped(text: str) -> str:
    """Return one line of text without anything that a terminal obeys."""
    line = " ".join(text_line(text[: 4 * MAX_SHOWN]).split())
    return line if len(line) <= MAX_SHOWN else f"{line[: MAX_SHOWN - 1]}…"
