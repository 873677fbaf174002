"""A model in this process: when it loads, where it runs, what it is asked, what it may answer."""

import asyncio
import subprocess
import sys
import threading
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lib.errors import MissingDriver, VectorError
from lib.testing.aio import run
from lib.vector import SentenceTransformerEmbedder


class Model:
    """What `SentenceTransformer` 6 documents: vectors tell the length of a text and who asked."""

    kind = 1.0

    def __init__(self, name: str = "", device: str | None = None) -> None:
        self.name, self.device = name, device
        self.asked: list[tuple[str, list[str], dict[str, Any]]] = []
        self.threads: set[int] = set()
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def encode(self, inputs: Sequence[str], **options: Any) -> Any:
        return self._encode("encode", inputs, options)

    def get_embedding_dimension(self) -> int | None:
        return 2

    def _encode(self, how: str, inputs: Sequence[str], options: dict[str, Any]) -> Any:
        self.asked.append((how, list(inputs), options))
        self.threads.add(threading.get_ident())
        self.begun.set()
        self.gate.wait(5)
        return np.array([[len(text), self.kind] for text in inputs])


class Prompted(Model):
    """A model that asks documents and queries by prompts of its own."""

    def encode_document(self, inputs: Sequence[str], **options: Any) -> Any:
        return self._encode("document", inputs, options)

    def encode_query(self, inputs: Sequence[str], **options: Any) -> Any:
        return self._encode("query", inputs, options)


class Older:
    """A model of release 4: other names, and it may not know its dimension."""

    def encode(self, sentences: Sequence[str], **options: Any) -> Any:
        return np.zeros((len(sentences), 3), np.float64) + 1

    def get_sentence_embedding_dimension(self) -> None:
        return None


class Bare:
    """Something that can only encode."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def encode(self, inputs: Sequence[str], **options: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


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


def test_a_model_is_loaded_with_the_first_call_and_once(library: list[Model]) -> None:
    async def main() -> None:
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

    run(main())


def test_the_dimension_is_discovered_by_loading(library: list[Model]) -> None:
    async def main() -> None:
        embedder = SentenceTransformerEmbedder("some/model")
        nothing = await embedder.embed([])

        assert nothing.shape == (0, 0)
        assert library == []
        assert await embedder.discover() == await embedder.discover() == 2
        assert len(library[0].asked) == 1
        await embedder.aclose()

    run(main())


def test_a_model_may_be_the_path_of_a_folder(library: list[Model], tmp_path: Path) -> None:
    async def main() -> None:
        embedder = SentenceTransformerEmbedder(tmp_path)
        await embedder.discover()
        await embedder.aclose()

        assert [model.name for model in library] == [str(tmp_path)]

    run(main())


@pytest.mark.parametrize("model", [None, 7, object()], ids=["none", "number", "object"])
def test_what_cannot_encode_is_no_model(model: Any) -> None:
    with pytest.raises(TypeError, match="a name, a path or has encode"):
        SentenceTransformerEmbedder(model)


def test_a_closed_embedder_lets_its_model_go_and_loads_it_again(library: list[Model]) -> None:
    async def main() -> None:
        embedder = SentenceTransformerEmbedder("some/model")
        await embedder.aclose()
        await embedder.embed(["a"])
        await embedder.aclose()
        await embedder.aclose()
        await embedder.embed(["a"])
        await embedder.aclose()

        assert len(library) == 2

    run(main())


def test_a_model_that_is_handed_in_stays() -> None:
    async def main() -> None:
        model = Model()
        embedder = SentenceTransformerEmbedder(model)
        assert embedder.dimension == 2

        await embedder.aclose()
        await embedder.embed(["a"])
        await embedder.aclose()

        assert len(model.asked) == 1

    run(main())


@pytest.mark.parametrize("name", FAILURES)
def test_a_model_that_cannot_be_loaded_is_an_error_and_tried_again(
    library: list[Model], name: str
) -> None:
    async def main() -> None:
        kind = type(FAILURES[name]).__name__
        embedder = SentenceTransformerEmbedder(name)
        for _ in range(2):
            with pytest.raises(VectorError, match=f"'{name}' cannot be loaded: {kind}") as failed:
                await embedder.embed(["a"])
            assert failed.value.__cause__ is FAILURES[name]
        await embedder.aclose()

    run(main())


def test_without_the_library_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        embedder = SentenceTransformerEmbedder("some/model")
        with pytest.raises(MissingDriver, match="local-embeddings") as missing:
            await embedder.discover()
        await embedder.aclose()

        assert missing.value.driver == "sentence-transformers"

    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    run(main())


def test_a_model_is_asked_quietly_and_with_prefixes() -> None:
    model = Model()
    embedder = SentenceTransformerEmbedder(
        model, batch_size=7, document_prefix="passage: ", query_prefix="query: "
    )

    async def main() -> None:
        await embedder.embed(["a", "", "\ud800"])
        await embedder.embed(["a"], purpose="query")
        await embedder.aclose()

    run(main())

    options = {"batch_size": 7, "show_progress_bar": False, "convert_to_numpy": True}
    assert model.asked == [
        ("encode", ["passage: a", "passage: ", "passage: ?"], options),
        ("encode", ["query: a"], options),
    ]


def test_a_model_that_tells_documents_from_queries_is_asked_so() -> None:
    model = Prompted()
    embedder = SentenceTransformerEmbedder(model)

    async def main() -> None:
        await embedder.embed(["a"])
        await embedder.embed(["b"], purpose="query")
        await embedder.aclose()

    run(main())

    assert [(how, texts) for how, texts, _ in model.asked] == [
        ("document", ["a"]),
        ("query", ["b"]),
    ]


def test_a_model_of_an_older_release_serves_as_well() -> None:
    async def main() -> None:
        embedder = SentenceTransformerEmbedder(Older())
        vectors = await embedder.embed(["a", "b"])
        await embedder.aclose()

        assert vectors.tolist() == [[1, 1, 1], [1, 1, 1]]
        assert vectors.dtype == np.float32
        assert embedder.dimension == 3

    run(main())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.zeros((1, 4)), r"shape \(1, 4\) for 2 texts"),
        (np.zeros(2), r"shape \(2,\) for 2 texts"),
        (np.zeros((2, 0)), r"shape \(2, 0\) for 2 texts"),
        (np.array([[1.0], [np.nan]]), "not finite"),
        ([[1.0], [1.0, 2.0]], "the model failed: ValueError"),
        ([["x"], ["y"]], "the model failed: ValueError"),
        (RuntimeError("CUDA out of memory, and a long text"), "the model failed: RuntimeError"),
        (ValueError("a long text"), "the model failed: ValueError"),
        (KeyError("a long text"), "the model failed: KeyError"),
    ],
    ids=str,
)
def test_what_is_no_vector_for_each_text_is_refused(answer: Any, message: str) -> None:
    async def main() -> None:
        embedder = SentenceTransformerEmbedder(Bare(answer))
        with pytest.raises(VectorError, match=message) as refused:
            await embedder.embed(["a", "b"])
        await embedder.aclose()

        assert "a long text" not in str(refused.value)

    run(main())


def test_a_model_that_changes_its_length_is_refused() -> None:
    async def main() -> None:
        model = Bare(np.ones((1, 3)))
        embedder = SentenceTransformerEmbedder(model)
        await embedder.embed(["a"])
        model.answer = np.ones((1, 4))
        with pytest.raises(VectorError, match="length 4, not 3"):
            await embedder.embed(["a"])
        await embedder.aclose()

    run(main())


def test_a_query_overtakes_a_long_list_of_documents() -> None:
    async def main() -> None:
        model = Model()
        embedder = SentenceTransformerEmbedder(model, batch_size=1)
        model.gate.clear()
        long = asyncio.create_task(embedder.embed(["document"] * 100))
        await asyncio.to_thread(model.begun.wait, 5)
        query = asyncio.create_task(embedder.embed(["query"], purpose="query"))
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the event loop
        model.gate.set()

        vectors = await long
        assert query.done()
        await embedder.aclose()

        assert len(vectors) == 100
        assert [len(texts) for _, texts, _ in model.asked] == [32, 1, 32, 32, 4]

    run(main())


def test_a_call_that_is_cancelled_ends_after_its_turn() -> None:
    async def main() -> None:
        model = Model()
        embedder = SentenceTransformerEmbedder(model, batch_size=1)
        model.gate.clear()
        long = asyncio.create_task(embedder.embed(["document"] * 100))
        await asyncio.to_thread(model.begun.wait, 5)
        long.cancel()
        await asyncio.wait([long])
        model.gate.set()

        vectors = await embedder.embed(["a"])
        await embedder.aclose()

        assert vectors.tolist() == [[1, 1]]
        assert [len(texts) for _, texts, _ in model.asked] == [32, 1]

    run(main())


async def closed_while_one_of_two_waits(
    embedder: SentenceTransformerEmbedder, model: Model, texts: list[str]
) -> list[Any]:
    """Return what two calls give; the embedder is closed while the first is in the model."""
    model.gate.clear()
    calls = [asyncio.create_task(embedder.embed(texts)) for _ in range(2)]
    await asyncio.to_thread(model.begun.wait, 5)
    await embedder.aclose()
    model.gate.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert not any(call.cancelled() for call in calls)
    return results


def test_a_call_that_waits_when_the_embedder_is_closed_is_told_so() -> None:
    async def main() -> None:
        model = Model()
        embedder = SentenceTransformerEmbedder(model)

        served, refused = await closed_while_one_of_two_waits(embedder, model, ["a"])
        again = await embedder.embed(["bb"])
        await embedder.aclose()

        assert served.tolist() == [[1, 1]]
        assert isinstance(refused, VectorError)
        assert str(refused) == "the embedder was closed before the model's turn"
        assert again.tolist() == [[2, 1]]
        assert [texts for _, texts, _ in model.asked] == [["a"], ["bb"]]

    run(main())


def test_a_call_of_several_turns_ends_when_the_embedder_is_closed() -> None:
    async def main() -> None:
        model = Model()
        embedder = SentenceTransformerEmbedder(model, batch_size=1)

        refused = await closed_while_one_of_two_waits(embedder, model, ["a"] * 100)

        assert [type(error) for error in refused] == [VectorError, VectorError]
        assert len(model.asked) == 1

    run(main())


def test_a_model_that_is_loaded_while_the_embedder_is_closed_is_let_go(
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

    async def main() -> None:
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

    run(main())


def test_a_call_that_waits_can_be_cancelled_by_its_caller() -> None:
    async def main() -> None:
        model = Model()
        embedder = SentenceTransformerEmbedder(model)
        model.gate.clear()
        first, second = [asyncio.create_task(embedder.embed([text])) for text in ("a", "b")]
        await asyncio.to_thread(model.begun.wait, 5)
        second.cancel()
        await asyncio.wait([second])
        model.gate.set()

        assert second.cancelled()
        assert (await first).tolist() == [[1, 1]]
        await embedder.aclose()
        assert [texts for _, texts, _ in model.asked] == [["a"]]

    run(main())


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
