"""Staged parts are uploaded by a replica set from a closed segment, for Spark to build from.

Files carry fresh names in a fresh folder (`unique`), so a repeated upload never touches an earlier one; the
manifest, written last, makes the part exist.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from rtolap.base.errors import Corrupted, DefinitionError, NotFound
from rtolap.columnar.schema import columns_with_statistics, physical_schema
from rtolap.cubes.format.folders import creation_folder
from rtolap.cubes.format.manifest import MANIFEST_NAME, FileEntry, StagedManifest, decode, encode
from rtolap.cubes.format.pages import WRITTEN
from rtolap.model.cube import Schema
from rtolap.model.offsets import Offsets, PartRange
from rtolap.model.segment import StagedPart
from rtolap.object_store.store import ObjectStore

FILE_ROWS_MAX = 1_000_000  # rows of one Parquet file: bounds the memory that an upload needs
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def staged_folder(cube: str, cube_id: str, segment: str, version: int, replica_set: str, unique: str) -> str:
    """Return the folder relative to the object store's root.

    DefinitionError for names that are no path parts.
    """
    for part in (cube, segment, replica_set, unique):
        if not _NAME.fullmatch(part) or part in (".", ".."):
            raise DefinitionError(
                "not a name for a path", expected="letters, digits, _ . -", found=repr(part)
            )
    return f"{creation_folder('staged', cube, cube_id)}/{segment}/v{version}/{replica_set}-{unique}"


def write_staged_part(
    store: ObjectStore,
    *,
    schema: Schema,
    cube: str,
    segment: str,
    version: int,
    replica_set: str,
    ranges: Sequence[PartRange],
    tables: Iterable[pa.Table],
    events: int,
    unique: str,
    cube_id: str = "",
    begins: Offsets | None = None,
) -> StagedPart:
    """Write plain tables of all physical columns as Parquet files, then the manifest.

    `cube_id` is of the cube's creation. `version` is the history version that the part becomes; `ranges`,
    `events` and `begins` say what it
    holds. A crash before the manifest leaves a folder that is never read.
    """
    folder = staged_folder(cube, cube_id, segment, version, replica_set, unique)
    expected = physical_schema(schema, plain=True)
    files: list[FileEntry] = []
    for table in tables:
        for start in range(0, table.num_rows, FILE_ROWS_MAX):
            part = table.slice(start, FILE_ROWS_MAX)
            if part.column_names != expected.names:
                raise DefinitionError(
                    f"part of {cube} {segment} has other columns",
                    expected=expected.names,
                    found=part.column_names,
                )
            files.append(_write_file(store, folder, f"part-{len(files):05}.parquet", part.cast(expected)))
    manifest = StagedManifest(
        cube=cube,
        segment=segment,
        version=version,
        replica_set=replica_set,
        ranges=tuple(ranges),
        files=tuple(files),
        events=events,
    )
    store.write(f"{folder}/{MANIFEST_NAME}", encode(manifest))
    return StagedPart(
        replica_set=replica_set,
        path=folder,
        ranges=tuple(ranges),
        rows=sum(entry.rows for entry in files),
        events=events,
        bytes=sum(entry.bytes for entry in files),
        begins=begins or {},
    )


def read_staged_manifest(store: ObjectStore, path: str) -> StagedManifest:
    """Read the manifest of a staged part. `path` is the part's folder. Raises NotFound when there is no
    manifest, Corrupted when it is damaged."""
    where = f"{path}/{MANIFEST_NAME}"
    return decode(store.read(where), StagedManifest, where)


def verify_staged(store: ObjectStore, path: str) -> StagedManifest:
    """Return the manifest, after every file was found whole. Corrupted names the first that is not."""
    manifest = read_staged_manifest(store, path)
    for entry in manifest.files:
        data = _checked(store, path, entry)
        rows = pq.read_metadata(pa.BufferReader(data)).num_rows
        if rows != entry.rows:
            raise Corrupted(
                f"staged file {path}/{entry.name} has other rows", expected=entry.rows, found=rows
            )
    return manifest


def _write_file(store: ObjectStore, folder: str, name: str, table: pa.Table) -> FileEntry:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_statistics=columns_with_statistics(table.schema), **WRITTEN)
    data = sink.getvalue().to_pybytes()
    store.write(f"{folder}/{name}", data)
    return FileEntry(name, table.num_rows, len(data), hashlib.sha256(data).hexdigest())


def _checked(store: ObjectStore, path: str, entry: FileEntry) -> bytes:
    try:
        data = store.read(f"{path}/{entry.name}")
    except NotFound as error:
        raise Corrupted(
            f"staged part {path} has lost a file", expected=entry.name, action="upload the part again"
        ) from error
    digest = hashlib.sha256(data).hexdigest()
    if len(data) != entry.bytes or digest != entry.sha256:
        raise Corrupted(
            f"staged file {path}/{entry.name} does not match its manifest",
            expected=f"{entry.bytes} bytes, sha256 {entry.sha256}",
            found=f"{len(data)} bytes, sha256 {digest}",
            action="upload the part again",
        )
    return data
