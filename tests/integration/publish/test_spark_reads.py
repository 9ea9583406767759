"""Spark without Iceberg's runtime reads the files that a snapshot names, and merges as the columns say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.cubes.staging import estimate
from tests.support.publish.published import PublishedCube

pytestmark = pytest.mark.integration


@pytest.fixture
def cube(tmp_path: Path) -> Iterator[PublishedCube]:
    made = PublishedCube(tmp_path)
    yield made
    made.close()


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    yield session
    session.stop()


def test_partials_merge_as_the_comments_of_their_columns_say(
    cube: PublishedCube, spark: SparkSession
) -> None:
    publication = cube.declared(cuboid=("shop", "day"))
    publisher = cube.publisher(publication)
    for number in (0, 1, 0, 2):
        cube.promote(number, 30, with_ids=number != 1)
        publisher.look()
    table = cube.table(publication)
    merges = {
        field.name: field.doc.partition("Spark's ")[2]
        for field in table.schema().fields
        if field.doc is not None and "Spark's" in field.doc
    }
    files = [task.file.file_path for task in table.scan().plan_files()]
    spark.read.parquet(*files).createOrReplaceTempView("history")
    columns = ", ".join(f"{merge} AS {name}" for name, merge in merges.items())
    found = spark.sql(f"SELECT shop, {columns} FROM history GROUP BY shop").collect()
    expected = {row["shop"]: row for row in cube.expected(("shop",)).to_pylist()}
    assert len(found) == len(expected) == 5
    for row in found:
        merged = row.asDict()
        merged["buyer__hll"] = estimate(bytes(merged["buyer__hll"]))
        wanted = expected[merged["shop"]]
        assert merged == {**wanted, "buyer__hll": estimate(wanted["buyer__hll"])}
