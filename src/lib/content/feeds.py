"""RSS and Atom: what is new, one entry after the other."""

from __future__ import annotations

from typing import Final

from lib.content.html.page import fragment
from lib.content.links import Links
from lib.content.xml import Element

MAX_ENTRIES: Final = 500
MAX_SUMMARY: Final = 2_000

_ENTRIES: Final = frozenset({"item", "entry"})
_DATES: Final = ("pubdate", "published", "updated", "date", "modified", "issued")
_SUMMARIES: Final = ("description", "summary", "encoded", "content")


def is_feed(found: list[Element]) -> bool:
    """Return True if the document is RSS, RDF Site Summary or Atom."""
    return bool(found) and found[0].name in {"rss", "feed", "rdf"}


def read_feed(found: list[Element], *, url: str) -> tuple[str | None, str, str | None]:
    """Return the title of a feed, its entries as text, and a note if there are too many.

    Args:
        found: the elements of the document.
        url: where it came from, for its links.
    """
    links = Links(url)
    starts = [number for number, element in enumerate(found) if element.name in _ENTRIES]
    head = found[: starts[0]] if starts else found
    title = _text(_first(head, "title"), url)
    about = _text(_first(head, "description", "subtitle", "tagline"), url)
    parts = [about] if about else []
    for start, end in zip(starts[:MAX_ENTRIES], [*starts[1:], len(found)], strict=False):
        parts.append(_entry(found[start:end], links, url))
    many = len(starts) > MAX_ENTRIES
    note = f"the first {MAX_ENTRIES} of {len(starts)} entries" if many else None
    return title or None, "\n\n".join(part for part in parts if part), note


def _entry(entry: list[Element], links: Links, url: str) -> str:
    depth = entry[0].depth + 1
    children = [element for element in entry if element.depth == depth]
    title = " ".join(_text(_first(children, "title"), url).split()) or "(without a title)"
    address = _address(children, links)
    date = next((text for name in _DATES if (text := _plain(_first(children, name)))), "")
    summary = _summary(entry, children, url)
    lines = [f"## [{title}]({address})" if address else f"## {title}", date]
    return "\n\n".join(filter(None, ["\n".join(filter(None, lines)), summary]))


def _summary(entry: list[Element], children: list[Element], url: str) -> str:
    for name in _SUMMARIES:
        if text := _text(_first(children, name), url):
            break
    else:  # Atom may hold elements of XHTML here
        inner = (element.text for element in entry if element.depth > entry[0].depth + 1)
        text = " ".join(" ".join(inner).split())
    return text if len(text) <= MAX_SUMMARY else text[:MAX_SUMMARY].rstrip() + " ..."


def _address(children: list[Element], links: Links) -> str | None:
    for element in children:
        if element.name == "link" and element.attributes.get("rel", "alternate") == "alternate":
            address = links.absolute(element.attributes.get("href") or element.text)
            if address:
                return address
    identifier = _first(children, "guid")
    return links.absolute(identifier.text) if identifier and "://" in identifier.text else None


def _first(found: list[Element], *names: str) -> Element | None:
    return next((element for name in names for element in found if element.name == name), None)


def _plain(element: Element | None) -> str:
    return " ".join(element.text.split())[:100] if element else ""


def _text(element: Element | None, url: str) -> str:
    return fragment(element.text, url=url) if element else ""
