"""The text of PDF, read by pypdf in a process of its own, which can be ended.

A single page can keep a reader of PDF busy for minutes and fill the memory; a thread could not be
stopped. The process gets the content on its standard input, has no other task, and has limits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from lib.errors import ToolError, install_command

MAX_PAGES: Final = 200
TIMEOUT_S: Final = 8.0
"""Seconds for the whole document; what is read by then is kept."""

MAX_MEMORY_BYTES: Final = 1 << 30

_CHILD: Final = Path(__file__).with_name("pdf_child.py")


def read_pdf(
    body: bytes, *, max_chars: int, max_pages: int = MAX_PAGES, timeout_s: float = TIMEOUT_S
) -> tuple[str | None, str, str | None]:
    """Return the title, the text page by page, and a note if that is not all, each or None.

    Args:
        body: the document.
        max_chars: how long the text may be.
        max_pages: how many pages are read.
        timeout_s: after how many seconds no more is read.

    Raises:
        ToolError: "unsupported": pypdf is not installed, or the document is encrypted. "failed":
            it cannot be read.
    """
    if find_spec("pypdf") is None:
        raise ToolError("unsupported", f"reading PDF needs pypdf: {install_command('pdf')}")
    lines, in_time = _run(body, [str(max_pages), str(max_chars), str(MAX_MEMORY_BYTES)], timeout_s)
    report: dict[str, Any] = {}
    pages: list[str] = []
    for line in lines:
        report |= line
        pages += [line["page"]] if "page" in line else []
    if not pages:
        raise _refusal(report, in_time=in_time)
    text = "\n\n".join(page for page in pages if page)
    of = report.get("pages", len(pages))
    note = None if len(pages) >= of else f"the first {len(pages)} of {of} pages"
    if not text.strip():
        note = "the pages hold no text, perhaps only pictures of it"
    return report.get("title"), text[:max_chars], note


def _run(body: bytes, arguments: list[str], timeout_s: float) -> tuple[list[dict[str, Any]], bool]:
    """Return the lines that the process wrote, and whether it ended in time."""
    command = [sys.executable, "-P", "-B", str(_CHILD), *arguments]
    environment = {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONIOENCODING": "utf-8",
        **{name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ},
    }
    in_time = True
    try:
        done = subprocess.run(  # noqa: S603 - our own file
            command,
            input=body,
            capture_output=True,
            env=environment,
            timeout=timeout_s,
            check=False,
        )
        output = done.stdout
    except subprocess.TimeoutExpired as late:
        output, in_time = late.stdout or b"", False
    except OSError:
        raise ToolError("failed", "no process could be started to read the PDF") from None
    return [json.loads(line) for line in output.split(b"\n")[:-1]], in_time


def _refusal(report: dict[str, Any], *, in_time: bool) -> ToolError:
    if report.get("encrypted"):
        return ToolError("unsupported", "the PDF is encrypted")
    if not in_time:
        return ToolError("failed", "the PDF took too long to read")
    return ToolError("failed", "the PDF is damaged or of a kind that is not read")
