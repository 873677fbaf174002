"""The LSA embedder: what it learns, what it refuses, and that it survives a restart."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.errors import NotFitted, VectorError
from lib.vector.embed.lsa import LSAEmbedder
from lib.vector.embed.svd import Floats

DOCUMENTS = [
    "The car drove along the road past a truck",
    "An automobile is a car with an engine",
    "The engine of the automobile drives the wheels on the road",
    "A cat sleeps on the sofa",
    "The kitten is a young cat and sleeps a lot",
    "Kittens purr while the sofa keeps them warm",
]


async def fitted(texts: list[str], dimension: int = 8) -> LSAEmbedder:
    embedder = LSAEmbedder(dimension)
    await embedder.fit(texts)
    return embedder


def similarities(left: Floats, right: Floats) -> list[float]:
    return [float(value) for value in left @ right.T]


async def test_words_of_the_same_documents_point_the_same_way() -> None:
    embedder = await fitted(DOCUMENTS, dimension=3)

    documents = await embedder.embed(DOCUMENTS)
    query = await embedder.embed(["automobile truck"], purpose="query")

    near = similarities(query[0], documents)
    assert min(near[:3]) > 0.9
    assert max(near[3:]) < 0.1


async def test_vectors_have_length_one_and_the_promised_shape() -> None:
    embedder = await fitted(DOCUMENTS, dimension=256)

    vectors = await embedder.embed(DOCUMENTS)

    assert vectors.shape == (6, 256)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert not vectors[:, 6:].any()
    assert (await embedder.embed([])).shape == (0, 256)


async def test_the_same_documents_give_the_same_vectors() -> None:
    one, two = await fitted(DOCUMENTS), await fitted(DOCUMENTS)
    other = await fitted(DOCUMENTS[:5])

    assert one.fingerprint == two.fingerprint != other.fingerprint
    assert np.array_equal(await one.embed(DOCUMENTS), await two.embed(DOCUMENTS))


async def test_the_order_of_the_documents_does_not_matter() -> None:
    one, two = await fitted(DOCUMENTS), await fitted(DOCUMENTS[::-1])

    np.testing.assert_allclose(await one.embed(DOCUMENTS), await two.embed(DOCUMENTS), atol=1e-4)


@pytest.mark.parametrize("text", ["", "🔥 !!", "zebra xylophone", "the of and"])
async def test_text_without_a_known_word_is_far_from_all_that_is_known(text: str) -> None:
    embedder = await fitted(DOCUMENTS)
    documents = await embedder.embed([*DOCUMENTS, text])

    unknown_query = await embedder.embed([text], purpose="query")
    known_query = await embedder.embed(["car"], purpose="query")

    assert similarities(unknown_query[0], documents) == [0.0] * 6 + [-1.0]
    assert similarities(known_query[0], documents)[6] == 0.0


@pytest.mark.parametrize("texts", [["one"], ["same words"] * 5, ["a b", "", "b c d"]])
async def test_small_and_repetitive_collections_can_be_fitted(texts: list[str]) -> None:
    embedder = await fitted(texts)

    vectors = await embedder.embed(texts)

    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


@given(st.lists(st.text(alphabet="abc é猫!", max_size=12), min_size=1, max_size=8), st.text())
async def test_no_text_has_a_zero_vector(texts: list[str], query: str) -> None:
    embedder = await fitted([*texts, "word"], dimension=4)

    documents = await embedder.embed(texts)
    queries = await embedder.embed([query], purpose="query")

    lengths = np.linalg.norm(np.vstack([documents, queries]), axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-5)


async def test_only_the_terms_of_the_most_documents_are_used() -> None:
    embedder = LSAEmbedder(4, max_terms=2)
    await embedder.fit(["cat dog", "cat dog bird", "cat bee"])

    unknown = await embedder.embed(["bird", "bee"])
    embedded = await embedder.embed(["cat", "dog"])

    assert unknown[:, -1].tolist() == [-1, -1]
    assert embedded[:, -1].tolist() == [0, 0]


async def test_a_new_fit_replaces_the_old_one_only_when_it_succeeds() -> None:
    embedder = await fitted(DOCUMENTS)
    before = embedder.fingerprint

    with pytest.raises(ValueError, match="no documents"):
        await embedder.fit([])
    with pytest.raises(ValueError, match="none of the 2 documents to fit on holds a word"):
        await embedder.fit(["", "🔥"])
    kept = embedder.fingerprint
    await embedder.fit(["something else"])

    assert kept == before != embedder.fingerprint


async def test_an_embedder_that_was_not_fitted_says_so() -> None:
    embedder = LSAEmbedder()

    with pytest.raises(NotFitted):
        await embedder.embed(["text"])
    with pytest.raises(NotFitted):
        await embedder.save("nowhere")
    assert (embedder.dimension, embedder.fingerprint) == (256, "")


def test_impossible_settings_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="dimension is 1,"):
        LSAEmbedder(1)
    with pytest.raises(ValueError, match="max_terms is 0,"):
        LSAEmbedder(max_terms=0)


async def test_a_saved_embedder_embeds_alike_in_the_next_process(tmp_path: Path) -> None:
    saved = LSAEmbedder(8, max_terms=20)
    await saved.fit([*DOCUMENTS, "naïve 猫"])
    await saved.save(tmp_path / "models" / "lsa.npz")

    loaded = await LSAEmbedder.load(tmp_path / "models" / "lsa.npz")

    assert (loaded.dimension, loaded.max_terms) == (8, 20)
    assert loaded.fingerprint == saved.fingerprint
    assert np.array_equal(await loaded.embed(DOCUMENTS), await saved.embed(DOCUMENTS))


async def test_a_missing_model_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await LSAEmbedder.load(tmp_path / "none.npz")


def empty(_: Path) -> bytes:
    return b""


def text(_: Path) -> bytes:
    return b"no model"


def truncated(path: Path) -> bytes:
    return path.read_bytes()[:-200]


def flipped(path: Path) -> bytes:
    return path.read_bytes().replace(b'"version"', b'"vErsion"')


def one_array(path: Path) -> bytes:
    np.save(path.with_suffix(".npy"), np.zeros(3))
    return path.with_suffix(".npy").read_bytes()


def other_archive(path: Path) -> bytes:
    np.savez(path, something=np.zeros(3))
    return path.read_bytes()


@pytest.mark.parametrize(
    "spoil",
    [empty, text, truncated, flipped, one_array, other_archive],
)
async def test_a_damaged_or_foreign_file_is_refused(
    tmp_path: Path, spoil: Callable[[Path], bytes]
) -> None:
    path = tmp_path / "lsa.npz"
    await (await fitted(DOCUMENTS)).save(path)
    await asyncio.to_thread(lambda: path.write_bytes(spoil(path)))

    with pytest.raises(VectorError, match=r"lsa\.npz is no LSA model, or is damaged"):
        await LSAEmbedder.load(path)


async def test_the_model_of_another_release_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lsa.npz"
    await (await fitted(DOCUMENTS)).save(path)
    await asyncio.to_thread(make_newer, path)

    with pytest.raises(VectorError, match="saved by another release"):
        await LSAEmbedder.load(path)


def make_newer(path: Path) -> None:
    with np.load(path) as arrays:
        content = dict(arrays)
    header = json.loads(content["header"].tobytes()) | {"version": 99}
    content["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **content)
