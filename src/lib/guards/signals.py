"""The signals of prompt injection that `InjectionGuard` adds up: each a pattern and a weight. Pure.

No list of words is complete. These are what published attacks have in common, in English and in
part in German, French and Spanish; each repetition has a limit, so that the time is linear.

Sources: Perez and Ribeiro, "Ignore Previous Prompt" (2022), arXiv:2211.09527; Greshake et al.,
"Not what you've signed up for" (2023), arXiv:2302.12173; OWASP Top 10 for LLM Applications (2025),
LLM01; Rehberger, "ASCII Smuggler" (2024), on tag characters.
"""

# ruff: noqa: E501 - alternatives of a pattern read best on one line
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
_DETERMINERS: Final = (
    rf"(?:(?:all|any|every|each|of|the|these|those|your|ur|my|our|its|and|other){_S}){{0,4}}"
)
_OLD: Final = (
    r"(?:previous|prior|above|earlier|preceding|former|foregoing|existing|original|initial|current"
    r"|safety|system|developer)"
)
_RULES: Final = (
    r"(?:instruct\w{0,6}|prompts?|rules?|directi(?:ons?|ves?)|guidelines?|commands?|orders|context"
    r"|messages?|constraints?|polic(?:y|ies)|training|programming|restrictions?)"
)
_OLD_RULES: Final = (
    rf"{_DETERMINERS}(?:(?:{_OLD}{_S}(?:(?:and|or){_S})?){{1,2}}(?:\w{{1,16}}{_S})?{_RULES}"
    rf"|{_RULES}{_S}(?:that{_S}|from{_S})?(?:above|before|earlier|so far|given|you))\b"
)
_AI: Final = (
    r"(?:a\.?i\.?|llms?|language model|assistants?|chat ?bots?|agents?|models?|gpt|claude|gemini"
    r"|copilot)"
)
_MODEL: Final = (
    r"(?:a\.?i\.?|llm|language model|assistant|chat ?bot|model|gpt|claude|gemini|copilot)"
)
_VALUABLES: Final = (
    r"(?:api[ _-]?keys?|passwords?|credentials?|secrets?|tokens?|ssh[ _-]?keys?|private keys?"
    r"|env(?:ironment)? variables?|\.env|cookies?|chat (?:history|log)|conversation(?: history)?"
    r"|message history|messages|emails?|contacts?|customer (?:data|records|list)"
    r"|user(?:'s)? (?:data|details|information)|personal (?:data|information)|database"
    r"|system prompt)"
)
_SEND: Final = (
    r"(?:send|forward|post|upload|e-?mail|transmit|submit|exfiltrate|leak|copy|deliver|append"
    r"|include|encode)"
)
_TARGET: Final = (
    r"(?:https?://|\w@\w|\b(?:url|link|webhook|server|attacker|address|endpoint|image)\b)"
)
_NOT_TELL: Final = (
    r"(?:tell(?:ing)?|mention(?:ing)?|inform(?:ing)?|reveal(?:ing)?|disclos(?:e|ing)"
    r"|alert(?:ing)?|notify(?:ing)?|show(?:ing)?|let(?:ting)?|ask(?:ing)?)"
)
_SOMEBODY: Final = r"(?:user|human|anyone|anybody|operator|person|customer|owner)"

SIGNALS: Final[tuple[Signal, ...]] = (
    _signal(
        "override",
        1.0,
        r"\b(?:ignore|disregard|forget|override|bypass|discard|neglect|overrule|drop)"
        rf"{_S}{_OLD_RULES}",
        rf"\b(?:ignore|disregard|forget){_S}(?:everything|all|anything|what(?:ever)?)"
        rf"(?:{_S}(?:that{_S}|of{_S}that{_S})?(?:you|is|was|came|has|have|been|were|said|told"
        rf"|above|before|written|up|to)){{2,6}}\b",
        r"\b(?:do not|don't|stop|no longer|need not) (?:follow|obey|adhere to|comply with|listen to)"
        rf"(?:ing)?{_S}{_OLD_RULES}",
        rf"\b(?:ignoriere|vergiss|missachte)n?{_S}(?:(?:sie|bitte|alle|alles|die|deine|ihre){_S})"
        r"{0,4}(?:vorherigen|bisherigen|obigen|vorigen|fr\xfcheren|was dir)\b",
        rf"\b(?:ignore[zr]?|oublie[zr]?){_S}(?:(?:toutes|les|vos|tes){_S}){{0,2}}"
        rf"(?:instructions|consignes|r\xe8gles){_S}(?:pr\xe9c\xe9dentes|ci-dessus|ant\xe9rieures)",
        rf"\b(?:ignor|olvid)[ae]{_S}(?:(?:todas|las|tus|sus){_S}){{0,2}}"
        rf"(?:instrucciones|reglas|\xf3rdenes){_S}(?:anteriores|previas)",
        mentioned=0.3,
    ),
    _signal(
        "sets rules aside",
        0.7,
        rf"\b(?:ignore|disregard|forget|drop|abandon|break){_S}{_DETERMINERS}"
        rf"(?:\w{{1,12}}{_S})?(?:rules|instructions|guidelines|programming|training|polic(?:y|ies))\b",
        r"\b(?:you are|you're) (?:no longer|not) (?:bound|limited|restricted|constrained)\b",
        r"\b(?:prompts?|rules|guardrails|restrictions|filters|limits|safeguards|policies)"
        r" (?:no longer appl(?:y|ies)|(?:are|were|have been|is|has been) (?:now )?"
        r"(?:disabled|lifted|removed|suspended|revoked|void))",
        r"\breplaces (?:all )?(?:of )?your (?:\w{1,12} )?(?:rules|instructions|prompt|guidelines)\b",
        r"\b(?:set aside|put aside|throw (?:out|away)|pay no (?:attention|heed) to|erase|wipe|clear"
        r"|reset|scrap|void|abandon|let go of)\b[^.\n]{0,30}\b(?:your (?:\w{1,12} )?(?:memory|rules"
        r"|instructions|guidelines|guidance|context|prompt|training|constraints)"
        r"|(?:guidance|guidelines|instructions|rules|prompt|directions|brief(?:ing)?)[^.\n]{0,20}"
        r"\byou (?:got|received|had|have|were|started))",
        r"\b(?:take|has|have|takes) (?:precedence|priority) over (?:all|any|every|your|the (?:system|other))",
        r"\b(?:beachte|befolge|folge)n?\b[^.\n]{0,40}\b(?:regeln|anweisungen|vorgaben)\b[^.\n]{0,16}"
        r"\bnicht (?:mehr|weiter)\b",
        r"\bignores? (?:every|all|any) (?:rules?|restrictions?|guidelines?|polic(?:y|ies)|limits?)\b",
        mentioned=0.2,
    ),
    _signal(
        "claims authority",
        0.6,
        r"\bhereby (?:authori[sz]ed?|permitted?|granted?|instructed?|allowed?)\b",
        r"\b(?:confirmation|consent|approval|permission|authori[sz]ation) (?:has|have|was|is) (?:already"
        r" )?(?:been )?(?:given|granted|obtained|confirmed)",
        r"\bthe (?:user|owner|admin\w{0,12}|customer) (?:has )?(?:already )?(?:agreed|consented|approved"
        r"|granted|authori[sz]ed|confirmed)\b",
        r"\b(?:from|by|as|i am|this is) your (?:developers?|creators?|operators?|admin\w{0,12}|makers?)\b",
        mentioned=0.2,
    ),
    _signal(
        "new instructions",
        0.6,
        r"^[\W_]{0,6}(?:new|updated|revised|real|actual|additional|important|hidden|secret|urgent)"
        rf"{_S}(?:\w{{1,12}}{_S})?(?:instructions?|directives?|orders|task|objective|goal|prompt)"
        r"\s{0,3}(?:[:=]|from\b)",
        r"\b(?:your|the) (?:new|real|actual|true) (?:instructions?|task|goal|objective|purpose|role)"
        r" (?:is|are)\b",
        r"\bnew (?:instructions?|task|goal|objective|role)\s{0,2}:",
        r"\binstead,? (?:you (?:must|should|will|are to)|of (?:answering|summari[sz]ing|helping))\b",
        r"\bwhen (?:you )?(?:(?:are )?asked|summari[sz](?:e|ing)|answer(?:ing)?|review(?:ing)?)"
        r"[^.\n]{0,40}\b(?:always|say|append|include|recommend|claim)\b",
    ),
    _signal(
        "addressed to the model",
        0.6,
        rf"\b(?:hello|hi|greetings|to|for|reminder for) (?:(?:any|every|all|whichever|whatever) )?"
        rf"(?:chatgpt|{_MODEL})s?\b[^.\n]{{0,12}}(?:\b(?:that (?:is|are) )?(?:reading|processing|scanning"
        rf"|summari[sz]ing|reviewing|handling|parsing)\b|!)",
        r"\bif you(?:'re| are) (?:an? |the )?(?:\w{1,16} ){0,2}(?:a\.?i\.?|llm|language model|chat ?bot)\b",
        r"\b(?:attention|dear|note (?:to|for)|message (?:to|for)|instructions? (?:to|for)|hey"
        rf"|p\.?s\.? to|reminder to){_S}(?:(?:the|any|all|every|you|an?|reading|processing){_S})"
        rf"{{0,3}}{_AI}\b",
        rf"\bif you are (?:an? |the )?(?:\w{{1,16}} ){{0,2}}{_MODEL}\b",
        r"\b(?:all |any |every )?(?:ai|llm|language model|chatbot)s?(?: (?:agent|assistant|model)s?)?"
        r"[^.\n]{0,40}\b(?:must|should|shall|needs? to|has to|have to)\b",
        rf"^[\W_]{{0,8}}{_AI}s?\s?[,:] (?:please|proceed|you|now|ignore|when|do not|never|always)\b",
        r"[.!?] (?:assistant|ai|llm|chatbot), (?:please|proceed|you|now|ignore|do not)\b",
    ),
    _signal(
        "another role",
        0.6,
        r"\b(?:you are now|you will now (?:be|act)|you must now (?:be|act)|act as if you"
        r"|pretend (?:to be an?|that you are|you are)|your new role)\b",
        r"\b(?:developer|debug|god|admin(?:istrator)?|maintenance|unrestricted|jailbreak) mode"
        r" (?:is |has been )?(?:on|enabled|activated|engaged|now)\b|\bin (?:developer|god|dan) mode\b",
        r"\bwho can (?:say|do) anything\b|\b(?:do anything now|you are dan|no (?:restrictions|filters|limits|rules)"
        r" (?:apply|whatsoever|anymore)|without (?:any )?(?:restrictions|filters|censorship))",
        mentioned=0.2,
    ),
    _signal("from now on", 0.4, r"\bfrom now on,? you\b", r"\brole-?play as\b", r"\bact as an?\b"),
    _signal(
        "forged turn",
        0.8,
        r"<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id)\|?>?",
        r"\[/?INST\]|<</?SYS>>|</?(?:system|assistant|tool_result|tool_output|function_results"
        r"|untrusted|system_prompt|developer)(?:[ _-]\w{1,16})?>",
        r"^[\W_]{0,6}(?:system|developer|admin(?:istrator)?) ?(?:prompt|message|override|note|notice"
        r"|alert|update)?\s{0,3}[:\]]\s{0,3}(?:you|the (?:user|previous|above)|new|ignore|all|from)\b",
        r"^[\W_]{0,6}(?:begin|end|start) (?:of )?(?:the )?(?:document|tool|file|page|web ?page|search"
        r"|output|context|user|data|email|admin|system)\b[^\n:]{0,20}[-=\]>#]{1,6}\s{0,3}$",
        mentioned=0.3,
    ),
    _signal(
        "secrecy",
        0.6,
        rf"\b(?:do not|don't|never|without) {_NOT_TELL}[^.\n]{{0,30}}\b{_SOMEBODY}\b",
        r"\b(?:hide|conceal|keep) this[^.\n]{0,30}\b(?:from|secret)\b",
        rf"\bhidden from the {_SOMEBODY}\b|\bthe {_SOMEBODY} (?:must|should|need) not (?:know|see)\b",
        r"\b(?:do not|don't|never) (?:mention|reveal|disclose|acknowledge|refer to|repeat)"
        r" (?:this|these|the) (?:\w{1,12} )?(?:instructions?|message|note|text|prompt|comment)",
    ),
    _signal(
        "asks for the prompt",
        0.7,
        r"\b(?:reveal|print|show|repeat|output|display|tell me|give me|share|recite|reproduce|dump"
        r"|leak|disclose|write (?:out|down)|what (?:is|are|were))[^.\n]{0,30}\b(?:your|the)"
        r" (?:(?:full|entire|exact|complete|original|initial|hidden|secret|system|developer|above) )"
        r"{1,3}(?:prompt|instructions?|message|rules|configuration)",
        r"\b(?:reveal|print|show|repeat|output|display|recite|leak|dump|disclose|tell me|give me)\b"
        r"[^.\n]{0,40}\byour (?:\w{1,12} ){0,2}(?:prompt|instructions)\b",
        r"\b(?:contents? of your context|your context window|how you were configured"
        r"|text you were given)\b",
        r"\bsystem-?prompt aus\b|\bvotre message syst\xe8me\b",
        mentioned=0.2,
    ),
    _signal(
        "asks for your prompt",
        1.0,
        r"\b(?:reveal|print|show|repeat|output|display|recite|leak|dump|disclose|tell me|give me|write"
        r" (?:out|down))\b[^.\n]{0,40}\byour (?:(?:full|entire|exact|complete|system|secret) ){0,2}"
        r"(?:prompt|(?:initial|original|hidden|secret|system) (?:instructions|message|rules))\b",
        mentioned=0.2,
    ),
    _signal(
        "asks for secrets",
        0.5,
        r"\b(?:reveal|list|print|dump|output|show|tell me|give me|leak|disclose|paste)\b[^.\n]{0,40}"
        r"\b(?:stored|all|every|their|its|your|the)\b[^.\n]{0,20}"
        r"\b(?:credentials|passwords|secrets|api keys|access tokens|private keys)\b",
    ),
    _signal(
        "asks for all above",
        0.5,
        r"\b(?:repeat|print|output) (?:everything|all|the (?:text|words)) (?:above|before)\b",
        r"\bverbatim\b|\bword for word\b",
    ),
    _signal(
        "exfiltration",
        0.7,
        rf"\b{_SEND}\b[^.\n]{{0,60}}\b{_VALUABLES}\b[^\n]{{0,60}}\b(?:to|at|in|into|as)\b"
        rf"[^\n]{{0,30}}{_TARGET}",
        r"\b(?:post|send|upload) (?:them|it|everything|this) to https?://",
        r"!\[[^\]\n]{0,80}\]\(https?://[^)\s]{0,200}[?&/=](?:[^)\s]{0,40}=)?[{<\[$%][^)\n]{0,80}\)",
    ),
    _signal(
        "commands a tool",
        0.5,
        r"\b(?:call|use|invoke|execute|run|trigger)\b (?:the |your )?[`\"']?\w{2,40}[`\"']?"
        r" (?:tool|function|plugin|api)\b[^.\n]{0,40}\b(?:with|to|and|immediately|now|for)\b",
        r"\b(?:transfer|wire|pay|delete|remove|drop|refund|approve|purchase|buy|grant|share|disable)"
        r"\b[^.\n]{0,60}\b(?:immediately|right now|without (?:asking|confirm\w{0,6}|approval"
        r"|informing))",
        r"\brm -rf\b|\b(?:call|use|invoke|run) (?:the |your )?[`\"'][\w.-]{2,40}[`\"'] (?:tool|function)\b",
        r"\b(?:give|offer|grant|hand|send)\b[^.\n]{0,30}\b(?:100 ?%|full|free)\b[^.\n]{0,20}\b(?:discount"
        r"|refund|access|credit)",
        r"\bskip the (?:confirmation|approval)\b|\bcurl [^\n|]{0,120}\| ?(?:ba|z)?sh\b",
    ),
    _signal(
        "dictates the answer",
        0.4,
        r"\b(?:respond|reply|answer|say|output|print|write)"
        r" (?:only |just |simply |nothing but )?(?:with|by saying|exactly|only)\b",
        r"\b(?:add|include|insert|append|put|mention)\b[^.\n]{0,60}\b(?:every|each|all(?: of)? your)"
        r" (?:sentence|answer|reply|replies|response|message)s?\b",
        r"\b(?:start|begin) your (?:answer|reply|response) with\b|\bnever refuse\b",
        r"\byou (?:must|should|will|have to|need to|are (?:required|instructed|to))"
        r" (?:now|also|always|instead|only|immediately) \w{2,16}\b",
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
