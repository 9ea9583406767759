"""Lines of the driver's JVM name the build that they are about, as those of its Python do."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rtolap.model.offsets import PartRange

from tests.support.cubes.staging import Staging, raw_events
from tests.support.waiting import patience_s

pytestmark = pytest.mark.integration

SEED = 92
Command = Callable[..., tuple[list[str], dict[str, str]]]
OWN = """
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = of the site: %p %c{1}: %m$${sys:rtolap.ids:-}%n
"""


def lines_of_a_failed_look(
    staging: Staging, command: Command, folder: Path, *options: str, **environment: str
) -> list[str]:
    """Return what a driver writes to standard error of which the executors cannot read an input."""
    raw = raw_events(SEED, 0, 0, 200)
    part = staging.part(1, "rs1", raw, PartRange(0, 0, raw.num_rows))
    spec = staging.spec("b1", part, covered={0: raw.num_rows})
    (damaged, *_) = sorted(Path(staging.store.absolute(part.path)).glob("*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-8] + bytes(8))
    file = folder / "spec.json"
    file.write_bytes(msgspec.json.encode([spec]))
    words, surroundings = command(str(file), python=False, looked_at_here=False)
    done = subprocess.run(
        [words[0], *options, *words[1:]],
        env={**surroundings, "RTOLAP_IDS": "request=asked;trace=a1", **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patience_s(240),
        check=False,
    )
    assert done.returncode == 3, done.stderr[-4000:]
    return done.stderr.splitlines()


def ids_of(staging: Staging) -> dict[str, str]:
    return {
        "request": "asked",
        "trace": "a1",
        "cube": "sales_cube",
        "segment": staging.segment,
        "build": "b1",
    }


def test_lines_of_all_threads_of_the_jvm_name_the_build(
    staging: Staging, submit_command: Command, tmp_path: Path
) -> None:
    lines = lines_of_a_failed_look(staging, submit_command, tmp_path)
    known = ids_of(staging)
    ids = f" [{' '.join(f'{name}={value}' for name, value in known.items())}]"
    loggers = {found[1] for line in lines if (found := re.match(r"\S+ \S+ (?:WARN|ERROR) (\w+): ", line))}
    assert {"Executor", "TaskSetManager"} <= loggers  # a thread of a task, and one of the scheduler
    for logger in ("Executor", "TaskSetManager"):
        said = [line for line in lines if re.match(rf"\S+ \S+ (?:WARN|ERROR) {logger}: ", line)]
        assert any(line.endswith(ids) for line in said), said


def test_lines_are_json_where_those_of_python_are(
    staging: Staging, submit_command: Command, tmp_path: Path
) -> None:
    lines = lines_of_a_failed_look(staging, submit_command, tmp_path, RTOLAP_LOG_FORMAT="json")
    read = [json.loads(line) for line in lines if line.startswith("{")]
    (failed, *_) = [line for line in read if line["logger"].endswith(".executor.Executor")]
    assert ids_of(staging).items() <= failed.items()
    assert failed["level"] == "ERROR"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", failed["at"])
    assert "\tat org.apache.spark" in failed["error"]  # the stack, in one line of the log
    assert not [line for line in lines if line.startswith("\tat ")]


def test_a_site_that_lays_its_lines_out_keeps_them_and_may_show_the_ids(
    staging: Staging, submit_command: Command, tmp_path: Path
) -> None:
    own = tmp_path / "log4j2.properties"
    own.write_text(OWN)
    options = ("--driver-java-options", f"-Dlog4j2.configurationFile={own}")
    lines = lines_of_a_failed_look(staging, submit_command, tmp_path, *options)
    known = ids_of(staging)
    ids = f" [{' '.join(f'{name}={value}' for name, value in known.items())}]"
    assert [line for line in lines if line.startswith("of the site: ERROR Executor:")]
    of_scheduler = [line for line in lines if line.startswith("of the site: ERROR TaskSetManager:")]
    assert of_scheduler
    assert all(line.endswith(ids) for line in of_scheduler), of_scheduler
