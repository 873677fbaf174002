"""Fuzz the grammar of URLs: mutations of the corpus, or whatever atheris finds.

    python tests/fuzz/urls.py [--seconds 60] [--seed N]
    scripts/fuzz urls [-max_total_time=600]         guided by coverage, with atheris

Every URL is read or refused, and nothing else happens. What is read is read as itself
again; urllib and httpx2 see the same host and port in it; and no name is a number to the C library.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from lib.errors import FetchBlocked
from lib.tools.builtin import FetchPolicy
from lib.tools.builtin.fetch.policy import Rules
from lib.tools.builtin.fetch.url import Target, join, parse

CORPUS: Final = Path(__file__).parents[1] / "data" / "builtin" / "ssrf.jsonl"
ODD: Final = (
    *("@", ":", "/", "\\", "//", "?", "#", "%", "%00", "%2e", ".", "..", "[", "]", "::", "::1"),
    *("0x7f", "017", "127.1", "2130706433", "127.0.0.1", "localhost", "xn--", "xn--a", "-", "_"),
    *("\t", "\r\n", "\0", " ", "\x7f", "\x85", "\u200b", "\xad", "\u3002", "\uff0e", "\uff11"),
    *("\u2460", "\u24d0", "\xdf", "\u0130", "\u017f", "\u212a", "\u0661", "\ud800", "\U000e0041"),
    *("http:", "https://", "HTTP://", "file:", "user:pw@", ":80", ":0", ":65536", ":+80", "\uff1a"),
    *("\u2488", "\u3299", "\u1e9e", "\u200d", "\ufeff", "\xe9", "e\u0301", "\U0001f4a9"),
)
BASES: Final = tuple(map(parse, ("https://a.com/b/c?d", "http://[2606:4700::1]:81/")))
RULES: Final = Rules(FetchPolicy())


def check(url: str) -> str:
    """Hold one text as a URL and as a redirect; return what became of it."""
    outcome = "refused"
    try:
        target = parse(url)
    except FetchBlocked:
        pass
    else:
        outcome = "read"
        agrees(url, target)
        is_itself(target)
    for base in BASES:
        try:
            target = join(base, url)
        except FetchBlocked:
            continue
        is_itself(target)
    return outcome


def is_itself(target: Target) -> None:
    """Hold that a target means the same to everybody, and is what it was read from."""
    assert target.url.isascii()
    assert target.url.isprintable()
    assert " " not in target.url
    assert parse(target.url) == target
    parts, sent = urlsplit(target.url), httpx2.URL(target.url)
    default = 443 if target.scheme == "https" else 80
    assert (parts.scheme, parts.hostname) == (target.scheme, target.host)
    assert (sent.scheme, sent.raw_host.decode("ascii")) == (target.scheme, target.host)
    assert (parts.port or default) == (sent.port or default) == target.port
    assert parts.username is parts.password is None
    assert not sent.userinfo
    if target.address is None:
        assert not is_number(target.host)
    is_judged(target)


def is_judged(target: Target) -> None:
    """Hold that no address passes that even `ipaddress` knows to be none of the internet."""
    try:
        RULES.check(target)
    except FetchBlocked:
        return
    address: Any = target.address
    if address is not None:
        assert not any((address.is_loopback, address.is_link_local, address.is_unspecified))
        assert not address.is_multicast


def agrees(url: str, target: Target) -> None:
    """Hold that urllib reads the same host out of the URL, where it is ASCII."""
    host = urlsplit(url).hostname or ""
    if host.isascii() and target.address is None:
        assert host.lower().removesuffix(".") == target.host


def is_number(host: str) -> bool:
    """Tell whether the C library takes a name for an address, as `getaddrinfo` would."""
    try:
        socket.inet_aton(host)
    except OSError:
        return False
    return True


def seeds() -> list[str]:
    """Return the URLs of the corpus."""
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["url"] for line in lines]


def mutated(text: str, others: list[str], dice: random.Random) -> str:
    """Return the text with a few changes."""
    for _ in range(dice.randrange(1, 5)):
        at = dice.randrange(len(text) + 1)
        end = min(len(text), at + dice.randrange(1, 6))
        other = dice.choice(others)
        cut = dice.randrange(len(other) + 1)
        text = dice.choice(
            (
                text[:at] + dice.choice(ODD) + text[at:],
                text[:at] + dice.choice(ODD) + text[end:],
                text[:at] + text[end:],
                text[:at] + other[cut:],
                text[:at] + chr(dice.randrange(0x3_0000)) + text[at:],
                text[:at] + text[at:end] * 2 + text[end:],
            )
        )
    return text


def main(
    *, seconds: float = 60.0, seed: int | None = None, texts: int | None = None
) -> dict[str, int]:
    """Fuzz for a time, or a number of texts; return how many were read and how many refused."""
    first = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    corpus, outcomes, end = seeds(), {"read": 0, "refused": 0}, time.monotonic() + seconds
    while sum(outcomes.values()) != texts and (texts is not None or time.monotonic() < end):
        number = first + sum(outcomes.values())
        dice = random.Random(number)
        text = mutated(dice.choice(corpus), corpus, dice)
        try:
            outcomes[check(text)] += 1
        except BaseException:
            print(f"urls: --seed {number} finds it again: {text!r}")  # noqa: T201 - a program
            raise
    return outcomes


def one(data: bytes) -> None:
    """Check one input of atheris."""
    check(data.decode("utf-8", "surrogateescape"))


def guided() -> None:
    """Let atheris find the texts."""
    atheris: Any = import_module("atheris")
    atheris.instrument_all()
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    if any(argument.startswith("-max_total_time") for argument in sys.argv):
        guided()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()
    print(main(seconds=arguments.seconds, seed=arguments.seed))  # noqa: T201 - a program's output
