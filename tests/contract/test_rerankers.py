"""Every reranker keeps the contract; a new one is one more line of the table."""

import json
import re
from collections.abc import Callable, Sequence

import pytest

from fakes.model_servers import API_KEY, CohereServer, VendorServer, VoyageServer, relevance
from lib.llm import Message
from lib.llm.scripted import FunctionClient
from lib.testing.reranker import RerankerContract, RerankerKind
from lib.vector import CohereReranker, LLMReranker, Reranker, VoyageReranker

PASSAGE = re.compile(r'^\[(\d+)\] (".*")$', re.MULTILINE)


def judged(messages: Sequence[Message]) -> str:
    """Answer as a model would that reads what it is shown, and nothing between the lines."""
    text = messages[-1].text
    query = json.loads(text.removeprefix("Query: ").partition("\n")[0])
    passages = [(int(number), json.loads(quoted)) for number, quoted in PASSAGE.findall(text)]
    assert [number for number, _ in passages] == list(range(1, len(passages) + 1))
    ranked = sorted(passages, key=lambda passage: (-relevance(query, passage[1]), passage[0]))
    return json.dumps({"order": [number for number, _ in ranked]})


def llm_kind() -> RerankerKind:
    newest: list[FunctionClient] = []

    def open_new() -> Reranker:
        newest[:] = [FunctionClient(judged)]
        return LLMReranker(newest[0])

    return RerankerKind(open=open_new, calls=lambda: len(newest[0].calls))


def http_kind(serve: Callable[[], VendorServer], connect: type) -> RerankerKind:
    newest: list[VendorServer] = []

    def open_new() -> Reranker:
        newest[:] = [serve()]
        return connect(API_KEY, transport=newest[0].transport)

    return RerankerKind(open=open_new, calls=lambda: len(newest[0].requests))


RERANKERS = {
    "llm": llm_kind(),
    "cohere": http_kind(CohereServer, CohereReranker),
    "voyage": http_kind(VoyageServer, VoyageReranker),
}


@pytest.fixture(params=RERANKERS.values(), ids=list(RERANKERS))
def each_kind(request: pytest.FixtureRequest) -> RerankerKind:
    return request.param


class TestRerankers(RerankerContract):
    @pytest.fixture
    def kind(self, each_kind: RerankerKind) -> RerankerKind:
        return each_kind
