"""Each key goes to its own address only."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fakes.model_servers import CohereServer, VendorServer, VoyageServer
from lib.vector import CohereEmbedder, CohereReranker, VoyageEmbedder, VoyageReranker

Connect = Callable[..., Any]
CLASSES: dict[str, tuple[Connect, Callable[..., VendorServer], str]] = {
    "cohere rerank": (CohereReranker, CohereServer, "/v2/rerank"),
    "cohere embed": (CohereEmbedder, CohereServer, "/v2/embed"),
    "voyage rerank": (VoyageReranker, VoyageServer, "/v1/rerank"),
    "voyage embed": (VoyageEmbedder, VoyageServer, "/v1/embeddings"),
}


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CO_API_KEY", "COHERE_API_KEY", "CO_API_URL", "VOYAGE_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


async def request_of(name: str, **options: Any) -> tuple[str, str]:
    """Return the address and the key of the request that this class makes."""
    connect, serve, _ = CLASSES[name]
    server = serve(dimension=4)

    made = connect(transport=server.transport, **options)
    try:
        if name.endswith("rerank"):
            await made.rerank("a", ["a", "b"], 1)
        else:
            await made.embed(["a"])
    except Exception:  # noqa: BLE001 - the key is not the fake's, only the request counts
        pass
    (received,) = server.requests
    return received.url, received.headers["authorization"].removeprefix("Bearer ")


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize(
    ("base_url", "address"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://proxy.example/models/", "https://proxy.example/models"),
    ],
)
async def test_another_address_may_be_given(name: str, base_url: str, address: str) -> None:
    assert (await request_of(name, api_key="al-k", base_url=base_url)) == (
        address + CLASSES[name][2],
        "al-k",
    )


@pytest.mark.parametrize(
    ("name", "base_url"),
    [
        ("cohere embed", "https://proxy.example/v2"),
        ("cohere rerank", "https://proxy.example/v2/"),
        ("voyage embed", "https://proxy.example/v1"),
        ("voyage rerank", "https://proxy.example/v1/"),
    ],
)
async def test_the_version_may_stand_in_the_address(name: str, base_url: str) -> None:
    assert (await request_of(name, api_key="k", base_url=base_url))[0] == (
        "https://proxy.example" + CLASSES[name][2]
    )


@pytest.mark.parametrize("name", ["cohere rerank", "cohere embed"])
@pytest.mark.parametrize(
    ("environment", "own_key", "key"),
    [
        ({"CO_API_KEY": "first", "COHERE_API_KEY": "second"}, None, "first"),
        ({"COHERE_API_KEY": "second"}, None, "second"),
        ({"CO_API_KEY": " ", "COHERE_API_KEY": " second\n"}, None, "second"),
        ({"CO_API_KEY": "first"}, "own_key", "own_key"),
        ({"CO_API_KEY": "first"}, "", "first"),
    ],
)
async def test_coheres_key_is_given_or_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    environment: Mapping[str, str],
    own_key: str | None,
    key: str,
) -> None:
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)

    assert (await request_of(name, api_key=own_key)) == (
        f"https://api.cohere.com{CLASSES[name][2]}",
        key,
    )


@pytest.mark.parametrize("name", ["cohere rerank", "cohere embed"])
async def test_coheres_address_may_be_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = CLASSES[name][2]
    monkeypatch.setenv("CO_API_URL", "https://cohere.example/")

    assert (await request_of(name, api_key="k"))[0] == f"https://cohere.example{path}"
    assert (await request_of(name, api_key="k", base_url="http://own"))[0] == f"http://own{path}"


@pytest.mark.parametrize("name", ["voyage rerank", "voyage embed"])
@pytest.mark.parametrize(
    ("key", "address"),
    [
        ("pa-key", "https://api.voyageai.com"),
        ("al-key", "https://ai.mongodb.com"),
        ("pal-key", "https://api.voyageai.com"),
    ],
)
async def test_keys_of_mongodb_atlas_go_to_mongodb(
    monkeypatch: pytest.MonkeyPatch, name: str, key: str, address: str
) -> None:
    monkeypatch.setenv("VOYAGE_API_KEY", key)

    assert (await request_of(name)) == (address + CLASSES[name][2], key)


@pytest.mark.parametrize("name", CLASSES)
def test_a_missing_key_is_an_error_at_once(name: str) -> None:
    connect, _, _ = CLASSES[name]
    variable = "CO_API_KEY" if "cohere" in name else "VOYAGE_API_KEY"

    for key in (None, "", " \n"):
        with pytest.raises(
            ValueError, match=f"{connect.__name__} needs a key: set {variable} or pass api_key="
        ):
            connect(api_key=key)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"api_key": "two words"}, "no key has"),
        ({"api_key": "line\nbreak"}, "no key has"),
        ({"api_key": "schlüssel"}, "no key has"),
        ({"api_key": "k", "base_url": "api.example"}, "http or https address"),
        ({"api_key": "k", "base_url": "ftp://api.example"}, "http or https address"),
        ({"api_key": "k", "base_url": ""}, "base_url is empty"),
    ],
)
def test_a_key_or_an_address_that_cannot_be_one_is_refused(
    name: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        CLASSES[name][0](**options)

    assert "words" not in str(refused.value)
