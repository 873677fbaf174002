"""Embeddings from a model in this process, by sentence-transformers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any, Final, TypeVar, cast

import numpy as np

from lib._util.contexts import AsyncClosable
from lib._util.turns import turn
from lib.errors import MissingDriver, VectorError
from lib.vector.contract import Purpose
from lib.vector.embed.remote import Floats

T = TypeVar("T")

_TURN: Final = 32
"""Batches in one turn of the thread: then a query may overtake, and a cancelled call has ended."""
_ENCODERS: Final[Mapping[Purpose, str]] = {"document": "encode_document", "query": "encode_query"}
_LOAD_FAILURES: Final = (
    AssertionError,  # torch: built without the device
    ImportError,  # transformers: a model that needs more packages
    LookupError,  # a kind of model that this release does not know
    OSError,  # no such model, no network
    RuntimeError,  # torch: no memory, a device that is gone
    ValueError,  # a configuration that contradicts itself
)
_DIMENSIONS: Final = ("get_embedding_dimension", "get_sentence_embedding_dimension")


class SentenceTransformerEmbedder(AsyncClosable):
    """Embeds with a model of sentence-transformers, in one thread of its own.

    The model is loaded with the first call, in that thread. A model that tells documents from
    queries by prompts of its own uses them. Vectors are as the model gives them: nothing is
    normalised here. Needs the extra `local-embeddings`, unless a model is handed in.

    Source: https://sbert.net/docs/package_reference/sentence_transformer (6.2, 2026-11).
    """

    def __init__(
        self,
        model: Any,
        *,
        device: str | None = None,
        batch_size: int = 32,
        document_prefix: str = "",
        query_prefix: str = "",
    ) -> None:
        """Prepare an embedder; nothing is loaded before the first call.

        Args:
            model: a name on Hugging Face or the path of a folder; or a `SentenceTransformer`, or
                whatever has its `encode`.
            device: where to compute, such as "cpu" or "cuda"; None lets the library choose.
            batch_size: texts in one pass of the model.
            document_prefix: put before each document, for a model that has no prompts of its own.
            query_prefix: put before each query.

        Raises:
            TypeError: `model` is neither a name nor something with `encode`.
            ValueError: `batch_size` is below 1, or there is a `device` for a model that is loaded.
        """
        if isinstance(model, os.PathLike):
            model = os.fspath(cast("os.PathLike[str]", model))
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, it has to be at least 1")
        if device is not None and not isinstance(model, str):
            raise ValueError("this model is loaded already: move it to its device, leave device=")
        if not isinstance(model, str) and not callable(getattr(model, "encode", None)):
            raise TypeError(f"model is a name, a path or has encode(), got {type(model).__name__}")
        self.model = model
        self._device, self._batch_size = device, batch_size
        self._prefixes: Mapping[Purpose, str] = {
            "document": document_prefix,
            "query": query_prefix,
        }
        self._dimension = None if isinstance(model, str) else _dimension_of(model)
        self._worker: _Worker | None = None

    @property
    def dimension(self) -> int:
        """The length of every vector.

        Raises:
            VectorError: it is not known yet: the model is not loaded.
        """
        if self._dimension is None:
            raise VectorError(
                "the dimension is not known before the model is loaded: await discover()"
            )
        return self._dimension

    async def discover(self) -> int:
        """Return the dimension, loading the model if need be.

        Raises:
            MissingDriver: sentence-transformers is not installed.
            VectorError: the model cannot be loaded.
        """
        if self._dimension is None:
            await self.embed(["dimension"])
        return self.dimension

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Floats:
        """Return one row per text, in their order.

        A caller that is cancelled goes on at once, while the thread ends its turn.

        Raises:
            MissingDriver: sentence-transformers is not installed.
            VectorError: the model cannot be loaded, fails, or gives what are no vectors; or the
                embedder was closed before the model came to the last of these texts.
        """
        await turn()
        # Tokenizers take no lone surrogates.
        prefix = self._prefixes[purpose]
        plain = [(prefix + text).encode("utf-8", "replace").decode() for text in texts]
        size = _TURN * self._batch_size
        turns = [plain[start : start + size] for start in range(0, len(plain), size)]
        if self._worker is None:
            self._worker = _Worker(self.model, self._device)
        worker = self._worker  # for all turns, so that none follows after `aclose`
        rows = [
            await worker.run(lambda model, turn=turn: self._encode(model, turn, purpose))
            for turn in turns
        ]
        return np.concatenate(rows) if rows else np.zeros((0, self._dimension or 0), np.float32)

    async def aclose(self) -> None:
        """Let the thread end, and the model go if it was loaded here; a later call begins anew.

        What the model is at work on is still answered; calls that wait for it fail.
        """
        if self._worker is not None:
            worker, self._worker = self._worker, None
            worker.close()

    def _encode(self, model: Any, texts: list[str], purpose: Purpose) -> Floats:
        encode = getattr(model, _ENCODERS[purpose], None) or model.encode
        try:
            # By position: the parameter was `sentences` and is `inputs`.
            found = encode(
                texts,
                batch_size=self._batch_size,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
            vectors = np.asarray(found, np.float32)
        # Anybody's code: torch without memory, a tokenizer, an array on another device.
        except Exception as error:
            raise VectorError(f"the model failed: {type(error).__name__}") from error
        _check(vectors, len(texts), self._dimension)
        self._dimension = vectors.shape[1]
        return vectors


class _Worker:
    """One thread with one model, which is loaded there with the first work."""

    def __init__(self, model: Any, device: str | None) -> None:
        self._model, self._device = model, device
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lib-embedder")
        self._closed = False

    async def run(self, work: Callable[[Any], T]) -> T:
        """Return what `work` makes of the model.

        Raises:
            VectorError: it was closed before.
        """
        if self._closed:
            raise _closed()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._run, work)

    def close(self) -> None:
        """Refuse what waits, and let the thread end."""
        # Not by `cancel_futures`: waiting callers would be cancelled, as if by their own tasks.
        self._closed = True
        self._thread.shutdown(wait=False)

    def _run(self, work: Callable[[Any], T]) -> T:
        if self._closed:
            raise _closed()
        if isinstance(self._model, str):
            self._model = _load(self._model, self._device)
        return work(self._model)


def _closed() -> VectorError:
    return VectorError("the embedder was closed before the model's turn")


def _load(name: str, device: str | None) -> Any:
    try:
        library: Any = import_module("sentence_transformers")
    except ImportError as error:
        raise MissingDriver(
            "SentenceTransformerEmbedder", driver="sentence-transformers", extra="local-embeddings"
        ) from error
    try:
        return library.SentenceTransformer(name, device=device)
    except _LOAD_FAILURES as error:
        raise VectorError(f"the model {name!r} cannot be loaded: {type(error).__name__}") from error


def _dimension_of(model: Any) -> int | None:
    """Return the length of the model's vectors, None if it does not say."""
    for name in _DIMENSIONS:
        if callable(tell := getattr(model, name, None)):
            return cast("int | None", tell())
    return None


def _check(vectors: Floats, count: int, dimension: int | None) -> None:
    """Refuse what is no matrix of one finite row per text."""
    if vectors.ndim != 2 or vectors.shape[0] != count or not vectors.shape[1]:  # noqa: PLR2004 - a matrix
        raise VectorError(f"the model gave an array of shape {vectors.shape} for {count} texts")
    if dimension not in (None, vectors.shape[1]):
        raise VectorError(f"the model gave vectors of length {vectors.shape[1]}, not {dimension}")
    if not np.isfinite(vectors).all():
        raise VectorError("the model gave a vector with a number that is not finite")
