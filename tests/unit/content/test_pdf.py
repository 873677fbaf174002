"""PDF becomes text in a process of its own, bounded whatever it holds."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from lib.content import Extracted
from lib.content.pdf import pdf_child
from lib.content.pdf import reader as pdf
from lib.errors import ToolError

from .extract_kit import read


def a_pdf(pages: int, text: str = "Hello", title: str = "") -> bytes:
    """Return a PDF that has this text on each page."""
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {pages} /Kids ["
        + " ".join(f"{5 + 2 * number} 0 R" for number in range(pages))
        + "] >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        f"<< /Title ({title}) >>",
    ]
    for number in range(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text} {number}) Tj ET" if text else ""
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {6 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    body, offsets = "%PDF-1.4\n", list[int]()
    for number, content in enumerate(objects, 1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    return (
        f"{body}xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
        f"trailer << /Size {len(objects) + 1} /Root 1 0 R /Info 4 0 R >>\n"
        f"startxref\n{len(body)}\n%%EOF"
    ).encode("ascii")


def test_a_pdf_is_read_page_by_page() -> None:
    found = read(a_pdf(2, title="Paper"), "application/pdf")

    assert found == Extracted(title="Paper", text="Hello 0\n\nHello 1", note=None, charset="binary")
    assert read(a_pdf(1), "").text == "Hello 0"


def test_a_pdf_is_read_up_to_a_limit_of_pages_and_characters() -> None:
    assert pdf.read_pdf(a_pdf(3), max_chars=100, max_pages=2)[1:] == (
        "Hello 0\n\nHello 1",
        "the first 2 of 3 pages",
    )
    assert pdf.read_pdf(a_pdf(3), max_chars=3)[1:] == ("Hel", "the first 1 of 3 pages")
    assert pdf.read_pdf(a_pdf(1, text=""), max_chars=3)[2] == (
        "the pages hold no text, perhaps only pictures of it"
    )


@pytest.mark.parametrize("body", [b"", b"%PDF-1.4 damaged", a_pdf(1)[:300], b"x" * 1_000])
def test_a_damaged_pdf_is_a_failure_and_no_exception(body: bytes) -> None:
    with pytest.raises(ToolError) as caught:
        read(body, "application/pdf")

    assert caught.value.code == "failed"


def test_reading_a_pdf_ends_after_some_time() -> None:
    with pytest.raises(ToolError, match="too long"):
        pdf.read_pdf(a_pdf(1), max_chars=9, timeout_s=0.001)


def test_a_pdf_without_its_reader_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)

    with pytest.raises(ToolError, match="pip install 'pypdf") as caught:
        read(a_pdf(1), "application/pdf")
    assert caught.value.code == "unsupported"


def test_a_pdf_that_no_process_can_read_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    with pytest.raises(ToolError, match="no process") as caught:
        read(a_pdf(1), "application/pdf")
    assert caught.value.code == "failed"


def test_an_encrypted_pdf_is_refused() -> None:
    import pypdf

    writer = pypdf.PdfWriter(clone_from=io.BytesIO(a_pdf(1)))
    writer.encrypt("secret", algorithm="RC4-128")
    output = io.BytesIO()
    writer.write(output)

    with pytest.raises(ToolError, match="encrypted") as caught:
        read(output.getvalue(), "application/pdf")
    assert caught.value.code == "unsupported"
    written = io.BytesIO()
    pdf_child.write_pages(output.getvalue(), written, max_pages=1, max_chars=9)
    assert json.loads(written.getvalue()) == {"encrypted": True}


def test_the_reader_of_pdf_writes_a_line_for_each_page() -> None:
    output = io.BytesIO()
    pdf_child.write_pages(a_pdf(2), output, max_pages=9, max_chars=4)

    assert [json.loads(line) for line in output.getvalue().splitlines()] == [
        {"pages": 2, "title": None},
        {"page": "Hell"},
    ]
    assert Path(pdf_child.__file__).read_text(encoding="utf-8").count("import lib") == 0


@pytest.mark.parametrize(("max_bytes", "texts"), [(4 << 30, 1), (1 << 20, 0)])
def test_the_reader_of_pdf_is_a_program_with_limits(
    unmeasured: dict[str, str], max_bytes: int, texts: int
) -> None:
    command = [sys.executable, pdf_child.__file__, "9", "99", str(max_bytes)]
    done = subprocess.run(command, input=a_pdf(1), env=unmeasured, capture_output=True, check=False)

    assert done.stdout.count(b"Hello 0") == texts


def test_memory_is_limited_where_the_system_can() -> None:
    program = (
        "import sys, resource; sys.path.insert(0, sys.argv[1]); import pdf_child;"
        "pdf_child.limit_memory(1 << 30); print(resource.getrlimit(resource.RLIMIT_AS)[0]);"
        "sys.modules['resource'] = None; pdf_child.limit_memory(1 << 20)"
    )
    folder = str(Path(pdf_child.__file__).parent)
    command = [sys.executable, "-c", program, folder]
    done = subprocess.run(command, capture_output=True, check=True, text=True, encoding="utf-8")

    assert int(done.stdout) == 1 << 30
