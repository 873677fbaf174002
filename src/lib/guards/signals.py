"""The signals of prompt injection: a dozen plain patterns, and what each adds. Pure.

They know orders that are rarely given to people: to drop all earlier instructions, to show a
prompt, to be without rules; texts that address a language model; what only programs write. An
attack in other words passes. Orders that are denied or reported ("they ignore …") do not count,
nor do those that a sentence about attacks quotes. Only what stands in one passage is added up.

Sources: Perez and Ribeiro, "Ignore Previous Prompt" (2022), arXiv:2211.09527; Greshake et al.,
"Not what you've signed up for" (2023), arXiv:2302.12173; OWASP Top 10 for LLM Applications (2025),
LLM01.
"""

# ruff: noqa: E501 - patterns read best on one line
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

# Repetitions have limits, so that a hostile text costs a constant for each of its characters.
_DROP: Final = (
    "(?:ignore|disregard|forget|override|overrule|bypass|discard|abandon|neglect|scrap|erase"
    "|circumvent|(?:set|cast|put|throw|push) (?:aside|away|out)|pay no attention to|never mind"
    "|stop (?:following|obeying)|(?:do not|don't) (?:follow|obey|comply with))"
)
_OLD: Final = (
    "(?:previous|prior|preceding|earlier|above|foregoing|existing|former|past|original|initial|old"
    "|current|given)"
)
_RULES: Final = (
    "(?:instructions?|rules?|prompts?|directives?|directions|guidelines?|constraints?|restrictions?"
    "|guidance|programming|policies|safeguards|system messages?|commands?|orders?)"
)
_ALL: Final = "(?:all|any|every|everything|each|your|whatever)"
_NOT_MINE: Final = r"(?:(?!my|our|his|her|their|its)\w{1,9} )?"
_FEW: Final = r"(?:[\w'-]{1,15},? ){0,3}"
_MODEL: Final = (
    r"(?:ai|llm|large language model|language model|chatbot|chatgpt|gpt|claude|gemini|copilot)s?"
    r"(?: (?:agent|assistant|model|system|reader|tool)s?)?"
)
_MUST: Final = (
    "(?:must|should|shall|please|have to|needs? to|ignore|disregard|recommend|write|say|call|send|post"
    "|forward|mention|include|append|add|rate|rank|give|approve|delete|execute|run|respond|output|print)"
)
_PROMPT: Final = (
    "(?:system (?:prompt|message|instructions?)"
    "|(?:initial|original|hidden|secret|internal|full|developer|base|initiali[sz]ation|configuration)"
    " (?:prompt|message|instructions?|directives?|rules|text))"
)
_SHOW: Final = (
    "(?:reveal|show|print|output|repeat|display|tell|give|share|leak|dump|write(?: out| down)?|copy"
    "|translate|encode|summari[sz]e|recite|list|what (?:is|are|was|were|does|do))"
)
_UNBOUND: Final = (
    r"(?:(?:no|without(?: any)?|free (?:of|from)(?: all| any)?) (?:rules|restrictions?|limits|limitations"
    r"|filters?|guardrails|ethical \w{1,12}|ethics|morals|censorship|content polic\w{1,3}|safety \w{1,12})\b(?! on)"
    r"|unrestricted|uncensored|unfiltered|jailbroken|do anything now|never (?:refuses?|says? no|declines?)"
    r"|not bound by|no longer bound|answers? (?:everything|anything))"
)
_BECOME: Final = (
    "(?:you are (?:now|no longer)|you're (?:now|no longer)|act as|pretend|from now on,? you|role-?play"
    "|imagine (?:you|that you)|you will (?:act|play)|enter|switch (?:to|into)|behave (?:as|like)|speak as)"
)
_LOOT: Final = (
    r"(?:passwords?|secrets?|tokens?|api keys?|credentials|private keys?|conversation|chat history|inbox"
    r"|user'?s? data|~/\.\w{1,10}|\.env\b|id_rsa|/etc/passwd)"
)
_SENDS: Final = (
    "(?:send|forward|post|upload|append|exfiltrate|e-?mail|transmit|copy|encode|attach|submit)"
)


class Signal(NamedTuple):
    """A pattern over folded text.

    Attributes:
        name: what it is called; of several with one name, the heaviest counts.
        weight: what it adds; 1.0 is enough by default.
        pattern: begins with the order, if it is one.
        is_order: whether it counts only as an order, not denied, reported or quoted.
    """

    name: str
    weight: float
    pattern: re.Pattern[str]
    is_order: bool = True


def _signal(name: str, weight: float, pattern: str, *, is_order: bool = True) -> Signal:
    # A space is any one, since a line may end there; `seen` leaves one of several.
    return Signal(name, weight, re.compile(pattern.replace(" ", r"\s")), is_order)


SIGNALS: Final = (
    _signal("override", 1.0, rf"\b{_DROP} {_FEW}{_ALL} {_FEW}{_OLD} {_FEW}{_RULES}\b"),
    _signal(
        "override",
        1.0,
        rf"\b{_DROP} (?:\w{{1,9}} )?(?:all|any|every) (?:of )?(?:the |your )?{_RULES}\b",
    ),
    _signal(
        "override", 1.0, rf"\b{_DROP} (?:all |any |every )?(?:of )?your (?:\w{{1,12}} )?{_RULES}\b"
    ),
    _signal(
        "override",
        1.0,
        rf"\b{_DROP} (?:all|everything|anything|whatever)[^.!?\n]{{0,20}} (?:above|before|told|said)\b",
    ),
    _signal("override", 0.7, rf"\b{_DROP} {_NOT_MINE}{_OLD} {_FEW}{_RULES}\b"),
    _signal(
        "override",
        1.0,
        rf"\b{_DROP} {_NOT_MINE}{_OLD} {_FEW}{_RULES}[^\n]{{0,3}} (?:and|then|instead)\b",
    ),
    # German, French, Spanish, Italian, Portuguese, Dutch, Russian, Chinese, Japanese.
    _signal(
        "override",
        1.0,
        r"\b(?:ignorier\w{0,3}|vergiss|vergesst|missachte\w{0,2}) (?!nicht)(?:\w{1,12} ){0,2}"
        r"(?:vorherigen|bisherigen|obigen|fruheren|vorigen|deine) (?:\w{1,14} ){0,2}"
        r"(?:anweisungen|vorgaben|regeln|instruktionen|richtlinien)"
        r"|\b(?:ignorez?|oubliez?|ignora|olvida|dimentica|ignore|esqueca|negeer|vergeet) (?:\w{1,14} ){0,4}"
        r"(?:precedentes|anteriores|precedenti|vorige instructies|eerdere instructies)\b"
        r"|\b(?:забудь|игнорируи)\w{0,2} (?:\w{1,14} ){0,2}предыдущие (?:инструкции|правила|указания)"
        r"|(?<!不要)(?:忽略|无视|忘记)[^。\n]{0,4}(?:之前|以前|上面|所有)[^。\n]{0,6}(?:指令|指示|规则|提示)"
        r"|(?:以前|上記|これまで)の[^。\n]{0,6}(?:指示|命令|指令)[^。\n]{0,4}(?:無視|破棄|忘れ)",
    ),
    _signal(
        "override",
        1.0,
        r"\b(?:everything|whatever|anything|all) (?:that )?(?:you were|you've been|you have been) (?:told|given|taught"
        r"|instructed|configured)\b",
    ),
    _signal(
        "override",
        1.0,
        rf"\b(?:your (?:\w{{1,12}} ){{0,2}}{_RULES}|(?:earlier|previous|above|prior|all) (?:instructions|directives"
        r"|prompts?|guidelines)) (?:above )?(?:no longer appl|(?:is|are"
        r"|was|were|has been|have been) (?:now )?(?:void|lifted|disabled|cancelled|replaced|obsolete|suspended|revoked))",
        is_order=False,
    ),
    _signal(
        "override",
        1.0,
        rf"\bstop (?:following|obeying) (?:the |your )?(?:\w{{1,12}}(?:'s)? )?(?:{_RULES}|{_PROMPT})",
    ),
    _signal(
        "asks for the prompt", 1.0, rf"\b{_SHOW} (?:[\w'-]{{1,12}} ){{0,4}}your {_FEW}{_PROMPT}\b"
    ),
    _signal(
        "asks for the prompt",
        1.0,
        rf"\b{_SHOW} (?:[\w'-]{{1,12}} ){{0,4}}your (?:exact |own )?(?:prompt|instructions)\b",
    ),
    _signal("asks for the prompt", 0.7, rf"\b{_SHOW} (?:\w{{1,12}} ){{0,3}}the {_FEW}{_PROMPT}\b"),
    _signal(
        "asks for the prompt",
        1.0,
        rf"\b{_SHOW} (?:[\w'-]{{1,12}} ){{0,4}}(?:text|words|everything|instructions|paragraph) (?:that \w{{1,10}} )?"
        r"(?:above|before) (?:this|my|the|our)\b",
    ),
    _signal("another role", 1.0, rf"\b{_BECOME}\b[^\n]{{0,120}}?\b{_UNBOUND}", is_order=True),
    _signal("another role", 0.6, rf"\b{_UNBOUND}", is_order=False),
    _signal(
        "addressed to the model",
        1.0,
        rf"\b(?:if you are|attention|dear|note (?:to|for)|message (?:to|for)|instructions? (?:to|for)|hey|any|all)"
        rf",? (?:an? |any |all |the |every )?{_MODEL}\b(?! (?:team|act|office|group|community))[^\n]{{0,80}}?\b{_MUST}\b",
    ),
    _signal(
        "addressed to the model",
        1.0,
        rf"\b{_MODEL} (?:who |that |which )?(?:reading|reads?|processing|process|summari[sz]ing|crawling|indexing"
        rf"|browsing|reviewing|parsing)\b[^\n]{{0,80}}?\b{_MUST}\b",
        is_order=False,
    ),
    _signal(
        "addressed to the model",
        1.0,
        r"\b(?:dear|attention|hey|hello|hi|p\.s\. to the|note to the|message to the)"
        rf",? (?:ai |support |language |coding )?(?:assistants?|models?|agents?|bots?|chatbots?|llms?)[,:][^\n]{{0,80}}?\b{_MUST}\b",
        is_order=False,
    ),
    _signal("addressed to the model", 0.5, rf"\b{_MODEL} (?:must|should|shall) \w"),
    _signal(
        "secrecy",
        0.6,
        r"\b(?:do not|don't|never|without) (?:tell(?:ing)?|mention(?:ing)?|inform(?:ing)?|reveal(?:ing)?"
        r"|notify(?:ing)?|alert(?:ing)?)\b[^.\n]{0,30}\b(?:user|person|reader|human|it|this)\b",
        is_order=False,
    ),
    _signal("exfiltration", 1.0, r"\]\(https?://[^)\s]{0,160}[?&/=](?:\{|<|\[|\$)", is_order=False),
    _signal(
        "exfiltration",
        1.0,
        rf"\b{_SENDS}\b[^.!?\n]{{0,60}}(?:~/\.\w|\.env\b|id_rsa|/etc/passwd)[^\n]{{0,80}}(?:https?://|\w@\w)",
    ),
    _signal(
        "exfiltration", 0.6, rf"\b{_SENDS}\b[^.!?\n]{{0,60}}{_LOOT}[^\n]{{0,80}}(?:https?://|\w@\w)"
    ),
    _signal(
        "commands a tool",
        0.5,
        r"\b(?:call|invoke|use|run|execute) (?:the )?(?:tool |function )?[`'\"]?[a-z]{2,20}_[a-z_]{2,30}",
    ),
    _signal(
        "forged turn",
        0.7,
        r"<\|(?:im_start|im_end|system|user|assistant|eot_id|start_header_id|end_header_id)\|?>|\[/?inst\]"
        r"|<</?sys>>|<(?:start|end)_of_turn>|</(?:tool_result|tool_output|function_results|untrusted)>",
        is_order=False,
    ),
    _signal(
        "forged turn", 0.6, r"</?(?:system|admin|developer)(?:[ _-]\w{1,16})?>", is_order=False
    ),
    _signal(
        "forged turn",
        0.4,
        r"(?m)^[\W_]{0,8}(?:system|developer|admin)(?:[ _]\w{1,12})?[\W_]{0,3}[:\]]",
        is_order=False,
    ),
    _signal(
        "obedience",
        0.5,
        r"\b(?:comply with|obey) (?:every|any|all)\b|\b(?:comply|proceed) without\b|\byou (?:must|will) (?:now )?(?:obey|comply)\b"
        r"|\b(?:safety|content) (?:filters?|rules?|checks?|training|polic\w{1,3}) (?:is|are|was|were|has|have)? ?(?:now )?"
        r"(?:disabled|off|lifted|suspended|void|no longer)",
        is_order=False,
    ),
)
"""All signals, and what each adds."""

NAMES: Final = frozenset(signal.name for signal in SIGNALS)

_SPACES: Final = re.compile(r"[^\S\n]+")
_LINES: Final = re.compile(r" ?\n[ \n]*")
_MAX_HITS: Final = 64
_PASSAGE: Final = 800
"""Characters in which signals are added up: a long text is not suspicious for being long."""
# After these words it is no order to the reader; "you need to ignore" is one.
_REPORTED: Final = re.compile(
    r"(?:\b(?:not|never|don't|cannot|can't|they|we|he|she|it|i|who|that|which|would|could|did|does|might|may|or"
    r"|people|users?|attackers?|models?|bots?|(?<!need )(?<!needs )(?<!want you )(?<!have )(?<!required )to"
    r"|keeps?|when|why|how) |\b(?:told|asked|asks|tells|tricked|tell|ask|get|make|cause)s? (?:\w{1,12} ){1,3}to )\Z"
)
_ABOUT: Final = re.compile(
    r"(?:does|such as|like|e\.g\.,?|for example,?|phrases?|words?|writes?|wrote|says?|said|saying|called|named|titled"
    r"|string|texts?|sentences?|prompts?|inputs?|attacks?|injections?|contain(?:s|ing)?|include(?:s|ing)?)\W{0,3}\Z"
)
_QUOTES: Final = {'"': '"', "\u201c": "\u201d", "\u201e": "\u201c", "\u00ab": "\u00bb", "`": "`"}
_MAX_QUOTE: Final = 160
_MAX_LEAD: Final = 16
"""Characters between a quotation mark and what is quoted."""
_SENTENCE_END: Final = re.compile(r"[.!?:]")


def seen(folded: str) -> dict[str, float]:
    """Return the signals of the passage that has most, and what each adds."""
    hits = sorted(_hits(_LINES.sub("\n", _SPACES.sub(" ", folded))))
    best: dict[str, float] = {}
    first = 0
    for last, (at, _, _) in enumerate(hits):
        while at - hits[first][0] > _PASSAGE:
            first += 1
        passage: dict[str, float] = {}
        for _, name, weight in hits[first : last + 1][-_MAX_HITS:]:
            passage[name] = max(weight, passage.get(name, 0.0))
        if sum(passage.values()) > sum(best.values()):
            best = passage
    return best


def _hits(folded: str) -> Iterator[tuple[int, str, float]]:
    for name, weight, pattern, is_order in SIGNALS:
        for found in pattern.finditer(folded):
            start, end = found.span()
            if is_order and (
                _REPORTED.search(folded, max(0, start - 40), start) or is_quoted(folded, start, end)
            ):
                continue
            yield start, name, weight


def is_quoted(text: str, start: int, end: int) -> bool:
    """Return True if a sentence that speaks of words quotes these.

    A pair of quotation marks around them on their line is not enough, since an attack can bring
    its own: before it stands a word such as "phrase" or "says".
    """
    before = text[max(0, start - _MAX_QUOTE) : start]
    line = before[before.rfind("\n") + 1 :]
    for opening, closing in _QUOTES.items():
        place = line.rfind(opening)
        inside = line[place + 1 :]
        if place < 0 or len(inside) > _MAX_LEAD or _SENTENCE_END.search(inside):
            continue
        after = text[end : end + _MAX_QUOTE].partition("\n")[0]
        if closing in after and _ABOUT.search(line[:place].rstrip()):
            return True
    return False
