"""A look at a cube: what its READY versions are, what the table's newest snapshot names, and the difference.

The table says what is published, and nothing else does. So a publisher that is killed anywhere goes on by
looking again: no file is named twice, none is missing. The steps, and what a crash after each leaves:

    1. read the records
    2. read the table; make it where there is none    an empty table of ours
    3. write the holds of what snapshots name or      holds of versions that no snapshot names: the purge
       will name                                      waits until the next look
    4. read the records again: a version that is
       READY no more is left out
    5. commit one snapshot                            the next look finds it
    6. expire old snapshots, delete their metadata    metadata files that nothing names, until they are swept
    7. write the holds of what snapshots name         as after 3

Steps 3 and 4 in this order keep the purge off what step 5 names, see `rtolap.metadata.publications`. Holds
become fewer only in step 7, after a commit of this publisher: a commit of its predecessor that is still on
its way requires the snapshot before, and fails from then on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from rtolap.base.clock import Clock
from rtolap.base.errors import NotYet
from rtolap.cubes.format.history import ReadyFile
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.publications import HeldRange, PublicationHolds, Publications, held_ranges
from rtolap.metadata.store import Operation
from rtolap.metadata.view import SegmentView
from rtolap.publish.table import NamedFile, PublishedTable
from rtolap.publish.versions import Version, files_of, ready_versions

SWEEP_EVERY_S = 86_400.0
_ROUNDS_MAX = 10_000  # snapshots of one look, so that a look ends
_EMPTY_MAX = 100_000  # locations of versions without a row, in memory


class Difference(NamedTuple):
    """The changes that one snapshot makes.

    Attributes:
        added: versions that the newest snapshot lacks.
        removed: files that it names and that are of no READY version.
        kept: versions that it names and that stay.
    """

    added: tuple[Version, ...]
    removed: tuple[NamedFile, ...]
    kept: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


class Look(NamedTuple):
    """The result of a look.

    Attributes:
        committed: snapshots that it made.
        newest: versions that the newest snapshot holds, those without a row included.
        snapshots: number of snapshots that the table has.
    """

    cube_id: str
    committed: int
    newest: tuple[HeldRange, ...]
    snapshot_id: int | None
    snapshots: int
    metadata_bytes: int


def _nothing(step: str) -> None:
    return None


class Publisher:
    """Publishes one publication, while this process leads.

    Args:
        require: operations that hold while it leads; they go with everything that it writes to the records.
        reached: called with each step that is done.
    """

    def __init__(
        self,
        table: PublishedTable,
        metadata: ClusterMetadata,
        clock: Clock,
        *,
        require: Callable[[], Sequence[Operation]] = tuple,
        reached: Callable[[str], None] = _nothing,
    ) -> None:
        self.publication = table.publication
        self.table = table
        self._metadata = metadata
        self._records = Publications(metadata.store)
        self._view = SegmentView(metadata, self.publication.cube)
        self._clock = clock
        self._require = require
        self._reached = reached
        self._committed = False  # once it has, no commit of a predecessor can succeed any more
        self._empty: dict[str, None] = {}
        self._swept_s: float | None = None

    def close(self) -> None:
        self._view.close()

    def look(self) -> Look:
        """Commit what is new, a snapshot for at most `versions_max` versions, until nothing is left.

        Whatever it raises: looking again is right. CommitConflict says that another publisher is at work.
        """
        committed = 0
        for _ in range(_ROUNDS_MAX):
            cube_id, ready = self._ready()
            self._reached("records read")
            self.table.open(cube_id)
            self._reached("table open")
            standing = self._records.holds(self.publication.name)
            holds = _effective(standing, cube_id)
            difference = self._difference(ready, at_once=holds.expire_all)
            forced = self._may_hold_less(holds) or (holds.expire_all and not committed)
            if not difference and not forced:
                break
            committed += self._commit(difference, standing, cube_id, forced=forced)
        else:
            raise NotYet(f"publication {self.publication.name} is not up to date after so many snapshots")
        self._tidy(cube_id)
        snapshot = self.table.snapshot
        return Look(
            cube_id,
            committed,
            held_ranges(_range(each) for each in ready.values()),
            None if snapshot is None else snapshot.snapshot_id,
            self.table.snapshots,
            self.table.metadata_bytes,
        )

    def _ready(self) -> tuple[str, dict[str, Version]]:
        """Return the cube's id and its READY versions by location, not older than the call."""
        self._view.refresh()
        self._metadata.cube(self.publication.cube)
        cube_id, control, records = self._view.identified()
        return cube_id, ready_versions(control, records)

    def _difference(self, ready: Mapping[str, Version], *, at_once: bool) -> Difference:
        """Return what the next snapshot changes, the oldest segments first.

        A segment's old version goes in the snapshot in which its new one comes. `at_once`: it goes now, since
        its files may be gone.
        """
        named = self.table.named_files(self.table.snapshot)
        times = Counter(file.uri for file in named)
        there = {file.version.location for file in named if file.version is not None and times[file.uri] == 1}
        there -= {file.version.location for file in named if file.version is not None and times[file.uri] > 1}
        missing = sorted(
            each for each in ready.values() if each.location not in there and each.location not in self._empty
        )
        added = missing[: self.publication.batch.versions_max]
        later = set() if at_once else {each.segment for each in missing[len(added) :]}
        removed = [
            file
            for file in named
            if file.version is None
            or (
                file.version.segment not in later
                and (file.version.location not in ready or times[file.uri] > 1)
            )
        ]
        going = {file.version.location for file in removed if file.version is not None}
        return Difference(tuple(added), tuple(removed), frozenset(there - going))

    def _may_hold_less(self, holds: PublicationHolds) -> bool:
        """Return True if the holds could be fewer, and no commit of this publisher has made that safe."""
        return not self._committed and held_ranges(self._named()) != holds.ranges

    def _named(self) -> Iterable[HeldRange]:
        return {_range(version) for version in self.table.named_versions()}

    def _commit(
        self, difference: Difference, standing: PublicationHolds, cube_id: str, *, forced: bool
    ) -> int:
        """Run steps 3 to 5. Returns the number of snapshots made: 0 where the records changed meanwhile, or
        where all versions to be added are without a row."""
        before = _effective(standing, cube_id)
        wanted = {*self._named(), *(_range(each) for each in difference.added)}
        ranges = held_ranges(wanted if self._committed else {*before.ranges, *wanted})
        holds = PublicationHolds(cube_id, ranges, expire_all=before.expire_all)
        self._records.write_holds(self.publication.name, holds, standing, self._require)
        self._reached("held")
        present_id, ready = self._ready()
        needed = {each.location for each in difference.added}
        if before.expire_all:
            needed |= difference.kept
        if present_id != cube_id or not needed <= ready.keys():
            return 0
        added: dict[Version, Sequence[ReadyFile]] = {}
        for version in difference.added:
            files = files_of(self.table.store, self.publication.cube, version, self.table.cuboid)
            if files:
                added[version] = files
            else:
                self._remember_empty(version.location)
        self._reached("verified")
        if not added and not difference.removed and not forced:
            return 0
        self.table.replace(added, difference.removed, cube_id)
        self._committed = True
        self._reached("committed")
        return 1

    def _tidy(self, cube_id: str) -> None:
        """Run steps 6 and 7."""
        before = self._records.holds(self.publication.name)
        old = self._expired(all_others=before.expire_all)
        if old:
            self.table.expire(old)
            self._reached("expired")
        now_s = self._clock.monotonic_s()
        if self._swept_s is None or now_s - self._swept_s >= SWEEP_EVERY_S:
            self.table.sweep()
            self._swept_s = now_s
        if self._committed and not before.released:
            holds = PublicationHolds(cube_id, held_ranges(self._named()))
            self._records.write_holds(self.publication.name, holds, before, self._require)
            self._reached("held less")

    def _expired(self, *, all_others: bool) -> list[int]:
        """Return snapshots that were replaced long enough ago, or of which there are too many.

        A snapshot that a tag or a branch of somebody else names stays.
        """
        metadata = self.table.table.metadata
        protected = {reference.snapshot_id for reference in metadata.refs.values()}
        by_age = sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0)
        bounds, now_ms = self.publication.snapshots, self._clock.now_ms()
        old = []
        for place, (snapshot, successor) in enumerate(pairwise(by_age)):
            too_many = place < len(by_age) - bounds.count_max
            aged = now_ms - successor.timestamp_ms >= bounds.expire_after_ms
            if snapshot.snapshot_id not in protected and (all_others or too_many or aged):
                old.append(snapshot.snapshot_id)
        return old

    def _remember_empty(self, location: str) -> None:
        if len(self._empty) >= _EMPTY_MAX:
            self._empty.clear()
        self._empty[location] = None


def _effective(standing: PublicationHolds, cube_id: str) -> PublicationHolds:
    """Return the holds that count. Of another creation of the cube, or given up, they hold nothing, and what
    snapshots name may be gone."""
    if standing.released or standing.cube_id not in ("", cube_id):
        return PublicationHolds(cube_id, expire_all=True)
    return standing


def _range(version: Version) -> HeldRange:
    return HeldRange(version.version, version.segment.start_ms, version.segment.end_ms)
