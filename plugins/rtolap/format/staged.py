"""Staged parts in the object store."""
from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from rtolap.format.manifest import StagedManifest
from rtolap.format.object_store import ObjectStore
from rtolap.model.staged_part import StagedPart
from rtolap.model.cube import Schema
from rtolap.model.offsets import PartRange


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
) -> StagedPart:
    """Plain tables → Parquet files, manifest last."""
    raise NotImplementedError


def read_staged_manifest(store: ObjectStore, path: str) -> StagedManifest:
    """`path` is the part's folder. NotFound / Corrupted."""
    raise NotImplementedError


def verify_staged(store: ObjectStore, path: str) -> StagedManifest:
    """The manifest, after every file was found whole. Corrupted / NotFound."""
    raise NotImplementedError
