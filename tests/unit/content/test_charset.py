"""Bytes become text in the encoding that a browser would take, and in none that Python knows."""

import codecs

import pytest

from effort import effort_below
from lib.content.charset import CODECS, LABELS, decode, encoding_of


@pytest.mark.parametrize(
    ("body", "charset", "markup", "expected"),
    [
        (b"\xef\xbb\xbf\xc3\xa9", "windows-1251", "", ("é", "utf-8")),
        (b"\xff\xfee\x00", "utf-8", "", ("e", "utf-16le")),
        (b"\xfe\xff\x00e", None, "", ("e", "utf-16be")),
        (b"\xe9", "ISO-8859-1", "", ("é", "windows-1252")),
        (b"\x80", "latin1", "", ("€", "windows-1252")),
        (
            "é".encode("cp1251", "replace") + b"\xe0",
            " Windows-1251 ",
            "",
            ("?\u0430", "windows-1251"),
        ),
        (b"<meta charset=koi8-r>\xc1", "utf-8", "html", ("<meta charset=koi8-r>\ufffd", "utf-8")),
        (b"<meta charset=koi8-r>\xc1", None, "", ("<meta charset=koi8-r>Á", "windows-1252")),
        (b"<meta charset=koi8-r>\xc1", None, "html", ("<meta charset=koi8-r>\u0430", "koi8-r")),
        (
            b"<!--<meta charset=koi8-r>-->\xe9",
            None,
            "html",
            ("<!--<meta charset=koi8-r>-->é", "windows-1252"),
        ),
        (b"caf\xc3\xa9", None, "", ("café", "utf-8")),
        (b"caf\xe9", None, "", ("café", "windows-1252")),
        (b"caf\xc3\xa9 \xe6\x97", None, "", ("café ", "utf-8")),
        (b"caf\xe9 x", "utf-8", "", ("caf\ufffd x", "utf-8")),
        (b"", None, "html", ("", "utf-8")),
        (b"\x1b$)Cabc", "iso-2022-kr", "", ("\ufffd", "replacement")),
        (b"", "hz-gb-2312", "", ("", "replacement")),
        (
            b"<?xml encoding='iso-8859-2'?>\xb1",
            None,
            "xml",
            ("<?xml encoding='iso-8859-2'?>ą", "iso-8859-2"),
        ),
        (
            b"<?xml encoding='utf-16'?>\xc4\x85",
            None,
            "xml",
            ("<?xml encoding='utf-16'?>ą", "utf-8"),
        ),
    ],
)
def test_the_encoding_is_found_in_the_order_of_the_standard(
    body: bytes, charset: str | None, markup: str, expected: tuple[str, str]
) -> None:
    decoded = decode(body, charset=charset, markup=markup)

    assert (decoded.text, decoded.encoding) == expected


@pytest.mark.parametrize(
    ("start", "encoding"),
    [
        ("<meta charset=shift_jis>", "shift_jis"),
        ("<META CharSet = 'Shift_JIS' />", "shift_jis"),
        (
            "<meta http-equiv=Content-Type content='text/html; charset=\"euc-kr\"; x'>",
            "euc-kr",
        ),
        ("<meta content='text/html; charset=euc-kr'>", "utf-8"),
        ("<meta http-equiv=content-type content='text/html'>", "utf-8"),
        ("<meta charset=utf-16>", "utf-8"),
        ("<meta charset=klingon><meta charset=big5>", "big5"),
        ("<title><meta charset=big5></title>", "utf-8"),
        (" " * 1_020 + "<meta charset=big5>", "utf-8"),
    ],
)
def test_a_page_may_name_its_encoding_at_its_beginning(start: str, encoding: str) -> None:
    assert decode(start.encode(), charset=None, markup="html").encoding == encoding


@pytest.mark.parametrize(
    "label",
    ["punycode", "idna", "hex", "zip", "rot_13", "base64", "utf-7", "utf-32", "unicode_escape",
     "raw_unicode_escape", "undefined", "mbcs", "cp037", "uu", "bz2", "klingon", "", "\x00"],
)  # fmt: skip
def test_names_that_only_python_knows_are_not_honoured(label: str) -> None:
    body = b"abc-" * 200_000
    with effort_below(1.0):
        assert decode(body, charset=label).encoding == "utf-8"


def test_labels_are_those_of_the_standard_and_each_has_a_codec() -> None:
    assert set(LABELS.values()) == set(CODECS)
    assert all(codecs.lookup(codec) for codec in CODECS.values())
    assert len(LABELS) > 200
    assert encoding_of("ASCII") == encoding_of("l1") == "windows-1252"
    assert encoding_of("utf-16") == "utf-16le"
    assert encoding_of("gb2312") == "gbk"


@pytest.mark.parametrize("encoding", sorted(CODECS))
def test_any_bytes_are_read_in_every_encoding_at_once(encoding: str) -> None:
    with effort_below(2.0):
        for piece in (b"\xff", b"\x81", b"\x1b$B", b"\x00\xd8", bytes(range(256))):
            decoded = decode(piece * (200_000 // len(piece)), charset=encoding)
            assert len(decoded.text) <= 200_000
