"""Starting many: order, failure of one, interruption."""

from __future__ import annotations

import stat
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest
from rtolap.base.errors import RtolapError
from rtolap.stack import lifecycle
from rtolap.stack.layout import StackLayout
from rtolap.stack.lifecycle import Stack
from rtolap.stack.process import ManagedProcess, ProcessSpec
from rtolap.stack.together import Progress, start_all

_RUN = "import time; time.sleep(60)"


def _process(name: str, folder: Path, script: str = _RUN) -> ManagedProcess:
    """Ready at once, unless it is to fail."""
    missing = None if script == _RUN else "no answer"
    argv = (sys.executable, "-c", script)
    return ManagedProcess(ProcessSpec(name, folder / name, argv, ready=lambda _: missing))


def test_a_part_starts_after_those_it_needs(tmp_path: Path) -> None:
    processes = {name: _process(name, tmp_path) for name in ("zookeeper", "kafka", "coordinator")}
    seen: list[tuple[str, str]] = []
    try:
        failed = start_all(processes, lambda name, phase, note: seen.append((name, phase)))
        assert failed == {}
        started = seen.index(("coordinator", "starting"))
        assert seen.index(("zookeeper", "ready")) < started
        assert seen.index(("kafka", "ready")) < started
    finally:
        for process in processes.values():
            process.stop()


def test_a_part_whose_need_failed_is_skipped_and_named(tmp_path: Path) -> None:
    processes = {
        "zookeeper": _process("zookeeper", tmp_path),
        "kafka": _process("kafka", tmp_path, "raise SystemExit('no disk')"),
        "coordinator": _process("coordinator", tmp_path),
        "query": _process("query", tmp_path),
    }
    try:
        failed = start_all(processes, lambda name, phase, note: None)
        assert set(failed) == {"kafka", "coordinator", "query"}
        assert "no disk" in str(failed["kafka"])
        assert "coordinator failed" in str(failed["query"])
        assert processes["zookeeper"].pid() is not None
        assert processes["coordinator"].pid() is None
    finally:
        for process in processes.values():
            process.stop()


def test_an_interrupt_ends_the_waiting_at_once(tmp_path: Path) -> None:
    script = f"""
        import os, signal, sys, threading
        from pathlib import Path
        from rtolap.stack.together import start_all
        from rtolap.stack.process import ManagedProcess, ProcessSpec
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background run ignores it
        asked = threading.Event()
        def never(started_s):
            if not asked.is_set():
                asked.set()
                os.kill(os.getpid(), signal.SIGINT)
            return "not yet"
        spec = ProcessSpec(name="kafka", folder=Path({str(tmp_path)!r}), ready=never, ready_timeout_s=300,
                           argv=(sys.executable, "-c", {_RUN!r}))
        process = ManagedProcess(spec)
        try:
            start_all({{"kafka": process}}, lambda *unused: None)
        except KeyboardInterrupt:
            print("interrupted", process.state())
        finally:
            process.stop()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == "interrupted running", done.stderr


def test_an_interrupted_start_stops_what_it_started_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = {name: _process(name, tmp_path) for name in ("zookeeper", "kafka", "query")}
    processes["zookeeper"].start()

    def interrupted(started: Mapping[str, ManagedProcess], progress: Progress) -> dict[str, RtolapError]:
        started["kafka"].start()
        raise KeyboardInterrupt

    monkeypatch.setattr(lifecycle, "start_all", interrupted)
    stopped: list[str] = []
    try:
        with pytest.raises(KeyboardInterrupt):
            Stack(StackLayout(tmp_path)).start(
                processes, lambda name, phase, note: stopped.append(name) if phase == "stopped" else None
            )
        assert processes["kafka"].pid() is None
        assert processes["zookeeper"].pid() is not None
        assert stopped == ["query", "kafka"], "those that need others first"
    finally:
        for process in processes.values():
            process.stop()


def test_what_the_parts_of_a_stack_write_is_their_users_alone(tmp_path: Path) -> None:
    written = tmp_path / "written"
    script = f"open({str(written)!r}, 'w').close(); {_RUN}"
    argv = (sys.executable, "-c", script)
    ready = lambda _: None if written.exists() else "no file"  # noqa: E731
    processes = {"kafka": ManagedProcess(ProcessSpec("kafka", tmp_path / "kafka", argv, ready=ready))}
    try:
        assert start_all(processes, lambda *_: None) == {}
        assert stat.S_IMODE(written.stat().st_mode) == 0o600
    finally:
        processes["kafka"].kill()


def test_the_folder_of_a_stack_is_closed_to_others(tmp_path: Path) -> None:
    stack = Stack(StackLayout(tmp_path / "stack"))
    stack._make_folder()
    assert stat.S_IMODE((tmp_path / "stack").stat().st_mode) == 0o700
