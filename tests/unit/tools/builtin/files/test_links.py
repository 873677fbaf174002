"""Paths and links of file access: where they lead is judged, step by step."""

from pathlib import Path

import pytest

from lib.tools.builtin import FileAccess
from lib.tools.builtin.files.walk import MAX_LINKS

from .access_kit import OnWindows, refusal


def test_the_root_stays_the_directory_that_it_was(
    walked: type[FileAccess], root: Path, tmp_path: Path
) -> None:
    (root / "ln").symlink_to(root / "a" / "t.txt")
    access = walked(root)
    root.rename(tmp_path / "moved")
    (root / "a").mkdir(parents=True)
    (root / "a" / "t.txt").write_text("another", encoding="utf-8")

    assert access.read("a/t.txt")["text"] == "one\ntwo\nthree\n"
    assert access.read("ln")["text"] == "one\ntwo\nthree\n"


def test_a_relative_root_stays_where_it_was(
    walked: type[FileAccess], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "ln").symlink_to(root / "a" / "t.txt")
    monkeypatch.chdir(root.parent)
    access = walked(Path("root"))
    monkeypatch.chdir("/")

    assert access.read("ln")["lines"] == 3
    assert access.read(f"{root}/a/t.txt")["lines"] == 3


def test_a_root_that_is_a_link_is_known_by_both_names(
    found: type[FileAccess], root: Path, tmp_path: Path
) -> None:
    (tmp_path / "alias").symlink_to(root)
    (root / "one").symlink_to(tmp_path / "alias" / "a" / "t.txt")
    (root / "two").symlink_to(root / "a" / "t.txt")
    access = found(tmp_path / "alias")

    assert access.read("one")["lines"] == access.read("two")["lines"] == 3


@pytest.mark.parametrize(
    "path", ["{root}", "{root}/", "{root}/.", "/{root}", "{root}-evil", "{root}/../secret.txt", "/"]
)
def test_absolute_paths_are_judged_by_components(
    walked: type[FileAccess], root: Path, path: str
) -> None:
    error = refusal(lambda: walked(root).read(path.format(root=root)))

    assert error.code in ("not_found", "blocked", "invalid_arguments")
    assert error.code != "not_found" or "is a directory" in error.message


def test_a_link_may_point_at_the_root_itself(found: type[FileAccess], root: Path) -> None:
    (root / "here").symlink_to(root)
    (root / "a" / "up").symlink_to("..")

    assert found(root).read("here/a/up/here/a/t.txt")["lines"] == 3
    assert found(root).read("here/a/up/a/b/../t.txt")["lines"] == 3


def test_a_link_target_ending_in_a_slash_must_be_a_directory(
    walked: type[FileAccess], root: Path
) -> None:
    (root / "file").symlink_to("a/t.txt/")
    (root / "absolute").symlink_to(f"{root}/a/t.txt/")
    (root / "directory").symlink_to("a/b/")

    assert refusal(lambda: walked(root).read("file")).code == "not_found"
    assert refusal(lambda: walked(root).read("absolute")).code == "not_found"
    assert walked(root).list("directory")["entries"] == []


def test_a_requested_path_ending_in_a_slash_must_be_a_directory(
    found: type[FileAccess], root: Path
) -> None:
    for path in ("a/t.txt/", f"{root}/a/t.txt/"):
        assert refusal(lambda p=path: found(root).read(p)).code == "not_found"
    for path in ("a/b/", f"{root}/a/b/"):
        assert found(root).list(path)["entries"] == []


def test_as_many_links_as_allowed_are_followed_and_no_more(
    walked: type[FileAccess], root: Path
) -> None:
    (root / "l0").symlink_to("a/t.txt")
    for number in range(1, MAX_LINKS + 1):
        (root / f"l{number}").symlink_to(f"l{number - 1}")

    assert walked(root).read(f"l{MAX_LINKS - 1}")["lines"] == 3
    assert refusal(lambda: walked(root).read(f"l{MAX_LINKS}")).code == "blocked"


def test_links_that_multiply_are_walked_to_a_bound(walked: type[FileAccess], root: Path) -> None:
    (root / "x").symlink_to("." + "/a/.." * 600)

    assert refusal(lambda: walked(root).read("x/x/x/a/t.txt")).code == "blocked"


def test_a_refusal_does_not_tell_whether_a_file_exists(found: type[FileAccess], root: Path) -> None:
    (root / ".env").write_text("K=1", encoding="utf-8")
    (root / "there").symlink_to("../secret.txt")
    (root / "nowhere").symlink_to("../nope.txt")
    access = found(root)

    for one, other in ((".env", ".enw"), ("x.pem", "a/x.pem"), ("there", "nowhere")):
        first, second = (
            refusal(lambda p=one: access.read(p)),
            refusal(lambda p=other: access.read(p)),
        )
        assert first.code == second.code == "blocked"


def test_every_name_on_the_way_is_judged(found: type[FileAccess], root: Path) -> None:
    (root / ".hidden").symlink_to("a")
    (root / "one").symlink_to(".hidden/t.txt")
    (root / "server.key").symlink_to("a/t.txt")
    (root / "two").symlink_to("server.key")
    access = found(root)

    passing = () if found is OnWindows else ("one", "two")  # it sees where a path leads
    for path in ("server.key", ".hidden/../a/t.txt", f"{root}/.hidden/t.txt", *passing):
        assert refusal(lambda p=path: access.read(p)).code == "blocked"
