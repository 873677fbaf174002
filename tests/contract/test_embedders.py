"""Every embedder keeps the contract; a new one is one more line of the table."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fakes.model_servers import (
    API_KEY,
    DIMENSION,
    CohereServer,
    OpenAIServer,
    VoyageServer,
    vector_of,
)
from lib.testing.embedder import TEXTS, EmbedderContract, EmbedderKind
from lib.vector import (
    CohereEmbedder,
    Embedder,
    LSAEmbedder,
    OpenAIEmbedder,
    SentenceTransformerEmbedder,
    VoyageEmbedder,
)


class BagOfWords:
    """The documented interface of `SentenceTransformer`, with the vectors of the fakes."""

    def encode(
        self,
        inputs: Sequence[str],
        *,
        batch_size: int,
        show_progress_bar: bool,
        convert_to_numpy: bool,
    ) -> NDArray[np.float32]:
        assert batch_size > 0
        assert (show_progress_bar, convert_to_numpy) == (False, True)
        return np.array([vector_of(text) for text in inputs], np.float32)

    def get_embedding_dimension(self) -> int:
        return DIMENSION


def opening(make: Callable[[], Embedder]) -> Callable[[], Awaitable[Embedder]]:
    async def open_new() -> Embedder:
        return make()

    return open_new


async def fitted() -> Embedder:
    embedder = LSAEmbedder(8)
    await embedder.fit(TEXTS)
    return embedder


SERVED: dict[str, Any] = {"api_key": API_KEY, "dimension": DIMENSION, "batch_size": 10}

EMBEDDERS = {
    "lsa": EmbedderKind(open=fitted, tolerance=1e-5),
    "openai": EmbedderKind(
        open=opening(lambda: OpenAIEmbedder(**SERVED, transport=OpenAIServer().transport))
    ),
    "openai, another's model": EmbedderKind(
        open=opening(
            lambda: OpenAIEmbedder("new", api_key=API_KEY, transport=OpenAIServer().transport)
        )
    ),
    "cohere": EmbedderKind(
        open=opening(lambda: CohereEmbedder(**SERVED, transport=CohereServer().transport))
    ),
    "voyage": EmbedderKind(
        open=opening(lambda: VoyageEmbedder(**SERVED, transport=VoyageServer().transport))
    ),
    "sentence transformer": EmbedderKind(
        open=opening(lambda: SentenceTransformerEmbedder(BagOfWords(), batch_size=2))
    ),
}


@pytest.fixture(params=EMBEDDERS.values(), ids=list(EMBEDDERS))
def each_kind(request: pytest.FixtureRequest) -> EmbedderKind:
    return request.param


class TestEmbedders(EmbedderContract):
    @pytest.fixture
    def kind(self, each_kind: EmbedderKind) -> EmbedderKind:
        return each_kind
