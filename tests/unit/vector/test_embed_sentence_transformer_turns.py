"""Calls take turns with a model in this process: queries overtake, and any may be cancelled."""

import asyncio
from typing import Any

from lib.errors import VectorError
from lib.vector import SentenceTransformerEmbedder

from .embed_sentence_transformer_kit import Model


async def test_a_query_overtakes_a_long_list_of_documents() -> None:
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
    assert [len(texts) for _, texts, _ in model.calls] == [32, 1, 32, 32, 4]


async def test_a_call_that_is_cancelled_ends_after_its_turn() -> None:
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
    assert [len(texts) for _, texts, _ in model.calls] == [32, 1]


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


async def test_a_call_that_waits_when_the_embedder_is_closed_gets_an_error() -> None:
    model = Model()
    embedder = SentenceTransformerEmbedder(model)

    served, refused = await closed_while_one_of_two_waits(embedder, model, ["a"])
    again = await embedder.embed(["bb"])
    await embedder.aclose()

    assert served.tolist() == [[1, 1]]
    assert isinstance(refused, VectorError)
    assert str(refused) == "the embedder was closed before the model's turn"
    assert again.tolist() == [[2, 1]]
    assert [texts for _, texts, _ in model.calls] == [["a"], ["bb"]]


async def test_a_call_of_several_turns_ends_when_the_embedder_is_closed() -> None:
    model = Model()
    embedder = SentenceTransformerEmbedder(model, batch_size=1)

    refused = await closed_while_one_of_two_waits(embedder, model, ["a"] * 100)

    assert [type(error) for error in refused] == [VectorError, VectorError]
    assert len(model.calls) == 1


async def test_a_call_that_waits_can_be_cancelled_by_its_caller() -> None:
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
    assert [texts for _, texts, _ in model.calls] == [["a"]]
