"""The cost of one tablet: rows written, published, read and merged, and bytes a row, beside Parquet.

    python -m benchmarks.tablet [--rows 2000000] [--json]

One process, one thread of ours. The figures of docs/decisions/0011-storage-engine.md come from here.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rtolap.model.predicate import Compare, Predicate
from rtolap.model.stored.schema import StoredSchema, initial_schema
from rtolap.model.stored.table import StoredColumn, StoredTable, TableModel
from rtolap.stored.engine.files.writer import BLOCK_ROWS
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.engine.tablet import Tablet

BATCH_ROWS = 65_536
LOADS = 8
_COLUMNS = (
    StoredColumn("id", "bigint", nullable=False),
    StoredColumn("host", "string"),
    StoredColumn("path", "string"),
    *(StoredColumn(f"n{at}", "bigint") for at in range(6)),
    StoredColumn("cost", "decimal(18,2)"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rtolap-tablet-"))
    try:
        figures = measure(folder, chosen.rows)
    finally:
        shutil.rmtree(folder)
    if chosen.json:
        print(json.dumps(figures))
        return
    for name, values in figures.items():
        print(f"{name:<28}" + "  ".join(f"{key} {value:,.1f}" for key, value in values.items()))


def measure(folder: Path, rows: int) -> dict[str, dict[str, float]]:
    batches = make_batches(rows)
    whole = pa.Table.from_batches(batches).sort_by("id").combine_chunks()
    figures: dict[str, dict[str, float]] = {
        "Arrow IPC, plain": of_ipc(folder / "plain", whole, None),
        "Arrow IPC, lz4": of_ipc(folder / "lz4", whole, "lz4"),
        "Parquet, zstd": of_parquet(folder / "parquet", whole),
    }
    for compression in (None, "lz4"):
        settings = TabletSettings(load_compression=compression)
        name = f"duplicate, {compression or 'plain'}"
        figures[name] = of_tablet(folder / name, "duplicate", batches, settings)
    models: tuple[TableModel, ...] = ("aggregate", "unique")
    for model in models:
        figures[model] = of_tablet(folder / model, model, batches, TabletSettings())
    figures["tenth, two columns"] = of_overwriting(folder / "partial", whole, ["id", "n0"])
    figures["tenth, all columns"] = of_overwriting(folder / "whole", whole, whole.column_names)
    return figures


def of_overwriting(folder: Path, whole: pa.Table, columns: list[str]) -> dict[str, float]:
    """Overwrite a tenth of the rows of a unique table, spread over all of it; return the ms to load and to
    publish them."""
    tablet = Tablet.create(folder, schema_of("unique"))
    kept = whole.set_column(0, "id", pa.array(np.arange(whole.num_rows)))
    chosen = np.random.default_rng(2).choice(whole.num_rows, whole.num_rows // 10, replace=False)

    def load(txn: int, table: pa.Table) -> None:
        transaction = tablet.begin(txn, partial=len(table.column_names) < len(whole.column_names))
        for batch in table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS):
            transaction.add_rows(batch)
        transaction.prepare()

    load(1, kept)
    tablet.publish(1, 1)
    some = kept.take(pa.array(chosen)).select(columns)
    figures = {"load ms": 1e3 * timed(lambda: load(2, some))}
    figures["publish ms"] = 1e3 * timed(lambda: tablet.publish(2, 2))
    tablet.close()
    return figures


def of_ipc(path: Path, whole: pa.Table, compression: str | None) -> dict[str, float]:
    """Return figures of a file's bytes alone: M rows/s, bytes a row, one block of `BLOCK_ROWS`."""

    def write() -> None:
        options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
        with (
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, whole.schema, options=options) as writer,
        ):
            writer.write_table(whole, BLOCK_ROWS)

    def opened() -> pa.RecordBatchFileReader:
        return pa.ipc.open_file(pa.memory_map(str(path)), options=pa.ipc.IpcReadOptions(use_threads=False))

    def read() -> int:
        return touched(opened().read_all())

    return {
        "write M/s": whole.num_rows / timed(write) / 1e6,
        "read M/s": whole.num_rows / timed(read) / 1e6,
        "one block ms": 1e3 * timed(lambda: touched(pa.Table.from_batches([opened().get_batch(3)]))),
        "B/row": path.stat().st_size / whole.num_rows,
    }


def touched(table: pa.Table) -> int:
    """Look at every byte: a mapped file is not read before."""
    buffers = (each for column in table.columns for chunk in column.chunks for each in chunk.buffers())
    return sum(int(np.frombuffer(each, np.uint8).max(initial=0)) for each in buffers if each is not None)


def of_tablet(
    folder: Path, model: TableModel, batches: list[pa.RecordBatch], settings: TabletSettings
) -> dict[str, float]:
    """Return M rows/s; ms for one key; bytes a row as loaded and as compacted."""
    rows = sum(batch.num_rows for batch in batches)
    tablet = Tablet.create(folder, schema_of(model), settings)

    def load() -> None:
        for txn in range(LOADS):
            transaction = tablet.begin(txn)
            for batch in batches[txn::LOADS]:
                transaction.add_rows(batch)
            transaction.prepare()

    def publish() -> None:
        for txn in range(LOADS):
            tablet.publish(txn, txn + 1)

    def read(predicate: Predicate | None = None) -> int:
        with tablet.pin() as snapshot:
            return sum(batch.num_rows for batch in snapshot.read(predicate=predicate))

    def compact() -> None:
        while tablet.compact():
            pass

    key = batches[0].column("id")[0].as_py()
    figures = {"write M/s": rows / timed(load) / 1e6, "publish M/s": rows / timed(publish) / 1e6}
    figures["B/row"] = tablet.status().bytes / max(1, tablet.status().rows)
    figures["read M/s"] = rows / timed(read) / 1e6
    figures["one key ms"] = 1e3 * timed(lambda: read(Compare("id", "eq", key)))
    figures["compact M/s"] = rows / timed(compact) / 1e6
    figures["B/row after"] = tablet.status().bytes / max(1, tablet.status().rows)
    figures["read after M/s"] = tablet.status().rows / timed(read) / 1e6
    tablet.close()
    return figures


def of_parquet(path: Path, whole: pa.Table) -> dict[str, float]:
    def write() -> None:
        pq.write_table(whole, path, compression="zstd", row_group_size=8 * BLOCK_ROWS)

    def one_block() -> int:
        return touched(pq.ParquetFile(path).read_row_group(0, use_threads=False).slice(0, BLOCK_ROWS))

    return {
        "write M/s": whole.num_rows / timed(write) / 1e6,
        "read M/s": whole.num_rows / timed(lambda: touched(pq.read_table(path, use_threads=False))) / 1e6,
        "one block ms": 1e3 * timed(one_block),
        "B/row": path.stat().st_size / whole.num_rows,
    }


def make_batches(rows: int) -> list[pa.RecordBatch]:
    """Make seeded batches with ids in no order, each about twice."""
    rng = np.random.default_rng(1)
    hosts = pa.array([f"host-{at:05d}.example" for at in range(5000)])
    paths = pa.array([f"/shop/item/{at}" for at in range(20_000)])
    batches = []
    for start in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - start)
        columns: dict[str, pa.Array] = {
            "id": pa.array(rng.integers(0, rows // 2, count)),
            "host": hosts.take(pa.array(rng.integers(0, len(hosts), count))),
            "path": paths.take(pa.array(rng.integers(0, len(paths), count))),
        }
        for at in range(6):
            columns[f"n{at}"] = pa.array(rng.integers(0, 10 ** (at + 2), count))
        cents = pa.array(rng.integers(0, 10**6, count)).cast(pa.decimal128(19, 0))
        columns["cost"] = cents.cast(pa.decimal128(18, 2))
        batches.append(pa.record_batch(columns))
    return batches


def schema_of(model: TableModel) -> StoredSchema:
    def column(definition: StoredColumn) -> StoredColumn:
        if model != "aggregate" or definition.name == "id":
            return definition
        function = "REPLACE" if definition.type == "string" else "SUM"
        return StoredColumn(definition.name, definition.type, aggregate=function)  # type: ignore[arg-type]

    columns = tuple(column(each) for each in _COLUMNS)
    return initial_schema(StoredTable(database="b", name="t", model=model, keys=("id",), columns=columns))


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that the work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
