"""Claims on ports: stacks that start at the same moment, and stacks that are gone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from rtolap.base.errors import Corrupted, Refused
from rtolap.stack.layout import StackLayout
from rtolap.stack.pids import PidRecord
from rtolap.stack.ports import PortClaims, choose_ports, free_port
from rtolap.stack.state import DEFAULT_PORTS

# Prints the ports it has claimed and lives until its stdin ends; waits for a line first.
_STACK = """
import json, sys
from pathlib import Path
from rtolap.stack.ports import PortClaims
from rtolap.stack.layout import StackLayout
from rtolap.stack.ports import choose_ports
claims, root, preferred = PortClaims(Path(sys.argv[1])), Path(sys.argv[2]), json.loads(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps(claims.choose(StackLayout(root), lambda taken: choose_ports(preferred, taken))), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def preferred() -> dict[str, int]:
    """The ports that every stack of a test would like best."""
    ports: dict[str, int] = {}
    for name in DEFAULT_PORTS:
        ports[name] = free_port(ports.values())
    return ports


class Stacks:
    """Commands of their own, as `rtolap stack up` is one."""

    def __init__(self, folder: Path, preferred: dict[str, int]) -> None:
        self._folder = folder
        self._preferred = preferred
        self.running: list[subprocess.Popen[str]] = []

    def start(self, count: int) -> list[dict[str, int]]:
        """Claim all at once, and return their ports."""
        started = [self._one(number) for number in range(len(self.running), len(self.running) + count)]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [json.loads(process.stdout.readline()) for process in started if process.stdout]

    def _one(self, number: int) -> subprocess.Popen[str]:
        folders = [str(self._folder / "claims"), str(self._folder / str(number))]
        process = subprocess.Popen(
            [sys.executable, "-c", _STACK, *folders, json.dumps(self._preferred)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def end(self) -> None:
        for process in self.running:
            process.communicate(timeout=30)


@pytest.fixture
def stacks(tmp_path: Path, preferred: dict[str, int]) -> Iterator[Stacks]:
    made = Stacks(tmp_path, preferred)
    yield made
    made.end()


def test_stacks_that_start_at_the_same_moment_have_no_port_in_common(
    stacks: Stacks, preferred: dict[str, int]
) -> None:
    chosen = stacks.start(4)
    every = [port for ports in chosen for port in ports.values()]
    assert len(set(every)) == len(every) == 4 * len(DEFAULT_PORTS)
    assert preferred in chosen  # whoever came first has those that all of them wanted


def test_a_claim_ends_with_the_command_that_made_it_unless_a_part_runs(
    stacks: Stacks, preferred: dict[str, int], tmp_path: Path
) -> None:
    assert stacks.start(1) == [preferred]
    stacks.running[0].kill()
    stacks.running[0].wait()
    claims, second = PortClaims(tmp_path / "claims"), StackLayout(tmp_path / "second")

    def wanted(taken: object) -> dict[str, int]:
        return choose_ports(preferred, taken)  # type: ignore[arg-type]

    run = StackLayout(tmp_path / "0").pid_file("kafka")
    run.parent.mkdir(parents=True)
    run.write_bytes(msgspec.json.encode(PidRecord(psutil.Process().pid, psutil.Process().create_time())))
    assert not set(claims.choose(second, wanted).values()) & set(preferred.values())
    run.unlink()
    assert claims.choose(second, wanted) == preferred


def test_a_stack_keeps_its_own_ports_when_it_chooses_again(preferred: dict[str, int], tmp_path: Path) -> None:
    claims, layout = PortClaims(tmp_path / "claims"), StackLayout(tmp_path / "stack")
    for _ in range(2):
        assert claims.choose(layout, lambda taken: choose_ports(preferred, taken)) == preferred


def test_a_folder_that_others_can_write_or_a_link_holds_no_claims(tmp_path: Path) -> None:
    shared, link = tmp_path / "shared", tmp_path / "link"
    shared.mkdir()
    shared.chmod(0o777)
    link.symlink_to(tmp_path)
    for folder in (shared, link):
        with pytest.raises(Refused, match="only this user can write"):
            PortClaims(folder).choose(StackLayout(tmp_path), lambda taken: {})


def test_damaged_claims_are_named(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir(mode=0o700)
    (tmp_path / "claims" / "ports.json").write_text("{")
    with pytest.raises(Corrupted, match=r"ports\.json"):
        PortClaims(tmp_path / "claims").choose(StackLayout(tmp_path), lambda taken: {})
