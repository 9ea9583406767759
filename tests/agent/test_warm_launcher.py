"""The launcher of jobs beside drivers that answer well, badly, or not at all: without Spark."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rtolap.agent import warm_launcher
from rtolap.agent.warm_launcher import DRIVERS_MAX, key_of

from tests.support.waiting import patience_s

TAKEN, END = b"\6", b"\0"
IDS = "request=5f0c;trace=a1"  # of the job: no part of what tells drivers apart
PARENT = f"00-{'a1' * 16}-{'b2' * 8}-01"
Answer = Callable[[socket.socket], None]


class Host:
    """A folder of drivers, and a program in the place of spark-submit, which says that it ran by itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "spark"
        self.submit = folder / "spark-submit"
        self.submit.write_text("#!/bin/sh\necho by itself: $*\nexit 3\n")
        self.submit.chmod(0o700)
        self.job = folder / "job.py"
        # with a locale, else Python sets one
        self.known = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        of_job = {"RTOLAP_IDS": IDS, "TRACEPARENT": PARENT}
        self.environment = {**self.known, "RTOLAP_AGENT_KEY": "build.1", **of_job}
        self.folder.mkdir()

    def path(self, version: str = "1") -> Path:
        prefix = [str(self.submit), "--master", "local", str(self.job)]
        return self.folder / key_of(prefix, self.known, version)

    def launch(self) -> subprocess.CompletedProcess[str]:
        words = (str(self.folder), "60", str(self.folder / "serve.py"), "1")
        command = (str(self.submit), "--master", "local", str(self.job), "specs.json")
        return subprocess.run(
            [sys.executable, "-I", "-S", str(warm_launcher.__file__), *words, "--", *command],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=patience_s(30),
            check=False,
        )

    @contextlib.contextmanager
    def driver(self, answer: Answer, path: Path | None = None) -> Iterator[None]:
        """Listen as a driver does, and answer each launcher in turn."""
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
            folder = os.open(self.folder, os.O_RDONLY)
            listener.bind(f"/proc/self/fd/{folder}/{(path or self.path()).name}.sock")
            listener.listen(4)

            def serve() -> None:
                with contextlib.suppress(OSError):  # closed
                    while True:
                        connection, _ = listener.accept()
                        with connection, contextlib.suppress(OSError):
                            answer(connection)

            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            try:
                yield
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                thread.join()
                os.close(folder)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def answering(*pieces: bytes) -> Answer:
    def answer(connection: socket.socket) -> None:
        line = connection.recv(1 << 16)
        assert line.endswith(b"\n")
        assert json.loads(line) == {"arguments": ["specs.json"], "ids": IDS, "parent": PARENT}
        for piece in pieces:
            connection.sendall(piece)

    return answer


@pytest.mark.parametrize(
    "pieces",
    [(TAKEN, b"a line\n", END, b"0"), (TAKEN + b"a line\n" + END + b"0",), (TAKEN, b"a line\n\0", b"0")],
)
def test_what_a_driver_prints_and_its_code_are_the_jobs_however_they_are_cut(
    host: Host, pieces: tuple[bytes, ...]
) -> None:
    with host.driver(answering(*pieces)):
        done = host.launch()
    assert (done.returncode, done.stdout) == (0, "a line\n")


def test_the_code_of_a_job_that_fails_is_its_own(host: Host) -> None:
    with host.driver(answering(TAKEN, END + b"3")):
        assert host.launch().returncode == 3


@pytest.mark.parametrize(
    "before", [lambda connection: None, answering()], ids=["at once", "after the request"]
)
def test_a_driver_that_goes_before_it_takes_the_job_leaves_it_to_one_of_its_own(
    host: Host, before: Answer
) -> None:
    with host.driver(before):
        done = host.launch()
    assert (done.returncode, done.stdout) == (3, f"by itself: --master local {host.job} specs.json\n")


def test_a_driver_that_goes_after_it_has_taken_the_job_fails_it_to_be_tried_again(host: Host) -> None:
    with host.driver(answering(TAKEN, b"half")):
        done = host.launch()
    assert (done.returncode, done.stdout) == (4, "half")
    assert "in the middle of the job" in done.stderr


def test_a_driver_that_cannot_start_leaves_the_job_to_one_of_its_own(host: Host) -> None:
    done = host.launch()  # what it starts in its place ends at once
    assert (done.returncode, done.stdout) == (3, f"by itself: --master local {host.job} specs.json\n")
    log = host.path().with_suffix(".log").read_text()
    assert f"{host.path()}.sock 60 {host.job}" in log


def test_no_driver_is_started_beside_as_many_as_may_wait_and_dead_ones_do_not_count(host: Host) -> None:
    with contextlib.ExitStack() as waiting:
        for number in range(DRIVERS_MAX):
            waiting.enter_context(host.driver(lambda connection: None, host.folder / f"other{number}"))
        assert host.launch().returncode == 3
        assert not host.path().with_suffix(".log").exists()
    assert len(list(host.folder.glob("*.sock"))) == DRIVERS_MAX  # nobody listens there any more
    assert host.launch().returncode == 3
    assert host.path().with_suffix(".log").exists()
    assert not list(host.folder.glob("*.sock"))


def test_the_agents_marks_and_the_jobs_ids_are_no_part_of_a_drivers_environment(host: Host) -> None:
    host.submit.write_text("#!/bin/sh\nenv | grep -E 'RTOLAP_|TRACEPARENT' || echo no marks\n")
    by_itself = host.launch().stdout  # then it is the agent's process
    assert "RTOLAP_AGENT_KEY=build.1" in by_itself
    assert f"RTOLAP_IDS={IDS}" in by_itself
    assert f"TRACEPARENT={PARENT}" in by_itself
    assert host.path().with_suffix(".log").read_text() == "no marks\n"


def test_another_version_environment_or_command_is_another_driver() -> None:
    keys = {
        key_of(["submit", "job.py"], {"A": "1"}, "1"),
        key_of(["submit", "job.py"], {"A": "1"}, "2"),
        key_of(["submit", "job.py"], {"A": "2"}, "1"),
        key_of(["submit", "--conf", "job.py"], {"A": "1"}, "1"),
        key_of(["submit job.py"], {"A": "1"}, "1"),
    }
    assert len(keys) == 5
