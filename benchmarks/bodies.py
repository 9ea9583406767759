"""Bodies of loads → typed columns: rows and bytes for each second of processor time, one core.

    python -m benchmarks.bodies [--rows 500000] [--rounds 3] [--json]

10 columns, about 100 bytes a row in CSV. Beside it, in the same run, DuckDB reads the same bytes into typed
columns (one thread). The best of the rounds counts, by processor time of the process.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from rtolap.base.cycle_collection import keep_blocks
from rtolap.model.stored.schema import StoredSchema, initial_schema
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.stored.bodies.decode import decode_body
from rtolap.stored.bodies.options import load_options

_CHUNK_BYTES = 1 << 16  # as they come from a socket
_TYPES = {
    "event_time": ("timestamp", "TIMESTAMP"),
    "id": ("bigint", "BIGINT"),
    "code": ("int", "INTEGER"),
    "name": ("string", "VARCHAR"),
    "place": ("string", "VARCHAR"),
    "price": ("decimal(10,2)", "DECIMAL(10,2)"),
    "share": ("double", "DOUBLE"),
    "day": ("date", "DATE"),
    "valid": ("boolean", "BOOLEAN"),
    "note": ("string", "VARCHAR"),
}
_DUCKDB_TYPES = "{" + ", ".join(f"'{name}': '{kind}'" for name, (_, kind) in _TYPES.items()) + "}"


def schema() -> StoredSchema:
    columns = tuple(StoredColumn(name, kind) for name, (kind, _) in _TYPES.items())
    return initial_schema(StoredTable(database="bench", name="rows", columns=columns))


def rows(count: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    start = datetime(2024, 1, 1)
    seconds = pa.array(rng.integers(0, 86_400 * 300, count) * 1_000_000)
    times = pc.add(seconds.cast(pa.duration("us")), pa.scalar(start, pa.timestamp("us")))
    names = pa.array([f"customer {number}" for number in range(1000)])
    places = pa.array([f"place-{number:03}" for number in range(200)])
    notes = pa.array([f"note {number:x}" for number in range(10_000)])
    return pa.table(
        {
            "event_time": times,
            "id": rng.integers(0, 1 << 40, count),
            "code": pa.array(rng.integers(0, 1000, count), pa.int32()),
            "name": names.take(pa.array(rng.integers(0, len(names), count))),
            "place": places.take(pa.array(rng.integers(0, len(places), count))),
            "price": pa.array(rng.integers(0, 10_000_000, count) / 100).cast(pa.decimal128(10, 2)),
            "share": rng.random(count).round(6),
            "day": pc.add(
                pa.array(rng.integers(0, 300, count) * 86_400).cast(pa.duration("s")),
                pa.scalar(start, pa.timestamp("s")),
            ).cast(pa.date32()),
            "valid": rng.random(count) < 0.5,
            "note": notes.take(pa.array(rng.integers(0, len(notes), count))),
        }
    )


def csv_bytes(table: pa.Table) -> bytes:
    out = io.BytesIO()
    options = pa.csv.WriteOptions(include_header=False, quoting_style="none")
    pa.csv.write_csv(table, out, options)
    return out.getvalue()


def json_bytes(table: pa.Table, folder: Path) -> bytes:
    path = folder / "made.json"
    with duckdb.connect() as connection:
        connection.register("made", table)
        connection.execute(f"COPY made TO '{path}' (FORMAT json)")
    return path.read_bytes()


def parquet_bytes(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pa.parquet.write_table(table, out)
    return out.getvalue()


def ours(body: bytes, headers: Mapping[str, str], expected: int) -> Callable[[], None]:
    def run() -> None:
        decoded = decode_body(_chunks(body), load_options(headers), schema())
        found = sum(batch.rows.num_rows for batch in decoded)
        assert found == expected, f"{found} of {expected} rows"

    return run


def duckdb_reads(path: Path, body: bytes, reader: str, expected: int) -> Callable[[], None]:
    path.write_bytes(body)
    connection = duckdb.connect(config={"threads": 1})
    sql = f"CREATE OR REPLACE TEMP TABLE loaded AS SELECT * FROM {reader.replace('{path}', str(path))}"

    def run() -> None:
        connection.execute(sql)
        found = connection.execute("SELECT count(*) FROM loaded").fetchone()
        assert found == (expected,), f"{found} of {expected} rows"

    return run


def _chunks(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), _CHUNK_BYTES):
        yield body[start : start + _CHUNK_BYTES]


def best_s(run: Callable[[], None], rounds: int) -> float:
    spent = []
    for _ in range(rounds):
        started_s = time.process_time()
        run()
        spent.append(time.process_time() - started_s)
    return min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    keep_blocks()  # as front ends and storage nodes do
    table = rows(arguments.rows, seed=1)
    comma = {"column_separator": ","}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        csv, lines, parquet = csv_bytes(table), json_bytes(table, folder), parquet_bytes(table)
        quoted = csv_quoted(table)
        read_csv = f"read_csv('{{path}}', header=false, auto_detect=false, columns={_DUCKDB_TYPES})"
        read_json = f"read_json('{{path}}', format='newline_delimited', columns={_DUCKDB_TYPES})"
        expression = {"columns": ",".join((*list(_TYPES)[:-1], "tmp", "note=upper(tmp)"))}
        cases: list[tuple[str, bytes, Mapping[str, str], str | None]] = [
            ("csv", csv, comma, read_csv),
            ("csv, enclosed", quoted, comma | {"enclose": '"'}, None),
            ("csv, one expression", csv, comma | expression, None),
            ("json", lines, {"format": "json"}, read_json),
            ("parquet", parquet, {"format": "parquet"}, "read_parquet('{path}')"),
        ]
        figures: dict[str, dict[str, float]] = {}
        for title, body, headers, reader in cases:
            mine_s = best_s(ours(body, headers, arguments.rows), arguments.rounds)
            line = f"{title:20} {_speed(arguments.rows, len(body), mine_s)}"
            figures[title] = {"rows_per_core_s": arguments.rows / mine_s, "bytes": len(body)}
            if reader is not None:
                path = folder / title
                theirs_s = best_s(duckdb_reads(path, body, reader, arguments.rows), arguments.rounds)
                line += f"   DuckDB {_speed(arguments.rows, len(body), theirs_s)}"
                figures[title] |= {
                    "duckdb_rows_per_core_s": arguments.rows / theirs_s,
                    "ratio": theirs_s / mine_s,
                }
            if not arguments.json:
                print(line, flush=True)
    if arguments.json:
        print(json.dumps(figures))


def csv_quoted(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pa.csv.write_csv(table, out, pa.csv.WriteOptions(include_header=False, quoting_style="all_valid"))
    return out.getvalue()


def _speed(count: int, size_bytes: int, spent_s: float) -> str:
    return f"{count / spent_s / 1000:7.0f} k rows/s {size_bytes / spent_s / 1e6:5.0f} MB/s"


if __name__ == "__main__":
    main()
