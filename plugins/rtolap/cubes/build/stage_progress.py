"""Spark's own progress while a build runs: stages and tasks, by the status tracker of the driver.

A thread asks the tracker and reports what has changed, beside the steps that the build reports itself.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import NamedTuple

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.status import SparkStageInfo, StatusTracker

from rtolap.base.ids import carried
from rtolap.cubes.build.job_progress import report
from rtolap.model.build_spec import BuildSpec

EVERY_S = 2.0
_PART_OF_TIME = 100  # and at least that part of the time so far: a build of a day says hundreds of lines
_SETTLED_S_MAX = 1.0  # the tracker hears of the end of a job a moment after the driver
_ENDED = ("SUCCEEDED", "FAILED")


class StageCounts(NamedTuple):
    """Stages and tasks of the jobs that Spark has begun. A stage that it skips, because an earlier job has
    computed it, counts until its job ends. tasks_failed: attempts, which Spark repeats.
    """

    stages: int = 0
    stages_done: int = 0
    tasks: int = 0
    tasks_done: int = 0
    tasks_failed: int = 0

    def plus(self, other: StageCounts) -> StageCounts:
        return StageCounts(*(mine + its for mine, its in zip(self, other, strict=True)))


class StageLooks:
    """Counts the jobs that begin after it was made. What has ended is remembered: Spark forgets old jobs."""

    def __init__(self, tracker: StatusTracker) -> None:
        self._tracker = tracker
        self._before = frozenset(tracker.getJobIdsForGroup(None))
        self._ended: dict[int, StageCounts] = {}
        self.running_jobs = 0  # at the last look

    def look(self) -> StageCounts:
        running, self.running_jobs = StageCounts(), 0
        for job_id in self._tracker.getJobIdsForGroup(None):
            if job_id in self._before or job_id in self._ended:
                continue
            job = self._tracker.getJobInfo(job_id)
            if job is None:  # forgotten meanwhile
                continue
            stages = [self._tracker.getStageInfo(stage_id) for stage_id in job.stageIds]
            has_ended = job.status in _ENDED
            counts = _counts([each for each in stages if each is not None], has_ended=has_ended)
            if has_ended:
                self._ended[job_id] = counts
            else:
                running = running.plus(counts)
                self.running_jobs += 1
        return reduce(StageCounts.plus, self._ended.values(), running)


def _counts(stages: list[SparkStageInfo], *, has_ended: bool) -> StageCounts:
    """Return the counts of a job. Of one that has ended, what was never begun was skipped."""
    counted = [each for each in stages if not has_ended or each.numCompletedTasks or each.numFailedTasks]
    return StageCounts(
        stages=len(counted),
        stages_done=sum(each.numCompletedTasks >= each.numTasks > 0 for each in counted),
        tasks=sum(each.numTasks for each in counted),
        tasks_done=sum(each.numCompletedTasks for each in counted),
        tasks_failed=sum(each.numFailedTasks for each in counted),
    )


@contextmanager
def reported_stages(spark: SparkSession, spec: BuildSpec, every_s: float = EVERY_S) -> Iterator[None]:
    """Report stages and tasks while the code inside runs, and once at its end. `spec`: the build meant, or
    the first of the batch."""
    looks = StageLooks(spark.sparkContext.statusTracker())
    over = threading.Event()
    arguments = (looks, spec, over, every_s)
    thread = threading.Thread(target=carried(_report), args=arguments, name="stages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _report(looks: StageLooks, spec: BuildSpec, over: threading.Event, every_s: float) -> None:
    started, said = time.monotonic(), StageCounts()
    while True:
        is_over = over.wait(max(every_s, (time.monotonic() - started) / _PART_OF_TIME))
        try:
            counts = looks.look() if not is_over else _last_look(looks)
        except (Py4JError, OSError) as error:  # the driver's JVM is gone, and the build fails by itself
            print(f"stages of Spark are not known any more: {error}", file=sys.stderr)
            return
        if counts != said:
            said = counts
            report("spark", spec, **counts._asdict())
        if is_over:
            return


def _last_look(looks: StageLooks) -> StageCounts:
    """Look until no job runs any more, as far as the tracker has heard, or it has had time enough."""
    ends_s, moment = time.monotonic() + _SETTLED_S_MAX, threading.Event()
    counts = looks.look()
    while looks.running_jobs and time.monotonic() < ends_s:
        moment.wait(0.02)
        counts = looks.look()
    return counts
