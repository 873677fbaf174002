"""Credentials recognized by their place: markup, blocks, command lines, cookies, connections.

In such a place a value need not look random: "hunter" after `PGPASSWORD=` is a password. A
stand-in for one ("your-password", "$DB_PASSWORD", "<token>") is none. Every repetition has a
limit, so that the time is in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

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

_STAND_IN: Final = re.compile(
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
                if found[group] and not _STAND_IN.fullmatch(found[group].strip()):
                    yield found.span(group)
    yield from _cookies(text)
    yield from _blocks(text)


def _cookies(text: str) -> Iterator[tuple[int, int]]:
    for header in _HEADER.finditer(text):
        for cookie in _COOKIE.finditer(text, *header.span(1)):
            name, value = cookie[1].lower(), cookie[2]
            if name in _ATTRIBUTES or _STAND_IN.fullmatch(value):
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
        if not _STAND_IN.fullmatch(text[start:end].strip()):
            yield start, end
