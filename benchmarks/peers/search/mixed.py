"""The peers of `benchmarks/search.py --mixed`: each keeps its records in files, as a user would.

Each returns what finds the 10 nearest of a tenant, what replaces a record, and a program that
writes to another table of the same place.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import apsw
import chromadb
import lancedb
import numpy as np
import pyarrow as pa
import sqlite_vec

Query: TypeAlias = Callable[[np.ndarray, int], list[int]]
Upsert: TypeAlias = Callable[[int, np.ndarray], None]
Peer: TypeAlias = tuple[Query, Upsert, str]

K, TENANTS = 10, 1_000
_CHUNK = 5_000


def sqlite_vec_file(matrix: np.ndarray, folder: Path) -> Peer:
    """A vec0 table in a file with a write-ahead log, one connection, the tenant as metadata."""
    return _sqlite_vec(matrix, folder / "vec.db", "tenant integer")


def sqlite_vec_partitions(matrix: np.ndarray, folder: Path) -> Peer:
    """The same with the tenant as partition key: fast, and 1.5 MB a tenant at 384 dimensions."""
    return _sqlite_vec(matrix, folder / "partitions.db", "tenant integer partition key")


def _sqlite_vec(matrix: np.ndarray, place: Path, tenant: str) -> Peer:
    path, dimension = str(place), matrix.shape[1]
    connection = _connected(path)
    columns = f"{tenant}, vector float[{dimension}]"
    for table in ("v", "elsewhere"):
        connection.execute(f"CREATE VIRTUAL TABLE {table} USING vec0({columns})")
    rows = ((row, row % TENANTS, vector.tobytes()) for row, vector in enumerate(matrix))
    insert = "INSERT INTO v (rowid, tenant, vector) VALUES (?, ?, ?)"
    with connection:
        connection.executemany(insert, rows)
    nearest = f"SELECT rowid FROM v WHERE vector MATCH ? AND k = {K} AND tenant = ?"

    def query(vector: np.ndarray, tenant: int) -> list[int]:
        return [row for (row,) in connection.execute(nearest, (vector.tobytes(), tenant))]

    def upsert(row: int, vector: np.ndarray) -> None:
        with connection:
            connection.execute("DELETE FROM v WHERE rowid = ?", (row,))
            connection.execute(insert, (row, row % TENANTS, vector.tobytes()))

    program = f"""
        import array
        from peers.search.mixed import _connected
        connection = _connected({path!r})
        blob = array.array("f", [1.0] * {dimension}).tobytes()
        async def write(number):
            with connection:
                connection.execute("DELETE FROM elsewhere WHERE rowid = ?", (number % 1000,))
                connection.execute(
                    "INSERT INTO elsewhere (rowid, tenant, vector) VALUES (?, 0, ?)",
                    (number % 1000, blob),
                )
    """
    return query, upsert, program


def _connected(path: str) -> apsw.Connection:
    connection = apsw.Connection(path)
    connection.enable_load_extension(True)  # noqa: FBT003 - it takes no name
    connection.load_extension(sqlite_vec.loadable_path())
    connection.set_busy_timeout(30_000)
    connection.execute("PRAGMA journal_mode = WAL")
    return connection


def lancedb_table(matrix: np.ndarray, folder: Path) -> Peer:
    """A table that is searched exactly, with an index of the tenants."""
    place, dimension = folder / "lance", matrix.shape[1]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), dimension)
    rows = np.arange(len(matrix))
    columns = {"row": rows, "tenant": rows % TENANTS, "vector": vectors}
    table = lancedb.connect(place).create_table("v", pa.table(columns))
    for column in ("tenant", "row"):
        table.create_scalar_index(column)

    def query(vector: np.ndarray, tenant: int) -> list[int]:
        search: Any = table.search(vector).distance_type("dot").limit(K).select(["row"])
        return search.where(f"tenant = {tenant}", prefilter=True).to_arrow()["row"].to_pylist()

    def upsert(row: int, vector: np.ndarray) -> None:
        one = [{"row": row, "tenant": row % TENANTS, "vector": vector}]
        merge = table.merge_insert("row").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(one)

    program = f"""
        import lancedb
        table = lancedb.connect({str(place)!r}).create_table("elsewhere", [{{"x": 0}}])
        async def write(number):
            table.add([{{"x": number}}])
    """
    return query, upsert, program


def chroma_files(matrix: np.ndarray, folder: Path) -> Peer:
    """A persistent collection: HNSW, with metadata in SQLite."""
    settings = chromadb.Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(str(folder / "chroma"), settings)
    graph = {"space": "ip", "ef_construction": 100, "ef_search": 100, "max_neighbors": 16}
    collection = client.create_collection("vectors", configuration={"hnsw": graph})  # type: ignore[arg-type] - a dict
    for start in range(0, len(matrix), _CHUNK):
        part = matrix[start : start + _CHUNK]
        rows = range(start, start + len(part))
        metas: Any = [{"tenant": row % TENANTS} for row in rows]
        collection.add(ids=[str(row) for row in rows], embeddings=part, metadatas=metas)

    def query(vector: np.ndarray, tenant: int) -> list[int]:
        found = collection.query(
            query_embeddings=vector[None], n_results=K, where={"tenant": tenant}, include=[]
        )
        return [int(name) for name in found["ids"][0]]

    def upsert(row: int, vector: np.ndarray) -> None:
        meta: Any = {"tenant": row % TENANTS}
        collection.upsert(ids=[str(row)], embeddings=vector[None], metadatas=[meta])

    program = f"""
        import chromadb
        client = chromadb.PersistentClient(
            {str(folder / "chroma")!r}, chromadb.Settings(anonymized_telemetry=False)
        )
        collection = client.get_or_create_collection("elsewhere", embedding_function=None)
        async def write(number):
            collection.upsert(ids=[str(number % 1000)], embeddings=[[1.0, 0.0]])
    """
    return query, upsert, program


PEERS: dict[str, Callable[[np.ndarray, Path], Peer]] = {
    "sqlite-vec": sqlite_vec_file,
    "sqlite-vec, partitions": sqlite_vec_partitions,
    "lancedb": lancedb_table,
    "chroma": chroma_files,
}
