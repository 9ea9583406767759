"""Small builds of made-up rows: they load the classes that builds load, and an archive can be made of them.

A target of spark-submit, with the folder to write below: see `rtolap.stack.class_recording`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from rtolap.cubes.build.build import Verified, build
from rtolap.cubes.build.grouping import spark_schema
from rtolap.cubes.build.session import ROWS_SETTING, changed_settings, open_session
from rtolap.cubes.format.build_inputs import verify_inputs
from rtolap.cubes.format.staged import write_staged_part
from rtolap.model.build_spec import BuildPart, BuildSpec
from rtolap.model.cube import AggregationGroup, Cube, Measure, Schema, cuboids
from rtolap.model.offsets import PartRange
from rtolap.model.segment import SegmentRange
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.object_store.store import open_store

ROWS = 1_000
_HOUR_MS = 3_600_000
_TABLE = Table(
    name="rehearsed",
    topic="rehearsed",
    time=TimeColumn("at", "epoch_ms"),
    columns=(
        Column("at", "bigint"),
        Column("text", "string"),
        Column("number", "bigint"),
        Column("amount", "decimal(12,2)"),
    ),
)
_CUBE = Cube(
    name="rehearsed",
    table="rehearsed",
    dimensions=("text",),
    time_dimensions=("minute",),
    measures=(
        Measure("count"),
        Measure("sum", "amount"),
        Measure("max", "number"),
        Measure("approx_distinct", "number", 10),
    ),
    aggregation_groups=(AggregationGroup(include=("minute_start", "text")),),
)
_SCHEMA = Schema(_TABLE, _CUBE)


def rehearse(spark: SparkSession, folder: Path) -> int:
    """Stage rows, and build a version of them in memory and one through files. Returns how many events the
    two hold."""
    address = (folder / "store").as_uri()
    store = open_store(address)
    store.claim()
    specs = []
    for number, (start, end) in enumerate(((0, ROWS), (ROWS, 2 * ROWS))):
        segment = SegmentRange(number * _HOUR_MS, (number + 1) * _HOUR_MS)
        staged = write_staged_part(
            store,
            schema=_SCHEMA,
            cube=_CUBE.name,
            segment=segment.name,
            version=1,
            replica_set="rs",
            ranges=(PartRange(0, start, end),),
            tables=[staged_rows(spark)],
            events=ROWS,
            unique="u",
        )
        spec = BuildSpec(
            build_id=f"b{number}",
            cube=_CUBE.name,
            segment=segment.name,
            start_ms=segment.start_ms,
            end_ms=segment.end_ms,
            version=1,
            table_definition=_TABLE,
            cube_definition=_CUBE,
            parts=(BuildPart("rs", staged.path, staged.ranges, staged.rows, staged.events),),
            first_offsets={0: start},
            covered={0: end},
            object_store=address,
            location=f"history/{_CUBE.name}/{segment.name}/v1-b{number}",
        )
        specs.append(Verified(spec, verify_inputs(store, spec)))
    built = list(build(spark, specs))
    with changed_settings(spark, {ROWS_SETTING: "0"}):
        built = list(build(spark, specs))
    return sum(manifest.events for _, manifest in built)


def staged_rows(spark: SparkSession) -> pa.Table:
    """Return rows of the base cuboid."""
    columns = spark_schema(_SCHEMA, cuboids(_CUBE)[0])
    made = {
        "minute_start": F.timestamp_seconds(F.col("id") % 60 * 60),
        "text": F.col("id") % 7,
        "__rows": F.lit(1),
        "amount__sum": F.col("id"),
        "number__max": F.col("id"),
        "number__hll": F.hll_sketch_agg("id", 10).over(Window.partitionBy("id")),
    }
    rows = spark.range(ROWS).select(
        *(made[field.name].cast(field.dataType).alias(field.name) for field in columns)
    )
    return rows.toArrow()


if __name__ == "__main__":
    rehearse(open_session(), Path(sys.argv[1]))
