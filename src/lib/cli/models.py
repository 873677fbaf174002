"""The model of the demo: the configured one, a local Ollama's, or a stand-in.

The stand-in searches and answers with sentences that it found, word for word. It lets the demo run
without a key or a network, and it says what it is.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx2

from lib._util.json import parse
from lib.llm import (
    ChatClient,
    Delta,
    LLMClient,
    Message,
    Output,
    Reply,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from lib.vector.text.analysis import analyze

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


_NOTICE: Final = "(No model is configured: these are sentences from the documents, word for word.)"
_NOTHING: Final = "The documents say nothing about this."
_SOURCES: Final = 3
"""From so many documents it quotes, from each a sentence and the one after it."""

_RANK_WEIGHT: Final = 0.75
"""The worth of a passage relative to the one that was found before it."""

_FENCE: Final = re.compile(r"^ *(```|~~~).*?(^ *\1|\Z)", re.MULTILINE | re.DOTALL)
_FENCE_LINE: Final = re.compile(r"^ *(?:```|~~~)[ \t]*(\S*)", re.MULTILINE)
_COMMENT: Final = re.compile(r"<!--.*?(-->|\Z)", re.DOTALL)
_ITEM: Final = re.compile(r" *(?:[-*+]|\d+[.)]) +")
_NO_PROSE: Final = ("#", "|", ":::", "    ", "\t", ">", "<")
"""The beginnings of headings, tables, directives, indented code and markup."""

_ATOM: Final = re.compile(r"`[^`\n]*`|\[[^\]]*\]\([^)\s]*\)")
_ABBREVIATION: Final = re.compile(r"\b(?:e\.g|i\.e|etc|vs)\.")
_STOP: Final = re.compile(r"[.!?](?=\s|\Z)")
_LINK: Final = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
_EMPHASIS: Final = re.compile(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1", re.DOTALL)
_CHARS_PER_TOKEN: Final = 4


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    source: str
    line: int
    block: int
    terms: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Passage:
    sentences: Sequence[_Sentence]
    terms: frozenset[str]
    heading: frozenset[str]


class ExtractiveClient:
    """Answers from passages instead of knowing anything: one search, then the best sentences.

    The passages are the JSON that the tool returns: a list of objects with `text`, `source` and
    `line`, where `line` is that of the first line of the text.
    """

    name: str = "extractive"
    model: str = "extractive"
    modalities: frozenset[str] = frozenset({"text"})

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        model: str | None = None,
        tools: Sequence[ToolSpec] = (),
        output: Output | None = None,
        settings: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Search first; once there are results, answer from them."""
        question, results = _turn(messages)
        read = sum(len(message.text) for message in messages) // _CHARS_PER_TOKEN
        if not results and tools:
            call = ToolCall("search-1", tools[0].name, {"query": question})
            usage = Usage(input_tokens=read, output_tokens=len(question) // _CHARS_PER_TOKEN)
            return Reply((call,), usage, "tool_calls", self.model)
        answer = Message.assistant(_answer(question, results))
        read += sum(len(result.content) for result in results) // _CHARS_PER_TOKEN
        usage = Usage(input_tokens=read, output_tokens=len(answer.text) // _CHARS_PER_TOKEN)
        return Reply(answer.parts, usage, model=self.model)

    async def stream(
        self,
        messages: Sequence[Message],
        *,
        model: str | None = None,
        tools: Sequence[ToolSpec] = (),
        output: Output | None = None,
        settings: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[Delta | Reply]:
        """Yield the answer in one piece, then the reply."""
        reply = await self.complete(messages, tools=tools)
        yield Delta(text=reply.text)
        yield reply


def _turn(messages: Sequence[Message]) -> tuple[str, list[ToolResult]]:
    """Return the last question and what tools have answered since."""
    question, results = "", list[ToolResult]()
    for message in messages:
        if message.role == "user":
            question, results = message.text, []
        results += [part for part in message.parts if isinstance(part, ToolResult)]
    return question, results


def _answer(question: str, results: Sequence[ToolResult]) -> str:
    """Return the best sentence of each of the best passages, with the sentence after it."""
    wanted = frozenset(analyze(question))
    passages = [
        _Passage(sentences, frozenset(analyze(passage["text"])), _heading(passage))
        for result in results
        if not result.is_error
        for passage in parse(result.content)
        if (sentences := list(_sentences(passage)))
    ]
    weights = _weights(wanted, [passage.terms | passage.heading for passage in passages])
    worth = [
        (_worth(passage.terms, weights) + _worth(passage.heading, weights)) * _RANK_WEIGHT**rank
        for rank, passage in enumerate(passages)
    ]
    best = dict[str, _Passage]()  # one of each source
    for at in sorted(range(len(passages)), key=lambda at: -worth[at]):
        if worth[at]:
            best.setdefault(passages[at].sentences[0].source, passages[at])
    quotes = [_quoted(passage.sentences, weights) for passage in list(best.values())[:_SOURCES]]
    return "\n\n".join([*quotes, _NOTICE]) if quotes else _NOTHING


def _heading(passage: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(analyze(str(passage.get("heading", ""))))


def _weights(wanted: frozenset[str], passages: Sequence[frozenset[str]]) -> dict[str, float]:
    """Return the weight of each wanted word: the rarer, the higher."""
    counts = Counter(term for terms in passages for term in wanted & terms)
    return {term: math.log(1 + len(passages) / count) for term, count in counts.items()}


def _worth(terms: frozenset[str], weights: Mapping[str, float]) -> float:
    return sum(weight for term, weight in weights.items() if term in terms)


def _quoted(sentences: Sequence[_Sentence], weights: Mapping[str, float]) -> str:
    """Return the first sentence with most of the wanted words, and the next of its paragraph."""
    best = max(range(len(sentences)), key=lambda at: _worth(sentences[at].terms, weights))
    block = sentences[best].block
    both = [each.text for each in sentences[best : best + 2] if each.block == block]
    quoted = " ".join(both)
    return f"{quoted} [{sentences[best].source}:{sentences[best].line}]"


def _sentences(passage: Mapping[str, Any]) -> Iterator[_Sentence]:
    """Yield the whole sentences of running text in a passage, without their markup."""
    text = _COMMENT.sub(_blanked, _FENCE.sub(_blanked, _opened(passage["text"])))
    for first, block in _blocks(text):
        start = 0
        for stop in _STOP.finditer(_ABBREVIATION.sub(_masked, _ATOM.sub(_masked, block))):
            raw, line = block[start : stop.end()], first + block.count("\n", 0, start)
            line += len(raw) - len(raw.lstrip("\n"))
            start = stop.end()
            words = _plain(raw)
            if not words[:1].islower() and "**" not in words and words.count("`") % 2 == 0:
                terms = frozenset(analyze(words))
                yield _Sentence(words, passage["source"], passage["line"] + line, first, terms)


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yield each paragraph and item of a list, with the number of lines before it."""
    lines = list[str]()
    for number, line in enumerate([*text.split("\n"), ""]):
        item = _ITEM.match(line)
        if lines and (not line.strip() or item or line.startswith(_NO_PROSE[:2])):
            yield number - len(lines), "\n".join(lines)
            lines = []
        if item:
            lines = [line[item.end() :]]
        elif line.strip() and (lines or not line.startswith(_NO_PROSE)):
            lines.append(line)


def _masked(found: re.Match[str]) -> str:
    """Return as many characters that end no sentence."""
    return "x" * len(found[0])


def _opened(text: str) -> str:
    """Return the text with a fence before it if it begins within a block of code."""
    fences = _FENCE_LINE.findall(text)
    return f"```{text}" if len(fences) % 2 and fences[0] == "" else text


def _blanked(found: re.Match[str]) -> str:
    """Return the line breaks of what is left out, so that lines keep their numbers."""
    return "\n" * found[0].count("\n")


def _plain(markdown: str) -> str:
    """Return a sentence on one line, links and emphasis as their words."""
    return " ".join(_EMPHASIS.sub(r"\2", _LINK.sub(r"\1", markdown)).split())
