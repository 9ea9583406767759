"""The version is the tag: of a tagged commit, of one after it, of one before any tag, and without git."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import rtolap
from packaging.version import Version

from tests.support.paths import PROJECT

FALLBACK = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["version"][
    "fallback-version"
]
# What the build needs besides the package, which may be small here.
NEEDED = ("pyproject.toml", "README.md", "LICENSE", ".gitignore")


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=Tests", "-c", "user.email=tests@example.org")
    return run(folder, "git", *identity, "-c", "commit.gpgsign=false", *words)


def built(folder: Path, kind: str, target: Path) -> Path:
    run(folder, sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target))
    (made,) = target.iterdir()
    return made


def wheel_version(folder: Path, target: Path) -> str:
    return built(folder, "wheel", target).name.split("-")[1]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A small copy of the project, which is no checkout."""
    folder = tmp_path / "copy"
    for name in ("plugins/rtolap", "spark_jobs", "dags"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("")
    for name in NEEDED:
        shutil.copy(PROJECT / name, folder / name)
    return folder


def committed(folder: Path, message: str) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)


def test_a_copy_without_git_has_the_version_that_is_declared(copy: Path, tmp_path: Path) -> None:
    assert wheel_version(copy, tmp_path / "dist") == FALLBACK == rtolap.UNINSTALLED_VERSION


def test_a_checkout_without_tags_counts_its_commits(copy: Path, tmp_path: Path) -> None:
    git(copy, "init", "--quiet")
    committed(copy, "first")
    assert re.fullmatch(r"0\.1\.dev1\+g[0-9a-f]+", wheel_version(copy, tmp_path / "dist"))


def test_a_tag_is_the_version_and_commits_after_it_come_before_the_next_one(
    copy: Path, tmp_path: Path
) -> None:
    git(copy, "init", "--quiet")
    committed(copy, "first")
    git(copy, "tag", "v0.2.0")
    assert wheel_version(copy, tmp_path / "tagged") == "0.2.0"
    committed(copy, "second")
    later = wheel_version(copy, tmp_path / "later")
    assert re.fullmatch(r"0\.2\.1\.dev1\+g[0-9a-f]+", later)
    assert Version("0.2.0") < Version(later) < Version("0.2.1")


def test_a_source_distribution_keeps_the_version_and_builds_the_same_wheel_without_git(
    copy: Path, tmp_path: Path
) -> None:
    git(copy, "init", "--quiet")
    committed(copy, "first")
    git(copy, "tag", "v0.2.0")
    archive = built(copy, "sdist", tmp_path / "sdist")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert (unpacked / "LICENSE").read_text() == (PROJECT / "LICENSE").read_text()
    assert wheel_version(unpacked, tmp_path / "dist") == "0.2.0"


def test_the_package_says_the_version_that_is_installed_and_one_where_nothing_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Version(rtolap.__version__) >= Version("0.1.dev0")

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert rtolap.__version__ == FALLBACK
    with pytest.raises(AttributeError, match="no attribute 'verson'"):
        _ = rtolap.verson
