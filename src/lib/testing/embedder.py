"""The contract of embedders, for those of the library and for yours.

Subclass `EmbedderContract` and give it a fixture `kind`:

    class TestMyEmbedder(EmbedderContract):
        @pytest.fixture
        def kind(self) -> EmbedderKind:
            return EmbedderKind(open=open_my_embedder)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from lib.errors import VectorError
from lib.testing.aio import run
from lib.vector import Doc, Embedder, EmbeddingIndex, InMemoryVectorStore

TEXTS: Final = (
    "the cat sat on the mat",
    "a dog barked at the moon",
    "parcels leave our house every evening",
    "refunds arrive within three days",
    "naïve café, 猫 and 🐈",
)
"""What an embedder that learns from documents can learn from."""

_MANY: Final = 300
_ODD: Final = ("", " ", "\n\n\t", "\x00", "0", "x" * 50_000, "🐈" * 500, "\u202egnp", "\ud800")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderKind:
    """One embedder for the contract to look at.

    Attributes:
        open: makes a new one, which knows `TEXTS` if it has to learn first. If it has `aclose`,
            that is awaited in the end.
        tolerance: how far two vectors of the same text may be apart, for models whose arithmetic
            depends on what else is in a batch.
    """

    open: Callable[[], Awaitable[Embedder]]
    tolerance: float = 0.0

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Embedder]:
        """Open one, and close it in the end."""
        embedder = await self.open()
        try:
            yield embedder
        finally:
            if close := getattr(embedder, "aclose", None):
                await close()

    def same(self, left: Any, right: Any) -> bool:
        """Tell whether two arrays hold the same vectors."""
        return left.shape == right.shape and bool(np.allclose(left, right, 0, self.tolerance))


class EmbedderContract:
    """The contract of embedders; the fixture `kind` opens the one to test."""

    def test_there_is_a_row_of_finite_floats_for_each_text(self, kind: EmbedderKind) -> None:
        async def main() -> None:
            async with kind.opened() as embedder:
                for purpose in ("document", "query"):
                    vectors = await embedder.embed(TEXTS, purpose=purpose)

                    assert vectors.shape == (len(TEXTS), embedder.dimension)
                    assert vectors.dtype == np.float32
                    assert np.isfinite(vectors).all()

        run(main())

    def test_rows_are_in_the_order_of_the_texts(self, kind: EmbedderKind) -> None:
        async def main() -> None:
            async with kind.opened() as embedder:
                vectors = await embedder.embed(TEXTS)
                turned = await embedder.embed(TEXTS[::-1])

                assert kind.same(vectors, turned[::-1])
                assert len(np.unique(vectors, axis=0)) == len(TEXTS)

        run(main())

    def test_a_text_has_the_same_vector_alone_and_among_others(self, kind: EmbedderKind) -> None:
        async def main() -> None:
            async with kind.opened() as embedder:
                alone = await embedder.embed([TEXTS[2]])
                twice = await embedder.embed([TEXTS[2], *TEXTS, TEXTS[2]])

                assert kind.same(alone[0], twice[0])
                assert kind.same(alone[0], twice[-1])

        run(main())

    def test_documents_are_what_is_embedded_unless_said_otherwise(self, kind: EmbedderKind) -> None:
        async def main() -> None:
            async with kind.opened() as embedder:
                undeclared = await embedder.embed(TEXTS)
                declared = await embedder.embed(TEXTS, purpose="document")

                assert kind.same(undeclared, declared)

        run(main())

    def test_no_texts_give_no_rows(self, kind: EmbedderKind) -> None:
        async def main() -> None:
            async with kind.opened() as embedder:
                await embedder.embed(TEXTS[:1])
                nothing = await embedder.embed([])

                assert nothing.shape == (0, embedder.dimension)
                assert nothing.dtype == np.float32

        run(main())

    def test_more_texts_than_any_batch_keep_their_order(self, kind: EmbedderKind) -> None:
        texts = [
            f"{TEXTS[number % len(TEXTS)]}{'' if number % 2 else ' the'}" for number in range(_MANY)
        ]

        async def main() -> None:
            async with kind.opened() as embedder:
                vectors = await embedder.embed(texts)

                assert len(vectors) == _MANY
                assert kind.same(vectors[:-10], vectors[10:])

        run(main())

    def test_whatever_a_text_holds_it_has_a_vector(self, kind: EmbedderKind) -> None:
        async def main() -> None:
            async with kind.opened() as embedder:
                for purpose in ("document", "query"):
                    vectors = await embedder.embed([*_ODD, TEXTS[0]], purpose=purpose)

                    assert np.isfinite(vectors).all()
                    assert np.any(vectors, axis=1).all()

        run(main())

    def test_the_texts_are_left_as_they_are(self, kind: EmbedderKind) -> None:
        texts = [*TEXTS, "", " "]

        async def main() -> None:
            async with kind.opened() as embedder:
                await embedder.embed(texts)

        run(main())

        assert texts == [*TEXTS, "", " "]

    def test_calls_at_once_do_not_disturb_each_other(self, kind: EmbedderKind) -> None:
        async def main() -> None:
            async with kind.opened() as embedder:
                one_by_one = [await embedder.embed([text]) for text in TEXTS]
                at_once = await asyncio.gather(*[embedder.embed([text]) for text in TEXTS])

                assert all(map(kind.same, one_by_one, at_once))

        run(main())

    def test_a_call_that_is_cancelled_leaves_it_usable(self, kind: EmbedderKind) -> None:
        async def main() -> None:
            async with kind.opened() as embedder:
                before = await embedder.embed(TEXTS)
                for turns in (0, 1, 3):
                    call = asyncio.create_task(_embedded(embedder))
                    for _ in range(turns):
                        await asyncio.sleep(0)  # noqa: TID251 - one turn of the event loop
                    call.cancel()
                    await asyncio.wait([call])

                assert kind.same(before, await embedder.embed(TEXTS))

        run(main())

    def test_an_index_finds_a_document_by_its_own_text(self, kind: EmbedderKind) -> None:
        async def main() -> None:
            async with kind.opened() as embedder:
                index = EmbeddingIndex(InMemoryVectorStore(), embedder)
                await index.add([Doc(str(place), text) for place, text in enumerate(TEXTS)])

                found = [(await index.search(text, 1))[0].id for text in TEXTS]

                assert found == [str(place) for place in range(len(TEXTS))]

        run(main())

    def test_the_dimension_is_known_or_says_that_it_is_not(self, kind: EmbedderKind) -> None:
        async def main() -> None:
            async with kind.opened() as embedder:
                try:
                    promised = embedder.dimension
                except VectorError:
                    promised = None
                await embedder.embed(TEXTS[:1])

                assert promised in (None, embedder.dimension)

        run(main())


async def _embedded(embedder: Embedder) -> None:
    await embedder.embed(TEXTS * 100)
