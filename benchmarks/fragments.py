"""Bytes a row of a fragment beside the same rows in other files, and the processor time of each.

    python -m benchmarks.fragments [--events 1000000] [--pages 400] [--rounds 3] [--pinot-jars DIR]
                                  [--json]

The events of the other benchmarks, rolled up. `fragment` is the file that receivers map into memory, with its
index; `arrow` that file alone, `lz4` and `zstd` the same with compressed buffers, which are read into memory
of the process; `parquet` a file of history of these rows. Each is written, and read whole, in turns; shown
are the least times. With `--pinot-jars`, a folder with Apache Pinot's `pinot-segment-local` and all that it
depends on, `pinot` is the bytes of a Pinot segment of these rows, and `pinot_indexed` with inverted indexes
of its dimensions; a JDK has to be there for it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.format.aggregate import aggregate_events, merge_tables, to_plain
from rtolap.cubes.format.build_batch import encoded
from rtolap.cubes.format.fragment import open_fragment, write_fragment
from rtolap.events.decode import EventDecoder
from rtolap.model.cube import Schema

from benchmarks import events, pinot

BATCH = 50_000


class File(NamedTuple):
    write: Callable[[Path], int]  # bytes
    read: Callable[[Path], pa.Table]


def rolled_up(schema: Schema, count: int, pages: int) -> pa.Table:
    decoder, tables = EventDecoder(schema), list[pa.Table]()
    for start in range(0, count, BATCH):
        values = events.values(BATCH, start, pages=pages)
        partitions, offsets = np.zeros(BATCH, np.int32), np.arange(start, start + BATCH, dtype=np.int64)
        decoded = decoder.decode(values, partitions, offsets, now_ms=events.START_MS)
        tables += aggregate_events(schema, decoded.table).values()
    return merge_tables(schema, tables)


def files(schema: Schema, table: pa.Table) -> dict[str, File]:
    def fragment(folder: Path) -> int:
        return write_fragment(folder, "f", table, schema).bytes

    def arrow(codec: str | None) -> File:
        def write(folder: Path) -> int:
            path = folder / f"{codec}.arrow"
            options = pa.ipc.IpcWriteOptions(compression=codec)
            with (
                pa.OSFile(str(path), "wb") as sink,
                pa.ipc.new_file(sink, table.schema, options=options) as to,
            ):
                to.write_table(table)
            return path.stat().st_size

        def read(folder: Path) -> pa.Table:
            with pa.memory_map(str(folder / f"{codec}.arrow")) as source:
                return pa.ipc.open_file(source).read_all()

        return File(write, read)

    def parquet(folder: Path) -> int:
        plain = plain_rows(schema, table)
        data, _ = encoded(plain.schema, plain.to_batches())
        return (folder / "f.parquet").write_bytes(data)

    return {
        "fragment": File(fragment, lambda folder: open_fragment(folder / "f.fragment", verify=False).table),
        "arrow": arrow(None),
        "lz4": arrow("lz4"),
        "zstd": arrow("zstd"),
        "parquet": File(parquet, lambda folder: pq.read_table(folder / "f.parquet")),
    }


def touched(table: pa.Table) -> int:
    """Read each value, as an answer does: a mapped file is not read before."""
    total = 0
    for column in table.columns:
        for chunk in column.chunks:
            values = chunk.indices if pa.types.is_dictionary(chunk.type) else chunk
            total += sum(
                int(np.frombuffer(each, np.uint8).sum()) for each in values.buffers() if each is not None
            )
    return total


def plain_rows(schema: Schema, table: pa.Table) -> pa.Table:
    """Return the rows as a file of history has them."""
    target = physical_schema(schema, plain=True)
    return to_plain(schema, table.select(target.names)).cast(target).combine_chunks()


def measure(
    count: int, pages: int, rounds: int, pinot_jars: Path | None = None
) -> dict[str, dict[str, float]]:
    schema = events.schema("bench")
    table = rolled_up(schema, count, pages).combine_chunks()
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="rtolap-fragments-") as folder:
        kinds = files(schema, table)
        for _ in range(rounds):
            for kind, file in kinds.items():
                began_s = time.process_time()
                size = file.write(Path(folder))
                written_s = time.process_time()
                touched(file.read(Path(folder)))
                read_s = time.process_time()
                times = {"write_ns": written_s - began_s, "read_ns": read_s - written_s}
                a_row = {name: value / table.num_rows * 1e9 for name, value in times.items()}
                best = found.setdefault(kind, {"bytes": size / table.num_rows, **a_row})
                best |= {name: min(best[name], value) for name, value in a_row.items()}
    if pinot_jars:
        rows = plain_rows(schema, table)
        for kind, indexed in (("pinot", False), ("pinot_indexed", True)):
            size = pinot.segment_bytes(rows, schema.cube.dimensions, pinot_jars, indexed=indexed)
            found[kind] = {"bytes": size / rows.num_rows}
    return {"rows": {"rows": table.num_rows, "events": count}, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--pages", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pinot-jars", type=Path, help="Apache Pinot's jars, for its segments beside")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.events, arguments.pages, arguments.rounds, arguments.pinot_jars)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['rows']['rows']} rows of {found['rows']['events']} events; for each row:")
    for kind, figures in found.items():
        if kind != "rows":
            times = ", ".join(
                f"{name} in {figures[key]:5.0f} ns"
                for name, key in (("written", "write_ns"), ("read", "read_ns"))
                if key in figures
            )
            print(f"  {kind:<13} {figures['bytes']:6.1f} bytes{times and ', '}{times}")


if __name__ == "__main__":
    main()
