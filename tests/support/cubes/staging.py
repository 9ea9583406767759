"""Raw events and staged parts made of them by DuckDB, independently of the receivers."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import datasketches
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from rtolap.aggregates.count_distinct import set_form
from rtolap.aggregates.function import LG_MAX_DEFAULT
from rtolap.columnar.schema import columns_with_statistics, physical_schema
from rtolap.cubes.format.manifest import FileEntry, StagedManifest, encode
from rtolap.model.build_spec import BuildPart, BuildSpec
from rtolap.model.cube import AggregationGroup, Cube, Measure, Schema
from rtolap.model.offsets import PartRange
from rtolap.model.segment import parse_segment_name
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.object_store.store import ObjectStore

from tests.support.aggregates.sets import set_bytes

SEGMENT = "20130101000000_20130102000000"

TABLE = Table(
    name="sales",
    topic="sales",
    time=TimeColumn("at", "epoch_ms"),
    columns=(
        Column("at", "bigint"),
        Column("shop", "string"),
        Column("day", "date"),
        Column("items", "int"),
        Column("big", "bigint"),
        Column("price", "decimal(12,2)"),
        Column("weight", "double"),
        Column("buyer", "string"),
    ),
)
CUBE = Cube(
    name="sales_cube",
    table="sales",
    dimensions=("shop", "day"),
    time_dimensions=("hour",),
    measures=(
        Measure("count"),
        Measure("avg", "items"),
        Measure("sum", "big"),
        Measure("sum", "price"),
        Measure("min", "price"),
        Measure("max", "at"),
        Measure("min", "buyer"),
        Measure("sum", "weight"),
        Measure("approx_distinct", "buyer", 10),
        Measure("avg", "price", where="shop <> 'a' AND items > 0", name="paid"),
        Measure("max", "buyer", where="shop <> 'a' AND items > 0"),
        Measure("count_distinct", "buyer"),
    ),
    aggregation_groups=(AggregationGroup(include=("hour_start", "shop", "day")),),
)
SCHEMA = Schema(TABLE, CUBE)

_RAW_FIELDS: list[tuple[str, pa.DataType]] = [
    ("hour_start", pa.timestamp("us")),
    ("at", pa.int64()),
    ("shop", pa.string()),
    ("day", pa.date32()),
    ("items", pa.int32()),
    ("big", pa.int64()),
    ("price", pa.decimal128(12, 2)),
    ("weight", pa.float64()),
    ("buyer", pa.string()),
    ("p", pa.int32()),
    ("o", pa.int64()),
]
RAW = pa.schema(_RAW_FIELDS)

# What every physical column holds, in SQL over raw events; the sketch is made beside it.
_PAID = "FILTER (shop <> 'a' AND items > 0)"
MEASURES = f"""count(*) AS __rows, sum(items)::BIGINT AS items__sum, count(items) AS items__count,
    sum(big)::DECIMAL(38,0) AS big__sum, sum(price)::DECIMAL(38,2) AS price__sum, min(price) AS price__min,
    max("at") AS at__max, min(buyer) AS buyer__min, sum(weight) AS weight__sum,
    (sum(price) {_PAID})::DECIMAL(38,2) AS paid__sum, count(price) {_PAID} AS paid__count,
    count(*) {_PAID} AS where_bcea2746__count, max(buyer) {_PAID} AS buyer_where_bcea2746__max"""


def raw_events(seed: int, partition: int, start: int, end: int, segment: str = SEGMENT) -> pa.Table:
    """Return events with nulls everywhere, negative numbers and sums beyond 64 bits; weights add up
    exactly."""
    rng = random.Random(f"{seed}/{partition}/{start}")
    base_ms = parse_segment_name(segment).start_ms

    def maybe(value: Any, share: float = 0.15) -> Any:
        return None if rng.random() < share else value

    rows = []
    for offset in range(start, end):
        at = base_ms + rng.randrange(86_400_000)
        rows.append(
            {
                "hour_start": datetime.fromtimestamp(at // 3_600_000 * 3600, UTC).replace(tzinfo=None),
                "at": at,
                "shop": maybe(rng.choice(["a", "b", "ü", ""])),
                "day": maybe(date(2011, 1, 26 + rng.randrange(3))),
                "items": maybe(rng.randrange(-50, 50)),
                "big": maybe(rng.randrange(-(2**60), 2**63 - 1)),
                "price": maybe(Decimal(rng.randrange(-99_999, 9_999_999_999)) / 100),
                "weight": maybe(rng.randrange(-1000, 1000) / 8),
                "buyer": maybe(f"buyer{rng.randrange(400)}"),
                "p": partition,
                "o": offset,
            }
        )
    return pa.Table.from_pylist(rows, RAW)


@cache
def _engine() -> duckdb.DuckDBPyConnection:
    """Return one for all: to start it costs more than most roll-ups. Each cursor of it has views of its
    own."""
    return duckdb.connect()


def roll_up(raw: pa.Table, dimensions: Sequence[str]) -> pa.Table:
    """Return an independent roll-up in the physical columns of the cube."""
    keys = ", ".join(dimensions)
    selected = f"{keys}, " if keys else ""
    tail = f"GROUP BY {keys}" if keys else "HAVING count(*) > 0"
    with _engine().cursor() as connection:
        connection.register("raw", raw)
        table: pa.Table = connection.sql(
            f"SELECT {selected}{MEASURES}, list(buyer) FILTER (buyer IS NOT NULL) AS buyers FROM raw {tail}"
        ).to_arrow_table()
    sketches = [sketch(buyers) if buyers else None for buyers in table["buyers"].to_pylist()]
    table = table.append_column("buyer__hll", pa.array(sketches, pa.binary()))
    form = set_form(TABLE.column("buyer").column_type, LG_MAX_DEFAULT, "buyer")
    sets = [set_bytes(buyers or (), form) for buyers in table["buyers"].to_pylist()]
    table = table.append_column("buyer__value_set", pa.array(sets, pa.binary()))
    return table.select(physical_schema(SCHEMA, dimensions, plain=True).names).cast(
        physical_schema(SCHEMA, dimensions, plain=True)
    )


def sketch(values: Sequence[str]) -> bytes:
    made = datasketches.hll_sketch(10, datasketches.HLL_8)
    for value in values:
        made.update(value)
    return bytes(made.serialize_compact())


def estimate(data: bytes | None) -> float | None:
    """Return the estimate that any order of updates and merges gives."""
    if data is None:
        return None
    union = datasketches.hll_union(10)
    for _ in range(2):  # merging, if only with itself, makes the estimate a function of the registers alone
        union.update(datasketches.hll_sketch.deserialize(data))
    return float(union.get_result(datasketches.HLL_8).get_estimate())


class Staging(NamedTuple):
    """An object store with parts of one segment; `of` gives the same store with another one."""

    store: ObjectStore
    uri: str
    folder: Path
    segment: str = SEGMENT

    def of(self, segment: str) -> Staging:
        return self._replace(segment=segment)

    def part(self, version: int, replica_set: str, raw: pa.Table, *ranges: PartRange) -> BuildPart:
        """Return a staged part that holds the roll-up of raw events."""
        return self.part_of(version, replica_set, roll_up(raw, CUBE.all_dimensions), raw.num_rows, *ranges)

    def part_of(
        self, version: int, replica_set: str, table: pa.Table, events: int, *ranges: PartRange
    ) -> BuildPart:
        """Return a staged part that holds these rows of the base cuboid."""
        path = f"staged/sales_cube/{self.segment}/v{version}/{replica_set}"
        files: tuple[FileEntry, ...] = ()
        if table.num_rows:
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink, write_statistics=columns_with_statistics(table.schema))
            data = sink.getvalue().to_pybytes()
            self.store.write(f"{path}/part-0.parquet", data)
            digest = hashlib.sha256(data).hexdigest()
            files = (FileEntry("part-0.parquet", table.num_rows, len(data), digest),)
        manifest = StagedManifest(
            cube="sales_cube",
            segment=self.segment,
            version=version,
            replica_set=replica_set,
            ranges=ranges,
            files=files,
            events=events,
        )
        self.store.write(f"{path}/manifest.json", encode(manifest))
        return BuildPart(replica_set, path, ranges, table.num_rows, events)

    def spec(self, build_id: str, *parts: BuildPart, version: int = 1, **more: Any) -> BuildSpec:
        range_ms = parse_segment_name(self.segment)
        self.store.claim()  # as the coordinator does that gives out specifications
        return BuildSpec(
            build_id=build_id,
            cube="sales_cube",
            segment=self.segment,
            start_ms=range_ms.start_ms,
            end_ms=range_ms.end_ms,
            version=version,
            table_definition=TABLE,
            cube_definition=CUBE,
            parts=parts,
            object_store=self.uri,
            location=f"history/sales_cube/{self.segment}/v{version}-{build_id}",
            **more,
        )
