"""Tests of whether a process lives, when its first thread has ended before its others."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest
from rtolap.agent.processes import Processes, handle_of
from rtolap.base.pids import Start, environment_of, lives, pid_lives
from rtolap.stack.pids import PidRecord, ProcessId, identify, is_same_process, session_members

from tests.support.waiting import until

EXIT_THREAD = {"x86_64": 60, "aarch64": 93}  # the system call that ends a thread and not its process
FIRST_THREAD_ENDS = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).syscall({number}, 0)
"""


@pytest.mark.skipif(platform.machine() not in EXIT_THREAD, reason="the number of the call is not known")
def test_a_zombie_lives_until_its_last_thread_has_ended() -> None:
    program = FIRST_THREAD_ENDS.format(number=EXIT_THREAD[platform.machine()])
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as child:
        process = psutil.Process(child.pid)
        until(lambda: process.status() == psutil.STATUS_ZOMBIE, "first thread's end")
        assert lives(process)
        assert pid_lives(child.pid)
        assert child.stdin is not None
        child.stdin.close()
        until(lambda: not lives(process), "last thread's end")


def test_a_process_that_was_collected_does_not_live() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        process = psutil.Process(child.pid)
        child.wait()
    assert not lives(process)
    assert not pid_lives(child.pid)


@pytest.mark.parametrize("step_s", [-7200.0, -3.0, 3.0, 7200.0])
def test_a_step_of_the_clock_makes_no_other_process_of_a_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step_s: float
) -> None:
    """As after a correction of the clock, or in a machine that was restored: all start times move with it."""
    processes = Processes(tmp_path)
    created = psutil.Process.create_time
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    ) as child:
        noted, handle = identify(child.pid), handle_of(child.pid)
        record = PidRecord(noted.pid, noted.started_s, start=noted.start)
        monkeypatch.setattr(psutil.Process, "create_time", lambda process: created(process) + step_s)
        assert is_same_process(noted)
        assert processes.alive(handle)
        assert session_members(record) == processes.session_members(handle) == [child.pid]
        assert child.stdin is not None
        child.stdin.close()
    assert not is_same_process(noted)
    assert not processes.alive(handle)


def test_a_pid_that_is_another_process_or_of_another_boot_is_not_the_one_that_was_noted(
    tmp_path: Path,
) -> None:
    noted, handle = identify(os.getpid()), handle_of(os.getpid())
    assert noted.start is not None
    boot, ticks = noted.start
    assert is_same_process(noted)
    for other in (Start(boot, ticks - 1), Start(boot, ticks + 1), Start("another boot", ticks)):
        assert not is_same_process(msgspec.structs.replace(noted, start=other))
        assert not Processes(tmp_path).alive(msgspec.structs.replace(handle, start=other))
        assert session_members(PidRecord(noted.pid, noted.started_s, start=other)) == []


def test_records_without_a_start_are_compared_by_their_time() -> None:
    noted = identify(os.getpid())
    assert is_same_process(ProcessId(noted.pid, noted.started_s))
    assert not is_same_process(ProcessId(noted.pid, noted.started_s - 60))
    kept = msgspec.json.decode(msgspec.json.encode(noted), type=ProcessId)
    assert kept == noted


def test_an_environment_is_read_again_while_the_process_executes_its_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in the moment between an exec and the copy of its arguments, which a busy machine may stretch."""
    reads = {"environ": 0}
    environ = psutil.Process.environ

    def later(process: psutil.Process) -> dict[str, str]:
        reads["environ"] += 1
        return environ(process) if reads["environ"] > 3 else {}

    monkeypatch.setattr(psutil.Process, "environ", later)
    monkeypatch.setattr(psutil.Process, "cmdline", lambda process: ["sh"] if reads["environ"] > 3 else [])
    with subprocess.Popen(["sh", "-c", "read line"], stdin=subprocess.PIPE, env={"MARK": "here"}) as child:
        assert environment_of(psutil.Process(child.pid)) == {"MARK": "here"}
        assert child.stdin is not None
        child.stdin.close()


def test_a_process_without_an_environment_has_none_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it is not waited for"))
    with subprocess.Popen(["sh", "-c", "read line"], stdin=subprocess.PIPE, env={}) as child:
        process = psutil.Process(child.pid)
        until_execs(process)
        assert environment_of(process) == {}
        assert child.stdin is not None
        child.stdin.close()
        child.wait()
        with pytest.raises(psutil.NoSuchProcess):
            environment_of(process)


def until_execs(process: psutil.Process) -> None:
    while not process.cmdline():
        os.sched_yield()
