"""Logs: bounded while a part runs, whole when it has ended, followed across renames."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rtolap.base.errors import ProcessFailed
from rtolap.stack.lifecycle import part_status
from rtolap.stack.log_files import Follower, last_lines, start_pump
from rtolap.stack.log_pump import BoundedLog, pump
from rtolap.stack.process import ManagedProcess, ProcessSpec

_LINE_BYTES = 64


def _line(number: int) -> bytes:
    return f"{number:0{_LINE_BYTES - 1}}\n".encode()


def _write(process: subprocess.Popen[bytes], first: int, count: int) -> None:
    """One write a line, as a server does."""
    assert process.stdin is not None
    for number in range(first, first + count):
        os.write(process.stdin.fileno(), _line(number))


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(10) == 0


def test_what_a_part_writes_takes_bounded_room_and_the_newest_is_kept(tmp_path: Path) -> None:
    log, bytes_max, kept = tmp_path / "part.log", 10_000, 2
    process = start_pump(log, bytes_max, kept)
    _write(process, 0, 5_000)
    _end(process)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["part.log", "part.log.1", "part.log.2"]
    # a chunk that was read at once is not parted
    assert all(file.stat().st_size <= max(bytes_max, 65_536) for file in files)
    assert sum(file.stat().st_size for file in files) < 5_000 * _LINE_BYTES
    joined = b"".join(file.read_bytes() for file in reversed(files))
    numbers = [int(line) for line in joined.split()]
    assert numbers == list(range(numbers[0], 5_000))


def test_a_new_start_goes_on_in_the_same_log_within_the_same_bound(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    for start in range(6):
        process = start_pump(log, 10 * _LINE_BYTES, 1)
        _write(process, start * 4, 4)
        _end(process)
    assert log.stat().st_size + (tmp_path / "part.log.1").stat().st_size <= 20 * _LINE_BYTES
    assert [int(line) for line in last_lines(log, 3)] == [21, 22, 23]


def test_the_end_of_a_log_reaches_into_the_file_before(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    (tmp_path / "part.log.1").write_text("a\nb\nc\n")
    log.write_text("d\n")
    assert last_lines(log, 3) == ["b", "c", "d"]
    assert last_lines(log, 1) == ["d"]
    assert last_lines(log, 0) == []
    assert last_lines(tmp_path / "none", 3) == []


def test_following_goes_on_after_a_rename_and_misses_nothing(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    log.write_text("old\n")
    follower = Follower(log)
    with log.open("a") as file:
        file.write("1\n")
    assert follower.new_lines() == ["1\n"]
    with log.open("a") as file:
        file.write("2\n")
    log.rename(tmp_path / "part.log.1")
    log.write_text("3\n")
    assert follower.new_lines() == ["2\n", "3\n"]
    assert follower.new_lines() == []
    follower.close()


def test_a_disk_that_refuses_costs_lines_which_are_counted(tmp_path: Path) -> None:
    """The folder appears later, as room on a full disk does."""
    log = tmp_path / "later" / "part.log"
    source, sink = os.pipe()

    class Refusing(BoundedLog):
        def write(self, chunk: bytes) -> None:
            try:
                super().write(chunk)
            except OSError:
                log.parent.mkdir()
                os.write(sink, b"kept\n")
                os.close(sink)
                raise

    os.write(sink, b"lost\n")
    pump(source, Refusing(str(log), 1_000, 1))
    os.close(source)
    assert log.read_text() == "[5 bytes could not be written here]\nkept\n"


def test_a_full_disk_is_survived() -> None:
    source, sink = os.pipe()
    os.write(sink, b"lost\n")
    os.close(sink)
    pump(source, BoundedLog("/dev/full", 1_000, 1))
    os.close(source)


def test_the_last_words_of_a_part_that_fails_are_in_its_error(tmp_path: Path) -> None:
    script = "import sys; [print(number) for number in range(20_000)]; sys.exit('the reason')"
    process = ManagedProcess(
        ProcessSpec(name="part", folder=tmp_path, argv=(sys.executable, "-c", script), ready=lambda _: "no")
    )
    with pytest.raises(ProcessFailed, match="19999\nthe reason"):
        process.start()
    process.stop()


def test_a_part_whose_log_is_no_longer_written_is_named(tmp_path: Path) -> None:
    process = ManagedProcess(
        ProcessSpec(name="part", folder=tmp_path, argv=(sys.executable, "-c", "import time; time.sleep(60)"))
    )
    try:
        process.start()
        assert part_status(process).problem == ""
        assert process._pump is not None
        process._pump.kill()
        process._pump.wait(10)
        status = part_status(ManagedProcess(process.spec))
        assert status.state == "ready"
        assert "its log is lost" in status.problem
    finally:
        process.stop()


def test_nothing_of_a_stopped_part_runs_its_pump_neither(tmp_path: Path) -> None:
    process = ManagedProcess(
        ProcessSpec(name="part", folder=tmp_path, argv=(sys.executable, "-c", "import time; time.sleep(60)"))
    )
    process.start()
    noted = process.pid_path.read_text()
    other = ManagedProcess(process.spec)  # as `down` is another process than `up`
    other.stop()
    assert "pump" in noted
    assert process._pump is not None
    assert process._pump.poll() == 0
