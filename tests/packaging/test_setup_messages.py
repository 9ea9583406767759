"""scripts/setup on a machine that lacks something: it names what, and the command that mends it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_SETUP = Path(__file__).resolve().parents[2] / "scripts" / "setup"
_TOOLS = ("dirname", "sed", "head")
_PYTHON = f'exec {sys.executable} "$@"'
_OLD_PYTHON = f'exec {sys.executable} -c "import sys; sys.version_info = (3, 9, 2); exec(sys.argv[1])" "$2"'
_PYTHON_WITHOUT_VENV = f'case "$2" in *ensurepip*) exit 1;; esac; {_PYTHON}'


class Machine:
    """A copy of the script in a folder of its own, and a PATH with nothing but what is put there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = folder / "scripts" / "setup"
        self.programs = folder / "bin"
        self.script.parent.mkdir()
        self.programs.mkdir()
        shutil.copy(_SETUP, self.script)
        for tool in _TOOLS:
            found = shutil.which(tool)
            assert found is not None
            (self.programs / tool).symlink_to(found)

    def program(self, name: str, script: str) -> Path:
        path = self.programs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def java(self, version: str, name: str = "java") -> None:
        self.program(name, f"""echo 'openjdk version "{version}" 2024-01-01' >&2""")

    def refusal(self, **environment: str) -> list[str]:
        """The lines on stderr. The script must end with 1 and must not have begun to install."""
        done = subprocess.run(
            ["/bin/sh", str(self.script)],
            env={"PATH": str(self.programs), **environment},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        assert not (self.folder / ".venv").exists()
        return done.stderr.strip().splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_missing_or_too_old_python_is_named(machine: Machine, is_there: bool) -> None:
    if is_there:
        machine.program("python3", _OLD_PYTHON)
    what, mend = machine.refusal()
    assert what == "setup: Python 3.11 to 3.13 is needed, none was found on the PATH"
    assert mend.split(": ")[1].startswith("apt-get install python3 python3-venv ")
    assert "RTOLAP_PYTHON" in mend


def test_a_python_that_makes_no_environments_is_named(machine: Machine) -> None:
    machine.program("python3", _OLD_PYTHON)
    python = machine.program("python3.11", _PYTHON_WITHOUT_VENV)
    assert machine.refusal() == [
        f"setup: {python} cannot make virtual environments",
        "       mend it with: apt-get install python3-venv",
    ]


def test_a_missing_java_is_named(machine: Machine) -> None:
    machine.program("python3", _PYTHON)
    what, mend = machine.refusal()
    assert what == "setup: Java 17 is needed, none was found"
    assert mend.split(": ")[1].startswith("apt-get install openjdk-17-jre-headless ")
    assert "JAVA_HOME" in mend


@pytest.mark.parametrize(
    ("version", "shown"), [("11.0.22", "version 11"), ("1.8.0_392", "version 1"), ("", "version unknown")]
)
def test_a_too_old_java_is_named_with_its_version(machine: Machine, version: str, shown: str) -> None:
    machine.program("python3", _PYTHON)
    machine.java(version)
    what, mend = machine.refusal()
    assert what == f"setup: Java 17 or newer is needed, java is {shown}"
    assert mend.split(": ")[1].startswith("apt-get install openjdk-17-jre-headless ")


def test_java_home_goes_before_the_path(machine: Machine) -> None:
    machine.program("python3", _PYTHON)
    machine.java("17.0.10")
    home = machine.programs / "home"
    machine.java("11.0.22", "home/bin/java")
    assert machine.refusal(JAVA_HOME=str(home))[0].endswith(f"{home}/bin/java is version 11")


def test_a_missing_make_is_named(machine: Machine) -> None:
    python = machine.program("chosen", _PYTHON)  # named by RTOLAP_PYTHON, not on the PATH as python3
    machine.java("17.0.10")
    assert machine.refusal(RTOLAP_PYTHON=str(python)) == [
        "setup: make is needed",
        "       mend it with: apt-get install make",
    ]
