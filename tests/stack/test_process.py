"""Tracking of one process: start, readiness, crash, stop, recycled pids. Real processes, tiny ones."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from rtolap.base.errors import ProcessFailed
from rtolap.base.pids import lives
from rtolap.stack.pids import PidRecord
from rtolap.stack.process import ManagedProcess, ProcessState
from rtolap.stack.spec import ProcessSpec

from tests.support.waiting import until

_SLEEPER = "import time; time.sleep(60)"
# starts a child of its own, writes its pid, and ignores SIGTERM
_STUBBORN = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
time.sleep(60)
"""
Make = Callable[..., ManagedProcess]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[ManagedProcess] = []

    def build(script: str = _SLEEPER, *arguments: str, **options: object) -> ManagedProcess:
        spec = ProcessSpec(
            name="part",
            folder=tmp_path / "run",
            argv=(sys.executable, "-c", script, *arguments),
            **options,  # type: ignore[arg-type]
        )
        made.append(ManagedProcess(spec))
        return made[-1]

    yield build
    for process in made:
        process.stop()


def test_a_started_process_leads_its_own_session_and_is_found_by_another_handle(make: Make) -> None:
    process = make()
    process.start()
    pid = process.pid()
    assert pid is not None
    assert os.getsid(pid) == pid
    other = ManagedProcess(process.spec)
    assert other.pid() == pid
    assert other.state() is ProcessState.RUNNING


def test_a_second_start_leaves_the_running_process_alone(make: Make) -> None:
    process = make()
    process.start()
    pid = process.pid()
    process.start()
    assert process.pid() == pid


def test_a_process_that_ended_by_itself_is_crashed_until_it_is_started_again(make: Make) -> None:
    process = make()
    process.start()
    process.kill()
    assert process.state() is ProcessState.CRASHED
    assert process.missing() == "crashed"
    process.start()
    assert process.state() is ProcessState.RUNNING


def test_a_stopped_process_is_stopped_and_stopping_it_again_is_harmless(make: Make) -> None:
    process = make()
    process.start()
    process.stop()
    process.stop()
    assert process.state() is ProcessState.STOPPED


def test_stop_ends_a_process_that_ignores_sigterm_and_its_children(make: Make, tmp_path: Path) -> None:
    child_file = tmp_path / "child"
    process = make(
        _STUBBORN,
        str(child_file),
        stop_timeout_s=0.3,
        ready=lambda _: None if child_file.exists() and child_file.read_text() else "no child yet",
    )
    process.start()
    child = psutil.Process(int(child_file.read_text()))
    process.stop()
    until(lambda: not lives(child), "child ends")
    assert process.state() is ProcessState.STOPPED


def test_a_process_that_ends_while_starting_fails_with_the_end_of_its_log(make: Make) -> None:
    process = make("print('the reason'); raise SystemExit(3)", ready=lambda _: "never")
    with pytest.raises(ProcessFailed, match="the reason"):
        process.start()


def test_a_process_that_does_not_answer_in_time_fails_saying_what_is_missing(make: Make) -> None:
    process = make(ready=lambda _: "nobody answers", ready_timeout_s=0.2)
    with pytest.raises(ProcessFailed, match="nobody answers"):
        process.start()


def test_a_recycled_pid_is_neither_taken_for_the_process_nor_killed(make: Make) -> None:
    stranger = make()
    stranger.start()
    pid = stranger.pid()
    assert pid is not None
    forgotten = ManagedProcess(
        ProcessSpec(name="forgotten", folder=stranger.spec.folder, argv=stranger.spec.argv)
    )
    record = PidRecord(pid, psutil.Process(pid).create_time() - 1000)
    forgotten.pid_path.write_bytes(msgspec.json.encode(record))
    assert forgotten.state() is ProcessState.CRASHED
    forgotten.stop()
    assert stranger.pid() == pid


def test_a_program_that_is_not_there_is_named(make: Make) -> None:
    process = ManagedProcess(ProcessSpec("part", make().spec.folder, ("/no/such/program",)))
    with pytest.raises(ProcessFailed, match=r"part cannot be started.*no/such/program"):
        process.start()
    assert process.state() is ProcessState.STOPPED
