"""A stand-in for a model: it searches, and answers with sentences that it found, word for word.

It lets the demo run without a key or a network, and it says what it is.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lib._util.json import parse
from lib.llm import Delta, Message, Output, Reply, ToolCall, ToolResult, ToolSpec, Usage
from lib.vector.analysis import analyze

SENTENCES: Final = 3
_NOTICE: Final = "(No model is configured: these are sentences from the documents, word for word.)"
_NOTHING: Final = "The documents say nothing about this."
_PARAGRAPH: Final = re.compile(r"[^\n]+(?:\n[^\n]+)*")
_SENTENCE: Final = re.compile(r"\S.*?[.!?](?=\s|\Z)", re.DOTALL)
_NO_PROSE: Final = ("#", "|", "`" * 3, "    ")
"""How headings, tables and code begin."""
_CHARS_PER_TOKEN: Final = 4


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    cite: str
    terms: frozenset[str]


class ExtractiveClient:
    """Answers from passages instead of knowing anything: one search, then the best sentences.

    The passages are the JSON that the tool returns: a list of objects with `text`, `source` and
    `line`, where `line` is that of the first line of the text.
    """

    name = "extractive"
    model = "extractive"
    modalities = frozenset({"text"})

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
    wanted = frozenset(analyze(question))
    found = [sentence for result in results for sentence in _sentences(result)]
    found = [sentence for sentence in found if wanted & sentence.terms]
    weights = _weights(wanted, found)
    # Sorting is stable: among equals, the better passage and the earlier sentence stay in front.
    best = sorted(found, key=lambda sentence: -_worth(sentence, weights))[:SENTENCES]
    told = [f"{sentence.text} [{sentence.cite}]" for sentence in best]
    return "\n\n".join([*told, _NOTICE]) if told else _NOTHING


def _weights(wanted: frozenset[str], found: Sequence[_Sentence]) -> dict[str, float]:
    """Return how much each wanted word tells sentences apart: the rarer, the more."""
    counts = Counter(term for sentence in found for term in wanted & sentence.terms)
    return {term: math.log(1 + len(found) / count) for term, count in counts.items()}


def _worth(sentence: _Sentence, weights: Mapping[str, float]) -> float:
    """Return the weight of the wanted words in it; long-winded sentences are worth less."""
    wanted = sum(weights.get(term, 0.0) for term in sentence.terms)
    return wanted / (8 + len(sentence.terms)) ** 0.5


def _sentences(result: ToolResult) -> list[_Sentence]:
    """Return the whole sentences of running text in the passages."""
    if result.is_error:
        return []
    return [
        sentence
        for passage in parse(result.content)
        for paragraph in _PARAGRAPH.finditer(passage["text"])
        if not paragraph[0].startswith(_NO_PROSE)
        for sentence in _of_paragraph(paragraph, passage)
    ]


def _of_paragraph(paragraph: re.Match[str], passage: Mapping[str, Any]) -> Iterator[_Sentence]:
    for match in _SENTENCE.finditer(paragraph[0]):
        start = paragraph.start() + match.start()
        line = passage["line"] + passage["text"].count("\n", 0, start)
        words = " ".join(match[0].split()).lstrip("-*> ")
        yield _Sentence(words, f"{passage['source']}:{line}", frozenset(analyze(words)))
