"""Models by name: `open_client("anthropic:claude-sonnet-4-5")`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from lib.llm.client import LLMClient


@dataclass(frozen=True, slots=True)
class _Own:
    """A client of its own, which knows its address and key.

    Attributes:
        module: where it is.
        name: of the class.
        options: environment variables of options that it does not read itself.
    """

    module: str
    name: str
    options: Mapping[str, str] | None = None

    def open(self, provider: str, model: str) -> LLMClient:
        client: Any = getattr(import_module(self.module), self.name)
        return client(model, **_found(self.options or {}, provider))


@dataclass(frozen=True, slots=True)
class _Compatible:
    """A server that speaks chat completions.

    Attributes:
        address: of the server.
        prefix: of the environment variables PREFIX_API_KEY and PREFIX_BASE_URL.
        hosted: False for a server of one's own, which may need no key.
    """

    address: str
    prefix: str
    hosted: bool = True

    def open(self, provider: str, model: str) -> LLMClient:
        from lib.llm.chat import ChatClient  # noqa: PLC0415 - loads the HTTP client

        variable = f"{self.prefix}_API_KEY"
        key = os.environ.get(variable)
        if self.hosted and not key:
            raise ValueError(f"{provider} needs a key: set {variable}, or use a ChatClient")
        address = os.environ.get(f"{self.prefix}_BASE_URL") or self.address
        # Without a key, ChatClient would send that of OpenAI.
        return ChatClient(model, api_key=key or "none", base_url=address)


def _azure(provider: str, model: str) -> LLMClient:
    """Open a deployment of Azure OpenAI, by the address that has no version."""
    from lib.llm.chat import ChatClient  # noqa: PLC0415 - loads the HTTP client

    variables = {"endpoint": "AZURE_OPENAI_ENDPOINT", "key": "AZURE_OPENAI_API_KEY"}
    found = _found(variables, provider)
    address = f"{found['endpoint'].rstrip('/').removesuffix('/openai/v1')}/openai/v1"
    headers = {"api-key": found["key"]}
    return ChatClient(
        model,
        api_key=found["key"],
        base_url=address,
        headers=headers,
        provider="azure.ai.openai",
        max_tokens_field="max_completion_tokens",
    )


_VERTEX: Final = {
    "project": "GOOGLE_CLOUD_PROJECT",
    "location": "GOOGLE_CLOUD_LOCATION",
    "token": "GOOGLE_OAUTH_ACCESS_TOKEN",
}


def _vertex(provider: str, model: str) -> LLMClient:
    """Open a model on Vertex AI, where Claude speaks the wire of its own maker."""
    if model.startswith("claude"):
        return _Own("lib.llm.anthropic", "AnthropicClient", _VERTEX).open(provider, model)
    return _Own("lib.llm.gemini", "GeminiClient", _VERTEX).open(provider, model)


def _found(variables: Mapping[str, str], provider: str) -> dict[str, str]:
    missing = [each for each in variables.values() if not os.environ.get(each)]
    if missing:
        raise ValueError(f"{provider} needs {', '.join(missing)} in the environment")
    return {name: os.environ[each] for name, each in variables.items()}


_PROVIDERS: Final[Mapping[str, Callable[[str, str], LLMClient]]] = {
    "anthropic": _Own("lib.llm.anthropic", "AnthropicClient").open,
    "azure": _azure,
    "bedrock": _Own("lib.llm.bedrock", "BedrockClient").open,
    "chat": _Own("lib.llm.chat", "ChatClient").open,
    "deepseek": _Compatible("https://api.deepseek.com/v1", "DEEPSEEK").open,
    "gemini": _Own("lib.llm.gemini", "GeminiClient").open,
    "groq": _Compatible("https://api.groq.com/openai/v1", "GROQ").open,
    "litellm": _Compatible("http://127.0.0.1:4000/v1", "LITELLM", hosted=False).open,
    "llamacpp": _Compatible("http://127.0.0.1:8080/v1", "LLAMACPP", hosted=False).open,
    "mistral": _Own("lib.llm.mistral", "MistralClient").open,
    "ollama": _Own("lib.llm.ollama", "OllamaClient").open,
    "openai": _Own("lib.llm.responses", "OpenAIClient").open,
    "openrouter": _Compatible("https://openrouter.ai/api/v1", "OPENROUTER").open,
    "together": _Compatible("https://api.together.xyz/v1", "TOGETHER").open,
    "vertex": _vertex,
    "vllm": _Compatible("http://127.0.0.1:8000/v1", "VLLM", hosted=False).open,
    "xai": _Compatible("https://api.x.ai/v1", "XAI").open,
}


def open_client(model: str) -> LLMClient:
    """Return a client of the model that `provider:model` names; its caller closes it.

    "openai:" is OpenAI's Responses API, "chat:" any server that speaks chat completions at
    OPENAI_BASE_URL. Each provider's key comes from its own environment variable, such as
    ANTHROPIC_API_KEY; docs/how-to/choose-a-model.md has them all.

    Raises:
        ValueError: the name has another form, the provider is unknown, or its key is missing.
        TypeError: it is not text.
        MissingDriver: the provider needs a package that is not installed.
    """
    check_model(model)
    provider, _, name = model.partition(":")
    return _PROVIDERS[provider](provider, name)


def check_model(model: object) -> None:
    """Refuse what names no model; see `open_client`."""
    if not isinstance(model, str):
        raise TypeError(f"expected a model as provider:model, got {type(model).__name__}")
    provider, _, name = model.partition(":")
    if name.strip() and provider in _PROVIDERS:
        return
    raise ValueError(
        f"expected provider:model, got {model!r}: {_hint(model)}providers are "
        f"{', '.join(_PROVIDERS)}; or pass a client of your own"
    )


_MAKERS: Final = {
    "claude": "anthropic",
    "gemini": "gemini",
    "gpt": "openai",
    "grok": "xai",
    "llama": "ollama",
    "magistral": "mistral",
    "mistral": "mistral",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "deepseek": "deepseek",
}
"""The provider of models whose names begin so, for the hint where it was left out."""


def _hint(model: str) -> str:
    """Return what was probably meant, as the beginning of a sentence; empty if that is unknown."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for what is misspelt

    provider, colon, _ = model.partition(":")
    maker = next((_MAKERS[start] for start in _MAKERS if model.startswith(start)), None)
    if maker and not colon:
        return f"did you mean {f'{maker}:{model}'!r}? "
    close = get_close_matches(provider, _PROVIDERS, n=1)
    return f"did you mean {close[0]!r}? " if close and provider not in _PROVIDERS else ""
