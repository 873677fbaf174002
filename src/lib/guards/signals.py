"""The signals of prompt injection: which concepts, how near each other, and what that adds. Pure.

A rule does not look for a phrase but for concepts of `lib.guards.terms` that stand together, such
as an order to drop something near a word for rules near a word for what came before. What patterns
see, such as the tokens of chat templates, are concepts too. Only what stands in one passage is
added up: a long text is not suspicious for being long.

Sources: Perez and Ribeiro, "Ignore Previous Prompt" (2022), arXiv:2211.09527; Greshake et al.,
"Not what you've signed up for" (2023), arXiv:2302.12173; OWASP Top 10 for LLM Applications (2025),
LLM01.
"""

# ruff: noqa: E501 - rows and patterns read best on one line
from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from lib.guards.concepts import Concepts


class Rule(NamedTuple):
    """What is seen where an anchor stands near one concept of each need.

    Attributes:
        signal: its name; of several rules with one name, the heaviest counts.
        weight: what it adds; 1.0 is enough by default.
        needs: concepts, alternatives separated by `|`.
        within: how far they may be from the anchor, in characters of words.
    """

    signal: str
    weight: float
    anchor: str
    needs: tuple[str, ...] = ()
    within: int = 0


RULES: Final = (
    Rule("override", 1.0, "drop!", ("rules", "old|your|given|everything"), 60),
    Rule("override", 1.0, "drop!", ("rules@30", "all@20"), 30),
    Rule("override", 1.0, "drop!", ("everything@20", "given|above|old"), 50),
    Rule("override", 1.0, "drop!", ("task", "old|your", "void|new|unasked"), 70),
    Rule("override", 1.0, "undo!", ("rules@40", "your@40"), 40),
    Rule("override", 1.0, "undo!|drop!", ("bounds@40", "your|all|robot|ai|become!"), 50),
    Rule("sets rules aside", 0.6, "undo!|drop!", ("bounds",), 40),
    Rule("sets rules aside", 0.6, "undo!", ("rules", "given|old|all"), 40),
    Rule("sets rules aside", 0.6, "void", ("bounds",), 40),
    Rule("override", 1.0, "void", ("rules", "you|given", "old|all|given|new|your"), 60),
    Rule("override", 1.0, "void", ("rules", "robot|new"), 60),
    Rule("override", 1.0, "void", ("all|old|everything", "given"), 60),
    Rule("sets rules aside", 0.6, "drop!", ("rules",), 50),
    Rule("sets rules aside", 0.6, "drop!", ("given",), 50),
    Rule("sets rules aside", 0.6, "drop!", ("task", "your|old|given|user"), 40),
    Rule("sets rules aside", 0.6, "drop!", ("this|everything", "only"), 100),
    Rule("sets rules aside", 0.6, "void", ("rules",), 60),
    Rule("sets rules aside", 0.5, "void", ("your|old|above", "task|above"), 50),
    Rule("new instructions", 0.5, "new"),
    Rule("another role", 1.0, "become!", ("unbound",), 160),
    Rule("another role", 1.0, "unbound", ("dan",), 70),
    Rule("another role", 0.4, "unbound"),
    Rule("another role", 0.7, "order!", ("unbound",), 30),
    Rule("another role", 0.8, "unbound", ("robot|ai", "you|become!"), 90),
    Rule("another role", 0.6, "unbound", ("you|maker", "rules|order!|maker"), 60),
    Rule("another role", 0.4, "become!", ("ai|rules|key",), 80),
    Rule("asks for the prompt", 1.0, "show!", ("prompt",), 60),
    Rule("asks for the prompt", 1.0, "show!", ("rules|task", "given"), 80),
    Rule("asks for the prompt", 1.0, "show!", ("above", "exactly"), 60),
    Rule("asks for the prompt", 1.0, "ask!", ("prompt", "your", "exactly|given|show!"), 60),
    Rule("asks for the prompt", 1.0, "ask!", ("given", "exactly"), 80),
    Rule("asks for the prompt", 0.7, "show!", ("rules", "your"), 50),
    Rule("asks for the prompt", 0.5, "show!", ("above",), 50),
    Rule("asks for the prompt", 0.6, "ask!", ("prompt", "your"), 60),
    Rule("asks for the prompt", 0.6, "own"),
    Rule("asks for the prompt", 1.0, "own", ("ask!|show!|order!|maker|become!",), 50),
    Rule("asks for the prompt", 1.0, "show!", ("rules@30", "old@24"), 30),
    Rule("asks for the prompt", 1.0, "ask!", ("given", "above"), 60),
    Rule("claims authority", 0.6, "maker", ("permit|void|rules",), 90),
    Rule("claims authority", 0.5, "maker", ("order!|must|drop!",), 90),
    Rule("claims authority", 1.0, "maker", ("order!|must|drop!|you", "unasked"), 90),
    Rule("claims authority", 0.5, "permit", ("rules|robot", "you|unasked|drop!"), 80),
    Rule("claims authority", 0.4, "permit", ("you", "unasked"), 80),
    Rule("addressed to the model", 1.0, "robot", ("hail@8", "order!|must"), 60),
    Rule("addressed to the model", 1.0, "robot", ("any@8", "reading|this", "order!|must"), 60),
    Rule("addressed to the model", 0.7, "robot", ("reading@24", "this"), 40),
    Rule("addressed to the model", 1.0, "robot", ("reading@24", "this", "must|order!"), 60),
    Rule("addressed to the model", 0.7, "robot", ("hail@8",), 14),
    Rule("addressed to the model", 0.6, "ai", ("hail@6", "order!|must"), 60),
    Rule("addressed to the model", 0.6, "ai", ("reading@24", "this", "must|order!"), 60),
    Rule("addressed to the model", 0.4, "hailed"),
    Rule("addressed to the model", 0.3, "named"),
    Rule("addressed to the model", 0.4, "named", ("order!|must|trigger",), 50),
    Rule("addressed to the model", 1.0, "hailed", ("order!|must|drop!",), 40),
    Rule("addressed to the model", 0.5, "robot", ("must", "order!"), 50),
    Rule("secrecy", 0.6, "tell", ("neg", "user"), 40),
    Rule("secrecy", 0.6, "tell", ("neg", "this"), 30),
    Rule("secrecy", 1.0, "tell", ("neg@20", "user@30", "this|call!|hush"), 50),
    Rule("secrecy", 0.6, "tell", ("neg@20", "reply"), 50),
    Rule("secrecy", 0.7, "hush", ("reply",), 60),
    Rule("secrecy", 0.5, "hush", ("user|this|order!|call!|send!",), 50),
    Rule("exfiltration", 1.0, "send!", ("loot|path", "url|mail|place"), 90),
    Rule("exfiltration", 0.6, "send!", ("key", "url|mail|place"), 90),
    Rule("exfiltration", 1.0, "hole"),
    Rule("exfiltration", 0.4, "send!", ("url|mail", "order!|must"), 60),
    Rule("waits for a request", 0.5, "trigger", ("order!|must|call!|only",), 80),
    Rule("waits for a request", 0.6, "trigger", ("only|this|tool|loot|url",), 80),
    Rule("commands a tool", 0.3, "call!", ("tool|identifier",), 40),
    Rule("commands a tool", 0.4, "call!", ("tool|identifier", "robot|trigger|must|user"), 50),
    Rule("commands a tool", 0.5, "must", ("tool", "trigger"), 60),
    Rule("commands a tool", 0.7, "harm!", ("unasked",), 80),
    Rule("commands a tool", 0.5, "harm!", ("haste",), 80),
    Rule("commands a tool", 1.0, "harm!", ("unasked", "tool|identifier|user"), 80),
    Rule("commands a tool", 0.7, "call!", ("tool|identifier", "harm!|unasked|hush"), 60),
    Rule("commands a tool", 1.0, "call!", ("tool", "identifier", "your"), 40),
    Rule("commands a tool", 0.6, "ai", ("must@30", "harm!|send!", "identifier|mail|url"), 80),
    Rule("runs a command", 0.5, "shell"),
    Rule("runs a command", 0.6, "shell", ("must|call!|permit",), 60),
    Rule("runs a command", 1.0, "shell", ("robot|ai|maker",), 80),
    Rule("dictates the answer", 0.4, "order!", ("only",), 40),
    Rule("dictates the answer", 0.5, "order!|send!", ("reply",), 50),
    Rule("dictates the answer", 0.8, "order!|send!", ("reply", "praise|url|only|tool"), 60),
    Rule("dictates the answer", 0.5, "order!", ("praise", "robot|only|neg"), 60),
    Rule("threatens", 0.6, "refuse", ("threat|rules|unbound",), 120),
    Rule("threatens", 0.5, "threat", ("drop!|unbound", "you|your"), 90),
    Rule("forged turn", 0.8, "template"),
    Rule("forged turn", 1.0, "template", ("order!|must|drop!|permit|you",), 40),
    Rule(
        "forged turn",
        0.7,
        "turn",
        ("order!|must|you|drop!|undo!|show!|permit|become!|void|unbound",),
        60,
    ),
    Rule("forged turn", 0.6, "frame"),
    Rule("hidden text", 0.6, "comment", ("hailed|named@20", "order!|must|neg|trigger"), 70),
    Rule("hidden text", 0.4, "comment", ("robot@30", "order!|must|neg"), 70),
    Rule("hidden text", 0.5, "unseen", ("you|robot|ai", "order!|must|drop!"), 80),
    Rule("deciphers", 0.5, "cipher"),
)

PATTERNS: Final[Mapping[str, re.Pattern[str]]] = MappingProxyType(
    {
        "url": re.compile(
            r"https?://|\bwww\.\w|\b[\w-]{2,40}\.(?:test|com|net|org|example|ru|cn|xyz)\b"
        ),
        "mail": re.compile(r"\w@\w"),
        "path": re.compile(
            r"~/\.\w|\.env\b|\bid_rsa\b|/etc/(?:passwd|shadow)|\.ssh\b|\.aws\b|\bcredentials\.\w|\.netrc\b"
        ),
        "identifier": re.compile(r"\b[a-z]{2,20}_[a-z_]{2,30}\b|`[a-z][\w.]{2,40}`"),
        "hole": re.compile(
            r"https?://[^\s)\"'>]{0,120}[{<\[$]{1,3}[^\s)\"'>}\]]{0,20}(?:conversation|histor|chat|secret|passw|summar|token|data|user|message|prompt|key)"
            r"|!\[[^\]\n]{0,80}\]\(https?://[^)\s]{0,160}[?&/=][{<\[$]"
            r"|(?:https?://|www\.)[^\s)\"'>]{0,120}[?&](?:pw|password|secret|token|data|d|q)=(?:password|secret|token|data|insert)"
        ),
        "comment": re.compile(
            r"(?m)<!--|^[ \t]{0,12}(?:#|//|/\*|--|\"\"\"|;;|rem )[ \t]{0,4}\w|\[//\]: #"
        ),
        "unseen": re.compile(
            r"display: ?none|font-size: ?0|visibility: ?hidden|opacity: ?0[;\"']|color: ?(?:white|#fff)|<!--|\[//\]: #"
        ),
        "shell": re.compile(r"\brm -rf /|\bcurl [^\n|]{0,120}\| ?(?:ba|z)?sh\b"),
        "template": re.compile(
            r"<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id|end_header_id|begin_of_text)\|?>?"
            r"|\[/?inst\]|<</?sys>>|<(?:start|end)_of_turn>|</?(?:tool_result|tool_output|tool_response|function_results|function_calls|user_input|untrusted|system_prompt|document_content)(?:[ _-]\w{1,16})?>"
            r"|</?(?:admin|system|developer|assistant)(?:[ _-](?:instructions?|message|prompt|override|note|reminder))?>"
            r"|\"role\"\s{0,3}:\s{0,3}\"system\"|\[(?:system|assistant)\]\(#"
        ),
        "turn": re.compile(
            r"(?m)^[\W_]{0,8}(?:new |important )?(?:system|developer|admin(?:istrator)?|assistant|ai|maintenance|debug mode)[ _]?(?:prompt|message|override|note|notice|alert|update|directive|instructions?)?[ \t]{0,3}[\W_]{0,5}[:\]]"
            r"|^[ \t]{0,4}(?:thought|observation):"
        ),
        "frame": re.compile(
            r"(?m)^[\W_]{0,8}(?:begin|end|start)(?:ing)? (?:of )?(?:the )?(?:untrusted |user |system |tool |web |admin )?(?:document|tool|file|page|web ?page|search|output|context|user|data|email|admin|system|message|input|instructions)\b[^\n:]{0,20}[-=\]>#]{2,6}[ \t]{0,3}$"
            r"|^action: \w{2,40}_\w"
        ),
    }
)

MENTIONED: Final = 0.3
"""What is left of a weight where the anchor is quoted: texts about injections quote them."""

_NEVER_MENTIONED: Final = frozenset(("shell", "hole", "comment", "unseen"))
_PIECE: Final = 400
_QUOTES: Final = frozenset("\"'`\u201c\u201d\u2018\u201e\u00ab\u00bb\u2039\u203a*")
_INTRODUCED: Final = re.compile(
    r"(?:such as|like|e\.g\.,?|for example,?|for instance,?|phrases?|words?|says?|said|saying|called"
    r"|named|titled|string|asks? (?:it|them|the model) to|telling (?:it|them|the model) to)"
    r"[\s:,(\u2014-]{0,3}$"
)

NAMES: Final = frozenset(rule.signal for rule in RULES)


def seen(folded: str) -> dict[str, float]:
    """Return the signals of the passage that has most, and what each adds."""
    concepts = Concepts(folded)
    for name, pattern in PATTERNS.items():
        concepts.add(name, (found.start() for found in pattern.finditer(folded)))
    # A passage is two pieces in a row; what is in a piece belongs to two passages.
    pieces: dict[int, dict[str, float]] = {}
    for rule in RULES:
        if all(concepts.has(need) for need in rule.needs):
            _apply(rule, concepts, folded, pieces)
    none: dict[str, float] = {}
    passages = (_both(found, pieces.get(number + 1, none)) for number, found in pieces.items())
    return max(passages, key=lambda found: sum(found.values()), default=none)


def _apply(
    rule: Rule, concepts: Concepts, folded: str, pieces: dict[int, dict[str, float]]
) -> None:
    for anchor in rule.anchor.split("|"):
        for place in concepts.places.get(anchor, ()):
            piece = pieces.setdefault(place.at // _PIECE, {})
            if piece.get(rule.signal, 0.0) >= rule.weight:
                continue
            if all(concepts.near(need, place.at, rule.within) for need in rule.needs):
                said = anchor in _NEVER_MENTIONED or not is_mentioned(folded, place.start)
                weight = rule.weight * (1.0 if said else MENTIONED)
                piece[rule.signal] = max(weight, piece.get(rule.signal, 0.0))


def _both(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {
        name: max(one.get(name, 0.0), other.get(name, 0.0)) for name in one.keys() | other.keys()
    }


def is_mentioned(text: str, start: int) -> bool:
    """Tell whether what begins here is quoted rather than said."""
    before = text[max(0, start - 120) : start]
    line = before[before.rfind("\n") + 1 :]
    if before.rstrip(" ")[-1:] in _QUOTES or line.count('"') % 2 or line.endswith("`"):
        return True
    return line.rfind("\u201c") > line.rfind("\u201d") or _INTRODUCED.search(line) is not None
