import copy
import errno
import gc
import os
import pickle
import resource
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pytest

from lib.errors import ToolError
from lib.tools.builtin import DENY, FileAccess
from lib.tools.builtin.files.budget import Budget
from lib.tools.builtin.files.walk import MAX_DEPTH, MAX_LINKS


def open_descriptors() -> set[str]:
    # The listing's own descriptor is one of them, and gone when they are looked at.
    return {
        f"{link.name} {link.readlink()}"
        for link in sorted(Path("/proc/self/fd").iterdir())
        if link.is_symlink()
    }


@contextmanager
def no_leak() -> Generator[None]:
    gc.collect()
    before = open_descriptors()
    yield
    assert not open_descriptors() - before


def refusal(call: Callable[[], object]) -> ToolError:
    with pytest.raises(ToolError) as caught:
        call()
    return caught.value


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    (made / "a" / "b").mkdir(parents=True)
    (made / "a" / "t.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("TOP", encoding="utf-8")
    return made


def test_an_access_has_the_settings_of_the_specification(root: Path) -> None:
    access = FileAccess(root)

    public = {field.name: getattr(access, field.name) for field in fields(access) if field.init}
    assert public == {"root": root, "max_bytes": 200_000, "allow_hidden": False, "deny": DENY}
    assert access == FileAccess(root, 200_000, False, DENY)  # noqa: FBT003 - as specified
    assert hash(access) == hash(FileAccess(root))
    assert repr(access) == f"FileAccess(root={root!r}, max_bytes=200000, allow_hidden=False)"
    with pytest.raises(FrozenInstanceError):
        access.max_bytes = 1  # pyright: ignore[reportAttributeAccessIssue] - that is refused


def test_a_read_tells_everything_that_the_design_names(found: str, root: Path) -> None:
    assert FileAccess(root).read("a/t.txt", offset=1, limit=1) == {
        "path": "a/t.txt",
        "text": "two\n",
        "offset": 1,
        "lines": 1,
        "next_offset": 2,
        "truncated": True,
        "size": 14,
        "encoding": "utf-8",
        "replaced": 0,
    }


@pytest.mark.parametrize("make", [str, Path])
def test_a_root_may_be_text_or_a_path(root: Path, make: Callable[[Path], Any]) -> None:
    assert FileAccess(make(root)).read("a/t.txt")["lines"] == 3


def test_a_root_must_be_a_directory_that_exists(found: str, root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileAccess(root / "nope")
    with pytest.raises(NotADirectoryError):
        FileAccess(root / "a" / "t.txt")


def test_settings_that_make_no_sense_are_refused(root: Path) -> None:
    with pytest.raises(ValueError, match="max_bytes"):
        FileAccess(root, max_bytes=0)
    with pytest.raises(ValueError, match="deny pattern"):
        FileAccess(root, deny=("",))


@pytest.mark.parametrize(
    "settings",
    [
        {"allow_hidden": "false"},
        {"allow_hidden": 0},
        {"allow_hidden": None},
        {"max_bytes": 2.5},
        {"max_bytes": True},
        {"max_bytes": "5"},
        {"max_bytes": None},
        {"deny": "*.sec"},
        {"deny": None},
        {"deny": 5},
        {"deny": (b"*.sec",)},
    ],
)
def test_settings_of_another_type_are_refused_before_anything_is_shared(
    settings: dict[str, Any], root: Path
) -> None:
    (name,) = settings

    with pytest.raises(TypeError, match=name.removesuffix("s")):
        FileAccess(root, **settings)


def test_a_name_that_is_shown_with_escapes_says_that_nothing_reads_it(root: Path) -> None:
    (root / "a\u3164b").write_text("x", encoding="utf-8")
    access = FileAccess(root)
    entries: Any = access.list()["entries"]
    plain, escaped = entries

    assert plain == {"name": "a", "type": "directory", "size": None}
    assert escaped == {"name": r"a\u3164b", "type": "file", "size": 1, "escaped": True}
    with pytest.raises(ToolError, match="listed with escapes cannot be asked for"):
        access.read(r"a\u3164b")


def test_an_access_can_be_copied_replaced_and_pickled(root: Path) -> None:
    access = FileAccess(root, allow_hidden=True, deny=("*.sec",))

    for other in (
        copy.copy(access),
        copy.deepcopy(access),
        pickle.loads(pickle.dumps(access)),
        replace(access),
    ):
        assert other == access
        assert other.read("a/t.txt")["lines"] == 3


def test_the_root_stays_the_directory_that_it_was(walked: str, root: Path, tmp_path: Path) -> None:
    (root / "ln").symlink_to(root / "a" / "t.txt")
    access = FileAccess(root)
    root.rename(tmp_path / "moved")
    (root / "a").mkdir(parents=True)
    (root / "a" / "t.txt").write_text("another", encoding="utf-8")

    assert access.read("a/t.txt")["text"] == "one\ntwo\nthree\n"
    assert access.read("ln")["text"] == "one\ntwo\nthree\n"


def test_a_relative_root_stays_where_it_was(
    walked: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "ln").symlink_to(root / "a" / "t.txt")
    monkeypatch.chdir(root.parent)
    access = FileAccess(Path("root"))
    monkeypatch.chdir("/")

    assert access.read("ln")["lines"] == 3
    assert access.read(f"{root}/a/t.txt")["lines"] == 3


def test_a_root_that_is_a_link_is_known_by_both_names(
    found: str, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "alias").symlink_to(root)
    (root / "one").symlink_to(tmp_path / "alias" / "a" / "t.txt")
    (root / "two").symlink_to(root / "a" / "t.txt")
    access = FileAccess(tmp_path / "alias")

    assert access.read("one")["lines"] == access.read("two")["lines"] == 3


@pytest.mark.parametrize(
    "path", ["{root}", "{root}/", "{root}/.", "/{root}", "{root}-evil", "{root}/../secret.txt", "/"]
)
def test_absolute_paths_are_judged_by_components(walked: str, root: Path, path: str) -> None:
    error = refusal(lambda: FileAccess(root).read(path.format(root=root)))

    assert error.code in ("not_found", "blocked", "invalid_arguments")
    assert error.code != "not_found" or "is a directory" in error.message


def test_a_link_may_point_at_the_root_itself(found: str, root: Path) -> None:
    (root / "here").symlink_to(root)
    (root / "a" / "up").symlink_to("..")

    assert FileAccess(root).read("here/a/up/here/a/t.txt")["lines"] == 3
    assert FileAccess(root).read("here/a/up/a/b/../t.txt")["lines"] == 3


def test_a_link_target_ending_in_a_slash_must_be_a_directory(walked: str, root: Path) -> None:
    (root / "file").symlink_to("a/t.txt/")
    (root / "absolute").symlink_to(f"{root}/a/t.txt/")
    (root / "directory").symlink_to("a/b/")

    assert refusal(lambda: FileAccess(root).read("file")).code == "not_found"
    assert refusal(lambda: FileAccess(root).read("absolute")).code == "not_found"
    assert FileAccess(root).list("directory")["entries"] == []


def test_an_asked_path_ending_in_a_slash_must_be_a_directory(found: str, root: Path) -> None:
    for path in ("a/t.txt/", f"{root}/a/t.txt/"):
        assert refusal(lambda p=path: FileAccess(root).read(p)).code == "not_found"
    for path in ("a/b/", f"{root}/a/b/"):
        assert FileAccess(root).list(path)["entries"] == []


def test_as_many_links_as_allowed_are_followed_and_no_more(walked: str, root: Path) -> None:
    (root / "l0").symlink_to("a/t.txt")
    for number in range(1, MAX_LINKS + 1):
        (root / f"l{number}").symlink_to(f"l{number - 1}")

    assert FileAccess(root).read(f"l{MAX_LINKS - 1}")["lines"] == 3
    assert refusal(lambda: FileAccess(root).read(f"l{MAX_LINKS}")).code == "blocked"


def test_links_that_multiply_are_walked_to_a_bound(walked: str, root: Path) -> None:
    (root / "x").symlink_to("." + "/a/.." * 600)

    assert refusal(lambda: FileAccess(root).read("x/x/x/a/t.txt")).code == "blocked"


def test_directories_are_held_to_a_bound(walked: str, root: Path) -> None:
    deep = root.joinpath(*["d"] * MAX_DEPTH)
    deep.mkdir(parents=True)
    (deep / "t.txt").write_text("deep", encoding="utf-8")
    (deep / "d").mkdir()

    access = FileAccess(root)
    with no_leak():
        assert access.read("d/" * MAX_DEPTH + "t.txt")["text"] == "deep"
        assert refusal(lambda: access.list("d/" * (MAX_DEPTH + 1))).code == "blocked"


def test_a_refusal_does_not_tell_whether_a_file_exists(found: str, root: Path) -> None:
    (root / ".env").write_text("K=1", encoding="utf-8")
    (root / "there").symlink_to("../secret.txt")
    (root / "nowhere").symlink_to("../nope.txt")
    access = FileAccess(root)

    for one, other in ((".env", ".enw"), ("x.pem", "a/x.pem"), ("there", "nowhere")):
        first, second = (
            refusal(lambda p=one: access.read(p)),
            refusal(lambda p=other: access.read(p)),
        )
        assert first.code == second.code == "blocked"


def test_every_name_on_the_way_is_judged(found: str, root: Path) -> None:
    (root / ".hidden").symlink_to("a")
    (root / "one").symlink_to(".hidden/t.txt")
    (root / "server.key").symlink_to("a/t.txt")
    (root / "two").symlink_to("server.key")
    access = FileAccess(root)

    passing = () if found == "resolved" else ("one", "two")  # it sees where a path leads
    for path in ("server.key", ".hidden/../a/t.txt", f"{root}/.hidden/t.txt", *passing):
        assert refusal(lambda p=path: access.read(p)).code == "blocked"


@pytest.mark.parametrize("value", ["1", 1.0, True, None, -1])
@pytest.mark.parametrize("name", ["offset", "limit"])
def test_numbers_are_whole_and_not_negative(root: Path, name: str, value: Any) -> None:
    access = FileAccess(root)
    if (name, value) == ("limit", None):
        assert access.read("a/t.txt", limit=None)["lines"] == 3
        return

    for call in (access.read, access.list):
        assert refusal(lambda c=call: c("a", **{name: value})).code == "invalid_arguments"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EACCES, "unavailable"),
        (errno.EPERM, "unavailable"),
        (errno.EMFILE, "unavailable"),
        (errno.EIO, "failed"),
        (errno.ESTALE, "failed"),
        (errno.ENOENT, "not_found"),
    ],
)
def test_what_the_system_says_is_said_in_own_words(
    walked: str, root: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    access = FileAccess(root)

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number), "/an/absolute/path")

    for steps in ("PathSteps", "PortableSteps"):
        monkeypatch.setattr(f"lib.tools.builtin.files.steps.{steps}.reopen", fail)
    error = refusal(lambda: access.read("a/t.txt"))

    assert error.code == code
    assert error.message.startswith("'a/t.txt' ")
    assert "absolute" not in error.message
    assert error.__cause__ is error.__context__ is None


def test_no_descriptor_is_left_open_whatever_happens(found: str, root: Path) -> None:
    (root / "out").symlink_to("../secret.txt")
    (root / "deep").symlink_to("a/b/../../a/b/../../../secret.txt")
    os.mkfifo(root / "a" / "pipe")
    (root / "bin").write_bytes(b"\0")
    access = FileAccess(root)
    with no_leak():
        access.read("a/t.txt")
        access.read("a/b/../t.txt")
        access.list("a")
        for path in ("out", "deep", "a/pipe", "bin", "a/t.txt/x", "a/b/nope", "a/x.pem", "a/b"):
            refusal(lambda p=path: access.read(p))
        spent = Budget()
        spent.cancel()
        refusal(lambda: access.read_within("a/t.txt", offset=1, budget=spent))
        refusal(lambda: access.list_within("a", budget=spent))


def test_an_open_that_cannot_be_told_about_is_closed(
    walked: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = FileAccess(root)

    def fail(handle: int) -> os.stat_result:
        raise OSError(errno.EIO, "")

    with no_leak(), monkeypatch.context() as patched:
        patched.setattr("lib.tools.builtin.files.steps.os.fstat", fail)
        assert refusal(lambda: access.read("a/t.txt")).code == "failed"
        assert refusal(lambda: access.list(".")).code == "failed"


def test_running_out_of_descriptors_is_said_and_leaves_none_behind(walked: str, root: Path) -> None:
    access = FileAccess(root)
    deep = root.joinpath(*["d"] * 40)
    deep.mkdir(parents=True)
    (deep / "t.txt").write_text("deep", encoding="utf-8")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with no_leak():
        taken = {int(line.split()[0]) for line in open_descriptors()}
        free = [number for number in range(len(taken) + 9) if number not in taken]
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[8], hard))
        try:
            error = refusal(lambda: access.read("d/" * 40 + "t.txt"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert error.code == "unavailable"
    assert access.read("d/" * 40 + "t.txt")["text"] == "deep"


def test_several_threads_may_read_and_list_at_once(walked: str, root: Path) -> None:
    for number in range(300):
        (root / "a" / f"f{number}.txt").write_text(f"{number}\n" * 50, encoding="utf-8")
    access = FileAccess(root)
    listed = access.list("a")
    wrong: list[object] = []

    def work(start: int) -> None:
        for number in range(start, start + 60):
            name = f"a/f{number % 300}.txt"
            if access.read(name)["text"] != f"{number % 300}\n" * 50 or access.list("a") != listed:
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(0, 300, 75)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


def test_a_listing_leaves_out_what_cannot_be_asked_for_by_either_name(
    found: str, root: Path
) -> None:
    for name in (".git", ".env", "id_rsa", "x.pem.bak", "ok.txt"):
        (root / "a" / "b" / name).write_text("", encoding="utf-8")
    (root / "a" / ".aws").mkdir()
    (root / "a" / ".aws" / "plain.txt").write_text("", encoding="utf-8")
    (root / "cloud").symlink_to("a/.aws")

    listed = FileAccess(root).list("a/b")["entries"]
    assert listed == [{"name": "ok.txt", "type": "file", "size": 0}]
    every: Any = FileAccess(root, allow_hidden=True, deny=()).list("a/b")["entries"]
    shown = [".env", ".git", "id_rsa", "ok.txt", "x.pem.bak"]
    assert [entry["name"] for entry in every] == shown
    open_to_hidden = FileAccess(root, allow_hidden=True)
    assert open_to_hidden.list("a/.aws")["entries"] == []
    assert open_to_hidden.list("cloud")["entries"] == []
    assert open_to_hidden.list(f"{root}/a/.aws")["entries"] == []


def test_an_absolute_listing_is_that_of_the_relative_path(found: str, tmp_path: Path) -> None:
    root = tmp_path / ".ssh" / "id_rsa"
    (root / "a").mkdir(parents=True)

    assert FileAccess(root).list(str(root))["entries"] == FileAccess(root).list()["entries"] != []


def test_a_listing_is_paged_in_a_stable_order(found: str, root: Path) -> None:
    for number in range(25):
        (root / "a" / "b" / f"{number:02d}").mkdir()
    access = FileAccess(root)

    read: list[object] = []
    offset: Any = 0
    while offset is not None:
        one: dict[str, Any] = access.list("a/b", offset=offset, limit=7)
        read += one["entries"]
        assert one["truncated"] is (one["next_offset"] is not None)
        offset = one["next_offset"]
    assert read == [
        {"name": f"{number:02d}", "type": "directory", "size": None} for number in range(25)
    ]
    assert access.list("a/b", offset=99)["entries"] == access.list("a/b", limit=0)["entries"] == []
    assert access.list("a/b", limit=10**9)["truncated"] is False


def test_a_listing_tells_types_without_following_a_link(found: str, root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "loop").symlink_to("loop")
    (root / "out").symlink_to("../secret.txt")
    (root / "dir").symlink_to("a")

    assert FileAccess(root).list() == {
        "path": ".",
        "entries": [
            {"name": "a", "type": "directory", "size": None},
            {"name": "dir", "type": "link", "size": None},
            {"name": "loop", "type": "link", "size": None},
            {"name": "out", "type": "link", "size": None},
            {"name": "pipe", "type": "other", "size": None},
        ],
        "offset": 0,
        "next_offset": None,
        "truncated": False,
    }


def test_what_is_gone_when_it_is_looked_at_is_still_listed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone:
        name = "gone.txt"

        def stat(self, *, follow_symlinks: bool) -> os.stat_result:
            raise FileNotFoundError

    @contextmanager
    def scandir(where: object) -> Generator[list[Gone]]:
        yield [Gone()]

    access = FileAccess(root)
    monkeypatch.setattr("lib.tools.builtin.files.listing.os.scandir", scandir)

    assert access.list("a")["entries"] == [{"name": "gone.txt", "type": "other", "size": None}]


def test_a_directory_of_too_many_names_is_refused(root: Path) -> None:
    error = refusal(lambda: FileAccess(root).list_within(".", budget=Budget(scan_bytes=63)))

    assert error.code == "too_large"
