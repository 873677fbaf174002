"""Text from HTML: how good, how fast, and how long for the worst pages, beside peers.

`scripts/bench extraction --pages DIR` scores the pages of a folder in the layout of the article
extraction benchmark of Scrapinghub (`ground-truth.json`, `html/ID.html.gz`), with its scorer: runs
of four words, precision and recall averaged over pages. The targets of Markdown links are left out
before, for everybody. Without `--pages` only the worst pages are timed: 1 MB each, in CPU seconds,
each in a process of its own that is ended after 10 s.
"""

import argparse
import gzip
import json
import multiprocessing
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

URL = "https://example.org/a/b"
LIMIT_S = 10.0
MEGABYTE = 1_000_000
TARGET = re.compile(r"\]\(https?://[^()\s]*\)")
WORDS = re.compile(r"\w+").findall


def lib(page: bytes, url: str) -> str:
    from lib.content import extract

    return extract(page, content_type="text/html", charset="utf-8", url=url).text


def lib_trafilatura(page: bytes, url: str) -> str:
    from lib.content import extract

    return extract(
        page, content_type="text/html", charset="utf-8", url=url, main_content="trafilatura"
    ).text


def trafilatura(page: bytes, url: str) -> str:
    import trafilatura as peer

    return peer.extract(page.decode("utf-8", "replace"), url=url) or ""


def trafilatura_markdown(page: bytes, url: str) -> str:
    import trafilatura as peer

    source = page.decode("utf-8", "replace")
    found = peer.extract(source, url=url, fast=True, output_format="markdown", include_links=True)
    return found or ""


def readability(page: bytes, url: str) -> str:
    import lxml.html
    from readability import Document

    summary = Document(page.decode("utf-8", "replace"), url=url).summary()
    return str(lxml.html.fromstring(summary).text_content())


def markdownify(page: bytes, url: str) -> str:
    import markdownify as peer

    return str(peer.markdownify(page.decode("utf-8", "replace")))


EXTRACTORS: dict[str, Callable[[bytes, str], str]] = {
    "lib": lib,
    "lib + trafilatura": lib_trafilatura,
    "trafilatura": trafilatura,
    "trafilatura markdown": trafilatura_markdown,
    "readability-lxml": readability,
    "markdownify": markdownify,
}

WORST = {
    "<": "<",
    "spaces": " ",
    "<div>": "<div>",
    "<p>x</p>": "<p>x</p>",
    "<li>x</li>": "<li>x</li>",
    "<h1>x": "<h1>x",
    "<td>": "<td>",
    "<pre>x": "<pre>x",
    "<a href=x>x</a>": "<a href=x>x</a>",
    "<p a>": "<p a>",
    "<div class=x>y": "<div class=x>y",
    "<blockquote>": "<blockquote><p>x",
    "&#1;": "&#1;",
}


def worst_page(piece: str) -> bytes:
    return (piece * (MEGABYTE // len(piece))).encode()


def runs(text: str) -> Counter[tuple[str, ...]]:
    words = WORDS(text)
    return Counter(tuple(words[at : at + 4]) for at in range(max(1, len(words) - 3)) if words)


def agreement(true: str, found: str) -> tuple[float, float]:
    """Return precision and recall of one page."""
    wanted, got = runs(true), runs(found)
    common = sum((wanted & got).values())
    if not wanted and not got:
        return 1.0, 1.0
    return common / max(got.total(), 1), common / max(wanted.total(), 1)


def score(name: str, pages: Path) -> str:
    truth = json.loads((pages / "ground-truth.json").read_text(encoding="utf-8"))
    extractor = EXTRACTORS[name]
    precision: list[float] = []
    recall: list[float] = []
    chars, spent = 0, 0.0
    for key, value in truth.items():
        page = gzip.decompress((pages / "html" / f"{key}.html.gz").read_bytes())
        started = time.process_time()
        try:
            found = extractor(page, value.get("url", URL))
        except Exception:  # noqa: BLE001 - whatever a peer raises
            found = ""
        spent += time.process_time() - started
        chars += len(found)
        p, r = agreement(value.get("articleBody", ""), TARGET.sub("]", found))
        precision += [p] if found else []
        recall.append(r)
    p, r = statistics.mean(precision), statistics.mean(recall)
    return (
        f"{name:<22} {2 * p * r / (p + r):.3f}  {p:.3f}  {r:.3f}"
        f" {1_000 * spent / len(truth):8.1f} {chars // len(truth):9,}"
    )


def timed(name: str, piece: str, queue: "multiprocessing.Queue[str]") -> None:
    page = worst_page(piece)
    EXTRACTORS[name](b"<p>warm</p>", URL)
    started = time.process_time()
    try:
        EXTRACTORS[name](page, URL)
    except Exception as failure:  # noqa: BLE001 - whatever a peer raises
        queue.put(type(failure).__name__[:9])
        return
    queue.put(f"{time.process_time() - started:.2f}")


def worst(name: str, piece: str) -> str:
    context = multiprocessing.get_context("spawn")
    queue: multiprocessing.Queue[str] = context.Queue()
    process = context.Process(target=timed, args=(name, piece, queue))
    process.start()
    process.join(LIMIT_S + 5)
    if process.is_alive():
        process.kill()
        process.join()
        return f">{LIMIT_S:.0f}"
    return queue.get(timeout=1) if process.exitcode == 0 else f"exit {process.exitcode}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=Path, help="a folder with ground-truth.json and html/")
    parser.add_argument("--only", choices=[*EXTRACTORS], action="append")
    arguments = parser.parse_args()
    names = arguments.only or [*EXTRACTORS]
    if arguments.pages:
        print(f"{'':<22} F1     P      R      ms/page chars/page")
        for name in names:
            print(score(name, arguments.pages), flush=True)
        print()
    print(f"{'1 MB of (CPU s)':<18}", *(f"{name:>21}" for name in names))
    for label, piece in WORST.items():
        print(f"{label:<18}", *(f"{worst(name, piece):>21}" for name in names), flush=True)


if __name__ == "__main__":
    main()
