"""Each command of the tree ends without noise: help, wrong usage, full disks, closed streams, no reader."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from rtolap.cli.main import MOUNTS

from tests.support.reference import commands
from tests.support.seeds import so_many

NOISE = ("leaked", "ZooKeeper session", "Traceback", "Exception ignored", "BrokenPipe")

# Children of one interpreter that has loaded the commands: each runs the command line to its end.
RUNS = """
    import json, os, sys, tempfile
    from rtolap.cli import main

    for name in main.MOUNTS:
        main.load(name)
    ended = []
    for words, goes_to in json.load(sys.stdin):
        err = tempfile.TemporaryFile()
        out = tempfile.TemporaryFile()
        child = os.fork()
        if child == 0:
            os.dup2(err.fileno(), 2)
            if goes_to == "file":
                os.dup2(out.fileno(), 1)
            elif goes_to == "nobody":
                reading, writing = os.pipe()
                os.close(reading)
                os.dup2(writing, 1)
            else:
                os.dup2(os.open(goes_to, os.O_WRONLY), 1)
            sys.argv = ["rtolap", *words]
            main.main()
        _, status = os.waitpid(child, 0)
        err.seek(0)
        out.seek(0)
        ended.append((words, os.waitstatus_to_exitcode(status), err.read().decode(), len(out.read())))
    sys.stdout.write(json.dumps(ended))
    sys.stdout.flush()
    os._exit(0)
"""


CLOSED = """
    import os, sys
    from rtolap.cli.output import success
    from rtolap.cli.standard_streams import set_up_standard_streams

    set_up_standard_streams()
    data = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
    os.write(2, b"what a library says")
    success("done")
    sys.stdin.read()
    sys.stdout.flush()
    os._exit(10 + data)
"""


def run_all(runs: list[tuple[list[str], str]], folder: Path) -> list[tuple[list[str], int, str, int]]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(RUNS)],
        input=json.dumps(runs),
        capture_output=True,
        text=True,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("RTOLAP_")},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [(words, code, told, size) for words, code, told, size in json.loads(done.stdout)]


def every_command(turn: int) -> list[list[str]]:
    """Every command in a soak; else each second one, and with the other `turn` the others."""
    listed = [words.split() for words, _ in commands()]
    return listed if so_many(1) > 1 else listed[turn::2]


def test_help_of_every_command_is_all_that_is_printed(tmp_path: Path) -> None:
    ended = run_all([([*words, "--help"], "file") for words in every_command(0)], tmp_path)
    assert [(words, code, told) for words, code, told, size in ended if code or told or not size] == []
    assert len(ended) > 40


def test_wrong_usage_of_every_command_says_that_and_nothing_else(tmp_path: Path) -> None:
    for words, code, told, size in run_all(
        [([*words, "--no-such-option"], "file") for words in every_command(1)], tmp_path
    ):
        assert (code, size) == (2, 0), words
        assert "No such option" in told or "Missing argument" in told, (words, told)
        assert not any(noise in told for noise in NOISE), (words, told)


def test_a_reader_that_goes_away_hears_of_no_command(tmp_path: Path) -> None:
    runs = [([name, "--help"], "nobody") for name in MOUNTS]
    for words, code, told, _ in run_all(runs, tmp_path):
        assert (code, told) == (1, ""), words


def test_output_that_cannot_be_written_is_an_error_of_one_line(tmp_path: Path) -> None:
    runs = [([name, "--help"], "/dev/full") for name in MOUNTS]
    line = "error: the output cannot be written; found No space left on device"
    for words, code, told, _ in run_all(runs, tmp_path):
        assert (code, told.splitlines()) == (1, [line]), words


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
def test_a_standard_stream_that_is_closed_is_no_other_file(tmp_path: Path, closed: tuple[int, ...]) -> None:
    """The next file that is opened would have its number, and what is written on stderr."""
    file = tmp_path / "data"
    closing = " ".join(f"{number}>&-" for number in closed)
    command = shlex.join([sys.executable, "-c", textwrap.dedent(CLOSED), str(file)])
    done = subprocess.run(
        ["bash", "-c", f"{command} {closing}"], input="", capture_output=True, text=True, check=False
    )
    assert done.returncode >= 13, done.stderr
    assert file.read_bytes() == b""


def test_what_the_encoding_of_the_output_lacks_is_written_as_escapes() -> None:
    code = """
        from rtolap.cli.output import success
        from rtolap.cli.standard_streams import set_up_standard_streams

        set_up_standard_streams()
        success("Zürich")
    """
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, env=environment, check=True
    )
    assert done.stdout == rb"\u2713 Z\xfcrich" + b"\n"
