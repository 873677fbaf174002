"""The page of the console and what it loads, held in memory under the hash of their contents."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lib.observe.view.page import Waterfall

PAGE: Final = "index.html"

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The Content-Security-Policy: nothing but this server, and no text becomes markup or script."""

_TYPES: Final[Mapping[str, str]] = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that the page loads."""

    content: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Assets:
    """The page, and all that it loads.

    Attributes:
        page: its HTML.
        files: by the path below the page, which holds the hash of all of them: a file that
            imports another one finds that of its own version.
    """

    page: bytes
    files: Mapping[str, Asset]


@cache
def read_assets() -> Assets:
    """Read the page and all that it loads from the package, once."""
    contents = _read(files("lib_server.console") / "static")
    # imported late, as it takes a while; shared with `lib trace --html`
    drawn: Waterfall = import_module("lib.observe.view.page").waterfall()
    contents["tokens.css"] = drawn.colours.encode()
    contents["trace.css"] = drawn.style.encode()
    contents["trace.js"] = drawn.module.encode()
    page = contents.pop(PAGE)
    digest = hashlib.sha256(page)
    for name in sorted(contents):
        digest.update(f"\0{name}\0".encode() + contents[name])
    version = digest.hexdigest()[:16]
    return Assets(
        page=Template(page.decode()).substitute(hash=version, waterfall=drawn.markup).encode(),
        files={
            f"assets/{version}/{name}": Asset(content, _TYPES[name.rpartition(".")[2]])
            for name, content in contents.items()
        },
    )


def _read(directory: Traversable, prefix: str = "") -> dict[str, bytes]:
    """Return the files of a directory by their names, with those of the directories in it."""
    contents: dict[str, bytes] = {}
    for each in directory.iterdir():
        if each.is_dir():
            contents |= _read(each, f"{prefix}{each.name}/")
        else:
            contents[f"{prefix}{each.name}"] = each.read_bytes()
    return contents
