"""History versions at rest: folders, checksums, reading, verifying, dumping. No Spark in here.

A version is `history/<cube>/<segment>/v<version>-<build id>/`, with one folder per cuboid and a manifest that
is written last: a folder without one is an attempt that did not finish, and is never read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from rtolap.base.errors import Corrupted, NotFound, RtolapError
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.format import file_states
from rtolap.cubes.format.file_states import FileToLookAt, Looked, file_state
from rtolap.cubes.format.manifest import (
    MANIFEST_NAME,
    CuboidEntry,
    FileEntry,
    HistoryManifest,
    decode,
    encode,
)
from rtolap.model.cube import Cuboid, Schema
from rtolap.object_store.store import ObjectStore

FOLDER_LENGTH_MAX = 120  # file systems allow 255 bytes a name; paths stay readable below this
REBUILD = (
    "`rtolap segments requeue CUBE SEGMENT` builds it again: from the base cuboid, the one with all "
    "dimensions, or where that is lost from Kafka; or restore the file"
)


def cuboid_folder(cuboid: Cuboid) -> str:
    """Return the cuboid's name, or its beginning and a hash where the name is too long for a path."""
    name = cuboid.name
    if len(name) <= FOLDER_LENGTH_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: FOLDER_LENGTH_MAX - len(digest) - 1]}-{digest}"


def manifest_path(location: str) -> str:
    return f"{location}/{MANIFEST_NAME}"


def read_manifest(store: ObjectStore, location: str) -> HistoryManifest:
    """Read the manifest of a version. Raises NotFound where there is none, Corrupted where it fails its
    checksum."""
    path = manifest_path(location)
    return decode(store.read(path), HistoryManifest, path)


class ReadyFile(NamedTuple):
    """A Parquet file of a READY version.

    Attributes:
        path: in the object store.
        cuboid: name of the cuboid whose rows it holds.
        dimensions: of that cuboid; the base cuboid has all dimensions of the cube.
        sha256: checksum of the whole file, in hex.
    """

    path: str
    cuboid: str
    dimensions: tuple[str, ...]
    rows: int
    bytes: int
    sha256: str


def ready_files(
    store: ObjectStore, *, cube: str, segment: str, version: int, location: str
) -> tuple[HistoryManifest, tuple[ReadyFile, ...]]:
    """Return the manifest of a READY version, and all its files with what reading them takes.

    `version` and `location` are those of the segment's record. Raises NotFound where the folder is gone, for
    example because a later version has replaced it: read the record again. Corrupted where the manifest is
    damaged or another version's.
    """
    manifest = read_manifest(store, location)
    found, expected = (manifest.cube, manifest.segment, manifest.version), (cube, segment, version)
    if found != expected:
        raise Corrupted(
            f"manifest {manifest_path(location)} belongs to another version",
            expected=expected,
            found=found,
            action=REBUILD,
        )
    return manifest, tuple(
        ReadyFile(f"{location}/{file.name}", entry.name, entry.dimensions, file.rows, file.bytes, file.sha256)
        for entry in manifest.cuboids
        for file in entry.files
    )


def write_manifest(store: ObjectStore, location: str, manifest: HistoryManifest) -> None:
    """Write the manifest, as the last write of a build. From here on the version can be promoted."""
    store.write(manifest_path(location), encode(manifest))


def entry_of(manifest: HistoryManifest, cuboid: Cuboid) -> CuboidEntry:
    for entry in manifest.cuboids:
        if set(entry.dimensions) == set(cuboid.dimensions):
            return entry
    raise NotFound(
        f"{manifest.cube}/{manifest.segment} version {manifest.version} has no cuboid {cuboid.name}",
        found=", ".join(entry.name for entry in manifest.cuboids),
    )


def check_base(store: ObjectStore, location: str, *, read_all: bool) -> None:
    """Check that builds can start from a version: its manifest is whole, and the base cuboid's files are
    there and as long as they were, with `read_all` the very same. Raises NotFound or Corrupted."""
    manifest = read_manifest(store, location)
    base = max(manifest.cuboids, key=lambda cuboid: len(cuboid.dimensions), default=None)
    files = () if base is None else base.files
    for file in files:
        path = f"{location}/{file.name}"
        if (size := store.size_bytes(path)) != file.bytes:
            raise Corrupted(f"file {path} is damaged", expected=f"{file.bytes} bytes", found=f"{size} bytes")
    if read_all:
        verify_files(store, location, files)


def describe_file(store: ObjectStore, folder: str, name: str) -> FileEntry:
    """Return checksum, size and rows of a Parquet file that was just written."""
    return file_states.entry_of(name, file_state(store, FileToLookAt(f"{folder}/{name}", hashes_ranges=True)))


def verify_files(
    store: ObjectStore, folder: str, files: Iterable[FileEntry], *, action: str = REBUILD
) -> int:
    """Verify that every file exists and matches its manifest, and return the rows. Raises Corrupted."""
    total_rows = 0
    for entry in files:
        path = f"{folder}/{entry.name}"
        try:
            looked: Looked = file_state(store, FileToLookAt(path))
        except NotFound as error:
            looked = error
        check_file(path, entry, looked, action=action)
        total_rows += entry.rows
    return total_rows


def check_file(path: str, entry: FileEntry, looked: Looked, *, action: str = REBUILD) -> None:
    """Compare a file that was looked at with its line in a manifest.

    Raises Corrupted, and errors of looking.
    """
    if isinstance(looked, NotFound):
        raise Corrupted(f"file {path} is missing", found="nothing there", action=action) from looked
    if isinstance(looked, RtolapError):
        raise looked
    if (looked.bytes, looked.sha256) != (entry.bytes, entry.sha256):
        raise Corrupted(
            f"file {path} does not match its checksum",
            expected=f"{entry.bytes} bytes, sha256 {entry.sha256}",
            found=f"{looked.bytes} bytes, sha256 {looked.sha256}",
            action=action,
        )
    if looked.problem is not None:
        raise Corrupted(f"file {path} is not Parquet", found=looked.problem, action=action)
    if looked.rows != entry.rows:
        raise Corrupted(f"file {path} has another number of rows", expected=entry.rows, found=looked.rows)


def verify(store: ObjectStore, location: str, schema: Schema | None = None) -> HistoryManifest:
    """Verify the checksums of all files, the rows of each cuboid, and that every cuboid has the same number
    of events.

    With a `schema` the columns are compared too. Raises Corrupted or NotFound.
    """
    manifest = read_manifest(store, location)
    for cuboid in manifest.cuboids:
        rows = verify_files(store, location, cuboid.files)
        if rows != cuboid.rows:
            raise Corrupted(f"cuboid {cuboid.name} of {location}", expected=f"{cuboid.rows} rows", found=rows)
        if schema is not None:
            _verify_columns(store, location, cuboid, physical_schema(schema, cuboid.dimensions, plain=True))
        if (events := count_events(store, location, cuboid.files)) != manifest.events:
            raise Corrupted(
                f"cuboid {cuboid.name} of {location} holds another number of events",
                expected=manifest.events,
                found=events,
                action=REBUILD,
            )
    return manifest


def count_events(store: ObjectStore, folder: str, files: Iterable[FileEntry]) -> int:
    """Sum of `__rows`, read back from the files."""
    return sum(file_states.count_events(store, f"{folder}/{entry.name}") for entry in files)


def dump(store: ObjectStore, location: str) -> dict[str, object]:
    """Return the manifest in plain terms, for people and `--json`."""
    manifest = read_manifest(store, location)
    return {
        "location": location,
        "cube": manifest.cube,
        "segment": manifest.segment,
        "version": manifest.version,
        "build_id": manifest.build_id,
        "events": manifest.events,
        "completeness": msgspec.to_builtins(manifest.completeness),
        "late_events": manifest.late_events,
        "late_ppm": manifest.late_ppm,
        "losses": msgspec.to_builtins(manifest.losses),
        "covered": {str(partition): offset for partition, offset in sorted(manifest.covered.items())},
        "cuboids": [
            {
                "name": cuboid.name,
                "rows": cuboid.rows,
                "files": len(cuboid.files),
                "bytes": sum(file.bytes for file in cuboid.files),
            }
            for cuboid in manifest.cuboids
        ],
    }


def _verify_columns(store: ObjectStore, location: str, cuboid: CuboidEntry, expected: pa.Schema) -> None:
    for entry in cuboid.files:
        path = f"{location}/{entry.name}"
        with store.open(path) as source:
            schema = pq.read_schema(source)
        if [(f.name, f.type) for f in schema] != [(f.name, f.type) for f in expected]:
            raise Corrupted(
                f"file {path} has other columns",
                expected=", ".join(f"{field.name} {field.type}" for field in expected),
                found=", ".join(f"{field.name} {field.type}" for field in schema),
            )
