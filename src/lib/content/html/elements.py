"""The elements of HTML by kind, and hints in the names that authors give them."""

from __future__ import annotations

import re
from typing import Final

SKIPPED: Final = frozenset({"iframe", "noembed", "noframes", "noscript", "script", "style"})
"""Elements without text, which, as in browsers, reach to the end of the page if not ended."""

RAW: Final = frozenset({"textarea", "title", "xmp"})
"""Inside these no tag counts but their own end."""

DROPPED: Final = frozenset({
    "audio", "button", "canvas", "datalist", "math", "meter", "object", "progress", "rp", "select",
    "svg", "template", "textarea", "video", *SKIPPED,
})  # fmt: skip
"""Elements whose content is left out."""

NAVIGATION: Final = frozenset({"nav"})
"""Elements of links to other pages, left out of files that are indexed."""

VOID: Final = frozenset({
    "area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "img", "input",
    "keygen", "link", "meta", "param", "source", "track", "wbr",
})  # fmt: skip

BLOCKS: Final = frozenset({
    "address", "article", "aside", "blockquote", "caption", "center", "dd", "details", "dialog",
    "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2",
    "h3", "h4", "h5", "h6", "header", "hgroup", "legend", "li", "main", "menu", "nav", "ol", "p",
    "pre", "search", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr",
    "ul",
})  # fmt: skip

HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
LISTS: Final = frozenset({"dir", "menu", "ol", "ul"})
CELLS: Final = frozenset({"td", "th"})
TABLE_PARTS: Final = frozenset({"table", "tbody", "td", "tfoot", "th", "thead", "tr"})
FORMATTING: Final = frozenset({
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
})  # fmt: skip
"""Elements that go on after the end of the one around them, until their own end."""

ENDED_BY: Final = {
    "p": BLOCKS - {"caption", "legend"},
    "li": frozenset({"li"}),
    "dt": frozenset({"dt", "dd"}),
    "dd": frozenset({"dt", "dd"}),
    "td": frozenset({"td", "th", "tr", "tbody", "tfoot", "thead"}),
    "th": frozenset({"td", "th", "tr", "tbody", "tfoot", "thead"}),
    "tr": frozenset({"tr", "tbody", "tfoot", "thead"}),
    "thead": frozenset({"tbody", "tfoot"}),
    "tbody": frozenset({"tbody", "tfoot"}),
}
"""Elements that end where one of these starts, without an end tag."""

# -- hidden ------------------------------------------------------------------------------------

MAX_ATTRIBUTES: Final = 256
"""An element with more attributes is none that people read."""


def is_hidden(attributes: dict[str, str] | None) -> bool:
    """Return True if an element's own attributes keep its content from being seen."""
    if attributes is None or "hidden" in attributes or "popover" in attributes:
        return True
    return attributes.get("aria-hidden", "").strip().lower() == "true"


# -- main content ------------------------------------------------------------------------------

_against: Final = re.compile(
    r"(?:^|[\s_-])(?:ads?|advert\w*|promo\w*|sponsor\w*|breadcrumbs?|comments?|disqus|cookies?"
    r"|consent|gdpr|footer\w*|footnav|masthead|menu\w*|modal|nav\w*|newsletter\w*|outbrain|pager"
    r"|pagination|popup|read-?more|recirc\w*|recommend\w*|related\w*|replies|rss|share\w*|sharing"
    r"|shopping|sidebar\w*|signup|social\w*|subscribe\w*|subscription|taboola|tags?|tag-?list"
    r"|toolbar|trending|widget\w*|most-?(?:read|popular)|more-?(?:from|stories|articles)"
    r"|also-?like|byline|author-?(?:bio|info|box)|copyright|skip-?link\w*|sr-only"
    r"|visually-?hidden|screen-?reader\w*|gallery\w*|slideshow\w*|carousel\w*|slider|lightbox"
    r"|captions?|caption-?text|credits?|cite-?this)(?:$|[\s_-])"
).search
_for: Final = re.compile(
    r"article|story|entry|post|body|content|main|text|blog|hentry|prose|markdown|documentation"
).search

EXCLUDED: Final = frozenset({
    "aside", "dialog", "figcaption", "footer", "form", "menu", "nav", "search",
})  # fmt: skip
_ROLES: Final = frozenset({
    "banner", "complementary", "contentinfo", "dialog", "menu", "menubar", "navigation", "search",
    "toolbar", "tooltip", "alert", "alertdialog",
})  # fmt: skip


def hint(name: str, attributes: dict[str, str]) -> int:
    """Say what name and class of a container speak for: -1 surroundings, 1 content, else 0."""
    role = attributes.get("role", "").lower()
    if role == "main" or name in {"article", "main"} or role == "article":
        return 1
    if name in EXCLUDED or role in _ROLES:
        return -1
    named = f"{attributes.get('class', '')[:500]} {attributes.get('id', '')[:500]}".lower()
    if _against(named):
        return -1
    return 1 if _for(named) else 0
