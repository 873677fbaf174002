"""The model of the demo: the configured one, a local Ollama's, or a stand-in."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

import httpx2

from lib.cli.extractive import ExtractiveClient
from lib.llm import ChatClient, LLMClient

OLLAMA_HOST: Final = "127.0.0.1:11434"
DEFAULT_MODEL: Final = "gpt-5-mini"
PROBE_TIMEOUT_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Model:
    """A client, and a sentence that says which model answers."""

    client: LLMClient
    summary: str

    async def aclose(self) -> None:
        """Close the client's connections."""
        if isinstance(self.client, ChatClient):
            await self.client.aclose()


def choose_model(wanted: str | None = None) -> Model:
    """Return the configured model, or the extractive stand-in.

    Args:
        wanted: the model's name at the configured server, None for its default.
    """
    base_url = os.environ.get("OPENAI_BASE_URL")
    if base_url or os.environ.get("OPENAI_API_KEY"):
        name = wanted or os.environ.get("OPENAI_MODEL") or DEFAULT_MODEL
        return Model(ChatClient(name), f"{name} at {base_url or 'OpenAI'} answers")
    host = os.environ.get("OLLAMA_HOST") or OLLAMA_HOST
    ollama = host if "://" in host else f"http://{host}"
    installed = _ollama_models(ollama)
    if installed:
        name = wanted or installed[0]
        client = ChatClient(name, base_url=f"{ollama}/v1", api_key="ollama")
        return Model(client, f"{name} of the local Ollama answers")
    return Model(ExtractiveClient(), "no model is configured, a stand-in answers")


def _ollama_models(ollama: str) -> list[str]:
    try:
        answer = httpx2.get(f"{ollama}/api/tags", timeout=PROBE_TIMEOUT_S, trust_env=False)
        return [model["name"] for model in answer.json()["models"]]
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError):
        return []  # nothing listens there, or it is not Ollama
