"""Manifests are written last, so that a folder without one is garbage. They are JSON, with a checksum of
itself.

Staged part   staged/<cube>/<segment>/v<version>/<replica set>-<unique>/{manifest.json, part-*.parquet}
History       history/<cube>/<segment>/v<version>-<build id>/{manifest.json, <cuboid>/part-*.parquet}
Batch         batches/<cube>/<batch>/{plan.json, batch.json}, and staged parts below it
Merged set    merged/<cube>/<level>/<merge>/{plan.json, set/{manifest.json, <cuboid>/part-*.parquet}}

Parquet columns are the physical columns of `rtolap.model.cube`; sketches are binary.
"""

from __future__ import annotations

import hashlib
from typing import TypeVar

import msgspec

from rtolap.base.errors import Corrupted
from rtolap.base.undecodable import decode_own
from rtolap.model.batch import BatchSpec
from rtolap.model.completeness import Completeness, EventLoss
from rtolap.model.merging.specs import MergeMember, MergeSpec
from rtolap.model.offsets import Offsets, PartRange
from rtolap.model.segment import StagedPart

MANIFEST_NAME = "manifest.json"
BATCH_NAME, PLAN_NAME = "batch.json", "plan.json"
FORMAT_VERSION = 1


class FileRange(msgspec.Struct, frozen=True, array_like=True):
    """A run of bytes of a file, which begins where the one before ends.

    Attributes:
        sha256: checksum of these bytes, in hex.
    """

    bytes: int
    sha256: str


class FileEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of a manifest.

    Attributes:
        name: relative to the manifest's folder.
        sha256: checksum of the whole file, in hex.
        ranges: its row groups in their order, and then its footer, so that who reads some row groups compares
            these only; empty for files of one row group, and in manifests that were written before.
    """

    name: str
    rows: int
    bytes: int
    sha256: str
    ranges: tuple[FileRange, ...] = ()


class StagedManifest(msgspec.Struct, frozen=True, kw_only=True):
    format_version: int = FORMAT_VERSION
    kind: str = "staged"
    cube: str
    segment: str
    version: int
    replica_set: str
    ranges: tuple[PartRange, ...]
    files: tuple[FileEntry, ...]
    events: int


class CuboidEntry(msgspec.Struct, frozen=True):
    """The files of a cuboid.

    Attributes:
        name: of the folder: `Cuboid.name`, shortened by a hash where that is too long for a path.
    """

    name: str
    dimensions: tuple[str, ...]
    rows: int
    files: tuple[FileEntry, ...]


class HistoryManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a segment in history. Older manifests lack the last four fields.

    Attributes:
        completeness: of the segment's first version, when its closing was decided; None for a cube without an
            application.
        late_events: events of this version that the first version did not hold; None where that is unknown.
        late_ppm: their share of all events; None where that is unknown.
        losses: offsets that were accepted as lost: this version lacks the segment's events among them.
    """

    format_version: int = FORMAT_VERSION
    kind: str = "history"
    cube: str
    segment: str
    version: int
    build_id: str
    covered: Offsets
    events: int
    cuboids: tuple[CuboidEntry, ...]
    completeness: Completeness | None = None
    late_events: int | None = None
    late_ppm: int | None = None
    losses: tuple[EventLoss, ...] = ()


class BatchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A planned batch, written before anything is staged.

    Attributes:
        planned_ms: by the coordinator's clock.
    """

    format_version: int = FORMAT_VERSION
    kind: str = "batch plan"
    planned_ms: int
    spec: BatchSpec


class BatchPart(msgspec.Struct, frozen=True):
    """A segment's staged part, which is to become this version."""

    segment: str
    version: int
    part: StagedPart


class BatchManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A staged batch: all of its parts are there."""

    format_version: int = FORMAT_VERSION
    kind: str = "batch"
    cube: str
    batch: str
    parts: tuple[BatchPart, ...]


class MergePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A planned merge, written before anything else of it. `planned_ms`: by the coordinator's clock."""

    format_version: int = FORMAT_VERSION
    kind: str = "merge plan"
    planned_ms: int
    spec: MergeSpec


class MergedManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A merged set: all rows of its members, and no others.

    Attributes:
        start_ms, end_ms: the interval that it was merged to.
        members: the versions whose rows it holds, by start.
        events: number of the events of all members.
    """

    format_version: int = FORMAT_VERSION
    kind: str = "merged"
    cube: str
    merge: str
    level: str
    start_ms: int
    end_ms: int
    members: tuple[MergeMember, ...]
    events: int
    cuboids: tuple[CuboidEntry, ...]


Manifest = StagedManifest | HistoryManifest | BatchPlan | BatchManifest | MergePlan | MergedManifest
M = TypeVar("M", StagedManifest, HistoryManifest, BatchPlan, BatchManifest, MergePlan, MergedManifest)
_ACTIONS: dict[type[msgspec.Struct], str] = {
    HistoryManifest: "`rtolap segments requeue CUBE SEGMENT` has its events read again from Kafka",
    StagedManifest: "`rtolap segments requeue CUBE SEGMENT` has its receivers upload the part again",
    BatchPlan: "plan the batch again under another id",
    BatchManifest: "plan and stage the batch again under another id",
    MergePlan: "`rtolap segments merge CUBE` plans it again",
    MergedManifest: "`rtolap segments requeue CUBE SEGMENT` of one of its members: the others answer by "
    "themselves then, and the next merge makes another set",
}


def encode(manifest: Manifest) -> bytes:
    """Encode the manifest as two lines: JSON, and the sha256 of the first line."""
    body = msgspec.json.encode(manifest)
    return body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"


def decode(data: bytes, kind: type[M], where: str) -> M:
    body, _, rest = data.partition(b"\n")
    digest = hashlib.sha256(body).hexdigest()
    if rest.strip().decode("ascii", "replace") != digest:
        raise Corrupted(
            f"manifest {where} does not match its checksum",
            expected=digest,
            found=rest.strip()[:64].decode("ascii", "replace") or "none",
            action=_ACTIONS[kind],
        )
    manifest = decode_own(body, kind, f"manifest {where} is not a {kind.__name__}")
    if manifest.format_version != FORMAT_VERSION:
        raise Corrupted(
            f"manifest {where} has another format", expected=FORMAT_VERSION, found=manifest.format_version
        )
    return manifest
