"""spark-submit target of tests: any job of `spark_jobs/`, in a driver of its own or in one that waits.

    spark_job.py SETTINGS JOB [ARGUMENT …]     SETTINGS: JSON of settings of the job's session
    spark_job.py SOCKET IDLE_S spark_job.py    as `rtolap.agent.warm_launcher` starts a driver that waits

`tests.support.runs.spark_drivers` starts it. It does what the jobs do, in a session of each job's own.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from rtolap.base.decoding import decode_json
from rtolap.base.errors import RtolapError
from rtolap.base.pids import pid_lives
from rtolap.cubes.build.batch_stage import attempt
from rtolap.cubes.build.build import EXIT_USAGE, build_named
from rtolap.cubes.build.job_ids import job_of_parent
from rtolap.cubes.build.job_progress import EXIT_REFUSED
from rtolap.cubes.build.merge import merge_named
from rtolap.cubes.build.serving import Job, serve
from rtolap.cubes.build.session import open_session
from rtolap.cubes.format.build_inputs import read_batch_spec

OWNER = "RTOLAP_TEST_SPARK_OWNER"  # the id of the process whose tests the driver is for
_LOOK_S = 1.0


def stage_named(spark: SparkSession, arguments: Sequence[str]) -> int:
    """Stage the batch that the argument of `spark_jobs/stage_batch.py` names."""
    (path,) = arguments
    try:
        spec = read_batch_spec(path)
    except RtolapError as error:
        print(f"stage_batch: {error}", file=sys.stderr)
        return EXIT_USAGE
    return attempt(spark, spec, dict(os.environ))


JOBS: dict[str, Job] = {
    "build_segment.py": build_named,
    "merge_segments.py": merge_named,
    "stage_batch.py": stage_named,
}


def run(spark: SparkSession, arguments: Sequence[str]) -> int:
    settings, job, *rest = arguments
    for name, value in decode_json(settings.encode(), dict[str, str]).items():
        spark.conf.set(name, value)
    return JOBS[Path(job).name](spark, rest)


class _Served:
    """The jobs of a driver that waits. One that is refused ends an agent's driver, but not this one: to
    refuse is what half of the tests ask for.
    """

    def __init__(self) -> None:
        self._refused = False

    def __call__(self, spark: SparkSession, arguments: Sequence[str]) -> int:
        code = run(spark, arguments)
        self._refused = code in (EXIT_USAGE, EXIT_REFUSED)
        return code

    def until_idle(self, spark: SparkSession, path: Path, idle_s: float) -> None:
        while True:
            self._refused = False
            serve(spark, path, idle_s, self)
            if not self._refused:
                return


def _end_with(owner: int) -> None:
    while pid_lives(owner):
        time.sleep(_LOOK_S)
    os.killpg(0, signal.SIGKILL)


def main(arguments: Sequence[str]) -> int:
    spark = open_session()
    try:
        if arguments[-1] != __file__:
            return run(spark, arguments)
        owner = int(os.environ[OWNER])
        threading.Thread(target=_end_with, args=(owner,), daemon=True).start()
        path, idle_s, _ = arguments
        _Served().until_idle(spark, Path(path), float(idle_s))
        return 0
    finally:
        spark.stop()


if __name__ == "__main__":
    with job_of_parent():
        sys.exit(main(sys.argv[1:]))
