"""The allow-list: what is let through, and what is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rtolap.agent.commands import Commands
from rtolap.base.errors import DefinitionError


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "build_segment.py").write_text("")
    (tmp_path / "outside.py").write_text("")
    return Commands(jobs)


def test_rtolap_runs_with_this_interpreter(commands: Commands) -> None:
    argv = commands.resolve(("rtolap", "receiver", "serve", "--id", "r0"))
    assert argv[0] == sys.executable
    assert argv[-4:] == ("receiver", "serve", "--id", "r0")


def test_spark_submit_runs_a_job_by_name(commands: Commands) -> None:
    argv = commands.resolve(
        (
            "spark-submit",
            "--master",
            "local[2]",
            "--conf",
            "spark.ui.enabled=false",
            "build_segment.py",
            "--spec",
            "x",
        )
    )
    assert Path(argv[0]).name == "spark-submit"
    assert Path(argv[0]).is_file()
    assert Path(argv[5]).name == "build_segment.py"
    assert argv[6:] == ("--spec", "x")


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("sh", "-c", "true"),
        ("/bin/sh",),
        ("rtolap",),
        ("rtolap", "drop", "cube"),
        ("rtolap", "agent", "serve"),
        ("rtolap", "receiver", "serve", "--id", "a\0b"),
        ("spark-submit",),
        ("spark-submit", "--master", "local"),
        ("spark-submit", "missing.py"),
        ("spark-submit", "../outside.py"),
        ("spark-submit", "--jars", "http://elsewhere/x.jar", "build_segment.py"),
        ("spark-submit", "--py-files", "x.zip", "build_segment.py"),
        ("spark-submit", "--conf", "spark.driver.extraJavaOptions=-javaagent:x", "build_segment.py"),
        ("spark-submit", "--conf", "spark.jars=x", "build_segment.py"),
        ("spark-submit", "--conf", "spark.sql.extensions=x.Y", "build_segment.py"),
        ("spark-submit", "--conf", "spark.pyspark.python=/tmp/x", "build_segment.py"),
    ],
)
def test_everything_else_is_refused(commands: Commands, argv: tuple[str, ...]) -> None:
    with pytest.raises(DefinitionError):
        commands.resolve(argv)


def test_environment_additions_cannot_load_code(commands: Commands) -> None:
    commands.check_env({"RTOLAP_KAFKA": "127.0.0.1:9092", "AWS_REGION": "eu", "TZ": "UTC"})
    for name in ("LD_PRELOAD", "PYTHONPATH", "PATH", "SPARK_HOME", "PYSPARK_PYTHON", "JAVA_TOOL_OPTIONS"):
        with pytest.raises(DefinitionError):
            commands.check_env({name: "x"})
