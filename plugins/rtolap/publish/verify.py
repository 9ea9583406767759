"""The check of a table against the records: it names each file of each READY version once."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from rtolap.metadata.cubes import ClusterMetadata
from rtolap.model.publication import Publication
from rtolap.object_store.store import ObjectStore
from rtolap.publish.table import published_table
from rtolap.publish.versions import files_of, ready_versions


class SnapshotSegment(NamedTuple):
    """A segment as a snapshot has it."""

    segment: str
    version: int
    files: int
    rows: int


class Verified(NamedTuple):
    """The result of a check.

    Attributes:
        missing: files of READY versions that the newest snapshot does not name.
        surplus: files that it names without reason, or twice.
        gone: files that any snapshot names and that the object store does not have.
    """

    segments: int
    files: int
    rows: int
    missing: tuple[str, ...]
    surplus: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def sound(self) -> bool:
        return not (self.missing or self.surplus or self.gone)


def verify_publication(metadata: ClusterMetadata, store: ObjectStore, publication: Publication) -> Verified:
    """Compare the table with the records as they are now. A publisher that is behind has files missing."""
    with published_table(metadata, publication, store) as table:
        ready = ready_versions(metadata.control(publication.cube), metadata.nodes.segments(publication.cube))
        wanted = {
            file.path: file
            for version in ready.values()
            for file in files_of(store, publication.cube, version, table.cuboid)
        }
        table.read()
        newest = table.named_files(table.snapshot)
        all_named = {file.uri for each in table.table.metadata.snapshots for file in table.named_files(each)}
    uris = {store.uri(path): file for path, file in wanted.items()}
    times = Counter(file.uri for file in newest)
    there = {store.uri(file.path) for file in store.list(f"history/{publication.cube}")}
    return Verified(
        len({file.version.segment for file in newest if file.version is not None}),
        len(newest),
        sum(file.rows for file in newest),
        tuple(sorted(uris.keys() - times.keys())),
        tuple(sorted(uri for uri, count in times.items() if count > 1 or uri not in uris)),
        tuple(sorted(all_named - there)),
    )


def segments_of_snapshot(
    metadata: ClusterMetadata, store: ObjectStore, publication: Publication, snapshot_id: int | None
) -> list[SnapshotSegment]:
    """Return the segments of a snapshot, None for the newest, in order. Raises NotFound."""
    with published_table(metadata, publication, store) as table:
        table.read()
        named = table.named_files(table.snapshot_of(snapshot_id))
    files: Counter[tuple[str, int]] = Counter()
    rows: Counter[tuple[str, int]] = Counter()
    for file in named:
        if file.version is not None:
            key = (file.version.segment.name, file.version.version)
            files[key] += 1
            rows[key] += file.rows
    return [SnapshotSegment(*key, files[key], rows[key]) for key in sorted(files)]
