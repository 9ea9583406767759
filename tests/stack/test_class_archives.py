"""An archive of classes belongs to one java and one class path; without one, programs start all the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rtolap.stack.java import archive_flags, archive_path


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[Path]]:
    """A java and two jars, and a cache of the test's own."""
    monkeypatch.setenv("RTOLAP_CACHE_DIR", str(tmp_path / "cache"))
    java, *paths = (tmp_path / name for name in ("java", "a.jar", "b.jar"))
    for path in (java, *paths):
        path.write_bytes(b"x")
    return str(java), paths


def test_without_an_archive_there_are_no_flags_and_with_one_it_is_named(jars: tuple[str, list[Path]]) -> None:
    java, paths = jars
    assert archive_flags("kafka", java, paths) == ()
    archive = archive_path("kafka", java, paths)
    archive.parent.mkdir(parents=True)
    archive.touch()
    assert archive_flags("kafka", java, paths)[0] == f"-XX:SharedArchiveFile={archive}"
    assert archive_flags("spark", java, paths) == ()


@pytest.mark.parametrize("changed", ["java", "a.jar"])
def test_another_java_or_jar_has_another_archive(jars: tuple[str, list[Path]], changed: str) -> None:
    java, paths = jars
    before = archive_path("kafka", java, paths)
    path = paths[0].with_name(changed)
    os.utime(path, ns=(1, 1))
    assert archive_path("kafka", java, paths) != before
    assert archive_path("kafka", java, paths[:1]) != archive_path("kafka", java, paths)
