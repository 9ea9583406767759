"""Builds whose driver waits for the next one: as exact as one shot, whatever ends in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil
import pytest
from rtolap.agent.commands import Commands
from rtolap.agent.host import Host
from rtolap.agent.warm_launcher import DRIVERS_MAX
from rtolap.base import spans
from rtolap.base.pids import pid_lives
from rtolap.model.build_spec import BuildSpec
from rtolap.protocols.agent.messages import FILES_MARK

from tests.integration.spark.conftest import PROJECT, progress_lines
from tests.integration.spark.test_build_segment import two_versions
from tests.support.cubes.built import assert_recount
from tests.support.cubes.staging import Staging
from tests.support.telemetry.receivers import Messages
from tests.support.waiting import patience_s, until

pytestmark = pytest.mark.integration

IDLE_S = 600.0
OF_JOB = {"RTOLAP_AGENT_KEY": "build.1", "RTOLAP_LOG_LEVEL": "DEBUG"}
BY_TASKS = ("--conf", "spark.rtolap.lookedAtInDriverBytesMax=0")  # files are looked at by Python of executors
_OF_ONE_TEST = "PYTEST_CURRENT_TEST"


class Warm:
    """The commands of an agent with waiting drivers, and what they leave in its folder."""

    def __init__(self, folder: Path, store: str, idle_s: float = IDLE_S) -> None:
        self.environment: dict[str, str] = {}
        self.folder = folder / "agent" / "spark"
        host = Host(PROJECT / "spark_jobs", folder, store, spark_warm_s=idle_s)
        self._commands = Commands(host)
        self._files = folder

    def start(
        self, specs: Sequence[BuildSpec], *options: str, ids: str = "", parent: str = ""
    ) -> subprocess.Popen[str]:
        file = self._files / f"specs-{time.monotonic_ns()}.json"
        file.write_bytes(msgspec.json.encode(specs))
        options = ("--master", "local[2]", "--driver-memory", "700m", *options)
        argv = self._commands.resolve(
            ("spark-submit", *options, "build_segment.py", f"{FILES_MARK}/specs.json")
        )
        outside = {name: value for name, value in os.environ.items() if name != _OF_ONE_TEST}
        return subprocess.Popen(
            [str(file) if word.startswith(FILES_MARK) else word for word in argv],
            env={
                **outside,
                **self._commands.environment(),
                **self.environment,
                **OF_JOB,
                "RTOLAP_IDS": ids,
                "TRACEPARENT": parent,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def build(self, specs: Sequence[BuildSpec], *options: str, ids: str = "", parent: str = "") -> Done:
        began_s = time.monotonic()
        process = self.start(specs, *options, ids=ids, parent=parent)
        output, _ = process.communicate(timeout=patience_s(240))
        return Done(process.returncode, output, time.monotonic() - began_s)

    def drivers(self) -> list[int]:
        """Return the processes that lead the sessions of drivers, the oldest first."""
        found = [
            process
            for process in psutil.process_iter(["cmdline", "create_time"])
            if str(self.folder) in " ".join(process.info["cmdline"] or ())
            and "serve_builds.py" in " ".join(process.info["cmdline"] or ())
            and "java" in (process.info["cmdline"] or ("",))[0]
        ]
        return [process.pid for process in sorted(found, key=lambda each: each.info["create_time"])]

    @property
    def is_at_work(self) -> bool:
        """Is a job in a driver?"""
        return any(map(_locked, self.folder.glob("*.lock")))

    def kill(self, driver: int) -> None:
        """Kill a driver and its Python, which listens for jobs until it is gone, too."""
        members = session_members(driver)
        os.killpg(os.getsid(driver), signal.SIGKILL)
        until(lambda: not any(map(pid_lives, members)), "the driver and its workers to end")

    def close(self) -> None:
        for driver in self.drivers():
            self.kill(driver)


class Done(NamedTuple):
    code: int
    output: str
    took_s: float

    @property
    def events(self) -> list[str]:
        return [line["event"] for line in progress_lines(self.output)]


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    folder = tmp_path_factory.mktemp("warm")
    made = Warm(folder, (folder / "ein Stück 50%").as_uri())
    yield made
    made.close()


@pytest.fixture
def warm(drivers: Warm) -> Iterator[Warm]:
    """No driver waits, or one that a test before has left, for jobs without further options."""
    yield drivers
    if drivers.is_at_work or len(drivers.drivers()) > 1:  # a test has failed in the middle
        drivers.close()


@pytest.fixture
def own(tmp_path: Path, staging: Staging) -> Iterator[Warm]:
    """No driver waits; what is started is of one test alone."""
    with closing(Warm(tmp_path, staging.uri)) as made:
        yield made


TRACES = ("a1" * 16, "b2" * 16)
ASKING = "c3" * 8  # the span of who asks for a build


def asked(trace: str, request: str) -> dict[str, str]:
    return {"ids": f"request={request};trace={trace}", "parent": f"00-{trace}-{ASKING}-01"}


def spans_of_builds(receiver: Messages) -> dict[str, list[tuple[str, str, str | None]]]:
    """Return the spans of drivers by their trace: name, name of the parent, and the build."""
    found = [span for span in receiver.spans() if span.service == "rtolap-spark"]
    names = {span.span: span.name for span in found} | {ASKING: "asking"}
    by_trace: dict[str, list[tuple[str, str, str | None]]] = {}
    for span in found:
        told = (span.name, names.get(span.parent, "not come yet"), span.attributes.get("rtolap.build"))
        by_trace.setdefault(span.trace, []).append(told)
    return {trace: sorted(each, key=str) for trace, each in by_trace.items()}


def test_builds_share_a_driver_and_are_what_one_shot_builds_are(
    own: Warm, staging: Staging, tmp_path: Path
) -> None:
    first, raw, second, all_raw = two_versions(staging)
    with closing(Messages(tmp_path)) as receiver:
        own.environment = {spans.ENDPOINT: receiver.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "200"}
        one = own.build([first], *BY_TASKS, **asked(TRACES[0], "asked-first"))
        two = own.build([second], *BY_TASKS, **asked(TRACES[1], "asked-second"))
        expected = {
            trace: [
                ("build", "asking", spec.build_id),
                ("verify", "build", spec.build_id),
                ("write cuboids", "build", spec.build_id),
            ]
            for trace, spec in zip(TRACES, (first, second), strict=True)
        }
        until(lambda: spans_of_builds(receiver) == expected, lambda: str(spans_of_builds(receiver)))
    assert (one.code, two.code) == (0, 0), one.output + two.output
    assert (one.events[-1], two.events[-1]) == ("built", "built")
    assert_recount(staging, first, raw)
    assert_recount(staging, second, all_raw)
    assert len(own.drivers()) == 1
    assert two.took_s < one.took_s
    print(f"the first build {one.took_s:.1f} s, the second {two.took_s:.1f} s")
    (leader,) = own.drivers()
    known = psutil.Process(leader).environ()
    assert "RTOLAP_AGENT_KEY" not in known  # it is no process of the agent's
    assert known.keys().isdisjoint({"RTOLAP_IDS", "TRACEPARENT"})
    (log,) = own.folder.glob("*.log")  # the error output of executors, which jobs share
    tasks = [line for line in log.read_text().splitlines() if "look_at_file in a task" in line]
    for done, spec, request, trace in (
        (one, first, "asked-first", TRACES[0]),
        (two, second, "asked-second", TRACES[1]),
    ):
        ids = f"request={request} trace={trace} cube={spec.cube} segment={spec.segment} build={spec.build_id}"
        assert any(ids in line for line in tasks), (ids, tasks)
        progress = progress_lines(done.output)
        assert {(line["request"], line["trace"], line["build_id"]) for line in progress} == {
            (request, trace, spec.build_id)
        }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_job_that_is_cancelled_ends_with_its_driver_and_leaves_nothing_wrong(
    number: signal.Signals, warm: Warm, staging: Staging
) -> None:
    first, raw, _, _ = two_versions(staging)
    process = warm.start([first])
    assert process.stdout is not None
    for line in process.stdout:
        if '"verified"' in line:
            break
    (driver,) = warm.drivers()
    members = session_members(driver)
    os.killpg(process.pid, number)
    process.communicate(timeout=patience_s(30))
    until(lambda: not any(map(pid_lives, members)), "the driver and its workers to end")
    done = warm.build([first])
    assert done.code == 0, done.output
    assert_recount(staging, first, raw)


def test_a_driver_that_is_killed_in_the_middle_fails_its_job_to_be_tried_again(
    warm: Warm, staging: Staging
) -> None:
    first, raw, _, _ = two_versions(staging)
    process = warm.start([first])
    assert process.stdout is not None
    for line in process.stdout:
        if '"verified"' in line:
            break
    (driver,) = warm.drivers()
    os.killpg(os.getsid(driver), signal.SIGKILL)
    output, _ = process.communicate(timeout=patience_s(30))
    assert process.returncode == 4
    assert "in the middle of the job" in output
    assert warm.build([first]).code == 0
    assert_recount(staging, first, raw)


def test_a_busy_driver_leaves_the_second_job_to_one_of_its_own(warm: Warm, staging: Staging) -> None:
    first, raw, second, all_raw = two_versions(staging)
    assert warm.build([first]).code == 0
    (driver,) = warm.drivers()
    os.killpg(os.getsid(driver), signal.SIGSTOP)  # it takes the job, and does nothing
    stuck = warm.start([second])
    try:
        until(lambda: warm.is_at_work, "the first job to hold the driver")
        done = warm.build([second])
        assert done.code == 0, done.output
        assert_recount(staging, second, all_raw)
    finally:
        os.killpg(os.getsid(driver), signal.SIGCONT)
        stuck.communicate(timeout=patience_s(120))
    assert stuck.returncode == 0
    assert_recount(staging, first, raw)


def test_other_settings_have_a_driver_of_their_own(warm: Warm, staging: Staging) -> None:
    first, raw, second, all_raw = two_versions(staging)
    assert warm.build([first]).code == 0
    assert warm.build([second], "--conf", "spark.sql.shuffle.partitions=3").code == 0
    assert len(warm.drivers()) == 2
    assert_recount(staging, first, raw)
    assert_recount(staging, second, all_raw)
    for partitions in ("4", "5"):  # of the fourth kind none waits: each holds the memory of a build
        assert warm.build([second], "--conf", f"spark.sql.shuffle.partitions={partitions}").code == 0
    assert len(warm.drivers()) == DRIVERS_MAX
    warm.kill(warm.drivers()[-1])  # what it has left takes no place
    assert len(warm.drivers()) == DRIVERS_MAX - 1
    assert warm.build([second], "--conf", "spark.sql.shuffle.partitions=5").code == 0
    assert len(warm.drivers()) == DRIVERS_MAX
    for driver in warm.drivers()[1:]:  # the next test may have that of no further options
        warm.kill(driver)


def test_a_job_that_fails_ends_its_driver_and_the_next_one_is_built(warm: Warm, staging: Staging) -> None:
    first, raw, _, _ = two_versions(staging)
    lost = msgspec.structs.replace(
        first, parts=tuple(msgspec.structs.replace(part, path=f"{part.path}x") for part in first.parts)
    )
    failed = warm.build([lost])
    assert (failed.code, failed.events[-1]) == (3, "failed"), failed.output
    until(lambda: not warm.drivers(), "the driver to end")
    done = warm.build([first])
    assert done.code == 0, done.output
    assert_recount(staging, first, raw)
    unusable = warm.build([])
    assert unusable.code == 2


def test_a_driver_without_jobs_ends_by_itself(tmp_path: Path, staging: Staging) -> None:
    first, _, _, _ = two_versions(staging)
    warm = Warm(tmp_path, staging.uri, idle_s=1.0)
    try:
        assert warm.build([first]).code == 0
        until(lambda: not warm.drivers(), "the driver to end")
        assert not list(warm.folder.glob("*.sock"))
    finally:
        warm.close()


def session_members(driver: int) -> list[int]:
    """Return the processes of the driver's session: it, its Python and the workers of both."""
    return [pid for pid in psutil.pids() if _session(pid) == _session(driver)]


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _locked(lock: Path) -> bool:
    probe = "import fcntl,sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    tried = subprocess.run([sys.executable, "-c", probe, str(lock)], capture_output=True, check=False)
    return tried.returncode != 0
