"""The calls to a model in this process, and the answers that are accepted."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from lib.errors import VectorError
from lib.vector import SentenceTransformerEmbedder

from .embed_sentence_transformer_kit import Model


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


async def test_a_model_is_called_without_a_progress_bar_and_with_prefixes() -> None:
    model = Model()
    embedder = SentenceTransformerEmbedder(
        model, batch_size=7, document_prefix="passage: ", query_prefix="query: "
    )

    await embedder.embed(["a", "", "\ud800"])
    await embedder.embed(["a"], purpose="query")
    await embedder.aclose()

    options = {"batch_size": 7, "show_progress_bar": False, "convert_to_numpy": True}
    assert model.calls == [
        ("encode", ["passage: a", "passage: ", "passage: ?"], options),
        ("encode", ["query: a"], options),
    ]


async def test_a_model_with_separate_document_and_query_calls_gets_them() -> None:
    model = Prompted()
    embedder = SentenceTransformerEmbedder(model)

    await embedder.embed(["a"])
    await embedder.embed(["b"], purpose="query")
    await embedder.aclose()

    assert [(how, texts) for how, texts, _ in model.calls] == [
        ("document", ["a"]),
        ("query", ["b"]),
    ]


async def test_a_model_of_an_older_release_serves_as_well() -> None:
    embedder = SentenceTransformerEmbedder(Older())
    vectors = await embedder.embed(["a", "b"])
    await embedder.aclose()

    assert vectors.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert vectors.dtype == np.float32
    assert embedder.dimension == 3


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
async def test_what_is_no_vector_for_each_text_is_refused(answer: Any, message: str) -> None:
    embedder = SentenceTransformerEmbedder(Bare(answer))
    with pytest.raises(VectorError, match=message) as refused:
        await embedder.embed(["a", "b"])
    await embedder.aclose()

    assert "a long text" not in str(refused.value)


async def test_a_model_that_changes_its_length_is_refused() -> None:
    model = Bare(np.ones((1, 3)))
    embedder = SentenceTransformerEmbedder(model)
    await embedder.embed(["a"])
    model.answer = np.ones((1, 4))
    with pytest.raises(VectorError, match="length 4, not 3"):
        await embedder.embed(["a"])
    await embedder.aclose()
