"""The demo's stand-in answers questions about the documentation from the right page."""

import json
import re
from pathlib import Path

from rich.console import Console

from lib.cli.demo import index_home, open_library
from lib.cli.models import ExtractiveClient
from lib.llm import Message, ToolCall, ToolResult

DOCS = Path(__file__).parents[2] / "docs"
RIGHT_AT_LEAST = 23
CITATION = re.compile(r" \[([\w/.-]+\.md):(\d+)\]$")

QUESTIONS = (  # a newcomer's question, the page that answers, and its section
    (
        "What happens to a payment tool when the process is killed while it runs?",
        "how-to/survive-a-crash.md",
        "Survive a crash",
    ),
    (
        "How do I have a person approve a tool call before it is made?",
        "how-to/ask-a-person-first.md",
        "Ask a person first",
    ),
    ("Which effects can a tool declare?", "how-to/survive-a-crash.md", "Survive a crash"),
    (
        "How do I run workers on several machines?",
        "how-to/run-on-many-machines.md",
        "Run it on many machines",
    ),
    (
        "How can one agent call another agent?",
        "how-to/let-agents-call-agents.md",
        "Let agents call agents",
    ),
    (
        "How do I continue a conversation over several turns?",
        "how-to/hold-a-conversation.md",
        "Hold a conversation",
    ),
    (
        "How do I stop prompt injection?",
        "how-to/guard-what-agents-say.md",
        "Guard what agents read, say and do",
    ),
    (
        "How are credit card numbers kept out of the log?",
        "how-to/redact-personal-data.md",
        "Redact personal data",
    ),
    (
        "How do I erase everything about one customer?",
        "how-to/erase-and-expire.md",
        "Erase and expire",
    ),
    (
        "How do I search documents without a model?",
        "how-to/search-documents.md",
        "Search documents",
    ),
    ("What does a reranker do?", "how-to/rerank.md", "Rerank"),
    (
        "Can the URL fetcher reach internal addresses?",
        "how-to/give-an-agent-the-web.md",
        "Give an agent the web",
    ),
    (
        "Which vector store should I choose?",
        "how-to/choose-a-vector-store.md",
        "Choose a vector store",
    ),
    (
        "How are tenants kept apart in a vector store?",
        "how-to/separate-tenants.md",
        "Separate tenants",
    ),
    (
        "How do I copy records from one vector store to another?",
        "how-to/move-between-stores.md",
        "Move between stores",
    ),
    ("How do I use Ollama or vLLM?", "how-to/use-your-model-server.md", "Use your model server"),
    (
        "How do I follow a run while it is working?",
        "tutorial.md",
        "Budgets, live replies and following a run",
    ),
    ("How do I send traces to Langfuse?", "how-to/export-traces.md", "Export traces"),
    ("How do I see what a run cost?", "how-to/know-what-runs-cost.md", "Know what runs cost"),
    ("How do I attach a human score to a run?", "how-to/score-runs.md", "Score runs"),
    ("How do I install lib?", "tutorial.md", "Install"),
    ("Which filter operators can be used?", "explanation/filters.md", "One filter language"),
    (
        "How fast is vector search compared with faiss?",
        "explanation/speed.md",
        "How fast",
    ),
    ("Which URL opens a Redis event store?", "reference/events.md", "Stores and their URLs"),
    (
        "How do I draw the trace of a run as an HTML page?",
        "how-to/read-a-trace.md",
        "Read a trace",
    ),
)


async def answers(home: Path) -> list[str]:
    client = ExtractiveClient()
    replies = list[str]()
    async with open_library(DOCS, home, Console(quiet=True)) as library:
        for question, _page, _section in QUESTIONS:
            call = ToolCall("c", "search_documents", {"query": question})
            found = json.dumps(await library.search(question, 8))
            reply = await client.complete(
                [
                    Message.user(question),
                    Message.assistant(call),
                    Message.tool(ToolResult("c", found)),
                ]
            )
            replies.append(reply.text)
    return replies


async def test_the_right_page_is_cited_in_whole_sentences_without_broken_markup(
    tmp_path: Path,
) -> None:
    replies = await answers(index_home(DOCS, tmp_path))

    wrong = list[str]()
    for (question, page, section), answer in zip(QUESTIONS, replies, strict=True):
        quotes = [part for part in answer.split("\n\n") if not part.startswith("(No model")]
        cited = [found for quote in quotes if (found := CITATION.search(quote))]
        assert len(cited) == len(quotes), answer
        for found, quote in zip(cited, quotes, strict=True):
            text = quote[: found.start()]
            assert text[-1] in ".!?", text
            assert not text[0].islower(), text
            assert "**" not in text, text
            assert "](" not in text, text
            assert text.count("`") % 2 == 0, text
        assert f"# {section}\n" in (DOCS / page).read_text(encoding="utf-8")
        if page not in {found[1] for found in cited}:
            wrong.append(question)

    assert len(QUESTIONS) - len(wrong) >= RIGHT_AT_LEAST, wrong
