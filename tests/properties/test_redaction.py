"""Laws of detection and redaction, over random and hostile texts."""

import json
import os
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lib._util.json import canonical, parse
from lib.events import kinds as k
from lib.llm import message_from_json, message_to_json
from lib.privacy import PatternRedactor, redact_event
from lib.privacy.detect import DEFAULT, find
from lib.privacy.detect.search import placeholder

PIECES = [
    *("jo@example.org", "+49 30 1234567", "4111 1111 1111 1111", "\uff4ao\uff20a\uff0eorg"),
    "+4930123456",
    *("DE89 3704 0044 0532 0130 00", "sk-abcDEF1234567890abcdEFGH", "api_key=", "x8Fq29dkLLpz"),
    *("[EMAIL]", "[SECRET:0a1b2c3d]", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"),
    *("\n", "\\", 'password="', "password: hunter2", "\\n", "07911123456", "4111.1111.1111.1111"),
    *(" ", "-", ".", "@", "+", "(", "[", "]", "0", "1", "é", "\u200b", "\ud800", '"', ":"),
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)
MAIL, CARD = "jo@example.org", 4111111111111111
REDACTORS = [PatternRedactor(), PatternRedactor(key=b"0123456789abcdef")]
KINDS = [kind for detector in DEFAULT for kind in detector.kinds]


@given(TEXTS, st.sampled_from(REDACTORS))
def test_redaction_is_deterministic_and_idempotent(text: str, redactor: PatternRedactor) -> None:
    once = redactor.redact(text)

    assert redactor.redact(text) == once
    assert redactor.redact(once) == once
    assert find(once, DEFAULT) == []


@given(TEXTS)
def test_findings_are_in_order_apart_and_outside_placeholders(text: str) -> None:
    found = find(text, DEFAULT)
    kept = [each.span() for each in placeholder(KINDS).finditer(text)]

    assert all(each.start < each.end <= len(text) for each in found)
    assert all(before.end <= after.start for before, after in pairwise(found))
    assert not [f for f in found for start, end in kept if f.start < end and start < f.end]


JSON: st.SearchStrategy[Any] = st.recursive(
    TEXTS | st.none() | st.booleans() | st.integers() | st.just(4111111111111111),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from([k.TOOL_REQUESTED, k.MEMORY_REQUESTED, "acme.note"]), JSON)
def test_redacted_payloads_stay_as_they_are_through_json_and_redaction(
    kind: str, value: Any
) -> None:
    redactor = REDACTORS[0]
    once = redact_event(kind, {"key": "a", "args": [value, MAIL, {MAIL: CARD}]}, redactor)

    assert parse(canonical(once)) == json.loads(canonical(once))
    assert redact_event(kind, parse(canonical(once)), redactor) == parse(canonical(once))
    assert once["args"][1:] == ["[EMAIL]", {"[EMAIL]": "[CARD]"}]


@given(JSON, st.integers(0, 2), st.booleans(), st.sampled_from(REDACTORS))
@example([{'password="\\': None}, ""], 0, False, REDACTORS[0])  # noqa: FBT003 - as it comes
@example("\ud800", 0, False, REDACTORS[0])  # noqa: FBT003 - not as JSON writes it
def test_redacted_json_is_json_and_holds_nothing_of_what_was_found(
    value: Any, packed: int, ascii_: bool, redactor: PatternRedactor
) -> None:
    text = json.dumps({"value": value}, ensure_ascii=ascii_)
    for _ in range(packed):
        text = json.dumps([text], ensure_ascii=ascii_)
    redacted = redactor.redact(text)
    inner = parse(redacted)

    left = [redacted[each.start : each.end] for each in find(redacted, DEFAULT)]
    assert redactor.redact(redacted) == redacted
    # What is found across the signs of JSON between two strings is in neither of them.
    assert [text for text in left if '":' not in text and '", ' not in text] == []
    assert isinstance(inner, dict | list | str)


@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_redacted_messages_are_messages_that_render_to_the_same_bytes(texts: list[str]) -> None:
    messages = [{"role": "user", "content": text} for text in texts]
    redacted = redact_event(k.RUN_STARTED, {"input": messages}, REDACTORS[1])["input"]

    assert [message_to_json(message_from_json(message)) for message in redacted] == redacted


SIZE = 15_000 if os.environ.get("LIB_TEST_LONG") else 4_000
UNITS = [
    *("a@", "a@b.", "@a.b", "1 ", "4 ", "4111 ", "+49 ", "0 1 ", "01 ", "(0", "0123 45 "),
    *("call +1 ", "tel "),
    *("eyJ", "eyJaaaaaaaaaaaa.", "sk-", "AKIA", "A1b2", "a", "a.", "xox", "é", "\uff11", "\u200b"),
    *("-----BEGIN PRIVATE KEY-----", "api_key=", "api_key=a1", "DE89 ", "password ", "://a:"),
    *("+4930123456", "[EMAIL", "[EMAIL]"),
    *("\\n", "\\", "\\u0041", "\\ud83d\\ude00", "jo\\n@b.org", 'password="', "password: a!a"),
    *("4111.", "4111 1111 ", "41111111111111111x ", "card 4", "7911", "a%40b.", "secret: a/b"),
]


@pytest.mark.parametrize("unit", UNITS)
def test_a_text_made_to_be_slow_takes_time_in_proportion(unit: str) -> None:
    def seconds(size: int) -> float:
        text = (unit * (size // len(unit) + 1))[:size]
        began = time.process_time()
        find(text, DEFAULT)
        return time.process_time() - began

    small = min(seconds(SIZE) for _ in range(3))

    # Quadratic work would take 64 times as long for eight times the text; one of linear work, 8.
    assert seconds(8 * SIZE) < 24 * small + 0.05
