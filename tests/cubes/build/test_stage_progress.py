"""Spark's stages while a build runs: each job of a drawn tracker is counted once, and never forgotten."""

from __future__ import annotations

import io
import json
import threading
from contextlib import redirect_stdout
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.status import SparkJobInfo, SparkStageInfo
from rtolap.cubes.build.job_progress import report
from rtolap.cubes.build.stage_progress import StageCounts, StageLooks, reported_stages
from rtolap.model.build_spec import BuildSpec


class Spec:
    cube, segment, build_id = "flights", "s0", "b0"


SPEC = cast("BuildSpec", Spec())


class Tracker:
    """Jobs of stages of tasks. `kept`: how many of the newest jobs Spark still knows."""

    def __init__(self, kept: int = 1000) -> None:
        self.jobs: list[tuple[str, list[SparkStageInfo]]] = []
        self.kept = kept
        self.error: Exception | None = None

    def getJobIdsForGroup(self, group: str | None) -> list[int]:  # noqa: N802 - Spark's name
        assert group is None
        if self.error is not None:
            raise self.error
        return list(range(len(self.jobs)))[-self.kept :]

    def getJobInfo(self, job_id: int) -> SparkJobInfo | None:  # noqa: N802
        if job_id < len(self.jobs) - self.kept:
            return None
        ids = [100 * job_id + number for number in range(len(self.jobs[job_id][1]))]
        return SparkJobInfo(job_id, ids, self.jobs[job_id][0])

    def getStageInfo(self, stage_id: int) -> SparkStageInfo | None:  # noqa: N802
        return self.jobs[stage_id // 100][1][stage_id % 100]

    @property
    def sparkContext(self) -> Any:  # noqa: N802
        return self

    def statusTracker(self) -> Tracker:  # noqa: N802
        return self


def stage(tasks: int, done: int, failed: int = 0) -> SparkStageInfo:
    return SparkStageInfo(0, 0, "of a test", tasks, 0, done, failed)


drawn_stages = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 9)).map(lambda n: stage(n[0], min(n))), max_size=4
)


@given(
    before=st.lists(drawn_stages, max_size=3), jobs=st.lists(drawn_stages, max_size=8), kept=st.integers(1, 9)
)
def test_each_job_that_began_later_is_counted_once_though_spark_forgets_it(
    before: list[list[SparkStageInfo]], jobs: list[list[SparkStageInfo]], kept: int
) -> None:
    tracker = Tracker(kept)
    tracker.jobs = [("SUCCEEDED", each) for each in before]
    looks = StageLooks(cast("Any", tracker))
    expected = StageCounts()
    for each in jobs:
        tracker.jobs.append(("RUNNING", each))
        running = looks.look()
        assert running.stages == expected.stages + len(each)
        assert running.tasks == expected.tasks + sum(one.numTasks for one in each)
        tracker.jobs[-1] = ("SUCCEEDED", each)
        begun = [one for one in each if one.numCompletedTasks]
        expected = StageCounts(
            stages=expected.stages + len(begun),
            stages_done=expected.stages_done + sum(one.numCompletedTasks == one.numTasks for one in begun),
            tasks=expected.tasks + sum(one.numTasks for one in begun),
            tasks_done=expected.tasks_done + sum(one.numCompletedTasks for one in begun),
        )
        assert looks.look() == expected


def lines_of(text: str) -> list[dict[str, Any]]:
    mark = "rtolap-progress: "
    return [json.loads(line.removeprefix(mark)) for line in text.splitlines() if line.startswith(mark)]


def test_what_the_last_job_has_done_is_reported_before_the_code_goes_on() -> None:
    tracker = Tracker()
    with redirect_stdout(io.StringIO()) as said:
        with reported_stages(cast("Any", tracker), SPEC, every_s=3600.0):
            tracker.jobs.append(("SUCCEEDED", [stage(4, 4, 1), stage(7, 0)]))
        report("counted", SPEC)
    first, last = lines_of(said.getvalue())
    assert (first["event"], last["event"]) == ("spark", "counted")
    counted = StageCounts(stages=1, stages_done=1, tasks=4, tasks_done=4, tasks_failed=1)
    assert {name: first[name] for name in StageCounts._fields} == counted._asdict()


def test_the_end_of_the_last_job_is_waited_for_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tracker hears of it at its fourth look, or never."""
    monkeypatch.setattr("rtolap.cubes.build.stage_progress._SETTLED_S_MAX", 0.2)
    for heard, done in ((4, 1), (10**9, 0)):
        tracker, looks = Tracker(), 0
        known = tracker.getJobInfo

        def told(job_id: int, known: Any = known, tracker: Any = tracker, heard: int = heard) -> Any:
            nonlocal looks
            looks += 1
            if looks == heard:
                tracker.jobs[0] = ("SUCCEEDED", [stage(4, 4)])
            return known(job_id)

        tracker.getJobInfo = told  # type: ignore[method-assign]
        with (
            redirect_stdout(io.StringIO()) as said,
            reported_stages(cast("Any", tracker), SPEC, every_s=3600.0),
        ):
            tracker.jobs.append(("RUNNING", [stage(4, 3)]))
        (line,) = lines_of(said.getvalue())
        assert (line["stages_done"], line["stages"]) == (done, 1)


def test_nothing_is_said_where_nothing_has_changed() -> None:
    with redirect_stdout(io.StringIO()) as said, reported_stages(cast("Any", Tracker()), SPEC, every_s=0.001):
        pass
    assert said.getvalue() == ""


def test_a_driver_that_goes_away_fails_no_build_by_that(capsys: pytest.CaptureFixture[str]) -> None:
    tracker = Tracker()
    with reported_stages(cast("Any", tracker), SPEC, every_s=3600.0):
        tracker.error = ConnectionRefusedError("gone")
    assert "stages of Spark are not known any more: gone" in capsys.readouterr().err


def test_lines_of_several_threads_are_whole() -> None:
    with redirect_stdout(io.StringIO()) as said:
        threads = [
            threading.Thread(target=lambda: [report("spark", SPEC, tasks=number) for number in range(200)])
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [len(lines_of(said.getvalue())), said.getvalue().count("\n")] == [1600, 1600]
