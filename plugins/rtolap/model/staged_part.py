"""The upload of a replica set, as the format writes it and the segment record keeps it."""

from __future__ import annotations

import msgspec

from rtolap.model.offsets import Offsets, PartRange


class StagedPart(msgspec.Struct, frozen=True):
    """Files that one replica set uploaded for one version of a segment.

    `path` is a folder in the object store, relative to its root. It holds a manifest and Parquet files;
    it is empty of files when the ranges held no event of the segment. `begins`: no event of the segment is
    held of a partition below this offset; to read the part's events again is to read from there.
    """

    replica_set: str
    path: str
    ranges: tuple[PartRange, ...]
    rows: int
    events: int
    bytes: int
    begins: Offsets = {}
