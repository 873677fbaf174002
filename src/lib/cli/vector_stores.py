"""Vector stores named by a path or a URL on the command line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import click

from lib.vector import Metric, VectorStore, urls
from lib.vector.contract import KeptStore, capabilities
from lib.vector.records import Layout
from lib.vector.urls import StoreName


def store_name(text: str) -> StoreName:
    """Return the store that a path or a URL names, its path absolute.

    Raises:
        ValueError: it names none; the message says how to, and holds no password.
    """
    name = urls.store_name(text)
    paths = {
        key: _absolute(name.options[key])
        for key in ("path", "uri")
        if isinstance(name.options.get(key), str)
    }
    return replace(name, options={**name.options, **paths})


class StoreParam(click.ParamType[StoreName]):
    """An argument that names a vector store."""

    name = "store"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> StoreName:
        """Return what the argument names."""
        try:
            return store_name(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@asynccontextmanager
async def reading(
    name: StoreName, *, dimension: int | None = None, metric: Metric | None = None
) -> AsyncGenerator[VectorStore]:
    """Open a store that exists, and close it.

    Args:
        name: of the store.
        dimension: of its vectors; None asks the store.
        metric: how it measures nearness; None asks the store.

    Raises:
        UsageError: there is no store, or its dimension is unknown.
    """
    options = Layout(dimension=dimension, metric=metric)
    async with writing(name, await _layout(name, options)) as store:
        yield store


@asynccontextmanager
async def writing(name: StoreName, layout: Layout) -> AsyncGenerator[VectorStore]:
    """Open a store, made if it is missing, and close it."""
    store = _made(name, layout)
    try:
        await store.setup()
        yield store
    finally:
        await store.close()


def _made(name: StoreName, layout: Layout) -> VectorStore:
    try:
        return name.made(layout)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


async def _layout(name: StoreName, options: Layout) -> Layout:
    """Return the layout of an existing store, completed by options; creates nothing."""
    found: Layout | None = options
    probe = _made(name, Layout(dimension=options.dimension or 1, metric=options.metric or "cosine"))
    try:
        if "existing" in capabilities(probe):
            found = await cast(KeptStore, probe).existing()
    finally:
        await probe.close()
    if found is None:
        hint = await asyncio.to_thread(_found_instead, name)
        raise click.UsageError(f"there is no vector store at {name.shown}{hint}")
    dimension = options.dimension or found.dimension
    if dimension is None:
        raise click.UsageError(f"{name.shown} does not tell its dimension: give --dimension")
    return Layout(dimension=dimension, metric=options.metric or found.metric or "cosine")


def _found_instead(name: StoreName) -> str:
    """Return what the path of a missing SQLite store holds instead, as the end of a message."""
    if name.kind != "SQLiteVectorStore":
        return ""
    path = Path(name.options["path"])
    if path.is_dir():
        return ": that is a folder"
    if path.is_file():
        return (
            ": that file holds something else, as an event store for `lib store`, "
            "or a table of another name, for sqlite:///PATH?table=NAME"
        )
    return ""


def _absolute(path: str) -> str:
    """Return the absolute path, the same for every spelling of it.

    A URL, such as that of a bucket, stays as it is.

    Raises:
        ValueError: nothing can be there: the name is too long, or a folder is not to be searched.
    """
    if "://" in path:
        return path
    try:
        place = Path(path).resolve()
        place.exists()
    except OSError as error:
        raise ValueError(f"{path!r}: {error.strerror}") from error
    return str(place)
