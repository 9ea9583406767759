"""A staged batch by hand: parts without files that claim events, for a coordinator, which reads none."""

from __future__ import annotations

from rtolap.cubes.format.manifest import (
    BATCH_NAME,
    MANIFEST_NAME,
    BatchManifest,
    BatchPart,
    StagedManifest,
    encode,
)
from rtolap.model.batch import BatchSpec
from rtolap.model.segment import StagedPart
from rtolap.object_store.store import ObjectStore


def stage_empty(store: ObjectStore, spec: BatchSpec, events: int) -> None:
    parts = []
    for place, segment in enumerate(spec.segments):
        path = f"{spec.folder}/rows/__segment={place}"
        manifest = StagedManifest(
            cube=spec.cube,
            segment=segment.segment,
            version=segment.version,
            replica_set="batch",
            ranges=segment.ranges,
            files=(),
            events=events,
        )
        store.write(f"{path}/{MANIFEST_NAME}", encode(manifest))
        part = StagedPart("batch", path, segment.ranges, rows=0, events=events, bytes=0)
        parts.append(BatchPart(segment.segment, segment.version, part))
    whole = BatchManifest(cube=spec.cube, batch=spec.batch, parts=tuple(parts))
    store.write(f"{spec.folder}/{BATCH_NAME}", encode(whole))
