"""An object store of a test's own, and spark-submit."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from rtolap.model.build_spec import BuildSpec
from rtolap.object_store.store import open_store

from tests.support.cubes.staging import Staging
from tests.support.runs import spark_drivers

PROJECT = Path(__file__).resolve().parents[3]
BUILD_JOB = PROJECT / "spark_jobs" / "build_segment.py"


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    uri = (tmp_path / "ein Stück 50%").as_uri()
    return Staging(open_store(uri), uri, tmp_path / "ein Stück 50%")


class Submitted(NamedTuple):
    exit_code: int
    progress: list[dict[str, Any]]
    errors: str

    def last(self, build_id: str) -> dict[str, Any]:
        return [line for line in self.progress if line["build_id"] == build_id][-1]


@pytest.fixture
def submit_command() -> Callable[..., tuple[list[str], dict[str, str]]]:
    return spark_submit


def spark_submit(
    *arguments: str,
    in_files: bool = False,
    python: bool = True,
    looked_at_here: bool = True,
    job: Path = BUILD_JOB,
) -> tuple[list[str], dict[str, str]]:
    """`in_files`: as large batches are built; small ones are grouped in the driver's memory. Without `python`
    as by executors that run none of ours; `looked_at_here`: the driver reads files to verify them."""
    submit = Path(sys.executable).parent / "spark-submit"
    command = [str(submit), "--master", "local[2]", "--driver-memory", "700m"]
    command += ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    command += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.sql.shuffle.partitions=2"]
    if in_files:
        command += ["--conf", "spark.rtolap.rowsInMemoryMax=0"]
    if not python:
        command += ["--conf", "spark.rtolap.executorsRunPython=false"]
    if not looked_at_here:
        command += ["--conf", "spark.rtolap.lookedAtInDriverBytesMax=0"]
    command += [str(job), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "plugins"), "PYSPARK_PYTHON": sys.executable}
    return command, environment


def progress_lines(output: str) -> list[dict[str, Any]]:
    mark = "rtolap-progress: "
    return [msgspec.json.decode(line[len(mark) :]) for line in output.splitlines() if line.startswith(mark)]


@pytest.fixture
def submit(tmp_path: Path) -> Callable[..., Submitted]:
    """Build a list of specs in one job, by a driver that waits, or `apart`, by one of its own."""

    def run(*specs: BuildSpec, apart: bool = False, **options: Any) -> Submitted:
        file = tmp_path / "specs.json"
        file.write_bytes(msgspec.json.encode(specs))
        command, environment = spark_submit(str(file), **options)
        if apart:
            done = spark_drivers.run_apart(command, environment, tmp_path)
        else:
            done = spark_drivers.run(command, environment)
        progress = progress_lines(done.stdout)
        failed = [f"{line['build_id']}: {line['error']}" for line in progress if line["event"] == "failed"]
        return Submitted(done.returncode, progress, "\n".join([*failed, (done.stdout + done.stderr)[-4000:]]))

    return run
