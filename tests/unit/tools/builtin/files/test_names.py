import pytest

from lib.errors import ToolError
from lib.tools.builtin.files.names import (
    components,
    escaped,
    fault_of,
    is_device,
    is_short,
    windows_fault_of,
)


@pytest.mark.parametrize(
    "path",
    ["a/t.txt", ".", "..", "a//b/", "./~x", "a b/c", "-rf", "$HOME", "%2e%2e", "caf\u00e9", "x~1"],
)
def test_plain_paths_are_split_and_nothing_in_them_is_expanded(path: str) -> None:
    assert components(path) == path.split("/")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a\x00.png",
        "a\n",
        "a\x1b[2J",
        "a\x7f",
        "a\x85b",
        "a\u2028b",
        "\ud800",
        "a\\b",
        "\\\\server\\share",
        "\\\\?\\C:\\x",
        "//server/share",
        "~",
        "~/x",
        "~root/x",
        "C:t.txt",
        "file:///etc/passwd",
        "t.txt::$DATA",
        "t.txt.",
        "t.txt ",
        "a/ t.txt",
        "a. /b",
        "nul",
        "a/NUL.tar.gz",
        "COM\u00b9",
        "aux .txt",
        "x" * 4097,
    ],
)
def test_what_some_system_takes_for_something_else_is_refused_everywhere(path: str) -> None:
    with pytest.raises(ToolError) as caught:
        components(path)

    assert caught.value.code == "invalid_arguments"
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("path", [None, 1, b"a", ["a"]])
def test_a_path_is_a_string(path: object) -> None:
    with pytest.raises(ToolError, match="path is a string"):
        components(path)


@pytest.mark.parametrize("name", ["x" * 256, "\u00e9" * 128])
def test_a_name_that_no_file_can_have_is_not_found(name: str) -> None:
    with pytest.raises(ToolError) as caught:
        components(f"a/{name}")

    assert caught.value.code == "not_found"


@pytest.mark.parametrize(
    "name", ["con", "PRN.txt", "aux", "nul.", "COM1", "lpt9.log", "LPT\u00b3", "conin$", "CONOUT$"]
)
def test_devices_of_windows_are_known_with_and_without_an_extension(name: str) -> None:
    assert is_device(name)


@pytest.mark.parametrize("name", ["console", "com", "com10", "null", "auxiliary", "x.con", "lpt"])
def test_names_that_only_look_like_devices_are_none(name: str) -> None:
    assert not is_device(name)


@pytest.mark.parametrize("name", ["GIT~1", "ENV~1", "SECRET~1.TXT", "A~12345", "ID_RSA~1.PUB"])
def test_short_names_of_windows_are_known(name: str) -> None:
    assert is_short(name)


@pytest.mark.parametrize("name", ["file~", "~1", "LONGNAME~1", "a~b", "a~1.html", "GIT~1~2"])
def test_names_that_only_look_short_are_not(name: str) -> None:
    assert not is_short(name)


def test_characters_that_no_name_on_windows_has_are_refused_there_only() -> None:
    assert windows_fault_of("a*b")
    assert windows_fault_of("nul") == fault_of("nul")
    assert fault_of("a*b") is windows_fault_of("a b") is None


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a b.txt", "a b.txt"),
        ("caf\u00e9 \u65e5.txt", "caf\u00e9 \u65e5.txt"),
        ("evil\nname", r"evil\nname"),
        (r"evil\nname", r"evil\\nname"),
        ("bad\udcff", r"bad\xff"),
        ("a\x1b[2J", r"a\x1b[2J"),
        ("a\u202etxt.exe", r"a\u202etxt.exe"),
        ("a\u2028b", r"a\u2028b"),
        ("t\U000e0041", r"t\U000e0041"),
        ("x\u200by", r"x\u200by"),
        ("\U0001f468\u200d\U0001f469", "\U0001f468\u200d\U0001f469"),
        ("\u2764\ufe0f \u0646\u200c\u0627", "\u2764\ufe0f \u0646\u200c\u0627"),
        ("a\u3164\u034f\ufe0f\u2800\ufffe", r"a\u3164\u034f\ufe0f\u2800\ufffe"),
        ("a\u200db\U000e0101\U0001d159\ud800", r"a\u200db\U000e0101\U0001d159\ud800"),
        ("a\t\r\x85\u2029\u180e\u115f", r"a\t\r\x85\u2029\u180e\u115f"),
        ("\u202f3 PM\u00a0.png", "\u202f3 PM\u00a0.png"),
    ],
)
def test_names_are_shown_on_one_line_and_no_two_become_one(name: str, written: str) -> None:
    assert escaped(name) == written
