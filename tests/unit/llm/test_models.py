"""Models by name: which client a name opens, and what it says when something is missing."""

from typing import Any

import pytest

from lib.llm import (
    AnthropicClient,
    BedrockClient,
    ChatClient,
    GeminiClient,
    MistralClient,
    OllamaClient,
    OpenAIClient,
    open_client,
)

KEYS: dict[str, dict[str, str]] = {
    "anthropic": {"ANTHROPIC_API_KEY": "k"},
    "azure": {"AZURE_OPENAI_ENDPOINT": "https://x.openai.azure.com", "AZURE_OPENAI_API_KEY": "k"},
    "bedrock": {"AWS_REGION": "eu-west-1", "AWS_BEARER_TOKEN_BEDROCK": "k"},
    "chat": {"OPENAI_API_KEY": "k"},
    "deepseek": {"DEEPSEEK_API_KEY": "k"},
    "gemini": {"GEMINI_API_KEY": "k"},
    "groq": {"GROQ_API_KEY": "k"},
    "litellm": {},
    "llamacpp": {},
    "mistral": {"MISTRAL_API_KEY": "k"},
    "ollama": {},
    "openai": {"OPENAI_API_KEY": "k"},
    "openrouter": {"OPENROUTER_API_KEY": "k"},
    "together": {"TOGETHER_API_KEY": "k"},
    "vertex": {
        "GOOGLE_CLOUD_PROJECT": "p",
        "GOOGLE_CLOUD_LOCATION": "europe-west4",
        "GOOGLE_OAUTH_ACCESS_TOKEN": "t",
    },
    "vllm": {},
    "xai": {"XAI_API_KEY": "k"},
}
SERVERS: dict[str, tuple[type[Any], str, str | None]] = {
    "anthropic": (AnthropicClient, "api.anthropic.com", "anthropic"),
    "azure": (ChatClient, "x.openai.azure.com", "azure.ai.openai"),
    "bedrock": (BedrockClient, "bedrock-runtime.eu-west-1.amazonaws.com", "aws.bedrock"),
    "chat": (ChatClient, "api.openai.com", "openai"),
    "deepseek": (ChatClient, "api.deepseek.com", "deepseek"),
    "gemini": (GeminiClient, "generativelanguage.googleapis.com", "gcp.gemini"),
    "groq": (ChatClient, "api.groq.com", "groq"),
    "litellm": (ChatClient, "127.0.0.1", None),
    "llamacpp": (ChatClient, "127.0.0.1", None),
    "mistral": (MistralClient, "api.mistral.ai", "mistral_ai"),
    "ollama": (OllamaClient, "127.0.0.1", "ollama"),
    "openai": (OpenAIClient, "api.openai.com", "openai"),
    "openrouter": (ChatClient, "openrouter.ai", "openrouter"),
    "together": (ChatClient, "api.together.xyz", "together"),
    "vertex": (GeminiClient, "europe-west4-aiplatform.googleapis.com", "gcp.vertex_ai"),
    "vllm": (ChatClient, "127.0.0.1", None),
    "xai": (ChatClient, "api.x.ai", "x_ai"),
}


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {name for keys in KEYS.values() for name in keys}
    for name in (*names, "GOOGLE_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("provider", KEYS)
def test_a_name_opens_the_client_of_its_provider(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KEYS[provider].items():
        monkeypatch.setenv(name, value)

    client: Any = open_client(f"{provider}:some/model:with-colon")

    kind, host, billed_by = SERVERS[provider]
    assert type(client) is kind
    assert client.model == "some/model:with-colon"
    assert (client.server["address"], client.provider) == (host, billed_by)


def test_claude_on_vertex_speaks_the_wire_of_its_maker(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = {
        "europe-west4": "europe-west4-aiplatform.googleapis.com",
        "eu": "aiplatform.eu.rep.googleapis.com",
        "global": "aiplatform.googleapis.com",
        "us": "aiplatform.us.rep.googleapis.com",
    }
    for name, value in KEYS["vertex"].items():
        monkeypatch.setenv(name, value)
    for location, host in hosts.items():
        monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", location)

        client: Any = open_client("vertex:claude-sonnet-4-5@20250929")

        assert type(client) is AnthropicClient
        assert client.model == "claude-sonnet-4-5@20250929"
        assert (client.server["address"], client.provider) == (host, "gcp.vertex_ai")


def test_a_token_of_vertex_goes_to_no_other_server() -> None:
    with pytest.raises(ValueError, match="both project= and token="):
        AnthropicClient("m", api_key="k", token="t")
    with pytest.raises(ValueError, match="both project= and token="):
        AnthropicClient("m", api_key="k", project="p")


@pytest.mark.parametrize("provider", [each for each, keys in KEYS.items() if keys])
def test_a_missing_key_is_named(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if provider == "bedrock":
        monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    missing = "AWS_REGION" if provider == "bedrock" else [*KEYS[provider]][-1]

    with pytest.raises(ValueError, match=missing):
        open_client(f"{provider}:m")


@pytest.mark.parametrize("provider", ["litellm", "llamacpp", "openrouter", "vllm"])
async def test_a_key_of_openai_goes_to_no_other_server(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or")

    client: Any = open_client(f"{provider}:m")

    headers: Any = client._headers
    assert "sk-of-openai" not in str(headers)


def test_an_unknown_provider_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="did you mean 'anthropic'") as caught:
        open_client("antropic:m")
    assert all(f" {name}" in str(caught.value) for name in KEYS)
    for wrong in ("gpt-5", "openai:", ":m", "", "openai: "):
        with pytest.raises(ValueError, match="expected provider:model"):
            open_client(wrong)
    with pytest.raises(TypeError, match="got NoneType"):
        open_client(None)  # pyright: ignore[reportArgumentType] - on purpose
