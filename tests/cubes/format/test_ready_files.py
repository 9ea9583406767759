"""`ready_files`: all files of a READY version, with what reading them takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtolap.base.errors import Corrupted, NotFound
from rtolap.cubes.format.history import ReadyFile, ready_files, write_manifest
from rtolap.cubes.format.manifest import MANIFEST_NAME, CuboidEntry, FileEntry, HistoryManifest
from rtolap.object_store.store import ObjectStore, open_store

LOCATION = "history/c/s/v2-b"


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    store = open_store(tmp_path.as_uri())
    base = CuboidEntry(
        "base",
        ("d", "e"),
        7,
        (FileEntry("base/part-0.parquet", 3, 30, "aa"), FileEntry("base/part-1.parquet", 4, 40, "bb")),
    )
    small = CuboidEntry("d", ("d",), 2, (FileEntry("d/part-0.parquet", 2, 20, "cc"),))
    manifest = HistoryManifest(
        cube="c", segment="s", version=2, build_id="b", covered={0: 9}, events=70, cuboids=(base, small)
    )
    write_manifest(store, LOCATION, manifest)
    return store


def test_every_file_of_every_cuboid_is_named_with_rows_bytes_and_checksum(store: ObjectStore) -> None:
    manifest, files = ready_files(store, cube="c", segment="s", version=2, location=LOCATION)
    assert (manifest.covered, manifest.events) == ({0: 9}, 70)
    assert files == (
        ReadyFile(f"{LOCATION}/base/part-0.parquet", "base", ("d", "e"), 3, 30, "aa"),
        ReadyFile(f"{LOCATION}/base/part-1.parquet", "base", ("d", "e"), 4, 40, "bb"),
        ReadyFile(f"{LOCATION}/d/part-0.parquet", "d", ("d",), 2, 20, "cc"),
    )


def test_a_folder_of_another_version_or_without_a_manifest_yields_nothing(store: ObjectStore) -> None:
    with pytest.raises(Corrupted, match="belongs to another version"):
        ready_files(store, cube="c", segment="s", version=3, location=LOCATION)
    store.delete(f"{LOCATION}/{MANIFEST_NAME}")
    with pytest.raises(NotFound):
        ready_files(store, cube="c", segment="s", version=2, location=LOCATION)
