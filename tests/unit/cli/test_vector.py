"""`lib vector` moves records between stores, and shows what is in one."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import lib.vector
from lib.testing.aio import run
from lib.vector import Metric, Record, SQLiteVectorStore
from servers import postgres

from .vector_kit import call, contents, fill, lines, shop

LIB = [sys.executable, "-m", "lib.cli"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return shop(tmp_path)


def test_info_shows_what_a_store_holds_without_options(path: Path) -> None:
    result = call("info", path, "--json")

    assert (result.exit_code, lines(result)) == (
        0,
        [
            {
                "store": str(path),
                "kind": "SQLiteVectorStore",
                "dimension": 2,
                "metric": "cosine",
                "records": 3,
                "namespaces": [
                    {"namespace": "", "records": 2},
                    {"namespace": "old", "records": 1},
                ],
            }
        ],
    )
    shown = call("info", f"sqlite:///{path}").stdout
    assert "SQLiteVectorStore" in shown
    assert shown.splitlines()[-1].split() == ["old", "1"]


def test_an_empty_store_has_no_namespaces(tmp_path: Path) -> None:
    fill(tmp_path / "empty.db", {}, 7, "dot")

    assert lines(call("info", tmp_path / "empty.db", "--json"))[0]["dimension"] == 7
    assert "dot" in call("info", tmp_path / "empty.db").stdout


@pytest.mark.parametrize("command", [["info"], ["search", "--like", "x"]])
def test_looking_for_a_store_makes_none(tmp_path: Path, command: list[str]) -> None:
    missing, other = tmp_path / "nothing.db", tmp_path / "other.db"
    fill(other, {})
    before = other.read_bytes()

    for place in (missing, f"sqlite:///{other}?table=another", tmp_path):
        result = call(command[0], place, *command[1:])
        assert (result.exit_code, "there is no vector store at" in result.stderr) == (2, True)
    assert not missing.exists()
    assert other.read_bytes() == before


def test_what_is_no_database_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"not a database" * 100)
    result = call("info", tmp_path / "notes.txt")

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: vector table 'lib_vectors' in")


def test_a_copy_is_made_like_its_source_and_reported_by_namespace(
    path: Path, tmp_path: Path
) -> None:
    result = call("copy", path, f"sqlite:///{tmp_path}/new.db?table=shop", "--json")

    assert (result.exit_code, result.stderr) == (0, "")
    assert lines(result) == [
        {"namespace": "", "records": 2, "written": 2, "missing": 0},
        {"namespace": "old", "records": 1, "written": 1, "missing": 0},
    ]
    info = lines(call("info", f"sqlite:///{tmp_path}/new.db?table=shop", "--json"))
    assert (info[0]["dimension"], info[0]["metric"], info[0]["records"]) == (2, "cosine", 3)
    again = call("copy", path, f"sqlite:///{tmp_path}/new.db?table=shop", "--batch-size", 1)
    assert again.stdout.splitlines()[0].split() == ["namespace", "records", "written", "missing"]
    assert again.stdout.splitlines()[2].split() == ["old", "1", "0", "0"]


def test_chosen_namespaces_are_copied(path: Path, tmp_path: Path) -> None:
    assert call("copy", path, tmp_path / "new.db", "--namespace", "old").exit_code == 0
    assert list(contents(tmp_path / "new.db")) == ["old"]

    unknown = call("copy", path, tmp_path / "newer.db", "--namespace", "new")
    assert (unknown.exit_code, "no records in a namespace 'new'" in unknown.stderr) == (1, True)
    assert not (tmp_path / "newer.db").exists()


@pytest.mark.parametrize("same", ["{0}", "sqlite:///{0}", "{1}/../{2}/shop.db"])
def test_a_store_is_not_copied_onto_itself_whatever_it_is_called(path: Path, same: str) -> None:
    other = same.format(path, path.parent, path.parent.name)
    result = call("copy", path, other)

    assert (result.exit_code, "onto itself" in result.stderr) == (2, True)


@pytest.mark.parametrize(("dimension", "metric"), [(3, "cosine"), (2, "dot")])
def test_a_store_of_another_kind_is_left_alone(
    path: Path, tmp_path: Path, dimension: int, metric: Metric
) -> None:
    fill(tmp_path / "other.db", {}, dimension, metric)
    result = call("copy", path, tmp_path / "other.db")

    assert (result.exit_code, "store" in result.stderr) == (1, True)
    assert lines(call("info", tmp_path / "other.db", "--json"))[0]["records"] == 0


def test_records_that_are_missing_at_the_end_are_the_exit_status(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forget(*arguments: object, **options: object) -> None:
        """Lose what is to be written."""

    monkeypatch.setattr(SQLiteVectorStore, "upsert", forget)
    result = call("copy", path, tmp_path / "new.db", "--json")

    assert result.exit_code == 1
    assert [line["missing"] for line in lines(result)] == [2, 1]
    assert result.stderr == f"Error: 3 records are not in {tmp_path / 'new.db'}: copy them again\n"


def test_a_bar_is_shown_to_a_person(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    result = call("copy", path, tmp_path / "new.db")

    assert (result.exit_code, "copying" in result.stderr, "3/3" in result.stderr) == (0, True, True)


def test_a_copy_that_was_killed_goes_on(tmp_path: Path) -> None:
    records = [Record(f"{row:06}", [1.0, row], f"text {row}", {"row": row}) for row in range(6000)]
    fill(tmp_path / "big.db", {"a": records[:3000], "b": records[3000:]})
    command = [*LIB, "vector", "copy", str(tmp_path / "big.db"), str(tmp_path / "new.db")]

    with subprocess.Popen([*command, "--batch-size", "10"], stdout=subprocess.PIPE) as copying:
        while stored(tmp_path / "new.db") < 100:
            assert copying.poll() is None
            time.sleep(0.005)
        copying.kill()
    there = stored(tmp_path / "new.db")
    assert there < 6000
    done = subprocess.run([*command, "--json"], capture_output=True, encoding="utf-8", check=True)

    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["records"], line["missing"]) for line in reports] == [(3000, 0), (3000, 0)]
    assert sum(line["written"] for line in reports) == 6000 - there
    assert contents(tmp_path / "new.db") == contents(tmp_path / "big.db")


def stored(path: Path) -> int:
    """Return how many records another process has written."""

    async def counting() -> int:
        store = SQLiteVectorStore(path, dimension=2)
        if await store.existing() is None:
            return 0
        counts = [await store.count(namespace=name) for name in await store.namespaces()]
        await store.close()
        return sum(counts)

    return run(counting())


def test_records_move_through_every_kind_of_store_and_come_back_as_they_were(
    path: Path, tmp_path: Path
) -> None:
    database = postgres.fresh_url()
    stops = [
        str(path),
        f"{database}{'&' if '?' in database else '?'}table=moved",
        f"lancedb:///{tmp_path}/l?table=moved",
        f"qdrant:///{tmp_path}/q?collection=moved",
        f"chroma:///{tmp_path}/c?prefix=moved",
        f"sqlite:///{tmp_path}/back.db",
    ]

    for source, target in pairwise(stops):
        moved = call("copy", source, target, "--json")
        again = call("copy", source, target, "--json")
        assert (moved.exit_code, again.exit_code) == (0, 0), moved.stderr
        assert [line["written"] for line in lines(moved)] == [2, 1]
        assert [line["written"] for line in lines(again)] == [0, 0]
        (facts,) = lines(call("info", target, "--json"))
        assert (facts["dimension"], facts["metric"], facts["records"]) == (2, "cosine", 3)
        (like,) = lines(call("search", target, "--like", "tea", "--json"))
        assert like["id"] == "mug"
    before, after = contents(path), contents(tmp_path / "back.db")
    assert list(after) == list(before)
    for name, records in before.items():
        assert [replace(record, vector=[]) for record in after[name]] == [
            replace(record, vector=[]) for record in records
        ]
        for record, moved in zip(records, after[name], strict=True):
            assert list(moved.vector) == pytest.approx(list(record.vector), rel=1e-6)


def test_the_error_names_what_stands_in_place_of_a_vector_store(tmp_path: Path) -> None:
    notes = tmp_path / "notes.db"
    notes.touch()

    for place, message in (
        (notes, f"at {notes}: that file holds something else, as an event store for `lib store`"),
        (tmp_path, f"at {tmp_path}: that is a folder"),
        (f"qdrant:///{notes}.none", f"at qdrant:///{notes}.none\n"),
    ):
        result = call("info", place)
        assert (result.exit_code, message in result.stderr) == (2, True)
    assert (list(tmp_path.iterdir()), notes.stat().st_size) == ([notes], 0)


@pytest.mark.parametrize("scheme", ["lancedb", "qdrant", "chroma"])
def test_looking_for_a_folder_makes_none(tmp_path: Path, scheme: str) -> None:
    result = call("info", f"{scheme}:///{tmp_path}/nothing")

    assert (result.exit_code, "there is no vector store at" in result.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_looking_for_a_table_makes_none() -> None:
    database = postgres.fresh_url()
    result = call("info", database)

    assert (result.exit_code, "there is no vector store at" in result.stderr) == (2, True)
    assert call("info", database).exit_code == 2


def test_a_store_that_does_not_tell_its_dimension_asks_for_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(SQLiteVectorStore):
        existing = None  # type: ignore[assignment] - to be without it

    monkeypatch.setattr(lib.vector, "SQLiteVectorStore", Silent)

    assert "give --dimension" in call("info", path).stderr
    assert call("info", path, "--dimension", 2).exit_code == 0
    wrong = call("info", path, "--dimension", 3)
    assert (wrong.exit_code, "2-dimensional" in wrong.stderr) == (1, True)
    assert call("info", path, "--dimension", 2, "--metric", "dot").exit_code == 1


def test_the_error_names_what_a_store_lacks(path: Path) -> None:
    other = f"lancedb:///{path.with_name('lance')}"
    assert call("copy", path, other).exit_code == 0

    result = call("search", other, "a mug", "--like", "tea", "--hybrid")
    assert (result.exit_code, "LanceDBVectorStore has no full-text search" in result.stderr) == (
        1,
        True,
    )
