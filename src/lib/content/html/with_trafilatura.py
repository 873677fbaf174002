"""The main content as trafilatura sees it; what is hidden stays out, and how it is written is ours.

Source: https://trafilatura.readthedocs.io (2.3). It takes several seconds for some pages of 1 MB.
"""

from __future__ import annotations

import re
from typing import Final

from lib.content.html.blocks import Block, Blocks
from lib.content.html.page import Choice
from lib.errors import ToolError, install_command

_words: Final = re.compile(r"\w+").findall
_targets: Final = re.compile(r"\]\(https?://[^()\s]*\)").sub
_RUN: Final = 4
_SHARE: Final = 0.7


def choice(source: str) -> Choice:
    """Return what chooses those blocks of the page that trafilatura finds in its source.

    Raises:
        ToolError: "unsupported": trafilatura is not installed.
    """
    try:
        import trafilatura  # noqa: PLC0415 - an extra
    except ImportError:
        raise ToolError(
            "unsupported", f"trafilatura is not installed: {install_command('trafilatura')}"
        ) from None
    try:
        text = trafilatura.extract(source, fast=True, include_links=False) or ""
    except Exception:  # noqa: BLE001 - whatever a page of strangers provokes there
        raise ToolError("failed", "trafilatura could not read the page") from None
    kept_runs = {run for line in text.split("\n") for run in _runs(line)}

    def choose(page: Blocks) -> list[Block]:
        return [block for block in page.blocks if _is_kept(block, kept_runs)]

    return choose


def _is_kept(block: Block, kept_runs: set[tuple[str, ...]]) -> bool:
    runs = _runs(_targets("]", block.text))
    return bool(runs) and sum(run in kept_runs for run in runs) >= _SHARE * len(runs)


def _runs(text: str) -> list[tuple[str, ...]]:
    words = _words(text)
    return [tuple(words[at : at + _RUN]) for at in range(max(1, len(words) - _RUN + 1)) if words]
