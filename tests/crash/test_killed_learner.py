"""A process is killed while it learns codes: the file is whole, and no answer is wrong."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.unit.vector.stores.sqlite_codes_kit import parts

from lib.vector import InMemoryVectorStore

sys.path.insert(0, str(Path(__file__).parent))

from learner import DIMENSION, SIZE, Learner, record

LEARNER = Path(__file__).with_name("learner.py")
MOMENTS = (1, 2, 3, 4, 6, 7, 8)  # answers, of which the second of five makes it learn


async def test_a_file_is_whole_and_answers_right_each_time_a_learner_was_killed(
    tmp_path: Path, unmeasured: dict[str, str]
) -> None:
    path, coded = tmp_path / "vectors.db", list[int]()
    async with Learner(path, dimension=DIMENSION) as store:
        await store.upsert([record(row, 0) for row in range(SIZE)])
    reader = Learner(path, dimension=DIMENSION)
    for moment in MOMENTS:
        killed_while_learning(path, moment, unmeasured)

        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        coded.append(sum(map(len, parts(path))))
        same = InMemoryVectorStore(DIMENSION)
        async with Learner(path, dimension=DIMENSION) as cold:
            await same.upsert(await cold.scan(limit=SIZE + 1))
            query = record(7, moment).vector
            expected = await same.query(query, 50)
            for each in (cold, reader):
                assert await each.query(query, 50) == expected
                assert await each.count() == SIZE
    await reader.close()
    assert any(coded)


def killed_while_learning(path: Path, answers: int, env: dict[str, str]) -> None:
    """Kill a learner after so many answers."""
    command = [sys.executable, str(LEARNER), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, encoding="utf-8") as process:
        assert process.stdout is not None
        for number in range(answers):
            assert process.stdout.readline() == f"{number}\n"
        process.kill()
