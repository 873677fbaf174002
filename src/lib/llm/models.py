"""Models by name: `open_client("openai:gpt-5-mini")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from lib.llm.client import LLMClient


def open_client(model: str) -> LLMClient:
    """Return a client of the model that `provider:model` names; its caller closes it.

    "openai:" is OpenAI's Responses API. "chat:" is any server that speaks chat completions, such as
    a gateway or a model server of your own. Keys and addresses come from OPENAI_API_KEY and
    OPENAI_BASE_URL.

    Raises:
        ValueError: the name has another form, or the provider is unknown.
        TypeError: it is not text.
    """
    check_model(model)
    provider, _, name = model.partition(":")
    return _PROVIDERS[provider](name)


def check_model(model: object) -> None:
    """Refuse what names no model; see `open_client`."""
    if not isinstance(model, str):
        raise TypeError(f"expected a model as provider:model, got {type(model).__name__}")
    provider, _, name = model.partition(":")
    if not name.strip() or provider not in _PROVIDERS:
        forms = ", ".join(f"{each}:MODEL" for each in _PROVIDERS)
        raise ValueError(f"expected one of {forms}, got {model!r}: or pass a client of your own")


def _openai(model: str) -> LLMClient:
    from lib.llm.responses import OpenAIClient  # noqa: PLC0415 - loads the HTTP client

    return OpenAIClient(model)


def _chat(model: str) -> LLMClient:
    from lib.llm.chat import ChatClient  # noqa: PLC0415 - as above

    return ChatClient(model)


_PROVIDERS: Final[Mapping[str, Callable[[str], LLMClient]]] = {"openai": _openai, "chat": _chat}
