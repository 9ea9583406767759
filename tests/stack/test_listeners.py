"""An answer counts only when it comes from the process that was started."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.base.errors import ProcessFailed
from rtolap.stack import ports
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.spec import ProcessSpec

_LISTEN = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(60)
"""
_LISTEN_IN_A_CHILD = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[1]])
"""
_NEVER = "import time; time.sleep(60)"


@pytest.fixture
def stranger(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port on which this very process listens."""
    with socket.create_server(("127.0.0.1", free_port())) as server:
        yield server.getsockname()[1]


def answers(port: int) -> str | None:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError as error:
        return str(error)
    return None


def part(folder: Path, port: int, *script: str, ready_timeout_s: float = 10) -> ManagedProcess:
    return ManagedProcess(
        ProcessSpec(
            name="part",
            folder=folder,
            argv=(sys.executable, "-c", script[0], str(port), *script[1:]),
            ports=(port,),
            ready=lambda _: answers(port),
            ready_timeout_s=ready_timeout_s,
        )
    )


@pytest.mark.parametrize("script", [(_LISTEN,), (_LISTEN_IN_A_CHILD, _LISTEN)])
def test_a_part_is_ready_once_it_or_its_child_listens(tmp_path: Path, script: tuple[str, ...]) -> None:
    process = part(tmp_path, free_port(), *script)
    try:
        process.start()
        assert process.missing() is None
    finally:
        process.stop()


def test_an_answer_of_another_process_does_not_make_a_part_ready(tmp_path: Path) -> None:
    port = free_port()
    process = part(tmp_path, port, _NEVER, ready_timeout_s=0.5)
    try:
        process.start(wait=False)
        with (
            socket.create_server(("127.0.0.1", port)),
            pytest.raises(ProcessFailed, match=rf"port {port} belongs to process {os.getpid()} \("),
        ):
            process.wait_ready()
    finally:
        process.stop()


def test_a_part_whose_port_is_taken_is_not_started_and_the_holder_is_named(
    tmp_path: Path, stranger: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "_FREE_TIMEOUT_S", 0.1)
    process = part(tmp_path, stranger, _NEVER)
    with pytest.raises(ProcessFailed, match=rf"port {stranger} free.*process {os.getpid()} \("):
        process.start()
    assert process.pid() is None


def test_a_port_on_which_nobody_listens_is_nobodys(tmp_path: Path) -> None:
    port = free_port()
    assert ports.foreign_listener((port,), None) == f"port {port} belongs to nobody"
