"""Each command of the tree ends without noise: help, wrong usage, a reader that goes away, completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

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
    for words, reader in json.load(sys.stdin):
        err = tempfile.TemporaryFile()
        out = tempfile.TemporaryFile()
        child = os.fork()
        if child == 0:
            os.dup2(err.fileno(), 2)
            if reader:
                os.dup2(out.fileno(), 1)
            else:
                reading, writing = os.pipe()
                os.close(reading)
                os.dup2(writing, 1)
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


def run_all(runs: list[tuple[list[str], bool]], folder: Path) -> list[tuple[list[str], int, str, int]]:
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
    ended = run_all([([*words, "--help"], True) for words in every_command(0)], tmp_path)
    assert [(words, code, told) for words, code, told, size in ended if code or told or not size] == []
    assert len(ended) > 40


def test_wrong_usage_of_every_command_says_that_and_nothing_else(tmp_path: Path) -> None:
    for words, code, told, size in run_all(
        [([*words, "--no-such-option"], True) for words in every_command(1)], tmp_path
    ):
        assert (code, size) == (2, 0), words
        assert "No such option" in told or "Missing argument" in told, (words, told)
        assert not any(noise in told for noise in NOISE), (words, told)


def test_a_reader_that_goes_away_hears_of_no_command(tmp_path: Path) -> None:
    runs = [([name, "--help"], False) for name in MOUNTS]
    for words, code, told, _ in run_all(runs, tmp_path):
        assert (code, told) == (1, ""), words
