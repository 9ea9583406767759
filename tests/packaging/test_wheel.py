"""The wheel: what is in it, and that pip installs it beside an existing Airflow."""

from __future__ import annotations

import configparser
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

_PROJECT = Path(__file__).resolve().parents[2]
_SOURCES = {
    _PROJECT / "plugins" / "rtolap": "rtolap",
    _PROJECT / "spark_jobs": "rtolap/shipped/spark_jobs",
    _PROJECT / "dags": "rtolap/shipped/dags",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=_PROJECT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (built,) = folder.glob("rtolap-*.whl")
    return built


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {
        f"{target}/{path.relative_to(folder).as_posix()}"
        for folder, target in _SOURCES.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert names == expected
    assert "rtolap/shipped/spark_jobs/build_segment.py" in names
    assert "rtolap/shipped/dags/segment_build.py" in names


def test_the_wheel_declares_its_command_and_its_airflow_entry_points(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    points = configparser.ConfigParser()
    points.read_string(archive.read(name).decode())
    assert points["console_scripts"]["rtolap"] == "rtolap.cli.main:main"
    assert set(points.sections()) == {"console_scripts", "airflow.plugins", "apache_airflow_provider"}


def test_pip_installs_the_wheel_into_a_folder_where_it_runs(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--no-index", "--no-compile", "--target", str(target), str(wheel)),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    code = "import rtolap; from rtolap.cli.main import app; print(rtolap.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(target)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == str(target / "rtolap" / "__init__.py")
