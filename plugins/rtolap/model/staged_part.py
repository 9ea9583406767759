"""What a replica set uploaded: the noun that the format writes and the segment record keeps."""

from __future__ import annotations

import msgspec

from rtolap.model.offsets import PartRange


class StagedPart(msgspec.Struct, frozen=True):
    """Files that one replica set uploaded for one version of a segment.

    `path` is a folder in the object store, relative to its root. It holds a manifest and Parquet files;
    it is empty of files when the ranges held no event of the segment.
    """

    replica_set: str
    path: str
    ranges: tuple[PartRange, ...]
    rows: int
    events: int
    bytes: int
