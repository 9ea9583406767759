"""Leftovers of merges: steps 5 and 6 of `states`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from rtolap.base.errors import Corrupted, NotFound
from rtolap.coordinator.merging.merges import KEPT_MS
from rtolap.coordinator.merging.states import CLEANUPS, MergeCleanup, merge_state
from rtolap.cubes.format.history import read_manifest
from rtolap.cubes.format.manifest import MANIFEST_NAME, PLAN_NAME, MergePlan, decode
from rtolap.metadata.merging.units import whole_sets
from rtolap.metadata.records import SegmentRecord
from rtolap.object_store.store import ObjectStore

log = logging.getLogger(__name__)

TRIMMED_NAME = "trimmed"  # an empty file beside the plan: the members have their base cuboids only
SET_FOLDER = "set"


class MergeLeftovers(NamedTuple):
    """Folders that no reader needs any more.

    Attributes:
        useless: folders of merges.
        cuboids: folders of cuboids of members, by the folder of their merge.
    """

    useless: tuple[str, ...]
    cuboids: Mapping[str, tuple[str, ...]]


def merge_leftovers(
    store: ObjectStore,
    folders: Iterable[str],
    records: Collection[SegmentRecord],
    standing: Collection[SegmentRecord],
    *,
    is_over: Callable[[SegmentRecord], bool],
    now_ms: int,
    may_trim: bool,
) -> MergeLeftovers:
    """Return what goes. `folders` were listed before the records were read.

    Args:
        records: all of the cube's.
        standing: those that statements read.
        is_over: returns True if no statement reads any more what was before the record's last change.
        may_trim: False where a publication names files of members.
    """
    whole = whole_sets(standing)
    useless: list[str] = []
    cuboids: dict[str, tuple[str, ...]] = {}
    for folder in folders:
        location = f"{folder}/{SET_FOLDER}"
        members = whole.get(location)
        state = merge_state(
            has_manifest=members is None and store.exists(f"{location}/{MANIFEST_NAME}"),
            is_whole=members is not None,
            is_trimmed=members is not None and store.exists(f"{folder}/{TRIMMED_NAME}"),
        )
        if members is not None:
            is_past = may_trim and all(map(is_over, members))
        else:
            is_past = _is_past(store, folder, records, is_over, now_ms)
        match CLEANUPS[state, is_past]:
            case MergeCleanup.DELETE:
                useless.append(folder)
            case MergeCleanup.TRIM_MEMBERS:
                assert members is not None, "only a whole set has members to trim"
                cuboids[folder] = tuple(path for each in members for path in _other_cuboids(store, each))
            case MergeCleanup.LEAVE:
                pass
    return MergeLeftovers(tuple(useless), cuboids)


def _is_past(
    store: ObjectStore,
    folder: str,
    records: Iterable[SegmentRecord],
    is_over: Callable[[SegmentRecord], bool],
    now_ms: int,
) -> bool:
    """Return True if nobody writes or commits the merge any more, and no statement reads its set.

    A plan is written before anything else and deleted last: a folder without one is what a deletion left.
    """
    path = f"{folder}/{PLAN_NAME}"
    try:
        plan = decode(store.read(path), MergePlan, path)
    except NotFound:
        return True
    except Corrupted as error:  # who damaged it is to be found, and nothing else waits for that
        log.warning("a merge is left as it is: %s", error)
        return False
    names = {member.segment for member in plan.spec.members}
    return now_ms - plan.planned_ms >= KEPT_MS and all(
        is_over(record) for record in records if record.name in names
    )


def _other_cuboids(store: ObjectStore, record: SegmentRecord) -> list[str]:
    """Return the folders of the version's cuboids without its base. None of one without a manifest: what it
    has is found when it is needed."""
    try:
        manifest = read_manifest(store, str(record.location))
    except (NotFound, Corrupted) as error:
        log.warning("the cuboids of a merged segment are left as they are: %s", error)
        return []
    base = max(manifest.cuboids, key=lambda cuboid: len(cuboid.dimensions), default=None)
    return [
        f"{record.location}/{cuboid.name}"
        for cuboid in manifest.cuboids
        if cuboid is not base and cuboid.files
    ]
