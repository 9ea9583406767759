"""READY versions as the cluster's records have them, and their files.

This is the only module of the room that knows where a version's files are written down.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from rtolap.base.errors import Corrupted
from rtolap.cubes.format.history import ReadyFile, entry_of, ready_files
from rtolap.metadata.records import CubeControl, SegmentRecord, standing
from rtolap.model.cube import Cuboid
from rtolap.model.segment import SegmentRange, parse_segment_name
from rtolap.object_store.store import ObjectStore

_LOCATION = re.compile(r"(history/.+/([0-9]{14}_[0-9]{14})/v([0-9]+)(?:-[^/]+)?)/[^/]+/[^/]+")


class Version(NamedTuple):
    """A version of a segment in history.

    Attributes:
        location: its folder in the object store.
    """

    segment: SegmentRange
    version: int
    location: str


def ready_versions(control: CubeControl, records: Mapping[str, SegmentRecord]) -> dict[str, Version]:
    """Return the versions that queries read, by location."""
    found = {}
    for record in standing(control, records):
        if record.location is None:
            raise Corrupted(f"{record.cube}/{record.name} is at version {record.version} without a location")
        found[record.location] = Version(record.range, record.version, record.location)
    return found


def files_of(store: ObjectStore, cube: str, version: Version, cuboid: Cuboid) -> tuple[ReadyFile, ...]:
    """Return the files of the cuboid in a READY version; none where it has no rows.

    Raises NotFound or Corrupted where its manifest is missing, damaged or another version's.
    """
    manifest, files = ready_files(
        store,
        cube=cube,
        segment=version.segment.name,
        version=version.version,
        location=version.location,
    )
    name = entry_of(manifest, cuboid).name
    return tuple(file for file in files if file.cuboid == name)


def version_of_file(path: str) -> Version | None:
    """Return the version that a file of the object store belongs to; None for any other file."""
    match = _LOCATION.fullmatch(path)
    return None if match is None else Version(parse_segment_name(match[2]), int(match[3]), match[1])
