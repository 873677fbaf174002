"""Credentials: keys of vendors by their shape, and values that are called a key or a password.

Some are recognized by their place: markup, blocks, command lines, cookies, connections. There a
value need not look random: "hunter" after `PGPASSWORD=` is a password. A stand-in for one
("your-password", "$DB_PASSWORD", "<token>") is none. Every repetition has a limit, so that the
time is in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import log2
from typing import Final

from lib.privacy.detect.finding import Finding
from lib.privacy.detect.keys import keys

_WORD: Final = r"(?:passw(?:or)?d|passwort|passphrase|pwd)"
_SECRET: Final = (
    rf"(?:{_WORD}|secret|(?<=[a-z._-])token|api[._-]?key|access[._-]?key|private[._-]?key|credential"
    r"|connection[._-]?string)"
)
_NAME: Final = rf"[\w.:-]{{0,60}}?{_SECRET}[\w.-]{{0,20}}"
_QUOTED: Final = r"(?:\"([^\"\n]{1,300})\"|'([^'\n]{1,300})'|([^\s\"'|;&<>,]{1,300}))"
_OPTION: Final = r"[\s=]\s{0,3}"
_LINE: Final = r"(?:[^\n|;&\\]|\\\n|\\.){0,300}?"
"""The rest of a command, which a backslash takes to the next line."""

# In each pattern the group that matches holds the credential.
_PLACES: Final = tuple(
    re.compile(pattern)
    for pattern in (
        # <password>…</password>, <wsse:Password Type="…">…</…>, <![CDATA[…]]>
        (
            rf"(?i)<{_NAME}(?:\s[^<>]{{0,200}})?>\s{{0,8}}(?:<!\[CDATA\[([^\]\n]{{1,500}})\]\]>|([^<>\n]{{2,500}}))"
            r"\s{0,8}</"
        ),
        # <add key="Password" value="…"/>, {"name": "DB_PASSWORD", "value": "…"}, name: …\n value: …
        (
            rf"(?i)\b(?:key|name)[\"']?\s{{0,3}}[:=]\s{{0,3}}[\"']?{_NAME}[\"']?[\s,]{{1,24}}[\"']?value[\"']?\s{{0,3}}[:=]"
            rf"\s{{0,3}}{_QUOTED}"
        ),
        # <entry key="db.password">…</entry>
        rf"(?i)\b(?:key|name)=[\"']{_NAME}[\"'][^<>\n]{{0,100}}>([^<>\n]{{2,300}})</",
        # PGPASSWORD=…, export DB_PASS=…
        r"(?<![\w-])[A-Z][A-Z0-9_]{0,40}(?:PASSWORD|PASSWD|PASSPHRASE|_PASS|_PWD)=" + _QUOTED,
        # --password …, --client-secret=…
        (
            rf"(?i)(?<![\w-])--?(?:[a-z]{{1,12}}-)?(?:{_WORD}|pass|api-?key|client-secret|secret|(?:(?:access|auth|api)-?)?token)"
            + _OPTION
            + _QUOTED
        ),
        r"(?i)(?<![\w-])-pass(?:in|out)?\s{1,3}pass:([^\s\"']{1,200})",
        # mysql -u root -p…, docker login -p …, redis-cli -a …, ldapsearch -w …
        rf"\b(?:mysql|mysqldump|mysqladmin|mariadb|mariadb-dump|sshpass|7za?){_LINE}\s-p\s?{_QUOTED}",
        rf"\b(?:docker|podman|nerdctl|helm|oc|az)\s(?:[\w-]{{1,20}}\s){{0,2}}login\b{_LINE}\s-p\s{_QUOTED}",
        rf"\b(?:mongosh?|mongodump|mongorestore|cqlsh|psexec)\b{_LINE}\s-p\s{_QUOTED}",
        rf"\b(?:mosquitto_(?:pub|sub)|sqlcmd|bcp|zip|unzip){_LINE}\s-P\s?{_QUOTED}",
        rf"\bredis-cli{_LINE}\s-a\s{_QUOTED}",
        rf"\bldap[a-z]{{3,8}}{_LINE}\s-w\s{_QUOTED}",
        rf"\b(?:plink|pscp|putty|psftp){_LINE}\s-pw\s{_QUOTED}",
        rf"\b(?:xfreerdp|wfreerdp){_LINE}\s/p:{_QUOTED}",
        # curl -u user:…, http -a user:…, smbclient -U user%…, sqlplus user/…@db
        rf"\bcurl\b{_LINE}\s(?:-u|--user|-U|--proxy-user){_OPTION}?[\"']?[^\s:\"']{{1,80}}:([^\s\"']{{1,200}})",
        rf"\bhttps?\b{_LINE}\s(?:-a|--auth)[\s=][\"']?[^\s:\"']{{1,80}}:([^\s\"']{{1,200}})",
        rf"\b(?:smbclient|smbmap|rpcclient|mount){_LINE}\s-U\s{{0,2}}[\"']?[^\s%\"']{{1,80}}%([^\s\"']{{1,200}})",
        r"\bsqlplus\s(?:-\w{1,4}\s){0,3}[\w.$#]{1,60}/([^\s@]{1,200})@",
        r"\bnet\s(?:user|use)\s[^\n]{1,80}?\s/user:\S{1,80}\s" + _QUOTED,
        r"(?i)\bConvertTo-SecureString\s(?:-String\s)?" + _QUOTED,
        (
            r"\becho\s(?:-n\s)?[\"']?(?:[\w.-]{1,40}:)?([^\s\"'|]{3,100})[\"']?\s{0,3}\|\s{0,3}"
            r"(?:sudo\s-S|(?:sudo\s)?chpasswd|(?:docker|podman|helm)\s|passwd\s--stdin|kinit|gh\sauth)"
        ),
        # Server=…;Password=…;, Pwd=…;Database=…
        rf"(?i);\s{{0,3}}{_WORD}\s{{0,2}}=\s{{0,2}}([^;\"'\s]{{1,200}})",
        (
            rf"(?i)(?<!\w){_WORD}\s{{0,2}}=\s{{0,2}}([^;\"'\s]{{1,200}})"
            r"(?=;\s{0,3}[\w ]{1,30}=)"
        ),
        # host=… user=… password=…, ?user=…&password=…, jdbc:oracle:thin:user/…@
        (
            r"(?i)(?<!\w)(?:host|hostaddr|user|dbname|port)=\S{1,80}\s(?:\w{1,20}=\S{1,80}\s){0,5}password="
            + _QUOTED
        ),
        rf"(?i)[?&](?:{_WORD}|pass)=([^&\s\"'#<>]{{1,200}})",
        r"(?i)[?&](?:sig|signature|x-amz-signature|x-goog-signature)=([\w%+/=-]{20,700})",
        r"(?i)jdbc:oracle:\w{1,10}:[\w.$#]{1,60}/([^\s@/]{1,200})@",
        # PHPSESSID=…
        (
            r"(?i)(?<![\w-])(?:phpsessid|jsessionid|asp\.net_sessionid|connect\.sid|laravel_session|sessionid"
            r"|session_id|[\w-]{0,20}_session)=([^\s;,\"'&]{8,2000})"
        ),
    )
)
_HEADER: Final = re.compile(
    r"(?i)(?<![\w-])(?:set-)?cookie[\"']?\s{0,3}[:=]\s{0,3}[\"']?([^\n\"']{3,4000})"
)
_COOKIE: Final = re.compile(r"([\w.%-]{1,80})=([^\s;,\"']{6,2000})")
_SESSION: Final = re.compile(
    r"(?i)sess|sid\Z|auth|token|jwt|login|remember|user|key|secret|csrf|xsrf"
)
_LONG_VALUE: Final = 16
_ATTRIBUTES: Final = frozenset(("path", "domain", "expires", "max-age", "samesite", "version"))

# password: |, followed by lines that are further in
_BLOCK: Final = re.compile(
    rf"(?im)^([ \t]{{0,40}})(?:-[ \t]{{1,3}})?[\"']?{_NAME}[\"']?:[ \t]{{1,8}}"
    r"[|>][+-]?\d?[ \t]{0,8}\n"
    r"(?:[ \t]{0,80}\n){0,3}(\1[ \t]{1,20})(?=[^\s])"
)
_BLOCK_LINES: Final = 60

_PLACEHOLDER: Final = re.compile(
    r"(?i)[$%{<\[(@].*|[*x.\u2022_-]+|.*\.\.\..*|.*(?:<[^<>]*>|\{[^{}]*\}).*|\d{1,3}"
    r"|(?:(?:my|your|the|a|new|old|db|database|user|root|admin|some|super|enter|client|access|api"
    r"|auth)[-_ ]?)*"
    r"(?:passw(?:or)?d|passphrase|pass|pwd|secret|token|key|value)s?(?:[-_ ]?here)?"
    r"|null|none|nil|true|false|string|str|text|changeme|change[-_]me|example|redacted|hidden|masked|required"
    r"|optional|undefined|empty|env|prompt|stdin|file|-.*|os\..*|process\..*|secrets?\..*|vault:.*|arn:.*|.*\(.*\)"
)


def placed(text: str) -> Iterator[tuple[int, int]]:
    """Yield where credentials stand by their place."""
    for place in _PLACES:
        for found in place.finditer(text):
            for group in range(1, place.groups + 1):
                if found[group] and not _PLACEHOLDER.fullmatch(found[group].strip()):
                    yield found.span(group)
    yield from _cookies(text)
    yield from _blocks(text)


def _cookies(text: str) -> Iterator[tuple[int, int]]:
    for header in _HEADER.finditer(text):
        for cookie in _COOKIE.finditer(text, *header.span(1)):
            name, value = cookie[1].lower(), cookie[2]
            if name in _ATTRIBUTES or _PLACEHOLDER.fullmatch(value):
                continue
            if _SESSION.search(name) or (
                len(value) >= _LONG_VALUE and any(map(str.isdigit, value))
            ):
                yield cookie.span(2)


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    for found in _BLOCK.finditer(text):
        indent, start = found[2], found.end()
        end = start
        for _ in range(_BLOCK_LINES):
            stop = text.find("\n", end)
            end = len(text) if stop < 0 else stop
            if end == len(text) or not text.startswith(indent, end + 1):
                break
            end += 1
        if not _PLACEHOLDER.fullmatch(text[start:end].strip()):
            yield start, end


_L: Final = r"(?<![A-Za-z0-9])"

# Source: RFC 6750, 2.1; RFC 7617; RFC 9110, 11.6.2.
_SCHEME: Final = re.compile(
    r"(?i)(?<!\w)(?:(?:proxy-)?authorization[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?"
    r"(?:(?:bearer|basic|token|apikey|api-key|digest)[ \t]{1,3})?|bearer[ \t]{1,3})"
    r"([A-Za-z0-9._~+/=-]{8,4000})"
)
_SIGN: Final = r"\\{0,2}[\"']?[ \t]{0,4}(?:=>|:=|[:=]|(?<= )is )[ \t]{0,4}"
# "page_token" is a place in a list.
_NAMED: Final = re.compile(
    r"(?i)(api[_ -]?key|access[_ -]?key|private[_ -]?key|secret[_ -]?key|account[_ -]?key|secret"
    r"|subscription[_ -]?key|passw(?:or)?d|passwort|pwd|passphrase|(?<=[_-])pass|(?<![a-z0-9])pw"
    r"|(?<!page)(?<!page_)token|credentials?|auth[_-]?key|connection[_-]?string)"
    r"(?:[_-]?(?:id|value|base))?" + _SIGN + r"\\{0,2}([\"']?)([^\s\"'`,;<>(){}\[\]\\]{8,500})"
)
# After a word for a password anything counts that is in quotation marks, or looks made up.
_PASSWORD: Final = re.compile(
    r"(?i)(?:passw(?:or)?d|passwort|passphrase|(?<![a-z0-9])(?:pwd?|pass))"
    + _SIGN
    + r"(?:([\"'])((?:\\[^\n]|(?!\1)[^\\\n]){4,200})\1|([^\s\"'`,;<>(){}\[\]\\]{5,200}))"
)
_URL_LOGIN: Final = re.compile(r"(?<=://)[^\s/:@\"'<>\[\]]{0,80}:([^\s/@\"'<>\[\]]{3,200})@")
_STAND_IN: Final = re.compile(r"(?i)pass(?:word|wd)?|pwd?|secret|[$%{].*|[*x.]+|your[_-]?\w*")
# What stands where a password would: a hint, a variable, a type, nothing.
_NO_PASSWORD: Final = re.compile(
    r"(?i)\A\D*(?:passw|passphrase)\D*\Z|\A(?:string|null|none|true|false|text|secret|example|required|optional"
    r"|change ?me|hidden|redacted|(?:enter|type|your|the|please|must|should|choose|at least)\b.*"
    r"|[$%{<\[].*|[*x.\u2022_-]+)\Z"
)
_PARAMETERS: Final = re.compile(r"&[\w.\[\]-]{1,60}=")
_MADE_UP: Final = re.compile(
    r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])|(?=.{8})(?=[^A-Za-z]*[A-Za-z]).*[!#%&*+?@^~$](?=\w)"
)
_SOURCE: Final = re.compile(
    r"(?:os|process|env|environ|settings|config|cfg|conf|self|this|ctx|app|secrets|vault|vars?|local"
    r"|module|data|params?|args|req(?:uest)?|opts|options)(?:\.\w+)+|[a-z][\w-]*(?:/[a-z0-9][\w.-]*)+"
    r"|[$%{].*"
)
_AWS_SECRET: Final = re.compile(r"(?<![A-Za-z0-9/+=])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")
_AWS_ID: Final = re.compile(rf"{_L}(?:AKIA|ASIA)[A-Z2-7]{{16}}")
# Source: RFC 7468 and what OpenSSH and PGP write.
_PEM: Final = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY: Final = re.compile(r"(?:[A-Za-z0-9+/=\s]|\\[nr])*")

_MIN_ENTROPY: Final = 3.0
"""Bits per character, of a value that has a telling name; of words and dates it is lower."""


class SecretDetector:
    """Finds keys, tokens, private keys, and passwords in assignments, headers and URLs."""

    kinds: frozenset[str] = frozenset({"secret"})

    def find(self, text: str) -> Iterator[Finding]:
        """Yield the credentials themselves, without the names before them."""
        for start, end in _spans(text):
            yield Finding("secret", start, end)


def _spans(text: str) -> Iterator[tuple[int, int]]:
    yield from keys(text)
    yield from placed(text)
    for found in _SCHEME.finditer(text):
        if found[0][0] not in "bB" or _is_random(found[1]):
            yield found.span(1)
    for found in _NAMED.finditer(text):
        value = _PARAMETERS.split(found[3], maxsplit=1)[0]
        if _is_random(value) and (
            found[2] or not _is_code(found[3], text[found.end() : found.end() + 1])
        ):
            yield found.start(3), found.start(3) + len(value)
    yield from _passwords(text)
    for found in _URL_LOGIN.finditer(text):
        if not _STAND_IN.fullmatch(found[1]):
            yield found.span(1)
    if _AWS_ID.search(text):  # forty characters alone could be anything
        yield from (f.span() for f in _AWS_SECRET.finditer(text) if _is_random(f[0]))
    yield from _private_keys(text)


def _passwords(text: str) -> Iterator[tuple[int, int]]:
    for found in _PASSWORD.finditer(text):
        quoted, bare = found[2], found[3]
        if quoted is not None:
            if not _NO_PASSWORD.search(quoted):
                yield found.span(2)
        elif _MADE_UP.match(bare) and not _is_code(bare, text[found.end() : found.end() + 1]):
            yield found.start(3), found.start(3) + len(_PARAMETERS.split(bare, maxsplit=1)[0])


def _is_code(value: str, after: str) -> bool:
    """Return True if a value without quotation marks is where a program gets it from."""
    return after in ("(", "[") or _SOURCE.fullmatch(value) is not None


def _private_keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield each key from its first line to its last, or as far as it goes."""
    began: int | None = None
    for mark in _PEM.finditer(text):
        if mark[1] == "END" and began is not None:
            yield began, mark.end()
            began = None
        elif mark[1] == "BEGIN":
            began = mark.start()
            body = _PEM_BODY.match(text, mark.end())
            yield began, mark.end() if body is None else body.end()


def _is_random(value: str) -> bool:
    """Return True if a value looks made by chance: letters and digits, and few of them repeated."""
    head = value[:200]
    if not any(char.isdigit() for char in head) or not any(char.isalpha() for char in head):
        return False
    counts = [head.count(char) for char in set(head)]
    return -sum(n / len(head) * log2(n / len(head)) for n in counts) >= _min_entropy(len(head))


def _min_entropy(length: int) -> float:
    """Return the least entropy; a short value cannot have much, even if all of it differs."""
    return min(_MIN_ENTROPY, 0.85 * log2(length))
