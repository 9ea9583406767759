"""Tests of whether a process lives, when its first thread has ended before its others."""

from __future__ import annotations

import platform
import subprocess
import sys

import psutil
import pytest
from rtolap.base.pids import lives, pid_lives

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
