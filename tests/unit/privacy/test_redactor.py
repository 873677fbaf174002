"""Tests what a redactor takes out of texts and of the payloads of events, and what it leaves."""

import re
from typing import Any

import pytest

from lib.errors import RedactionFailed
from lib.events import kinds as k
from lib.privacy import PatternRedactor, redact_event
from lib.privacy.detect import EmailDetector, Finding
from lib.privacy.fields import PLAIN

MAIL, KEY = "jo@example.org", b"0123456789abcdef"
REDACTOR = PatternRedactor()


def redacted(kind: str, **data: Any) -> dict[str, Any]:
    return redact_event(kind, data, REDACTOR)


def test_placeholders_name_the_kind() -> None:
    text = f"mail {MAIL} or +49 30 1234567, card 4111111111111111, key sk-abcDEF1234567890abcdEFGH"

    assert REDACTOR.redact(text) == "mail [EMAIL] or [PHONE], card [CARD], key [SECRET]"
    assert REDACTOR.redact("nothing here") == "nothing here"


def test_with_a_key_equal_values_have_equal_placeholders_however_they_are_written() -> None:
    keyed = PatternRedactor(key=KEY)
    first = keyed.redact(MAIL)

    assert re.fullmatch(r"\[EMAIL:[0-9a-f]{8}\]", first)
    assert keyed.redact("JO@example.ORG") == first
    assert keyed.redact("j\u200bo@example.org") == first
    assert keyed.redact("ju@example.org") != first
    assert PatternRedactor(key=KEY[::-1]).redact(MAIL) != first
    assert keyed.redact("DE89 3704 0044 0532 0130 00") == keyed.redact("DE89370400440532013000")
    assert keyed.redact(first) == first


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes or more, got 3"):
        PatternRedactor(key=b"abc")


def test_only_the_chosen_detectors_look() -> None:
    assert PatternRedactor([EmailDetector()]).redact(f"{MAIL} 4111111111111111") == (
        "[EMAIL] 4111111111111111"
    )


class Hydra:
    """Finds one letter "a" at a time."""

    kinds = frozenset({"head"})

    def find(self, text: str) -> list[Finding]:
        place = text.find("a")
        return [] if place < 0 else [Finding("head", place, place + 1)]


def test_a_text_that_shows_something_new_after_every_search_is_taken_out_whole() -> None:
    hydra = PatternRedactor([Hydra()])

    assert hydra.redact("a" * 8) == "[HEAD]" * 8
    assert hydra.redact("a" * 9) == "[REDACTED]"
    assert hydra.redact("[REDACTED]") == "[REDACTED]"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"order": 4111111111111111}', '{"order": "[CARD]"}'),
        ('{"order":-4111111111111111, "x":1}', '{"order":"-[CARD]", "x":1}'),
        ("[4111111111111111, 5]", '["[CARD]",5]'),
        (r'"{\"n\": 4111111111111111}"', r'"{\"n\": \"[CARD]\"}"'),
        ('so {"n": 4111111111111111} it is', 'so {"n": "[CARD]"} it is'),
        (r'{"text":"Hello\njo@example.org"}', r'{"text":"Hello\n[EMAIL]"}'),
        ('"4111111111111111"', '"[CARD]"'),
        ("4111111111111111", "[CARD]"),
        ("numbers: 4111111111111111, 5", "numbers: [CARD], 5"),
        ('{"n": 4111111111111111', '{"n": "[CARD]"'),
        ('{"n": 4111111111111111 x', '{"n": [CARD] x'),
        (f"{{{MAIL}}}", "{[EMAIL]}"),
        ("[4111111111111111, 1e999]", '"[REDACTED]"'),
        ('{"a":"b"}', '{"a":"b"}'),
    ],
)
def test_json_stays_json(text: str, left: str) -> None:
    assert REDACTOR.redact(text) == left
    assert REDACTOR.redact(left) == left


def test_json_that_is_deep_stays_json() -> None:
    deep = "[" * 180 + "4111111111111111" + "]" * 180

    assert REDACTOR.redact(deep) == deep.replace("4111111111111111", '"[CARD]"')


class Across:
    """Finds what stands between two letters, wherever they are."""

    kinds = frozenset({"gap"})

    def find(self, text: str) -> list[Finding]:
        return [Finding("gap", *each.span()) for each in re.finditer("x[^x]+x", text)]


def test_json_stays_json_when_a_finding_spans_its_texts() -> None:
    crossing, hydra = PatternRedactor([Across()]), PatternRedactor([Hydra()])

    assert crossing.redact('{"a":"x1","b":["2x"],"c":"x3x"}') == '{"a":"x1","b":["2x"],"c":"[GAP]"}'
    assert hydra.redact('{"b":"' + "a" * 9 + '"}') == '"[REDACTED]"'


def test_what_a_finding_hid_is_found_when_it_is_gone() -> None:
    assert REDACTOR.redact("+4930123456+4930123457") == "[PHONE][PHONE]"


def test_messages_keep_their_shape_and_lose_what_is_secret() -> None:
    blob = {"$blob": "0" * 64, "size": 1, "type": "image/png"}
    parts: list[Any] = [
        {"type": "text", "text": MAIL, "note": MAIL},
        {"type": "thinking", "text": MAIL, "signature": "seal"},
        {"type": "thinking", "text": "nothing", "signature": "seal"},
        {"type": "tool_call", "id": MAIL, "name": MAIL, "arguments": {"to": MAIL}, "invalid": MAIL},
        {"type": "tool_result", "call_id": MAIL, "content": MAIL, "is_error": True},
        {"type": "image", "data": "am9AZXhhbXBsZS5vcmc=", "media_type": "image/png"},
        {"type": "file", "blob": blob, "name": f"{MAIL}.pdf"},
        {"type": "audio", "url": f"https://x.org/?u={MAIL}"},
        {"type": "image", "url": f"data:text/plain,{MAIL}"},
        {"type": "hologram", "id": MAIL, "scene": [MAIL]},
        {"type": 7, "text": MAIL},
        MAIL,
    ]
    payload = redacted(k.RUN_STARTED, input=[{"role": "user", "parts": parts}, MAIL])

    (message, rest) = payload["input"]
    assert rest == "[EMAIL]"
    assert message["parts"] == [
        {"type": "text", "text": "[EMAIL]", "note": "[EMAIL]"},
        {"type": "thinking", "text": "[EMAIL]"},
        {"type": "thinking", "text": "nothing", "signature": "seal"},
        {**parts[3], "arguments": {"to": "[EMAIL]"}, "invalid": "[EMAIL]"},
        {**parts[4], "content": "[EMAIL]"},
        parts[5],
        {"type": "file", "blob": blob, "name": "[EMAIL]"},
        {"type": "audio", "url": "https://x.org/?u=[EMAIL]"},
        parts[8],
        {"type": "hologram", "id": MAIL, "scene": ["[EMAIL]"]},
        {"type": 7, "text": "[EMAIL]"},
        "[EMAIL]",
    ]


def test_texts_keys_and_long_numbers_are_redacted_at_any_depth() -> None:
    args = {
        "list": [{"deep": (MAIL,)}],
        MAIL: 1,
        "JO@example.org": 2,
        "[EMAIL]": 3,
        "card": 4111111111111111,
        "order": 4711000012345,
        "few": 4111,
        "yes": True,
        "none": None,
        "at": 1.5,
        "blob": {"$blob": MAIL, "size": 1, "type": MAIL},
        "right": {"$blob": "0" * 64, "size": 4111111111111111, "type": MAIL},
        "more": {"$blob": "0" * 64, "size": 1, "type": "x", "card": "4111 1111 1111 1111"},
    }

    assert redacted(k.TOOL_REQUESTED, args=args)["args"] == {
        "list": [{"deep": ["[EMAIL]"]}],
        "[EMAIL] (3)": 1,
        "[EMAIL] (2)": 2,
        "[EMAIL]": 3,
        "card": "[CARD]",
        "order": 4711000012345,
        "few": 4111,
        "yes": True,
        "none": None,
        "at": 1.5,
        "blob": {"$blob": "[EMAIL]", "size": 1, "type": "[EMAIL]"},
        "right": {"$blob": "0" * 64, "size": "[CARD]", "type": "[EMAIL]"},
        "more": {"$blob": "0" * 64, "size": 1, "type": "x", "card": "[CARD]"},
    }


def test_a_payload_that_is_no_content_stays_as_it_is() -> None:
    for kind, plain in PLAIN.items():
        data = dict.fromkeys(plain, MAIL)
        assert redact_event(kind, data, REDACTOR) == data


def test_what_no_table_names_is_content() -> None:
    assert redacted(k.RUN_COMPLETED, novel=MAIL) == {"novel": "[EMAIL]"}
    assert redacted("lib.novel.kind", key=MAIL, model=MAIL, name=MAIL) == {
        "key": MAIL,
        "model": MAIL,
        "name": "[EMAIL]",
    }
    assert redacted("acme.note", key=MAIL, model=MAIL, input=[{"role": MAIL}]) == {
        "key": MAIL,
        "model": "[EMAIL]",
        "input": [{"role": "[EMAIL]"}],
    }


def test_shapes_that_are_not_what_they_should_be_are_content() -> None:
    assert redacted(k.RUN_STARTED, input=MAIL, config=MAIL) == {
        "input": "[EMAIL]",
        "config": "[EMAIL]",
    }
    assert redacted(k.LLM_COMPLETED, reply={"model": MAIL, "parts": MAIL}) == {
        "reply": {"model": MAIL, "parts": "[EMAIL]"}
    }


def test_every_kind_of_event_is_in_the_table() -> None:
    kinds = {
        value
        for name, value in vars(k).items()
        if name.isupper() and isinstance(value, str) and value != k.PREFIX
    }

    assert set(PLAIN) == kinds


class Broken:
    def __init__(self, result: Any) -> None:
        self.result = result

    def redact(self, text: str) -> str:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def test_a_redactor_that_fails_says_so_without_content() -> None:
    with pytest.raises(RedactionFailed) as raised:
        redact_event(k.TOOL_COMPLETED, {"output": MAIL}, Broken(KeyError(MAIL)))

    assert (raised.value.kind, raised.value.cause) == (k.TOOL_COMPLETED, "KeyError")
    assert raised.value.__cause__ is None
    assert MAIL not in str(raised.value)
    with pytest.raises(RedactionFailed, match="no text was returned"):
        redact_event(k.TOOL_COMPLETED, {"output": MAIL}, Broken(None))
