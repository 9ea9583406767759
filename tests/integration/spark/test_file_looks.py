"""Executors without Python of ours say of a file what the driver would say."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rtolap.cubes.build import file_looks
from rtolap.cubes.build.session import open_session
from rtolap.cubes.format.file_states import FileState, FileToLookAt, look_here
from rtolap.model.cube import ROWS

pytestmark = pytest.mark.integration
SEED = 6012
FOLDERS = ("plain", "a+b", "k=v", "x@y~z,")
ROOT = "größe a+b 50% %20"  # a store may lie in any folder


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    SparkSession.builder.master("local[1]").config("spark.driver.memory", "700m").config(
        "spark.ui.enabled", "false"
    ).config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    session = open_session()
    yield session
    session.stop()


def written(rng: random.Random, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = rng.choice((0, 1, 40, 300, 3_000))
    table = pa.table(
        {
            "name": pa.array([rng.choice(("a", "b", None)) for _ in range(rows)], pa.string()),
            ROWS: pa.array([rng.randrange(1, 9) for _ in range(rows)], pa.int64()),
        }
    )
    pq.write_table(table, path, row_group_size=rng.choice((30, 100, 10_000)), compression="zstd")


def test_operators_and_the_driver_see_the_same_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(SEED)
    root = tmp_path / ROOT
    files = []
    for number in range(60):
        folder = rng.choice(FOLDERS)
        written(rng, root / folder / f"part-{number}.parquet")
        counts, ranges = rng.random() < 0.8, rng.random() < 0.8
        files.append(FileToLookAt(f"{folder}/part-{number}.parquet", counts, ranges))
    expected = look_here(str(root), files)
    several = [each for each in expected if isinstance(each, FileState) and each.ranges]
    assert len(several) > 5, "files of several row groups were drawn"

    def not_here(*_: object) -> None:
        raise AssertionError("the driver looked at files that executors can look at")

    monkeypatch.setattr(file_looks, "look_here", lambda store, left: not_here() if left else [])
    assert file_looks.look_by_operators(spark, str(root), files) == expected


def test_files_too_large_for_a_value_are_looked_at_here(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(SEED + 1)
    files = [FileToLookAt(f"f/part-{number}.parquet", True, True) for number in range(12)]
    for file in files:
        written(rng, tmp_path / file.path)
    sizes = sorted((tmp_path / file.path).stat().st_size for file in files)
    monkeypatch.setattr(file_looks, "WHOLE_BYTES_MAX", sizes[6])
    assert file_looks.look_by_operators(spark, str(tmp_path), files) == look_here(str(tmp_path), files)
