"""Jobs of Spark that tests hand to a driver that waits."""

from __future__ import annotations

import json
import sys

import pytest
from rtolap.agent import warm_launcher

from tests.support.paths import PROJECT
from tests.support.runs import spark_drivers, spark_job


def test_jobs_with_other_settings_of_their_session_have_one_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def handed_over(*settings: str) -> tuple[str, list[str]]:
        """Return the name of the driver, and the arguments of the job."""
        options = ["--master", "local[2]", *(word for each in settings for word in ("--conf", each))]
        command = ["/bin/spark-submit", *options, "/jobs/build_segment.py", "specs.json"]
        environment = {"A": "a", "PYTEST_CURRENT_TEST": "/".join(settings)}
        words, shared, folder = spark_drivers.handed_over(command, environment)
        assert words[:4] == [sys.executable, "-I", "-S", warm_launcher.__file__]
        assert folder.is_dir()
        submit = words[words.index("--") + 1 :]
        job = next(place for place, word in enumerate(submit) if word.endswith(".py"))
        return warm_launcher.key_of(submit[: job + 1], shared, words[7]), submit[job + 1 :]

    plain, arguments = handed_over()
    assert arguments == ["{}", "/jobs/build_segment.py", "specs.json"]
    other, arguments = handed_over("spark.rtolap.rowsInMemoryMax=0")
    assert json.loads(arguments[0]) == {"spark.rtolap.rowsInMemoryMax": "0"}
    assert other == plain
    assert handed_over("spark.ui.enabled=false")[0] != plain


def test_every_job_that_is_shipped_can_be_handed_over() -> None:
    shipped = {path.name for path in (PROJECT / "spark_jobs").glob("*.py")}
    assert shipped - {"serve_builds.py"} == set(spark_job.JOBS)
