import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib._util.clock import SYSTEM_CLOCK
from lib.testing.clock import ManualClock
from lib.tools.builtin.files.budget import Budget, BudgetSpent
from lib.tools.builtin.files.lines import CHUNK_BYTES, LinePage, NotText, read_lines


def page(
    path: Path,
    offset: int = 0,
    limit: int | None = None,
    *,
    column: int = 0,
    max_bytes: int = 200_000,
    budget: Budget | None = None,
) -> LinePage:
    handle = os.open(path, os.O_RDONLY)
    try:
        return read_lines(
            handle,
            offset=offset,
            column=column,
            limit=limit,
            max_bytes=max_bytes,
            budget=budget or Budget(),
        )
    finally:
        os.close(handle)


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    text = "a\rb\r\nc\x0bd\x0ce\x1cf\x85g\u2028h\u2029i\nj"
    (tmp_path / "f").write_bytes(text.encode())

    assert page(tmp_path / "f") == LinePage(text, 3, None, "utf-8", 0)
    assert page(tmp_path / "f", 1, 1).text == text.split("\n")[1] + "\n"
    assert page(tmp_path / "f", 2).text == "j"


CODECS = st.sampled_from(["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be"])
TEXTS = st.lists(
    st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs", "Cc")), max_size=9),
    max_size=12,
)


def written(path: Path, lines: list[str], codec: str) -> list[str]:
    """Write the lines and return them, each with its end."""
    text = "\n".join(lines).removeprefix("\ufeff")
    mark = "\ufeff" if codec.startswith("utf-16") else ""
    path.write_bytes((mark + text).encode(codec))
    *ended, last = text.split("\n")
    return [f"{line}\n" for line in ended] + ([last] if last else [])


@given(TEXTS, CODECS, st.tuples(st.integers(0, 14), st.none() | st.integers(0, 14)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pages_agree_with_what_splitting_the_whole_text_gives(
    tmp_path: Path, lines: list[str], codec: str, window: tuple[int, int | None]
) -> None:
    offset, limit = window
    whole = written(tmp_path / "f", lines, codec)
    expected = whole[offset:] if limit is None else whole[offset : offset + limit]
    following = offset + len(expected) if whole[offset + len(expected) :] else None

    one = page(tmp_path / "f", offset, limit)
    name = codec.removesuffix("-sig")
    assert one == LinePage("".join(expected), len(expected), following, name, 0)


@given(TEXTS, CODECS, st.integers(0, 14), st.integers(1, 40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_page_that_is_cut_is_the_start_of_a_whole_one(
    tmp_path: Path, lines: list[str], codec: str, offset: int, max_bytes: int
) -> None:
    whole = "".join(written(tmp_path / "f", lines, codec)[offset:])

    cut = page(tmp_path / "f", offset, max_bytes=max_bytes)
    assert whole.startswith(cut.text)
    assert len(cut.text.encode(codec.removesuffix("-sig"))) <= max(max_bytes, 4)
    assert cut.replaced == 0
    if cut.text != whole:
        assert cut.next_offset is not None
        assert cut.next_offset - offset == max(1, cut.text.count("\n"))


@given(TEXTS, CODECS, st.integers(1, 40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_following_next_column_and_next_offset_gives_every_character_once(
    tmp_path: Path, lines: list[str], codec: str, max_bytes: int
) -> None:
    text = "".join(written(tmp_path / "f", lines, codec))
    read, offset, column = "", 0, 0
    while offset is not None:
        one = page(tmp_path / "f", offset, column=column, max_bytes=max_bytes)
        assert one.replaced == 0
        assert one.next_column is None or one.next_column > column
        read += one.text
        if one.next_column is None:
            offset, column = one.next_offset, 0
        else:
            column = one.next_column

    assert read == text


@given(TEXTS, st.integers(0, 14), st.integers(0, 30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_column_skips_bytes_of_its_line_and_none_of_the_next(
    tmp_path: Path, lines: list[str], offset: int, column: int
) -> None:
    whole = written(tmp_path / "f", lines, "utf-8")

    one = page(tmp_path / "f", offset, column=column)
    if not whole[offset:]:
        assert one == LinePage("", 0, None, "utf-8", 0)
        return
    line = whole[offset].encode()
    kept = line[min(column, len(line.rstrip(b"\n"))) :]
    assert one.text == kept.decode(errors="replace") + "".join(whole[offset + 1 :])


def test_a_huge_line_is_read_piece_by_piece_in_every_encoding(tmp_path: Path) -> None:
    line = "\u00e9\u20ac\U0001f600x" * 60_000
    for codec, mark in (("utf-8", ""), ("utf-16-le", "\ufeff"), ("utf-16-be", "\ufeff")):
        (tmp_path / "f").write_bytes(f"{mark}first\n{line}".encode(codec))
        pieces: list[str] = []
        column: int | None = 0
        while column is not None:
            one = page(tmp_path / "f", 1, column=column, max_bytes=20_001)
            assert (one.lines, one.replaced) == (1, 0)
            pieces.append(one.text)
            column = one.next_column
        assert "".join(pieces) == line
        inside = page(tmp_path / "f", 1, column=1, max_bytes=9)
        assert inside.replaced == (codec == "utf-8")  # a unit of UTF-16 is never split


def test_looking_for_a_column_is_held_to_the_budget(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * (3 * CHUNK_BYTES))

    assert page(tmp_path / "f", column=3 * CHUNK_BYTES - 1).text == "x"
    assert page(tmp_path / "f", column=10**12) == LinePage("", 0, None, "utf-8", 0)
    with pytest.raises(BudgetSpent):
        page(tmp_path / "f", column=2 * CHUNK_BYTES, budget=Budget(scan_bytes=CHUNK_BYTES))


@given(TEXTS, CODECS, st.integers(40, 60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_following_next_offset_gives_every_line_once(
    tmp_path: Path, lines: list[str], codec: str, max_bytes: int
) -> None:
    text = "".join(written(tmp_path / "f", lines, codec))
    read, offset = "", 0
    while offset is not None:
        one = page(tmp_path / "f", offset, max_bytes=max_bytes)
        read += one.text
        assert one.next_offset is None or one.next_offset > offset
        offset = one.next_offset

    assert read == text


def test_lines_are_found_across_chunks_in_both_encodings(tmp_path: Path) -> None:
    lines = [f"{number:05d} \u010a\u0a00\n" for number in range(CHUNK_BYTES // 8)]
    for codec, mark in (("utf-8", ""), ("utf-16-le", "\ufeff"), ("utf-16-be", "\ufeff")):
        (tmp_path / "f").write_bytes((mark + "".join(lines)).encode(codec))
        for number in (1, 9_000, len(lines) - 1):
            assert page(tmp_path / "f", number, 1).text == lines[number]
        assert page(tmp_path / "f", len(lines)) == LinePage("", 0, None, codec, 0)
        assert page(tmp_path / "f", len(lines) + 1) == LinePage("", 0, None, codec, 0)


def test_a_line_that_is_too_long_is_cut_after_a_character_and_can_be_passed(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(("\U0001f600" * 100 + "\nlast").encode())

    first = page(tmp_path / "f", max_bytes=10)
    assert first == LinePage("\U0001f600" * 2, 1, 1, "utf-8", 0, 8)
    rest = page(tmp_path / "f", column=8)
    assert rest == LinePage("\U0001f600" * 98 + "\nlast", 2, None, "utf-8", 0)
    assert page(tmp_path / "f", 1, max_bytes=10) == LinePage("last", 1, None, "utf-8", 0)


def test_a_cut_in_utf_16_falls_between_characters(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(("\ufeff" + "\U0001f600" * 10).encode("utf-16-le"))

    assert page(tmp_path / "f", max_bytes=7).text == "\U0001f600"
    assert page(tmp_path / "f", max_bytes=1).text == "\U0001f600"  # less would lead nowhere


@pytest.mark.parametrize(
    ("content", "text", "replaced"),
    [
        (b"caf\xe9\n", "caf\ufffd\n", 1),
        (b"\xef\xbf\xbd\xff\xef\xbf\xbd", "\ufffd\ufffd\ufffd", 1),
        (b"a\xe2\x82", "a\ufffd", 1),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd", 3),
        (b"\xff\xfea\x00\x00\xd8b\x00", "a\ufffdb", 1),
        (b"\xff\xfea\x00b", "a\ufffd", 1),
        (b"\xef\xbb\xbf\xef\xbb\xbfx", "\ufeffx", 0),
    ],
)
def test_what_the_encoding_does_not_have_is_replaced_and_counted(
    tmp_path: Path, content: bytes, text: str, replaced: int
) -> None:
    (tmp_path / "f").write_bytes(content)

    one = page(tmp_path / "f")
    assert (one.text, one.replaced) == (text, replaced)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x7fELF\x02\x01\x01", "ELF program"),
        (b"\x89PNG\r\n\x1a\n", "PNG image"),
        (b"%PDF-1.7\n", "PDF document"),
        (b"\x1f\x8b\x08", "gzip archive"),
        (b"BZh91AY&SY words", "bzip2 archive"),
        (b"OggS\0\2words", "Ogg media"),
        (b"SQLite format 3\0", "SQLite database"),
        (b"a\0b", "binary data"),
        (b"a" * 8191 + b"\0", "binary data"),
        (b"ok\n" * 5_000 + b"\0", "binary data"),
        ("a\0b".encode("utf-16-le"), "binary data"),
        (b"\xff\xfe\x00\x00a\x00\x00\x00", "binary data"),
        (b"\x01\x02\x03\x04 and words", "binary data"),
    ],
)
def test_binary_content_is_refused_without_showing_a_byte(
    tmp_path: Path, content: bytes, kind: str
) -> None:
    (tmp_path / "f").write_bytes(content)

    with pytest.raises(NotText) as caught:
        page(tmp_path / "f")
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    "content", ["OggS begins each page", "BZh9 begins a file", "BZhang", "SQLite format 3 is old"]
)
def test_text_about_a_format_is_text(tmp_path: Path, content: str) -> None:
    (tmp_path / "f").write_text(content, encoding="utf-8")

    assert page(tmp_path / "f").text == content


def test_colours_of_a_terminal_and_form_feeds_are_text(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\x1b[31mred\x1b[0m\n\x0cnext\n")

    assert page(tmp_path / "f").lines == 2


def sparse(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        file.write(b"text\n" * 2_000)
        file.truncate(size)
    return path


def test_looking_for_a_line_ends_with_the_budget_of_bytes_in_little_memory(tmp_path: Path) -> None:
    path = sparse(tmp_path / "f", 3 << 30)

    tracemalloc.start()
    try:
        with pytest.raises(BudgetSpent, match="bytes"):
            page(path, 2_005)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()
    assert page(path, 1_999, 1).text == "text\n"


def test_looking_for_a_line_ends_with_the_deadline(tmp_path: Path) -> None:
    clock = ManualClock()
    budget = Budget(scan_s=5, clock=clock)
    clock.advance(6)

    with pytest.raises(BudgetSpent, match="time"):
        page(sparse(tmp_path / "f", 1 << 20), 2_005, budget=budget)


def test_looking_for_a_line_ends_when_it_is_called_off(tmp_path: Path) -> None:
    budget = Budget(clock=SYSTEM_CLOCK)
    budget.cancel()

    with pytest.raises(BudgetSpent, match="cancelled"):
        page(sparse(tmp_path / "f", 1 << 20), 2_005, budget=budget)


def test_a_long_line_is_never_read_whole(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * (8 << 20))

    tracemalloc.start()
    try:
        assert page(tmp_path / "f").text == "x" * 200_000
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


def test_short_answers_of_the_system_are_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"one\ntwo\nthree\n")
    read = os.read

    def read_little(handle: int, count: int) -> bytes:
        return read(handle, min(count, 3))

    monkeypatch.setattr(os, "read", read_little)

    assert page(tmp_path / "f", 1) == LinePage("two\nthree\n", 2, None, "utf-8", 0)
