"""The signals of prompt injection that `InjectionGuard` adds up: each a pattern and a weight. Pure.

No list of words is complete. These are what published attacks have in common, in English and in
part in German, French and Spanish; each repetition has a limit, so that the time is linear.

Sources: Perez and Ribeiro, "Ignore Previous Prompt" (2022), arXiv:2211.09527; Greshake et al., "Not
what you've signed up for" (2023), arXiv:2302.12173; OWASP Top 10 for LLM Applications (2025), LLM01;
Rehberger, "ASCII Smuggler" (2024), on tag characters.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Signal(NamedTuple):
    """One thing that injections do and ordinary texts rarely do.

    Attributes:
        weight: what it adds, once, however often it occurs; 1.0 is enough by default.
        mentioned: what it adds where it stands in quotation marks or after "like" or "such as":
            texts about injections quote them.
    """

    name: str
    weight: float
    mentioned: float
    pattern: re.Pattern[str]


def _signal(name: str, weight: float, *patterns: str, mentioned: float = 0.0) -> Signal:
    return Signal(
        name, weight, mentioned, re.compile("(?im)" + "|".join(f"(?:{p})" for p in patterns))
    )


_S: Final = r"[\s,;:*_-]{1,4}"
_OLD: Final = rf"(?:(?:all|any|every|each|of|the|these|those|your|my|our|its|and|other){_S}){{0,4}}(?:(?:previous|prior|above|earlier|preceding|former|foregoing|existing|original|initial|current|safety|system|developer){_S}(?:and{_S}|or{_S})?){{1,2}}(?:\w{{1,16}}{_S}){{0,1}}"  # noqa: E501 - one expression
_RULES: Final = r"(?:instruct\w{0,6}|prompts?|rules?|directi(?:ons?|ves?)|guidelines?|commands?|orders|context|messages?|constraints?|polic(?:y|ies)|training|programming|restrictions?)"  # noqa: E501 - a list of words
_AI: Final = r"(?:a\.?i\.?|llms?|language model|assistants?|chat ?bots?|agents?|models?|gpt|claude|gemini|copilot)"  # noqa: E501 - a list of words
_SECRET: Final = r"(?:api[ _-]?keys?|passwords?|credentials?|secrets?|tokens?|ssh[ _-]?keys?|private keys?|env(?:ironment)? variables?|\.env|cookies?|chat (?:history|log)|conversation(?: history)?|message history|emails?|contacts?|customer (?:data|records|list)|user(?:'s)? (?:data|details|information)|personal (?:data|information)|database|system prompt)"  # noqa: E501 - a list of words

SIGNALS: Final[tuple[Signal, ...]] = (
    _signal(
        "override",
        1.0,
        rf"\b(?:ignore|disregard|forget|override|bypass|discard|neglect|overrule|drop){_S}{_OLD}{_RULES}\b",
        rf"\b(?:ignore|disregard|forget){_S}(?:everything|all|anything|what(?:ever)?)"
        rf"(?:{_S}(?:that{_S}|of{_S}that{_S})?(?:you|i|we|they|is|was|came|has|have|been|were|said|told|learned|above|before|written|up|to)){{1,6}}\b",
        rf"\b(?:do not|don't|stop|no longer|need not) (?:follow|obey|adhere to|comply with|listen to)"
        rf"{_S}(?:ing )?{_OLD}{_RULES}\b",
        rf"\b(?:ignoriere|vergiss|missachte)n?{_S}(?:sie{_S})?(?:bitte{_S})?(?:alle{_S}|die{_S}|deine{_S}|ihre{_S})"
        r"{0,2}(?:vorherigen|bisherigen|obigen|vorigen|fr\xfcheren)\b",
        rf"\b(?:ignore[zr]?|oublie[zr]?){_S}(?:toutes{_S})?(?:les{_S}|vos{_S}|tes{_S})?"
        rf"(?:instructions|consignes|r\xe8gles){_S}(?:pr\xe9c\xe9dentes|ci-dessus|ant\xe9rieures)",
        rf"\b(?:ignora|olvida|ignore|olvide){_S}(?:todas{_S})?(?:las{_S}|tus{_S}|sus{_S})?"
        rf"(?:instrucciones|reglas|\xf3rdenes){_S}(?:anteriores|previas)",
        mentioned=0.3,
    ),
    _signal(
        "new instructions",
        0.6,
        rf"^[\W_]{{0,6}}(?:new|updated|revised|real|actual|additional|important|hidden|secret|urgent)"
        rf"{_S}(?:\w{{1,12}}{_S})?(?:instructions?|directives?|orders|task|objective|goal|prompt)\s{{0,3}}(?:[:=]|from\b|for\b)",
        r"\byour (?:new|real|actual|true) (?:instructions?|task|goal|objective|purpose|role) (?:is|are)\b",
        r"\binstead,? (?:you (?:must|should|will|are to)|of (?:answering|summari[sz]ing|helping))\b",
    ),
    _signal(
        "addressed to the model",
        0.5,
        rf"\b(?:attention|dear|note (?:to|for)|message (?:to|for)|instructions? (?:to|for)|hey|reminder to)"
        rf"{_S}(?:(?:the|any|all|every|you|an?|reading|processing){_S}){{0,3}}{_AI}\b",
        rf"\bif you are (?:an? |the )?(?:\w{{1,16}} ){{0,2}}{_AI}\b",
        rf"\b{_AI}{_S}(?:(?:who|that|which)? ?(?:is|are)? ?(?:reading|processing|summari[sz]ing|reviewing)"
        rf"[^.\n]{{0,40}})?(?:must|should|shall|needs? to|has to|have to){_S}(?:now|always|first|immediately|instead|also)?\b",
    ),
    _signal(
        "another role",
        0.6,
        r"\b(?:you are now|from now on,? you(?:'re| are| will| must)|you will now (?:be|act)|"
        r"you must now|act as if you|pretend (?:to be|that you|you)|switch (?:in)?to)\b",
        r"\b(?:developer|debug|god|admin(?:istrator)?|maintenance|unrestricted|jailbreak) mode"
        r"(?: (?:is )?(?:on|enabled|activated|engaged|now))?\b",
        r"\b(?:do anything now|\bDAN\b (?:mode|has)|no (?:restrictions|filters|limits|rules)"
        r" (?:apply|whatsoever|anymore)|without (?:any )?(?:restrictions|filters|censorship|ethical))",
        mentioned=0.2,
    ),
    _signal(
        "forged turn",
        0.8,
        r"<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id)\|?>?",
        r"\[/?INST\]|<</?SYS>>|</?(?:system|assistant|tool_result|tool_output|function_results|untrusted"
        r"|instructions|system_prompt|developer)(?:[ _-]\w{1,16})?>",
        r"^[\W_]{0,6}(?:system|assistant|developer|admin(?:istrator)?) ?(?:prompt|message|override|note|notice|alert|update)?\s{0,3}[:\]]\s{0,3}(?=\S)(?!\s{0,2}(?:ok|up|online|healthy)\b)",  # noqa: E501 - one alternative
        r"^[\W_]{0,6}end of (?:the )?(?:document|tool|file|page|web ?page|search|output|context|user|data|email)\b[^\n]{0,20}[-=\]>#]{1,4}\s{0,3}$",  # noqa: E501 - one alternative
        mentioned=0.3,
    ),
    _signal(
        "secrecy",
        0.6,
        r"\b(?:do not|don't|never|without) (?:tell(?:ing)?|mention(?:ing)?|inform(?:ing)?|reveal(?:ing)?|"
        r"disclos(?:e|ing)|alert(?:ing)?|notify(?:ing)?|show(?:ing)?|let(?:ting)?|ask(?:ing)?)"
        r"[^.\n]{0,30}\b(?:user|human|anyone|anybody|operator|person|customer|owner)\b",
        r"\b(?:hide|conceal|keep) this[^.\n]{0,30}\b(?:from|secret)\b",
        r"\b(?:do not|don't|never) (?:mention|reveal|disclose|acknowledge|refer to|repeat) (?:this|these|the)"
        r" (?:\w{1,12} )?(?:instructions?|message|note|text|prompt|comment)",
    ),
    _signal(
        "asks for the prompt",
        0.7,
        r"\b(?:reveal|print|show|repeat|output|display|tell me|give me|share|recite|reproduce|dump|leak|"
        r"disclose|write (?:out|down)|what (?:is|are|were))[^.\n]{0,30}\b(?:your|the)"
        r" (?:(?:full|entire|exact|complete|original|initial|hidden|secret|system|developer|above) ){1,3}"
        r"(?:prompt|instructions?|message|rules|configuration)",
        r"\b(?:repeat|print|output) (?:everything|all|the (?:text|words)) (?:above|before)\b",
        mentioned=0.2,
    ),
    _signal(
        "exfiltration",
        0.7,
        rf"\b(?:send|forward|post|upload|e-?mail|transmit|submit|exfiltrate|leak|copy|deliver|append|include|"
        rf"encode)\b[^.\n]{{0,60}}\b{_SECRET}\b[^\n]{{0,60}}(?:\bto\b|\bat\b|\bin\b|\binto\b|\bas\b)[^\n]{{0,30}}"
        r"(?:https?://|\w@\w|\b(?:url|link|webhook|server|attacker|address|endpoint|image)\b)",
        r"!\[[^\]\n]{0,80}\]\(https?://[^)\s]{0,200}[?&/=](?:[^)\s]{0,40}=)?[{<\[$%][^)\n]{0,80}\)",
    ),
    _signal(
        "commands a tool",
        0.5,
        r"\b(?:call|use|invoke|execute|run|trigger)\b (?:the |your )?[`\"']?\w{2,40}[`\"']? (?:tool|function|plugin|api)\b[^.\n]{0,40}"  # noqa: E501 - one alternative
        r"\b(?:with|to|and|immediately|now|for)\b",
        r"\b(?:transfer|wire|pay|delete|remove|drop|refund|approve|purchase|buy|grant|share|disable)\b"
        r"[^.\n]{0,60}\b(?:immediately|right now|without (?:asking|confirm\w{0,6}|approval))",
    ),
    _signal(
        "dictates the answer",
        0.4,
        r"\b(?:respond|reply|answer|say|output|print|write|start your (?:answer|reply|response))"
        r" (?:only |just |exactly |simply |nothing but )?(?:with|by saying|exactly|only)\b",
        r"\byou (?:must|should|will|have to|need to|are (?:required|instructed|to)) (?:now |always |instead |only |immediately )"
        r"(?:\w{2,16})\b",
    ),
)

_QUOTES: Final = frozenset("\"'`\u201c\u201d\u2018\u201e\u00ab\u00bb\u2039\u203a*")
_INTRODUCED: Final = re.compile(
    r"(?i)(?:such as|like|e\.g\.,?|for example,?|for instance,?|phrases?|words?|says?|said|saying|called"
    r"|named|titled|string|prompts?|asks? (?:it|them|the model) to|telling (?:it|them|the model) to)"
    r"[\s:,(\u2014-]{0,3}$"
)


def is_mentioned(text: str, start: int) -> bool:
    """Tell whether what begins here is quoted rather than said."""
    before = text[max(0, start - 40) : start]
    return before.rstrip(" ")[-1:] in _QUOTES or _INTRODUCED.search(before) is not None
