"""Tests what all commands share: the order of options, the environment's store, prefixes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from lib.cli import main
from lib.cli.options import ORDER, in_order
from lib.cli.stores import StoreCommand, StoreParam
from lib.cli.vector_stores import StoreParam as VectorStoreParam
from lib.events import SQLiteEventStore
from lib.testing.aio import run
from lib.testing.event_store.kit import begin
from lib.vector import FileVectorStore, Record


def call(*words: object, **options: Any) -> Result:
    return CliRunner().invoke(main, [*map(str, words)], catch_exceptions=False, **options)


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, *path, name)
        else:
            yield " ".join([*path, name]), found


ALL = dict(commands(main))


def test_options_stand_in_one_order_in_all_commands():
    shuffled = dict[str, list[str]]()
    for name, command in ALL.items():
        options = [each.name or "" for each in command.params if isinstance(each, click.Option)]
        if options != sorted(options, key=ORDER.index):
            shuffled[name] = options

    assert len(ALL) > 12
    assert shuffled == {}


def test_the_order_has_each_option_once_and_none_that_no_command_takes():
    taken = {each.name for command in ALL.values() for each in command.params}

    assert len(set(ORDER)) == len(ORDER)
    assert set(ORDER) - taken == set()
    with pytest.raises(ValueError, match="not in tuple"):
        in_order([click.Option(["--unheard-of"])])


def test_every_command_with_a_store_takes_it_from_the_environment():
    without = [
        name
        for name, command in ALL.items()
        for each in command.params
        if isinstance(each.type, StoreParam | VectorStoreParam)
        and each.name not in ("vectors", "target")
        and not (isinstance(command, StoreCommand) or each.envvar == "LIB_STORE")
    ]

    assert without == []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of two runs."""
    path = tmp_path / "runs.db"

    async def fill() -> None:
        store = SQLiteEventStore(path)
        await store.setup()
        for run_id in ("alpha-1", "alpha-2", "beta-1"):
            await begin(store, run_id, end=True, tenant="acme", input=[])
        await store.close()

    run(fill())
    return path


def ids(path: Path) -> list[str]:
    listed = call("store", "runs", path, "--json").stdout.splitlines()
    return sorted(json.loads(line)["run"] for line in listed)


def test_runs_are_erased_from_the_store_of_the_environment(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LIB_STORE", str(path))

    counted = call("privacy", "erase-run", "--json", "alpha-1", "--dry-run")
    assert (counted.exit_code, json.loads(counted.stdout)["runs"]) == (0, 1)
    erased = call("privacy", "erase-run", "alpha-1", "--yes", "--json")
    assert (erased.exit_code, json.loads(erased.stdout)["runs"]) == (0, 1)
    assert ids(path) == ["alpha-2", "beta-1"]
    assert call("privacy", "expire", "--older-than", "30d", "--yes").exit_code == 0
    assert call("privacy", "erase-tenant", "acme", "--yes").exit_code == 0
    assert ids(path) == []
    assert "Missing argument 'RUN'" in call("privacy", "erase-run").stderr


def test_a_run_is_erased_by_a_prefix_of_its_id_and_its_whole_id_is_shown(path: Path):
    several = call("privacy", "erase-run", path, "alpha", "--yes")
    assert (several.exit_code, "is the beginning of 2 runs" in several.stderr) == (1, True)
    refused = call("privacy", "erase-run", path, "be", input="n\n")
    assert (refused.exit_code, "be is run beta-1" in refused.stderr) == (1, True)
    assert len(ids(path)) == 3

    erased = call("privacy", "erase-run", path, "be", "--yes")

    assert (erased.exit_code, "be is run beta-1" in erased.stderr) == (0, True)
    assert ids(path) == ["alpha-1", "alpha-2"]
    again = call("privacy", "erase-run", path, "beta-1", "--yes")
    assert "is run" not in again.stderr


@pytest.mark.parametrize("variable", ["LIB_STORE", "LIB_VECTOR_STORE"])
def test_vector_commands_take_their_store_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
):
    path = tmp_path / "vectors.db"

    async def fill() -> None:
        async with FileVectorStore(str(path), dimension=2) as store:
            await store.setup()
            await store.upsert([Record("a", [1.0, 0.0], text="tea"), Record("b", [0.0, 1.0])])

    run(fill())
    monkeypatch.setenv("LIB_STORE", str(tmp_path / "other.db"))
    monkeypatch.setenv(variable, str(path))

    assert json.loads(call("vector", "info", "--json").stdout)["records"] == 2
    near = ["--vector", "[1, 0]", "--json", "-k", 1]
    words = ["tea", "--hybrid"]
    for typed in (["search", *near], ["search", path, *near], ["search", *words, *near]):
        found = call("vector", *typed)
        assert [json.loads(line)["id"] for line in found.stdout.splitlines()] == ["a"], typed
    whole = call("vector", "search", path, *words, *near)
    assert [json.loads(line)["id"] for line in whole.stdout.splitlines()] == ["a"]
    assert call("vector", "copy", tmp_path / "copy.db", "--json").exit_code == 0
    assert json.loads(call("vector", "info", tmp_path / "copy.db", "--json").stdout)["records"] == 2
