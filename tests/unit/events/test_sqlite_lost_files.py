"""A SQLite file that is deleted, moved or replaced while a store has it open."""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from lib.errors import StoreCorrupt, StoreError
from lib.events import SQLiteEventStore
from lib.events.runs import RunQuery
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.testing.agents import make_engine
from lib.testing.aio import run
from lib.testing.event_store.kit import begin, note
from lib.tools import tool

from .sqlite_kit import made

LOG = "log.db"


def _unlink(path: Path) -> None:
    path.unlink()


def _unlink_all(path: Path) -> None:
    for each in path.parent.glob(f"{LOG}*"):
        each.unlink()


def _move(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def _move_its_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def _delete_its_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def _replace_by_a_copy(path: Path) -> None:
    copy = path.with_name("copy.db")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


def _replace_by_a_store(path: Path) -> None:
    made(path.with_name("other.db"))
    path.with_name("other.db").replace(path)


def _replace_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _unlink_the_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def _replace_the_log(path: Path) -> None:
    wal = Path(f"{path}-wal")
    copy = path.with_name("copy-wal")
    copy.write_bytes(wal.read_bytes())
    copy.replace(wal)


def _unlink_the_index(path: Path) -> None:
    Path(f"{path}-shm").unlink()


def _turn_a_link(path: Path) -> None:
    path.rename(path.with_name("moved.db"))
    made(path.with_name("other.db"))
    path.symlink_to(path.with_name("other.db"))


MISHAPS: dict[str, Callable[[Path], None]] = {
    mishap.__name__.strip("_"): mishap
    for mishap in (
        _unlink,
        _unlink_all,
        _move,
        _move_its_folder,
        _delete_its_folder,
        _replace_by_a_copy,
        _replace_by_a_store,
        _replace_by_a_folder,
        _empty,
        _unlink_the_log,
        _replace_the_log,
        _unlink_the_index,
        _turn_a_link,
    )
}


@pytest.mark.parametrize("mishap", MISHAPS.values(), ids=MISHAPS)
async def test_nothing_is_confirmed_that_only_a_nameless_file_holds(
    tmp_path: Path, mishap: Callable[[Path], None]
) -> None:
    path = tmp_path / "folder" / LOG
    path.parent.mkdir()

    found: list[StoreError | str] = []
    store = SQLiteEventStore(path)
    await store.setup()
    await begin(store, "run")
    reader = SQLiteEventStore(path, read_only=True)
    await reader.setup()
    [lease] = await store.claim("me", ttl_s=30)
    await asyncio.to_thread(mishap, path)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "append": lambda: store.append("run", [note()], expected=1),
        "again": lambda: store.append("run", [note()], expected=1),
        "start": lambda: begin(store, "other"),
        "claim": lambda: store.claim("me", ttl_s=30),
        "renew": lambda: store.renew(lease, ttl_s=30),
        "set_mark": lambda: store.set_mark("name", "value"),
        "erase": lambda: store.erase("run"),
        "read": lambda: store.read("run"),
        "runs": lambda: store.runs(RunQuery()),
        "feed": store.feed,
        "mark": lambda: store.mark("name"),
        "schema_version": store.schema_version,
        "read of a reader": lambda: reader.read("run"),
    }
    for name, call in calls.items():
        try:
            found.append(f"{name}: {await call()}")
        except StoreError as error:
            found.append(error)
    await store.close()
    await reader.close()
    outcomes = found
    assert [type(each) for each in outcomes] == [StoreCorrupt] * 13, outcomes
    assert not any(each.retryable for each in outcomes if isinstance(each, StoreError))


@pytest.mark.parametrize("mishap", [_unlink_all, _replace_by_a_store, _move])
def test_an_engine_makes_no_effect_after_its_file_was_lost(
    tmp_path: Path, mishap: Callable[[Path], None]
) -> None:
    path = tmp_path / LOG
    effects: list[int] = []

    @tool(effects="once")
    async def pay(number: int) -> str:
        """Pay once."""
        effects.append(number)
        if number == 3:
            await asyncio.to_thread(mishap, path)
        return "paid"

    async def main() -> None:
        calls = [Reply((ToolCall(f"c{n}", "pay", {"number": n}),)) for n in range(9)]
        model = ScriptedClient([*calls, "done"])
        async with make_engine(model, pay, store=SQLiteEventStore(path)) as engine:
            started = await engine.start("go")
            with pytest.raises(StoreCorrupt):
                await started.result()
            with pytest.raises(StoreCorrupt):
                await engine.start("go on")

    run(main())
    assert effects == [0, 1, 2, 3]


async def test_a_store_goes_on_by_any_name_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "folder" / LOG)

    stores = [SQLiteEventStore(name) for name in (LOG, link, Path("..") / "link.db")]
    for number, store in enumerate(stores):
        await store.setup()
        await begin(store, f"run-{number}")
    os.chdir(tmp_path)
    for number, store in enumerate(stores):
        await store.append(f"run-{number}", [note()], expected=1)
        assert len(await store.runs()) == len(stores)
        await store.close()


async def test_a_lost_file_put_back_is_the_store_again(tmp_path: Path) -> None:
    path, aside = tmp_path / LOG, tmp_path / "aside.db"

    store = SQLiteEventStore(path)
    await store.setup()
    await begin(store, "run")
    await asyncio.to_thread(path.rename, aside)
    with pytest.raises(StoreCorrupt, match="deleted, moved or replaced"):
        await store.append("run", [note("lost")], expected=1)
    await asyncio.to_thread(aside.rename, path)
    await store.append("run", [note("kept")], expected=1)

    assert [event.data.get("text") for event in await store.read("run")] == [None, "kept"]
    await store.close()


async def test_closing_a_store_without_its_file_leaves_the_folder_alone(tmp_path: Path) -> None:
    store = SQLiteEventStore(tmp_path / LOG)
    await store.setup()
    await begin(store, "run")
    await store.erase("run")
    await asyncio.to_thread(_unlink_all, tmp_path / LOG)
    await store.close()
    assert list(tmp_path.iterdir()) == []
