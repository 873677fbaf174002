"""Tests when a model is loaded, which cannot be, and when it is released."""

import asyncio
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from lib.errors import MissingDriver, VectorError
from lib.vector import SentenceTransformerEmbedder

from .embed_sentence_transformer_kit import Model

FAILURES: dict[str, Exception] = {
    "missing": OSError("no such model, says a long text with a path"),
    "cuda": AssertionError("Torch not compiled with CUDA enabled"),
    "needs more": ImportError("this model needs einops"),
    "too new": KeyError("model type"),
}


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> list[Model]:
    """Put a small sentence-transformers in the place of the real one; return what it loaded."""
    loaded: list[Model] = []

    def load(name: str, device: str | None = None) -> Model:
        if name in FAILURES:
            raise FAILURES[name]
        loaded.append(Model(name, device))
        return loaded[-1]

    stand_in: Any = types.ModuleType("sentence_transformers")
    stand_in.SentenceTransformer = load
    monkeypatch.setitem(sys.modules, "sentence_transformers", stand_in)
    return loaded


async def test_a_model_is_loaded_with_the_first_call_and_once(library: list[Model]) -> None:
    embedder = SentenceTransformerEmbedder("some/model", device="cpu")
    with pytest.raises(VectorError, match="before the model is loaded"):
        _ = embedder.dimension
    assert library == []

    first, second = await asyncio.gather(embedder.embed(["a"]), embedder.embed(["bb"]))
    await embedder.aclose()

    (model,) = library
    assert (model.name, model.device) == ("some/model", "cpu")
    assert (first.tolist(), second.tolist()) == ([[1, 1]], [[2, 1]])
    assert embedder.dimension == 2
    assert len(model.threads) == 1
    assert threading.get_ident() not in model.threads


async def test_the_dimension_is_discovered_by_loading(library: list[Model]) -> None:
    embedder = SentenceTransformerEmbedder("some/model")
    nothing = await embedder.embed([])

    assert nothing.shape == (0, 0)
    assert library == []
    assert await embedder.discover() == await embedder.discover() == 2
    assert len(library[0].calls) == 1
    await embedder.aclose()


async def test_a_model_may_be_the_path_of_a_folder(library: list[Model], tmp_path: Path) -> None:
    embedder = SentenceTransformerEmbedder(tmp_path)
    await embedder.discover()
    await embedder.aclose()

    assert [model.name for model in library] == [str(tmp_path)]


@pytest.mark.parametrize("model", [None, 7, object()], ids=["none", "number", "object"])
def test_what_cannot_encode_is_no_model(model: Any) -> None:
    with pytest.raises(TypeError, match="a name, a path or has encode"):
        SentenceTransformerEmbedder(model)


async def test_a_closed_embedder_lets_its_model_go_and_loads_it_again(library: list[Model]) -> None:
    embedder = SentenceTransformerEmbedder("some/model")
    await embedder.aclose()
    await embedder.embed(["a"])
    await embedder.aclose()
    await embedder.aclose()
    await embedder.embed(["a"])
    await embedder.aclose()

    assert len(library) == 2


async def test_a_model_that_is_handed_in_stays() -> None:
    model = Model()
    embedder = SentenceTransformerEmbedder(model)
    assert embedder.dimension == 2

    await embedder.aclose()
    await embedder.embed(["a"])
    await embedder.aclose()

    assert len(model.calls) == 1


@pytest.mark.parametrize("name", FAILURES)
async def test_a_model_that_cannot_be_loaded_is_an_error_and_tried_again(
    library: list[Model], name: str
) -> None:
    kind = type(FAILURES[name]).__name__
    embedder = SentenceTransformerEmbedder(name)
    for _ in range(2):
        with pytest.raises(VectorError, match=f"'{name}' cannot be loaded: {kind}") as failed:
            await embedder.embed(["a"])
        assert failed.value.__cause__ is FAILURES[name]
    await embedder.aclose()


async def test_without_the_library_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    embedder = SentenceTransformerEmbedder("some/model")
    with pytest.raises(MissingDriver, match=r"pip install .*sentence-transformers") as missing:
        await embedder.discover()
    await embedder.aclose()

    assert missing.value.driver == "sentence-transformers"


async def test_a_model_that_is_loaded_while_the_embedder_is_closed_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, gate = threading.Event(), threading.Event()
    loaded: list[Model] = []

    def load(name: str, device: str | None = None) -> Model:
        begun.set()
        gate.wait(5)
        loaded.append(Model(name, device))
        return loaded[-1]

    stand_in: Any = types.ModuleType("sentence_transformers")
    stand_in.SentenceTransformer = load
    monkeypatch.setitem(sys.modules, "sentence_transformers", stand_in)

    embedder = SentenceTransformerEmbedder("some/model")
    first = asyncio.create_task(embedder.embed(["a"]))
    await asyncio.to_thread(begun.wait, 5)
    await embedder.aclose()
    gate.set()
    served = await first
    await embedder.embed(["a"])
    await embedder.aclose()

    assert served.tolist() == [[1, 1]]
    assert len(loaded) == 2


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("some/model", {"batch_size": 0}, "at least 1"),
        (Model(), {"device": "cuda"}, "loaded already"),
    ],
    ids=["batch", "device"],
)
def test_impossible_settings_are_refused_at_once(
    model: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SentenceTransformerEmbedder(model, **options)


def test_the_library_is_not_loaded_before_it_is_needed(unmeasured: dict[str, str]) -> None:
    program = (
        "import sys\nfrom lib.vector import SentenceTransformerEmbedder\n"
        "SentenceTransformerEmbedder('some/model')\n"
        "print(sorted({'torch', 'sentence_transformers'} & sys.modules.keys()))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env=unmeasured,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )

    assert done.stdout == "[]\n"
