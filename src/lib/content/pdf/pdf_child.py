"""Reads a PDF from standard input and writes one line of JSON for each page that it has read.

It is started by `lib.content.pdf.reader` as a program, and imports nothing of the library.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import warnings
from typing import Any, BinaryIO


def limit_memory(max_bytes: int) -> None:
    """Let no more memory be had, where the system knows such limits."""
    try:
        import resource  # noqa: PLC0415 - not on every system

        resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
    except (ImportError, OSError, ValueError):
        return


def write_pages(body: bytes, output: BinaryIO, *, max_pages: int, max_chars: int) -> None:
    """Write how many pages there are, then their texts, each as soon as it is read."""
    import pypdf  # noqa: PLC0415 - after the memory is limited

    reader = pypdf.PdfReader(io.BytesIO(body))
    if reader.is_encrypted and not reader.decrypt(""):
        _write(output, {"encrypted": True})
        return
    title = reader.metadata.title if reader.metadata else None
    _write(output, {"pages": len(reader.pages), "title": title or None})
    for number in range(min(max_pages, len(reader.pages))):
        text: str = reader.pages[number].extract_text()
        _write(output, {"page": text[:max_chars]})
        max_chars -= len(text)
        if max_chars <= 0:
            return


def _write(output: BinaryIO, line: dict[str, Any]) -> None:
    output.write(json.dumps(line).encode("ascii") + b"\n")
    output.flush()


def main() -> None:
    """Read the limits from the arguments, then do it; what fails ends the output."""
    logging.disable()
    warnings.simplefilter("ignore")
    max_pages, max_chars, max_bytes = map(int, sys.argv[1:4])
    limit_memory(max_bytes)
    write_pages(
        sys.stdin.buffer.read(), sys.stdout.buffer, max_pages=max_pages, max_chars=max_chars
    )


if __name__ == "__main__":
    main()
