"""Random charsets and HTML: only a ToolError may come out, and bounded, clean text.

`scripts/fuzz extraction` lets atheris guide it; `main(seed=, rounds=)` runs it without.
"""

import random
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from lib.content import extract
from lib.content.charset import LABELS
from lib.content.extraction import MAX_CHARS
from lib.content.hygiene import clean
from lib.errors import ToolError

TYPES = (
    *("text/html", "application/json", "application/xml", "application/rss+xml", "text/markdown"),
    *("text/plain", "application/xhtml+xml", "", "application/x+json", "image/png", "\x00/;"),
)
CHARSETS = (
    *LABELS,
    *("punycode", "idna", "hex", "zip", "rot_13", "utf-7", "utf-32", "undefined", "mbcs", "\x00"),
)
NAMES = (
    *("p", "div", "a", "b", "span", "li", "ul", "ol", "table", "tr", "td", "th", "pre", "code"),
    *(
        "h1",
        "h2",
        "blockquote",
        "script",
        "style",
        "title",
        "svg",
        "template",
        "select",
        "dl",
        "dt",
    ),
    *("dd", "br", "hr", "article", "main", "nav", "rss", "item", "feed", "entry", "link", "base"),
    *("textarea", "noscript", "iframe", "dialog", "button", "math", "body", "html", "head", "meta"),
)
ATTRIBUTES = (
    *(" hidden", " aria-hidden=true", " style='display:none'", " class='nav'", " class=article"),
    *(" href='/x'", " href=javascript:x", " href='//['", " start=9", " charset=utf-8", " =", ' "'),
)
PIECES = (
    *(
        "<",
        ">",
        "</",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "<!DOCTYPE [",
        "&amp;",
        "&#x202e;",
        "&#0;",
    ),
    *(
        "&#99999999;",
        "text ",
        "words, and more words, " * 9,
        "\n",
        "{",
        "}",
        "[",
        "]",
        '"',
        ":",
        ",",
    ),
    *("\\u00e9", "```\n", "~~~", "# ", "\u200b", "\U000e0041", "\x1b[31m", "é", "日本", "\ud7ff"),
)
SECRET = "ZQXHIDDENZQX"


def documents(chance: random.Random) -> Iterator[bytes]:
    """Yield documents without end: markup, mutated bytes, and bytes."""
    while True:
        parts: list[str] = []
        for _ in range(chance.randrange(60)):
            name = chance.choice(NAMES)
            attribute = chance.choice(ATTRIBUTES) if chance.random() < 0.3 else ""
            parts.append(
                chance.choice(
                    (f"<{name}{attribute}>", f"</{name}>", f"<{name}/>", chance.choice(PIECES))
                )
            )
        body = bytearray("".join(parts).encode(chance.choice(("utf-8", "utf-16", "utf-8"))))
        for _ in range(chance.randrange(4)):
            if body:
                body[chance.randrange(len(body))] = chance.randrange(256)
        yield bytes(body[: chance.randrange(len(body) + 1)] if chance.random() < 0.2 else body)
        yield chance.randbytes(chance.randrange(200))


def check(body: bytes, content_type: str, charset: str | None) -> None:
    """Read one document and check what every one must keep."""
    try:
        found = extract(
            body, content_type=content_type, charset=charset, url="https://example.org/a/b?c"
        )
    except ToolError as refusal:
        if refusal.code not in {"unsupported", "failed"}:
            raise
        return
    assert len(found.text) <= MAX_CHARS
    assert len(found.text) <= 1_000 + 60 * len(body)
    assert clean(found.text) == found.text
    assert found.charset in {*LABELS.values(), "replacement", "binary"}
    assert found.title is None or (found.title.strip() and "\n" not in found.title)


def check_hidden(body: bytes) -> None:
    """Put a hidden text before a document; it must not come out of it."""
    html = f"<div><p hidden>{SECRET}</p><div style='display:none'>{SECRET}</div></div>".encode()
    found = extract(html + body, content_type="text/html", charset="utf-8", url="https://e.org/")

    assert SECRET not in found.text


def main(*, seed: int | None = None, rounds: int | None = None) -> None:
    """Read random documents, `rounds` of them or until it is stopped."""
    chance = random.Random(seed)
    for number, body in enumerate(documents(chance)):
        if number == rounds:
            return
        content_type = chance.choice(TYPES)
        charset = chance.choice(CHARSETS) if chance.random() < 0.5 else None
        try:
            check(body, content_type, charset)
            check_hidden(body)
        except BaseException:
            sys.stderr.write(f"{content_type!r} {charset!r} {body!r}\n")
            raise


def one(data: bytes) -> None:
    """Check one input of atheris; its first two bytes say how it is read."""
    kind, charset = (*data[:2], 0, 0)[:2]
    check(data[2:], TYPES[kind % len(TYPES)], (None, *CHARSETS)[charset % len(CHARSETS)])
    check_hidden(data[2:])


def guided() -> None:
    """Let atheris find the documents."""
    atheris: Any = import_module("atheris")
    atheris.instrument_all()
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    if any(argument.startswith("-max_total_time") for argument in sys.argv):
        guided()
    main()
