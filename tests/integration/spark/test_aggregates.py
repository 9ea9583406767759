"""Spark merges the partials of every aggregate function of the registry as receivers do."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rtolap.aggregates.approx_top_k import ApproxTopK, FrequentValues
from rtolap.aggregates.count_distinct import CountDistinct
from rtolap.column_types import BINARY
from rtolap.columnar.hll_image import estimate
from rtolap.columnar.top_k import most_frequent, sketch_frequencies
from rtolap.cubes.build.grouping import group_rows
from rtolap.cubes.build.session import open_session
from rtolap.cubes.format.aggregate import aggregate_events, merge_tables, to_plain
from rtolap.cubes.format.build_batch import CUBOID_COLUMN, SEGMENT_COLUMN
from rtolap.model.cube import Cuboid, Measure

from tests.support.aggregates.measured import (
    MEASURED,
    SCHEMA,
    comparable,
    made_schema,
    measured_events,
)
from tests.support.query.query_world import value_text

pytestmark = pytest.mark.integration
SEED = 4747


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    SparkSession.builder.master("local[1]").config("spark.driver.memory", "700m").config(
        "spark.ui.enabled", "false"
    ).config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    session = open_session()
    yield session
    session.stop()


def rows_of(table: pa.Table) -> list[str]:
    """Rows in a stable order, sketches as their estimates: Spark's bytes are other ones."""
    sketches = {p.name for p in SCHEMA.partials if p.accumulator.relative_error}
    return sorted(
        repr([estimate(v) if k in sketches and v is not None else v for k, v in row.items()])
        for row in comparable(table).to_pylist()
    )


def test_spark_merges_every_partial_as_receivers_do(spark: SparkSession) -> None:
    rng = random.Random(SEED)
    events = measured_events(rng, 300, limits=True)
    cuts = sorted(rng.randrange(events.num_rows) for _ in range(4))
    parts = [events.slice(start, 100) for start in (0, *cuts)]  # some events twice: more to merge
    local = [table for part in parts for table in aggregate_events(SCHEMA, part).values()]
    plain = pa.concat_tables([to_plain(SCHEMA, table) for table in local])
    expected = to_plain(SCHEMA, merge_tables(SCHEMA, local))
    rows = plain.append_column(SEGMENT_COLUMN, pa.array([0] * plain.num_rows, pa.int32()))
    grouped = group_rows(spark, SCHEMA, (Cuboid(SCHEMA.cube.all_dimensions),), rows)
    assert grouped.num_rows < plain.num_rows
    built = grouped.drop_columns([SEGMENT_COLUMN, CUBOID_COLUMN]).select(expected.column_names)
    assert rows_of(built.cast(expected.schema)) == rows_of(expected)


def test_spark_marks_sets_with_too_many_values_as_receivers_do(spark: SparkSession) -> None:
    columns = [each.column for each in MEASURED if isinstance(each.function, CountDistinct)]
    schema = made_schema((Measure("count"), *(Measure("count_distinct", name, lg_max=4) for name in columns)))
    events = measured_events(random.Random(SEED), 250, limits=True)
    parts = [events.slice(start, 60) for start in range(0, 250, 40)]  # some events twice
    local = [table for part in parts for table in aggregate_events(schema, part).values()]
    plain = pa.concat_tables([to_plain(schema, table) for table in local])
    dimensions = ("shop", "region")
    expected = to_plain(schema, merge_tables(schema, local, dimensions))
    marked = {
        name: {
            set_bytes[:1] == b"\xfe" for set_bytes in expected[f"{name}__value_set"].to_pylist() if set_bytes
        }
        for name in columns
    }
    assert marked["text"] == marked["born"] == marked["seen"] == {False, True}
    rows = plain.append_column(SEGMENT_COLUMN, pa.array([0] * plain.num_rows, pa.int32()))
    grouped = group_rows(spark, schema, (Cuboid(schema.cube.all_dimensions), Cuboid(dimensions)), rows)
    built = grouped.filter(pc.equal(grouped[CUBOID_COLUMN], 1)).select(expected.column_names)
    assert rows_of(built.cast(expected.schema)) == rows_of(expected)


def test_spark_keeps_the_bounds_of_frequent_values_where_sketches_drop_some(spark: SparkSession) -> None:
    columns = [each.column for each in MEASURED if isinstance(each.function, ApproxTopK)]
    schema = made_schema((Measure("count"), *(Measure("approx_top_k", name, k=8) for name in columns)))
    events = measured_events(random.Random(SEED), 400, limits=True)
    parts = [events.slice(start, 60) for start in range(0, 400, 60)]
    local = [table for part in parts for table in aggregate_events(schema, part).values()]
    rows = pa.concat_tables([to_plain(schema, table) for table in local])
    rows = rows.append_column(SEGMENT_COLUMN, pa.array([0] * rows.num_rows, pa.int32()))
    cuboids = (Cuboid(schema.cube.all_dimensions), Cuboid(("shop",)))
    grouped = group_rows(spark, schema, cuboids, rows)
    built = grouped.filter(pc.equal(grouped[CUBOID_COLUMN], 1)).to_pylist()
    assert len(built) == 4
    form, dropping = FrequentValues(8), 0
    for row, name in ((row, name) for row in built for name in columns):
        values = [
            value_text(value)
            for shop, value in zip(events["shop"].to_pylist(), events[name].to_pylist(), strict=True)
            if shop == row["shop"] and value is not None
        ]
        counts = Counter(values)
        held = most_frequent([row[f"{name}__top_k"]], form.values_max)
        error = held[0].upper - held[0].lower
        assert error <= form.count_error * len(values)
        dropping += error > 0
        assert all(each.lower <= counts[each.value] <= each.upper for each in held), (row["shop"], name)
        missing = set(counts) - {each.value for each in held}
        assert all(counts[value] <= error for value in missing), (row["shop"], name)
    assert dropping


def test_a_spark_that_writes_sketches_in_another_form_is_named(spark: SparkSession) -> None:
    (image,) = sketch_frequencies(pa.array(["a", "b"]), np.zeros(2, np.int64), 1, 4).to_pylist()
    spark.createDataFrame([(image,)], "c binary").createOrReplaceTempView("frequent")
    merge = FrequentValues(8).spark_merge("c", BINARY)
    start, end = merge.index("approx_top_k_combine("), merge.index(".sketch") + len(".sketch")
    other = f"{merge[:start]}max(c){merge[end:]}"  # nothing behind the sketch
    assert [row[0] for row in spark.sql(f"SELECT {merge} FROM frequent").collect()] != [None]
    with pytest.raises(PySparkException, match=r"this Spark writes sketches in another form, use Spark 4\.3"):
        spark.sql(f"SELECT {other} FROM frequent").collect()
