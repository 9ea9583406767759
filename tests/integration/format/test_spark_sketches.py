"""Spark's own HLL functions read our bytes, and ours read Spark's, with equal estimates."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from rtolap.columnar.hll import coupons
from rtolap.columnar.hll_image import estimate, image_of_coupons, merge_sketches

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()


def _image(first: int, end: int) -> bytes:
    values = pa.array([f"u{number}" for number in range(first, end)], pa.string())
    return image_of_coupons(coupons(values).drop_null().to_numpy(), 12)


@pytest.mark.parametrize("count", [0, 3, 384, 400, 20_000])
def test_spark_and_rtolap_agree_on_every_mode(spark: SparkSession, count: int) -> None:
    ours, other = _image(0, count), _image(count // 2, count + count // 2)
    (row,) = spark.sql(
        f"SELECT hll_sketch_estimate(x'{ours.hex()}') AS estimate,"
        f" hll_union(x'{ours.hex()}', x'{other.hex()}') AS merged,"
        f" (SELECT hll_sketch_agg(concat('u', id), 12) FROM range({count})) AS theirs"
    ).collect()
    assert row.estimate == round(estimate(ours))
    assert merge_sketches([bytes(row.theirs)]) == ours
    assert merge_sketches([bytes(row.merged)]) == merge_sketches([ours, other])
    assert estimate(bytes(row.merged)) == estimate(merge_sketches([ours, other]))
